//! Measures the device under a directory: random 8 MiB writes, as ALOR's capability test (its §4.1).
//!
//! Our own test uses ordinary file calls, so an emulated store measures its emulation. Where `fio` is
//! installed and the device is real, fio measures; should it fail, our own test takes over.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::DEVICE_ENV;

const BLOCK: u64 = 8 << 20;
/// O_DIRECT wants buffers aligned to the device's logical block.
const ALIGN: usize = 4096;
const SYNCS: u32 = 32;

#[derive(Clone, Debug)]
pub struct Options {
    /// The test file's size; rounded up to a whole number of 8 MiB blocks.
    pub file_bytes: u64,
    pub jobs: usize,
    /// Writing stops at whichever comes first.
    pub time_max: Duration,
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
    /// The file system refused O_DIRECT: buffered writes, with their sync in the time.
    Buffered,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub write_bytes_per_s: f64,
    /// Mean of `fdatasync` after a 4 KiB write.
    pub sync_latency: Duration,
    pub method: Method,
    pub emulated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot measure the device under {dir}: {source}", dir = dir.display())]
    Io { dir: PathBuf, source: io::Error },
    #[error("nothing could be written within the bounds given")]
    NothingWritten,
}

/// Measures the device under `dir`. The file it writes is deleted in any case.
pub fn probe(dir: &Path, options: &Options) -> Result<Measured, ProbeError> {
    let path = dir.join(format!(".steelyard-probe-{}", std::process::id()));
    let _removed = Removed(&path);
    let failed = |source| ProbeError::Io { dir: dir.to_owned(), source };
    let emulated = std::env::var_os(DEVICE_ENV).is_some_and(|named| !named.is_empty());
    let sync_latency = sync_latency(&path).map_err(failed)?;
    if options.fio && !emulated {
        if let Some(write_bytes_per_s) = fio(&path, options) {
            return Ok(Measured { write_bytes_per_s, sync_latency, method: Method::Fio, emulated });
        }
    }
    let (write_bytes_per_s, method) = write_rate(&path, options).map_err(failed)?;
    if write_bytes_per_s <= 0.0 {
        return Err(ProbeError::NothingWritten);
    }
    Ok(Measured { write_bytes_per_s, sync_latency, method, emulated })
}

struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

fn sync_latency(path: &Path) -> io::Result<Duration> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let block = [0x5a; 4096];
    let mut total = Duration::ZERO;
    for index in 0..SYNCS {
        file.write_all_at(&block, u64::from(index) * 4096)?;
        let started = Instant::now();
        file.sync_data()?;
        total += started.elapsed();
    }
    Ok(total / SYNCS)
}

fn write_rate(path: &Path, options: &Options) -> io::Result<(f64, Method)> {
    let (file, method) = open_direct(path)?;
    let blocks = options.file_bytes.div_ceil(BLOCK).max(1);
    let written = AtomicU64::new(0);
    let started = Instant::now();
    let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
        let jobs = (0..options.jobs.max(1) as u64).map(|job| {
            let (file, written) = (&file, &written);
            scope.spawn(move || {
                let mut buffer = vec![0u8; BLOCK as usize + ALIGN];
                let skip = buffer.as_ptr().align_offset(ALIGN);
                let mut random = options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(job) | 1;
                // Incompressible, for devices that compress.
                buffer
                    .chunks_exact_mut(8)
                    .for_each(|word| word.copy_from_slice(&next(&mut random).to_le_bytes()));
                while started.elapsed() < options.time_max
                    && written.fetch_add(BLOCK, Relaxed).saturating_add(BLOCK) <= options.bytes_max
                {
                    let offset = next(&mut random) % blocks * BLOCK;
                    if let Err(error) = file.write_all_at(&buffer[skip..skip + BLOCK as usize], offset) {
                        written.fetch_sub(BLOCK, Relaxed);
                        return Err(error);
                    }
                }
                Ok(())
            })
        });
        let jobs: Vec<_> = jobs.collect();
        jobs.into_iter()
            .map(|job| job.join().unwrap_or_else(|_| Err(io::Error::other("a probe job died"))))
            .collect()
    });
    results.into_iter().collect::<io::Result<()>>()?;
    if method == Method::Buffered {
        file.sync_data()?;
    }
    let bytes = written.load(Relaxed).min(options.bytes_max / BLOCK * BLOCK);
    Ok((bytes as f64 / started.elapsed().as_secs_f64(), method))
}

fn open_direct(path: &Path) -> io::Result<(File, Method)> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).mode(0o600);
    match open.clone().custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, Method::Direct)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open.open(path)?, Method::Buffered)),
        Err(error) => Err(error),
    }
}

/// xorshift64*: the probe needs spread, not quality.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn fio(path: &Path, options: &Options) -> Option<f64> {
    let output = Command::new("fio")
        .args(["--name=probe", "--rw=randwrite", "--bs=8M", "--direct=1", "--ioengine=psync", "--thread"])
        .args(["--group_reporting", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={}", options.file_bytes.div_ceil(BLOCK).max(1) * BLOCK))
        .arg(format!("--numjobs={}", options.jobs.max(1)))
        .arg(format!("--runtime={}", options.time_max.as_secs().max(1)))
        .arg(format!("--io_size={}", (options.bytes_max / options.jobs.max(1) as u64).max(BLOCK)))
        .arg(format!("--randseed={}", options.seed))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    fio_rate(&output.stdout)
}

fn fio_rate(json: &[u8]) -> Option<f64> {
    // fio prints notes before the JSON when it has something to say.
    let start = json.iter().position(|&byte| byte == b'{')?;
    let report: serde_json::Value = serde_json::from_slice(&json[start..]).ok()?;
    let rate = report["jobs"][0]["write"]["bw_bytes"].as_f64()?;
    (rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_test_measures_within_its_bounds_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            file_bytes: BLOCK,
            jobs: 2,
            time_max: Duration::from_secs(60),
            bytes_max: 4 * BLOCK,
            fio: false,
            ..Options::default()
        };
        let measured = probe(dir.path(), &options).unwrap();
        assert!(measured.write_bytes_per_s > 0.0 && measured.method != Method::Fio);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let error = probe(Path::new("/nonexistent/data"), &Options::default()).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/data"));
    }

    #[test]
    fn fio_reports_are_read_and_anything_else_is_not() {
        let report = br#"fio: note {"jobs":[{"write":{"bw_bytes":1500000}}]}"#;
        assert_eq!(fio_rate(report), Some(1.5e6));
        assert_eq!(fio_rate(br#"{"jobs":[]}"#), None);
        assert_eq!(fio_rate(b"fio: engine not found"), None);
    }
}
