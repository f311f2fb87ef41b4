//! The log engine as a store uses it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use raft::eraftpb::Entry;
use raft_engine::internals::LogQueue;
use raft_engine::{take_perf_context, Command, Engine, MessageExt};
use replica::{HardState, LogBatch, LogBounds, RestartCause};
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term, FIRST_INDEX, FIRST_TERM};

use crate::error::{reading, writing, LogError, Result};
use crate::files::{Files, GuardedFiles, APPENDED};
use crate::options::Options;
use crate::pieces::{self, Part};
use crate::records::{self, LogState, PeerLife, STORE_GROUP};
use crate::watermark::Watermark;

pub(crate) struct EntryExt;

impl MessageExt for EntryExt {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// What an append took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    pub bytes: usize,
    /// The whole call.
    pub total: Duration,
    /// Of it, waiting for `fdatasync`.
    pub sync: Duration,
}

/// All regions' logs. Clones share one engine.
///
/// Only one process may have a directory open: whoever opens it holds the lock on the store's data
/// directory (the engine has a lock of its own besides).
#[derive(Clone)]
pub struct RaftLog {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine<GuardedFiles>,
    writer: Mutex<Writer>,
    /// Locked after `writer`, and by the engine when it lets go of a file.
    marks: Arc<Mutex<Watermark>>,
    /// The bytes of entries that are written at once.
    piece_bytes: usize,
    /// A write has failed, so nobody knows what the device holds.
    is_stopped: AtomicBool,
}

struct Writer {
    /// Of the last batch, store-wide, over all restarts.
    sequence: u64,
    newest_file: u64,
}

impl RaftLog {
    /// Opens the log in `dir`, which is made if need be, and checks it: the batch that was synced last must be
    /// there, no file that is needed may be missing, and each region's entries must follow its truncation.
    pub fn open(dir: &Path, options: &Options) -> Result<RaftLog> {
        let config = options.to_engine(dir)?;
        std::fs::create_dir_all(dir).map_err(|error| LogError::Device(error.to_string()))?;
        let files = Files::in_directory(dir)?;
        let watermark = Watermark::open(dir, files.is_empty())?;
        let ignored = files.check(watermark.needed())?;
        let tail = files.tail()?;
        let synced = watermark.synced();
        let marks = Arc::new(Mutex::new(watermark));
        let engine = Engine::open_with_file_system(config, Arc::new(GuardedFiles::new(marks.clone())))
            .map_err(reading)?;
        // The engine syncs its directory when it goes on to another file, not when it makes the first.
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| LogError::Device(format!("{}: {error}", dir.display())))?;
        let sequence = match engine.get(STORE_GROUP, records::SEQUENCE_KEY) {
            Some(bytes) => records::decode_sequence(&bytes)?,
            None => 0,
        };
        if sequence < synced {
            drop(engine);
            if let Some(tail) = tail {
                tail.restore()?;
            }
            return Err(LogError::LostTail { synced, found: sequence });
        }
        if let Some(tail) = &tail {
            tail.sync()?;
        }
        let newest_file = engine.file_span(LogQueue::Append).1;
        let writer = Mutex::new(Writer { sequence, newest_file });
        let is_stopped = AtomicBool::new(false);
        let shared = Shared { engine, writer, marks, piece_bytes: options.piece_bytes, is_stopped };
        let log = RaftLog { shared: Arc::new(shared) };
        for region in log.regions() {
            log.check_region(region)?;
        }
        log.take_files(&ignored).map_err(|error| LogError::Device(format!("{}: {error}", dir.display())))?;
        Ok(log)
    }

    /// Makes the files that were found the ones that are needed, and deletes those that the engine ignored.
    fn take_files(&self, ignored: &[PathBuf]) -> std::io::Result<()> {
        let needed = [LogQueue::Append, LogQueue::Rewrite].map(|queue| self.shared.engine.file_span(queue).0);
        let mut marks = self.shared.marks.lock();
        marks.need(needed)?;
        marks.sync()?;
        ignored.iter().try_for_each(std::fs::remove_file)
    }

    /// Writes the batch and, with `sync`, returns once all of it is on the device. Large batches are written in
    /// [pieces](pieces), of which a crash may leave the first ones.
    ///
    /// After [`LogError::NoSpace`] the same batch may be appended again. Aborts the process when the sync fails:
    /// the kernel may have dropped the pages, so neither a retry nor anything else this process says about its
    /// log can be believed.
    pub fn append(&self, batch: &LogBatch, sync: bool) -> Result<Appended> {
        let pieces = pieces::cut(batch, self.shared.piece_bytes);
        let mut appended = Appended::default();
        for (number, piece) in pieces.iter().enumerate() {
            let written = self.append_piece(piece, sync && number + 1 == pieces.len())?;
            appended.bytes += written.bytes;
            appended.total += written.total;
            appended.sync += written.sync;
        }
        Ok(appended)
    }

    fn append_piece(&self, piece: &[Part<'_>], sync: bool) -> Result<Appended> {
        let mut writes = raft_engine::LogBatch::default();
        for part in piece {
            assert_ne!(part.region, STORE_GROUP, "no region has the store's own number");
            if let Some(restart) = part.restart {
                begin(&mut writes, part.region, restart.index, restart.term)?;
                let descriptor = restart.descriptor.clone();
                let life = match restart.cause {
                    RestartCause::Split { parent, at } => {
                        PeerLife::Exists { descriptor, parent: Some((parent, at)) }
                    }
                    RestartCause::Snapshot => {
                        PeerLife::Applying { descriptor, index: restart.index, term: restart.term }
                    }
                };
                writes
                    .put(STORE_GROUP, records::peer_key(part.region), records::encode_peer(&life))
                    .map_err(writing)?;
            }
            if let (Some(first), Some(last)) = (part.entries.first(), part.entries.last()) {
                self.check_follows(part, first.index, last.index)?;
                writes.add_entries::<EntryExt>(part.region, part.entries).map_err(writing)?;
            }
            if let Some(state) = &part.hard_state {
                let bytes = records::encode_hard_state(state);
                writes.put(part.region, records::HARD_STATE_KEY.to_vec(), bytes).map_err(writing)?;
            }
        }
        self.write_numbered(writes, sync)
    }

    /// Makes everything appended without sync durable.
    pub fn sync(&self) -> Result<Appended> {
        // The engine's own `sync` writes an empty batch, and for an empty batch it does nothing.
        self.write_numbered(raft_engine::LogBatch::default(), true)
    }

    /// Drops the region's entries through `index`, whose `term` stays known. Not synced: a truncation that is
    /// forgotten leaves a longer log.
    pub fn truncate(&self, region: RegionId, index: LogIndex, term: Term) -> Result<()> {
        if index <= self.log_state(region)?.truncated_index {
            return Ok(());
        }
        let mut writes = raft_engine::LogBatch::default();
        writes.add_command(region, Command::Compact { index: index + 1 });
        let state = records::encode_log_state(LogState { truncated_index: index, truncated_term: term });
        writes.put(region, records::LOG_STATE_KEY.to_vec(), state).map_err(writing)?;
        self.write(&mut writes, false).map(|_| ())
    }

    /// Deletes files that are not needed, rewriting what is live in them, and names the regions whose entries
    /// keep old files alive. What makes a file unneeded is synced before the file goes. Call it regularly, not
    /// from the thread that appends.
    pub fn purge(&self) -> Result<Vec<RegionId>> {
        self.refuse_if_stopped()?;
        let engine = &self.shared.engine;
        let pinning = abort_on_panic(|| engine.purge_expired_files()).map_err(|e| self.failed(writing(e)))?;
        // Files that are to be written over are marked here, so that a rotation of the log need not do it. The mark
        // counts for others only once it is synced.
        let oldest = engine.file_span(LogQueue::Append).0;
        let mut marks = self.shared.marks.lock();
        let marked = marks.need_from(APPENDED, oldest).and_then(|()| marks.sync());
        drop(marks);
        marked.map_err(|error| self.failed(LogError::Device(error.to_string())))?;
        Ok(pinning.into_iter().filter(|region| *region != STORE_GROUP).collect())
    }

    /// Makes the watermark survive power loss. Called at file rotation and by [`purge`](Self::purge); a store
    /// that idles calls it too.
    pub fn sync_watermark(&self) -> Result<()> {
        let synced = self.shared.marks.lock().sync();
        synced.map_err(|error| self.failed(LogError::Device(error.to_string())))
    }

    /// Begins the logs of regions that a cluster is founded with, and their peers' lives, in one synced write.
    pub fn found(&self, descriptors: &[RegionDescriptor]) -> Result<()> {
        let mut writes = raft_engine::LogBatch::default();
        for descriptor in descriptors {
            begin(&mut writes, descriptor.id, FIRST_INDEX, FIRST_TERM)?;
            let state = HardState { term: FIRST_TERM, vote: None, commit: FIRST_INDEX };
            let bytes = records::encode_hard_state(&state);
            writes.put(descriptor.id, records::HARD_STATE_KEY.to_vec(), bytes).map_err(writing)?;
            let life = PeerLife::Exists { descriptor: descriptor.clone(), parent: None };
            let key = records::peer_key(descriptor.id);
            writes.put(STORE_GROUP, key, records::encode_peer(&life)).map_err(writing)?;
        }
        self.write_numbered(writes, true).map(|_| ())
    }

    /// Records whether this store has the peers; synced.
    pub fn set_peers(&self, peers: &[(RegionId, PeerLife)]) -> Result<()> {
        let mut writes = raft_engine::LogBatch::default();
        for (region, life) in peers {
            let bytes = records::encode_peer(life);
            writes.put(STORE_GROUP, records::peer_key(*region), bytes).map_err(writing)?;
        }
        self.write_numbered(writes, true).map(|_| ())
    }

    /// Deletes a peer's log and leaves its tombstone, in one synced write. To be called once a flush of the
    /// rows covers whatever made the log unneeded.
    pub fn destroy(&self, region: RegionId, peer: PeerId) -> Result<()> {
        let mut writes = raft_engine::LogBatch::default();
        writes.add_command(region, Command::Clean);
        let tombstone = records::encode_peer(&PeerLife::Tombstone { peer });
        writes.put(STORE_GROUP, records::peer_key(region), tombstone).map_err(writing)?;
        self.write_numbered(writes, true).map(|_| ())
    }

    /// Deletes what a peer wrote that never came to hold anything: it has no life on record.
    pub fn forget(&self, region: RegionId) -> Result<()> {
        let mut writes = raft_engine::LogBatch::default();
        writes.add_command(region, Command::Clean);
        self.write_numbered(writes, false).map(|_| ())
    }

    /// Every peer that this store has or had, ascending by region.
    pub fn peers(&self) -> Result<Vec<(RegionId, PeerLife)>> {
        let mut found = Vec::new();
        let (from, to) = records::PEER_KEYS;
        let scan = |key: &[u8], value: &[u8]| {
            found.push(records::region_of_peer_key(key).and_then(|r| Ok((r, records::decode_peer(value)?))));
            true
        };
        self.shared
            .engine
            .scan_raw_messages(STORE_GROUP, Some(from), Some(to), false, scan)
            .map_err(reading)?;
        found.into_iter().collect()
    }

    /// Keeps a value for the store as a whole; synced.
    pub fn set_store_value(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut writes = raft_engine::LogBatch::default();
        writes.put(STORE_GROUP, records::value_key(key), value.to_vec()).map_err(writing)?;
        self.write_numbered(writes, true).map(|_| ())
    }

    pub fn store_value(&self, key: &[u8]) -> Option<Bytes> {
        self.shared.engine.get(STORE_GROUP, &records::value_key(key)).map(Bytes::from)
    }

    /// Regions that have anything in the log, ascending.
    pub fn regions(&self) -> Vec<RegionId> {
        let mut regions = self.shared.engine.raft_groups();
        regions.retain(|region| *region != STORE_GROUP);
        regions.sort_unstable();
        regions
    }

    /// Bytes of the files in use, those to be recycled not included.
    pub fn used_bytes(&self) -> u64 {
        self.shared.engine.get_used_size() as u64
    }

    /// Number of the last batch, over all restarts.
    pub fn sequence(&self) -> u64 {
        self.shared.writer.lock().sequence
    }

    pub(crate) fn engine(&self) -> &Engine<GuardedFiles> {
        &self.shared.engine
    }

    pub(crate) fn log_state(&self, region: RegionId) -> Result<LogState> {
        match self.shared.engine.get(region, records::LOG_STATE_KEY) {
            Some(bytes) => records::decode_log_state(&bytes),
            None => Ok(LogState::default()),
        }
    }

    pub(crate) fn bounds_of(&self, region: RegionId) -> Result<LogBounds> {
        let truncated = self.log_state(region)?.truncated_index;
        let last = self.shared.engine.last_index(region).unwrap_or(truncated);
        Ok(LogBounds { first: truncated + 1, last: last.max(truncated) })
    }

    fn check_region(&self, region: RegionId) -> Result<()> {
        let bounds = self.bounds_of(region)?;
        match self.shared.engine.first_index(region) {
            // Entries at or below the truncation are those of a truncation that a crash tore off its record;
            // both are of one batch, so they can only be absent together.
            Some(first) if first > bounds.first => Err(LogError::Corrupt(format!(
                "region {region} is truncated at {}, but its entries begin at {first}",
                bounds.first - 1
            ))),
            _ => Ok(()),
        }
    }

    /// The engine panics at a hole.
    fn check_follows(&self, part: &Part<'_>, first: u64, last: u64) -> Result<()> {
        let (region, count) = (part.region, part.entries.len());
        let bounds = match part.restart {
            Some(restart) => LogBounds { first: restart.index + 1, last: restart.index },
            None => self.bounds_of(region)?,
        };
        if first >= bounds.first && first <= bounds.last + 1 && last - first + 1 == count as u64 {
            return Ok(());
        }
        let asked = format!("{count} entries {first}..={last} cannot be appended");
        Err(LogError::Range { region, first: bounds.first, last: bounds.last, asked })
    }

    fn write_numbered(&self, mut writes: raft_engine::LogBatch, sync: bool) -> Result<Appended> {
        let begun = Instant::now();
        // One batch at a time: numbers must rise in the order of the file.
        let mut writer = self.shared.writer.lock();
        let sequence = writer.sequence + 1;
        let number = records::encode_sequence(sequence);
        writes.put(STORE_GROUP, records::SEQUENCE_KEY.to_vec(), number).map_err(writing)?;
        take_perf_context();
        let bytes = self.write(&mut writes, sync)?;
        let sync_time = take_perf_context().log_sync_duration;
        writer.sequence = sequence;
        if sync {
            let newest_file = self.shared.engine.file_span(LogQueue::Append).1;
            let mut marks = self.shared.marks.lock();
            let advanced = marks.advance(sequence).and_then(|()| {
                if newest_file == writer.newest_file {
                    return Ok(());
                }
                writer.newest_file = newest_file;
                marks.sync()
            });
            advanced.map_err(|error| self.failed(LogError::Device(error.to_string())))?;
        }
        Ok(Appended { bytes, total: begun.elapsed(), sync: sync_time })
    }

    fn write(&self, writes: &mut raft_engine::LogBatch, sync: bool) -> Result<usize> {
        self.refuse_if_stopped()?;
        let engine = &self.shared.engine;
        abort_on_panic(|| engine.write(writes, sync)).map_err(|error| self.failed(writing(error)))
    }

    fn refuse_if_stopped(&self) -> Result<()> {
        if self.shared.is_stopped.load(Ordering::Acquire) {
            return Err(LogError::Stopped);
        }
        Ok(())
    }

    /// After anything but a full disk no write may follow.
    fn failed(&self, error: LogError) -> LogError {
        if !matches!(error, LogError::NoSpace(_)) {
            self.shared.is_stopped.store(true, Ordering::Release);
        }
        error
    }
}

/// Deletes what the log has of the region, and lets it begin after this entry.
fn begin(writes: &mut raft_engine::LogBatch, region: RegionId, index: LogIndex, term: Term) -> Result<()> {
    writes.add_command(region, Command::Clean);
    let state = records::encode_log_state(LogState { truncated_index: index, truncated_term: term });
    writes.put(region, records::LOG_STATE_KEY.to_vec(), state).map_err(writing)
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.marks.lock().sync() {
            tracing::warn!(%error, "the log's watermark could not be synced at close");
        }
    }
}

/// The engine panics when a sync fails. An unwound thread would leave the others of the process serving
/// from a log that they cannot trust, so the process ends here.
fn abort_on_panic<T>(work: impl FnOnce() -> T) -> T {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            if std::thread::panicking() {
                tracing::error!("a sync of the log failed; the process ends");
                std::process::abort();
            }
        }
    }
    let _guard = Guard;
    work()
}
