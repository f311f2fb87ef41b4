//! The work of this process on its device, as counted by the kernel: the bytes written by the
//! writing threads, and the time for which the log thread waited for the device.
//!
//! RocksDB reports written bytes only at the end of a whole flush or compaction, which may be many
//! seconds late. The kernel counts every call.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
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

/// The times of the log thread's calls to its device. Only the log thread writes them.
#[derive(Default)]
pub struct LogClock {
    /// The directory under `/proc` of the log thread, once the thread runs.
    thread: Mutex<Option<Result<PathBuf, io::ErrorKind>>>,
    busy_ns: AtomicU64,
    syncs: AtomicU64,
    /// The start of the present call; 0 if there is none.
    since_ns: AtomicU64,
    /// Bytes of the present call.
    bytes: AtomicU64,
    largest: Mutex<Largest>,
}

impl LogClock {
    /// Registers the calling thread as the log thread. The thread must call this first.
    pub fn begin_thread(&self) {
        // This link points to the calling thread.
        let thread = fs::read_link("/proc/thread-self").map(|thread| Path::new("/proc").join(thread));
        *self.thread.lock() = Some(thread.map_err(|error| error.kind()));
    }

    /// Measures the time of `call`, which writes `bytes` bytes, and counts a sync if it made one.
    pub fn during<T>(&self, bytes: u64, call: impl FnOnce() -> T, synced: impl FnOnce(&T) -> bool) -> T {
        let began = clock::boot_nanos();
        self.bytes.store(bytes, Ordering::Relaxed);
        self.since_ns.store(began, Ordering::Relaxed);
        let outcome = call();
        // With this order no reader counts the call twice.
        self.since_ns.store(0, Ordering::Relaxed);
        self.busy_ns.fetch_add(clock::boot_nanos().saturating_sub(began), Ordering::Relaxed);
        if synced(&outcome) {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        outcome
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

    /// Returns the time in calls so far, the present one included.
    pub fn busy(&self) -> Duration {
        let since = self.since_ns.load(Ordering::Relaxed);
        let pending = if since == 0 { 0 } else { clock::boot_nanos().saturating_sub(since) };
        Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed).saturating_add(pending))
    }

    /// Returns the time for which the thread ran or was ready to run; `None` if it has not begun.
    pub fn scheduled(&self) -> io::Result<Option<Duration>> {
        match &*self.thread.lock() {
            Some(Ok(thread)) => scheduled(thread).map(Some),
            Some(Err(error)) => Err((*error).into()),
            None => Ok(None),
        }
    }
}

/// Returns the same time for the calling thread.
pub fn scheduled_here() -> io::Result<Duration> {
    scheduled(Path::new("/proc/thread-self"))
}

/// Parses `schedstat`: nanoseconds on a CPU, nanoseconds waiting for one, time slices.
fn scheduled(thread: &Path) -> io::Result<Duration> {
    let text = fs::read_to_string(thread.join("schedstat"))?;
    let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(ran), Some(waited)) => Ok(Duration::from_nanos(ran.saturating_add(waited))),
        _ => Err(io::Error::other("schedstat is not as expected")),
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
    /// The first value of the process's own counter.
    process: Option<u64>,
}

impl Written {
    /// Returns the larger of two counts: the bytes that the writing threads handed over, and the
    /// bytes that the process made dirty. A file system in RAM shows only in the first count. A
    /// thread that started and ended between two calls shows only in the second.
    pub fn bytes(&mut self) -> io::Result<u64> {
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
        Ok(self.by_threads.max(process.saturating_sub(first)))
    }

    /// Returns the log thread's bytes at the last call of [`bytes`](Self::bytes).
    pub fn log_bytes(&self) -> u64 {
        self.by_log
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
        let mut written = Written::default();
        written.bytes().unwrap();
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
            let (before, log_before) = (written.bytes().unwrap(), written.log_bytes());
            go.send(()).unwrap();
            answer.recv().unwrap();
            assert!(written.bytes().unwrap() >= before + (1 << 20), "{name}");
            assert!(written.log_bytes() >= log_before + of_log, "{name}");
            drop(go);
            handle.join().unwrap();
            assert!(written.bytes().is_ok(), "an ended thread is not an error");
        }

        let (go, answer, handle) = thread("io");
        written.list().unwrap();
        assert!(!written.writers.keys().any(|thread| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim_end() == "io")
        }));
        drop((go, answer));
        handle.join().unwrap();
    }

    #[test]
    fn a_call_under_way_counts_and_sleep_is_not_work() {
        let clock = Arc::new(LogClock::default());
        assert_eq!(clock.scheduled().unwrap(), None, "no thread has registered as the log thread");
        let (begun, has_begun) = mpsc::channel();
        let (end, told_to_end) = mpsc::channel::<()>();
        let of_thread = clock.clone();
        let thread = std::thread::spawn(move || {
            of_thread.begin_thread();
            let wait = || {
                begun.send(()).unwrap();
                told_to_end.recv()
            };
            of_thread.during(0, wait, |_| true).unwrap();
            has_ended(&of_thread)
        });
        fn has_ended(clock: &LogClock) -> (Duration, Duration) {
            (clock.busy(), clock.scheduled().unwrap().unwrap())
        }
        has_begun.recv().unwrap();
        let first = clock.busy();
        while clock.busy() < first + Duration::from_millis(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(clock.syncs(), 0, "the call is not over");
        end.send(()).unwrap();
        let (busy, scheduled) = thread.join().unwrap();
        assert!(busy >= Duration::from_millis(20) && scheduled < busy, "{busy:?} {scheduled:?}");
        assert_eq!(clock.syncs(), 1);
        assert_eq!(clock.busy(), busy);
    }
}
