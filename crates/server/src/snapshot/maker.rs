//! Makes the files of snapshots for a cluster in which a store may not know
//! [streams](super::streams) yet, and keeps the newest of each region for transfers that may need
//! it.
//!
//! A transfer keeps its files alive even when a newer snapshot exists. No file outlives the
//! process: after a restart, a new snapshot is requested.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;
use rocks::snapshot::{Manifest, SnapshotError};
use storage::StorageError;
use types::{LogIndex, RegionId, SlotRange};

use super::counters::Counters;
use super::{remove, Shared};

pub enum Job {
    Make(RegionId),
    /// Delete a directory. A background thread does this, because deleting gigabytes takes time.
    Remove(PathBuf),
    Drop(Arc<Made>),
    Reclaim {
        slots: SlotRange,
        bytes: u64,
    },
}

/// Interval at which outdated files are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// A finished snapshot. Dropping the last reference deletes its files.
pub struct Made {
    dir: PathBuf,
    pub manifest: Manifest,
}

impl Made {
    pub fn file(&self, at: usize) -> PathBuf {
        self.dir.join(Manifest::file_name(at))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

struct Newest {
    made: Arc<Made>,
    used: Instant,
}

#[derive(Default)]
struct State {
    /// Regions whose snapshot was requested and is not made yet.
    wanted: BTreeSet<RegionId>,
    newest: BTreeMap<RegionId, Newest>,
}

pub struct Maker {
    dir: PathBuf,
    next_number: AtomicU64,
    state: Mutex<State>,
}

impl Maker {
    pub fn open(dir: PathBuf) -> std::io::Result<Maker> {
        remove(&dir);
        std::fs::create_dir_all(&dir)?;
        Ok(Maker { dir, next_number: AtomicU64::new(1), state: Mutex::default() })
    }

    /// Records that the region's snapshot is wanted. Returns false if it was already wanted.
    pub fn request(&self, region: RegionId) -> bool {
        self.state.lock().wanted.insert(region)
    }

    pub fn made_at(&self, region: RegionId, index: LogIndex) -> Option<Arc<Made>> {
        let mut state = self.state.lock();
        let newest = state.newest.get_mut(&region).filter(|newest| newest.made.manifest.index == index)?;
        newest.used = Instant::now();
        Some(newest.made.clone())
    }

    /// Removes a snapshot that proved to be damaged, so that the next request makes a new one.
    pub fn discard(&self, made: &Arc<Made>) {
        let mut state = self.state.lock();
        let region = made.manifest.region();
        if state.newest.get(&region).is_some_and(|newest| Arc::ptr_eq(&newest.made, made)) {
            state.newest.remove(&region);
        }
    }

    /// Removes the region's newest snapshot and returns it. Dropping it may take a while.
    pub fn forget(&self, region: RegionId) -> Option<Arc<Made>> {
        let mut state = self.state.lock();
        state.wanted.remove(&region);
        state.newest.remove(&region).map(|newest| newest.made)
    }

    /// Drops the snapshots that were not used since `before`.
    pub fn sweep(&self, before: Instant) {
        let mut unused = Vec::new();
        self.state.lock().newest.retain(|_, newest| {
            let keep = newest.used > before || Arc::strong_count(&newest.made) > 1;
            if !keep {
                unused.push(newest.made.clone());
            }
            keep
        });
    }

    pub fn is_wanted(&self, region: RegionId) -> bool {
        self.state.lock().wanted.contains(&region)
    }

    /// Records that the request is answered. Returns false if the region was forgotten.
    pub fn answered(&self, region: RegionId) -> bool {
        self.state.lock().wanted.remove(&region)
    }

    /// Returns a new directory. A transfer may still hold files of the same region, and even of the
    /// same index.
    fn next_dir(&self, region: RegionId) -> PathBuf {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{region}-{number}"))
    }
}

pub fn run(shared: &Shared, jobs: &Receiver<Job>) {
    loop {
        match jobs.recv_timeout(SWEEP_EVERY) {
            Ok(_) if shared.is_stopping() => return,
            Ok(Job::Make(region)) => make(shared, region),
            Ok(Job::Remove(dir)) => remove(&dir),
            Ok(Job::Drop(made)) => drop(made),
            Ok(Job::Reclaim { slots, bytes }) => {
                shared.host.keyspace().reclaim(slots);
                shared.to_reclaim.fetch_sub(bytes, Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let of_stream = shared.limits.turn.saturating_add(shared.limits.patience);
                if let Some(before) = now.checked_sub(shared.limits.kept) {
                    shared.maker.sweep(before);
                    let streams_before = now.checked_sub(of_stream).unwrap_or(before);
                    let gone = shared.received.sweep(before, streams_before);
                    gone.iter().for_each(|dir| remove(dir));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn make(shared: &Shared, region: RegionId) {
    if !shared.maker.is_wanted(region) {
        return;
    }
    let made = reuse(shared, region).map_or_else(|| make_anew(shared, region), Ok);
    if shared.is_stopping() {
        return;
    }
    let mut state = shared.maker.state.lock();
    // The region was forgotten in the meantime, so no caller waits for an answer.
    if !state.wanted.remove(&region) {
        return;
    }
    match made {
        Ok(made) => {
            let manifest = made.manifest.clone();
            let newest = Newest { made, used: Instant::now() };
            let previous = state.newest.insert(region, newest);
            drop(state);
            drop(previous);
            shared.host.made(region, manifest.index, manifest.term, manifest.descriptor);
        }
        Err(error) => {
            drop(state);
            cannot_be_made(shared, region, &error);
            Counters::add(&shared.counters.make_failed, 1);
            shared.host.failed(region);
        }
    }
}

/// Reports that the rows of a snapshot cannot be read or written.
pub fn cannot_be_made(shared: &Shared, region: RegionId, error: &SnapshotError) {
    tracing::warn!(region, %error, "a snapshot could not be made");
    if let SnapshotError::Storage(error @ StorageError::Damaged(_)) = error {
        shared.host.rows_failed(error);
    }
}

/// Returns the newest snapshot, if nothing was applied since.
fn reuse(shared: &Shared, region: RegionId) -> Option<Arc<Made>> {
    let made = shared.maker.state.lock().newest.get(&region).map(|newest| newest.made.clone())?;
    let Manifest { descriptor, index, term, .. } = &made.manifest;
    let is_current = shared.host.keyspace().is_snapshot_applied(descriptor, *index, *term);
    is_current.unwrap_or(false).then_some(made)
}

fn make_anew(shared: &Shared, region: RegionId) -> Result<Arc<Made>, SnapshotError> {
    let keyspace = shared.host.keyspace();
    let (expected, room) = (keyspace.estimate_snapshot(region)?, shared.host.room());
    if expected > room {
        let why = format!("a snapshot of about {expected} bytes, and room for {room}");
        return Err(storage::StorageError::NoSpace(why).into());
    }
    let dir = shared.maker.next_dir(region);
    let manifest = keyspace.write_snapshot(region, &dir, shared.limits.file_bytes, &mut |bytes| {
        shared.make_pace.pay(bytes as usize);
        match shared.is_stopping() || !shared.maker.is_wanted(region) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    Counters::add(&shared.counters.made, 1);
    Counters::add(&shared.counters.made_bytes, manifest.bytes());
    tracing::info!(
        region,
        index = manifest.index,
        bytes = manifest.bytes(),
        files = manifest.files.len(),
        "made a snapshot"
    );
    Ok(Arc::new(Made { dir, manifest }))
}
