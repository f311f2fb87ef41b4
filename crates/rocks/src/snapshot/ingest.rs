//! Takes a snapshot over in place of the rows that it replaces, and deletes a region's rows.

use std::path::Path;

use rocksdb::{CompactOptions, IngestExternalFileOptions};
use storage::extent;
use types::{LogIndex, RegionDescriptor, RegionId, SlotRange, Term};

use super::checksum;
use super::manifest::Manifest;
use super::write::descriptor_of;
use super::SnapshotError;
use crate::error::classify;
use crate::keyspace::{flush_memtables, Keyspace};

/// Whether a snapshot's files are known to be what its manifest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// This process has verified them, and nothing was begun with them since.
    Verified,
    /// Anything may have happened to them: they are read and verified before anything is deleted.
    Unknown,
}

/// What was done so far, for tests that want to crash there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestStep {
    Verified,
    /// The rows that are replaced are deleted, in RocksDB's memtable.
    Deleted,
    Flushed,
    Ingested,
}

impl Keyspace {
    /// Replaces the region's rows by those of the snapshot in `dir`: afterwards it is as if the region had
    /// applied its log up to the snapshot's index, and that is durable. The files in `dir` are used up.
    ///
    /// Replaced are the rows of the snapshot's own slots, and those of `former`, the slots that the region's
    /// peer here had before. What another region's descriptor here says is its own is left alone in the
    /// latter: a peer that missed a split still speaks of slots that have gone to a region which may have
    /// come to this store on its own.
    ///
    /// May be called again after a failure or a crash at any step, with the files as that left them. Until
    /// it has returned the region's rows may be missing, so nobody may read them; other regions' rows are
    /// not concerned.
    pub fn ingest_snapshot(
        &self,
        dir: &Path,
        manifest: &Manifest,
        former: &[SlotRange],
    ) -> Result<(), SnapshotError> {
        self.ingest_snapshot_by_steps(dir, manifest, former, Files::Unknown, &mut |_| Ok(()))
    }

    /// [`ingest_snapshot`](Self::ingest_snapshot) of files that this process has verified, which spares
    /// reading them all again. After a failure they are no longer known to be that.
    pub fn ingest_verified_snapshot(
        &self,
        dir: &Path,
        manifest: &Manifest,
        former: &[SlotRange],
    ) -> Result<(), SnapshotError> {
        self.ingest_snapshot_by_steps(dir, manifest, former, Files::Verified, &mut |_| Ok(()))
    }

    /// [`ingest_snapshot`](Self::ingest_snapshot), which stops where `observe` fails.
    #[doc(hidden)]
    pub fn ingest_snapshot_by_steps(
        &self,
        dir: &Path,
        manifest: &Manifest,
        former: &[SlotRange],
        files: Files,
        observe: &mut dyn FnMut(IngestStep) -> storage::Result<()>,
    ) -> Result<(), SnapshotError> {
        let (region, index) = (manifest.region(), manifest.index);
        if self.is_snapshot_applied(&manifest.descriptor, index, manifest.term)? {
            // Ingested before, or come this far by the log, which gives the same rows. In the latter case
            // they may still be in memtables.
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
        let mut slots = extent::without_others(&self.view(), region, former)?;
        slots.extend(manifest.descriptor.slots);
        let deletion = extent::deletion(region, &slots);
        let mut flushes = self.hold_flushes();
        // Nothing of the region is applied meanwhile, so afterwards no memtable has a row of it.
        self.flush_holding(&mut flushes)?;
        self.delete_in_rocksdb(&deletion)?;
        self.replaced(&deletion.ranges_deleted);
        observe(IngestStep::Deleted)?;
        flush_memtables(&self.db)?;
        observe(IngestStep::Flushed)?;
        self.ingest_files(dir, manifest)?;
        // What was read meanwhile is not kept either.
        self.replaced(&deletion.ranges_deleted);
        drop(flushes);
        observe(IngestStep::Ingested)?;
        tracing::debug!(region, index, files = manifest.files.len(), "ingested a snapshot");
        Ok(())
    }

    /// Deletes all that this store has of a region: the region's own rows, and those of `slots` less what
    /// is another region's. Visible at once, durable after the next flush, as every write; doing it again
    /// changes nothing.
    pub fn destroy_region(&self, region: RegionId, slots: &[SlotRange]) -> storage::Result<()> {
        let slots = extent::without_others(&self.view(), region, slots)?;
        self.write(&extent::deletion(region, &slots));
        Ok(())
    }

    /// Whether the rows of the region are at this very place of its log, so that a snapshot made there holds
    /// what they do.
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

    /// Gives back the space of rows that were deleted by range, which RocksDB is in no hurry to do. Blocks
    /// until it has; what older views still see stays.
    pub fn reclaim(&self, slots: SlotRange) {
        let (from, to) = storage::rows::slots_range(slots);
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        self.db.compact_range_opt(Some(&from), Some(&to), &options);
    }

    fn ingest_files(&self, dir: &Path, manifest: &Manifest) -> storage::Result<()> {
        let mut options = IngestExternalFileOptions::default();
        // Hard links, where the file system has them: the rows are not written twice.
        options.set_move_files(true);
        let files = (0..manifest.files.len()).map(|number| dir.join(Manifest::file_name(number))).collect();
        self.db.ingest_external_file_opts::<std::path::PathBuf>(&options, files).map_err(classify)
    }
}
