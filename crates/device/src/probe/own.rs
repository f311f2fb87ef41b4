//! The probe's own test of a device, by ordinary file calls.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::fs::{fadvise, Advice};
use types::Draw;

use super::{BLOCK, PAGE};

/// Minimum bytes of the pieces in which a block is written. The pieces grow while one takes less
/// than a 32nd of the available time. So a fast device writes whole blocks, and on a slow one no
/// large write is in flight when the time is up.
const PIECE_MIN: u64 = 1 << 20;
const PIECES_IN_TIME: u32 = 32;
const SYNCS_MAX: u32 = 32;
const READS_MAX: u32 = 512;
/// Minimum number of samples, however slow the device is.
const SAMPLES_MIN: u32 = 3;

/// Limits of the writes. The first one reached ends them.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub time: Duration,
    pub bytes: u64,
}

pub struct Test {
    file: File,
    direct: bool,
    blocks: u64,
    seed: u64,
    /// Incompressible data, for devices that compress. Each job's block starts at another page.
    pool: Pages,
}

pub struct Written {
    pub bytes: u64,
    pub time: Duration,
    /// The offset and the length in bytes of each written piece.
    pub extents: Vec<(u64, u64)>,
}

impl Written {
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// A buffer at an address that O_DIRECT accepts.
struct Pages {
    bytes: Vec<u8>,
    skip: usize,
}

impl Pages {
    fn new(length: usize) -> Pages {
        let bytes = vec![0u8; length + PAGE];
        let skip = bytes.as_ptr().align_offset(PAGE);
        Pages { bytes, skip }
    }

    fn all(&self) -> &[u8] {
        &self.bytes[self.skip..self.bytes.len() - PAGE + self.skip]
    }

    fn all_mut(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - PAGE + self.skip;
        &mut self.bytes[self.skip..end]
    }
}

/// The uses of random numbers. Each has its own sequence, and so has each job of the writes.
const POOL: u64 = 0;
const SYNCS: u64 = 1;
const READS: u64 = 2;
const FIRST_JOB: u64 = 3;

/// Returns the random numbers of one use.
fn draw(seed: u64, of: u64) -> Draw {
    Draw::new(Draw::new(seed).number().wrapping_add(of))
}

/// Number of jobs with different data. Further jobs repeat it.
const POOL_JOBS: usize = 64;

impl Test {
    pub fn open(path: &Path, blocks: u64, seed: u64) -> io::Result<Test> {
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).mode(0o600);
        let (file, direct) = match open.clone().custom_flags(libc::O_DIRECT).open(path) {
            Ok(file) => (file, true),
            // Every write waits for the device. A page cache would accept the writes at once, which
            // tells nothing, and would take an unbounded time to drain.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (open.custom_flags(libc::O_DSYNC).open(path)?, false)
            }
            Err(error) => return Err(error),
        };
        // SAFETY: a system call without pointers, on an open descriptor. If the file system does
        // not support preallocation, blocks are allocated during the writes, which costs some
        // precision.
        unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, (blocks * BLOCK) as libc::off_t) };
        let _ = fadvise(&file, 0, None, Advice::Random);
        let mut pool = Pages::new(BLOCK as usize + POOL_JOBS * PAGE);
        let mut random = draw(seed, POOL);
        for word in pool.all_mut().chunks_exact_mut(8) {
            word.copy_from_slice(&random.number().to_le_bytes());
        }
        Ok(Test { file, direct, blocks, seed, pool })
    }

    pub fn direct(&self) -> bool {
        self.direct
    }

    /// Writes random blocks from `jobs` threads. Writes in flight when the time is up count, with
    /// the time they take.
    pub fn write(&self, jobs: usize, bounds: Bounds) -> io::Result<Written> {
        let claimed = AtomicU64::new(0);
        let together = Barrier::new(jobs);
        let results: Vec<io::Result<Job>> = std::thread::scope(|scope| {
            let start = |number| {
                let (claimed, together) = (&claimed, &together);
                scope.spawn(move || {
                    together.wait();
                    self.job(number, claimed, bounds)
                })
            };
            let jobs: Vec<_> = (0..jobs).map(start).collect();
            let died = |_| Err(io::Error::other("a probe job died"));
            jobs.into_iter().map(|job| job.join().unwrap_or_else(died)).collect()
        });
        let jobs = results.into_iter().collect::<io::Result<Vec<_>>>()?;
        let extents: Vec<(u64, u64)> = jobs.iter().flat_map(|job| job.extents.iter().copied()).collect();
        let began = jobs.iter().map(|job| job.began).min();
        let ended = jobs.iter().map(|job| job.ended).max();
        let time = began.zip(ended).map(|(began, ended)| ended.saturating_duration_since(began));
        Ok(Written {
            bytes: extents.iter().map(|(_, length)| length).sum(),
            time: time.unwrap_or_default(),
            extents,
        })
    }

    fn job(&self, number: usize, claimed: &AtomicU64, bounds: Bounds) -> io::Result<Job> {
        let began = Instant::now();
        let mut job = Job { began, ended: began, extents: Vec::new() };
        let mut random = draw(self.seed, FIRST_JOB + number as u64);
        let skip = number % POOL_JOBS * PAGE;
        let content = &self.pool.all()[skip..skip + BLOCK as usize];
        let mut piece = PIECE_MIN;
        loop {
            let block = random.below(self.blocks) * BLOCK;
            let mut at = 0;
            while at < BLOCK {
                let length = piece.min(BLOCK - at);
                let before = claimed.fetch_add(length, Relaxed);
                if began.elapsed() >= bounds.time || before.saturating_add(length) > bounds.bytes {
                    return Ok(job);
                }
                let sent = Instant::now();
                self.file.write_all_at(&content[at as usize..(at + length) as usize], block + at)?;
                job.ended = Instant::now();
                job.extents.push((block + at, length));
                at += length;
                match job.ended - sent < bounds.time / PIECES_IN_TIME {
                    true => piece = (piece * 2).min(BLOCK),
                    false => piece = (piece / 2).max(PIECE_MIN),
                }
            }
        }
    }

    /// Measures syncs of 4 KiB overwrites, as the log performs them in reused files.
    pub fn sync_latency(&self, extents: &[(u64, u64)], time: Duration) -> io::Result<Duration> {
        // This sync covers the earlier writes and is not measured.
        self.file.sync_data()?;
        let mut random = draw(self.seed, SYNCS);
        mean(SYNCS_MAX, time, || {
            self.file.write_all_at(&self.pool.all()[..PAGE], page(extents, &mut random))?;
            let started = Instant::now();
            self.file.sync_data()?;
            Ok(started.elapsed())
        })
    }

    pub fn read_latency(&self, extents: &[(u64, u64)], time: Duration) -> io::Result<Duration> {
        // If the writes went through the page cache, the reads must not find their data there.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        let mut buffer = Pages::new(PAGE);
        let mut random = draw(self.seed, READS);
        mean(READS_MAX, time, || {
            let at = page(extents, &mut random);
            let started = Instant::now();
            self.file.read_exact_at(buffer.all_mut(), at)?;
            Ok(started.elapsed())
        })
    }
}

struct Job {
    began: Instant,
    ended: Instant,
    extents: Vec<(u64, u64)>,
}

/// Returns the offset of a random page of the written data.
fn page(extents: &[(u64, u64)], random: &mut Draw) -> u64 {
    let (offset, length) = extents[random.below(extents.len() as u64) as usize];
    offset + random.below(length / PAGE as u64) * PAGE as u64
}

fn mean(most: u32, time: Duration, mut sample: impl FnMut() -> io::Result<Duration>) -> io::Result<Duration> {
    let started = Instant::now();
    let (mut total, mut count) = (Duration::ZERO, 0);
    while count < SAMPLES_MIN || (count < most && started.elapsed() < time) {
        total += sample()?;
        count += 1;
    }
    Ok(total / count)
}
