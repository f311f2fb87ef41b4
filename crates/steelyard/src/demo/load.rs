//! The demo's load: closed-loop workers over the loaded records. Each worker is the only writer of
//! its share and keeps a ledger of acknowledged writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::cluster_client::{Call, ClusterClient, Outcome};
use client::latency::histogram;
use hdrhistogram::Histogram;
use resp::Reply;
use tokio::task::JoinHandle;
use types::Draw;

use super::records::Record;

/// The field that the load writes: a number that grows by one with each write of its worker.
pub const VISITS: &[u8] = b"visits";

/// The values that a record's `visits` may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// The last acknowledged write. 0 before the first.
    pub acknowledged: u64,
    /// Writes with an unknown outcome, before or after the last acknowledged one. A lost request
    /// may take effect late.
    pub open: Vec<u64>,
}

impl Expected {
    pub fn allows(&self, visits: u64) -> bool {
        visits == self.acknowledged || self.open.contains(&visits)
    }
}

#[derive(Clone)]
pub struct Window {
    pub latency: Histogram<u64>,
    pub reads: u64,
    pub writes: u64,
    pub unknown: u64,
    pub not_done: u64,
    /// Longest time of a command, in microseconds.
    pub longest: u64,
}

impl Window {
    fn new() -> Window {
        Window { latency: histogram(), reads: 0, writes: 0, unknown: 0, not_done: 0, longest: 0 }
    }

    fn add(&mut self, other: &Window) {
        let _ = self.latency.add(&other.latency);
        self.reads += other.reads;
        self.writes += other.writes;
        self.unknown += other.unknown;
        self.not_done += other.not_done;
        self.longest = self.longest.max(other.longest);
    }

    pub fn operations(&self) -> u64 {
        self.reads + self.writes
    }
}

pub struct Load {
    stop: Arc<AtomicBool>,
    windows: Vec<Arc<Mutex<Window>>>,
    wrong_reads: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    workers: Vec<JoinHandle<Vec<Expected>>>,
    since: Mutex<Instant>,
}

/// The ledger of a finished load.
pub struct Ledger {
    /// The allowed values by record.
    pub expected: Vec<Expected>,
    /// Number of reads during the run that returned neither the acknowledged write nor one with an
    /// unknown outcome.
    pub wrong_reads: u64,
    /// Number of acknowledged writes.
    pub acknowledged: u64,
}

impl Load {
    pub fn start(client: Arc<ClusterClient>, records: Arc<Vec<Record>>, workers: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let [wrong_reads, answered, acknowledged] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
        let windows: Vec<_> = (0..workers).map(|_| Arc::new(Mutex::new(Window::new()))).collect();
        let workers = windows
            .iter()
            .enumerate()
            .map(|(number, window)| {
                let worker = Worker {
                    client: client.clone(),
                    records: records.clone(),
                    number,
                    step: workers,
                    window: window.clone(),
                    stop: stop.clone(),
                    wrong_reads: wrong_reads.clone(),
                    answered: answered.clone(),
                    acknowledged: acknowledged.clone(),
                };
                tokio::spawn(worker.run())
            })
            .collect();
        let since = Mutex::new(Instant::now());
        Load { stop, windows, wrong_reads, answered, acknowledged, workers, since }
    }

    /// Returns the number of commands answered since the start.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns the operations since the last call, and the time since then.
    pub fn turn(&self) -> (Window, Duration) {
        let mut sum = Window::new();
        for window in &self.windows {
            let done =
                std::mem::replace(&mut *window.lock().expect("a worker does not panic here"), Window::new());
            sum.add(&done);
        }
        let mut since = self.since.lock().expect("nothing panics under this lock");
        let took = since.elapsed();
        *since = Instant::now();
        (sum, took)
    }

    /// Ends the load after every worker has finished its command.
    pub async fn stop(self, records: usize) -> anyhow::Result<Ledger> {
        self.stop.store(true, Ordering::Relaxed);
        let step = self.workers.len();
        let mut expected = vec![Expected::default(); records];
        for (number, worker) in self.workers.into_iter().enumerate() {
            for (index, entry) in worker.await?.into_iter().enumerate() {
                expected[number + index * step] = entry;
            }
        }
        let [wrong_reads, acknowledged] =
            [self.wrong_reads, self.acknowledged].map(|number| number.load(Ordering::Relaxed));
        Ok(Ledger { expected, wrong_reads, acknowledged })
    }
}

struct Worker {
    client: Arc<ClusterClient>,
    records: Arc<Vec<Record>>,
    number: usize,
    step: usize,
    window: Arc<Mutex<Window>>,
    stop: Arc<AtomicBool>,
    wrong_reads: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
}

impl Worker {
    async fn run(self) -> Vec<Expected> {
        let own = self.records.len().saturating_sub(self.number).div_ceil(self.step);
        let mut ledger = vec![Expected::default(); own];
        let mut draw = Draw::new(self.number as u64 + 1);
        let mut sequence = 0u64;
        while own > 0 && !self.stop.load(Ordering::Relaxed) {
            let index = draw.below(own as u64) as usize;
            let key = self.records[self.number + index * self.step].key.clone();
            let write = draw.number() & 1 == 0;
            let arguments: Vec<Bytes> = match write {
                true => {
                    sequence += 1;
                    vec!["HSET".into(), key, VISITS.into(), sequence.to_string().into()]
                }
                false => vec!["HGET".into(), key, VISITS.into()],
            };
            let started = Instant::now();
            let outcome = self.client.call(&Call::new(arguments, !write)).await;
            let took = started.elapsed().as_micros() as u64;
            if write {
                note_write(&mut ledger[index], sequence, &outcome);
            } else if !read_is_right(&ledger[index], &outcome) {
                self.wrong_reads.fetch_add(1, Ordering::Relaxed);
            }
            self.count(write, took, &outcome);
        }
        ledger
    }

    fn count(&self, write: bool, took: u64, outcome: &Outcome) {
        let mut window = self.window.lock().expect("nothing panics under this lock");
        window.longest = window.longest.max(took);
        match outcome {
            Outcome::Unknown(_) => window.unknown += 1,
            outcome if !outcome.acknowledged() => window.not_done += 1,
            _ => {
                window.latency.saturating_record(took);
                *(if write { &mut window.writes } else { &mut window.reads }) += 1;
                self.answered.fetch_add(1, Ordering::Relaxed);
                self.acknowledged.fetch_add(u64::from(write), Ordering::Relaxed);
            }
        }
    }
}

fn note_write(expected: &mut Expected, sequence: u64, outcome: &Outcome) {
    match outcome {
        outcome if outcome.acknowledged() => expected.acknowledged = sequence,
        Outcome::Unknown(_) => expected.open.push(sequence),
        _ => {}
    }
}

/// Returns true unless a read returned a wrong value: neither the last acknowledged write nor one
/// with an unknown outcome.
fn read_is_right(expected: &Expected, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(Reply::Error(_)) | Outcome::NotDone(_) | Outcome::Unknown(_) => true,
        Outcome::Done(reply) => visits(reply).is_some_and(|visits| expected.allows(visits)),
    }
}

/// Returns the number in a reply. Nil means never written, which is 0.
pub fn visits(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Nil => Some(0),
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_write_is_noticed_and_an_open_one_is_not_held_against_anybody() {
        let mut expected = Expected::default();
        note_write(&mut expected, 1, &Outcome::Done(Reply::Int(1)));
        note_write(&mut expected, 2, &Outcome::Unknown("gone".into()));
        note_write(&mut expected, 3, &Outcome::Done(Reply::Int(0)));
        note_write(&mut expected, 4, &Outcome::NotDone("no leader".into()));
        note_write(&mut expected, 5, &Outcome::Done(Reply::error("ERR no")));
        assert!(expected.allows(3) && expected.allows(2));
        assert!(!expected.allows(1) && !expected.allows(4) && !expected.allows(5) && !expected.allows(0));
        let read = |text: &str| read_is_right(&expected, &Outcome::Done(Reply::bulk(text.to_owned())));
        assert!(read("3") && !read("1") && !read("x"));
        assert!(!read_is_right(&expected, &Outcome::Done(Reply::Nil)));
    }
}
