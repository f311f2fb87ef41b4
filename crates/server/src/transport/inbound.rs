//! The incoming side of the connections with other stores.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use cluster::StoreKey;
use parking_lot::Mutex;
use raft::eraftpb;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use types::{Output, RegionId, StoreId};

use super::frame::{self, Frame, Hello, Lane, Proof, Refusal, RefusalReason, FRAME_BYTES_MAX};
use super::handshake::{self, Greeted, Introduced};
use super::identity::{Identity, NO_STORE};
use super::output::{self, WRITE_BYTES};
use super::raft_lane::{decode_messages, RaftLane, Returned};
use super::socket;
use super::stream::PeerStream;
use crate::strangers::{Most, Stranger, Strangers};

pub type InboundAnswer = Pin<Box<dyn Future<Output = (u8, Bytes)> + Send>>;

/// The proved identity of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The store; `NO_STORE` if it is about to join.
    pub store: StoreId,
    pub key: StoreKey,
}

/// A share of the bytes that a connection may have in progress.
pub type Place = OwnedSemaphorePermit;

/// The receiver of frames from other stores.
pub trait Inbound: Send + Sync + 'static {
    /// Receives Raft messages. `place` holds their share of the connection's bytes until they are
    /// processed.
    fn raft(&self, from: StoreId, messages: Vec<(RegionId, eraftpb::Message)>, place: Place);
    /// Takes over a connection whose frames are Raft messages, to read it on another thread. The
    /// connection comes back with a part of a very large frame, or the reason for its end; the
    /// sender is dropped when the other store has closed it. Returns the connection if this handler
    /// has no thread that reads it.
    fn raft_lane(&self, lane: RaftLane) -> Result<oneshot::Receiver<Returned>, RaftLane> {
        Err(lane)
    }
    fn heartbeat(&self, from: StoreId, report: Bytes);
    fn order(&self, from: StoreId, order: Bytes);
    fn announce(&self, from: StoreId, descriptor: Bytes);
    /// Decides whether to admit a caller. The caller either has the right layout, a proved key and
    /// has reached the right store, or it is about to join.
    fn admit(&self, caller: &Introduced) -> Result<(), Refusal>;
    /// Returns true if an admitted store's standing has not changed since its admission.
    fn is_welcome(&self, from: &Remote) -> bool;
    /// Answers a request with a status byte and a body. `NO_STORE` asks before it joins.
    fn request(self: Arc<Self>, from: Remote, kind: u8, body: Bytes) -> InboundAnswer;
    /// Takes over a snapshot connection, with the input that was read after its hello.
    fn snapshot_lane(&self, from: StoreId, _stream: PeerStream, _read: BytesMut) {
        tracing::warn!(from, "a snapshot was offered to a store that accepts none");
    }
    /// Returns the maximum bytes of one connection's requests in progress, or of its unprocessed
    /// messages. More input waits in the socket.
    fn bytes_at_once(&self) -> usize;
    /// Returns the answer that replaces an answer of `bytes` bytes that fits into no frame.
    fn too_long(&self, bytes: usize) -> (u8, Bytes);
}

/// Minimum weight of a request in bytes, which covers its processing. The weight is at most the
/// connection's limit.
const REQUEST_WEIGHT_MIN: usize = 4 << 10;
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
const REFUSAL_LINGER: Duration = Duration::from_secs(1);
/// Limits for a caller that is not a store yet: the bytes of its only request, its time, and the
/// number of such callers.
const STRANGER_FRAME_BYTES_MAX: usize = 16 << 10;
const STRANGER_TIMEOUT: Duration = Duration::from_secs(15);
const STRANGERS_AT_ONCE: usize = 64;
/// The time for which the same warning about connections is not repeated, and the number of
/// warnings that are remembered.
const TOLD_PERIOD: Duration = Duration::from_secs(60);
const TOLD_MAX: usize = 256;
/// Connections that have not introduced themselves.
const CONNECTIONS_MAX: Most = Most { in_all: 1024, of_an_address: 128 };

/// Accepts other stores until the task is dropped.
pub async fn listen(listener: TcpListener, identity: Arc<Identity>, inbound: Arc<impl Inbound>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_AT_ONCE));
    let introductions = Arc::new(Strangers::default());
    let told = Arc::new(Mutex::new(Told::default()));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(place) = introductions.begin(from.ip(), CONNECTIONS_MAX) else {
                    tracing::debug!(%from, "too many connections have not introduced themselves");
                    continue;
                };
                let (identity, inbound, strangers) = (identity.clone(), inbound.clone(), strangers.clone());
                let told = told.clone();
                tokio::spawn(async move {
                    let Err(reason) = serve(stream, &identity, inbound, (place, strangers)).await else {
                        return;
                    };
                    let is_new = told.lock().is_new(from.ip(), &reason, Instant::now());
                    match is_new {
                        true => {
                            tracing::warn!(%from, reason, "a store-to-store connection was refused or broke")
                        }
                        false => {
                            tracing::debug!(%from, reason, "a store-to-store connection was refused again")
                        }
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a store-to-store connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The warnings of the last time, so that a store that tries again and again does not fill the log.
#[derive(Default)]
struct Told(HashMap<(IpAddr, String), Instant>);

impl Told {
    /// Returns true if this was not told for a while, but for numbers in it, and not much else was.
    fn is_new(&mut self, from: IpAddr, reason: &str, now: Instant) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < TOLD_PERIOD);
        let told = (from, reason.chars().filter(|c| !c.is_ascii_digit()).collect());
        let is_new = self.0.len() < TOLD_MAX && !self.0.contains_key(&told);
        if is_new {
            self.0.insert(told, now);
        }
        is_new
    }
}

async fn serve(
    stream: TcpStream,
    identity: &Identity,
    inbound: Arc<impl Inbound>,
    (place, strangers): (Stranger, Arc<Semaphore>),
) -> Result<(), String> {
    socket::prepare(&stream).map_err(|e| e.to_string())?;
    let mut bytes = BytesMut::with_capacity(4 << 10);
    let introduction = async {
        let mut stream = receive(stream, identity).await?;
        let introduced = introduce(&mut stream, &mut bytes, identity).await?;
        Ok::<_, String>((stream, introduced))
    };
    let (stream, introduced) = tokio::time::timeout(HELLO_TIMEOUT, introduction)
        .await
        .map_err(|_| "the other end did not introduce itself in time".to_owned())??;
    let admitted = introduced.and_then(|caller| {
        inbound.admit(&caller)?;
        Ok(caller.hello)
    });
    let hello = match admitted {
        Ok(hello) => hello,
        Err(refusal) => {
            let reason = refusal.text.clone();
            refuse(stream, refusal).await;
            return Err(reason);
        }
    };
    drop(place);
    if hello.lane == Lane::Snapshot {
        inbound.snapshot_lane(hello.from, stream, bytes);
        return Ok(());
    }
    let from = Remote { store: hello.from, key: hello.key };
    if from.store != NO_STORE {
        return match hello.lane {
            Lane::Log => hear_raft(stream, bytes, from, inbound).await,
            _ => converse(stream, bytes, from, inbound).await,
        };
    }
    let Ok(_permit) = strangers.try_acquire() else {
        refuse(stream, wrong("too many stores ask to join at the same time; try again".into())).await;
        return Err("too many stores ask to join at the same time".into());
    };
    let conversation = tokio::time::timeout(STRANGER_TIMEOUT, converse(stream, bytes, from, inbound));
    conversation
        .await
        .unwrap_or_else(|_| Err("a store that asks to join stayed connected for too long".into()))
}

/// Reads requests and answers them until the connection ends.
async fn converse(
    stream: PeerStream,
    bytes: BytesMut,
    from: Remote,
    inbound: Arc<impl Inbound>,
) -> Result<(), String> {
    let (mut reader, writer) = stream.into_split();
    let (answers, answer_queue) = mpsc::unbounded_channel();
    // A separate task encodes the answers. The set ends the task whenever this function returns.
    let mut writing = JoinSet::new();
    writing.spawn(write_answers(writer, answer_queue, inbound.clone()));
    // The connection ends if answers can no longer be written, so that the other side detects this
    // and reconnects.
    tokio::select! {
        result = read_frames(&mut reader, bytes, from, inbound, answers) => result,
        ended = writing.join_next() => match ended {
            Some(Err(error)) if error.is_panic() => Err("the task that writes answers panicked".into()),
            _ => Err("answers cannot be written".into()),
        },
    }
}

/// Has a connection of Raft messages read by another thread, and reads its very large frames, until
/// the connection ends.
async fn hear_raft(
    stream: PeerStream,
    mut bytes: BytesMut,
    remote: Remote,
    inbound: Arc<impl Inbound>,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let bytes_at_once = bytes_at_once(&*inbound);
    let at_once = Arc::new(Semaphore::new(bytes_at_once));
    let stream = stream.into_socket(&mut bytes).map_err(text)?;
    let mut lane = RaftLane { stream, remote, bytes };
    loop {
        lane = match inbound.raft_lane(lane) {
            Ok(back) => match back.await {
                Ok(returned) => returned?,
                Err(_closed) => return Ok(()),
            },
            Err(lane) => lane,
        };
        let mut stream = PeerStream::from_socket(lane.stream).map_err(text)?;
        let Some(frame) = read_frame(&mut stream, &mut lane.bytes).await? else { return Ok(()) };
        if !inbound.is_welcome(&remote) {
            return Err(format!("store {} is no longer admitted", remote.store));
        }
        let Frame::Raft(messages) = frame else { return Err("a frame out of place".into()) };
        let place = place_of(&messages, &at_once, bytes_at_once).await?;
        inbound.raft(remote.store, decode_messages(messages)?, place);
        lane.stream = stream.into_socket(&mut lane.bytes).map_err(text)?;
    }
}

/// Reads until there is a frame. Returns `None` if the connection ends.
async fn read_frame(
    reader: &mut (impl AsyncReadExt + Unpin),
    bytes: &mut BytesMut,
) -> Result<Option<Frame>, String> {
    loop {
        if let Some(frame) = frame::take(bytes).map_err(|e| e.to_string())? {
            return Ok(Some(frame));
        }
        socket::make_room(bytes).await;
        if let Ok(0) | Err(_) = reader.read_buf(bytes).await {
            return Ok(None);
        }
    }
}

fn wrong(text: String) -> Refusal {
    Refusal { reason: RefusalReason::Wrong, text }
}

/// Completes the handshake of TLS, if the stores have certificates, with a store of this cluster.
async fn receive(stream: TcpStream, identity: &Identity) -> Result<PeerStream, String> {
    let Some(certificates) = identity.certificates() else { return Ok(PeerStream::Plain(stream)) };
    let stream = certificates.accept(stream).await.map_err(|error| format!("TLS: {error}"))?;
    match stream.certificate().is_some_and(|certificate| certificates.is_of(&certificate, NO_STORE)) {
        true => Ok(stream),
        false => {
            let wanted = certificates.name_of(NO_STORE);
            Err(format!(
                "its certificate is not that of a store of this cluster, which has the name {wanted}"
            ))
        }
    }
}

/// Checks the number of a caller against its certificate.
fn has_number(stream: &PeerStream, hello: &Hello, identity: &Identity) -> Result<(), Refusal> {
    let (Some(certificates), Some(certificate)) = (identity.certificates(), stream.certificate()) else {
        return Ok(());
    };
    match certificates.is_of(&certificate, hello.from) {
        true => Ok(()),
        false => Err(wrong(format!(
            "the certificate is not that of store {}, which has the name {}",
            hello.from,
            certificates.name_of(hello.from)
        ))),
    }
}

/// Runs the acceptor's side of the handshake. Input after the caller's proof stays in `bytes`.
async fn introduce(
    stream: &mut PeerStream,
    bytes: &mut BytesMut,
    identity: &Identity,
) -> Result<Result<Introduced, Refusal>, String> {
    let hello = match read_first(stream, bytes).await? {
        Frame::Hello(hello) => hello,
        _ => return Err("a frame before hello".into()),
    };
    if let Err(refusal) = is_for_this(&hello, identity).and_then(|()| has_number(stream, &hello, identity)) {
        return Ok(Err(refusal));
    }
    let text = |error: std::io::Error| error.to_string();
    let (greeted, challenge) =
        Greeted::new(identity, hello, &stream.binding().map_err(text)?).map_err(text)?;
    stream.write_all(&challenge).await.map_err(text)?;
    stream.flush().await.map_err(text)?;
    let proof: Proof = match read_first(stream, bytes).await? {
        Frame::Proof(proof) => proof,
        _ => return Err("a frame before the proof".into()),
    };
    let unproved = || wrong("its hello is not signed with the key that it claims".into());
    Ok(greeted.check(proof).ok_or_else(unproved))
}

fn is_for_this(hello: &Hello, identity: &Identity) -> Result<(), Refusal> {
    let this = identity.store;
    if hello.from == NO_STORE {
        return match hello.lane {
            Lane::Request => Ok(()),
            _ => Err(wrong("a store without a number may only send requests".into())),
        };
    }
    if hello.to != this || hello.from == this {
        return Err(wrong(format!("from store {} to store {}; this is store {this}", hello.from, hello.to)));
    }
    if hello.layout_digest != identity.layout_digest {
        return Err(wrong(format!("store {} is configured for another cluster layout", hello.from)));
    }
    Ok(())
}

/// Sends the refusal and waits briefly for the other side to close. A close with unread input would
/// discard the refusal.
async fn refuse(mut stream: PeerStream, refusal: Refusal) {
    let mut bytes = BytesMut::new();
    if frame::encode(&Frame::Refused(refusal), &mut bytes).is_err() || stream.write_all(&bytes).await.is_err()
    {
        return;
    }
    let _ = stream.shutdown().await;
    let drain = async {
        let mut unread = vec![0u8; 64 << 10];
        while matches!(stream.read(&mut unread).await, Ok(bytes) if bytes > 0) {}
    };
    let _ = tokio::time::timeout(REFUSAL_LINGER, drain).await;
}

/// An answer to be written. Its request counts as in progress until then. So a store that sends
/// requests without reading cannot make answers accumulate.
struct Response {
    id: u64,
    status: u8,
    body: Bytes,
    permit: OwnedSemaphorePermit,
}

async fn write_answers(
    mut writer: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Response>,
    inbound: Arc<impl Inbound>,
) {
    let mut bytes = Output::default();
    let mut permits = Vec::new();
    while let Some(first) = queue.recv().await {
        let mut next = Some(first);
        while let Some(Response { id, status, body, permit }) = next {
            put_answer(id, status, body, &mut bytes, &*inbound);
            permits.push(permit);
            next = if bytes.len() < WRITE_BYTES { queue.try_recv().ok() } else { None };
        }
        if output::write(&mut bytes, &mut writer).await.is_err() {
            return;
        }
        permits.clear();
    }
}

fn put_answer(id: u64, status: u8, body: Bytes, bytes: &mut Output, inbound: &impl Inbound) {
    let length = body.len();
    if frame::put(&Frame::Response { id, status, body }, bytes).is_err() {
        let (status, body) = inbound.too_long(length);
        if let Err(error) = frame::put(&Frame::Response { id, status, body }, bytes) {
            tracing::error!(%error, "an answer cannot be sent");
        }
    }
}

async fn read_first(stream: &mut PeerStream, bytes: &mut BytesMut) -> Result<Frame, String> {
    loop {
        if let Some(frame) = handshake::take(bytes).map_err(|error| error.to_string())? {
            return Ok(frame);
        }
        if stream.read_buf(bytes).await.map_err(|e| e.to_string())? == 0 {
            return Err("the other end closed the connection before it introduced itself".into());
        }
    }
}

async fn read_frames(
    reader: &mut (impl AsyncReadExt + Unpin),
    mut bytes: BytesMut,
    remote: Remote,
    inbound: Arc<impl Inbound>,
    answers: mpsc::UnboundedSender<Response>,
) -> Result<(), String> {
    let from = remote.store;
    let bytes_at_once = bytes_at_once(&*inbound);
    // A stranger's request takes the whole limit, so a stranger makes one request at a time.
    let (frame_bytes_max, weight_min) = match from {
        NO_STORE => (STRANGER_FRAME_BYTES_MAX, bytes_at_once),
        _ => (FRAME_BYTES_MAX, REQUEST_WEIGHT_MIN),
    };
    let at_once = Arc::new(Semaphore::new(bytes_at_once));
    loop {
        if !bytes.is_empty() && !inbound.is_welcome(&remote) {
            return Err(format!("store {from} is no longer admitted"));
        }
        while let Some(frame) = frame::take_within(frame_bytes_max, &mut bytes).map_err(|e| e.to_string())? {
            match frame {
                Frame::Raft(_) | Frame::Heartbeat(_) | Frame::Order(_) | Frame::Announce(_)
                    if from == NO_STORE =>
                {
                    return Err("a frame of a member from a store that is not one".into())
                }
                Frame::Raft(messages) => {
                    let place = place_of(&messages, &at_once, bytes_at_once).await?;
                    inbound.raft(from, decode_messages(messages)?, place);
                }
                Frame::Heartbeat(report) => inbound.heartbeat(from, report),
                Frame::Order(order) => inbound.order(from, order),
                Frame::Announce(descriptor) => inbound.announce(from, descriptor),
                Frame::Request { id, kind, body } => {
                    let weight = body.len().max(weight_min).min(bytes_at_once) as u32;
                    let permit = at_once.clone().acquire_many_owned(weight).await;
                    let permit = permit.map_err(|e| e.to_string())?;
                    let answer = inbound.clone().request(remote, kind, body);
                    let answers = answers.clone();
                    tokio::spawn(async move {
                        let (status, body) = answer.await;
                        let _ = answers.send(Response { id, status, body, permit });
                    });
                }
                Frame::Hello(_)
                | Frame::Challenge(_)
                | Frame::Proof(_)
                | Frame::Response { .. }
                | Frame::Refused(_) => return Err("a frame out of place".into()),
            }
        }
        socket::make_room(&mut bytes).await;
        match reader.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
}

fn bytes_at_once(inbound: &impl Inbound) -> usize {
    inbound.bytes_at_once().clamp(REQUEST_WEIGHT_MIN, Semaphore::MAX_PERMITS.min(1 << 31))
}

/// Waits until messages that were not decoded yet have a place among those in progress.
async fn place_of(
    messages: &[(RegionId, Bytes)],
    at_once: &Arc<Semaphore>,
    bytes_at_once: usize,
) -> Result<Place, String> {
    let bytes = messages.iter().map(|(_, bytes)| bytes.len()).sum::<usize>().min(bytes_at_once);
    at_once.clone().acquire_many_owned(bytes as u32).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::super::raft_frames::RaftFrameWriter;
    use super::*;

    const BYTES_AT_ONCE: usize = 1 << 20;

    /// A handler that works on every request until it is told to finish one.
    #[derive(Default)]
    struct Working {
        begun: AtomicUsize,
        finish: Notify,
        /// The shares of messages that are not processed yet.
        places: Mutex<Vec<Place>>,
    }

    impl Inbound for Working {
        fn raft(&self, _: StoreId, _: Vec<(RegionId, eraftpb::Message)>, place: Place) {
            self.places.lock().push(place);
        }

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
            self.begun.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                self.finish.notified().await;
                (0, Bytes::new())
            })
        }

        fn bytes_at_once(&self) -> usize {
            BYTES_AT_ONCE
        }

        fn too_long(&self, _bytes: usize) -> (u8, Bytes) {
            unreachable!("every answer is short")
        }
    }

    /// Runs every task until all of them wait.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    async fn begun_at_once(sizes: &[usize]) -> (Arc<Working>, usize, JoinSet<()>) {
        begun_by(0, sizes).await
    }

    async fn begun_by(store: StoreId, sizes: &[usize]) -> (Arc<Working>, usize, JoinSet<()>) {
        let mut wire = BytesMut::new();
        for (id, &size) in sizes.iter().enumerate() {
            let request = Frame::Request { id: id as u64, kind: 1, body: vec![0u8; size].into() };
            frame::encode(&request, &mut wire).unwrap();
        }
        let working = Arc::new(Working::default());
        let (answers, mut written) = mpsc::unbounded_channel();
        let (inbound, mut tasks) = (working.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut nothing_more = tokio::io::empty();
            let from = Remote { store, key: StoreKey([1; 32]) };
            let _ = read_frames(&mut nothing_more, wire, from, inbound, answers).await;
        });
        tasks.spawn(async move { while written.recv().await.is_some() {} });
        settle().await;
        let begun = working.begun.load(Ordering::Relaxed);
        (working, begun, tasks)
    }

    #[tokio::test]
    async fn requests_are_worked_on_at_once_up_to_their_bytes() {
        let half = BYTES_AT_ONCE / 2;
        let (working, begun, _tasks) = begun_at_once(&[half, half, 1]).await;
        assert_eq!(begun, 2);
        working.finish.notify_one();
        settle().await;
        assert_eq!(working.begun.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_request_larger_than_all_that_is_allowed_goes_alone() {
        let (working, begun, _tasks) = begun_at_once(&[BYTES_AT_ONCE + 1, 1]).await;
        assert_eq!(begun, 1);
        working.finish.notify_one();
        settle().await;
        assert_eq!(working.begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn messages_wait_in_the_socket_until_those_before_them_are_taken_in() {
        let mut output = Output::default();
        for _ in 0..3 {
            let message =
                eraftpb::Message { context: vec![0; BYTES_AT_ONCE / 2].into(), ..Default::default() };
            let mut raft = RaftFrameWriter::default();
            raft.push(&mut output, 1, &message).unwrap();
            raft.finish(&mut output);
        }
        let (wire, _) = output::joined(output);
        let working = Arc::new(Working::default());
        let (answers, _written) = mpsc::unbounded_channel();
        let inbound = working.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let from = Remote { store: 0, key: StoreKey([1; 32]) };
            let _ = read_frames(&mut tokio::io::empty(), wire, from, inbound, answers).await;
        });
        settle().await;
        // A message's frame takes slightly more than half of the limit.
        for taken_in in 0..3 {
            assert_eq!(working.places.lock().len(), 1, "{taken_in} taken in");
            working.places.lock().clear();
            settle().await;
        }
        assert_eq!(working.places.lock().len(), 0);
    }

    #[tokio::test]
    async fn small_requests_are_bounded_in_number() {
        let count = BYTES_AT_ONCE / REQUEST_WEIGHT_MIN;
        let (_, begun, _tasks) = begun_at_once(&vec![1; count + 10]).await;
        assert_eq!(begun, count);
    }

    #[tokio::test]
    async fn a_stranger_asks_one_short_thing_at_a_time() {
        let (working, begun, _tasks) = begun_by(NO_STORE, &[10, 10, 10]).await;
        assert_eq!(begun, 1);
        working.finish.notify_one();
        settle().await;
        assert_eq!(working.begun.load(Ordering::Relaxed), 2);
        let (_, begun, _tasks) = begun_by(NO_STORE, &[STRANGER_FRAME_BYTES_MAX]).await;
        assert_eq!(begun, 0, "the request is not even read");
    }

    #[test]
    fn a_warning_is_repeated_after_a_while() {
        let (mut told, begin) = (Told::default(), Instant::now());
        let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        assert!(told.is_new(one, "reason", begin) && !told.is_new(one, "reason", begin + TOLD_PERIOD / 2));
        assert!(told.is_new(other, "reason", begin) && told.is_new(one, "another", begin));
        assert!(told.is_new(one, "reason", begin + TOLD_PERIOD));
        let later = begin + TOLD_PERIOD * 2;
        let news = (0..2 * TOLD_MAX).filter(|number| told.is_new(one, &"x".repeat(*number), later));
        assert_eq!(news.count(), TOLD_MAX);
        let mut told = Told::default();
        assert!(told.is_new(one, "12 bytes", begin) && !told.is_new(one, "345 bytes", begin));
    }
}
