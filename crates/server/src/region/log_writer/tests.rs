use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::*;
use crate::fixture::Fixture;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq)]
enum Done {
    Append(u64),
    Sync,
    Truncate(RegionId, LogIndex),
}

/// A log on a device that may be full, for cuts too or only for what is longer than a cut.
#[derive(Default)]
struct Device {
    full: AtomicBool,
    full_for_cuts: AtomicBool,
    done: Mutex<Vec<Done>>,
    refused: Mutex<Vec<Done>>,
}

impl Device {
    fn answer(&self, full: &AtomicBool, what: Done) -> Result<(), LogError> {
        if full.load(Ordering::SeqCst) {
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
        self.answer(&self.full, Done::Append(batch.number)).map(|()| Appended::default())
    }

    fn sync(&self) -> Result<Appended, LogError> {
        self.answer(&self.full, Done::Sync).map(|()| Appended::default())
    }

    fn truncate(&self, region: RegionId, index: LogIndex, _: Term) -> Result<(), LogError> {
        self.answer(&self.full_for_cuts, Done::Truncate(region, index))
    }
}

/// A running log thread, and the worker's ends of its channels.
struct Running {
    fixture: Fixture,
    device: Arc<Device>,
    jobs: Sender<ToLog>,
    answers: Receiver<ToWorker>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(fsync: Fsync) -> Running {
        let fixture = Fixture::with(|config| config.fsync = fsync);
        let device = Arc::new(Device::default());
        let (jobs, taken) = crossbeam_channel::unbounded();
        let (worker, answers) = crossbeam_channel::unbounded();
        let writer = LogWriter::new(device.clone(), taken, worker, fixture.store.clone());
        let thread = std::thread::spawn(move || writer.run());
        Running { fixture, device, jobs, answers, thread }
    }

    fn append(&self, number: u64) {
        let batch = LogBatch { number, writes: Vec::new(), must_sync: false };
        self.jobs.send(ToLog::Append(batch)).expect("the thread takes jobs");
    }

    fn truncate(&self, region: RegionId, index: LogIndex) {
        self.jobs.send(ToLog::Truncate { region, index, term: 1 }).expect("the thread takes jobs");
    }

    fn fill(&self) {
        self.device.full.store(true, Ordering::SeqCst);
        self.device.full_for_cuts.store(true, Ordering::SeqCst);
    }

    fn make_room(&self) {
        self.device.full.store(false, Ordering::SeqCst);
        self.device.full_for_cuts.store(false, Ordering::SeqCst);
    }

    fn persisted(&self) -> u64 {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(ToWorker::Input(Input::Persisted { batch })) => batch,
            Ok(_) => panic!("the log thread says nothing else"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Ends as a store does, and gives what the device was made to do.
    fn stop(self) -> Vec<Done> {
        self.fixture.store.stopping.store(true, Ordering::Relaxed);
        drop(self.jobs);
        eventually("the thread ends", || self.thread.is_finished());
        self.thread.join().expect("the thread does not panic");
        self.device.done()
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
fn batches_and_cuts_are_carried_out_in_order_and_acknowledged() {
    let running = Running::start(Fsync::Always);
    running.append(1);
    running.truncate(4, 10);
    running.append(2);
    assert_eq!((running.persisted(), running.persisted()), (1, 2));
    let done = [Done::Append(1), Done::Truncate(4, 10), Done::Append(2), Done::Sync];
    assert_eq!(running.stop(), done);
}

#[test]
fn a_batch_without_room_waits_and_the_cuts_behind_it_do_not() {
    let running = Running::start(Fsync::Always);
    running.device.full.store(true, Ordering::SeqCst);
    running.append(1);
    running.truncate(4, 10);
    running.append(2);
    running.truncate(5, 11);
    eventually("the cuts are made", || {
        running.device.done() == [Done::Truncate(4, 10), Done::Truncate(5, 11)]
    });
    assert!(running.fixture.store.disk.is_full());
    assert!(running.answers.is_empty(), "nothing was acknowledged");
    running.make_room();
    assert_eq!((running.persisted(), running.persisted()), (1, 2));
    let done = running.stop();
    assert_eq!(done[2..], [Done::Append(1), Done::Append(2), Done::Sync]);
}

#[test]
fn a_cut_without_room_is_made_when_there_is_some() {
    let running = Running::start(Fsync::Always);
    running.fill();
    running.truncate(4, 10);
    eventually("it is refused", || running.device.has_refused(&Done::Truncate(4, 10)));
    assert!(running.fixture.store.disk.is_full());
    running.truncate(4, 20);
    eventually("the next one is, too", || running.device.has_refused(&Done::Truncate(4, 20)));
    running.make_room();
    eventually("it is made", || running.device.done() == [Done::Truncate(4, 20)]);
    assert_eq!(running.stop(), [Done::Truncate(4, 20), Done::Sync]);
}

#[test]
fn a_sync_without_room_is_made_when_there_is_some() {
    let running = Running::start(Fsync::EverySec);
    running.append(1);
    assert_eq!(running.persisted(), 1);
    running.fill();
    eventually("it is refused", || running.device.has_refused(&Done::Sync));
    running.make_room();
    eventually("it is made", || running.device.done() == [Done::Append(1), Done::Sync]);
    running.stop();
}

#[test]
fn a_store_stops_while_its_log_waits_for_room() {
    let running = Running::start(Fsync::Always);
    running.fill();
    running.append(1);
    eventually("it is refused", || running.device.has_refused(&Done::Append(1)));
    running.append(2);
    let answers = running.answers.clone();
    assert_eq!(running.stop(), []);
    assert!(answers.is_empty(), "nothing was acknowledged");
}

#[test]
fn a_stopping_store_takes_the_workers_last_jobs() {
    let running = Running::start(Fsync::Always);
    running.fill();
    running.fixture.store.stopping.store(true, Ordering::Relaxed);
    running.append(1);
    eventually("it is refused", || running.device.has_refused(&Done::Append(1)));
    // The worker ends the process when the log thread is gone before it.
    running.append(2);
    running.truncate(4, 10);
    assert_eq!(running.stop(), []);
}
