//! The work of this process on its device, as counted by the kernel: the bytes written by the
//! writing threads, and the time for which writes of the log waited for the device.
//!
//! RocksDB reports written bytes only at the end of a whole flush or compaction, which may be many
//! seconds late. The kernel counts every call.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use node::hang::Pending;
use parking_lot::Mutex;
use types::BootNanos;

use crate::clock;

/// Name prefixes of the threads that write to the data directory and nowhere else.
const WRITERS: [&str; 6] = [LOG, "lifecycle", "flusher", "snap-make", "snap-receive", "rocksdb"];

const LOG: &str = "log";

/// The largest recently written entry. Its rows are flushed and compacted some time later. The
/// device writes the whole entry each time, and other operations wait for that.
#[derive(Default)]
struct Largest {
    bytes: u64,
    at: BootNanos,
}

/// Time in nanoseconds for which the largest entry is remembered.
const LARGEST_KEPT_NANOS: u64 = 600_000_000_000;

/// The time that the calling thread has spent on a CPU or ready for one.
///
/// The kernel's `schedstat` has both times, but its time on a CPU is that of the last switch
/// between threads. So only the time for which the thread was ready is read there.
#[derive(Default)]
pub struct Schedule(OnceCell<File>);

impl Schedule {
    /// Returns the time of the calling thread. Each thread needs its own `Schedule`.
    pub fn read(&self) -> io::Result<Duration> {
        let file = match self.0.get() {
            Some(file) => file,
            None => {
                let file = File::open("/proc/thread-self/schedstat")?;
                self.0.get_or_init(|| file)
            }
        };
        let mut text = [0; 96];
        let read = file.read_at(&mut text, 0)?;
        let ready = parse_ready(&text[..read]);
        let ready = ready.ok_or_else(|| io::Error::other("schedstat is not as expected"))?;
        Ok(ready + clock::thread_cpu_time())
    }
}

/// Parses `schedstat`: nanoseconds on a CPU, nanoseconds ready for one, time slices. Returns the
/// second number.
fn parse_ready(text: &[u8]) -> Option<Duration> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    Some(Duration::from_nanos(numbers.nth(1)?.parse().ok()?))
}

/// The times of the calls that write the log. Only one thread at a time makes such calls: the log
/// thread, or the loop that owns the groups.
#[derive(Default)]
pub struct LogClock {
    blocked_ns: AtomicU64,
    /// True if the schedule of the calling thread could not be read at the last call.
    is_blind: AtomicBool,
    syncs: AtomicU64,
    /// The start of the present call; 0 if there is none.
    since_ns: AtomicU64,
    /// Bytes of the present call.
    bytes: AtomicU64,
    /// Bytes that the loop has written.
    loop_bytes: AtomicU64,
    largest: Mutex<Largest>,
}

impl LogClock {
    /// Measures the time for which `call`, which writes `bytes` bytes, waits for the device, and
    /// counts a sync if it made one. `schedule` is that of the calling thread.
    pub fn during<T>(
        &self,
        schedule: &Schedule,
        bytes: u64,
        call: impl FnOnce() -> T,
        synced: impl FnOnce(&T) -> bool,
    ) -> T {
        let began = clock::boot_nanos();
        let worked_before = schedule.read();
        self.bytes.store(bytes, Ordering::Relaxed);
        self.since_ns.store(began, Ordering::Relaxed);
        let outcome = call();
        let took = clock::boot_nanos().saturating_sub(began);
        let worked = worked_before.and_then(|before| Ok(schedule.read()?.saturating_sub(before)));
        self.is_blind.store(worked.is_err(), Ordering::Relaxed);
        let worked = worked.map_or(0, |worked| worked.as_nanos() as u64);
        self.since_ns.store(0, Ordering::Relaxed);
        // A reader that knows of these nanoseconds also knows that the call is over.
        self.blocked_ns.fetch_add(took.saturating_sub(worked), Ordering::Release);
        if synced(&outcome) {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Records bytes that the loop has written to the log.
    pub fn note_loop_bytes(&self, bytes: u64) {
        self.loop_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn loop_bytes(&self) -> u64 {
        self.loop_bytes.load(Ordering::Relaxed)
    }

    /// Returns the present call, if there is one.
    pub fn pending(&self) -> Option<Pending> {
        let began = self.since_ns.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed).saturating_add(self.largest_lately());
        (began > 0).then_some(Pending { began, bytes })
    }

    /// Records the size of an entry in bytes.
    pub fn note_entry(&self, bytes: u64) {
        let now = clock::boot_nanos();
        let mut largest = self.largest.lock();
        if bytes >= largest.bytes || now.saturating_sub(largest.at) > LARGEST_KEPT_NANOS {
            *largest = Largest { bytes, at: now };
        }
    }

    /// Returns the size of the largest entry of the last ten minutes, in bytes.
    pub fn largest_lately(&self) -> u64 {
        let largest = self.largest.lock();
        let is_old = clock::boot_nanos().saturating_sub(largest.at) > LARGEST_KEPT_NANOS;
        if is_old {
            0
        } else {
            largest.bytes
        }
    }

    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns the time for which calls have waited for the device, the whole present one included.
    /// A later result may be smaller, because the end of a call shows how long it worked.
    pub fn blocked(&self) -> io::Result<Duration> {
        if self.is_blind.load(Ordering::Relaxed) {
            return Err(io::Error::other("the schedule of a thread cannot be read"));
        }
        let blocked = self.blocked_ns.load(Ordering::Acquire);
        let since = self.since_ns.load(Ordering::Relaxed);
        let pending = if since == 0 { 0 } else { clock::boot_nanos().saturating_sub(since) };
        Ok(Duration::from_nanos(blocked.saturating_add(pending)))
    }
}

struct Writer {
    bytes: u64,
    is_log: bool,
}

/// Bytes written to the device so far.
#[derive(Default)]
pub struct Written {
    writers: BTreeMap<PathBuf, Writer>,
    /// Threads that write elsewhere. The value is false for a thread that was seen only once,
    /// because a thread gets its name only after it starts.
    others: BTreeMap<PathBuf, bool>,
    /// Bytes of all writing threads, ended ones included.
    by_threads: u64,
    /// Bytes of the log thread, a part of `by_threads`.
    by_log: u64,
    /// Bytes that the loop has written to the log, and those before the first look.
    by_loop: u64,
    by_loop_before: Option<u64>,
    /// The first value of the process's own counter.
    process: Option<u64>,
}

impl Written {
    /// Returns the larger of two counts: the bytes that the writing threads handed over, with those
    /// that the loop has written to the log, and the bytes that the process made dirty. A file
    /// system in RAM shows only in the first count. A thread that started and ended between two
    /// calls shows only in the second.
    pub fn bytes(&mut self, log: &LogClock) -> io::Result<u64> {
        self.list()?;
        for (thread, writer) in &mut self.writers {
            // The thread may have ended since.
            if let Ok(now) = counter(&thread.join("io"), "wchar") {
                let written = now.saturating_sub(writer.bytes);
                self.by_threads += written;
                self.by_log += if writer.is_log { written } else { 0 };
                writer.bytes = now;
            }
        }
        let process = counter(Path::new("/proc/self/io"), "write_bytes")?;
        let first = *self.process.get_or_insert(process);
        let by_loop = log.loop_bytes();
        self.by_loop = by_loop - *self.by_loop_before.get_or_insert(by_loop);
        Ok((self.by_threads + self.by_loop).max(process.saturating_sub(first)))
    }

    /// Returns the bytes of the log at the last call of [`bytes`](Self::bytes).
    pub fn log_bytes(&self) -> u64 {
        self.by_log + self.by_loop
    }

    fn list(&mut self) -> io::Result<()> {
        let mut writers = std::mem::take(&mut self.writers);
        let mut others = std::mem::take(&mut self.others);
        for thread in fs::read_dir("/proc/self/task")? {
            let thread = thread?.path();
            let other = others.remove(&thread);
            let writer = match other {
                Some(true) => None,
                _ => writers.remove(&thread).or_else(|| Writer::of(&thread)),
            };
            match writer {
                Some(writer) => drop(self.writers.insert(thread, writer)),
                None => drop(self.others.insert(thread, other.is_some())),
            }
        }
        Ok(())
    }
}

impl Writer {
    /// Returns `None` if the thread writes elsewhere or has ended.
    fn of(thread: &Path) -> Option<Writer> {
        let name = fs::read_to_string(thread.join("comm")).ok()?;
        let name = name.trim_end();
        if !WRITERS.iter().any(|writer| name.starts_with(writer)) {
            return None;
        }
        // Bytes that the thread wrote before it was first seen belong to no window.
        let bytes = counter(&thread.join("io"), "wchar").ok()?;
        Some(Writer { bytes, is_log: name == LOG })
    }
}

fn counter(file: &Path, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("{} has no {name}", file.display())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn bytes_of_writing_threads_count_and_those_of_others_do_not() {
        let (mut written, log) = (Written::default(), LogClock::default());
        written.bytes(&log).unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Each thread writes on request, and reports that.
        let thread = |name: &str| {
            let (go, told) = mpsc::channel::<()>();
            let (done, answer) = mpsc::channel();
            let mut file = fs::File::create(dir.path().join(name)).unwrap();
            let body = move || {
                // The thread has its name now.
                done.send(()).unwrap();
                while told.recv().is_ok() {
                    file.write_all(&[7; 1 << 20]).unwrap();
                    done.send(()).unwrap();
                }
            };
            let handle = std::thread::Builder::new().name(name.into()).spawn(body).unwrap();
            answer.recv().unwrap();
            (go, answer, handle)
        };
        // Other tests of this process may have writing threads, which only add bytes.
        for (name, of_log) in [("rocksdb:low7", 0), ("log", 1 << 20)] {
            let (go, answer, handle) = thread(name);
            let (before, log_before) = (written.bytes(&log).unwrap(), written.log_bytes());
            go.send(()).unwrap();
            answer.recv().unwrap();
            assert!(written.bytes(&log).unwrap() >= before + (1 << 20), "{name}");
            assert!(written.log_bytes() >= log_before + of_log, "{name}");
            drop(go);
            handle.join().unwrap();
            assert!(written.bytes(&log).is_ok(), "an ended thread is not an error");
        }
        log.note_loop_bytes(1 << 40);
        assert!(written.bytes(&log).unwrap() >= 1 << 40 && written.log_bytes() >= 1 << 40);
        // What was written before the first look does not count.
        let mut later = Written::default();
        assert!(later.bytes(&log).unwrap() < 1 << 39);

        let (go, answer, handle) = thread("io");
        written.list().unwrap();
        assert!(!written.writers.keys().any(|thread| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim_end() == "io")
        }));
        drop((go, answer));
        handle.join().unwrap();
    }

    #[test]
    fn a_call_under_way_counts_and_work_is_no_wait() {
        let clock = Arc::new(LogClock::default());
        let (begun, has_begun) = mpsc::channel();
        let (end, told_to_end) = mpsc::channel::<()>();
        let of_thread = clock.clone();
        let thread = std::thread::spawn(move || {
            let schedule = Schedule::default();
            // The kernel does not know of this work until the thread waits.
            let before = schedule.read().unwrap();
            while schedule.read().unwrap() < before + Duration::from_millis(2) {}
            let wait = || {
                begun.send(()).unwrap();
                told_to_end.recv()
            };
            of_thread.during(&schedule, 0, wait, |_| true).unwrap();
            let waited = of_thread.blocked().unwrap();
            let before = schedule.read().unwrap();
            let work = || while schedule.read().unwrap() < before + Duration::from_millis(20) {};
            of_thread.during(&schedule, 0, work, |()| false);
            (waited, of_thread.blocked().unwrap())
        });
        has_begun.recv().unwrap();
        let first = clock.blocked().unwrap();
        while clock.blocked().unwrap() < first + Duration::from_millis(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(clock.syncs(), 0, "the call is not over");
        end.send(()).unwrap();
        let (waited, after_work) = thread.join().unwrap();
        assert!(waited >= Duration::from_millis(18), "{waited:?}");
        assert!(after_work < waited + Duration::from_millis(10), "{waited:?} {after_work:?}");
        assert_eq!(clock.syncs(), 1);
    }

    #[test]
    fn without_the_schedule_of_a_thread_the_time_is_unknown() {
        let clock = LogClock::default();
        assert!(clock.blocked().is_ok());
        let unreadable = Schedule(OnceCell::from(tempfile::tempfile().unwrap()));
        clock.during(&unreadable, 0, || (), |()| true);
        assert!(clock.blocked().is_err());
        clock.during(&Schedule::default(), 0, || (), |()| true);
        assert!(clock.blocked().is_ok());
        assert_eq!(parse_ready(b"5 7 1\n"), Some(Duration::from_nanos(7)));
        assert_eq!(parse_ready(b"5"), None);
        assert_eq!(parse_ready(b"0 x 1"), None);
    }
}
