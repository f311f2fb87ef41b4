//! Snapshots of a region: its rows as SST files that are built from one view and ingested together.
//!
//! The files are built in memory, piece by piece, and described from these pieces. The pieces go to
//! another store at once, or into a directory ([`FileSink`]).
//!
//! A snapshot is a directory with a [`Manifest`] and the files that it lists. It exists once the
//! directory has its final name; everything is synced before. The rows with the region's state and
//! descriptor are part of it and are read from the same view as the data. So a snapshot describes
//! its own contents.
//!
//! An ingest has three steps: it deletes the rows that the snapshot replaces, flushes the deletion,
//! and ingests all files with one atomic change of RocksDB's manifest. Ingested files are durable
//! immediately, while memtables are not. Because of the flush between them, no crash restores a row
//! that the snapshot does not have. A crash between the steps leaves a region without rows. So the
//! caller's log must record durably that the region is applying a snapshot *before* the first step,
//! and the caller repeats the ingest after a crash.

mod checksum;
mod ingest;
mod manifest;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use storage::{extent, StorageError};
use types::{RegionDescriptor, RegionId};

pub use checksum::{Arriving, Description};
pub use ingest::{Files, IngestStep};
pub use manifest::{Manifest, ManifestError, SnapshotFile, MANIFEST};
pub use write::{FileSink, Pace, RegionView, Start, FILE_BYTES};

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// A file of the snapshot does not match its manifest, or the manifest is not valid.
    #[error("{path}: {why}")]
    Damaged { path: PathBuf, why: String },
    #[error("this store has no rows of region {0}")]
    NotHere(RegionId),
    #[error("cancelled")]
    Cancelled,
}

impl SnapshotError {
    /// Returns true if the operation may succeed once the device has free space.
    pub fn is_no_space(&self) -> bool {
        match self {
            SnapshotError::Storage(StorageError::NoSpace(_)) => true,
            SnapshotError::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}

/// Returns the range of rows in a region's snapshot besides the region's own rows.
fn data_range(descriptor: &RegionDescriptor) -> Option<(Bytes, Bytes)> {
    extent::data_range(descriptor.id, descriptor.slots)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError + '_ {
    move |source| SnapshotError::Io { path: path.to_path_buf(), source }
}
