//! The peers of this store, as its log and its rows have them.
//!
//! A peer's life is in the log, synced, before anything else of it is written. What the rows say of it is as old
//! as the last flush, and whatever is missing there the log has: the worker hands it out again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use raftlog::{PeerLife, RaftLog};
use replica::PeerSeed;
use rocks::snapshot::{Manifest, SnapshotError};
use storage::rows::{region_descriptor_row, region_state_row, SPACE_REGION_STATE};
use storage::{Reader, RegionState, StorageError, WriteSet};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId, Term, FIRST_INDEX};

use crate::datadir::DataDir;
use crate::engine::Engine;
use crate::snapshot;
use crate::startup::StartError;

/// Under this name the log keeps the public key of the directory that it was made in.
const BEGUN: &[u8] = b"begun";

pub struct Recovered {
    pub seeds: Vec<PeerSeed>,
    /// The largest number of a peer that each region once had here.
    pub tombstones: BTreeMap<RegionId, PeerId>,
}

/// `founded`: the regions that the cluster began with, for a store that was there.
pub fn recover(
    store: StoreId,
    dir: &mut DataDir,
    log: &RaftLog,
    engine: &Engine,
    founded: &[RegionDescriptor],
) -> Result<Recovered, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Recovery(error.to_string());
    let key = dir.identity().secret.public().0;
    match log.store_value(BEGUN) {
        Some(of) if of[..] == key => {}
        Some(_) => return Err(StartError::Recovery("the Raft log is that of another data directory".into())),
        None => {
            // From here on an empty log is a loss, whether the store has peers by now or not.
            dir.allow_empty_log()?;
            let own: Vec<RegionDescriptor> =
                founded.iter().filter(|region| region.has_peer_on(store)).cloned().collect();
            if !own.is_empty() && log.peers().is_empty() {
                log.found(&own).map_err(|e| failed(&e))?;
            }
            log.set_store_value(BEGUN, &key).map_err(|e| failed(&e))?;
        }
    }
    dir.initialised()?;
    adopt_orphans(store, log, engine).map_err(|e| failed(&e))?;
    let lives = log.peers();
    for (region, life) in &lives {
        if let PeerLife::Applying { descriptor, index, term } = life {
            replace(&dir.snapshot_dir(), descriptor, (*index, *term), engine).map_err(|e| failed(&e))?;
            let exists = PeerLife::Exists { descriptor: descriptor.clone(), parent: None };
            log.set_peers(&[(*region, exists)]).map_err(|e| failed(&e))?;
        }
    }
    let described = described(&lives, engine).map_err(|e| failed(&e))?;
    let mut ended = Vec::new();
    let mut recovered = Recovered { seeds: Vec::new(), tombstones: BTreeMap::new() };
    for (region, life) in lives {
        let (made, parent) = match life {
            PeerLife::Exists { descriptor, parent } => (descriptor, parent),
            PeerLife::Applying { descriptor, .. } => (descriptor, None),
            PeerLife::Tombstone { peer } => {
                recovered.tombstones.insert(region, peer);
                continue;
            }
        };
        let newest = described.get(&region).unwrap_or(&made);
        let has_merged = described.values().any(|other| other.supersedes(newest));
        match made.peer_on(store).map(|peer| peer.id) {
            Some(peer) if has_merged || !newest.has_peer_on(store) => {
                // Its end is applied, and what follows from it was not done.
                ended.push((region, PeerLife::Tombstone { peer }));
                recovered.tombstones.insert(region, peer);
            }
            _ => recovered.seeds.push(seed(engine, made, parent).map_err(|e| failed(&e))?),
        }
    }
    if !ended.is_empty() {
        // At once: the rows of one that was removed may be all that tells of others that merged into it.
        log.set_peers(&ended).map_err(|e| failed(&e))?;
    }
    for (&region, &peer) in &recovered.tombstones {
        bury(region, peer, log, engine)?;
    }
    // A peer that never held anything wrote a term, and promised nobody anything.
    let known = |region: &RegionId| recovered.seeds.iter().any(|seed| seed.descriptor.id == *region);
    for region in log.regions().into_iter().filter(|region| !known(region)) {
        log.forget(region).map_err(|e| failed(&e))?;
    }
    Ok(recovered)
}

/// Rows of a region that a split made may have been flushed before the log knew of its peer, and then the
/// parent does not apply the split again. Such a peer has promised nothing: its log begins now.
fn adopt_orphans(store: StoreId, log: &RaftLog, engine: &Engine) -> storage::Result<()> {
    let engine_error = |error: raftlog::LogError| StorageError::Engine(error.to_string());
    let known: BTreeSet<RegionId> = log.peers().into_iter().map(|(id, _)| id).collect();
    let mut found = BTreeSet::new();
    engine.flash().scan(&[SPACE_REGION_STATE], &[SPACE_REGION_STATE + 1], &mut |row, _| {
        found.extend(row.get(1..9).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes));
        ControlFlow::Continue(())
    })?;
    let mut orphans = Vec::new();
    for region in found.difference(&known) {
        if let Some((state, Some(descriptor))) = engine.region_rows(*region)? {
            if descriptor.has_peer_on(store) && state.applied_index == FIRST_INDEX {
                tracing::info!(region, "a split's rows are here and its peer is not: its log begins");
                orphans.push(descriptor);
            }
        }
    }
    match orphans.is_empty() {
        true => Ok(()),
        false => log.found(&orphans).map_err(engine_error),
    }
}

/// The regions that have or had a peer here and whose rows are left, as of what of them is applied.
fn described(
    lives: &[(RegionId, PeerLife)],
    engine: &Engine,
) -> storage::Result<BTreeMap<RegionId, RegionDescriptor>> {
    let mut found = BTreeMap::new();
    for (region, _) in lives {
        if let Some((_, Some(descriptor))) = engine.region_rows(*region)? {
            found.insert(*region, descriptor);
        }
    }
    Ok(found)
}

/// Deletes what is left of a peer whose tombstone is written.
fn bury(region: RegionId, peer: PeerId, log: &RaftLog, engine: &Engine) -> Result<(), StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Recovery(error.to_string());
    if let Some((_, descriptor)) = engine.region_rows(region).map_err(|e| failed(&e))? {
        let slots: Vec<SlotRange> = descriptor.and_then(|descriptor| descriptor.slots).into_iter().collect();
        engine.flash().destroy_region(region, &slots).map_err(|e| failed(&e))?;
        engine.flash().flush().map_err(|e| failed(&e))?;
    }
    if log.regions().contains(&region) {
        log.destroy(region, peer).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// Applies a snapshot that was accepted before the store stopped, or makes sure that it was applied.
fn replace(
    snapshots: &Path,
    descriptor: &RegionDescriptor,
    (index, term): (LogIndex, Term),
    engine: &Engine,
) -> Result<(), SnapshotError> {
    let flash = engine.flash();
    if flash.is_snapshot_applied(descriptor, index, term)? {
        return Ok(flash.flush()?);
    }
    let dir = snapshot::received_dir(snapshots, descriptor.id, index, term);
    let manifest = Manifest::read(&dir)?;
    let rows = engine.region_rows(descriptor.id)?;
    let replaced: Vec<SlotRange> = rows.and_then(|(_, descriptor)| descriptor?.slots).into_iter().collect();
    flash.ingest_snapshot(&dir, &manifest, &replaced)
}

fn seed(
    engine: &Engine,
    made: RegionDescriptor,
    parent: Option<(RegionId, u64)>,
) -> storage::Result<PeerSeed> {
    let rows = match engine.region_rows(made.id)? {
        None if parent.is_none() => {
            // Founded with the cluster, and nothing has been flushed yet.
            let state = RegionState::default();
            let rows = vec![
                (region_state_row(made.id), Some(state.encode())),
                (region_descriptor_row(made.id), Some(made.encode())),
            ];
            engine.write(&WriteSet { ranges_deleted: Vec::new(), rows })?;
            Some((state, None))
        }
        rows => rows,
    };
    let applied = rows.as_ref().map(|(state, _)| (state.applied_index, state.applied_term));
    let descriptor = rows.and_then(|(_, descriptor)| descriptor).unwrap_or(made);
    Ok(PeerSeed { descriptor, applied, parent })
}

#[cfg(test)]
mod tests {
    use rocks::FlashKeyspace;

    use super::*;

    #[test]
    fn a_split_whose_rows_were_flushed_before_its_peer_was_recorded_is_not_lost() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = RaftLog::open(&dir.path().join("log"), &raftlog::Options::default()).expect("a log");
        let options = rocks::Options::profile("default").expect("the profile");
        let flash = FlashKeyspace::open(&dir.path().join("rows"), &options).expect("rows");
        let engine = Engine::new(flash);
        let halves = [SlotRange { first: 0, last: 99 }, SlotRange { first: 100, last: 199 }];
        let region = |id, slots| RegionDescriptor::founded(id, Some(slots), &[0, 1, 2]);
        let (parent, child, elsewhere) =
            (region(1, halves[0]), region(2, halves[1]), RegionDescriptor::founded(3, None, &[1, 2]));
        log.found(std::slice::from_ref(&parent)).expect("it is written");
        for descriptor in [&parent, &child, &elsewhere] {
            let rows = vec![
                (region_state_row(descriptor.id), Some(RegionState::default().encode())),
                (region_descriptor_row(descriptor.id), Some(descriptor.encode())),
            ];
            engine.write(&WriteSet { ranges_deleted: Vec::new(), rows }).expect("it is written");
        }
        for _ in 0..2 {
            adopt_orphans(0, &log, &engine).expect("rows and log are read");
            let exists = |descriptor: &RegionDescriptor| PeerLife::Exists {
                descriptor: descriptor.clone(),
                parent: None,
            };
            assert_eq!(log.peers(), [(1, exists(&parent)), (2, exists(&child))]);
        }
        let seed = seed(&engine, child.clone(), None).expect("rows");
        assert_eq!((seed.descriptor, seed.applied), (child, Some((FIRST_INDEX, types::FIRST_TERM))));
    }
}
