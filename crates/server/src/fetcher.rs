//! Rows that clients wait for, fetched from flash by threads of their own, so that no loop ever
//! waits for the device.
//!
//! A device overlaps the latencies only of reads by different threads. So as long as threads are
//! free, each takes one row. If more rows wait than there are threads, a thread takes several and
//! looks them up together, which needs less CPU time. The lists of different clients take turns, so
//! a long pipeline does not delay another client's single row.
//!
//! Execution has readers of its own ([`crate::readers`]), so writes never wait behind clients'
//! reads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rocks::{Fetched, Keyspace};
use tokio::sync::oneshot;

/// Maximum number of rows of one look-up. A larger number saves little more CPU time, and all of
/// its rows wait for the last one.
const BATCH_ROWS_MAX: usize = 16;

pub struct Fetcher {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Queue {
    rows: Arc<Keyspace>,
    threads_max: usize,
    state: Mutex<State>,
    work: Condvar,
    /// Number of rows that are being read.
    reading: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The lists with rows that no thread has taken. Each thread takes from the first list and
    /// moves it to the end.
    lists: VecDeque<Arc<List>>,
    /// Number of rows in `lists` that no thread has taken.
    waiting: usize,
    idle: usize,
    started: usize,
    ends: bool,
    #[cfg(test)]
    is_paused: bool,
}

/// The rows that one client waits for.
struct List {
    rows: Vec<Bytes>,
    bytes_max: usize,
    progress: Mutex<Progress>,
}

struct Progress {
    /// The first row that no thread has taken.
    next: usize,
    /// Number of rows that threads have taken and not read yet.
    open: usize,
    bytes: usize,
    found: Vec<(Bytes, Fetched)>,
    /// `None` once the client has its answer.
    answer: Option<oneshot::Sender<Vec<(Bytes, Fetched)>>>,
}

impl Fetcher {
    /// Creates a fetcher with up to `threads_max` threads, which start when they are needed.
    pub fn new(rows: Arc<Keyspace>, threads_max: usize) -> Fetcher {
        let queue = Queue {
            rows,
            threads_max: threads_max.max(1),
            state: Mutex::default(),
            work: Condvar::new(),
            reading: AtomicUsize::new(0),
        };
        Fetcher { queue: Arc::new(queue), threads: Mutex::default() }
    }

    pub fn threads_max(&self) -> usize {
        self.queue.threads_max
    }

    /// Returns the number of rows that wait for a thread, and of rows that are being read.
    pub fn under_way(&self) -> (usize, usize) {
        (self.queue.state.lock().waiting, self.queue.reading.load(Ordering::Relaxed))
    }

    /// Fetches rows, in their order, until all are read or their values exceed `bytes_max` bytes.
    /// Returns the rows that were read, in any order. A row that cannot be read is missing.
    pub async fn fetch(&self, rows: Vec<Bytes>, bytes_max: usize) -> Vec<(Bytes, Fetched)> {
        if rows.is_empty() {
            return Vec::new();
        }
        let (sender, answer) = oneshot::channel();
        let progress = Progress {
            next: 0,
            open: 0,
            bytes: 0,
            found: Vec::with_capacity(rows.len()),
            answer: Some(sender),
        };
        let list = Arc::new(List { rows, bytes_max, progress: Mutex::new(progress) });
        self.add(list);
        answer.await.unwrap_or_default()
    }

    fn add(&self, list: Arc<List>) {
        let (wakes, starts) = {
            let mut state = self.queue.state.lock();
            let rows = list.rows.len();
            state.waiting += rows;
            state.lists.push_back(list);
            let wakes = rows.min(state.idle);
            let room = self.queue.threads_max.saturating_sub(state.started);
            let starts = (rows - wakes).min(room);
            state.started += starts;
            (wakes, starts)
        };
        for _ in 0..wakes {
            self.queue.work.notify_one();
        }
        for _ in 0..starts {
            self.start();
        }
    }

    fn start(&self) {
        let queue = self.queue.clone();
        let thread = std::thread::Builder::new().name("fetch".into());
        match thread.spawn(move || {
            allocator::share_arena_of_rows();
            queue.run();
        }) {
            Ok(handle) => self.threads.lock().push(handle),
            Err(error) => {
                tracing::warn!(%error, "a reader thread cannot be started");
                let mut state = self.queue.state.lock();
                state.started -= 1;
                if state.started == 0 {
                    // The commands that wait for these rows read them in another way.
                    state.waiting = 0;
                    state.lists.clear();
                }
            }
        }
    }

    /// Lets threads take no rows until [`resume`](Self::resume) is called.
    #[cfg(test)]
    pub fn pause(&self) {
        self.queue.state.lock().is_paused = true;
    }

    #[cfg(test)]
    pub fn resume(&self) {
        self.queue.state.lock().is_paused = false;
        self.queue.work.notify_all();
    }
}

impl Drop for Fetcher {
    /// Ends the threads. Otherwise one of them could drop the last reference to the rows and close
    /// them.
    fn drop(&mut self) {
        {
            let mut state = self.queue.state.lock();
            state.ends = true;
            state.lists.clear();
        }
        self.queue.work.notify_all();
        for handle in self.threads.get_mut().drain(..) {
            let _ = handle.join();
        }
    }
}

impl State {
    fn has_work(&self) -> bool {
        #[cfg(test)]
        if self.is_paused {
            return false;
        }
        !self.lists.is_empty()
    }

    /// Takes rows for one look-up: the fair share of one of `threads` threads.
    fn take(&mut self, threads: usize) -> Vec<(Arc<List>, Bytes)> {
        let share = self.waiting.div_ceil(threads).clamp(1, BATCH_ROWS_MAX);
        let mut taken = Vec::with_capacity(share);
        while taken.len() < share {
            let Some(list) = self.lists.pop_front() else { break };
            let mut progress = list.progress.lock();
            let left = list.rows.len() - progress.next;
            let is_wanted = progress.answer.as_ref().is_some_and(|answer| !answer.is_closed());
            if !is_wanted || progress.bytes > list.bytes_max {
                progress.next = list.rows.len();
                self.waiting -= left;
                continue;
            }
            let count = left.min(share - taken.len());
            let rows = &list.rows[progress.next..progress.next + count];
            taken.extend(rows.iter().map(|row| (list.clone(), row.clone())));
            progress.next += count;
            progress.open += count;
            self.waiting -= count;
            drop(progress);
            if count < left {
                self.lists.push_back(list);
            }
        }
        taken
    }
}

impl Queue {
    fn run(&self) {
        loop {
            let taken = {
                let mut state = self.state.lock();
                while !state.has_work() && !state.ends {
                    state.idle += 1;
                    self.work.wait(&mut state);
                    state.idle -= 1;
                }
                if state.ends {
                    return;
                }
                state.take(self.threads_max)
            };
            if taken.is_empty() {
                continue;
            }
            let (lists, rows): (Vec<Arc<List>>, Vec<Bytes>) = taken.into_iter().unzip();
            self.reading.fetch_add(rows.len(), Ordering::Relaxed);
            let found = self.rows.fetch(&rows);
            self.reading.fetch_sub(rows.len(), Ordering::Relaxed);
            for ((list, row), found) in lists.iter().zip(rows).zip(found) {
                list.read(row, found.ok());
            }
        }
    }
}

impl List {
    /// Records a row that was read. Answers the client if no other row is open.
    fn read(&self, row: Bytes, found: Option<Fetched>) {
        let mut progress = self.progress.lock();
        progress.open -= 1;
        if let Some(found) = found {
            progress.bytes += found.value.as_ref().map_or(0, Bytes::len);
            progress.found.push((row, found));
        }
        let is_done = progress.next == self.rows.len() || progress.bytes > self.bytes_max;
        if progress.open == 0 && is_done {
            let found = std::mem::take(&mut progress.found);
            if let Some(answer) = progress.answer.take() {
                let _ = answer.send(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tempfile::TempDir;

    use super::*;
    use crate::fixture::{row, rows_on_flash, value};

    /// Returns a fetcher over [rows](rows_on_flash) that the row cache does not hold.
    fn fetcher(rows: usize, bytes: usize, threads: usize) -> (TempDir, Fetcher) {
        let (dir, flash) = rows_on_flash(rows, bytes);
        (dir, Fetcher::new(flash, threads))
    }

    fn values(found: Vec<(Bytes, Fetched)>) -> BTreeMap<Bytes, Option<Bytes>> {
        let count = found.len();
        let values: BTreeMap<_, _> = found.into_iter().map(|(row, found)| (row, found.value)).collect();
        assert_eq!(values.len(), count, "every row is read once");
        values
    }

    #[tokio::test]
    async fn every_list_gets_all_of_its_rows_from_however_many_threads() {
        for threads in [1, 3, 32] {
            let (_dir, fetcher) = fetcher(1000, 100, threads);
            let lists = (0..20).map(|from| {
                let fetcher = &fetcher;
                async move {
                    let asked: Vec<Bytes> = (from * 40..from * 40 + 1 + from * 5).map(row).collect();
                    let wanted: BTreeMap<_, _> = (from * 40..from * 40 + 1 + from * 5)
                        .map(|at| (row(at), (at % 2 == 0).then(|| value(at, 100))))
                        .collect();
                    assert_eq!(values(fetcher.fetch(asked, usize::MAX).await), wanted);
                }
            });
            futures::future::join_all(lists).await;
            assert!(fetcher.threads.lock().len() <= threads);
            assert_eq!(fetcher.under_way(), (0, 0));
        }
    }

    #[tokio::test]
    async fn large_values_end_a_list_early_and_what_was_read_is_its_beginning() {
        let (_dir, fetcher) = fetcher(400, 10_000, 4);
        let found = values(fetcher.fetch((0..400).map(row).collect(), 200_000).await);
        // Each thread may have taken one more look-up when the last fitting row was counted.
        assert!(found.len() >= 40 && found.len() <= 41 + 5 * BATCH_ROWS_MAX, "{}", found.len());
        assert!(found.keys().eq(&(0..found.len()).map(row).collect::<Vec<_>>()));
        assert_eq!(fetcher.fetch(vec![row(2)], 0).await.len(), 1, "the first row is always read");
    }

    #[test]
    fn lists_take_turns_and_a_row_waits_alone_while_threads_are_free() {
        let (_dir, fetcher) = fetcher(0, 0, 4);
        fetcher.pause();
        let list = |rows: std::ops::Range<usize>| {
            let (sender, answer) = oneshot::channel();
            let progress = Progress { next: 0, open: 0, bytes: 0, found: vec![], answer: Some(sender) };
            let rows = rows.map(row).collect();
            (Arc::new(List { rows, bytes_max: usize::MAX, progress: Mutex::new(progress) }), answer)
        };
        let (long, _waits) = list(0..100);
        let (single, _waits_too) = list(200..201);
        let (gone, left) = list(300..350);
        drop(left);
        let lists = [&long, &single, &gone];
        let mut state = State { waiting: 151, ..State::default() };
        state.lists.extend(lists.into_iter().cloned());
        let taken = |state: &mut State, threads| -> Vec<Bytes> {
            state.take(threads).into_iter().map(|(_, row)| row).collect()
        };
        assert_eq!(taken(&mut state, 4), (0..16).map(row).collect::<Vec<_>>());
        let next = taken(&mut state, 4);
        assert_eq!((&next[0], next.len()), (&row(200), 16), "the single row's turn comes second");
        assert_eq!(next[1], row(16), "nobody waits for the rows of a client that has left");
        assert_eq!(state.waiting, 100 - 16 - 15);
        assert_eq!(taken(&mut state, 100), [row(31)], "with free threads, each takes one row");
    }
}
