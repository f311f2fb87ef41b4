//! The incoming side: every other store's lanes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protobuf::Message as _;
use raft::eraftpb;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use types::{RegionId, StoreId};

use super::frame::{self, Frame, Hello, Lane, Refusal, RefusalReason};
use super::identity::NOBODY;
use super::socket;

pub type InboundAnswer = Pin<Box<dyn Future<Output = (u8, Bytes)> + Send>>;

/// Where frames from other stores go.
pub trait Inbound: Send + Sync + 'static {
    fn raft(&self, from: StoreId, messages: Vec<(RegionId, eraftpb::Message)>);
    /// False: nothing more is heard from that store, until it has been admitted anew.
    fn heartbeat(&self, from: StoreId, report: Bytes) -> bool;
    fn order(&self, from: StoreId, order: Bytes);
    fn announce(&self, from: StoreId, descriptor: Bytes);
    /// Whether a store of the right layout that reached the right store is listened to.
    fn admit(&self, _hello: &Hello) -> Result<(), Refusal> {
        Ok(())
    }
    /// Answers with a status byte and a body. `NOBODY` asks before it joins.
    fn request(self: Arc<Self>, from: StoreId, kind: u8, body: Bytes) -> InboundAnswer;
    /// Takes over a connection that is to bring a snapshot, with what was read from it behind the hello.
    fn snapshot_lane(&self, from: StoreId, _stream: TcpStream, _read: BytesMut) {
        tracing::warn!(from, "a snapshot came to a store that takes none");
    }
    /// What is answered in place of an answer of `bytes` bytes, which no frame holds.
    fn too_long(&self, bytes: usize) -> (u8, Bytes);
}

/// Requests of one connection that are worked on at once, in bytes; more wait in the socket. A request
/// weighs what it holds, a small one what working on it takes, and the largest no more than all there is.
const REQUEST_BYTES_AT_ONCE: usize = 64 << 20;
const REQUEST_WEIGHT_MIN: usize = 16 << 10;
/// How much is encoded before it is handed to the socket.
const WRITE_BYTES: usize = 1 << 20;
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
const REFUSAL_LINGER: Duration = Duration::from_secs(1);

/// Accepts other stores until the task is dropped.
pub async fn listen(listener: TcpListener, this: StoreId, layout_digest: u64, inbound: Arc<impl Inbound>) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let inbound = inbound.clone();
                tokio::spawn(async move {
                    if let Err(reason) = serve(stream, this, layout_digest, inbound).await {
                        tracing::warn!(%from, reason, "a store-to-store connection was refused or broke");
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

async fn serve(
    mut stream: TcpStream,
    this: StoreId,
    layout_digest: u64,
    inbound: Arc<impl Inbound>,
) -> Result<(), String> {
    socket::prepare(&stream).map_err(|e| e.to_string())?;
    let mut bytes = BytesMut::with_capacity(64 << 10);
    let hello = tokio::time::timeout(HELLO_TIMEOUT, read_hello(&mut stream, &mut bytes))
        .await
        .map_err(|_| "no hello in time".to_owned())??;
    if let Err(refusal) = admit(&hello, this, layout_digest, &*inbound) {
        let reason = refusal.text.clone();
        refuse(stream, refusal).await;
        return Err(reason);
    }
    if hello.lane == Lane::Snapshot {
        inbound.snapshot_lane(hello.from, stream, bytes);
        return Ok(());
    }
    let (mut reader, writer) = stream.into_split();
    let (answers, answer_queue) = mpsc::unbounded_channel();
    // Answers are encoded beside the reading; the set takes its task with it however this one ends.
    let mut writing = JoinSet::new();
    writing.spawn(write_answers(writer, answer_queue, inbound.clone()));
    // Whoever cannot be answered is not listened to: the other side shall notice and connect anew.
    tokio::select! {
        result = read_frames(&mut reader, bytes, hello.from, inbound, answers) => result,
        ended = writing.join_next() => match ended {
            Some(Err(error)) if error.is_panic() => Err("answering panicked".into()),
            _ => Err("answers cannot be written".into()),
        },
    }
}

fn admit(hello: &Hello, this: StoreId, layout_digest: u64, inbound: &impl Inbound) -> Result<(), Refusal> {
    let wrong = |text: String| Err(Refusal { reason: RefusalReason::Wrong, text });
    if hello.from == NOBODY {
        return match hello.lane {
            Lane::Request => Ok(()),
            _ => wrong("a store without a number may only ask".into()),
        };
    }
    if hello.to != this {
        return wrong(format!("meant for store {}, this is store {this}", hello.to));
    }
    if hello.layout_digest != layout_digest {
        return wrong(format!("store {} is configured for another cluster layout", hello.from));
    }
    inbound.admit(hello)
}

/// Says why, and waits a moment for the other side to close: what it has sent and nobody read would take the
/// words with it.
async fn refuse(mut stream: TcpStream, refusal: Refusal) {
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

/// An answer on its way out. Its request counts as being worked on until it is written, so that a store
/// which asks and does not read cannot make answers pile up.
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
    let mut bytes = BytesMut::new();
    let mut permits = Vec::new();
    while let Some(first) = queue.recv().await {
        let mut next = Some(first);
        while let Some(Response { id, status, body, permit }) = next {
            put_answer(id, status, body, &mut bytes, &*inbound);
            permits.push(permit);
            next = if bytes.len() < WRITE_BYTES { queue.try_recv().ok() } else { None };
        }
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
        bytes.clear();
        permits.clear();
        if bytes.capacity() > 4 * WRITE_BYTES {
            bytes = BytesMut::new();
        }
    }
}

fn put_answer(id: u64, status: u8, body: Bytes, bytes: &mut BytesMut, inbound: &impl Inbound) {
    let length = body.len();
    if frame::encode(&Frame::Response { id, status, body }, bytes).is_err() {
        let (status, body) = inbound.too_long(length);
        if let Err(error) = frame::encode(&Frame::Response { id, status, body }, bytes) {
            tracing::error!(%error, "an answer cannot be sent");
        }
    }
}

async fn read_hello(stream: &mut TcpStream, bytes: &mut BytesMut) -> Result<Hello, String> {
    loop {
        match frame::take(bytes) {
            Ok(Some(Frame::Hello(hello))) => return Ok(hello),
            Ok(Some(_)) => return Err("a frame before hello".into()),
            // Nothing but a short hello may come first: a stranger cannot make the buffer grow.
            Ok(None) if bytes.len() > 1024 => return Err("not a steelyard store".into()),
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
        if stream.read_buf(bytes).await.map_err(|e| e.to_string())? == 0 {
            return Err("closed before hello".into());
        }
    }
}

async fn read_frames(
    reader: &mut (impl AsyncReadExt + Unpin),
    mut bytes: BytesMut,
    from: StoreId,
    inbound: Arc<impl Inbound>,
    answers: mpsc::UnboundedSender<Response>,
) -> Result<(), String> {
    let at_once = Arc::new(Semaphore::new(REQUEST_BYTES_AT_ONCE));
    loop {
        while let Some(frame) = frame::take(&mut bytes).map_err(|e| e.to_string())? {
            match frame {
                Frame::Raft(_) | Frame::Heartbeat(_) | Frame::Order(_) | Frame::Announce(_)
                    if from == NOBODY =>
                {
                    return Err("a frame of a store that is none".into())
                }
                Frame::Raft(messages) => inbound.raft(from, decode_messages(messages)?),
                Frame::Heartbeat(report) => {
                    if !inbound.heartbeat(from, report) {
                        return Err(format!("store {from} is not listened to any more"));
                    }
                }
                Frame::Order(order) => inbound.order(from, order),
                Frame::Announce(descriptor) => inbound.announce(from, descriptor),
                Frame::Request { id, kind, body } => {
                    let permit = at_once.clone().acquire_many_owned(weight(body.len())).await;
                    let permit = permit.map_err(|e| e.to_string())?;
                    let answer = inbound.clone().request(from, kind, body);
                    let answers = answers.clone();
                    tokio::spawn(async move {
                        let (status, body) = answer.await;
                        let _ = answers.send(Response { id, status, body, permit });
                    });
                }
                Frame::Hello(_) | Frame::Response { .. } | Frame::Refused(_) => {
                    return Err("a frame out of place".into())
                }
            }
        }
        match reader.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
}

fn weight(bytes: usize) -> u32 {
    const _: () = assert!(REQUEST_BYTES_AT_ONCE <= u32::MAX as usize && REQUEST_WEIGHT_MIN > 0);
    bytes.clamp(REQUEST_WEIGHT_MIN, REQUEST_BYTES_AT_ONCE) as u32
}

fn decode_messages(messages: Vec<(RegionId, Bytes)>) -> Result<Vec<(RegionId, eraftpb::Message)>, String> {
    let decode = |(region, bytes): (RegionId, Bytes)| {
        let message = eraftpb::Message::parse_from_carllerche_bytes(&bytes).map_err(|e| e.to_string())?;
        Ok((region, message))
    };
    messages.into_iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    /// Works on every request until it is told to finish one.
    #[derive(Default)]
    struct Working {
        begun: AtomicUsize,
        finish: Notify,
    }

    impl Inbound for Working {
        fn raft(&self, _from: StoreId, _messages: Vec<(RegionId, eraftpb::Message)>) {}
        fn heartbeat(&self, _from: StoreId, _report: Bytes) -> bool {
            true
        }
        fn order(&self, _from: StoreId, _order: Bytes) {}
        fn announce(&self, _from: StoreId, _descriptor: Bytes) {}

        fn request(self: Arc<Self>, _from: StoreId, _kind: u8, _body: Bytes) -> InboundAnswer {
            self.begun.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                self.finish.notified().await;
                (0, Bytes::new())
            })
        }

        fn too_long(&self, _bytes: usize) -> (u8, Bytes) {
            unreachable!("every answer is short")
        }
    }

    /// Lets every task run until all of them wait.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    async fn begun_at_once(sizes: &[usize]) -> (Arc<Working>, usize, JoinSet<()>) {
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
            read_frames(&mut nothing_more, wire, 0, inbound, answers).await.unwrap();
        });
        tasks.spawn(async move { while written.recv().await.is_some() {} });
        settle().await;
        let begun = working.begun.load(Ordering::Relaxed);
        (working, begun, tasks)
    }

    #[tokio::test]
    async fn requests_are_worked_on_at_once_up_to_their_bytes() {
        let half = REQUEST_BYTES_AT_ONCE / 2;
        let (working, begun, _tasks) = begun_at_once(&[half, half, 1]).await;
        assert_eq!(begun, 2);
        working.finish.notify_one();
        settle().await;
        assert_eq!(working.begun.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_request_larger_than_all_that_is_allowed_goes_alone() {
        let (working, begun, _tasks) = begun_at_once(&[REQUEST_BYTES_AT_ONCE + 1, 1]).await;
        assert_eq!(begun, 1);
        working.finish.notify_one();
        settle().await;
        assert_eq!(working.begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn small_requests_are_bounded_in_number() {
        let count = REQUEST_BYTES_AT_ONCE / REQUEST_WEIGHT_MIN;
        let (_, begun, _tasks) = begun_at_once(&vec![1; count + 10]).await;
        assert_eq!(begun, count);
    }
}
