//! Transfers of region snapshots between stores.
//!
//! ```text
//!  worker ─ make ─▶ a view of the rows ─▶ host.made
//!  worker ─ send ─▶ sender ══ a connection each ══▶ receiver ─▶ received/REGION-INDEX-TERM/
//!                     └─▶ host.sent                    └─▶ host.deliver (the raft message)
//!  worker of the receiving store ─ ingest ─▶ rows
//! ```
//!
//! The files are built while they are sent ([`streams`]). As long as the cluster may have stores
//! that cannot receive them so, they are made first (`made/REGION-NUMBER/`, [`maker`]).
//!
//! Everything here runs on threads of its own, one for each snapshot that may be handled at a time.
//! Other snapshots wait. The service makes no consensus decisions: the worker decides which
//! snapshot is needed and whether a received one is used.
//!
//! Invariants: the worker gets the Raft message only when every file that it refers to is present,
//! was verified by its checksum, and is durable. A snapshot that the worker has accepted is kept
//! until it or a later one of its region was ingested, or the region is forgotten. A snapshot that
//! is not accepted is deleted after an hour without use, the parts of a stream after eleven
//! minutes.

mod counters;
mod maker;
mod received;
mod receiver;
mod sender;
mod streamed;
mod streams;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use raft::eraftpb;
use rocks::snapshot::{Files, SnapshotError};
use rocks::{Keyspace, TokenBucket};
use rustix::fs::{fadvise, Advice};
use storage::StorageError;
use types::{LogIndex, RegionDescriptor, RegionId, SlotRange, StoreId, Term};

use crate::transport::handshake::Caller;
use crate::transport::stream::PeerStream;

pub use counters::{Counters, Counts};
use maker::Maker;
use received::Received;
use sender::{Outgoing, Sending};
use streams::Views;

/// The services of the store that this module needs, and the receiver of its reports. Called from
/// the service's threads.
pub trait SnapshotHost: Send + Sync + 'static {
    fn keyspace(&self) -> &Keyspace;
    /// Returns the address at which a store listens for other stores, and the caller that opens a
    /// snapshot connection there.
    fn target(&self, store: StoreId) -> Option<(SocketAddr, Caller)>;
    /// Returns the bytes that may be written before the free space falls to the reserve.
    fn room(&self) -> u64;
    /// Returns true if every store of the cluster can receive files that are built while they are
    /// sent.
    fn may_stream(&self) -> bool;
    /// Returns true if this store leads the region. No store takes a snapshot of a former leader.
    fn leads(&self, region: RegionId) -> bool;

    fn made(&self, region: RegionId, index: LogIndex, term: Term, descriptor: RegionDescriptor);
    fn failed(&self, region: RegionId);
    /// Rows cannot be read.
    fn rows_failed(&self, error: &StorageError);
    fn sent(&self, region: RegionId, to: StoreId, ok: bool);
    /// Delivers the message of a complete snapshot to the region's worker.
    fn deliver(&self, from: StoreId, region: RegionId, message: eraftpb::Message);
}

#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of snapshots made at a time.
    pub making: usize,
    /// Maximum number of views that are held at a time, and of transfers beyond the first of each
    /// view. Maximum number of snapshots received at a time.
    pub streams: usize,
    /// Maximum rate of all sent snapshots together, in bytes per second. The same limit applies to
    /// received and to created ones. 0 means no limit.
    pub rate: u64,
    /// Time without progress after which a stream is abandoned.
    pub patience: Duration,
    /// Maximum time for which a stream waits for its turn at the receiver.
    pub turn: Duration,
    /// Maximum time for which a view is held before the first store asks for it.
    pub unclaimed: Duration,
    /// The time after which unused files are deleted.
    pub kept: Duration,
    /// Maximum bytes of a snapshot's file.
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
            unclaimed: Duration::from_secs(10),
            kept: Duration::from_secs(3600),
            file_bytes: rocks::snapshot::FILE_BYTES,
        }
    }
}

impl Limits {
    /// Returns the time limit of socket operations. A socket does not accept zero.
    fn timeout(&self) -> Duration {
        self.patience.max(Duration::from_millis(1))
    }
}

/// Returns the directory of a received snapshot of the region as of this entry.
pub fn received_dir(snapshots: &Path, region: RegionId, index: LogIndex, term: Term) -> PathBuf {
    snapshots.join("received").join(received::directory(received::Key { region, index, term }))
}

/// The clock of the rate limit. Tests have their own.
pub trait Clock: Send + Sync {
    /// Returns the time since any fixed moment.
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

/// A rate limit that several threads share.
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

/// The state that the service's threads share.
struct Shared {
    limits: Limits,
    host: Arc<dyn SnapshotHost>,
    counters: Counters,
    stopping: AtomicBool,
    maker: Maker,
    views: Views,
    received: Received,
    /// The number of the last requested transfer of each region and target, until it ends.
    sending: Mutex<BTreeMap<(RegionId, StoreId), u64>>,
    next_attempt: AtomicU64,
    send_pace: Pacer,
    receive_pace: Pacer,
    make_pace: Pacer,
    /// All open connections. A stop shuts them down, so that it does not wait for another store.
    connections: Mutex<BTreeMap<u64, TcpStream>>,
    next_connection: AtomicU64,
    to_reclaim: AtomicU64,
}

pub struct SnapshotService {
    /// `None` after a stop, so that the service no longer refers to its store.
    running: Mutex<Option<Running>>,
}

struct Running {
    shared: Arc<Shared>,
    queues: Queues,
    threads: Vec<JoinHandle<()>>,
}

/// The queues of the threads. Dropping them ends the threads.
#[derive(Clone)]
struct Queues {
    to_make: crossbeam_channel::Sender<maker::Job>,
    to_send: crossbeam_channel::Sender<Outgoing>,
    to_receive: crossbeam_channel::Sender<receiver::Incoming>,
}

/// Maximum number of incoming connections that wait for a thread. Others are closed, and their
/// senders try again.
const INCOMING_WAITING_MAX: usize = 64;

impl SnapshotService {
    /// Starts the service over `dir`, the store's directory for snapshots. Deletes the unfinished
    /// files of an earlier run.
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
            views: Views::default(),
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

    /// Opens a view of the region's applied rows, or makes their files. The answer is
    /// [`made`](SnapshotHost::made) or [`failed`](SnapshotHost::failed). One answer covers all
    /// requests made before it.
    pub fn make(&self, region: RegionId) {
        let Some((shared, queues)) = self.running() else { return };
        if !shared.maker.request(region) {
            return;
        }
        if shared.host.may_stream() {
            let _ = queues.to_send.send(Outgoing::View(region));
        } else {
            let _ = queues.to_make.send(maker::Job::Make(region));
        }
    }

    /// Sends the snapshot that was made at the message's index, and then the message. The answer is
    /// [`sent`](SnapshotHost::sent). A new request replaces an unfinished transfer to the same
    /// store, which gets no answer of its own.
    pub fn send(&self, region: RegionId, to: StoreId, message: eraftpb::Message) {
        let Some((shared, queues)) = self.running() else { return };
        let attempt = shared.next_attempt.fetch_add(1, Ordering::Relaxed);
        shared.sending.lock().insert((region, to), attempt);
        // Holding the snapshot keeps its files, even if a newer one of the region is made.
        let snapshot = shared.maker.made_at(region, message.get_snapshot().get_metadata().index);
        let sending = Box::new(Sending { region, to, attempt, message, snapshot });
        match shared.views.request(sending) {
            Err(sending) if sending.snapshot.is_none() => sender::refuse(&shared, &sending),
            Err(sending) => drop(queues.to_send.send(Outgoing::Files(sending))),
            Ok(()) => {}
        }
    }

    /// Takes over a connection that another store opened for a snapshot. `read` is the input after
    /// its hello.
    pub fn receive(&self, from: StoreId, stream: PeerStream, mut read: BytesMut) {
        let Some((_, queues)) = self.running() else { return };
        let blocking = stream.into_socket(&mut read).and_then(|stream| {
            stream.socket.set_nonblocking(false)?;
            Ok(stream)
        });
        match blocking {
            Ok(stream) => drop(queues.to_receive.try_send(receiver::Incoming { from, stream, read })),
            Err(error) => tracing::warn!(from, %error, "a connection for a snapshot cannot be used"),
        }
    }

    /// Keeps a received snapshot until it was [ingested](Self::ingest) or the region is
    /// [forgotten](Self::forget). Must be called before the log records the acceptance, because
    /// from then on only this snapshot can replace the rows.
    pub fn accept(&self, region: RegionId, index: LogIndex, term: Term) {
        let Some((shared, _)) = self.running() else { return };
        shared.received.accept(received::Key { region, index, term });
    }

    /// Replaces the region's rows with those of a received snapshot, as
    /// [`ingest_snapshot`](Keyspace::ingest_snapshot) does, and blocks until that is durable. Then
    /// deletes its files and those of earlier snapshots. May be called again after an error.
    pub fn ingest(
        &self,
        descriptor: &RegionDescriptor,
        index: LogIndex,
        term: Term,
        previous: &[SlotRange],
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
                let why = "its manifest is of another snapshot".to_owned();
                return Err(SnapshotError::Damaged { path: dir, why });
            }
            match files {
                Files::Verified => keyspace.ingest_verified_snapshot(&dir, &manifest, previous)?,
                Files::Unknown => keyspace.ingest_snapshot(&dir, &manifest, previous)?,
            }
            Counters::add(&shared.counters.ingested, 1);
            drop(in_use);
        }
        queues.remove(shared.received.forget_up_to(key.region, index));
        Ok(())
    }

    /// Drops the snapshots of a region whose peer was removed, made and received. Transfers in
    /// progress end without an answer.
    pub fn forget(&self, region: RegionId) {
        let Some((shared, queues)) = self.running() else { return };
        shared.sending.lock().retain(|(of, _), _| *of != region);
        shared.views.forget(region);
        if let Some(made) = shared.maker.forget(region) {
            let _ = queues.to_make.send(maker::Job::Drop(made));
        }
        queues.remove(shared.received.forget_up_to(region, LogIndex::MAX));
    }

    /// Reclaims, in the background, the space of rows in these slots that were deleted by range.
    /// `bytes` is their number of key and value bytes.
    pub fn reclaim(&self, slots: SlotRange, bytes: u64) {
        let Some((shared, queues)) = self.running() else { return };
        shared.to_reclaim.fetch_add(bytes, Ordering::Relaxed);
        let _ = queues.to_make.send(maker::Job::Reclaim { slots, bytes });
    }

    /// Returns the bytes of deleted keys and values whose space is not reclaimed yet.
    pub fn to_reclaim(&self) -> u64 {
        self.running().map_or(0, |(shared, _)| shared.to_reclaim.load(Ordering::Relaxed))
    }

    /// Changes the rate limit, in bytes per second; 0 means no limit.
    pub fn set_rate(&self, rate: u64) {
        let Some((shared, _)) = self.running() else { return };
        for pace in [&shared.send_pace, &shared.receive_pace, &shared.make_pace] {
            pace.bucket.lock().set_rate(rate);
        }
    }

    pub fn counts(&self) -> Counts {
        self.running().map(|(shared, _)| shared.counters.read()).unwrap_or_default()
    }

    /// Ends all threads and blocks until they have ended. Transfers in progress end without an
    /// answer.
    pub fn stop(&self) {
        let Some(Running { shared, queues, threads }) = self.running.lock().take() else { return };
        shared.stopping.store(true, Ordering::SeqCst);
        drop(queues);
        for connection in shared.connections.lock().values() {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a snapshot thread had panicked");
            }
        }
    }

    fn running(&self) -> Option<(Arc<Shared>, Queues)> {
        self.running.lock().as_ref().map(|running| (running.shared.clone(), running.queues.clone()))
    }
}

impl Queues {
    /// Deletes directories on a background thread, because that may take a while.
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
            // The connection was registered after the others were shut down.
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

/// Decodes a frame of a snapshot's connection, and the offer in it.
pub fn fuzz(content: Bytes) {
    if let Some(frame) = wire::fuzz(content) {
        receiver::fuzz(frame);
    }
}

/// Tells the kernel that the file's pages are no longer needed, so that it keeps pages of rows
/// instead.
fn read_no_more(file: &std::fs::File) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// Parses the numbers in a directory's name: `7-500` or `7-500-3`.
fn numbers<const N: usize>(name: &str) -> Option<[u64; N]> {
    let mut parts = name.split('-').map(|part| part.parse().ok());
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = parts.next()??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Deletes a directory. The next start retries a failed deletion.
fn remove(dir: &Path) {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(dir = %dir.display(), %error, "files of a snapshot cannot be deleted");
        }
        _ => {}
    }
}

/// Returns the directories in `dir`, with their names.
fn entries(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let named = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
    };
    std::fs::read_dir(dir)?.map(named).collect()
}
