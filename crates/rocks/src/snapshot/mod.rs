//! Snapshots of a region: its rows as SST files, made from one view and ingested at once.
//!
//! A snapshot is a directory with a [`Manifest`] and the files that it names. It exists once the manifest
//! does under the directory's final name: everything was synced before. The rows of the region's state and
//! descriptor are part of it, read from the same view as the data, so a snapshot says by itself what it is
//! a snapshot of.
//!
//! Taking one over has three steps: the rows that it replaces are deleted, that is flushed, and all
//! files are ingested by one atomic change of RocksDB's manifest. Ingested files are durable at once and
//! memtables are not, hence the flush between: no crash brings back a row that the snapshot does not have.
//! A crash in between leaves a region without rows, which is why the caller's log must say, synced, that the
//! region is applying a snapshot *before* the first step; then it does all of it again.

mod checksum;
mod ingest;
mod manifest;
mod pace;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use storage::{extent, StorageError};
use types::{RegionDescriptor, RegionId};

pub use ingest::{Files, IngestStep};
pub use manifest::{Manifest, ManifestError, SnapshotFile, MANIFEST};
pub use pace::TokenBucket;
pub use write::{Pace, FILE_BYTES};

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// A file of the snapshot is not what its manifest says, or the manifest is none.
    #[error("{path}: {why}")]
    Damaged { path: PathBuf, why: String },
    #[error("this store has no rows of region {0}")]
    NotHere(RegionId),
    #[error("cancelled")]
    Cancelled,
}

impl SnapshotError {
    /// Whether it may succeed once there is room on the device.
    pub fn is_no_space(&self) -> bool {
        match self {
            SnapshotError::Storage(StorageError::NoSpace(_)) => true,
            SnapshotError::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}

/// What a region's snapshot holds beside the region's own rows.
fn data_range(descriptor: &RegionDescriptor) -> Option<(Bytes, Bytes)> {
    extent::data_range(descriptor.id, descriptor.slots)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError + '_ {
    move |source| SnapshotError::Io { path: path.to_path_buf(), source }
}

/// Makes the directory's entries durable.
fn sync_directory(dir: &Path) -> Result<(), SnapshotError> {
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}
