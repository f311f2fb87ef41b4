use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::*;
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
    /// True if a write would wait for a new segment.
    lacks_segment: AtomicBool,
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

    fn try_append(&self, batch: &LogBatch, sync: bool) -> Option<Result<Appended, LogError>> {
        (!self.lacks_segment.load(Ordering::SeqCst)).then(|| self.append(batch, sync))
    }
}

fn batch(number: u64) -> LogBatch {
    LogBatch { number, writes: Vec::new(), must_sync: false }
}

/// A running log thread, with the worker's ends of its channels.
struct Running {
    fixture: Fixture,
    device: Arc<Device>,
    sender: LogSender<Arc<Device>>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(fsync: Fsync) -> Running {
        let fixture = Fixture::with(|config| config.fsync = fsync);
        let device = Arc::new(Device::default());
        let (sender, writer) = new(device.clone(), fixture.store.executor());
        let thread = std::thread::spawn(move || writer.run());
        Running { fixture, device, sender, thread }
    }

    fn append(&self, number: u64) {
        self.sender.send(batch(number));
    }

    /// Writes a batch as the loop does. Returns true if it is persisted.
    fn write(&self, number: u64) -> bool {
        self.sender.write(batch(number))
    }

    /// Lets the log thread write batches until the loop may wait for one.
    fn become_quick(&self) {
        let mut number = 0;
        eventually("the device counts as quick", || {
            number += 1;
            self.append(number);
            self.persisted();
            self.sender.writing.lock().waits.are_short(0)
        });
        self.device.done.lock().clear();
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
        drop(self.sender);
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

#[test]
fn a_loop_writes_by_itself_once_the_device_has_been_quick() {
    let running = Running::start(Fsync::Always);
    assert!(!running.write(1), "nothing is known of the device");
    assert_eq!(running.persisted(), 1);
    running.become_quick();
    let before = running.fixture.store.metrics.log_batches_of_loop.get();
    assert!(running.write(2));
    assert_eq!(running.device.done(), [Done::Append(2)]);
    assert_eq!(running.fixture.store.metrics.log_batches_of_loop.get(), before + 1);
    // The log thread writes what needs a new segment, and what comes while it writes itself.
    running.device.lacks_segment.store(true, Ordering::SeqCst);
    assert!(!running.write(3));
    assert_eq!(running.persisted(), 3);
    running.device.lacks_segment.store(false, Ordering::SeqCst);
    let sender = &running.sender;
    let writing = sender.writing.lock();
    assert!(!sender.write(batch(4)));
    drop(writing);
    assert_eq!(running.persisted(), 4);
    let done = [Done::Append(2), Done::Append(3), Done::Append(4), Done::Sync];
    assert_eq!(running.stop(), done);
}

#[test]
fn a_loop_leaves_the_wait_for_room_to_the_log_thread() {
    let running = Running::start(Fsync::Always);
    running.become_quick();
    running.fill();
    assert!(!running.write(1));
    eventually("the log thread tries", || running.device.refused.lock().len() >= 2);
    assert!(running.fixture.store.disk.is_full());
    running.make_room();
    assert_eq!(running.persisted(), 1);
    assert_eq!(running.stop(), [Done::Append(1), Done::Sync]);
}

#[test]
fn what_a_loop_writes_without_a_sync_is_synced_within_a_second() {
    let running = Running::start(Fsync::EverySec);
    running.become_quick();
    eventually("the log thread has synced", || running.sender.writing.lock().sync_at.is_none());
    running.device.done.lock().clear();
    assert!(running.write(1));
    eventually("it is synced", || running.device.done() == [Done::Append(1), Done::Sync]);
    running.stop();
}

#[test]
fn a_loop_leaves_a_sync_of_earlier_writes_to_the_log_thread() {
    let running = Running::start(Fsync::No);
    running.become_quick();
    running.sender.writing.lock().unsynced = 1;
    let vote = LogBatch { must_sync: true, ..batch(1) };
    assert!(running.write(0), "a write alone is short");
    assert!(!running.sender.write(vote));
    assert_eq!(running.persisted(), 1);
    assert_eq!(running.sender.writing.lock().unsynced, 0);
    let vote = LogBatch { must_sync: true, ..batch(2) };
    assert!(running.sender.write(vote), "there is nothing else to sync");
    running.stop();
}
