//! Snapshots of regions on their way from one store to another.
//!
//! ```text
//!  worker ─ make ─▶ maker ─▶ made/REGION-INDEX/ ─▶ host.made
//!  worker ─ send ─▶ sender ═══ one connection for each snapshot ═══▶ receiver ─▶ received/REGION-INDEX-TERM/
//!                     └─▶ host.sent                                      └─▶ host.deliver (the raft message)
//!  worker of the receiving store ─ ingest ─▶ rows
//! ```
//!
//! Everything here runs on threads of its own, as many as there may be snapshots at once; what is more waits.
//! The service decides nothing about consensus: which snapshot is needed, and what a received one is worth,
//! is the worker's to say.
//!
//! Invariants: the raft message is handed to the worker only when every file it speaks of is here, was
//! compared with its checksum, and is durable. A snapshot that the worker has accepted is kept until it or a later
//! one of its region was ingested, or the region is forgotten. One that is not accepted goes after an hour without
//! use.

mod counters;
mod maker;
mod received;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use raft::eraftpb;
use rocks::snapshot::{Files, SnapshotError, TokenBucket};
use rocks::Keyspace;
use types::{LogIndex, RegionDescriptor, RegionId, SlotRange, StoreId, Term};

use crate::transport::handshake::Caller;

pub use counters::{Counters, Counts};
use maker::Maker;
use received::Received;
use sender::Sending;

/// What the service asks of its store, and tells it. Called from the service's threads.
pub trait SnapshotHost: Send + Sync + 'static {
    fn keyspace(&self) -> &Keyspace;
    /// Where a store listens for other stores, and who begins a connection for a snapshot there.
    fn target(&self, store: StoreId) -> Option<(SocketAddr, Caller)>;
    /// Bytes that may be written before the data device is down to its reserve.
    fn room(&self) -> u64;

    fn made(&self, region: RegionId, index: LogIndex, term: Term, descriptor: RegionDescriptor);
    fn failed(&self, region: RegionId);
    fn sent(&self, region: RegionId, to: StoreId, ok: bool);
    /// A snapshot is here: the message that it came with is for the region's worker.
    fn deliver(&self, from: StoreId, region: RegionId, message: eraftpb::Message);
}

#[derive(Clone, Debug)]
pub struct Limits {
    /// Snapshots made at once.
    pub making: usize,
    /// Snapshots sent at once, and as many received.
    pub streams: usize,
    /// Bytes per second that all of them together send; as much again may be received, and made. 0: no limit.
    pub rate: u64,
    /// A stream that makes no progress for this long is given up.
    pub patience: Duration,
    /// How long a stream may wait for its turn at the receiver.
    pub turn: Duration,
    /// How long files are kept for a use that does not come.
    pub kept: Duration,
    /// Files of a snapshot are cut at this size.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            making: 1,
            streams: 4,
            rate: 100 << 20,
            patience: Duration::from_secs(60),
            turn: Duration::from_secs(600),
            kept: Duration::from_secs(3600),
            file_bytes: rocks::snapshot::FILE_BYTES,
        }
    }
}

impl Limits {
    /// How long a socket may be waited for; it takes no zero.
    fn timeout(&self) -> Duration {
        self.patience.max(Duration::from_millis(1))
    }
}

/// Where a snapshot of the region as of this entry is, once it was received.
pub fn received_dir(snapshots: &Path, region: RegionId, index: LogIndex, term: Term) -> PathBuf {
    snapshots.join("received").join(received::directory(received::Key { region, index, term }))
}

/// By which clock the rate is limited. Tests have one of their own.
pub trait Clock: Send + Sync {
    /// Since any fixed moment.
    fn now(&self) -> Duration;
    fn sleep(&self, duration: Duration);
}

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A rate that several threads share.
struct Pacer {
    bucket: Mutex<TokenBucket>,
    clock: Arc<dyn Clock>,
}

impl Pacer {
    fn new(rate: u64, clock: Arc<dyn Clock>) -> Pacer {
        Pacer { bucket: Mutex::new(TokenBucket::new(rate)), clock }
    }

    /// Waits until the bytes may be moved.
    fn pay(&self, bytes: usize) {
        let pause = self.bucket.lock().take(bytes as u64, self.clock.now());
        if !pause.is_zero() {
            self.clock.sleep(pause);
        }
    }
}

/// What the service's threads share.
struct Shared {
    limits: Limits,
    host: Arc<dyn SnapshotHost>,
    counters: Counters,
    stopping: AtomicBool,
    maker: Maker,
    received: Received,
    /// The transfers that were asked for and are not over, the last one of each region and target.
    sending: Mutex<BTreeMap<(RegionId, StoreId), u64>>,
    next_attempt: AtomicU64,
    send_pace: Pacer,
    receive_pace: Pacer,
    make_pace: Pacer,
    /// Every connection in use, so that stopping need not wait for another store.
    connections: Mutex<BTreeMap<u64, TcpStream>>,
    next_connection: AtomicU64,
    to_reclaim: AtomicU64,
}

pub struct SnapshotService {
    /// Nothing after it was stopped: it holds on to its store no longer.
    running: Mutex<Option<Running>>,
}

struct Running {
    shared: Arc<Shared>,
    queues: Queues,
    threads: Vec<JoinHandle<()>>,
}

/// Dropped to end the threads.
#[derive(Clone)]
struct Queues {
    to_make: crossbeam_channel::Sender<maker::Job>,
    to_send: crossbeam_channel::Sender<Sending>,
    to_receive: crossbeam_channel::Sender<receiver::Incoming>,
}

/// Incoming connections that may wait for a thread; more are closed, and come again.
const INCOMING_WAITING_MAX: usize = 64;

impl SnapshotService {
    /// Starts the service over `dir`, the store's directory for snapshots, and deletes there what an earlier
    /// run left unfinished.
    pub fn start(dir: &Path, limits: Limits, host: Arc<dyn SnapshotHost>) -> io::Result<SnapshotService> {
        Self::with_clock(dir, limits, host, Arc::new(RealClock(Instant::now())))
    }

    fn with_clock(
        dir: &Path,
        limits: Limits,
        host: Arc<dyn SnapshotHost>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<SnapshotService> {
        let (to_make, make_queue) = crossbeam_channel::unbounded();
        let (to_send, send_queue) = crossbeam_channel::unbounded();
        let (to_receive, receive_queue) = crossbeam_channel::bounded(INCOMING_WAITING_MAX);
        let pacer = || Pacer::new(limits.rate, clock.clone());
        let shared = Arc::new(Shared {
            host,
            counters: Counters::default(),
            stopping: AtomicBool::new(false),
            maker: Maker::open(dir.join("made"))?,
            received: Received::open(dir.join("received"))?,
            sending: Mutex::default(),
            next_attempt: AtomicU64::new(crate::clock::boot_nanos()),
            send_pace: pacer(),
            receive_pace: pacer(),
            make_pace: pacer(),
            connections: Mutex::default(),
            next_connection: AtomicU64::new(0),
            to_reclaim: AtomicU64::new(0),
            limits,
        });
        let mut threads = Vec::new();
        let mut spawn = |name: &str, body: Box<dyn FnOnce() + Send>| -> io::Result<()> {
            threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(body)?);
            Ok(())
        };
        for _ in 0..shared.limits.making {
            let (shared, queue) = (shared.clone(), make_queue.clone());
            spawn("snap-make", Box::new(move || maker::run(&shared, &queue)))?;
        }
        for _ in 0..shared.limits.streams {
            let (outgoing, queue) = (shared.clone(), send_queue.clone());
            spawn("snap-send", Box::new(move || sender::run(&outgoing, &queue)))?;
            let (incoming, queue) = (shared.clone(), receive_queue.clone());
            spawn("snap-receive", Box::new(move || receiver::run(&incoming, &queue)))?;
        }
        let queues = Queues { to_make, to_send, to_receive };
        Ok(SnapshotService { running: Mutex::new(Some(Running { shared, queues, threads })) })
    }

    /// Makes a snapshot of the region as it is applied. The answer is [`made`](SnapshotHost::made) or
    /// [`failed`](SnapshotHost::failed), one for all requests that came before it was there.
    pub fn make(&self, region: RegionId) {
        let Some((shared, queues)) = self.running() else { return };
        if shared.maker.request(region) {
            let _ = queues.to_make.send(maker::Job::Make(region));
        }
    }

    /// Sends the snapshot that was made at the message's index, and the message behind it. The answer is
    /// [`sent`](SnapshotHost::sent); a transfer to the same store that is still under way is given up for this
    /// one, without an answer of its own.
    pub fn send(&self, region: RegionId, to: StoreId, message: eraftpb::Message) {
        let Some((shared, queues)) = self.running() else { return };
        let attempt = shared.next_attempt.fetch_add(1, Ordering::Relaxed);
        shared.sending.lock().insert((region, to), attempt);
        // Held from now on: a newer snapshot of the region does not take its files away.
        let snapshot = shared.maker.made_at(region, message.get_snapshot().get_metadata().index);
        let _ = queues.to_send.send(Sending { region, to, attempt, message, snapshot });
    }

    /// Takes a connection over that another store opened for a snapshot. `read` is what came behind its hello.
    pub fn receive(&self, from: StoreId, stream: tokio::net::TcpStream, read: BytesMut) {
        let Some((_, queues)) = self.running() else { return };
        let blocking = stream.into_std().and_then(|stream| {
            stream.set_nonblocking(false)?;
            Ok(stream)
        });
        match blocking {
            Ok(stream) => drop(queues.to_receive.try_send(receiver::Incoming { from, stream, read })),
            Err(error) => tracing::warn!(from, %error, "a connection for a snapshot cannot be used"),
        }
    }

    /// Keeps a received snapshot until it was [ingested](Self::ingest), or the region is [forgotten](Self::forget). To be
    /// called before the log says that it was accepted, for from then on nothing else can replace the rows.
    pub fn accept(&self, region: RegionId, index: LogIndex, term: Term) {
        let Some((shared, _)) = self.running() else { return };
        shared.received.accept(received::Key { region, index, term });
    }

    /// Replaces the region's rows by those of a received snapshot, as
    /// [`ingest_snapshot`](Keyspace::ingest_snapshot) does, and blocks until that is durable. Its files
    /// and those of earlier ones are gone then. After an error it may be called again.
    pub fn ingest(
        &self,
        descriptor: &RegionDescriptor,
        index: LogIndex,
        term: Term,
        former: &[SlotRange],
    ) -> Result<(), SnapshotError> {
        let (shared, queues) = self.running().ok_or(SnapshotError::Cancelled)?;
        let keyspace = shared.host.keyspace();
        let key = received::Key { region: descriptor.id, index, term };
        if keyspace.is_snapshot_applied(descriptor, index, term)? {
            keyspace.flush()?;
        } else {
            let (in_use, files) = shared.received.begin_ingest(key);
            let dir = shared.received.dir(key);
            let manifest = rocks::snapshot::Manifest::read(&dir)?;
            if (&manifest.descriptor, manifest.index, manifest.term) != (descriptor, index, term) {
                let why = "it is not of the snapshot that is to be applied".to_owned();
                return Err(SnapshotError::Damaged { path: dir, why });
            }
            match files {
                Files::Verified => keyspace.ingest_verified_snapshot(&dir, &manifest, former)?,
                Files::Unknown => keyspace.ingest_snapshot(&dir, &manifest, former)?,
            }
            Counters::add(&shared.counters.ingested, 1);
            drop(in_use);
        }
        queues.remove(shared.received.forget_up_to(key.region, index));
        Ok(())
    }

    /// The store's peer of the region is gone: so are its snapshots, made and received, and those that are on
    /// their way, of which nobody is told any more.
    pub fn forget(&self, region: RegionId) {
        let Some((shared, queues)) = self.running() else { return };
        shared.sending.lock().retain(|(of, _), _| *of != region);
        if let Some(made) = shared.maker.forget(region) {
            let _ = queues.to_make.send(maker::Job::Drop(made));
        }
        queues.remove(shared.received.forget_up_to(region, LogIndex::MAX));
    }

    /// Gives back, in the background, the space of rows of these slots that were deleted by range: so many bytes
    /// of keys and values.
    pub fn reclaim(&self, slots: SlotRange, bytes: u64) {
        let Some((shared, queues)) = self.running() else { return };
        shared.to_reclaim.fetch_add(bytes, Ordering::Relaxed);
        let _ = queues.to_make.send(maker::Job::Reclaim { slots, bytes });
    }

    /// Bytes of keys and values that are gone, and whose space has yet to be given back.
    pub fn to_reclaim(&self) -> u64 {
        self.running().map_or(0, |(shared, _)| shared.to_reclaim.load(Ordering::Relaxed))
    }

    /// Changes the rate, in bytes per second; 0: no limit.
    pub fn set_rate(&self, rate: u64) {
        let Some((shared, _)) = self.running() else { return };
        for pace in [&shared.send_pace, &shared.receive_pace, &shared.make_pace] {
            pace.bucket.lock().set_rate(rate);
        }
    }

    pub fn counts(&self) -> Counts {
        self.running().map(|(shared, _)| shared.counters.read()).unwrap_or_default()
    }

    /// Ends all threads; what was under way is given up, and nobody is told. Blocks until they have ended.
    pub fn stop(&self) {
        let Some(Running { shared, queues, threads }) = self.running.lock().take() else { return };
        shared.stopping.store(true, Ordering::SeqCst);
        drop(queues);
        for connection in shared.connections.lock().values() {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread for snapshots had died");
            }
        }
    }

    fn running(&self) -> Option<(Arc<Shared>, Queues)> {
        self.running.lock().as_ref().map(|running| (running.shared.clone(), running.queues.clone()))
    }
}

impl Queues {
    /// Deletes directories, which may take a while, on a thread that has the time.
    fn remove(&self, dirs: Vec<PathBuf>) {
        for dir in dirs {
            let _ = self.to_make.send(maker::Job::Remove(dir));
        }
    }
}

impl Drop for SnapshotService {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Registers a connection for as long as the result lives.
    fn connection(self: &Arc<Self>, stream: &TcpStream) -> io::Result<Connection> {
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connections.lock().insert(id, stream.try_clone()?);
        let connection = Connection { shared: self.clone(), id };
        match self.is_stopping() {
            // Registered too late to be shut down with the others.
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(connection),
        }
    }
}

struct Connection {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.connections.lock().remove(&self.id);
    }
}

/// Tells the system that the file's pages are of no more use, so that it keeps those of rows instead.
fn read_no_more(file: &std::fs::File) {
    // SAFETY: the descriptor is open for as long as `file` lives; the call touches no memory of ours.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// The numbers in a directory's name: `7-500` or `7-500-3`.
fn numbers<const N: usize>(name: &str) -> Option<[u64; N]> {
    let mut parts = name.split('-').map(|part| part.parse().ok());
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = parts.next()??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Deletes a directory. What cannot be deleted now is deleted when the store starts.
fn remove(dir: &Path) {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(dir = %dir.display(), %error, "files of a snapshot cannot be deleted");
        }
        _ => {}
    }
}

/// The directories in `dir`, with their names.
fn entries(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let named = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
    };
    std::fs::read_dir(dir)?.map(named).collect()
}
