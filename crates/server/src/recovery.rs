//! The peers of this store at its start, from its log and its rows.
//!
//! A peer's lifecycle record is synced to the log before any other data of the peer is written. The
//! rows are as old as the last flush. The log holds everything that they lack, and the worker hands
//! it out again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use cluster::Mark;
use node::damage::Damages;
use node::recovery::{OwnRows, Recovered, StoredState};
use node::unsynced::Damaged;
use raftlog::{LogError, Loss, PeerLifecycle, RaftLog};
use replica::{HardState, LogStore};
use rocks::snapshot::Manifest;
use storage::rows::{region_descriptor_row, region_state_row, SPACE_REGION_STATE};
use storage::{Reader, RegionState, WriteSet};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId, Term, META_REGION};

use crate::datadir::DataDir;
use crate::engine::Engine;
use crate::snapshot;
use crate::start_error::StartError;

/// The log's key for the public key of the directory in which the log was created.
const BEGUN: &[u8] = b"begun";

/// Recovers the peers. `founded` lists the initial regions of the cluster, if this store was one of
/// its initial stores.
pub fn recover(
    store: StoreId,
    dir: &mut DataDir,
    log: &RaftLog,
    engine: &Engine,
    founded: &[RegionDescriptor],
    (known, is_alone): (&BTreeMap<RegionId, Damaged>, bool),
) -> Result<Recovered, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Recovery(error.to_string());
    let key = dir.identity().secret.public().0;
    match log.store_value(BEGUN) {
        Some(of) if of[..] == key => {}
        Some(_) => return Err(StartError::Recovery("the Raft log is that of another data directory".into())),
        None => {
            // From here on an empty log would mean that data was lost, even if the store has no
            // peers yet.
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
    let mut kept = OnDisk { log, engine, snapshots: dir.snapshot_dir() };
    let recovered =
        node::recovery::recover(store, &mut kept, known, is_alone).map_err(StartError::Recovery)?;
    refuse_what_no_peer_replaces(&recovered.damages, is_alone)?;
    Ok(recovered)
}

/// Returns an error if damage destroyed data that no other store can restore: the meta region's
/// state, or the only copy of a region. The damaged log was not changed.
fn refuse_what_no_peer_replaces(damages: &Damages, is_alone: bool) -> Result<(), StartError> {
    let refuse = |what: String| Err(StartError::Recovery(format!("the Raft log is damaged: {what}")));
    let place = |region: &RegionId| {
        let unclean = damages.unclean.get(region).map(|damaged| &damaged.place);
        unclean.or(damages.barred.get(region)).cloned().unwrap_or_default()
    };
    if let Some(place) = damages.barred.get(&META_REGION) {
        return refuse(format!(
            "the number of the meta region's peer is lost ({place}). Rebuild this store from its peers \
             (OPERATING.md, A log that is refused)"
        ));
    }
    if is_alone && damages.unclean.contains_key(&META_REGION) {
        let place = place(&META_REGION);
        return refuse(format!(
            "entries of the meta region are lost ({place}), and no other store has them. Start from a backup \
             (OPERATING.md, A log that is refused)"
        ));
    }
    match damages.barred.keys().chain(&damages.unborn).find(|_| is_alone) {
        None => Ok(()),
        Some(region) => {
            let place = place(region);
            refuse(format!(
                "region {region} is lost with the record of its beginning ({place}), and no other store has it. \
                 Start from a backup (OPERATING.md, A log that is refused)"
            ))
        }
    }
}

/// Returns the name under which the log keeps the mark of the region's peer.
pub fn mark_name(region: RegionId) -> Vec<u8> {
    format!("mark/{region}").into_bytes()
}

/// Deletes the mark of the region's peer, if there is one.
///
/// # Errors
/// Those of the log.
pub fn forget_mark(log: &RaftLog, region: RegionId) -> Result<(), LogError> {
    let name = mark_name(region);
    match log.store_value(&name).is_some_and(|value| !value.is_empty()) {
        true => log.set_store_value(&name, b""),
        false => Ok(()),
    }
}

/// The log and the rows of this store.
struct OnDisk<'a> {
    log: &'a RaftLog,
    engine: &'a Engine,
    snapshots: PathBuf,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl StoredState for OnDisk<'_> {
    type Error = String;

    fn lifecycles(&self) -> Vec<(RegionId, PeerLifecycle)> {
        self.log.peers()
    }

    fn set_lifecycles(&mut self, lifecycles: &[(RegionId, PeerLifecycle)]) -> Result<(), String> {
        self.log.set_peers(lifecycles).map_err(text)
    }

    fn found(&mut self, peers: &[RegionDescriptor]) -> Result<(), String> {
        let regions: Vec<RegionId> = peers.iter().map(|peer| peer.id).collect();
        tracing::info!(?regions, "found the rows of split regions without their peers: creating their logs");
        self.log.found(peers).map_err(text)
    }

    fn logs(&self) -> Vec<RegionId> {
        let has_begun = |region: &RegionId| {
            self.log.bounds(*region).is_ok_and(|bounds| bounds.first > 1 || bounds.last > 0)
        };
        self.log.regions().into_iter().filter(has_begun).collect()
    }

    fn destroy_log(&mut self, region: RegionId, peer: PeerId) -> Result<(), String> {
        self.log.destroy(region, peer).map_err(text)
    }

    fn mark(&self, region: RegionId) -> Result<Option<Mark>, String> {
        let value = self.log.store_value(&mark_name(region)).filter(|value| !value.is_empty());
        let mark = value.map(|value| Mark::decode(&value)).transpose();
        mark.map_err(|error| format!("what the log remembers of region {region}'s peer: {error}"))
    }

    fn losses(&self) -> BTreeMap<RegionId, Loss> {
        self.log.losses()
    }

    fn log_end(&self, region: RegionId) -> (LogIndex, Option<HardState>) {
        let last = self.log.bounds(region).map_or(0, |bounds| bounds.last);
        (last, self.log.hard_state(region).unwrap_or(None))
    }

    fn forget_mark(&mut self, region: RegionId) -> Result<(), String> {
        forget_mark(self.log, region).map_err(text)
    }

    fn regions(&self) -> Result<Vec<RegionId>, String> {
        let mut found = BTreeSet::new();
        let visit = &mut |row: &[u8], _: &[u8]| {
            found.extend(row.get(1..9).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes));
            ControlFlow::Continue(())
        };
        self.engine.rows().scan(&[SPACE_REGION_STATE], &[SPACE_REGION_STATE + 1], visit).map_err(text)?;
        Ok(found.into_iter().collect())
    }

    fn own_rows(&self, region: RegionId) -> Result<Option<OwnRows>, String> {
        self.engine.region_rows(region).map_err(text)
    }

    fn set_own_rows(&mut self, region: &RegionDescriptor, state: &RegionState) -> Result<(), String> {
        let rows = vec![
            (region_state_row(region.id), Some(state.encode())),
            (region_descriptor_row(region.id), Some(region.encode())),
        ];
        self.engine.write(WriteSet { ranges_deleted: Vec::new(), rows });
        Ok(())
    }

    fn replace_rows(&mut self, region: &RegionDescriptor, index: LogIndex, term: Term) -> Result<(), String> {
        let flash = self.engine.rows();
        if flash.is_snapshot_applied(region, index, term).map_err(text)? {
            return flash.flush().map_err(text);
        }
        let dir = snapshot::received_dir(&self.snapshots, region.id, index, term);
        let manifest = Manifest::read(&dir).map_err(text)?;
        let rows = self.own_rows(region.id)?;
        let replaced: Vec<SlotRange> =
            rows.and_then(|(_, descriptor)| descriptor?.slots).into_iter().collect();
        flash.ingest_snapshot(&dir, &manifest, &replaced).map_err(text)
    }

    fn delete_rows(&mut self, region: RegionId, slots: &[SlotRange]) -> Result<(), String> {
        self.engine.rows().destroy_region(region, slots).map_err(text)?;
        self.engine.rows().flush().map_err(text)
    }
}

#[cfg(test)]
mod tests {
    use rocks::Keyspace;

    use super::*;

    #[test]
    fn a_split_whose_rows_were_flushed_before_its_peer_was_recorded_is_not_lost() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = RaftLog::open(&dir.path().join("log"), &raftlog::Options::default()).expect("a log");
        let options = rocks::Options::profile("default").expect("the profile");
        let flash = Keyspace::open(&dir.path().join("rows"), &options).expect("rows");
        let engine = Engine::new(flash, crate::tuning::Tuning::default());
        let halves = [SlotRange { first: 0, last: 99 }, SlotRange { first: 100, last: 199 }];
        let region = |id, slots| RegionDescriptor::founded(id, Some(slots), &[0, 1, 2]);
        let (parent, child, elsewhere) =
            (region(1, halves[0]), region(2, halves[1]), RegionDescriptor::founded(3, None, &[1, 2]));
        log.found(std::slice::from_ref(&parent)).expect("the log is written");
        for descriptor in [&parent, &child, &elsewhere] {
            let rows = vec![
                (region_state_row(descriptor.id), Some(RegionState::default().encode())),
                (region_descriptor_row(descriptor.id), Some(descriptor.encode())),
            ];
            engine.write(WriteSet { ranges_deleted: Vec::new(), rows });
        }
        for _ in 0..2 {
            let mut kept = OnDisk { log: &log, engine: &engine, snapshots: dir.path().join("snapshots") };
            let recovered = node::recovery::recover(0, &mut kept, &BTreeMap::new(), false)
                .expect("rows and log are read");
            let seeds = recovered.seeds.iter().map(|seed| (seed.descriptor.id, seed.applied));
            let first = Some((types::FIRST_INDEX, types::FIRST_TERM));
            assert_eq!(seeds.collect::<Vec<_>>(), [(1, first), (2, first)]);
            let exists = |descriptor: &RegionDescriptor| PeerLifecycle::Exists {
                descriptor: descriptor.clone(),
                parent: None,
            };
            assert_eq!(log.peers(), [(1, exists(&parent)), (2, exists(&child))]);
        }
    }
}
