//! Snapshots that a store makes, sends and receives. The store may crash at every step.

use replica::eraftpb::Message;
use replica::Input;
use types::{RegionId, StoreId};

use crate::clock::MILLISECOND;
use crate::durable::Snapshot;
use crate::world::{Packet, Work, World};

/// Interval between two looks at a snapshot that a fault withholds.
const HELD_BACK: u64 = 10 * MILLISECOND;

impl World {
    pub(super) fn make_snapshot(&mut self, id: StoreId, region: RegionId) {
        self.say(&format!("store {id} makes a snapshot of region {region}"));
        let is_full = self.without_room(id).is_some();
        let input = match self.stores[&id].durable.view(region).filter(|_| !self.rng.chance(5) && !is_full) {
            Some(snapshot) => {
                let delay = self.rng.below(300) * MILLISECOND;
                return self.schedule_work(id, delay, Work::SnapshotMade { snapshot: Box::new(snapshot) });
            }
            None => Input::SnapshotFailed { region },
        };
        self.input(id, input);
    }

    /// Tells the worker that the view is written. The region has continued in the meantime.
    pub(super) fn snapshot_made(&mut self, id: StoreId, snapshot: Box<Snapshot>) {
        if self.may_crash(id, "crash while a snapshot is made") {
            return;
        }
        let (index, term) = (snapshot.state.applied_index, snapshot.state.applied_term);
        let descriptor = snapshot.descriptor.clone();
        let region = descriptor.id;
        let Some(process) = self.process(id) else { return };
        process.made.insert(region, *snapshot);
        self.input(id, Input::SnapshotMade { region, index, term, descriptor });
    }

    pub(super) fn send_snapshot(&mut self, id: StoreId, region: RegionId, to: StoreId, message: Message) {
        let index = message.get_snapshot().get_metadata().index;
        let Some(process) = self.process(id) else { return };
        let made =
            process.made.get(&region).filter(|made| made.state.applied_index == index).cloned().map(Box::new);
        let message = Box::new(message);
        let delay = self.rng.below(800) * MILLISECOND;
        self.schedule_work(id, delay, Work::SnapshotSent { region, to, message, made });
    }

    /// Ends the sending of a snapshot. It arrives if the stores reach each other and no fault
    /// happened.
    pub(super) fn snapshot_sent(
        &mut self,
        id: StoreId,
        region: RegionId,
        to: StoreId,
        message: Message,
        made: Option<Box<Snapshot>>,
    ) {
        if self.race_holds(region, to) {
            let message = Box::new(message);
            return self.schedule_work(id, HELD_BACK, Work::SnapshotSent { region, to, message, made });
        }
        let is_up = self
            .stores
            .get(&to)
            .is_some_and(|store| store.process.is_some() && store.paused_until(self.now).is_none());
        let has_room = self.without_room(to).is_none();
        let reaches = is_up && self.network.reaches(id, to) && self.network.reaches(to, id);
        let arrived = made.filter(|_| reaches && has_room && !self.rng.chance(10));
        let delivered = arrived.is_some();
        self.say(&format!("store {id} sent a snapshot of region {region} to {to}: {delivered}"));
        if let Some(snapshot) = arrived {
            // The snapshot is complete, checked and durable before the worker gets the message.
            let index = snapshot.state.applied_index;
            self.store_mut(to).durable.received.insert((region, index), *snapshot);
            if self.may_crash(to, "crash with a snapshot received") {
                return self.input(id, Input::SnapshotSent { region, to, delivered: false });
            }
            self.receive(to, id, Packet::Raft { region, message });
        }
        self.input(id, Input::SnapshotSent { region, to, delivered });
    }
}
