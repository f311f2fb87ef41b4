//! The log as a store uses it: one thread appends, others read and recycle.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use replica::{HardState, LogBatch};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term, FIRST_INDEX, FIRST_TERM};
use wal::layout::Secret;
use wal::mark::Mark;
use wal::{
    recover, settle, Appender, Disk, Index, LogError, LogState, PeerLife, Record, Release, Result,
    SharedIndex,
};

use crate::files::{Access, Files};
use crate::options::Options;

/// What an append took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    pub bytes: usize,
    /// The whole call.
    pub total: Duration,
    /// Of it, waiting for `fdatasync`.
    pub sync: Duration,
}

#[derive(Clone, Default)]
pub(crate) struct LockedIndex(Arc<Mutex<Index>>);

impl SharedIndex for LockedIndex {
    fn with<R>(&self, act: impl FnOnce(&mut Index) -> R) -> R {
        act(&mut self.0.lock())
    }
}

/// All regions' logs. Clones share one.
///
/// Only one process may have a directory open.
#[derive(Clone)]
pub struct RaftLog {
    shared: Arc<Shared>,
}

struct Shared {
    files: Files,
    secret: Secret,
    index: LockedIndex,
    writer: Mutex<Appender<Files, LockedIndex>>,
    /// Which block is the first that is needed. Locked by whoever recycles, before the writer.
    first: Mutex<Mark>,
    /// Since it was opened.
    written: AtomicU64,
    /// A write has failed, so nobody knows what the device holds.
    is_stopped: AtomicBool,
    /// Something to recycle, or a segment to make.
    has_work: Mutex<bool>,
    work: Condvar,
}

impl RaftLog {
    /// Opens the log in `dir`, which is made if need be, and checks it: see [`wal::recover`].
    pub fn open(dir: &Path, options: &Options) -> Result<RaftLog> {
        let begun = Instant::now();
        let (files, secret) = Files::open(dir, Access::Write)?;
        let found = recover(&files, secret)?;
        let (blocks, segments) = (found.sequence, found.in_use.len());
        if let Some(cut) = found.cut {
            tracing::info!(
                blocks = cut.blocks,
                from = cut.first,
                "the log's end was not synced when it was written last, and is cut"
            );
        }
        let index = LockedIndex::default();
        let (writer, first) = Appender::new(files.clone(), secret, options.sizes(), index.clone(), found)?;
        tracing::debug!(blocks, segments, took = ?begun.elapsed(), "the log is open");
        let shared = Shared {
            files,
            secret,
            index,
            writer: Mutex::new(writer),
            first: Mutex::new(first),
            written: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            has_work: Mutex::new(true),
            work: Condvar::new(),
        };
        Ok(RaftLog { shared: Arc::new(shared) })
    }

    /// Writes the batch and, with `sync`, returns once all of it is on the device. A large batch is several blocks, of
    /// which a crash may leave the first ones: that is as if less had been asked for, since nothing of a batch is told
    /// to anyone before all of it is durable, and each region's own blocks are in order.
    ///
    /// After [`LogError::NoSpace`] the same batch may be appended again. Aborts the process when the sync fails.
    pub fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended> {
        self.write(|writer| writer.append(batch, sync))
    }

    /// Makes everything appended without sync durable.
    pub fn sync(&self) -> Result<Appended> {
        self.write(|writer| writer.sync().map(|()| 0))
    }

    /// Drops the region's entries through `index`, whose `term` stays known. A later batch tells the device: a
    /// truncation that is forgotten leaves a longer log.
    pub fn truncate(&self, region: RegionId, index: LogIndex, term: Term) {
        let state = LogState { truncated_index: index, truncated_term: term };
        self.shared.index.with(|index| index.truncate(region, state));
        self.wake();
    }

    /// Lets go of segments that are not needed. Names the regions that hold most of a log that is too large. Not to be
    /// called from the thread that appends.
    pub fn recycle(&self) -> Result<Vec<RegionId>> {
        self.refuse_if_stopped()?;
        let mut first_mark = self.shared.first.lock();
        loop {
            let release = self.shared.writer.lock().release_oldest().map_err(|error| self.failed(error))?;
            match release {
                Release::Released { first } => {
                    settle(&self.shared.files, &mut first_mark, first)
                        .map_err(|error| self.failed(error.into()))?;
                    self.shared.writer.lock().reuse_below(first);
                }
                Release::Kept => return Ok(Vec::new()),
                Release::Pinned(regions) => return Ok(regions),
            }
        }
    }

    /// Makes segments ahead of need, so that appends need not wait for them. Not to be called from the thread that
    /// appends.
    pub fn prepare(&self) -> Result<()> {
        self.refuse_if_stopped()?;
        loop {
            let wanted = self.shared.writer.lock().wanted_segment();
            let Some((segment, len)) = wanted else { return Ok(()) };
            self.shared.files.create(segment, len).map_err(|error| self.failed(error.into()))?;
            self.shared.writer.lock().add_segment(segment, len);
        }
    }

    /// Waits until there may be something to recycle, but not longer than this.
    pub fn await_work(&self, at_most: Duration) {
        let mut has_work = self.shared.has_work.lock();
        if !*has_work {
            self.shared.work.wait_for(&mut has_work, at_most);
        }
        *has_work = false;
    }

    fn wake(&self) {
        *self.shared.has_work.lock() = true;
        self.shared.work.notify_all();
    }

    /// Makes the mark of what was synced survive power loss. A store that idles calls it.
    pub fn sync_mark(&self) -> Result<()> {
        self.shared.writer.lock().sync_mark().map_err(|error| self.failed(error))
    }

    /// Begins the logs of regions that a cluster is founded with, and their peers' lives, in one synced write.
    pub fn found(&self, descriptors: &[RegionDescriptor]) -> Result<()> {
        let begin = |descriptor: &RegionDescriptor| {
            let life = PeerLife::Exists { descriptor: descriptor.clone(), parent: None };
            let begun = LogState { truncated_index: FIRST_INDEX, truncated_term: FIRST_TERM };
            let state = HardState { term: FIRST_TERM, vote: None, commit: FIRST_INDEX };
            let records = vec![Record::Begun(begun), Record::HardState(state), Record::Life(life)];
            (descriptor.id, records)
        };
        self.record(descriptors.iter().map(begin).collect(), true)
    }

    /// Records whether this store has the peers; synced.
    pub fn set_peers(&self, peers: &[(RegionId, PeerLife)]) -> Result<()> {
        let record = |(region, life): &(RegionId, PeerLife)| (*region, vec![Record::Life(life.clone())]);
        self.record(peers.iter().map(record).collect(), true)
    }

    /// Deletes a peer's log and leaves its tombstone, in one synced write. To be called once a flush of the rows covers
    /// whatever made the log unneeded.
    pub fn destroy(&self, region: RegionId, peer: PeerId) -> Result<()> {
        let tombstone = Record::Life(PeerLife::Tombstone { peer });
        self.record(vec![(region, vec![Record::Forgotten, tombstone])], true)
    }

    /// Deletes what a peer wrote that never came to hold anything: it has no life on record.
    pub fn forget(&self, region: RegionId) -> Result<()> {
        self.record(vec![(region, vec![Record::Forgotten])], false)
    }

    /// Every peer that this store has or had, ascending by region.
    pub fn peers(&self) -> Vec<(RegionId, PeerLife)> {
        self.shared.index.with(|index| index.lives())
    }

    /// Keeps a value for the store as a whole; synced.
    pub fn set_store_value(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let record = Record::Value { name: name.to_vec(), value: Bytes::copy_from_slice(value) };
        self.record(vec![(0, vec![record])], true)
    }

    pub fn store_value(&self, name: &[u8]) -> Option<Bytes> {
        self.shared.index.with(|index| index.value(name))
    }

    /// Regions that have anything in the log, ascending.
    pub fn regions(&self) -> Vec<RegionId> {
        self.shared.index.with(|index| index.regions())
    }

    /// Bytes of the segments in use, as far as they are written.
    pub fn used_bytes(&self) -> u64 {
        self.shared.writer.lock().used_bytes()
    }

    /// Bytes of the blocks that were written for callers since it was opened.
    pub fn written_bytes(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Number of the last block, over all restarts.
    pub fn sequence(&self) -> u64 {
        self.shared.writer.lock().sequence()
    }

    pub(crate) fn index(&self) -> &LockedIndex {
        &self.shared.index
    }

    pub(crate) fn files(&self) -> (&Files, Secret) {
        (&self.shared.files, self.shared.secret)
    }

    fn record(&self, records: Vec<(RegionId, Vec<Record>)>, sync: bool) -> Result<()> {
        self.write(|writer| writer.record(records, sync)).map(|_| ())
    }

    fn write(
        &self,
        act: impl FnOnce(&mut Appender<Files, LockedIndex>) -> Result<usize>,
    ) -> Result<Appended> {
        self.refuse_if_stopped()?;
        let begun = Instant::now();
        let mut writer = self.shared.writer.lock();
        let (free, synced) = (writer.free_segments(), self.shared.files.sync_time());
        let bytes = act(&mut writer).map_err(|error| self.failed(error))?;
        let has_taken_one = writer.free_segments() < free;
        drop(writer);
        self.shared.written.fetch_add(bytes as u64, Ordering::Relaxed);
        if has_taken_one {
            self.wake();
        }
        Ok(Appended { bytes, total: begun.elapsed(), sync: self.shared.files.sync_time() - synced })
    }

    fn refuse_if_stopped(&self) -> Result<()> {
        if self.shared.is_stopped.load(Ordering::Acquire) {
            return Err(LogError::Stopped);
        }
        Ok(())
    }

    /// After anything but a full disk and a refused batch no write may follow.
    fn failed(&self, error: LogError) -> LogError {
        if !matches!(error, LogError::NoSpace(_) | LogError::Range { .. }) {
            self.shared.is_stopped.store(true, Ordering::Release);
        }
        error
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.writer.get_mut().sync_mark() {
            tracing::warn!(%error, "the mark of what was synced could not be synced at close");
        }
    }
}
