//! The log and the rows of a simulated store, as recovery finds them.

use std::ops::ControlFlow;

use bytes::Bytes;
use node::recovery::{Kept, OwnRows, Recovered};
use storage::rows::{prefix_end, region_descriptor_row, region_state_row, SPACE_REGION_STATE};
use storage::{Reader, RegionState, WriteSet};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId, Term};
use wal::PeerLife;

use super::{rows_of, Store};

/// The two rows of a region's own.
fn own_rows(region: &RegionDescriptor, state: &RegionState) -> [(Bytes, Option<Bytes>); 2] {
    [
        (region_state_row(region.id), Some(state.encode())),
        (region_descriptor_row(region.id), Some(region.encode())),
    ]
}

impl Store {
    /// The region's state and descriptor as the rows have them.
    pub(super) fn described(&self, region: RegionId) -> Option<(RegionState, RegionDescriptor)> {
        let state = self.engine.get(&region_state_row(region)).ok()??;
        let descriptor = self.engine.get(&region_descriptor_row(region)).ok()??;
        Some((RegionState::decode(&state).ok()?, RegionDescriptor::decode(&descriptor).ok()?))
    }

    /// Deletes a region's rows, its own among them; not yet durably.
    pub(super) fn delete_own_rows(&mut self, region: RegionId) {
        let own = region_state_row(region);
        let mut ranges = vec![(own.clone(), prefix_end(&own))];
        if let Some((_, descriptor)) = self.described(region) {
            ranges.push(rows_of(&descriptor));
        }
        self.engine.write(WriteSet { ranges_deleted: ranges, rows: Vec::new() });
    }

    /// Puts a snapshot that was received in place of the region's rows, durably.
    pub(super) fn ingest(&mut self, region: RegionId, index: u64) -> Result<(), String> {
        let Some(snapshot) = self.received.get(&(region, index)).cloned() else {
            return Err(format!("the snapshot of region {region} at {index} is not there"));
        };
        let old = self.described(region).map(|(_, descriptor)| rows_of(&descriptor));
        let (from, to) = rows_of(&snapshot.descriptor);
        let own = region_state_row(region);
        if let Some((old_from, old_to)) = old {
            self.engine.ingest(&old_from, &old_to, []);
        }
        self.engine.ingest(&from, &to, snapshot.rows);
        self.engine.ingest(&own, &prefix_end(&own), snapshot.own);
        Ok(())
    }

    pub(super) fn recover(&mut self, id: StoreId) -> Result<Recovered, String> {
        let recovered = node::recovery::recover(id, self)?;
        // Every snapshot that was to be applied is.
        self.received.clear();
        Ok(recovered)
    }
}

impl Kept for Store {
    type Error = String;

    fn lives(&self) -> Vec<(RegionId, PeerLife)> {
        self.disk.lives()
    }

    fn set_lives(&mut self, lives: &[(RegionId, PeerLife)]) -> Result<(), String> {
        lives.iter().for_each(|(region, life)| self.disk.set_life(*region, life.clone()));
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
        self.disk.set_life(region, PeerLife::Tombstone { peer });
        Ok(())
    }

    fn forget_log(&mut self, region: RegionId) -> Result<(), String> {
        self.disk.forget(region);
        Ok(())
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
        self.delete_own_rows(region);
        self.engine.flush();
        Ok(())
    }
}
