//! Measures the device under a directory: random 8 MiB direct writes, after ALOR's test of a node (§3.2, §4.3),
//! then syncs and random 4 KiB reads of what was written.
//!
//! Our own test uses ordinary file calls, so an emulated store measures its emulation. Where `fio` is
//! installed and the device is real, fio makes the writes; should it fail, our own test takes over.
//!
//! A probe ends in about the time it was given, on the slowest device too, and leaves nothing behind: its file
//! is deleted in any case, and what a killed process left is deleted by the next probe.

mod fio;
mod own;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Profile, DEVICE_ENV};
use own::{Bounds, Test};

const BLOCK: u64 = 8 << 20;
/// What is read at once, and aligned for O_DIRECT.
const PAGE: usize = 4096;
const FILE_PREFIX: &str = ".steelyard-probe-";
/// Of the time given: writes, syncs, reads.
const SHARES: [f64; 3] = [0.7, 0.2, 0.1];
/// The test file takes at most this part of what is free.
const ROOM_SHARE: u64 = 4;
/// After fio, so that there is something of ours to sync and read: it does not say what it wrote.
const AFTER_FIO: Bounds = Bounds { time: Duration::from_millis(300), bytes: 32 << 20 };

#[derive(Clone, Debug)]
pub struct Options {
    /// The test file's size; rounded up to a whole number of 8 MiB blocks, and cut to a quarter of what is
    /// free.
    pub file_bytes: u64,
    pub jobs: usize,
    /// For all of the probe. Exceeded by what is under way then: a write of 1 MiB for each job.
    pub time_max: Duration,
    /// Writing stops at whichever comes first.
    pub bytes_max: u64,
    /// Chooses the offsets.
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
    /// The file system refused O_DIRECT: synchronous buffered writes, a sync's time in each.
    Buffered,
    /// Not measured: a profile's own numbers.
    Stated,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub write_bytes_per_s: f64,
    /// Mean of `fdatasync` after a 4 KiB overwrite.
    pub sync_latency: Duration,
    /// Mean of random 4 KiB reads, one at a time.
    pub read_latency: Duration,
    pub method: Method,
    pub emulated: bool,
}

impl Measured {
    /// What a probe would see of a device that is as its profile says.
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
    #[error("cannot measure the device under {dir}: its test file takes 8 MiB or more and at most a quarter of what is free, {free_bytes} bytes are", dir = dir.display())]
    NoRoom { dir: PathBuf, free_bytes: u64 },
    #[error("nothing could be written within the bounds given")]
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
    let free_bytes = own::free_bytes(dir).map_err(|source| ProbeError::Io { dir: dir.to_owned(), source })?;
    match free_bytes / ROOM_SHARE / BLOCK {
        0 => Err(ProbeError::NoRoom { dir: dir.to_owned(), free_bytes }),
        room => Ok(options.file_bytes.div_ceil(BLOCK).clamp(1, room)),
    }
}

/// Test files of processes that are no more.
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

/// xorshift64*: the probe needs spread, not quality.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
