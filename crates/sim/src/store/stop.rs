//! Planned stops of a store, which then starts again. `node::stop` makes the decisions, and this
//! module acts like a running store.

use std::collections::BTreeSet;

use node::stop::{PlannedStop, StopPhase, StopTimes, StopView};
use replica::{Input, Role};
use types::{BootNanos, RegionId, StoreId};

use crate::client::PATIENCE;
use crate::clock::{MILLISECOND, SECOND};
use crate::observation::Observation;
use crate::world::{Event, Work, World};

const TIMES: StopTimes = StopTimes {
    told_nanos: 100 * MILLISECOND,
    hand_over_nanos: 5 * SECOND,
    retry_nanos: 2 * SECOND,
    quiet_nanos: 300 * MILLISECOND,
    redirect_nanos: SECOND,
    // This is longer than any client waits.
    close_nanos: PATIENCE + SECOND,
};

const POLL: u64 = 10 * MILLISECOND;

/// A planned stop in progress.
pub(super) struct Stopping {
    stop: PlannedStop,
    began: BootNanos,
    phase: StopPhase,
}

impl Stopping {
    /// Returns true if clients are accepted.
    pub fn accepts(&self) -> bool {
        self.phase < StopPhase::Closing
    }
}

impl World {
    /// Begins a planned stop of the store.
    pub(crate) fn stop_by_plan(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let Some(process) = self.process(id).filter(|process| process.stopping.is_none()) else { return };
        let stop = PlannedStop::new(TIMES, boot);
        process.stopping = Some(Stopping { stop, began: boot, phase: StopPhase::Telling });
        self.input(id, Input::StopLeading);
        self.report(id);
        self.schedule_work(id, POLL, Work::Stop);
    }

    /// Shows the invariants that the peers are about to learn of the stop.
    pub(super) fn show_stop(&mut self, id: StoreId) {
        let Some(process) = self.process(id) else { return };
        // A peer may have won already, in this turn, although its leadership is not told yet.
        let is_told = |region: &RegionId| {
            process.regions.get(region).is_some_and(|shared| shared.leadership.leader == Some(id))
        };
        let stands = |region: &RegionId| match process.shard.status(*region, 0).map(|status| status.role) {
            Some(Role::Candidate) => true,
            Some(Role::Leader) => !is_told(region),
            _ => false,
        };
        let standing: BTreeSet<RegionId> = process.shard.regions().filter(stands).collect();
        self.observe(&Observation::StopBegun { store: id, standing: &standing });
    }

    pub(super) fn stop_step(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let view = self.stop_view(id, boot);
        let Some(stopping) = self.process(id).and_then(|process| process.stopping.as_mut()) else { return };
        let step = stopping.stop.step(&view, boot);
        stopping.phase = step.phase;
        for (region, to) in step.transfers {
            self.input(id, Input::TransferLeader { region, to });
        }
        match step.phase {
            StopPhase::Done => self.stopped(id),
            _ => self.schedule_work(id, POLL, Work::Stop),
        }
    }

    fn stop_view(&mut self, id: StoreId, boot: BootNanos) -> StopView {
        let others: Vec<StoreId> = self.stores.keys().copied().filter(|&other| other != id).collect();
        let connections = self.waiting_clients(id);
        let Some(process) = self.process(id) else { return StopView::default() };
        let takes_leads = |other| process.ledger.takes_on(other, boot);
        StopView {
            led: process.led_regions(id, boot),
            has_others: others.into_iter().any(takes_leads),
            connections,
            ..StopView::default()
        }
    }

    /// Returns the number of clients that wait for a reply over an accepted connection.
    fn waiting_clients(&self, id: StoreId) -> usize {
        let Some(process) = &self.stores[&id].process else { return 0 };
        let open = |client: &&crate::client::Client| {
            let connection = client.conversation.as_ref().and_then(|conversation| conversation.connection);
            connection.is_some_and(|connection| process.connections.contains_key(&connection))
        };
        self.clients.iter().filter(open).count()
    }

    fn stopped(&mut self, id: StoreId) {
        let (boot, unanswered) = (self.boot(id), self.waiting_clients(id));
        let Some(stopping) = self.process(id).and_then(|process| process.stopping.take()) else { return };
        let has_waited = boot.saturating_sub(stopping.began) >= TIMES.close_nanos;
        let handed_over = stopping.stop.left().regions.is_empty();
        self.tally.planned_stops += 1;
        self.tally.all_handed_over += u64::from(handed_over);
        self.say(&format!("store {id} stops by plan, {unanswered} clients wait"));
        self.observe(&Observation::StopEnded { store: id, unanswered, has_waited });
        self.crash(id, false);
        let store = self.store_mut(id);
        store.durable.disk.sync();
        store.mark = store.mark.stopped();
        let down = self.rng.between(50, 1500) * MILLISECOND;
        self.schedule(down, Event::Start { store: id });
    }
}
