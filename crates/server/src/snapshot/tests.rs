//! Two services that talk over loopback sockets, through a connection that tests can cut and
//! corrupt.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use raft::eraftpb::{self, MessageType};
use rocks::snapshot::Manifest;
use rocks::{Keyspace, Options};
use storage::{rows, Reader, RegionState, WriteSet};
use types::{Draw, LogIndex, RegionDescriptor, RegionId, SlotRange, StoreId, Term};

use super::received::Key;
use super::wire::{Frame, Wire};
use super::{Clock, Counts, Limits, RealClock, SnapshotHost, SnapshotService};
use crate::transport::frame::{self, Lane, Refusal};
use crate::transport::handshake::{self, Caller, Greeted, Introduced};
use crate::transport::keys::SecretKey;
use crate::transport::stream::{PeerSocket, PeerStream};
use crate::transport::{self, Identity, Inbound, InboundAnswer, Remote};

mod streams;

/// Long enough for a slow machine. A passing test never waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
const SOURCE: StoreId = 1;
const TARGET: StoreId = 2;

#[derive(Debug, PartialEq)]
enum Event {
    Made(RegionId, LogIndex, Term, RegionDescriptor),
    Failed(RegionId),
    Sent(RegionId, StoreId, bool),
    Delivered(StoreId, RegionId, eraftpb::Message),
}

/// Holds transfers between the check for room and the delivery until `expected` of them have
/// arrived, and counts them.
#[derive(Default)]
struct Meeting {
    expected: usize,
    arrived: std::sync::Mutex<usize>,
    all_here: Condvar,
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Meeting {
    fn enter(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let mut arrived = self.arrived.lock().unwrap();
        *arrived += 1;
        self.all_here.notify_all();
        while *arrived < self.expected {
            arrived = self.all_here.wait(arrived).unwrap();
        }
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Host {
    this: StoreId,
    keyspace: Keyspace,
    target: Mutex<Option<SocketAddr>>,
    /// The addresses of stores that are not at `target`.
    others: Mutex<BTreeMap<StoreId, SocketAddr>>,
    room: AtomicU64,
    may_stream: AtomicBool,
    leads: AtomicBool,
    meeting: Option<Meeting>,
    events: Mutex<mpsc::Sender<Event>>,
}

impl Host {
    fn tell(&self, event: Event) {
        let _ = self.events.lock().send(event);
    }
}

impl SnapshotHost for Host {
    fn rows_failed(&self, error: &storage::StorageError) {
        panic!("{error}");
    }

    fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    fn target(&self, store: StoreId) -> Option<(SocketAddr, Caller)> {
        let caller = Caller::new(identity_of(self.this), store, Lane::Snapshot).unwrap();
        let other = self.others.lock().get(&store).copied();
        other.or(*self.target.lock()).map(|address| (address, caller))
    }

    fn may_stream(&self) -> bool {
        self.may_stream.load(Ordering::SeqCst)
    }

    fn leads(&self, _region: RegionId) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    fn room(&self) -> u64 {
        if let Some(meeting) = &self.meeting {
            meeting.enter();
        }
        self.room.load(Ordering::SeqCst)
    }

    fn made(&self, region: RegionId, index: LogIndex, term: Term, descriptor: RegionDescriptor) {
        self.tell(Event::Made(region, index, term, descriptor));
    }

    fn failed(&self, region: RegionId) {
        self.tell(Event::Failed(region));
    }

    fn sent(&self, region: RegionId, to: StoreId, ok: bool) {
        self.tell(Event::Sent(region, to, ok));
    }

    fn deliver(&self, from: StoreId, region: RegionId, message: eraftpb::Message) {
        if let Some(meeting) = &self.meeting {
            meeting.leave();
        }
        self.tell(Event::Delivered(from, region, message));
    }
}

struct Lanes(Arc<SnapshotService>);

impl Inbound for Lanes {
    fn bytes_at_once(&self) -> usize {
        1 << 20
    }

    fn raft(&self, _: StoreId, _: Vec<(RegionId, eraftpb::Message)>, _: crate::transport::Place) {}
    fn heartbeat(&self, _from: StoreId, _report: Bytes) {}
    fn order(&self, _from: StoreId, _order: Bytes) {}
    fn announce(&self, _from: StoreId, _descriptor: Bytes) {}

    fn admit(&self, _caller: &Introduced) -> Result<(), Refusal> {
        Ok(())
    }

    fn is_welcome(&self, _from: &Remote) -> bool {
        true
    }

    fn request(self: Arc<Self>, _from: Remote, _kind: u8, _body: Bytes) -> InboundAnswer {
        unreachable!("nobody asks")
    }

    fn snapshot_lane(&self, from: StoreId, stream: PeerStream, read: BytesMut) {
        self.0.receive(from, stream, read);
    }

    fn too_long(&self, _bytes: usize) -> (u8, Bytes) {
        unreachable!("nobody asks")
    }
}

/// A store with a service and a listener.
struct Side {
    service: Arc<SnapshotService>,
    host: Arc<Host>,
    events: mpsc::Receiver<Event>,
    address: SocketAddr,
    _listening: tokio::runtime::Runtime,
}

impl Side {
    fn event(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event arrives in time")
    }

    fn counts(&self) -> Counts {
        self.service.counts()
    }

    fn keys(&self) -> Vec<Key> {
        self.service.running().unwrap().0.received.keys()
    }

    /// Sweeps as if everything unused were too old.
    fn sweep(&self) {
        let (shared, queues) = self.service.running().unwrap();
        shared.maker.sweep(Instant::now());
        queues.remove(shared.received.sweep(Instant::now(), Instant::now()));
    }
}

fn start(dir: &Path, this: StoreId, limits: Limits, meeting: Option<Meeting>) -> Side {
    start_with(dir, this, limits, meeting, Arc::new(RealClock(Instant::now())))
}

fn start_with(
    dir: &Path,
    this: StoreId,
    limits: Limits,
    meeting: Option<Meeting>,
    clock: Arc<dyn Clock>,
) -> Side {
    let (sender, events) = mpsc::channel();
    let options = Options::default().scaled(1.0 / 64.0);
    let host = Arc::new(Host {
        this,
        keyspace: Keyspace::open(&dir.join("rows"), &options).unwrap(),
        target: Mutex::new(None),
        others: Mutex::default(),
        room: AtomicU64::new(u64::MAX),
        may_stream: AtomicBool::new(false),
        leads: AtomicBool::new(true),
        meeting,
        events: Mutex::new(sender),
    });
    let snapshots = dir.join("snapshots");
    let service = SnapshotService::with_clock(&snapshots, limits, host.clone(), clock).unwrap();
    let service = Arc::new(service);
    let listening =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = listening.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    listening.spawn(transport::listen(listener, identity_of(this), Arc::new(Lanes(service.clone()))));
    Side { service, host, events, address, _listening: listening }
}

fn limits() -> Limits {
    Limits { rate: 0, file_bytes: 3 * MIB as u64, ..Limits::default() }
}

struct Pair {
    source: Side,
    target: Side,
    dir: tempfile::TempDir,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(limits(), limits(), None)
    }

    fn with(source: Limits, target: Limits, meeting: Option<Meeting>) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let source = start(&dir.path().join("source"), SOURCE, source, None);
        let target = start(&dir.path().join("target"), TARGET, target, meeting);
        *source.host.target.lock() = Some(target.address);
        Pair { source, target, dir }
    }

    /// Makes a snapshot at the source. Returns the message to send.
    fn make(&self, region: RegionId) -> eraftpb::Message {
        self.source.service.make(region);
        match self.source.event() {
            Event::Made(made, index, term, descriptor) if made == region => {
                assert_eq!(descriptor, descriptor_of(region));
                let mut message = message(index, term);
                message.mut_snapshot().data = descriptor.encode();
                message
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the target got the snapshot and the source was told so.
    fn arrives(&self, region: RegionId, message: &eraftpb::Message) {
        assert_eq!(self.target.event(), Event::Delivered(SOURCE, region, message.clone()));
        assert_eq!(self.source.event(), Event::Sent(region, TARGET, true));
    }

    fn received(&self) -> std::path::PathBuf {
        self.dir.path().join("target/snapshots/received")
    }

    fn made(&self) -> std::path::PathBuf {
        self.dir.path().join("source/snapshots/made")
    }

    /// Ingests at the target, which then has the same rows.
    fn ingest(&self, region: RegionId, message: &eraftpb::Message) {
        let metadata = message.get_snapshot().get_metadata();
        let (descriptor, index, term) = (descriptor_of(region), metadata.index, metadata.term);
        let slots = [descriptor.slots.unwrap()];
        self.target.service.ingest(&descriptor, index, term, &slots).unwrap();
        assert_eq!(rows_of(&self.target.host.keyspace, region), rows_of(&self.source.host.keyspace, region));
        // Repeats the call, as after a crash before the first call was recorded.
        self.target.service.ingest(&descriptor, index, term, &slots).unwrap();
    }
}

fn message(index: LogIndex, term: Term) -> eraftpb::Message {
    let mut message = eraftpb::Message { from: 1, to: 2, term: term + 1, ..Default::default() };
    message.set_msg_type(MessageType::MsgSnapshot);
    let metadata = message.mut_snapshot().mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    message
}

fn descriptor_of(region: RegionId) -> RegionDescriptor {
    let first = region as u16 * 10;
    RegionDescriptor::founded(region, Some(SlotRange { first, last: first + 9 }), &[SOURCE, TARGET])
}

/// Fills a region at `index` with this many incompressible bytes.
fn fill(keyspace: &Keyspace, region: RegionId, index: LogIndex, bytes: usize) {
    const VALUE_BYTES: usize = 64 << 10;
    let descriptor = descriptor_of(region);
    let (from, _) = rows::slots_range(descriptor.slots.unwrap());
    let mut draw = Draw::new(index);
    let data = (0..bytes.div_ceil(VALUE_BYTES)).map(|number| {
        let row = [&from[..], &(number as u32).to_be_bytes()].concat();
        let words = std::iter::repeat_with(|| draw.number());
        let value: Vec<u8> = words.take(VALUE_BYTES / 8).flat_map(u64::to_be_bytes).collect();
        (row.into(), Some(value.into()))
    });
    let mut state = RegionState::default();
    (state.applied_index, state.applied_term) = (index, index / 10);
    let state_row = rows::region_state_row(region);
    let descriptor_row = rows::region_descriptor_row(region);
    let own = [(state_row, Some(state.encode())), (descriptor_row, Some(descriptor.encode()))];
    let rows = data.chain(own).collect();
    keyspace.write(WriteSet { ranges_deleted: vec![], rows });
}

fn rows_of(keyspace: &Keyspace, region: RegionId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let own = rows::region_state_row(region);
    let ranges =
        [rows::slots_range(descriptor_of(region).slots.unwrap()), (own.clone(), rows::prefix_end(&own))];
    for (from, to) in ranges {
        let visit = &mut |row: &[u8], value: &[u8]| {
            found.insert(row.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        keyspace.scan(&from, &to, visit).unwrap();
    }
    assert!(!found.is_empty());
    found
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The connection breaks after this many bytes to the receiver.
    CutAfter(usize),
    /// The connection breaks after this many bytes to the sender.
    CutBackAfter(usize),
    /// One bit changes on the way to the receiver.
    FlipAt(usize),
}

/// Forwards connections to `to`. Each connection gets the next fault, and later ones none.
fn proxy(to: SocketAddr, faults: &[Fault]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let faults = faults.to_vec();
    std::thread::spawn(move || {
        let mut faults = faults.into_iter();
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
            let fault = faults.next().unwrap_or(Fault::None);
            let (back_from, back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            let cut_back = if let Fault::CutBackAfter(bytes) = fault { bytes } else { usize::MAX };
            std::thread::spawn(move || pass_on(back_from, back_to, cut_back, None));
            let (cut, flip) = match fault {
                Fault::CutAfter(bytes) => (bytes, None),
                Fault::FlipAt(at) => (usize::MAX, Some(at)),
                _ => (usize::MAX, None),
            };
            std::thread::spawn(move || pass_on(near, far, cut, flip));
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, cut_after: usize, flip_at: Option<usize>) {
    let mut buffer = vec![0; 64 << 10];
    let mut passed = 0;
    while let Ok(read) = from.read(&mut buffer) {
        let read = read.min(cut_after - passed);
        if let Some(at) = flip_at.and_then(|at| at.checked_sub(passed)).filter(|at| *at < read) {
            buffer[at] ^= 0x20;
        }
        passed += read;
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// Waits until the background thread has deleted the files.
fn until_empty(dir: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while !is_empty(dir) {
        assert!(Instant::now() < deadline, "{} is not emptied", dir.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_snapshot_goes_from_one_store_to_another_and_leaves_no_files() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, 7 * MIB);
    let message = pair.make(3);
    assert_eq!(message.get_snapshot().get_metadata().index, 50);
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let (source, target) = (pair.source.counts(), pair.target.counts());
    assert!(source.made_bytes > 7 * MIB as u64);
    assert_eq!((source.made, source.sent, source.sent_bytes), (1, 1, source.made_bytes));
    assert_eq!((target.received, target.received_bytes, target.resumed), (1, source.made_bytes, 0));

    pair.ingest(3, &message);
    assert_eq!(pair.target.counts().ingested, 1);
    until_empty(&pair.received());
    assert!(!is_empty(&pair.made()));
    pair.source.service.forget(3);
    until_empty(&pair.made());
}

#[test]
fn a_transfer_that_breaks_off_in_a_file_goes_on_where_it_was() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, 8 * MIB);
    let message = pair.make(3);
    // Breaks in the middle of a file, before an offer, and in the middle of another file.
    let faults = [Fault::CutAfter(4 * MIB + MIB / 2), Fault::CutAfter(10), Fault::CutAfter(2 * MIB + 1000)];
    *pair.source.host.target.lock() = Some(proxy(pair.target.address, &faults));
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let (source, target) = (pair.source.counts(), pair.target.counts());
    assert_eq!((target.received, target.resumed, target.damaged), (1, 2, 0));
    assert_eq!(target.received_bytes, source.made_bytes, "no byte was received twice");
    assert!(source.sent_bytes > source.made_bytes);
    pair.ingest(3, &message);
}

#[test]
fn a_frame_that_was_bent_on_the_way_is_noticed_and_sent_again() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, 8 * MIB);
    let message = pair.make(3);
    *pair.source.host.target.lock() = Some(proxy(pair.target.address, &[Fault::FlipAt(MIB + MIB / 2)]));
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let target = pair.target.counts();
    assert_eq!((target.received, target.resumed, target.damaged), (1, 1, 1));
    pair.ingest(3, &message);
}

#[test]
fn a_snapshot_that_was_damaged_before_it_was_sent_is_given_up_and_made_anew() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, 5 * MIB);
    let message = pair.make(3);
    let made = std::fs::read_dir(pair.made()).unwrap().next().unwrap().unwrap().path();
    let file = made.join(Manifest::file_name(1));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[MIB] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    pair.source.service.send(3, TARGET, message.clone());
    assert_eq!(pair.source.event(), Event::Sent(3, TARGET, false));
    let target = pair.target.counts();
    assert_eq!((target.received, target.refused, target.damaged), (0, 1, 3));
    until_empty(&pair.made());

    let again = pair.make(3);
    assert_eq!(again, message, "nothing was applied in between");
    assert_eq!(pair.source.counts().made, 2);
    pair.source.service.send(3, TARGET, again.clone());
    pair.arrives(3, &again);
    pair.ingest(3, &message);
}

#[test]
fn a_store_without_room_refuses_and_one_that_finds_room_takes_it() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, 5 * MIB);
    let message = pair.make(3);
    let bytes = pair.source.counts().made_bytes;
    pair.target.host.room.store(bytes - 1, Ordering::SeqCst);
    pair.source.service.send(3, TARGET, message.clone());
    assert_eq!(pair.source.event(), Event::Sent(3, TARGET, false));
    assert_eq!((pair.target.counts().refused, pair.target.counts().received_bytes), (1, 0));
    pair.target.host.room.store(bytes, Ordering::SeqCst);
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);

    // The same check applies at the store that makes the snapshot.
    pair.source.host.room.store(MIB as u64, Ordering::SeqCst);
    fill(&pair.source.host.keyspace, 4, 60, 2 * MIB);
    pair.source.service.make(4);
    assert_eq!(pair.source.event(), Event::Failed(4));
    pair.source.service.make(99);
    assert_eq!(pair.source.event(), Event::Failed(99), "the region is not here");
    assert_eq!(pair.source.counts().make_failed, 2);
}

#[test]
fn as_many_as_the_limit_are_received_at_once_and_no_more() {
    for streams in [1, 2] {
        let meeting = Meeting { expected: streams, ..Meeting::default() };
        let of_target = Limits { streams, ..limits() };
        let pair = Pair::with(limits(), of_target, Some(meeting));
        let regions = [3, 4, 5, 6];
        let mut expected = BTreeMap::new();
        for region in regions {
            fill(&pair.source.host.keyspace, region, 50 + region, MIB);
            expected.insert(region, pair.make(region));
        }
        for (region, message) in &expected {
            pair.source.service.send(*region, TARGET, message.clone());
        }
        let mut sent = Vec::new();
        for _ in regions {
            match pair.target.event() {
                Event::Delivered(SOURCE, region, message) => assert_eq!(expected[&region], message),
                other => panic!("{other:?}"),
            }
            match pair.source.event() {
                Event::Sent(region, TARGET, true) => sent.push(region),
                other => panic!("{other:?}"),
            }
        }
        sent.sort_unstable();
        assert_eq!(sent, regions);
        let most = pair.target.host.meeting.as_ref().unwrap().most.load(Ordering::SeqCst);
        assert_eq!(most, streams);
    }
}

/// A clock on which time passes only by sleeping.
#[derive(Default)]
struct FakeClock(Mutex<Duration>);

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        *self.0.lock()
    }

    fn sleep(&self, duration: Duration) {
        *self.0.lock() += duration;
    }
}

#[test]
fn making_and_sending_keep_to_the_rate() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::default());
    // The test uses one stream, because the clock cannot model parallel sleeps.
    let limits = Limits { streams: 1, rate: MIB as u64, ..limits() };
    let source = start_with(&dir.path().join("source"), SOURCE, limits, None, clock.clone());
    let target = start(&dir.path().join("target"), TARGET, self::limits(), None);
    *source.host.target.lock() = Some(target.address);
    let pair = Pair { source, target, dir };
    fill(&pair.source.host.keyspace, 3, 50, 6 * MIB);
    // This covers the burst that a token bucket allows, and the rounding.
    let saved = Duration::from_millis(51);
    let seconds = |bytes: u64| Duration::from_secs_f64(bytes as f64 / MIB as f64);

    let message = pair.make(3);
    let made_at = clock.now();
    assert!(made_at + saved >= seconds(6 * MIB as u64 - (256 << 10)), "{made_at:?}");
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let took = clock.now() - made_at;
    assert!(took + saved >= seconds(pair.source.counts().sent_bytes), "{took:?}");
    assert!(took <= seconds(pair.source.counts().sent_bytes) + saved, "{took:?}");

    pair.source.service.set_rate(0);
    fill(&pair.source.host.keyspace, 3, 51, 6 * MIB);
    let before = clock.now();
    let message = pair.make(3);
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    assert_eq!(clock.now(), before);
}

#[test]
fn what_a_stopped_store_had_received_is_there_when_it_starts_again() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, 8 * MIB);
    let message = pair.make(3);
    let bytes = pair.source.counts().made_bytes;
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let Pair { source, target, dir } = pair;
    assert_eq!(target.counts().received_bytes, bytes);
    drop(target);

    // The files look as if the process had ended during the second file.
    let received = dir.path().join("target/snapshots/received/3-50-5");
    let manifest = Manifest::read(&received).unwrap();
    std::fs::rename(received.join("MANIFEST"), received.join("OFFER")).unwrap();
    let second = received.join(Manifest::file_name(1));
    let part = second.with_extension("part");
    std::fs::rename(&second, &part).unwrap();
    let half = manifest.files[1].bytes / 2;
    std::fs::File::options().write(true).open(&part).unwrap().set_len(half).unwrap();
    for file in 2..manifest.files.len() {
        std::fs::remove_file(received.join(Manifest::file_name(file))).unwrap();
    }
    let unknown = dir.path().join("target/snapshots/received/3-49-4");
    std::fs::create_dir(&unknown).unwrap();

    let target = start(&dir.path().join("target"), TARGET, limits(), None);
    assert!(!unknown.exists(), "a part without an offer is useless");
    *source.host.target.lock() = Some(target.address);
    let pair = Pair { source, target, dir };
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let counts = pair.target.counts();
    assert_eq!((counts.received, counts.resumed), (1, 1));
    assert_eq!(counts.received_bytes, bytes - manifest.files[0].bytes - half);
    pair.ingest(3, &message);
}

#[test]
fn a_whole_snapshot_outlives_a_restart_and_parts_and_leftovers_go_in_time() {
    let pair = Pair::new();
    for region in [3, 4] {
        fill(&pair.source.host.keyspace, region, 50, 2 * MIB);
    }
    let message = pair.make(3);
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let Pair { source, target, dir } = pair;
    drop(target);
    let target = start(&dir.path().join("target"), TARGET, limits(), None);
    *source.host.target.lock() = Some(target.address);
    let pair = Pair { source, target, dir };
    assert_eq!(pair.target.keys(), [Key { region: 3, index: 50, term: 5 }]);
    pair.ingest(3, &message);

    let message = pair.make(4);
    pair.source.service.send(4, TARGET, message.clone());
    pair.arrives(4, &message);
    assert_eq!(pair.target.keys().len(), 1);
    pair.target.sweep();
    until_empty(&pair.received());
    pair.source.sweep();
    until_empty(&pair.made());
    let gone = pair.target.service.ingest(&descriptor_of(4), 50, 5, &[descriptor_of(4).slots.unwrap()]);
    assert!(gone.is_err(), "without rows and files the ingest must fail");

    std::fs::create_dir(pair.made().join("9-1.unfinished")).unwrap();
    let Pair { source, dir, .. } = pair;
    drop(source);
    drop(start(&dir.path().join("source"), SOURCE, limits(), None));
    assert!(is_empty(&dir.path().join("source/snapshots/made")));
}

#[test]
fn an_accepted_snapshot_is_kept_however_long_it_waits() {
    let pair = Pair::new();
    for region in [3, 4] {
        fill(&pair.source.host.keyspace, region, 50, 2 * MIB);
    }
    let messages = [3, 4].map(|region| {
        let message = pair.make(region);
        pair.source.service.send(region, TARGET, message.clone());
        pair.arrives(region, &message);
        message
    });
    pair.target.service.accept(3, 50, 5);
    // There is no room for the snapshot for hours.
    for _ in 0..2 {
        pair.target.sweep();
        assert_eq!(pair.target.keys(), [Key { region: 3, index: 50, term: 5 }]);
        let refused = pair.target.service.ingest(&descriptor_of(3), 50, 6, &[]);
        assert!(refused.is_err(), "the snapshot is of another term");
    }
    // The sender does not know that the snapshot was accepted. The receiver tells it that it has
    // the snapshot.
    pair.source.service.send(3, TARGET, messages[0].clone());
    pair.arrives(3, &messages[0]);
    pair.ingest(3, &messages[0]);
    until_empty(&pair.received());
    let gone = pair.target.service.ingest(&descriptor_of(4), 50, 5, &[descriptor_of(4).slots.unwrap()]);
    assert!(gone.is_err(), "the other snapshot was not accepted, and was deleted");
}

#[test]
fn a_part_of_an_earlier_snapshot_gives_way_to_a_later_one() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, 5 * MIB);
    let early = pair.make(3);
    let straight = pair.target.address;
    *pair.source.host.target.lock() = Some(proxy(straight, &[Fault::CutAfter(2 * MIB); 1000]));
    pair.source.service.send(3, TARGET, early);
    let deadline = Instant::now() + PATIENCE;
    while pair.target.keys() != [Key { region: 3, index: 50, term: 5 }] {
        assert!(Instant::now() < deadline, "the earlier transfer never began");
        std::thread::sleep(Duration::from_millis(2));
    }

    fill(&pair.source.host.keyspace, 3, 60, 4 * MIB);
    *pair.source.host.target.lock() = None;
    let late = pair.make(3);
    *pair.source.host.target.lock() = Some(straight);
    pair.source.service.send(3, TARGET, late.clone());
    pair.arrives(3, &late);
    // A connection of the earlier transfer that is still open keeps its part until the ingest.
    assert!(pair.target.keys().contains(&Key { region: 3, index: 60, term: 6 }));
    pair.ingest(3, &late);
    until_empty(&pair.received());
}

#[test]
fn the_message_is_delivered_once_for_each_time_that_it_is_sent() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, MIB / 2);
    let message = pair.make(3);
    // There is one file of data and one of the region's own rows, a frame each: `go`, two `taken`,
    // and half of `done`.
    const PLACE_FRAME_BYTES: usize = 4 + 1 + 4 + 8;
    let cut = Fault::CutBackAfter(3 * PLACE_FRAME_BYTES + 2);
    *pair.source.host.target.lock() = Some(proxy(pair.target.address, &[cut]));
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let bytes = pair.target.counts().received_bytes;
    assert_eq!(bytes, pair.source.counts().made_bytes);

    // Sending the snapshot again delivers the message again, without the files.
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    assert_eq!(pair.target.counts().received_bytes, bytes);
    assert_eq!(pair.target.events.try_recv(), Err(mpsc::TryRecvError::Empty));
}

#[test]
fn a_snapshot_is_made_once_for_all_who_ask_and_again_when_more_was_applied() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, MIB);
    assert_eq!(pair.make(3), pair.make(3));
    assert_eq!(pair.source.counts().made, 1);
    let early = pair.make(3);
    fill(&pair.source.host.keyspace, 3, 51, MIB);
    let late = pair.make(3);
    assert_eq!(late.get_snapshot().get_metadata().index, 51);
    assert_eq!(std::fs::read_dir(pair.made()).unwrap().count(), 1, "only the newest is kept");
    pair.source.service.send(3, TARGET, early);
    assert_eq!(pair.source.event(), Event::Sent(3, TARGET, false), "the files are gone");
}

#[test]
fn a_store_that_is_not_there_is_given_up_when_patience_ends() {
    let pair = Pair::with(Limits { patience: Duration::from_millis(1), ..limits() }, limits(), None);
    fill(&pair.source.host.keyspace, 3, 50, MIB);
    let message = pair.make(3);
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    for target in [Some(nobody), None] {
        *pair.source.host.target.lock() = target;
        pair.source.service.send(3, TARGET, message.clone());
        assert_eq!(pair.source.event(), Event::Sent(3, TARGET, false));
    }
}

#[test]
fn stopping_does_not_wait_for_another_store() {
    let forever = Limits { patience: Duration::from_secs(3600), ..limits() };
    let pair = Pair::with(forever.clone(), forever, None);
    fill(&pair.source.host.keyspace, 3, 50, MIB);
    let message = pair.make(3);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    *pair.source.host.target.lock() = Some(silent.local_addr().unwrap());
    pair.source.service.send(3, TARGET, message);
    let _taken = accept_in_silence(&silent);
    let _waiting = connect_as(9, &pair.target);
    pair.source.service.stop();
    pair.target.service.stop();
    assert_eq!(pair.source.events.try_recv(), Err(mpsc::TryRecvError::Empty), "no event is sent");
    assert_eq!(Arc::strong_count(&pair.source.host), 1, "nothing holds on to the store");
    pair.source.service.make(3);
}

#[test]
fn a_transfer_that_waits_makes_way_when_it_is_no_longer_wanted() {
    let one = Limits { streams: 1, patience: Duration::from_secs(3600), ..limits() };
    let pair = Pair::with(one, limits(), None);
    for region in [3, 4] {
        fill(&pair.source.host.keyspace, region, 50, MIB);
    }
    let (first, second) = (pair.make(3), pair.make(4));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    *pair.source.host.target.lock() = Some(silent.local_addr().unwrap());
    pair.source.service.send(3, TARGET, first);
    let _taken = accept_in_silence(&silent);
    *pair.source.host.target.lock() = Some(pair.target.address);
    pair.source.service.send(4, TARGET, second.clone());
    pair.source.service.forget(3);
    pair.arrives(4, &second);
}

/// Returns the identity of a store of these tests. Each store trusts the first key that it sees for
/// another store.
fn identity_of(store: StoreId) -> Arc<Identity> {
    let (identity, _) = Identity::new(store, 7, SecretKey::numbered(store as u8), 0, None);
    identity.set_members((0..10).map(|id| (id, None)));
    Arc::new(identity)
}

/// Connects to the target as store `from`.
fn connect_as(from: StoreId, target: &Side) -> PeerSocket {
    let stream = TcpStream::connect(target.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let caller = Caller::new(identity_of(from), TARGET, Lane::Snapshot).unwrap();
    caller.introduce(stream).unwrap()
}

/// Accepts a connection as the target does, and then sends nothing.
fn accept_in_silence(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut hear = || {
        let mut bytes = BytesMut::new();
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.extend_from_slice(&byte);
            if let Some(frame) = handshake::take(&mut bytes).unwrap() {
                return frame;
            }
        }
    };
    let frame::Frame::Hello(hello) = hear() else { panic!("no hello") };
    let (_, challenge) = Greeted::new(&identity_of(TARGET), hello, &[]).unwrap();
    (&stream).write_all(&challenge).unwrap();
    stream
}

#[test]
fn of_two_stores_that_send_the_same_the_second_waits_and_of_one_the_former_connection_ends() {
    let pair = Pair::new();
    fill(&pair.source.host.keyspace, 3, 50, MIB);
    let message = pair.make(3);
    let manifest = pair.source.service.running().unwrap().0.maker.made_at(3, 50).unwrap().manifest.encode();
    let offer = || Frame::Offer {
        attempt: 1,
        region: 3,
        message: protobuf::Message::write_to_bytes(&message).unwrap().into(),
        manifest: manifest.clone(),
    };
    let connect = |from| {
        let mut wire = Wire::new(connect_as(from, &pair.target), BytesMut::new());
        wire.send(&offer()).unwrap();
        wire
    };
    let mut first = connect(8);
    assert!(matches!(first.receive().unwrap(), Frame::Go(_)));
    assert!(matches!(connect(9).receive().unwrap(), Frame::Refused { may_come_again: true, .. }));
    // The first connection is still open. It ends when its store opens another.
    assert!(matches!(connect(8).receive().unwrap(), Frame::Refused { may_come_again: true, .. }));
    assert!(first.receive().is_err());
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
}

#[test]
fn nonsense_is_refused_or_hung_up_on_and_leaves_nothing() {
    let pair = Pair::with(limits(), Limits { streams: 1, ..limits() }, None);
    fill(&pair.source.host.keyspace, 3, 50, MIB);
    let message = pair.make(3);
    let (shared, _) = pair.source.service.running().unwrap();
    let manifest = shared.maker.made_at(3, 50).unwrap().manifest.encode();
    let encoded =
        |message: &eraftpb::Message| Bytes::from(protobuf::Message::write_to_bytes(message).unwrap());
    let offer = |region, message: &eraftpb::Message, manifest: &Bytes| Frame::Offer {
        attempt: 1,
        region,
        message: encoded(message),
        manifest: manifest.clone(),
    };
    let mut of_another_region = message.clone();
    of_another_region.mut_snapshot().data = descriptor_of(4).encode();
    let mut no_snapshot = message.clone();
    no_snapshot.set_msg_type(MessageType::MsgHeartbeat);
    let refused = [
        offer(4, &message, &manifest),
        offer(3, &of_another_region, &manifest),
        offer(3, &no_snapshot, &manifest),
        offer(3, &self::message(51, 5), &manifest),
        offer(3, &message, &manifest.slice(1..)),
        Frame::Offer {
            attempt: 1,
            region: 3,
            message: Bytes::from_static(b"\xff"),
            manifest: manifest.clone(),
        },
        Frame::Done,
    ];
    let connect = || Wire::new(connect_as(9, &pair.target), BytesMut::new());
    for frame in &refused {
        let mut wire = connect();
        wire.send(frame).unwrap();
        let answer = wire.receive().unwrap();
        assert!(matches!(answer, Frame::Refused { may_come_again: false, .. }), "{answer:?}");
    }
    assert!(is_empty(&pair.received()));
    let place = |file, offset| super::wire::Place { file, offset };
    for data in [
        Frame::data(place(0, 1), Bytes::from_static(b"x")),
        Frame::data(place(0, 0), Bytes::new()),
        Frame::data(place(0, 0), vec![0; 2 * MIB].into()),
        Frame::Data { at: place(0, 0), checksum: 1, bytes: Bytes::from_static(b"x") },
        Frame::Done,
    ] {
        let mut wire = connect();
        wire.send(&offer(3, &message, &manifest)).unwrap();
        assert_eq!(wire.receive().unwrap(), Frame::Go(place(0, 0)));
        wire.send(&data).unwrap();
        assert!(wire.receive().is_err(), "{data:?}");
    }
    // The only receiving thread still runs.
    drop(shared);
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
}
