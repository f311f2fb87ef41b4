//! The data of a store that survives its process: the log, the rows, and complete received
//! snapshots. Recovery uses nothing else.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use cluster::Mark;
use node::recovery::{OwnRows, Recovered, StoredState};
use node::unsynced::Damaged;
use replica::HardState;
use storage::rows::{region_descriptor_row, region_state_row, SPACE_REGION_STATE};
use storage::{extent, Reader, RegionState, WriteSet};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId, Term};
use wal::{Loss, PeerLifecycle};

use crate::disk::Disk;
use crate::rows::Rows;

#[derive(Debug, Default)]
pub struct Durable {
    pub disk: Disk,
    pub engine: Rows,
    /// Snapshots that were received completely and are durable.
    pub received: BTreeMap<(RegionId, LogIndex), Snapshot>,
}

/// A consistent view of a region's rows.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub state: RegionState,
    pub descriptor: RegionDescriptor,
    pub rows: Vec<(Bytes, Bytes)>,
    /// The rows about the region itself.
    pub own: Vec<(Bytes, Bytes)>,
}

/// Returns the two rows about the region itself.
fn own_rows(region: &RegionDescriptor, state: &RegionState) -> [(Bytes, Option<Bytes>); 2] {
    [
        (region_state_row(region.id), Some(state.encode())),
        (region_descriptor_row(region.id), Some(region.encode())),
    ]
}

impl Durable {
    /// Returns the region's state and descriptor from the rows.
    pub fn described(&self, region: RegionId) -> Option<(RegionState, RegionDescriptor)> {
        let state = self.engine.get(&region_state_row(region)).ok()??;
        let descriptor = self.engine.get(&region_descriptor_row(region)).ok()??;
        Some((RegionState::decode(&state).ok()?, RegionDescriptor::decode(&descriptor).ok()?))
    }

    /// Returns the slots of the region according to its rows. Empty if its rows name none.
    fn slots_of(&self, region: RegionId) -> Vec<SlotRange> {
        self.described(region).and_then(|(_, descriptor)| descriptor.slots).into_iter().collect()
    }

    /// Deletes a region's rows and the rows about it, except for rows in slots of other regions.
    /// The deletion is not durable yet.
    pub fn delete_own_rows(&mut self, region: RegionId) -> Result<(), String> {
        let slots = extent::without_others(&self.engine, region, &self.slots_of(region));
        let slots = slots.map_err(|error| error.to_string())?;
        self.engine.write(extent::deletion(region, &slots));
        Ok(())
    }

    fn received(&self, region: RegionId, index: LogIndex) -> Result<Snapshot, String> {
        let snapshot = self.received.get(&(region, index)).cloned();
        snapshot.ok_or_else(|| format!("the snapshot of region {region} at {index} is not there"))
    }

    /// Durably deletes the rows that a received snapshot replaces.
    pub fn clear_for(&mut self, region: RegionId, index: LogIndex) -> Result<(), String> {
        let snapshot = self.received(region, index)?;
        let previous = extent::without_others(&self.engine, region, &self.slots_of(region));
        let mut slots = previous.map_err(|error| error.to_string())?;
        slots.extend(snapshot.descriptor.slots);
        for (from, to) in extent::deletion(region, &slots).ranges_deleted {
            self.engine.ingest(&from, &to, []);
        }
        Ok(())
    }

    /// Durably replaces the region's rows with a received snapshot.
    pub fn ingest(&mut self, region: RegionId, index: LogIndex) -> Result<(), String> {
        self.clear_for(region, index)?;
        let snapshot = self.received(region, index)?;
        self.engine.ingest(&Bytes::new(), &Bytes::new(), snapshot.rows.into_iter().chain(snapshot.own));
        Ok(())
    }

    /// Returns the region's rows now. `None` if there are none that can be read.
    pub fn view(&self, region: RegionId) -> Option<Snapshot> {
        let (state, descriptor) = self.described(region)?;
        let scan = |from: &[u8], to: &[u8]| {
            let mut rows = Vec::new();
            let scanned = self.engine.scan(from, to, &mut |row, value| {
                rows.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
                ControlFlow::Continue(())
            });
            scanned.ok().map(|()| rows)
        };
        let rows = match extent::data_range(region, descriptor.slots) {
            Some((from, to)) => scan(&from, &to)?,
            None => Vec::new(),
        };
        let (from, to) = extent::own_range(region);
        Some(Snapshot { rows, own: scan(&from, &to)?, state, descriptor })
    }

    /// Recovers the store's peers. `known` lists the peers that damage made unclean before.
    pub fn recover(&mut self, id: StoreId, known: &BTreeMap<RegionId, Damaged>) -> Result<Recovered, String> {
        let promised = self.disk.promises();
        let recovered = node::recovery::recover(id, self, known, false)?;
        self.disk.assert_kept(&promised);
        // Recovery has applied every snapshot that had to be applied.
        self.received.clear();
        Ok(recovered)
    }
}

impl StoredState for Durable {
    type Error = String;

    fn lifecycles(&self) -> Vec<(RegionId, PeerLifecycle)> {
        self.disk.lifecycles()
    }

    fn set_lifecycles(&mut self, lifecycles: &[(RegionId, PeerLifecycle)]) -> Result<(), String> {
        lifecycles.iter().for_each(|(region, life)| self.disk.set_life(*region, life.clone()));
        Ok(())
    }

    fn found(&mut self, peers: &[RegionDescriptor]) -> Result<(), String> {
        peers.iter().for_each(|peer| self.disk.found(peer.clone()));
        Ok(())
    }

    fn logs(&self) -> Vec<RegionId> {
        self.disk.regions()
    }

    fn destroy_log(&mut self, region: RegionId, peer: PeerId) -> Result<(), String> {
        self.disk.forget(region);
        self.disk.set_life(region, PeerLifecycle::Tombstone { peer });
        Ok(())
    }

    fn mark(&self, region: RegionId) -> Result<Option<Mark>, String> {
        Ok(self.disk.mark(region))
    }

    fn forget_mark(&mut self, region: RegionId) -> Result<(), String> {
        if self.disk.mark(region).is_some() {
            self.disk.set_mark(region, None);
        }
        Ok(())
    }

    fn losses(&self) -> BTreeMap<RegionId, Loss> {
        self.disk.losses()
    }

    fn log_end(&self, region: RegionId) -> (LogIndex, Option<HardState>) {
        self.disk.with(region, |log| (log.last(), log.hard_state))
    }

    fn regions(&self) -> Result<Vec<RegionId>, String> {
        let mut found = Vec::new();
        let scanned = self.engine.scan(&[SPACE_REGION_STATE], &[SPACE_REGION_STATE + 1], &mut |row, _| {
            found.extend(row.get(1..9).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes));
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| error.to_string())?;
        found.dedup();
        Ok(found)
    }

    fn own_rows(&self, region: RegionId) -> Result<Option<OwnRows>, String> {
        Ok(self.described(region).map(|(state, descriptor)| (state, Some(descriptor))))
    }

    fn set_own_rows(&mut self, region: &RegionDescriptor, state: &RegionState) -> Result<(), String> {
        let rows = own_rows(region, state).to_vec();
        self.engine.write(WriteSet { ranges_deleted: Vec::new(), rows });
        Ok(())
    }

    fn replace_rows(&mut self, region: &RegionDescriptor, index: LogIndex, _: Term) -> Result<(), String> {
        self.ingest(region.id, index)
    }

    fn delete_rows(&mut self, region: RegionId, _: &[SlotRange]) -> Result<(), String> {
        self.delete_own_rows(region)?;
        self.engine.flush();
        Ok(())
    }
}
