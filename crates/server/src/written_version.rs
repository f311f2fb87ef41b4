//! The version of the cluster in which this store writes (`types::Version`).

use std::sync::atomic::{AtomicU32, Ordering};

use types::Version;

/// The version in which this store writes: the cluster's, once the directory records it. A store
/// that does not know of a rise yet writes in the previous version, which every store reads.
#[derive(Debug)]
pub struct WrittenVersion(AtomicU32);

impl WrittenVersion {
    pub fn new(version: Version) -> WrittenVersion {
        WrittenVersion(AtomicU32::new(version))
    }

    pub fn get(&self) -> Version {
        self.0.load(Ordering::Relaxed)
    }

    pub fn raise(&self, version: Version) {
        let before = self.0.fetch_max(version, Ordering::Relaxed);
        if before < version {
            tracing::info!(before, version, "the version of the cluster has risen");
        }
    }
}
