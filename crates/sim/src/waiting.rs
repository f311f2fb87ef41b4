//! Clients that wait until a store executes an entry, in runs whose stores pass commands on. The
//! store informs such clients: by an invalidation, or because a key for which they wait has
//! elements. The client then asks the same store at once. Its command reaches the leader, which may
//! not have executed the entry yet. A client that is not woken for a few seconds goes on without,
//! because its store may be gone or may have no peers.

use types::{RegionId, StoreId};

use crate::client::ClientId;
use crate::clock::SECOND;
use crate::model::{slot_of, Command, Group, Key};
use crate::observation::Op;
use crate::world::{Event, World};

/// Number of clients that may wait. The others write meanwhile.
const WAITING_MAX: ClientId = 2;

/// Minimum and maximum time for which a client waits.
const PATIENCE: (u64, u64) = (3 * SECOND, 6 * SECOND);

impl World {
    /// Draws whether the client waits at a store before its next conversation. Returns true if it
    /// does.
    pub(crate) fn begins_to_wait(&mut self, client: ClientId) -> bool {
        let may_wait = self.plan.passes_on && client < WAITING_MAX && self.clients[client].wishes.is_none();
        if !may_wait || !self.rng.chance(60) {
            return false;
        }
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let Some(store) = self.rng.pick(&stores) else { return false };
        let since = self.now;
        self.clients[client].waits = Some((store, since));
        let patience = self.rng.between(PATIENCE.0, PATIENCE.1);
        self.schedule(patience, Event::WaitEnds { client, since });
        true
    }

    /// Ends a wait, unless an execution has ended it before.
    pub(crate) fn wait_ends(&mut self, client: ClientId, since: u64) {
        if self.clients[client].waits.is_some_and(|(_, began)| began == since) {
            self.client_turn(client);
        }
    }

    /// Wakes the clients that wait at a store which has executed entries of these regions.
    pub(crate) fn wake_clients(&mut self, store: StoreId, regions: &[RegionId]) {
        for client in 0..self.clients.len() {
            if self.clients[client].waits.is_none_or(|(at, _)| at != store) {
                continue;
            }
            let Some(process) = &self.stores[&store].process else { return };
            let descriptors = regions.iter().filter_map(|region| process.regions.get(region));
            let slots: Vec<_> = descriptors.filter_map(|shared| shared.descriptor.slots).collect();
            let changed = |group: &Group| slots.iter().any(|slots| slots.contains(slot_of(*group)));
            let groups: Vec<Group> = (0..self.groups).filter(changed).collect();
            let Some(group) = self.rng.pick(&groups) else { continue };
            self.clients[client].waits = None;
            let delay = self.client_delay();
            self.schedule(delay, Event::Woken { client, store, group });
        }
    }

    /// Begins the conversation of a client that was woken. It reads, or deletes a key, which is
    /// answered like a read if the key does not exist.
    pub(crate) fn woken(&mut self, client: ClientId, store: StoreId, group: Group) {
        let is_idle = self.clients[client].conversation.is_none() && self.clients[client].wishes.is_none();
        if !is_idle {
            return;
        }
        self.tally.woken += 1;
        self.last_op += 1;
        let command = match self.rng.below(8) {
            0..=2 => Command::GetBoth,
            3 => Command::Get { key: Key::Counter },
            4 => Command::GetField { field: self.rng.below(3) },
            _ => Command::Delete { key: self.rng.pick(&Key::SIMPLE).expect("four keys") },
        };
        let op = Op { id: self.last_op, group, command };
        self.begin_conversation(client, vec![op], store, false);
    }
}
