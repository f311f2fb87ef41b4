//! Stores that join and leave the cluster, according to the meta region's state.

use cluster::MemberState;
use types::{StoreId, META_REGION};

use super::Store;
use crate::client::Client;
use crate::clock::{Clock, MILLISECOND, SECOND};
use crate::faults::Plan;
use crate::world::{Event, World};

impl World {
    /// Starts stores that have joined, with an empty disk, and ends removed stores after a short
    /// time. Called after entries of the meta region were applied.
    pub(super) fn look_at_members(&mut self, id: StoreId) {
        let Some(process) = &self.stores[&id].process else { return };
        let Some(state) = process.execution.state(META_REGION) else { return };
        if state.applied_index <= self.members_as_of {
            return;
        }
        self.members_as_of = state.applied_index;
        let known: Vec<(StoreId, MemberState)> =
            process.meta.stores.values().map(|record| (record.id, record.state)).collect();
        for (store, state) in known {
            match (self.stores.contains_key(&store), state) {
                (false, MemberState::Up | MemberState::Draining) => self.begin_joined(store),
                (true, MemberState::Removed) if !self.stores[&store].is_removed => {
                    self.tally.removed += 1;
                    self.say(&format!("store {store} is no longer a member"));
                    self.store_mut(store).is_removed = true;
                    let delay = self.rng.below(SECOND);
                    self.schedule(delay, Event::Removed { store });
                }
                _ => {}
            }
        }
    }

    fn begin_joined(&mut self, store: StoreId) {
        self.tally.joined += 1;
        self.say(&format!("store {store} has joined"));
        let boot = self.rng.between(10, 100_000) * SECOND;
        let drift = Plan::drift(&mut self.rng);
        self.stores.insert(store, Store::new(Clock::new(self.now, boot, drift)));
        self.draw_fsync(store);
        self.know_ranges(store);
        let delay = self.rng.below(500) * MILLISECOND;
        self.schedule(delay, Event::Start { store });
    }

    /// Ends a removed store once no client waits for it. It leads nothing, so it refuses every
    /// request.
    pub(crate) fn end_removed(&mut self, store: StoreId) {
        let is_asked = |client: &Client| client.conversation.as_ref().is_some_and(|of| of.at == store);
        if self.clients.iter().any(is_asked) {
            return self.schedule(20 * MILLISECOND, Event::Removed { store });
        }
        self.crash(store, false);
    }

    /// Returns the time after which a store with a full device tries again. `None` if it has room.
    pub(super) fn without_room(&self, id: StoreId) -> Option<u64> {
        let until = self.stores.get(&id)?.full_until;
        (self.now < until).then(|| until - self.now + 1)
    }
}
