//! Ingest of a snapshot, which replaces the region's rows, and deletion of a region's rows.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rocksdb::CompactOptions;
use storage::{extent, WriteSet};
use types::{LogIndex, RegionDescriptor, RegionId, SlotRange, Term};

use super::checksum;
use super::manifest::Manifest;
use super::write::descriptor_of;
use super::SnapshotError;
use crate::flush::flush_memtables;
use crate::ingest::ingest;
use crate::keyspace::Keyspace;

/// The state of verification of a snapshot's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// This process has verified the files, and no ingest of them was begun since.
    Verified,
    /// The files may have changed. They are read and verified before anything is deleted.
    Unknown,
}

/// The last completed step of an ingest, for tests that crash there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestStep {
    Verified,
    /// The replaced rows are deleted in RocksDB's memtable.
    Deleted,
    Flushed,
    Ingested,
}

/// Keeps rows that are replaced in RocksDB out of the RAM tier until it is dropped. Flushes are
/// held meanwhile.
struct Replacing<'a>(&'a Keyspace);

impl Replacing<'_> {
    /// Removes the rows in these ranges from the RAM tier.
    fn begin<'a>(keyspace: &'a Keyspace, ranges: &[(Bytes, Bytes)]) -> Replacing<'a> {
        keyspace.in_steps(|tier, _| {
            tier.begin_replacing(ranges);
            true
        });
        let replacing = Replacing(keyspace);
        keyspace.in_steps(|tier, _| tier.replace_step());
        replacing
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.in_steps(|tier, _| {
            tier.end_replacing();
            true
        });
    }
}

impl Keyspace {
    /// Replaces the region's rows with those of the snapshot in `dir`. Afterwards the rows are
    /// those of a region that has applied its log up to the snapshot's index, and they are durable.
    /// The files in `dir` are consumed.
    ///
    /// The call replaces the rows of the snapshot's own slots and those of `previous`, the slots
    /// that the region's peer on this store had before. It skips slots of `previous` that another
    /// region's descriptor on this store claims: a peer that missed a split still claims slots of
    /// another region, and that region may have reached this store independently.
    ///
    /// The call may be repeated after a failure or a crash at any step, with the remaining files.
    /// Until it returns, rows of the region may be missing, so the region must not be read. Other
    /// regions' rows are not affected.
    pub fn ingest_snapshot(
        &self,
        dir: &Path,
        manifest: &Manifest,
        previous: &[SlotRange],
    ) -> Result<(), SnapshotError> {
        self.ingest_snapshot_by_steps(dir, manifest, previous, Files::Unknown, &mut |_| Ok(()))
    }

    /// Same as [`ingest_snapshot`](Self::ingest_snapshot) for files that this process has verified,
    /// so that they are not read again. After a failure the files no longer count as verified.
    pub fn ingest_verified_snapshot(
        &self,
        dir: &Path,
        manifest: &Manifest,
        previous: &[SlotRange],
    ) -> Result<(), SnapshotError> {
        self.ingest_snapshot_by_steps(dir, manifest, previous, Files::Verified, &mut |_| Ok(()))
    }

    /// Same as [`ingest_snapshot`](Self::ingest_snapshot), but stops at the step at which `observe`
    /// fails.
    #[doc(hidden)]
    pub fn ingest_snapshot_by_steps(
        &self,
        dir: &Path,
        manifest: &Manifest,
        previous: &[SlotRange],
        files: Files,
        observe: &mut dyn FnMut(IngestStep) -> storage::Result<()>,
    ) -> Result<(), SnapshotError> {
        let (region, index) = (manifest.region(), manifest.index);
        if self.is_snapshot_applied(&manifest.descriptor, index, manifest.term)? {
            // The snapshot was ingested before, or the region reached this index by its log, which
            // gives the same rows. In the latter case they may still be in memtables.
            return Ok(self.flush()?);
        }
        for (number, file) in manifest.files.iter().enumerate() {
            let path = dir.join(Manifest::file_name(number));
            match files {
                Files::Verified => file.verify_length(&path)?,
                Files::Unknown => {
                    file.verify(&path)?;
                    checksum::restore(file, &path)?;
                }
            }
        }
        observe(IngestStep::Verified)?;
        let mut slots = extent::without_others(&self.view(), region, previous)?;
        slots.extend(manifest.descriptor.slots);
        let deletion = extent::deletion(region, &slots);
        let flushes = self.hold_flushes();
        // No entry of the region is applied during the ingest, so after the flush no memtable holds
        // a row of the region.
        self.flush_holding(&flushes)?;
        let replacing = Replacing::begin(self, &deletion.ranges_deleted);
        self.delete_in_rocksdb(&self.present(&deletion)?)?;
        observe(IngestStep::Deleted)?;
        flush_memtables(&self.db)?;
        observe(IngestStep::Flushed)?;
        self.ingest_files(dir, manifest)?;
        drop((replacing, flushes));
        observe(IngestStep::Ingested)?;
        tracing::debug!(region, index, files = manifest.files.len(), "ingested a snapshot");
        Ok(())
    }

    /// Returns the deletion without the ranges in which RocksDB has no rows. The deletion of a
    /// range would keep the ingested files out of the last level, and compaction would write their
    /// rows again.
    fn present(&self, deletion: &WriteSet) -> storage::Result<WriteSet> {
        let mut present = WriteSet::default();
        for (from, to) in &deletion.ranges_deleted {
            let mut is_present = false;
            self.scan_flash(from, to, &mut |_, _| {
                is_present = true;
                ControlFlow::Break(())
            })?;
            if is_present {
                present.ranges_deleted.push((from.clone(), to.clone()));
            }
        }
        Ok(present)
    }

    /// Deletes all rows that this store has of a region: the region's own rows, and those of
    /// `slots` except slots of other regions. Like every write, the deletion is visible at once and
    /// durable after the next flush. It is idempotent.
    pub fn destroy_region(&self, region: RegionId, slots: &[SlotRange]) -> storage::Result<()> {
        let slots = extent::without_others(&self.view(), region, slots)?;
        self.write(extent::deletion(region, &slots));
        Ok(())
    }

    /// Returns true if the region's rows are at exactly this index and term of its log and have
    /// this descriptor, so that a snapshot made there has the same rows.
    pub fn is_snapshot_applied(
        &self,
        descriptor: &RegionDescriptor,
        index: LogIndex,
        term: Term,
    ) -> Result<bool, SnapshotError> {
        let view = self.view();
        let state = storage::load_state(&view, descriptor.id)?;
        if (state.applied_index, state.applied_term) != (index, term) {
            return Ok(false);
        }
        match descriptor_of(&view, descriptor.id) {
            Ok(found) => Ok(found == *descriptor),
            Err(SnapshotError::NotHere(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reclaims the space of rows that were deleted by range, which RocksDB otherwise does late.
    /// Blocks until it is done. Rows that older views still use stay.
    pub fn reclaim(&self, slots: SlotRange) {
        let (from, to) = storage::rows::slots_range(slots);
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        self.db.compact_range_opt(Some(&from), Some(&to), &options);
    }

    fn ingest_files(&self, dir: &Path, manifest: &Manifest) -> storage::Result<()> {
        let files = (0..manifest.files.len()).map(|number| dir.join(Manifest::file_name(number))).collect();
        ingest(&self.db, files, self.links_files())?;
        let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        self.ingested_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}
