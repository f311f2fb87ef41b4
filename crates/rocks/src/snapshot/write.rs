//! Building of a snapshot's files: the region's rows are scanned in one view. The files go to a
//! directory or straight to another store.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use types::{LogIndex, RegionDescriptor, RegionId, Term};

use super::checksum::{damaged, Description};
use super::manifest::{Manifest, SnapshotFile};
use storage::rows::{region_descriptor_row, row_behind};
use storage::{extent, StorageError};

use super::{at, data_range, SnapshotError};
use crate::error::classify_sst;
use crate::keyspace::Keyspace;
use crate::view::View;

/// Size at which a file of a snapshot is closed, in bytes. A file takes a few seconds to resume,
/// verify and ingest, and a region of many gigabytes still has few files.
pub const FILE_BYTES: u64 = 32 << 20;

/// Bytes of rows between two calls of the pace.
const PACE_BYTES: u64 = 256 << 10;

/// Bytes of a stored file after which it is synced, so that no sync at its end delays those of the
/// log.
const SYNC_BYTES: u64 = 8 << 20;

/// Part of a memtable's size that a view which is held for long may keep in RAM.
const HELD_PART: u64 = 8;
/// Maximum number of flushes before such a view.
const FLUSHES_MAX: usize = 3;

/// Callback that receives the number of bytes of rows written since its last call. It may wait as
/// long as it likes; `Break` cancels the snapshot.
pub type Pace<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// The row at which a file of a snapshot begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The number of the range: 0 for the data rows, 1 for the region's own.
    range: usize,
    /// Rows of the range before this one are in earlier files.
    row: Bytes,
}

/// Takes the files of a snapshot while they are built, one after the other.
pub trait FileSink {
    type Error: From<SnapshotError>;

    /// Takes the next bytes of the open file. The builder reads no further rows until this returns.
    fn add(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Ends the open file. The next one begins at `next`.
    fn end_file(&mut self, file: SnapshotFile, next: Start) -> Result<(), Self::Error>;

    /// Called after about each 256 KiB of rows.
    fn have_read(&mut self, _row_bytes: u64) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The rows of a region at one moment. Files of them can be built any number of times.
pub struct RegionView<'a> {
    keyspace: &'a Keyspace,
    view: View<'a>,
    pub descriptor: RegionDescriptor,
    /// Index and term of the last log entry that the rows reflect.
    pub index: LogIndex,
    pub term: Term,
}

impl Keyspace {
    /// Returns a view of the region's rows.
    pub fn view_region(&self, region: RegionId) -> Result<RegionView<'_>, SnapshotError> {
        let view = self.view();
        let state = storage::load_state(&view, region)?;
        let descriptor = descriptor_of(&view, region)?;
        let (index, term) = (state.applied_index, state.applied_term);
        Ok(RegionView { keyspace: self, view, descriptor, index, term })
    }

    /// Same as [`view_region`](Self::view_region) for a view that is held for minutes. The
    /// memtables of a view stay in RAM as long as the view, beside those that follow them, so rows
    /// are flushed first if there are many of them.
    pub fn view_region_for_long(&self, region: RegionId) -> Result<RegionView<'_>, SnapshotError> {
        // Rows are written during a flush, too. The next flush is shorter.
        for _ in 0..FLUSHES_MAX {
            if self.unflushed_bytes() <= self.options().write_buffer_size / HELD_PART {
                break;
            }
            match self.flush() {
                // The view keeps more rows in RAM then.
                Err(StorageError::NoSpace(_)) => break,
                flushed => flushed?,
            }
        }
        self.view_region(region)
    }

    /// Writes a snapshot of the region's current state into the directory `dir`, which must not
    /// exist yet. Everything is durable before `dir` appears. Files that a crash leaves before that
    /// are in the [`unfinished`](Keyspace::unfinished_snapshot) directory and may be deleted.
    ///
    /// A file is closed once it has `file_bytes` bytes.
    pub fn write_snapshot(
        &self,
        region: RegionId,
        dir: &Path,
        file_bytes: u64,
        pace: &mut Pace<'_>,
    ) -> Result<Manifest, SnapshotError> {
        let unfinished = Keyspace::unfinished_snapshot(dir);
        remove_if_there(&unfinished)?;
        fs::create_dir_all(&unfinished).map_err(at(&unfinished))?;
        let made = self.write_files(region, &unfinished, file_bytes, pace).and_then(|manifest| {
            manifest.write(&unfinished)?;
            fs::rename(&unfinished, dir).map_err(at(dir))?;
            durable::sync_dir(durable::dir_of(dir)).map_err(at(dir))?;
            Ok(manifest)
        });
        if made.is_err() {
            // Nothing depends on these files. Those that cannot be removed here are removed when
            // the store starts.
            let _ = fs::remove_dir_all(&unfinished);
        }
        made
    }

    /// Estimates the size of a snapshot of the region in bytes: the share of its rows in SST files,
    /// plus the whole size of the memtables.
    pub fn estimate_snapshot(&self, region: RegionId) -> Result<u64, SnapshotError> {
        let descriptor = descriptor_of(&self.view(), region)?;
        let range = data_range(&descriptor);
        let in_files: u64 = self.approximate_sizes(range.as_slice())?.iter().sum();
        Ok(in_files.saturating_add(self.unflushed_bytes()))
    }

    /// Returns the directory in which the snapshot for `dir` is written until it is complete.
    pub fn unfinished_snapshot(dir: &Path) -> PathBuf {
        dir.with_extension("unfinished")
    }

    fn write_files(
        &self,
        region: RegionId,
        dir: &Path,
        file_bytes: u64,
        pace: &mut Pace<'_>,
    ) -> Result<Manifest, SnapshotError> {
        let view = self.view_region(region)?;
        let mut stored = StoredFiles { dir, pace, open: None, unsynced: 0, done: Vec::new() };
        view.build(&Start::default(), file_bytes, &mut stored)?;
        Ok(view.manifest(stored.done))
    }
}

impl RegionView<'_> {
    /// Returns the manifest of a snapshot with these files.
    pub fn manifest(&self, files: Vec<SnapshotFile>) -> Manifest {
        Manifest { descriptor: self.descriptor.clone(), index: self.index, term: self.term, files }
    }

    /// Builds the files from `start` on, in memory. A file is closed once it has `file_bytes`
    /// bytes. Needs memory for a part of a file, its index and its filter.
    ///
    /// Each file is read by an iterator of its own, because an iterator keeps tables that
    /// compaction has replaced. A view keeps old versions of rows only.
    pub fn build<S: FileSink>(&self, start: &Start, file_bytes: u64, sink: &mut S) -> Result<(), S::Error> {
        let data = data_range(&self.descriptor).unwrap_or_default();
        let ranges = [data, extent::own_range(self.descriptor.id)];
        let mut files =
            Files { format: &self.keyspace.snapshot_format, file_bytes, sink, unpaced: 0, open: None };
        for (number, (from, to)) in ranges.into_iter().enumerate().skip(start.range) {
            let is_first = number == start.range && start.row > from;
            let mut from = if is_first { start.row.clone() } else { from };
            while let Some(next) = files.build_one(&self.view, number, &from, &to)? {
                from = next;
            }
        }
        Ok(())
    }
}

fn remove_if_there(dir: &Path) -> Result<(), SnapshotError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(dir)(error)),
        _ => Ok(()),
    }
}

pub(super) fn descriptor_of(
    reader: &dyn storage::Reader,
    region: RegionId,
) -> Result<RegionDescriptor, SnapshotError> {
    let bytes = reader.get(&region_descriptor_row(region))?.ok_or(SnapshotError::NotHere(region))?;
    RegionDescriptor::decode(&bytes)
        .map_err(|error| storage::StorageError::Corrupt(format!("region {region}: {error}")).into())
}

struct Files<'a, S> {
    format: &'a sst::Format,
    file_bytes: u64,
    sink: &'a mut S,
    /// Bytes of rows since the sink last heard of them.
    unpaced: u64,
    open: Option<(sst::Builder, Description)>,
}

impl<S: FileSink> Files<'_, S> {
    /// Builds a file of the rows `from..to`, the rest of range `range`. Returns the row at which
    /// the next file of the range begins, if it may have more rows.
    fn build_one(
        &mut self,
        view: &View<'_>,
        range: usize,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<Bytes>, S::Error> {
        let (mut built, mut next) = (Ok(()), None);
        view.scan_ahead(from, to, &mut |row, value| match self.put(row, value) {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) => {
                next = Some(row_behind(row));
                ControlFlow::Break(())
            }
            Err(error) => {
                built = Err(error);
                ControlFlow::Break(())
            }
        })
        .map_err(SnapshotError::from)?;
        built?;
        let start = match &next {
            Some(row) => Start { range, row: row.clone() },
            None => Start { range: range + 1, row: Bytes::new() },
        };
        self.close(start)?;
        Ok(next)
    }

    /// Adds a row. Returns true if the file is full.
    fn put(&mut self, row: &[u8], value: &[u8]) -> Result<bool, S::Error> {
        // RocksDB cannot create a file without rows, so a file is begun for its first row.
        if self.open.is_none() {
            let builder = sst::Builder::new(self.format).map_err(failed)?;
            self.open = Some((builder, Description::default()));
        }
        let (builder, description) = self.open.as_mut().expect("begun above");
        builder.put(row, value).map_err(failed)?;
        let is_full = builder.file_size() >= self.file_bytes;
        pass_on(builder, description, self.sink)?;
        self.unpaced += (row.len() + value.len()) as u64;
        if self.unpaced >= PACE_BYTES || is_full {
            self.sink.have_read(std::mem::take(&mut self.unpaced))?;
        }
        Ok(is_full)
    }

    fn close(&mut self, next: Start) -> Result<(), S::Error> {
        let Some((mut builder, mut description)) = self.open.take() else { return Ok(()) };
        builder.finish().map_err(failed)?;
        pass_on(&mut builder, &mut description, self.sink)?;
        let file = description.finish().ok_or_else(|| {
            damaged(Path::new("a file of a snapshot"), "it has no place for a sequence number")
        })?;
        self.sink.end_file(file, next)
    }
}

fn failed(error: sst::Error) -> SnapshotError {
    classify_sst(error).into()
}

/// Passes on the bytes that were built since the last call.
fn pass_on<S: FileSink>(
    builder: &mut sst::Builder,
    description: &mut Description,
    sink: &mut S,
) -> Result<(), S::Error> {
    let bytes = builder.built();
    if !bytes.is_empty() {
        description.add(bytes);
        sink.add(bytes)?;
        builder.drop_built();
    }
    Ok(())
}

/// Writes the files into a directory and syncs them.
struct StoredFiles<'a, 'p> {
    dir: &'a Path,
    pace: &'a mut Pace<'p>,
    open: Option<atrest::File>,
    /// Bytes of the open file since its last sync.
    unsynced: u64,
    done: Vec<SnapshotFile>,
}

impl FileSink for StoredFiles<'_, '_> {
    type Error = SnapshotError;

    fn add(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        let path = self.path();
        if self.open.is_none() {
            self.open = Some(atrest::File::create(&path).map_err(at(&path))?);
        }
        let file = self.open.as_mut().expect("opened above");
        file.write_all(bytes).map_err(at(&path))?;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            file.sync_data().map_err(at(&path))?;
        }
        Ok(())
    }

    fn end_file(&mut self, file: SnapshotFile, _next: Start) -> Result<(), SnapshotError> {
        let path = self.path();
        if let Some(open) = self.open.take() {
            open.sync_all().map_err(at(&path))?;
        }
        self.unsynced = 0;
        self.done.push(file);
        Ok(())
    }

    fn have_read(&mut self, row_bytes: u64) -> Result<(), SnapshotError> {
        match (self.pace)(row_bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SnapshotError::Cancelled),
        }
    }
}

impl StoredFiles<'_, '_> {
    /// Returns the path of the open file, or of the next one.
    fn path(&self) -> PathBuf {
        self.dir.join(Manifest::file_name(self.done.len()))
    }
}
