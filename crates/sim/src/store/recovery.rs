//! What a start makes of what the log and the rows hold durably.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};
use replica::PeerSeed;
use storage::rows::{prefix_end, region_state_row, SPACE_REGION_STATE};
use storage::{Reader, RegionState, WriteSet};
use types::{PeerId, RegionDescriptor, RegionId, StoreId, FIRST_INDEX, FIRST_TERM};

use super::{rows_of, Store};
use crate::disk::Life;

/// Peers to open, and those that are no more.
pub(super) struct Recovered {
    pub seeds: Vec<PeerSeed>,
    pub tombstones: BTreeMap<RegionId, PeerId>,
    pub states: BTreeMap<RegionId, RegionState>,
}

/// The row that says what a region is as of its applied index.
pub(super) fn descriptor_row(region: RegionId) -> Bytes {
    let state = region_state_row(region);
    let mut out = BytesMut::with_capacity(state.len() + 1);
    out.put_slice(&state);
    out.put_u8(b'd');
    out.freeze()
}

/// The two rows of a region's own.
pub(super) fn own_rows(region: &RegionDescriptor, state: &RegionState) -> [(Bytes, Option<Bytes>); 2] {
    [(region_state_row(region.id), Some(state.encode())), (descriptor_row(region.id), Some(region.encode()))]
}

/// A region that has applied nothing yet.
pub(super) fn founded_state() -> RegionState {
    let mut state = RegionState::default();
    (state.applied_index, state.applied_term) = (FIRST_INDEX, FIRST_TERM);
    state
}

impl Store {
    /// The region's state and descriptor as the rows have them.
    pub(super) fn described(&self, region: RegionId) -> Option<(RegionState, RegionDescriptor)> {
        let state = self.engine.get(&region_state_row(region)).ok()??;
        let descriptor = self.engine.get(&descriptor_row(region)).ok()??;
        Some((RegionState::decode(&state).ok()?, RegionDescriptor::decode(&descriptor).ok()?))
    }

    /// Deletes a region's rows, its own among them; not yet durably.
    pub(super) fn delete_rows(&mut self, region: RegionId) {
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
        let mut recovered =
            Recovered { seeds: Vec::new(), tombstones: BTreeMap::new(), states: BTreeMap::new() };
        self.adopt_orphans(id);
        for (region, life) in self.disk.lives() {
            let (made_as, parent) = match life {
                Life::Tombstone(peer) => {
                    self.bury(region, peer, &mut recovered);
                    continue;
                }
                Life::Applying { descriptor, index } => {
                    self.ingest(region, index)?;
                    self.disk.set_life(region, Life::Exists(descriptor.clone()));
                    (descriptor, None)
                }
                Life::Split { descriptor, parent, at } => (descriptor, Some((parent, at))),
                Life::Founded(descriptor) => {
                    if self.described(region).is_none() {
                        let rows = own_rows(&descriptor, &founded_state()).to_vec();
                        self.engine.write(WriteSet { ranges_deleted: Vec::new(), rows });
                    }
                    (descriptor, None)
                }
                Life::Exists(descriptor) => (descriptor, None),
            };
            let found = self.described(region);
            if found.as_ref().is_some_and(|(_, descriptor)| !descriptor.has_peer_on(id)) {
                let peer = made_as.peer_on(id).ok_or("a peer was made for another store")?.id;
                self.disk.set_life(region, Life::Tombstone(peer));
                self.bury(region, peer, &mut recovered);
                continue;
            }
            let applied = found.as_ref().map(|(state, _)| (state.applied_index, state.applied_term));
            let descriptor = found.as_ref().map_or(made_as, |(_, descriptor)| descriptor.clone());
            recovered.states.extend(found.map(|(state, _)| (region, state)));
            recovered.seeds.push(PeerSeed { descriptor, applied, parent });
        }
        // What a peer wrote that held nothing yet promises nothing.
        let opened = |region: &RegionId| recovered.seeds.iter().any(|seed| seed.descriptor.id == *region);
        self.disk.regions().into_iter().filter(|region| !opened(region)).for_each(|region| {
            self.disk.forget(region);
        });
        let is_needed = |region: &RegionId| {
            self.disk
                .lives()
                .iter()
                .any(|(applying, life)| applying == region && matches!(life, Life::Applying { .. }))
        };
        let stale: Vec<_> = self.received.keys().filter(|(region, _)| !is_needed(region)).copied().collect();
        for key in stale {
            self.received.remove(&key);
        }
        Ok(recovered)
    }

    /// Rows of a region that a split made may be flushed before the log knows of the peer, and the parent does
    /// not apply the split again then. Such a peer promised nothing yet: its log begins now.
    fn adopt_orphans(&self, id: StoreId) {
        let known: BTreeSet<RegionId> = self.disk.lives().into_iter().map(|(region, _)| region).collect();
        let mut found = Vec::new();
        let scanned = self.engine.scan(&[SPACE_REGION_STATE], &[SPACE_REGION_STATE + 1], &mut |row, _| {
            found.extend(row.get(1..9).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes));
            ControlFlow::Continue(())
        });
        assert_eq!(scanned, Ok(()), "memory is read");
        for region in found.into_iter().filter(|region| !known.contains(region)) {
            let Some((state, descriptor)) = self.described(region) else { continue };
            if descriptor.has_peer_on(id) && state.applied_index == FIRST_INDEX {
                self.disk.found(descriptor);
            }
        }
    }

    /// Rows and log of a peer that is no more; both may be gone already.
    fn bury(&mut self, region: RegionId, peer: PeerId, recovered: &mut Recovered) {
        recovered.tombstones.insert(region, peer);
        self.delete_rows(region);
        self.engine.flush();
        self.disk.forget(region);
    }
}
