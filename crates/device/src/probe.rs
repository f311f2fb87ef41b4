//! The probe: measures the device under a directory by random 8 MiB direct writes, after ALOR's
//! test of a node (§3.2, §4.3), then by syncs and by random 4 KiB reads of the written data.
//!
//! The probe's own test uses ordinary file calls, so on an emulated device it measures the
//! emulation. If `fio` is installed and the device is real, fio performs the writes. If fio fails,
//! the own test replaces it.
//!
//! A probe ends in about the time it was given, also on a slow device, and leaves nothing behind.
//! It always deletes its file, and it deletes files that killed probes left.

mod fio;
mod own;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{free_bytes, Profile, DEVICE_ENV};
use own::{Bounds, Test};

const BLOCK: u64 = 8 << 20;
/// Bytes of one read, and the alignment that O_DIRECT needs.
const PAGE: usize = 4096;
const FILE_PREFIX: &str = ".steelyard-probe-";
/// Shares of the available time for writes, syncs and reads.
const SHARES: [f64; 3] = [0.7, 0.2, 0.1];
/// The test file takes at most the free space divided by this number.
const ROOM_SHARE: u64 = 4;
/// Bounds of the own writes after fio, which supply known extents to sync and read.
const AFTER_FIO: Bounds = Bounds { time: Duration::from_millis(300), bytes: 32 << 20 };

#[derive(Clone, Debug)]
pub struct Options {
    /// The size of the test file, rounded up to whole 8 MiB blocks and cut to a quarter of the free
    /// space.
    pub file_bytes: u64,
    pub jobs: usize,
    /// The time limit of the whole probe. Writes in flight at the limit may exceed it, by 1 MiB for
    /// each job on a slow device.
    pub time_max: Duration,
    /// Maximum number of bytes written, if the time limit is not reached first.
    pub bytes_max: u64,
    /// The seed of the random offsets.
    pub seed: u64,
    pub fio: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            file_bytes: 256 << 20,
            jobs: 4,
            time_max: Duration::from_secs(5),
            bytes_max: 4 << 30,
            seed: 1,
            fio: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    Fio,
    Direct,
    /// Synchronous buffered writes, because the file system refused O_DIRECT. Each write includes a
    /// sync.
    Buffered,
    /// Not measured: the numbers of a profile.
    Stated,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub write_bytes_per_s: f64,
    /// The mean time of an `fdatasync` after a 4 KiB overwrite.
    pub sync_latency: Duration,
    /// The mean time of random 4 KiB reads, one at a time.
    pub read_latency: Duration,
    pub method: Method,
    pub emulated: bool,
}

impl Measured {
    /// Returns the result that a probe has on a device that matches its profile.
    pub fn stated(profile: &Profile) -> Measured {
        let profile = profile.as_tested(Options::default().file_bytes);
        let transfer = Duration::from_secs_f64(PAGE as f64 / profile.read_bytes_per_s.max(1) as f64);
        Measured {
            write_bytes_per_s: profile.write_bytes_per_s as f64,
            sync_latency: profile.sync_latency,
            read_latency: profile.read_latency.saturating_add(transfer),
            method: Method::Stated,
            emulated: true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot measure the device under {dir}: {source}", dir = dir.display())]
    Io { dir: PathBuf, source: io::Error },
    #[error("cannot measure the device under {dir}: its test file needs at least 8 MiB and may take at most a quarter of the free space, which is {free_bytes} bytes", dir = dir.display())]
    NoRoom { dir: PathBuf, free_bytes: u64 },
    #[error("no write was completed within the limits given")]
    NothingWritten,
}

/// Measures the device under `dir`.
pub fn probe(dir: &Path, options: &Options) -> Result<Measured, ProbeError> {
    let failed = |source| ProbeError::Io { dir: dir.to_owned(), source };
    remove_leftovers(dir).map_err(failed)?;
    let blocks = file_blocks(dir, options)?;
    let path = dir.join(format!("{FILE_PREFIX}{}", std::process::id()));
    let _removed = Removed(&path);
    let emulated = std::env::var_os(DEVICE_ENV).is_some_and(|named| !named.is_empty());
    let [writes, syncs, reads] = SHARES.map(|share| options.time_max.mul_f64(share));
    let bounds = Bounds { time: writes, bytes: options.bytes_max };

    let by_fio = match options.fio && !emulated {
        true => fio::write_rate(&path, blocks * BLOCK, options, bounds.time),
        false => None,
    };
    let test = Test::open(&path, blocks, options.seed).map_err(failed)?;
    let bounds = if by_fio.is_some() { AFTER_FIO } else { bounds };
    let written = test.write(options.jobs.max(1), bounds).map_err(failed)?;
    let (write_bytes_per_s, method) = match by_fio {
        Some(rate) => (rate, Method::Fio),
        None => (written.bytes_per_s(), if test.direct() { Method::Direct } else { Method::Buffered }),
    };
    if write_bytes_per_s <= 0.0 || written.extents.is_empty() {
        return Err(ProbeError::NothingWritten);
    }
    let sync_latency = test.sync_latency(&written.extents, syncs).map_err(failed)?;
    let read_latency = test.read_latency(&written.extents, reads).map_err(failed)?;
    Ok(Measured { write_bytes_per_s, sync_latency, read_latency, method, emulated })
}

fn file_blocks(dir: &Path, options: &Options) -> Result<u64, ProbeError> {
    let free_bytes = free_bytes(dir).map_err(|source| ProbeError::Io { dir: dir.to_owned(), source })?;
    match free_bytes / ROOM_SHARE / BLOCK {
        0 => Err(ProbeError::NoRoom { dir: dir.to_owned(), free_bytes }),
        room => Ok(options.file_bytes.div_ceil(BLOCK).clamp(1, room)),
    }
}

/// Deletes the test files of processes that no longer exist.
fn remove_leftovers(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FILE_PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}
