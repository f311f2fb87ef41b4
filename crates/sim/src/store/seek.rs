//! A store's part in elections with a coordinator: it keeps its session, publishes the positions of
//! its peers that seek a leader, and tells the worker which of them campaign.

use std::collections::{BTreeMap, BTreeSet};

use node::coordinator::{parse_positions, positions_text, Coordinator};
use replica::{Input, Seeker};
use types::{BootNanos, RegionId, StoreId};

use crate::clock::{MILLISECOND, SECOND};
use crate::coordinator::{Ask, CoordinatorMessage};
use crate::world::{Event, World};

/// The time for which a candidate campaigns alone, and the interval at which it campaigns again: an
/// election timeout, and two ticks.
const TURN: u64 = SECOND;
const RETRY: u64 = 200 * MILLISECOND;

/// A process's connection to the coordinator.
pub(super) struct Link {
    choice: Coordinator,
    session: Option<u64>,
    heard_at: BootNanos,
    asked_at: BootNanos,
    asked: u64,
    watched: BTreeSet<StoreId>,
    /// The number of the newest change of each other store's positions.
    newest: BTreeMap<StoreId, u64>,
}

impl Link {
    pub fn new(this: StoreId) -> Link {
        Link {
            choice: Coordinator::new(this, TURN, RETRY),
            session: None,
            heard_at: 0,
            asked_at: 0,
            asked: 0,
            watched: BTreeSet::new(),
            newest: BTreeMap::new(),
        }
    }

    fn lose_session(&mut self) {
        self.session = None;
        self.choice.set_session(false);
    }

    /// Returns false if a newer change of the store's positions is known.
    fn is_news(&mut self, of: StoreId, change: u64) -> bool {
        let newest = self.newest.entry(of).or_default();
        let is_news = change > *newest;
        *newest = change.max(*newest);
        is_news
    }
}

impl World {
    /// Takes the worker's report about a peer that seeks a leader, or no longer.
    pub(super) fn seek(&mut self, id: StoreId, region: RegionId, seeker: Option<Seeker>) {
        let boot = self.boot(id);
        self.tally.searches += u64::from(seeker.is_some());
        let Some(process) = self.process(id) else { return };
        let is_changed = process.link.choice.seek(region, seeker, boot);
        if is_changed || process.link.choice.watched() != process.link.watched {
            self.ask_coordinator(id);
        }
        self.stand(id);
    }

    /// Renews the session in time, and gives it up after a long silence.
    pub(super) fn keep_session(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let Some(session_nanos) = self.ensemble.as_ref().map(|ensemble| ensemble.session_nanos) else {
            return;
        };
        let Some(process) = self.process(id) else { return };
        let link = &mut process.link;
        if link.session.is_some() && boot.saturating_sub(link.heard_at) > session_nanos {
            link.lose_session();
        }
        if boot.saturating_sub(link.asked_at) > session_nanos / 3 {
            self.ask_coordinator(id);
        }
        self.stand(id);
    }

    fn ask_coordinator(&mut self, id: StoreId) {
        let (boot, life, delay) = (self.boot(id), self.stores[&id].life, self.coordinator_delay());
        let Some(process) = self.process(id) else { return };
        let link = &mut process.link;
        link.asked_at = boot;
        link.asked += 1;
        link.watched = link.choice.watched();
        let ask = Ask {
            store: id,
            life,
            session: link.session,
            number: link.asked,
            text: positions_text(&link.choice.positions()),
            watched: link.watched.clone(),
        };
        self.schedule(delay, Event::AskCoordinator { ask });
    }

    /// Takes a message of the coordinator.
    pub(super) fn hear_coordinator(&mut self, id: StoreId, news: CoordinatorMessage) {
        let boot = self.boot(id);
        let Some(process) = self.process(id) else { return };
        let link = &mut process.link;
        match news {
            CoordinatorMessage::Session { number } => {
                link.heard_at = boot;
                link.session.get_or_insert(number);
                link.choice.set_session(true);
            }
            CoordinatorMessage::Expired { number } => {
                if link.session == Some(number) {
                    link.lose_session();
                    self.ask_coordinator(id);
                }
            }
            CoordinatorMessage::Positions { of, text, change } => {
                if link.is_news(of, change) {
                    let positions = text.map(|text| parse_positions(&text).expect("stores write positions"));
                    link.choice.hear(of, positions);
                }
            }
            CoordinatorMessage::Ended { of, change } => {
                if link.is_news(of, change) {
                    link.choice.hear(of, None);
                }
                self.input(id, Input::SessionEnded { store: of });
            }
        }
        self.stand(id);
    }

    /// Tells the worker which peers campaign now.
    fn stand(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let Some(process) = self.process(id) else { return };
        for region in process.link.choice.candidates(boot) {
            self.tally.stands += 1;
            self.input(id, Input::Stand { region });
        }
    }
}
