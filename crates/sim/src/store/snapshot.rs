//! Snapshots as a store makes, sends, receives and applies them, and the end of a peer. A crash may come at
//! every step.

use std::ops::ControlFlow;

use bytes::Bytes;
use replica::eraftpb::Message;
use replica::Input;
use storage::rows::{prefix_end, region_state_row};
use storage::{Reader, RegionState};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, StoreId};
use wal::PeerLife;

use super::{rows_of, Job};
use crate::clock::MILLISECOND;
use crate::world::{Packet, Work, World};

/// A consistent view of a region's rows.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub state: RegionState,
    pub descriptor: RegionDescriptor,
    pub rows: Vec<(Bytes, Bytes)>,
    /// The region's own rows.
    pub own: Vec<(Bytes, Bytes)>,
}

impl World {
    pub(super) fn make_snapshot(&mut self, id: StoreId, region: RegionId) {
        self.say(&format!("store {id} makes a snapshot of region {region}"));
        let input = match self.take_view(id, region).filter(|_| !self.rng.chance(5)) {
            Some(snapshot) => {
                let delay = self.rng.below(300) * MILLISECOND;
                return self.schedule_work(id, delay, Work::SnapshotMade { snapshot: Box::new(snapshot) });
            }
            None => Input::SnapshotFailed { region },
        };
        self.input(id, input);
    }

    /// The view is written out; meanwhile the region went on.
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

    fn take_view(&self, id: StoreId, region: RegionId) -> Option<Snapshot> {
        let store = &self.stores[&id];
        let (state, descriptor) = store.described(region)?;
        let scan = |from: &[u8], to: &[u8]| {
            let mut rows = Vec::new();
            let scanned = store.engine.scan(from, to, &mut |row, value| {
                rows.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
                ControlFlow::Continue(())
            });
            scanned.ok().map(|()| rows)
        };
        let (from, to) = rows_of(&descriptor);
        let own = region_state_row(region);
        Some(Snapshot { rows: scan(&from, &to)?, own: scan(&own, &prefix_end(&own))?, state, descriptor })
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

    /// The last byte left: it arrived if the stores reach each other and nothing broke.
    pub(super) fn snapshot_sent(
        &mut self,
        id: StoreId,
        region: RegionId,
        to: StoreId,
        message: Message,
        made: Option<Box<Snapshot>>,
    ) {
        let is_up = self
            .stores
            .get(&to)
            .is_some_and(|store| store.process.is_some() && store.paused_until(self.now).is_none());
        let reaches = is_up && self.network.reaches(id, to) && self.network.reaches(to, id);
        let arrived = made.filter(|_| reaches && !self.rng.chance(10));
        let delivered = arrived.is_some();
        self.say(&format!("store {id} sent a snapshot of region {region} to {to}: {delivered}"));
        if let Some(snapshot) = arrived {
            // Everything is there, checked and durable, before the message is given to the worker.
            let index = snapshot.state.applied_index;
            self.store_mut(to).received.insert((region, index), *snapshot);
            if self.may_crash(to, "crash with a snapshot received") {
                return self.input(id, Input::SnapshotSent { region, to, delivered: false });
            }
            self.receive(to, id, Packet::Raft { region, message });
        }
        self.input(id, Input::SnapshotSent { region, to, delivered });
    }

    pub(super) fn apply_snapshot(
        &mut self,
        id: StoreId,
        region: RegionId,
        index: LogIndex,
        promised: &RegionDescriptor,
    ) {
        if self.may_crash(id, "crash before a snapshot is ingested") {
            return;
        }
        let store = self.store_mut(id);
        if let Err(what) = store.ingest(region, index) {
            return self.violate("recovery", format!("store {id}: {what}"));
        }
        if self.may_crash(id, "crash after a snapshot is ingested") {
            return;
        }
        let Some((state, descriptor)) = self.stores[&id].described(region) else {
            return self.violate("recovery", format!("store {id}: a snapshot without its own rows"));
        };
        if descriptor != *promised || state.applied_index != index {
            let what = format!(
                "store {id}: a snapshot of {descriptor:?} at {}, not {promised:?} at {index}",
                state.applied_index
            );
            return self.violate("recovery", what);
        }
        let store = self.store_mut(id);
        store.disk.set_life(region, PeerLife::Exists { descriptor: descriptor.clone(), parent: None });
        store.received.retain(|&(of, _), _| of != region);
        self.tally.snapshots += 1;
        let Some(process) = self.process(id) else { return };
        process.load(&descriptor, state);
        if region == types::META_REGION {
            self.load_meta(id);
        }
        self.say(&format!("store {id} has taken in a snapshot of region {region} at {index}"));
        self.show_rows(id, region);
        if !self.may_crash(id, "crash with a snapshot applied") {
            self.tell(id, node::Input::SnapshotApplied { region });
        }
    }

    /// A flush, for other regions' rows may need this log to be made again; then the tombstone; then the rows.
    pub(super) fn destroy(&mut self, id: StoreId, region: RegionId, peer: PeerId) {
        self.store_mut(id).engine.flush();
        if self.may_crash(id, "crash before a tombstone") {
            return;
        }
        self.stores[&id].disk.set_life(region, PeerLife::Tombstone { peer });
        self.tally.destroyed += 1;
        self.say(&format!("store {id} has no peer of region {region} any more"));
        if self.may_crash(id, "crash after a tombstone") {
            return;
        }
        self.store_mut(id).delete_own_rows(region);
        let Some(process) = self.process(id) else { return };
        if let Some(shared) = process.regions.get_mut(&region) {
            shared.is_local = false;
            shared.lease = None;
            shared.replacements += 1;
        }
        let delay = self.rng.below(300) * MILLISECOND;
        self.schedule_work(id, delay, Work::Cleaned { region });
    }

    /// A flush covers the deletion: the log goes too.
    pub(super) fn cleaned(&mut self, id: StoreId, region: RegionId) {
        let store = self.store_mut(id);
        store.engine.flush();
        store.disk.forget(region);
        self.input(id, Input::Destroyed { region });
    }

    /// One of the apply thread's jobs that are not entries.
    pub(super) fn do_job(&mut self, id: StoreId, job: Job) {
        let Some(process) = self.process(id) else { return };
        match job {
            Job::Ingest { region, index, descriptor } => {
                process.execution.unload(region);
                self.apply_snapshot(id, region, index, &descriptor);
            }
            Job::Destroy { region, peer } => {
                process.execution.unload(region);
                self.destroy(id, region, peer);
            }
            Job::Entries { .. } => unreachable!("entries are executed together"),
        }
    }
}
