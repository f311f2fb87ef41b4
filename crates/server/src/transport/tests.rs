//! Stores that talk over sockets on loopback.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use raft::eraftpb::{self, MessageType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use types::{RegionId, StoreId};

use super::frame::{self, Frame, Lane, Refusal, RefusalReason, FRAME_BYTES_MAX, RESPONSE_OVERHEAD};
use super::handshake::{Caller, Greeted, Introduced};
use super::keys::SecretKey;
use super::stream::PeerStream;
use super::{append, ask_once, listen, CallError, Identity, Inbound, InboundAnswer, Remote, Transport};

mod secured;
mod strangers;

const LAYOUT: u64 = 7;
const ECHO: u8 = 1;
/// A request whose answer has one byte more than a frame holds.
const TOO_MUCH: u8 = 2;
/// Long enough for a slow machine. A passing test never waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Store 1, which passes on what it receives.
struct Heard {
    raft: mpsc::UnboundedSender<eraftpb::Message>,
    can_refuse: bool,
    is_welcome: Arc<AtomicBool>,
}

/// Maximum bytes that may wait for other stores.
const WAITING_BYTES: u64 = 64 << 20;

impl Inbound for Heard {
    fn bytes_at_once(&self) -> usize {
        1 << 20
    }

    fn raft(&self, _from: StoreId, messages: Vec<(RegionId, eraftpb::Message)>, _place: super::Place) {
        messages.into_iter().for_each(|(_, message)| self.raft.send(message).unwrap());
    }

    fn heartbeat(&self, _from: StoreId, _report: Bytes) {}
    fn order(&self, _from: StoreId, _order: Bytes) {}
    fn announce(&self, _from: StoreId, _descriptor: Bytes) {}

    fn admit(&self, caller: &Introduced) -> Result<(), Refusal> {
        if caller.hello.from == super::NO_STORE || caller.hello.key == SecretKey::numbered(0).public() {
            return Ok(());
        }
        Err(Refusal { reason: RefusalReason::OtherKey, text: "another key".into() })
    }

    fn is_welcome(&self, _from: &Remote) -> bool {
        self.is_welcome.load(Ordering::Relaxed)
    }

    fn request(self: Arc<Self>, _from: Remote, kind: u8, body: Bytes) -> InboundAnswer {
        match kind {
            ECHO => Box::pin(async move { (0, body) }),
            _ => Box::pin(async { (0, vec![0u8; FRAME_BYTES_MAX - RESPONSE_OVERHEAD + 1].into()) }),
        }
    }

    fn too_long(&self, bytes: usize) -> (u8, Bytes) {
        assert!(self.can_refuse, "a refusal that panics");
        (2, format!("{bytes} are too many").into())
    }
}

struct RemoteStore {
    address: SocketAddr,
    raft: mpsc::UnboundedReceiver<eraftpb::Message>,
    is_welcome: Arc<AtomicBool>,
}

/// Returns the identity of a store that knows stores 0 and 1 by their keys.
fn identity_of(store: StoreId) -> (Arc<Identity>, mpsc::UnboundedReceiver<(StoreId, Refusal)>) {
    let (identity, refused) = Identity::new(store, LAYOUT, SecretKey::numbered(store as u8), 0, None);
    identity.set_members([0, 1].map(|id| (id, Some(SecretKey::numbered(id as u8).public()))).into_iter());
    (Arc::new(identity), refused)
}

async fn remote_store(can_refuse: bool) -> RemoteStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (raft, heard) = mpsc::unbounded_channel();
    let is_welcome = Arc::new(AtomicBool::new(true));
    let inbound = Heard { raft, can_refuse, is_welcome: is_welcome.clone() };
    tokio::spawn(listen(listener, identity_of(1).0, Arc::new(inbound)));
    RemoteStore { address, raft: heard, is_welcome }
}

fn transport(address: SocketAddr) -> Transport {
    started(identity_of(0).0, address)
}

fn started(identity: Arc<Identity>, address: SocketAddr) -> Transport {
    let transport = Transport::new(identity, WAITING_BYTES);
    transport.start([(1, address)].into_iter());
    transport
}

fn message(entries: usize, bytes: usize) -> eraftpb::Message {
    let entry = |index| eraftpb::Entry { index, term: 2, data: vec![9; bytes].into(), ..Default::default() };
    let mut message = eraftpb::Message { term: 2, index: 4, log_term: 2, ..Default::default() };
    message.set_msg_type(MessageType::MsgAppend);
    message.set_entries((5..5 + entries as u64).map(entry).collect::<Vec<_>>().into());
    message
}

/// Waits until the lane for entries is up, or down.
async fn until_connected(transport: &Transport, connected: bool) {
    while transport.send_raft(1, Lane::Log, Vec::new()) != connected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn call(transport: &Transport, kind: u8, body: &'static str) -> Result<(u8, Bytes), CallError> {
    transport.call(1, kind, Bytes::from_static(body.as_bytes()), PATIENCE).await
}

/// A connection for requests that bypasses this crate's client side, so that its state is visible.
struct RawLane {
    stream: PeerStream,
    bytes: BytesMut,
}

impl RawLane {
    async fn connect(address: SocketAddr) -> RawLane {
        RawLane::open(address, identity_of(0).0, 1, Lane::Request).await
    }

    async fn open(address: SocketAddr, identity: Arc<Identity>, to: StoreId, lane: Lane) -> RawLane {
        let stream = Caller::new(identity, to, lane).unwrap().connect(address).await.unwrap();
        RawLane { stream, bytes: BytesMut::new() }
    }

    /// Accepts the next connection and greets it as store 1. Returns it with its lane.
    async fn accept(listener: &TcpListener) -> (RawLane, Lane) {
        let stream = listener.accept().await.unwrap().0;
        let mut lane = RawLane { stream: PeerStream::Plain(stream), bytes: BytesMut::new() };
        let Some(Frame::Hello(hello)) = lane.hear().await else { panic!("no hello") };
        let of = hello.lane;
        let (greeted, challenge) = Greeted::new(&identity_of(1).0, hello, &[]).unwrap();
        lane.stream.write_all(&challenge).await.unwrap();
        let Some(Frame::Proof(proof)) = lane.hear().await else { panic!("no proof") };
        assert!(greeted.check(proof).is_some());
        (lane, of)
    }

    async fn accept_all(listener: &TcpListener) -> Vec<(RawLane, Lane)> {
        let mut lanes = Vec::new();
        for _ in 0..3 {
            lanes.push(RawLane::accept(listener).await);
        }
        lanes
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        frame::encode(&frame, &mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn ask(&mut self, id: u64, kind: u8) {
        self.send(Frame::Request { id, kind, body: Bytes::from_static(b"body") }).await;
    }

    /// Returns the next frame; `None` if the other side closed.
    async fn hear(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = frame::take(&mut self.bytes).unwrap() {
                return Some(frame);
            }
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.bytes)).await;
            match read.expect("a frame arrives, or the connection ends") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

fn response(id: u64, status: u8, body: &str) -> Option<Frame> {
    Some(Frame::Response { id, status, body: Bytes::copy_from_slice(body.as_bytes()) })
}

#[tokio::test]
async fn an_answer_that_no_frame_holds_becomes_an_error_and_the_connection_lives_on() {
    let remote = remote_store(true).await;
    let mut lane = RawLane::connect(remote.address).await;
    lane.ask(1, TOO_MUCH).await;
    let bytes = FRAME_BYTES_MAX - RESPONSE_OVERHEAD + 1;
    assert_eq!(lane.hear().await, response(1, 2, &format!("{bytes} are too many")));
    lane.ask(2, ECHO).await;
    assert_eq!(lane.hear().await, response(2, 0, "body"));
}

#[tokio::test]
async fn a_connection_that_cannot_be_answered_is_closed() {
    let remote = remote_store(false).await;
    let mut lane = RawLane::connect(remote.address).await;
    lane.ask(1, TOO_MUCH).await;
    assert_eq!(lane.hear().await, None);
    // A store that sends a request over its lane learns that the outcome is unknown, and can try
    // again.
    let transport = transport(remote.address);
    while call(&transport, ECHO, "up").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(call(&transport, TOO_MUCH, "").await, Err(CallError::Unknown));
    while call(&transport, ECHO, "again").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_append_longer_than_a_batch_arrives_in_pieces_that_join_to_it() {
    let mut remote = remote_store(true).await;
    let transport = transport(remote.address);
    until_connected(&transport, true).await;
    let whole = message(7, append::PIECE_BYTES_MAX / 2);
    assert!(transport.send_raft(1, Lane::Log, vec![(3, whole.clone())]));
    let mut entries = Vec::new();
    while entries.len() < 7 {
        let mut piece = remote.raft.recv().await.unwrap();
        assert_eq!(piece.index, 4 + entries.len() as u64);
        entries.extend(piece.take_entries().into_vec());
    }
    assert_eq!(entries, whole.get_entries());
}

#[tokio::test]
async fn a_lane_whose_remote_store_closes_is_down_until_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let transport = transport(address);
    let lanes = RawLane::accept_all(&listener).await;
    until_connected(&transport, true).await;
    drop((listener, lanes));
    until_connected(&transport, false).await;
    assert_eq!(call(&transport, ECHO, "").await, Err(CallError::NotSent));
    let listener = TcpListener::bind(address).await.unwrap();
    let _lanes = RawLane::accept_all(&listener).await;
    until_connected(&transport, true).await;
}

/// A store that has lost its power sends nothing, not even an end of the connection. This listener
/// behaves in the same way: it never accepts data, so the kernel must give up.
#[tokio::test]
async fn a_lane_whose_remote_store_falls_silent_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport(listener.local_addr().unwrap());
    let _lanes = RawLane::accept_all(&listener).await;
    drop(listener);
    until_connected(&transport, true).await;
    // This is more than the sockets' buffers hold.
    assert!(transport.send_raft(1, Lane::Log, vec![(1, message(1, 48 << 20))]));
    until_connected(&transport, false).await;
}

#[tokio::test]
async fn a_request_on_its_way_when_the_connection_breaks_has_an_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = Arc::new(transport(listener.local_addr().unwrap()));
    let mut lanes = RawLane::accept_all(&listener).await;
    let caller = tokio::spawn(async move {
        loop {
            match call(&transport, ECHO, "quiet").await {
                Err(CallError::NotSent) => tokio::time::sleep(Duration::from_millis(5)).await,
                outcome => return outcome,
            }
        }
    });
    for (lane, of) in &mut lanes {
        if *of == Lane::Request {
            assert!(matches!(lane.hear().await, Some(Frame::Request { .. })));
        }
    }
    drop(lanes);
    assert_eq!(caller.await.unwrap(), Err(CallError::Unknown));
}

#[tokio::test]
async fn members_come_and_go_and_those_that_stay_keep_their_links() {
    let [stays, moves] = [remote_store(true).await, remote_store(true).await];
    let transport = transport(stays.address);
    until_connected(&transport, true).await;
    let this = (0, "127.0.0.1:1".parse().unwrap());
    transport.set_members(vec![this, (1, stays.address), (2, moves.address)]);
    assert_eq!(transport.address(2), Some(moves.address));
    assert_eq!(transport.address(0), None, "a store has no link to itself");
    assert!(transport.send_raft(1, Lane::Log, Vec::new()), "the link was never down");

    // The store has another address, so it gets a new link.
    transport.set_members(vec![(1, moves.address)]);
    assert!(!transport.send_raft(1, Lane::Log, Vec::new()), "a new link is not up at once");
    until_connected(&transport, true).await;
    assert_eq!(call(&transport, ECHO, "there").await, Ok((0, Bytes::from_static(b"there"))));

    // Threads outside the runtime may set members.
    let transport = Arc::new(transport);
    let elsewhere = transport.clone();
    std::thread::spawn(move || elsewhere.set_members(Vec::new())).join().unwrap();
    assert_eq!(call(&transport, ECHO, "").await, Err(CallError::NotSent));
    assert!(!transport.send_raft(1, Lane::Log, Vec::new()));
}

#[tokio::test]
async fn a_link_that_is_no_longer_wanted_closes_its_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport(listener.local_addr().unwrap());
    let mut lanes = RawLane::accept_all(&listener).await;
    transport.set_members(Vec::new());
    for (lane, _) in &mut lanes {
        assert_eq!(lane.hear().await, None);
    }
}

#[tokio::test]
async fn a_store_that_is_not_believed_is_told_why() {
    let remote = remote_store(true).await;
    let of = |layout, secret| {
        let (identity, refused) = Identity::new(0, layout, SecretKey::numbered(secret), 0, None);
        identity.set_members([(1, Some(SecretKey::numbered(1).public()))].into_iter());
        (started(Arc::new(identity), remote.address), refused)
    };
    let (transport, mut refused) = of(LAYOUT, 9);
    let (by, refusal) = refused.recv().await.unwrap();
    assert_eq!((by, refusal.reason), (1, RefusalReason::OtherKey));
    assert_eq!(refusal.text, "another key");
    drop(transport);
    let (_transport, mut refused) = of(LAYOUT + 1, 0);
    assert_eq!(refused.recv().await.unwrap().1.reason, RefusalReason::Wrong);
}

#[tokio::test]
async fn every_lane_hears_why_it_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (identity, mut refused) = identity_of(0);
    let address = listener.local_addr().unwrap();
    let _transport = started(identity, address);
    let mut wire = BytesMut::new();
    let refusal = Refusal { reason: RefusalReason::Removed, text: "gone".into() };
    frame::encode(&Frame::Refused(refusal.clone()), &mut wire).unwrap();
    let mut lanes = RawLane::accept_all(&listener).await;
    for (lane, _) in &mut lanes {
        // The refusal arrives in two pieces, as a network may deliver it.
        lane.stream.write_all(&wire[..3]).await.unwrap();
        tokio::task::yield_now().await;
        lane.stream.write_all(&wire[3..]).await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(refused.recv().await.unwrap(), (1, refusal.clone()));
    }
}

#[tokio::test]
async fn a_store_that_is_not_heard_any_more_has_to_introduce_itself_again() {
    let remote = remote_store(true).await;
    let mut lane = RawLane::connect(remote.address).await;
    lane.ask(1, ECHO).await;
    assert_eq!(lane.hear().await, response(1, 0, "body"));
    remote.is_welcome.store(false, Ordering::Relaxed);
    lane.ask(2, ECHO).await;
    assert_eq!(lane.hear().await, None);
}

#[tokio::test]
async fn whoever_is_about_to_join_may_ask_and_no_more() {
    let remote = remote_store(true).await;
    let nobody = || Arc::new(Identity::joining(SecretKey::numbered(5), None, None));
    let answer = ask_once(remote.address, nobody(), ECHO, Bytes::from_static(b"who?")).await.unwrap();
    assert_eq!(answer, (0, Bytes::from_static(b"who?")));
    let bytes = Bytes::new;
    for frame in [
        Frame::Heartbeat(bytes()),
        Frame::Raft(Vec::new()),
        Frame::Order(bytes()),
        Frame::Announce(bytes()),
        Frame::Request { id: 1, kind: ECHO, body: vec![0; 17 << 10].into() },
    ] {
        let mut lane = RawLane::open(remote.address, nobody(), super::NO_STORE, Lane::Request).await;
        lane.send(frame.clone()).await;
        assert_eq!(lane.hear().await, None, "{frame:?}");
    }
    for lane in [Lane::Control, Lane::Log, Lane::Snapshot] {
        let opened = Caller::new(nobody(), super::NO_STORE, lane).unwrap().connect(remote.address).await;
        assert!(opened.is_err(), "{lane:?}");
    }
}

#[tokio::test]
async fn both_ends_watch_for_silence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let caller = Caller::new(identity_of(0).0, 1, Lane::Log).unwrap();
    let (stream, accepted) =
        tokio::join!(caller.connect(listener.local_addr().unwrap()), RawLane::accept(&listener));
    let (stream, accepted) = (stream.unwrap(), accepted.0.stream);
    super::socket::prepare(accepted.socket()).unwrap();
    for stream in [stream, accepted] {
        let stream = stream.socket();
        let socket = socket2::SockRef::from(stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        let silence = socket.tcp_user_timeout().unwrap().unwrap();
        assert!(socket.keepalive_time().unwrap() + socket.keepalive_interval().unwrap() < silence);
    }
}
