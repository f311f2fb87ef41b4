//! A handle on an emulated device, which creates, opens, changes and reads its control block.

use std::fs::{self, OpenOptions};
use std::io;
use std::mem::size_of;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use types::device_time::{ALL_SHARED, WRITE_BEHIND_NS};

use crate::block::{
    BLOCK_BYTES, CONTROL_BYTES, DEVICES_MAX, HANGS_READS, HANGS_WRITES, MAGIC, NAME_WORDS, TABLE_ENTRIES,
    VERSION,
};
use crate::cache::{Cache, Geometry};
use crate::mapping::{Mapping, Shared};
use crate::model::{Fault, Hang};
use crate::profile::checked_factor;
use crate::{ArrayProfile, CacheProfile, ControlBlock, Profile, ProfileError, SlcProfile};

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("device control block {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a device control block", path = path.display())]
    NotAControlBlock { path: PathBuf },
    #[error("device control block {path} has version {found}, but this program supports only {VERSION}", path = path.display())]
    Version { path: PathBuf, found: u64 },
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Counters of an emulated device since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    pub bytes_written: u64,
    pub bytes_read: u64,
    pub writes: u64,
    pub reads: u64,
    pub syncs: u64,
    pub flushes: u64,
    /// Calls of `sync_file_range`, and the bytes that they named.
    #[serde(default)]
    pub range_syncs: u64,
    #[serde(default)]
    pub range_sync_bytes: u64,
    /// Nanoseconds that threads slept for the device.
    pub stalled_ns: u64,
    pub injected_faults: u64,
    /// The usage last measured, which happens only if a capacity is set; otherwise 0.
    pub used_bytes: u64,
    /// Bytes read from a hybrid's cache, and bytes read from the device behind it.
    pub bytes_hit: u64,
    pub bytes_missed: u64,
    /// Bytes destaged to the device behind the cache, and dirty bytes of files deleted before that.
    pub bytes_destaged: u64,
    pub bytes_dropped: u64,
    /// Bytes that are currently only in the cache.
    pub dirty_bytes: u64,
}

/// A mapping of a control block. All mappings of the file, also in other processes, see every
/// change at once.
pub struct Control {
    mapping: Mapping<ControlFile>,
    path: PathBuf,
}

/// The content of the file: the block in a page of its own, and the table of a hybrid's cache.
#[repr(C)]
struct ControlFile {
    page: BlockPage,
    table: [AtomicU64; TABLE_ENTRIES],
}

#[repr(C, align(4096))]
struct BlockPage(ControlBlock);

const _: () = assert!(size_of::<BlockPage>() == BLOCK_BYTES && size_of::<ControlFile>() == CONTROL_BYTES);

// SAFETY: the block and the table consist of atomics.
unsafe impl Shared for ControlFile {}

impl Control {
    /// Creates a device that is `factor` times slower than `profile`. Replaces an existing file at
    /// `path` by rename, so processes on the old device keep using that.
    pub fn create(path: &Path, profile: &Profile, factor: f64) -> Result<Control, ControlError> {
        let scaled = profile.slower(factor)?;
        let failed = |source| ControlError::Io { path: path.to_owned(), source };
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".new-{}", std::process::id()));
        let fresh = PathBuf::from(fresh);
        let made = (|| {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&fresh)?;
            file.set_len(CONTROL_BYTES as u64)?;
            let control = Control { mapping: Mapping::of(&file)?, path: path.to_owned() };
            control.set_profile(&scaled);
            let block = control.block();
            block.slow_milli.store(1000, Relaxed);
            block.write_behind_ns.store(WRITE_BEHIND_NS, Relaxed);
            block.version.store(VERSION, Relaxed);
            block.magic.store(MAGIC, Relaxed);
            fs::rename(&fresh, path)?;
            Ok(control)
        })();
        made.map_err(|error| {
            let _ = fs::remove_file(&fresh);
            failed(error)
        })
    }

    pub fn open(path: &Path) -> Result<Control, ControlError> {
        let failed = |source| ControlError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let mapping = Mapping::of(&file).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => ControlError::NotAControlBlock { path: path.to_owned() },
            _ => failed(error),
        })?;
        let control = Control { mapping, path: path.to_owned() };
        if control.block().magic.load(Relaxed) != MAGIC {
            return Err(ControlError::NotAControlBlock { path: path.to_owned() });
        }
        match control.block().version.load(Relaxed) {
            VERSION => Ok(control),
            found => Err(ControlError::Version { path: path.to_owned(), found }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the timing model. Its times are nanoseconds of CLOCK_MONOTONIC.
    pub fn block(&self) -> &ControlBlock {
        &self.mapping.page.0
    }

    /// Returns the cache of a hybrid, or `None` for any other device.
    pub fn cache(&self) -> Option<Cache<'_>> {
        Cache::of(self.block(), &self.mapping.table)
    }

    /// Returns the current profile, without the effect of [`set_slow`](Self::set_slow).
    pub fn profile(&self) -> Profile {
        let block = self.block();
        let mut name = Vec::with_capacity(NAME_WORDS * 8);
        block.name.iter().for_each(|word| name.extend_from_slice(&word.load(Relaxed).to_le_bytes()));
        name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
        Profile {
            name: String::from_utf8_lossy(&name).into_owned(),
            write_bytes_per_s: block.write_bytes_per_s.load(Relaxed),
            read_bytes_per_s: block.read_bytes_per_s.load(Relaxed),
            sync_latency: Duration::from_nanos(block.sync_ns.load(Relaxed)),
            read_latency: Duration::from_nanos(block.read_ns.load(Relaxed)),
            capacity_bytes: block.capacity(),
            cache: self.cache().map(|_| CacheProfile {
                bytes: block.cache_bytes.load(Relaxed),
                write_bytes_per_s: block.cache_write_bytes_per_s.load(Relaxed),
                read_bytes_per_s: block.cache_read_bytes_per_s.load(Relaxed),
                sync_latency: Duration::from_nanos(block.cache_sync_ns.load(Relaxed)),
                read_latency: Duration::from_nanos(block.cache_read_ns.load(Relaxed)),
            }),
            sharing: block.sharing() as f64 / ALL_SHARED as f64,
            array: block
                .stripes()
                .map(|stripes| ArrayProfile { devices: stripes.devices, chunk_bytes: stripes.chunk_bytes }),
            slc: match block.slc_bytes.load(Relaxed) {
                0 => None,
                bytes => {
                    Some(SlcProfile { bytes, write_bytes_per_s: block.slc_write_bytes_per_s.load(Relaxed) })
                }
            },
            noise: block.noise().unwrap_or_default(),
        }
    }

    /// Changes all parameters for operations that start from this call on. A change of the cache's
    /// size empties the cache.
    pub fn set_profile(&self, profile: &Profile) {
        let block = self.block();
        let mut name = [0u8; NAME_WORDS * 8];
        let kept = profile.name.len().min(name.len() - 1);
        name[..kept].copy_from_slice(&profile.name.as_bytes()[..kept]);
        for (word, bytes) in block.name.iter().zip(name.chunks_exact(8)) {
            word.store(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)), Relaxed);
        }
        block.write_bytes_per_s.store(profile.write_bytes_per_s.max(1), Relaxed);
        block.read_bytes_per_s.store(profile.read_bytes_per_s.max(1), Relaxed);
        block.sync_ns.store(nanos(profile.sync_latency), Relaxed);
        block.read_ns.store(nanos(profile.read_latency), Relaxed);
        let sharing = (profile.sharing.clamp(0.0, 1.0) * ALL_SHARED as f64).round() as u64;
        block.sharing_milli.store(sharing, Relaxed);
        let array = profile.array.as_ref().map_or((0, 0), |array| (array.devices, array.chunk_bytes));
        block.devices.store(array.0.min(DEVICES_MAX as u64), Relaxed);
        block.chunk_bytes.store(array.1, Relaxed);
        let slc = profile.slc.as_ref().map_or((0, 0), |slc| (slc.bytes, slc.write_bytes_per_s.max(1)));
        block.slc_write_bytes_per_s.store(slc.1, Relaxed);
        block.slc_bytes.store(slc.0, Relaxed);
        self.set_capacity(profile.capacity_bytes);
        self.set_cache(profile.cache.as_ref());
        block.set_noise(&profile.noise);
    }

    fn set_cache(&self, cache: Option<&CacheProfile>) {
        let block = self.block();
        let old = block.cache_bytes.load(Relaxed);
        let Some(cache) = cache else {
            block.cache_entries.store(0, Relaxed);
            block.cache_bytes.store(0, Relaxed);
            return;
        };
        block.cache_write_bytes_per_s.store(cache.write_bytes_per_s.max(1), Relaxed);
        block.cache_read_bytes_per_s.store(cache.read_bytes_per_s.max(1), Relaxed);
        block.cache_sync_ns.store(nanos(cache.sync_latency), Relaxed);
        block.cache_read_ns.store(nanos(cache.read_latency), Relaxed);
        if old != cache.bytes {
            let Geometry { block_bytes, entries } = Geometry::of(cache.bytes);
            block.cache_entries.store(0, Relaxed);
            self.mapping.table[..entries].iter().for_each(|entry| entry.store(0, Relaxed));
            block.dirty_blocks.store(0, Relaxed);
            block.cache_block_bytes.store(block_bytes, Relaxed);
            block.cache_bytes.store(cache.bytes, Relaxed);
            block.cache_entries.store(entries as u64, Relaxed);
        }
    }

    /// Makes the device `factor` times slower than its profile. 1 restores it.
    pub fn set_slow(&self, factor: f64) -> Result<(), ControlError> {
        let known = checked_factor(factor).filter(|factor| *factor >= 0.001);
        let factor = known.ok_or_else(|| ProfileError::BadFactor(factor.to_string()))?;
        self.block().slow_milli.store((factor * 1000.0).round() as u64, Relaxed);
        Ok(())
    }

    pub fn slow(&self) -> f64 {
        self.block().slow_milli.load(Relaxed) as f64 / 1000.0
    }

    pub fn set_capacity(&self, bytes: Option<u64>) {
        let block = self.block();
        block.capacity_bytes.store(bytes.unwrap_or(0), Relaxed);
        block.measured_at_ns.store(0, Relaxed);
        block.measure_at_bytes.store(0, Relaxed);
    }

    /// Makes the next `operations` of this kind fail, or all until cleared with
    /// [`EVERY`](crate::EVERY).
    pub fn set_fault(&self, fault: Fault, operations: u64) {
        self.block().fault(fault).store(operations, Relaxed);
    }

    /// Makes operations of these kinds not return until another call ends that. Those under way
    /// return.
    pub fn set_hang(&self, hang: Hang) {
        let kinds = match hang {
            Hang::Nothing => 0,
            Hang::Writes => HANGS_WRITES,
            Hang::Reads => HANGS_READS,
            Hang::Everything => HANGS_WRITES | HANGS_READS,
        };
        self.block().hangs.store(kinds, Relaxed);
    }

    /// Sets the offset of the wall clock of processes on this device from the machine's. 0 restores
    /// it.
    pub fn set_wall_offset(&self, nanos: i64) {
        self.block().wall_offset_ns.store(nanos as u64, Relaxed);
    }

    /// Sets the offset of CLOCK_BOOTTIME of processes on this device from the machine's. 0 restores
    /// it. Moving it back by the time for which a process was stopped simulates the pause of a
    /// virtual machine.
    pub fn set_boot_offset(&self, nanos: i64) {
        self.block().boot_offset_ns.store(nanos as u64, Relaxed);
    }

    pub fn clear_faults(&self) {
        for fault in [Fault::SyncEio, Fault::WriteEio, Fault::WriteNoSpace, Fault::ReadEio] {
            self.set_fault(fault, 0);
        }
    }

    pub fn stats(&self) -> Stats {
        let block = self.block();
        Stats {
            bytes_written: block.bytes_written.load(Relaxed),
            bytes_read: block.bytes_read.load(Relaxed),
            writes: block.writes.load(Relaxed),
            reads: block.reads.load(Relaxed),
            syncs: block.syncs.load(Relaxed),
            flushes: block.flushes.load(Relaxed),
            range_syncs: block.range_syncs.load(Relaxed),
            range_sync_bytes: block.range_sync_bytes.load(Relaxed),
            stalled_ns: block.stalled_ns.load(Relaxed),
            injected_faults: block.injected_faults.load(Relaxed),
            used_bytes: block.measured_used_bytes.load(Relaxed),
            bytes_hit: block.bytes_hit.load(Relaxed),
            bytes_missed: block.bytes_missed.load(Relaxed),
            bytes_destaged: block.bytes_destaged.load(Relaxed),
            bytes_dropped: block.bytes_dropped.load(Relaxed),
            dirty_bytes: self.cache().map_or(0, |cache| cache.dirty_bytes()),
        }
    }
}

fn nanos(latency: Duration) -> u64 {
    u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Extent;

    #[test]
    fn a_second_mapping_sees_every_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let profile: Profile = "plain-ssd,capacity=5GB".parse().unwrap();
        let made = Control::create(&path, &profile, 2.0).unwrap();
        let opened = Control::open(&path).unwrap();
        assert_eq!(opened.profile(), profile.slower(2.0).unwrap());
        assert_eq!(opened.slow(), 1.0);
        opened.set_slow(2.5).unwrap();
        assert_eq!(made.slow(), 2.5);
        made.set_profile(&Profile::named("nvm").unwrap());
        assert_eq!(opened.profile(), Profile::named("nvm").unwrap());
        assert!(opened.set_slow(0.0).is_err() && opened.set_slow(f64::NAN).is_err());
    }

    #[test]
    fn a_hybrid_keeps_its_cache_over_mappings_and_loses_it_with_another_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let profile: Profile = "hybrid,cache=1MB".parse().unwrap();
        let made = Control::create(&path, &profile, 2.0).unwrap();
        let extent = Extent { file: 7, begin: 0, bytes: 100_000 };
        made.cache().unwrap().write(0, extent);
        drop(made);
        let opened = Control::open(&path).unwrap();
        assert_eq!(opened.profile(), profile.slower(2.0).unwrap());
        let dirty = opened.stats().dirty_bytes;
        assert!((100_000..110_000).contains(&dirty), "{dirty}");
        opened.cache().unwrap().read(0, extent, true);
        assert_eq!((opened.stats().bytes_hit, opened.stats().bytes_missed), (100_000, 0));
        opened.set_profile(&"hybrid,cache=2MB".parse().unwrap());
        assert_eq!(opened.stats().dirty_bytes, 0);
        opened.cache().unwrap().read(0, extent, true);
        assert_eq!(opened.stats().bytes_missed, 100_000);
        opened.set_profile(&Profile::named("nvm").unwrap());
        assert!(opened.cache().is_none());
    }

    #[test]
    fn a_foreign_or_newer_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        assert!(matches!(Control::open(&path), Err(ControlError::Io { .. })));
        fs::write(&path, b"short").unwrap();
        assert!(matches!(Control::open(&path), Err(ControlError::NotAControlBlock { .. })));
        fs::write(&path, vec![7u8; CONTROL_BYTES]).unwrap();
        assert!(matches!(Control::open(&path), Err(ControlError::NotAControlBlock { .. })));
        let made = Control::create(&path, &Profile::named("nvm").unwrap(), 1.0).unwrap();
        made.block().version.store(VERSION + 1, Relaxed);
        assert!(matches!(Control::open(&path), Err(ControlError::Version { found: 6, .. })));
    }
}
