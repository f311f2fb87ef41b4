use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::*;
use crate::executor::batches::{self, BatchSender};
use crate::fixture::Fixture;
use crate::loops::ToWorker;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq)]
enum Done {
    Append(u64),
    Sync,
}

/// A log on a device that may be full.
#[derive(Default)]
struct Device {
    full: AtomicBool,
    done: Mutex<Vec<Done>>,
    refused: Mutex<Vec<Done>>,
}

impl Device {
    fn answer(&self, what: Done) -> Result<(), LogError> {
        if self.full.load(Ordering::SeqCst) {
            self.refused.lock().push(what);
            return Err(LogError::NoSpace("the device is full".into()));
        }
        self.done.lock().push(what);
        Ok(())
    }

    fn done(&self) -> Vec<Done> {
        self.done.lock().clone()
    }

    fn has_refused(&self, what: &Done) -> bool {
        self.refused.lock().contains(what)
    }
}

impl Log for Arc<Device> {
    fn append(&self, batch: &LogBatch, _: bool) -> Result<Appended, LogError> {
        self.answer(Done::Append(batch.number)).map(|()| Appended::default())
    }

    fn sync(&self) -> Result<Appended, LogError> {
        self.answer(Done::Sync).map(|()| Appended::default())
    }
}

/// A running log thread, with the worker's ends of its channels.
struct Running {
    fixture: Fixture,
    device: Arc<Device>,
    batches: BatchSender,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(fsync: Fsync) -> Running {
        let fixture = Fixture::with(|config| config.fsync = fsync);
        let device = Arc::new(Device::default());
        let (batches, taken) = batches::channel();
        let writer = LogWriter::new(device.clone(), taken, fixture.store.executor());
        let thread = std::thread::spawn(move || writer.run());
        Running { fixture, device, batches, thread }
    }

    fn append(&self, number: u64) {
        let batch = LogBatch { number, writes: Vec::new(), must_sync: false };
        self.batches.send(batch);
    }

    fn fill(&self) {
        self.device.full.store(true, Ordering::SeqCst);
    }

    fn make_room(&self) {
        self.device.full.store(false, Ordering::SeqCst);
    }

    fn persisted(&self) -> u64 {
        let mut answer = None;
        eventually("a batch is persisted", || {
            answer = self.fixture.told().next();
            answer.is_some()
        });
        match answer {
            Some(ToWorker::Shard(node::Input::Raft(Input::Persisted { batch }))) => batch,
            _ => panic!("the log thread sends nothing else"),
        }
    }

    /// Stops as a store does. Returns the operations that the device performed.
    fn stop(self) -> Vec<Done> {
        self.end().0
    }

    /// Stops in the same way. Also returns the number of unexpected messages to the worker.
    fn end(self) -> (Vec<Done>, usize) {
        self.fixture.store.ends.stop();
        drop(self.batches);
        eventually("the thread ends", || self.thread.is_finished());
        self.thread.join().expect("the thread does not panic");
        (self.device.done(), self.fixture.told().count())
    }
}

fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happens() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn batches_are_written_in_order_and_acknowledged() {
    let running = Running::start(Fsync::Always);
    running.append(1);
    running.append(2);
    assert_eq!((running.persisted(), running.persisted()), (1, 2));
    assert_eq!(running.stop(), [Done::Append(1), Done::Append(2), Done::Sync]);
}

#[test]
fn a_batch_without_room_waits() {
    let running = Running::start(Fsync::Always);
    running.fill();
    running.append(1);
    running.append(2);
    eventually("the write is refused", || running.device.has_refused(&Done::Append(1)));
    eventually("the store knows that the device is full", || running.fixture.store.disk.is_full());
    assert_eq!(running.fixture.told().count(), 0, "nothing was acknowledged");
    running.make_room();
    assert_eq!((running.persisted(), running.persisted()), (1, 2));
    assert_eq!(running.stop(), [Done::Append(1), Done::Append(2), Done::Sync]);
}

#[test]
fn a_sync_without_room_is_made_when_there_is_some() {
    let running = Running::start(Fsync::EverySec);
    running.append(1);
    assert_eq!(running.persisted(), 1);
    running.fill();
    eventually("the sync is refused", || running.device.has_refused(&Done::Sync));
    running.make_room();
    eventually("the sync is made", || running.device.done() == [Done::Append(1), Done::Sync]);
    running.stop();
}

#[test]
fn a_store_stops_while_its_log_waits_for_room() {
    let running = Running::start(Fsync::Always);
    running.fill();
    running.append(1);
    eventually("the write is refused", || running.device.has_refused(&Done::Append(1)));
    running.append(2);
    let (done, told) = running.end();
    assert_eq!(done, []);
    assert_eq!(told, 0, "nothing was acknowledged");
}

#[test]
fn a_stopping_store_takes_the_workers_last_batches() {
    let running = Running::start(Fsync::Always);
    running.fill();
    running.fixture.store.ends.stop();
    running.append(1);
    eventually("the write is refused", || running.device.has_refused(&Done::Append(1)));
    // The worker ends the process if the log thread ends before it.
    running.append(2);
    assert_eq!(running.stop(), []);
}
