//! Parallel reads of rows. A device overlaps the latencies only of reads by different threads.
//!
//! A caller that needs several rows begins to read them itself. The pool's threads are woken only
//! when a read takes as long as a device does. They take rows from the same list. Until then they
//! cost nothing, and before the first slow read they do not exist. Rows in memtables or the block
//! cache, and rows excluded by a filter, are read faster than a thread can be woken.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use rocks::Keyspace;

/// Number of reader threads. A SATA device accepts 32 requests at a time, and clients' own misses
/// also need some.
const THREADS: usize = 16;

/// Duration from which a read counts as slow, because it waited for a device. A read takes a few
/// microseconds from RAM and somewhat more from the page cache. Waking a thread takes about ten.
const SLOW: Duration = Duration::from_micros(50);

/// A row's value; `None` if there is no such row.
pub type Found = Option<Bytes>;

pub struct Readers {
    keyspace: Arc<Keyspace>,
    threads: OnceLock<Threads>,
    slow_from: Duration,
    /// True if the last list had a slow read. The readers of the next list are then woken at once.
    slow: AtomicBool,
}

/// The rows of one list that were read.
pub struct Read {
    /// The rows, in any order, without those whose read failed.
    pub rows: Vec<(Bytes, Found)>,
    /// Number of rows that were read, counted from the first; lower than requested if values are
    /// large.
    pub taken: usize,
    /// Number of reads that waited for the device.
    pub slow: usize,
}

impl Readers {
    pub fn new(rows: Arc<Keyspace>) -> Readers {
        Readers::with(rows, SLOW)
    }

    /// Creates readers with another limit for slow reads.
    pub fn with(rows: Arc<Keyspace>, slow_from: Duration) -> Readers {
        Readers { keyspace: rows, threads: OnceLock::new(), slow_from, slow: AtomicBool::new(false) }
    }

    /// Returns true if a read that began at `began`, and has just ended, waited for the device.
    pub fn is_slow(&self, began: Instant) -> bool {
        began.elapsed() >= self.slow_from
    }

    /// Reads rows through the RAM tier, until all are read or their values exceed `bytes_max`
    /// bytes. Returns when the last read has ended.
    pub fn read(&self, rows: Vec<Bytes>, bytes_max: usize) -> Read {
        let list = Arc::new(List { rows, bytes_max, slow_from: self.slow_from, ..List::default() });
        let (sender, parts) = crossbeam_channel::unbounded();
        let mut called = false;
        let mut call = || {
            let left = list.left();
            if !called && left > 0 {
                called = true;
                self.threads().call(left, &list, &sender);
            }
        };
        if self.slow.load(Ordering::Relaxed) && list.rows.len() > 1 {
            call();
        }
        let Part { taken: mut read, mut found } = list.read(&self.keyspace, call);
        drop(sender);
        let taken = list.close();
        while read < taken {
            // The channel is closed early only if a reader died. The commands that need its rows
            // then read them.
            let Ok(part) = parts.recv() else { break };
            read += part.taken;
            found.extend(part.found);
        }
        let slow = list.slow.load(Ordering::Relaxed);
        self.slow.store(slow > 0, Ordering::Relaxed);
        let rows = found.into_iter().map(|(at, value)| (list.rows[at].clone(), value)).collect();
        Read { rows, taken, slow }
    }

    fn threads(&self) -> &Threads {
        self.threads.get_or_init(|| Threads::start(&self.keyspace))
    }
}

/// A list of rows. Free threads take them one by one.
#[derive(Default)]
struct List {
    rows: Vec<Bytes>,
    next: AtomicUsize,
    /// Bytes of the values read so far. Once they exceed `bytes_max`, no further row is taken.
    bytes: AtomicUsize,
    bytes_max: usize,
    slow_from: Duration,
    slow: AtomicUsize,
}

/// One thread's share of a list.
struct Part {
    taken: usize,
    found: Vec<(usize, Found)>,
}

impl List {
    fn left(&self) -> usize {
        self.rows.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    fn take(&self) -> Option<usize> {
        if self.bytes.load(Ordering::Relaxed) > self.bytes_max {
            return None;
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        (at < self.rows.len()).then_some(at)
    }

    /// Closes the list. Returns the number of rows that were taken.
    fn close(&self) -> usize {
        self.next.swap(self.rows.len(), Ordering::Relaxed).min(self.rows.len())
    }

    /// Reads rows. Calls `slow` after each read that waited for the device.
    fn read(&self, rows: &Keyspace, mut slow: impl FnMut()) -> Part {
        let mut part = Part { taken: 0, found: Vec::new() };
        while let Some(at) = self.take() {
            part.taken += 1;
            let began = Instant::now();
            // The command that needs the row gets the error again and handles it.
            let Ok(value) = rows.get(&self.rows[at]) else { continue };
            self.bytes.fetch_add(value.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
            part.found.push((at, value));
            if began.elapsed() >= self.slow_from {
                self.slow.fetch_add(1, Ordering::Relaxed);
                slow();
            }
        }
        part
    }
}

struct Job {
    list: Arc<List>,
    parts: Sender<Part>,
}

struct Threads {
    /// `None` when the pool ends.
    jobs: Option<Sender<Job>>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(rows: &Arc<Keyspace>) -> Threads {
        let (jobs, inbox) = crossbeam_channel::unbounded();
        let start = |_| {
            let (rows, inbox) = (rows.clone(), inbox.clone());
            let thread = std::thread::Builder::new().name("read".into());
            let started = thread.spawn(move || {
                allocator::share_arena_of_rows();
                run(&rows, &inbox);
            });
            started.inspect_err(|error| tracing::warn!(%error, "a reader thread cannot be started")).ok()
        };
        Threads { jobs: Some(jobs), handles: (0..THREADS).map_while(start).collect() }
    }

    /// Lets up to `readers` threads read from the list.
    fn call(&self, readers: usize, list: &Arc<List>, parts: &Sender<Part>) {
        if let Some(jobs) = &self.jobs {
            for _ in 0..readers.min(self.handles.len()) {
                let _ = jobs.send(Job { list: list.clone(), parts: parts.clone() });
            }
        }
    }
}

impl Drop for Threads {
    /// Ends the threads. Otherwise one of them could drop the last reference to the rows and close
    /// them.
    fn drop(&mut self) {
        self.jobs = None;
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

fn run(rows: &Keyspace, jobs: &Receiver<Job>) {
    while let Ok(Job { list, parts }) = jobs.recv() {
        let part = list.read(rows, || {});
        if part.taken > 0 {
            let _ = parts.send(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::fixture::{row, rows_on_flash, value};

    /// Returns readers over [rows](rows_on_flash) that the row cache does not hold.
    fn readers(rows: usize, bytes: usize, slow_from: Duration) -> (TempDir, Readers) {
        let (dir, flash) = rows_on_flash(rows, bytes);
        (dir, Readers::with(flash, slow_from))
    }

    fn check(read: &Read, bytes: usize) {
        for (row, found) in &read.rows {
            let at: usize = std::str::from_utf8(&row[1..]).unwrap().parse().unwrap();
            assert_eq!(*found, (at % 2 == 0).then(|| value(at, bytes)), "{row:?}");
        }
    }

    #[test]
    fn every_row_is_read_once_by_however_many_threads() {
        let (_dir, readers) = readers(1000, 100, Duration::ZERO);
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let readers = &readers;
                scope.spawn(move || {
                    for from in (caller..900).step_by(50) {
                        let read = readers.read((from..from + 100).map(row).collect(), usize::MAX);
                        assert!(read.taken == 100 && read.slow == 100);
                        check(&read, 100);
                        let mut rows: Vec<_> = read.rows.into_iter().map(|(row, _)| row).collect();
                        rows.sort_unstable();
                        assert_eq!(rows, (from..from + 100).map(row).collect::<Vec<_>>());
                    }
                });
            }
        });
        assert!(readers.threads.get().is_some_and(|threads| threads.handles.len() == THREADS));
    }

    #[test]
    fn no_thread_is_started_while_reads_are_fast() {
        let (_dir, readers) = readers(100, 100, Duration::MAX);
        let read = readers.read((0..100).map(row).collect(), usize::MAX);
        check(&read, 100);
        assert!(read.rows.len() == 100 && read.slow == 0 && readers.threads.get().is_none());
    }

    #[test]
    fn large_values_end_a_list_early_and_what_was_read_is_its_beginning() {
        let (_dir, readers) = readers(400, 10_000, Duration::ZERO);
        let read = readers.read((0..400).map(row).collect(), 200_000);
        // Each thread may have taken one more row when the last fitting row was counted.
        assert!(read.taken >= 40 && read.taken <= 41 + 2 * (THREADS + 1), "{}", read.taken);
        check(&read, 10_000);
        let mut rows: Vec<_> = read.rows.into_iter().map(|(row, _)| row).collect();
        rows.sort_unstable();
        assert_eq!(rows, (0..read.taken).map(row).collect::<Vec<_>>());
    }
}
