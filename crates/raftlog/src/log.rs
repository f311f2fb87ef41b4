//! The log as a store uses it: one thread at a time appends, others read and recycle segments.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use replica::{HardState, LogBatch};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term, FIRST_INDEX, FIRST_TERM};
use wal::layout::Secret;
use wal::mark::Mark;
use wal::{
    recover, settle, Appender, Disk, Index, LogError, LogState, Loss, PeerLifecycle, Record, Release, Result,
    SharedIndex,
};

use crate::files::{Access, Files};
use crate::options::Options;

/// The size and duration of an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    pub bytes: usize,
    /// The duration of the whole call.
    pub total: Duration,
    /// The part of it spent in `fdatasync`.
    pub sync: Duration,
}

#[derive(Clone, Default)]
pub(crate) struct LockedIndex(Arc<Mutex<Index>>);

impl SharedIndex for LockedIndex {
    fn with<R>(&self, act: impl FnOnce(&mut Index) -> R) -> R {
        act(&mut self.0.lock())
    }
}

/// The logs of all regions of a store. Clones share the same log.
///
/// Only one process at a time may open a directory for writing.
#[derive(Clone)]
pub struct RaftLog {
    shared: Arc<Shared>,
}

struct Shared {
    files: Files,
    secret: Secret,
    index: LockedIndex,
    writer: Mutex<Appender<Files, LockedIndex>>,
    /// The losses by damaged sections, until the log is repaired.
    losses: Mutex<BTreeMap<RegionId, Loss>>,
    /// The mark of the first needed block. The recycling thread locks it before `writer`.
    first: Mutex<Mark>,
    /// Bytes of blocks written since the log was opened.
    written: AtomicU64,
    /// A write has failed, so the contents of the device are unknown.
    is_stopped: AtomicBool,
    /// True if there may be a segment to recycle or to make.
    has_work: Mutex<bool>,
    work: Condvar,
}

impl RaftLog {
    /// Opens the log in `dir`, creates it if it does not exist, and checks it: see
    /// [`wal::recover`].
    pub fn open(dir: &Path, options: &Options) -> Result<RaftLog> {
        let begun = Instant::now();
        let (files, secret) = Files::open(dir, Access::Write)?;
        let found = recover(&files, secret)?;
        let (blocks, segments) = (found.sequence, found.in_use.len());
        if let Some(cut) = found.cut {
            tracing::info!(
                blocks = cut.blocks,
                from = cut.first,
                "cut off blocks at the end of the log that were never synced; nothing acknowledged was in them"
            );
        }
        let losses = Mutex::new(found.losses.clone());
        let index = LockedIndex::default();
        let (writer, first) = Appender::new(files.clone(), secret, options.sizes(), index.clone(), found)?;
        tracing::debug!(blocks, segments, took = ?begun.elapsed(), "the log is open");
        let shared = Shared {
            files,
            secret,
            index,
            writer: Mutex::new(writer),
            losses,
            first: Mutex::new(first),
            written: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            has_work: Mutex::new(true),
            work: Condvar::new(),
        };
        Ok(RaftLog { shared: Arc::new(shared) })
    }

    /// Writes the batch. With `sync`, returns only when the whole batch is durable.
    ///
    /// A large batch takes several blocks, and a crash may keep only the first of them. That is
    /// safe: a region's blocks are written in order, and no part of a batch is reported as
    /// persisted before all of it is durable.
    ///
    /// After [`LogError::NoSpace`] the same batch may be appended again. A failed sync aborts the
    /// process.
    pub fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended> {
        self.write(|writer| writer.append(batch, sync))
    }

    /// Writes the batch, as [`append`](Self::append) does. Returns `None`, and has written nothing,
    /// if another thread writes to the log now, or if there is no segment with room for the batch.
    pub fn try_append(&self, batch: &LogBatch, sync: bool) -> Option<Result<Appended>> {
        let begun = Instant::now();
        let writer = self.shared.writer.try_lock()?;
        writer
            .has_room_for(batch)
            .then(|| self.write_with(writer, begun, |writer| writer.append(batch, sync)))
    }

    /// Makes durable all batches that were appended without sync.
    pub fn sync(&self) -> Result<Appended> {
        self.write(|writer| writer.sync().map(|()| 0))
    }

    /// Drops the region's entries through `index` in memory. The `term` of the entry at `index` is
    /// kept. A later batch records the truncation on disk. If a crash loses it, the log is only
    /// longer than needed.
    pub fn truncate(&self, region: RegionId, index: LogIndex, term: Term) {
        let state = LogState { truncated_index: index, truncated_term: term };
        self.shared.index.with(|index| index.truncate(region, state));
        self.wake();
    }

    /// Releases segments that are not needed. If the log is too large and most of it is needed,
    /// returns the regions that hold needed entries in the oldest segment.
    ///
    /// Must not be called from the thread that appends, which would wait for its syncs.
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

    /// Creates segments in advance, so that appends need not wait for them. Must not be called from
    /// the thread that appends.
    pub fn prepare(&self) -> Result<()> {
        self.refuse_if_stopped()?;
        loop {
            let wanted = self.shared.writer.lock().wanted_segment();
            let Some((segment, len)) = wanted else { return Ok(()) };
            self.shared.files.create(segment, len).map_err(|error| self.failed(error.into()))?;
            self.shared.writer.lock().add_segment(segment, len);
        }
    }

    /// Waits until there may be work for [`RaftLog::recycle`] or [`RaftLog::prepare`], at most for
    /// `at_most`.
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

    /// Makes the mark of the synced sequence durable. The store calls this when the log is idle.
    pub fn sync_mark(&self) -> Result<()> {
        self.shared.writer.lock().sync_mark().map_err(|error| self.failed(error))
    }

    /// Starts the logs of regions that have rows but no log, and records their peers, in one synced
    /// write. A term and a vote that a blank peer of the region recorded are preserved.
    pub fn found(&self, descriptors: &[RegionDescriptor]) -> Result<()> {
        let begin = |descriptor: &RegionDescriptor| {
            let life = PeerLifecycle::Exists { descriptor: descriptor.clone(), parent: None };
            let begun = LogState { truncated_index: FIRST_INDEX, truncated_term: FIRST_TERM };
            let recorded = self.shared.index.with(|index| index.hard_state(descriptor.id));
            let state = HardState::begun(recorded);
            let records = vec![Record::Begun(begun), Record::HardState(state), Record::Life(life)];
            (descriptor.id, records)
        };
        self.record(descriptors.iter().map(begin).collect(), true)
    }

    /// Returns the losses by damaged sections, by region, until [`RaftLog::repair`]. The logs of
    /// these regions must not be used before that.
    pub fn losses(&self) -> BTreeMap<RegionId, Loss> {
        self.shared.losses.lock().clone()
    }

    /// Writes and syncs the records that make the logs of damaged regions consistent again. The
    /// next start finds no damage, so the caller must have recorded durably which peers it
    /// concerns.
    pub fn repair(&self, records: Vec<(RegionId, Vec<Record>)>) -> Result<()> {
        if !records.is_empty() {
            self.write(|writer| writer.repair(records))?;
        }
        self.shared.losses.lock().clear();
        Ok(())
    }

    /// Drops a region's entries from a damaged one at `first` on, and accepts no more writes of the
    /// region until its log restarts. The region's peer must be recorded durably as permanently
    /// silent.
    pub fn give_up(&self, region: RegionId, first: LogIndex) -> Result<()> {
        self.write(|writer| writer.give_up(region, first)).map(|_| ())
    }

    /// Records the lifecycles of these peers, synced.
    pub fn set_peers(&self, peers: &[(RegionId, PeerLifecycle)]) -> Result<()> {
        let record = |(region, life): &(RegionId, PeerLifecycle)| (*region, vec![Record::Life(life.clone())]);
        self.record(peers.iter().map(record).collect(), true)
    }

    /// Deletes a peer's log and leaves a tombstone, in one synced write. Must be called only after
    /// a flush covers the row changes that make the log unnecessary.
    pub fn destroy(&self, region: RegionId, peer: PeerId) -> Result<()> {
        let tombstone = Record::Life(PeerLifecycle::Tombstone { peer });
        self.record(vec![(region, vec![Record::Forgotten, tombstone])], true)
    }

    /// Returns all peers that this store has or had, ascending by region.
    pub fn peers(&self) -> Vec<(RegionId, PeerLifecycle)> {
        self.shared.index.with(|index| index.lifecycles())
    }

    /// Stores a value for the store as a whole, synced.
    pub fn set_store_value(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let record = Record::Value { name: name.to_vec(), value: Bytes::copy_from_slice(value) };
        self.record(vec![(0, vec![record])], true)
    }

    pub fn store_value(&self, name: &[u8]) -> Option<Bytes> {
        self.shared.index.with(|index| index.value(name))
    }

    /// Returns the regions with any state or entries in the log, ascending.
    pub fn regions(&self) -> Vec<RegionId> {
        self.shared.index.with(|index| index.regions())
    }

    /// Returns the bytes of the segments in use, counting the last one only as far as it is
    /// written.
    pub fn used_bytes(&self) -> u64 {
        self.shared.writer.lock().used_bytes()
    }

    /// Returns the bytes of blocks written for callers since the log was opened. Blocks rewritten
    /// by recycling do not count.
    pub fn written_bytes(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Returns the bytes written to the log's files since the log was opened: blocks, those
    /// rewritten by recycling, marks, and the zeros of new segments.
    pub fn device_bytes(&self) -> u64 {
        self.shared.files.written_bytes()
    }

    /// Returns the sequence of the last block, which counts across restarts.
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
        let begun = Instant::now();
        self.write_with(self.shared.writer.lock(), begun, act)
    }

    fn write_with(
        &self,
        mut writer: MutexGuard<'_, Appender<Files, LockedIndex>>,
        begun: Instant,
        act: impl FnOnce(&mut Appender<Files, LockedIndex>) -> Result<usize>,
    ) -> Result<Appended> {
        self.refuse_if_stopped()?;
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

    /// Stops the log after any error except a full disk, a refused batch or entries of one region
    /// that fail their checksum: no write may follow.
    fn failed(&self, error: LogError) -> LogError {
        if !matches!(error, LogError::NoSpace(_) | LogError::Range { .. } | LogError::Damaged { .. }) {
            self.shared.is_stopped.store(true, Ordering::Release);
        }
        error
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.writer.get_mut().sync_mark() {
            tracing::warn!(%error, "could not sync the mark of the last synced block when the log was closed");
        }
    }
}
