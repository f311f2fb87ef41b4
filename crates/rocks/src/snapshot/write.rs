//! Writing of a snapshot: the region's rows are scanned in one view and written into SST files.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use types::{RegionDescriptor, RegionId};

use super::checksum::describe;
use super::manifest::{Manifest, SnapshotFile};
use storage::extent;
use storage::rows::region_descriptor_row;

use super::{at, data_range, SnapshotError};
use crate::error::classify_sst;
use crate::keyspace::{Keyspace, View};

/// Size at which a file of a snapshot is closed, in bytes. A file takes a few seconds to resume,
/// verify and ingest, and a region of many gigabytes still has few files.
pub const FILE_BYTES: u64 = 32 << 20;

/// Bytes of rows written between two calls of the pace.
const PACE_BYTES: u64 = 256 << 10;

/// Callback that receives the number of bytes of rows written since its last call. It may wait as
/// long as it likes; `Break` cancels the snapshot.
pub type Pace<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

impl Keyspace {
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
        let view = self.view();
        let state = storage::load_state(&view, region)?;
        let descriptor = descriptor_of(&view, region)?;
        let mut files =
            Files { keyspace: self, dir, file_bytes, pace, unpaced: 0, open: None, done: Vec::new() };
        if let Some((from, to)) = data_range(&descriptor) {
            files.write_range(&view, &from, &to)?;
        }
        let (from, to) = extent::own_range(region);
        files.write_range(&view, &from, &to)?;
        Ok(Manifest { descriptor, index: state.applied_index, term: state.applied_term, files: files.done })
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

struct Files<'a> {
    keyspace: &'a Keyspace,
    dir: &'a Path,
    file_bytes: u64,
    pace: &'a mut Pace<'a>,
    /// Bytes of rows written since the last call of the pace.
    unpaced: u64,
    open: Option<sst::Writer>,
    done: Vec<SnapshotFile>,
}

impl Files<'_> {
    /// Writes the rows `from..to` into files of their own.
    fn write_range(&mut self, view: &View<'_>, from: &[u8], to: &[u8]) -> Result<(), SnapshotError> {
        let mut written = Ok(());
        view.scan_ahead(from, to, &mut |row, value| {
            written = self.put(row, value);
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        written?;
        self.close()
    }

    fn put(&mut self, row: &[u8], value: &[u8]) -> Result<(), SnapshotError> {
        // RocksDB cannot create a file without rows, so a file is opened for its first row.
        if self.open.is_none() {
            let format = &self.keyspace.snapshot_format;
            self.open = Some(sst::Writer::create(&self.path(), format).map_err(classify_sst)?);
        }
        let writer = self.open.as_mut().expect("opened above");
        writer.put(row, value).map_err(classify_sst)?;
        let is_full = writer.file_size() >= self.file_bytes;
        self.unpaced += (row.len() + value.len()) as u64;
        if self.unpaced >= PACE_BYTES || is_full {
            let bytes = std::mem::take(&mut self.unpaced);
            if (self.pace)(bytes).is_break() {
                return Err(SnapshotError::Cancelled);
            }
        }
        if is_full {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), SnapshotError> {
        let Some(writer) = self.open.take() else { return Ok(()) };
        writer.finish().map_err(classify_sst)?;
        let path = self.path();
        // This sync is in addition to the writer's own: a lost file would be noticed only when the
        // snapshot is needed.
        File::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))?;
        self.done.push(describe(&path)?);
        Ok(())
    }

    /// Returns the path of the open file, or of the next one.
    fn path(&self) -> PathBuf {
        self.dir.join(Manifest::file_name(self.done.len()))
    }
}
