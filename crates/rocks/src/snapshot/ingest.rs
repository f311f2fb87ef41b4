//! Takes a snapshot over in place of the rows that it replaces, and deletes a region's rows.

use std::path::Path;

use bytes::Bytes;
use rocksdb::IngestExternalFileOptions;
use storage::WriteSet;
use types::{LogIndex, RegionDescriptor, RegionId, SlotRange, Term};

use super::checksum;
use super::manifest::Manifest;
use super::write::descriptor_of;
use super::{own_range, range_of, SnapshotError};
use crate::error::classify;
use crate::keyspace::FlashKeyspace;

/// What was done so far, for tests that want to crash there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestStep {
    Verified,
    /// The rows that are replaced are deleted, in a memtable.
    Deleted,
    Flushed,
    Ingested,
}

impl FlashKeyspace {
    /// Replaces the rows of `replaced` and the region's own by those of the snapshot in `dir`: afterwards it
    /// is as if the region had applied its log up to the snapshot's index, and that is durable. The files
    /// in `dir` are used up.
    ///
    /// `replaced` are the slots whose rows here are the region's: those that its peer here had before, less
    /// what has become another region's, and the snapshot's own, which it must cover. The meta region has
    /// none.
    ///
    /// May be called again after a failure or a crash at any step, with the files as that left them. Until
    /// it has returned the region's rows may be missing, so nobody may read them; other regions' rows are
    /// not concerned.
    pub fn ingest_snapshot(
        &self,
        dir: &Path,
        manifest: &Manifest,
        replaced: &[SlotRange],
    ) -> Result<(), SnapshotError> {
        self.ingest_snapshot_by_steps(dir, manifest, replaced, &mut |_| Ok(()))
    }

    /// [`ingest_snapshot`](Self::ingest_snapshot), which stops where `observe` fails.
    #[doc(hidden)]
    pub fn ingest_snapshot_by_steps(
        &self,
        dir: &Path,
        manifest: &Manifest,
        replaced: &[SlotRange],
        observe: &mut dyn FnMut(IngestStep) -> storage::Result<()>,
    ) -> Result<(), SnapshotError> {
        let (region, index) = (manifest.region(), manifest.index);
        if manifest.descriptor.slots.is_some_and(|slots| !covers(replaced, slots)) {
            return Err(SnapshotError::BeyondReplaced { region, index });
        }
        if self.is_snapshot_applied(&manifest.descriptor, index, manifest.term)? {
            // Ingested before, or come this far by the log, which gives the same rows. In the latter case
            // they may still be in memtables.
            return Ok(self.flush()?);
        }
        for (number, file) in manifest.files.iter().enumerate() {
            let path = dir.join(Manifest::file_name(number));
            file.verify(&path)?;
            checksum::restore(file, &path)?;
        }
        observe(IngestStep::Verified)?;
        let mut replace = || {
            self.write_uncached(&deletion(region, replaced))?;
            observe(IngestStep::Deleted)?;
            self.flush()?;
            observe(IngestStep::Flushed)?;
            self.ingest_files(dir, manifest)?;
            observe(IngestStep::Ingested)
        };
        // To the row cache the ingest is part of the deletion: what anybody reads meanwhile is not kept.
        match &self.rows {
            Some(rows) => rows.write_through(&deletion(region, replaced), replace)?,
            None => replace()?,
        }
        tracing::debug!(region, index, files = manifest.files.len(), "ingested a snapshot");
        Ok(())
    }

    /// Deletes all that this store has of a region: the rows of `slots`, and the region's own. Visible at
    /// once, durable after the next flush, as every write; doing it again changes nothing.
    pub fn destroy_region(&self, region: RegionId, slots: &[SlotRange]) -> storage::Result<()> {
        self.write(&deletion(region, slots))
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

    fn ingest_files(&self, dir: &Path, manifest: &Manifest) -> storage::Result<()> {
        let mut options = IngestExternalFileOptions::default();
        // Hard links, where the file system has them: the rows are not written twice.
        options.set_move_files(true);
        let files = (0..manifest.files.len()).map(|number| dir.join(Manifest::file_name(number))).collect();
        self.db.ingest_external_file_opts::<std::path::PathBuf>(&options, files).map_err(classify)
    }
}

fn deletion(region: RegionId, slots: &[SlotRange]) -> WriteSet {
    let data: Vec<(Bytes, Bytes)> = match region {
        types::META_REGION => range_of(region, None).into_iter().collect(),
        _ => slots.iter().filter_map(|slots| range_of(region, Some(*slots))).collect(),
    };
    WriteSet { ranges_deleted: data.into_iter().chain([own_range(region)]).collect(), rows: Vec::new() }
}

fn covers(ranges: &[SlotRange], range: SlotRange) -> bool {
    let mut slots = range.first..=range.last;
    slots.all(|slot| ranges.iter().any(|range| range.contains(slot)))
}
