//! A model of the coordinator, which is an ensemble of ZooKeeper servers. It holds the stores'
//! sessions, and for each session the positions that the store publishes.
//!
//! It expires sessions, lags, is away for a while, and loses contact with single stores. In some
//! seeds it also lies: it serves old positions, positions of another store and invented ones, and
//! reports the end of a live leader's session. Candidates are therefore chosen badly or not at all,
//! but no election may break an invariant.
//!
//! Peers have no timeout of their own to fall back on in some of the other seeds. There the
//! coordinator is honest, and it is back once the faults end.
//!
//! A tenth of the seeds have a coordinator. This is drawn separately, so that seeds without one run
//! as before.

use std::collections::{BTreeMap, BTreeSet};

use node::coordinator::{parse_positions, Positions};
use replica::Elections;
use types::StoreId;

use crate::clock::{MILLISECOND, SECOND};
use crate::rng::Rng;
use crate::world::{Event, Work, World};

mod faults;

pub use faults::FAULTS;

/// Salt and percentage of the seeds with a coordinator.
const COORDINATED: u64 = 0x6b1e_0f83_92d4_c75b;
const COORDINATED_PERCENT: u64 = 10;
/// Percentages: of the coordinators that lie, of those that leave when the faults end, and of the
/// others that peers fall back from.
const LYING_PERCENT: u64 = 35;
const LEAVING_PERCENT: u64 = 30;
const FALLBACK_PERCENT: u64 = 40;
/// Percentage of the seeds in which the way of choosing candidates changes under way.
const SWITCHING_PERCENT: u64 = 40;
/// Interval at which the ensemble looks for sessions that were not renewed.
const LOOK: u64 = 100 * MILLISECOND;
/// The maximum delay of a message without lag in milliseconds.
const PROMPT_MS: u64 = 20;
/// Maximum number of published texts that a liar remembers.
const REMEMBERED: usize = 40;

/// A store's message. It renews the session and holds everything that the store wants to be known.
#[derive(Clone, Debug)]
pub struct Ask {
    pub store: StoreId,
    /// The incarnation of the store's process.
    pub life: u64,
    /// The session to renew. `None` asks for a new one.
    pub session: Option<u64>,
    /// The number of the message among those of this process.
    pub number: u64,
    /// The positions to publish.
    pub text: String,
    /// The stores whose positions it wants to know.
    pub watched: BTreeSet<StoreId>,
}

/// A message to a store. A change is a number that grows with each change, as a zxid does.
#[derive(Clone, Debug)]
pub enum CoordinatorMessage {
    Session { number: u64 },
    Expired { number: u64 },
    Positions { of: StoreId, text: Option<String>, change: u64 },
    Ended { of: StoreId, change: u64 },
}

/// The positions that the stores publish.
pub(crate) type Published = BTreeMap<StoreId, Positions>;

struct Session {
    number: u64,
    life: u64,
    renewed: u64,
    /// The number of the newest message.
    asked: u64,
    text: String,
    watched: BTreeSet<StoreId>,
}

/// The servers of the coordinator.
pub(crate) struct Ensemble {
    pub elections: Elections,
    /// True while the ensemble chooses the candidates.
    is_in_charge: bool,
    pub session_nanos: u64,
    /// Percentage of the positions that it serves wrongly.
    lies_percent: u64,
    leaves: bool,
    switches: bool,
    /// Maximum time between two faults of the ensemble.
    pause_ns: u64,
    away_until: u64,
    /// The stores that it has no contact with, and until when.
    cut_until: BTreeMap<StoreId, u64>,
    lag_ms: u64,
    sessions: BTreeMap<StoreId, Session>,
    last_number: u64,
    /// Texts that stores have published.
    remembered: Vec<String>,
}

impl Ensemble {
    pub fn of(seed: u64) -> Option<Ensemble> {
        let mut rng = Rng::new(seed ^ COORDINATED);
        if !rng.chance(COORDINATED_PERCENT) {
            return None;
        }
        let lies = rng.chance(LYING_PERCENT);
        let leaves = rng.chance(LEAVING_PERCENT);
        let falls_back = rng.chance(FALLBACK_PERCENT) || lies || leaves;
        let fallback_nanos = rng.between(1000, 5000) * MILLISECOND;
        Some(Ensemble {
            elections: Elections::ByCoordinator { fallback_nanos: falls_back.then_some(fallback_nanos) },
            is_in_charge: true,
            session_nanos: rng.between(2000, 6000) * MILLISECOND,
            lies_percent: if lies { rng.between(10, 80) } else { 0 },
            leaves,
            switches: rng.chance(SWITCHING_PERCENT),
            pause_ns: rng.between(1000, 8000) * MILLISECOND,
            away_until: 0,
            cut_until: BTreeMap::new(),
            lag_ms: PROMPT_MS,
            sessions: BTreeMap::new(),
            last_number: 0,
            remembered: Vec::new(),
        })
    }

    /// Returns true if no election succeeds without the coordinator.
    pub fn is_depended_on(&self) -> bool {
        self.is_in_charge && self.elections == Elections::ByCoordinator { fallback_nanos: None }
    }

    pub fn published(&self) -> Published {
        let read = |session: &Session| parse_positions(&session.text).expect("stores write positions");
        self.sessions.iter().map(|(&store, session)| (store, read(session))).collect()
    }

    fn reaches(&self, store: StoreId, now: u64) -> bool {
        let is_cut = self.cut_until.get(&store).is_some_and(|&until| now < until);
        now >= self.away_until && !is_cut
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Remembers the message's contents. Returns the stores whose positions the store asks for the
    /// first time, and the stores that want to know its changed positions. Returns `None` if the
    /// session that it names is over.
    fn take(&mut self, ask: &Ask, now: u64) -> Option<(BTreeSet<StoreId>, Vec<StoreId>)> {
        let known = self.sessions.get(&ask.store).map(|session| session.number);
        if ask.session.is_some() && ask.session != known {
            return None;
        }
        if known.is_none() {
            let number = self.next_number();
            let (text, watched) = (String::new(), BTreeSet::new());
            let session = Session { number, life: ask.life, renewed: now, asked: 0, text, watched };
            self.sessions.insert(ask.store, session);
        }
        let session = self.sessions.get_mut(&ask.store)?;
        session.renewed = now;
        if ask.number <= session.asked {
            return Some((BTreeSet::new(), Vec::new()));
        }
        session.asked = ask.number;
        if ask.session.is_none() {
            session.watched.clear();
        }
        let first = ask.watched.difference(&session.watched).copied().collect();
        session.watched = ask.watched.clone();
        let mut watchers = Vec::new();
        if session.text != ask.text {
            session.text = ask.text.clone();
            self.remembered.push(ask.text.clone());
            self.remembered.drain(..self.remembered.len().saturating_sub(REMEMBERED));
            let watches = |session: &Session| session.watched.contains(&ask.store);
            watchers.extend(self.sessions.iter().filter(|(_, session)| watches(session)).map(|(&id, _)| id));
        }
        Some((first, watchers))
    }
}

impl World {
    /// Schedules the coordinator's work and faults if the seed has one.
    pub(crate) fn draw_coordination(&mut self) {
        let Some(ensemble) = &self.ensemble else { return };
        self.tally.coordinated += 1;
        let switches = ensemble.switches;
        self.schedule(LOOK, Event::Sessions);
        self.schedule(SECOND, Event::EnsembleFault);
        if switches {
            self.schedule(3 * SECOND, Event::SwitchElections);
        }
    }

    /// Returns the present way in which candidates are chosen.
    pub(crate) fn elections(&self) -> Elections {
        let in_charge = self.ensemble.as_ref().filter(|ensemble| ensemble.is_in_charge);
        in_charge.map_or(Elections::ByTimeout, |ensemble| ensemble.elections)
    }

    /// Gives elections that have just begun the time that they take without the coordinator.
    pub(crate) fn await_elections(&mut self) {
        let Some(Elections::ByCoordinator { fallback_nanos }) =
            self.ensemble.as_ref().map(|ensemble| ensemble.elections)
        else {
            return;
        };
        self.run_until(self.now + fallback_nanos.unwrap_or(0) + 2 * SECOND);
    }

    /// Returns the delay of a message between a store and the coordinator.
    pub(crate) fn coordinator_delay(&mut self) -> u64 {
        let lag_ms = self.ensemble.as_ref().map_or(0, |ensemble| ensemble.lag_ms);
        MILLISECOND / 2 + self.rng.below(lag_ms * MILLISECOND)
    }

    /// Ends the sessions that were not renewed in time.
    pub(crate) fn look_at_sessions(&mut self) {
        self.schedule(LOOK, Event::Sessions);
        let now = self.now;
        let Some(ensemble) = self.ensemble.as_ref().filter(|ensemble| now >= ensemble.away_until) else {
            return;
        };
        let is_over = |session: &Session| now.saturating_sub(session.renewed) > ensemble.session_nanos;
        let over = ensemble.sessions.iter().filter(|(_, session)| is_over(session));
        for store in over.map(|(&store, _)| store).collect::<Vec<_>>() {
            self.end_session(store);
        }
    }

    fn end_session(&mut self, store: StoreId) {
        if self.ensemble.as_mut().and_then(|ensemble| ensemble.sessions.remove(&store)).is_some() {
            self.tally.sessions_ended += 1;
            self.say(&format!("the session of store {store} ends"));
            self.report_end(store);
        }
    }

    /// Tells the other stores that a store's session has ended, which may be a lie.
    fn report_end(&mut self, of: StoreId) {
        let Some(ensemble) = self.ensemble.as_mut() else { return };
        let change = ensemble.next_number();
        let others: Vec<StoreId> = ensemble.sessions.keys().copied().filter(|&store| store != of).collect();
        for store in others {
            self.inform(store, CoordinatorMessage::Ended { of, change });
        }
    }

    /// Takes a store's message.
    pub(crate) fn asked_coordinator(&mut self, ask: &Ask) {
        let now = self.now;
        let Some(ensemble) = self.ensemble.as_ref().filter(|ensemble| ensemble.reaches(ask.store, now))
        else {
            return;
        };
        // The znodes of a process that has ended stay until its successor removes them.
        match ensemble.sessions.get(&ask.store).map(|session| session.life) {
            Some(life) if life > ask.life => return,
            Some(life) if life < ask.life => self.end_session(ask.store),
            _ => {}
        }
        let Some(ensemble) = self.ensemble.as_mut() else { return };
        let taken = ensemble.take(ask, now);
        let number = ensemble.sessions.get(&ask.store).map(|session| session.number);
        match (taken, number, ask.session) {
            (Some((first, watchers)), Some(number), _) => {
                self.inform(ask.store, CoordinatorMessage::Session { number });
                first.into_iter().for_each(|of| self.serve_positions(ask.store, of));
                watchers.into_iter().for_each(|watcher| self.serve_positions(watcher, ask.store));
            }
            (_, _, Some(number)) => {
                self.inform_life(ask.store, ask.life, CoordinatorMessage::Expired { number })
            }
            _ => {}
        }
    }

    /// Sends a store the positions of another one.
    fn serve_positions(&mut self, to: StoreId, of: StoreId) {
        let Some(ensemble) = self.ensemble.as_mut() else { return };
        let change = ensemble.next_number();
        let lies = self.rng.chance(ensemble.lies_percent);
        let text = match lies {
            true => ensemble.invent(&mut self.rng),
            false => ensemble.sessions.get(&of).map(|session| session.text.clone()),
        };
        self.tally.lies += u64::from(lies);
        self.inform(to, CoordinatorMessage::Positions { of, text, change });
    }

    fn inform(&mut self, to: StoreId, news: CoordinatorMessage) {
        let now = self.now;
        let Some(ensemble) = self.ensemble.as_mut() else { return };
        let is_reached = ensemble.reaches(to, now);
        let Some(session) = ensemble.sessions.get_mut(&to) else { return };
        if !is_reached {
            // Everything is served again once the store has contact again.
            return session.watched.clear();
        }
        let life = session.life;
        self.inform_life(to, life, news);
    }

    fn inform_life(&mut self, store: StoreId, life: u64, news: CoordinatorMessage) {
        let delay = self.coordinator_delay();
        self.schedule(delay, Event::Of { store, life, work: Work::CoordinatorMessage(news) });
    }
}
