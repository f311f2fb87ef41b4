//! Stores that talk over sockets on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use raft::eraftpb::{self, MessageType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use types::{RegionId, StoreId};

use super::frame::{self, Frame, Hello, Lane, Refusal, RefusalReason, FRAME_BYTES_MAX, RESPONSE_OVERHEAD};
use super::{append, ask_once, listen, CallError, Identity, Inbound, InboundAnswer, Transport};

const LAYOUT: u64 = 7;
const TOKEN: u64 = 11;
const GO_AWAY: &[u8] = b"the last heartbeat";
const ECHO: u8 = 1;
/// Answered with one byte more than a frame holds.
const TOO_MUCH: u8 = 2;
/// Long enough for a slow machine; no test waits for it when things are right.
const PATIENCE: Duration = Duration::from_secs(60);

/// Store 1, which hands on what it hears.
struct Heard {
    raft: mpsc::UnboundedSender<eraftpb::Message>,
    can_refuse: bool,
}

impl Inbound for Heard {
    fn raft(&self, _from: StoreId, messages: Vec<(RegionId, eraftpb::Message)>) {
        messages.into_iter().for_each(|(_, message)| self.raft.send(message).unwrap());
    }

    fn heartbeat(&self, _from: StoreId, report: Bytes) -> bool {
        report != GO_AWAY
    }

    fn order(&self, _from: StoreId, _order: Bytes) {}
    fn announce(&self, _from: StoreId, _descriptor: Bytes) {}

    fn admit(&self, hello: &Hello) -> Result<(), Refusal> {
        match hello.token {
            TOKEN => Ok(()),
            _ => Err(Refusal { reason: RefusalReason::OtherToken, text: "another token".into() }),
        }
    }

    fn request(self: Arc<Self>, _from: StoreId, kind: u8, body: Bytes) -> InboundAnswer {
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

struct Remote {
    address: SocketAddr,
    raft: mpsc::UnboundedReceiver<eraftpb::Message>,
}

async fn remote_store(can_refuse: bool) -> Remote {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (raft, heard) = mpsc::unbounded_channel();
    tokio::spawn(listen(listener, 1, LAYOUT, Arc::new(Heard { raft, can_refuse })));
    Remote { address, raft: heard }
}

fn hello(lane: Lane) -> Hello {
    Hello { from: 0, to: 1, lane, layout_digest: LAYOUT, cluster_id: 0, token: TOKEN }
}

fn transport(address: SocketAddr) -> Transport {
    let (identity, _) = Identity::new(0, LAYOUT, TOKEN, 0);
    Transport::start(Arc::new(identity), [(1, address)].into_iter())
}

fn message(entries: usize, bytes: usize) -> eraftpb::Message {
    let entry = |index| eraftpb::Entry { index, term: 2, data: vec![9; bytes].into(), ..Default::default() };
    let mut message = eraftpb::Message { term: 2, index: 4, log_term: 2, ..Default::default() };
    message.set_msg_type(MessageType::MsgAppend);
    message.set_entries((5..5 + entries as u64).map(entry).collect::<Vec<_>>().into());
    message
}

/// Waits until the lane for entries takes messages, or takes none any more.
async fn until_connected(transport: &Transport, connected: bool) {
    while transport.send_raft(1, Lane::Log, Vec::new()) != connected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn call(transport: &Transport, kind: u8, body: &'static str) -> Result<(u8, Bytes), CallError> {
    transport.call(1, kind, Bytes::from_static(body.as_bytes()), PATIENCE).await
}

/// A connection for requests without the client side of this crate: what happens to it can be seen.
struct RawLane {
    stream: TcpStream,
    bytes: BytesMut,
}

impl RawLane {
    async fn connect(address: SocketAddr) -> RawLane {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut lane = RawLane { stream, bytes: BytesMut::new() };
        lane.send(Frame::Hello(hello(Lane::Request))).await;
        lane
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        frame::encode(&frame, &mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn ask(&mut self, id: u64, kind: u8) {
        self.send(Frame::Request { id, kind, body: Bytes::from_static(b"body") }).await;
    }

    /// The next frame, `None` when the other side closed.
    async fn hear(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = frame::take(&mut self.bytes).unwrap() {
                return Some(frame);
            }
            match self.stream.read_buf(&mut self.bytes).await {
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
    // A store that asks over its lane hears that the outcome is unknown, and can ask again.
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
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(listener.accept().await.unwrap().0);
    }
    until_connected(&transport, true).await;
    drop((listener, streams));
    until_connected(&transport, false).await;
    assert_eq!(call(&transport, ECHO, "").await, Err(CallError::NotSent));
    let listener = TcpListener::bind(address).await.unwrap();
    let _streams = (listener.accept().await.unwrap(), listener.accept().await.unwrap());
    let _third = listener.accept().await.unwrap();
    until_connected(&transport, true).await;
}

/// A store that has lost its power sends nothing, not even that it is gone. Seen from here it is like this
/// one, which never takes what is sent: the kernel has to give it up.
#[tokio::test]
async fn a_lane_whose_remote_store_falls_silent_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport(listener.local_addr().unwrap());
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(listener.accept().await.unwrap().0);
    }
    drop(listener);
    until_connected(&transport, true).await;
    // More than the sockets' buffers take.
    assert!(transport.send_raft(1, Lane::Log, vec![(1, message(1, 48 << 20))]));
    until_connected(&transport, false).await;
}

#[tokio::test]
async fn a_request_on_its_way_when_the_connection_breaks_has_an_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = Arc::new(transport(listener.local_addr().unwrap()));
    let mut lanes = Vec::new();
    for _ in 0..3 {
        lanes.push(RawLane { stream: listener.accept().await.unwrap().0, bytes: BytesMut::new() });
    }
    let caller = tokio::spawn(async move {
        loop {
            match call(&transport, ECHO, "quiet").await {
                Err(CallError::NotSent) => tokio::time::sleep(Duration::from_millis(5)).await,
                outcome => return outcome,
            }
        }
    });
    for lane in &mut lanes {
        let Some(Frame::Hello(hello)) = lane.hear().await else { panic!("no hello") };
        if hello.lane == Lane::Request {
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

    // The store has another address: a new link, to there.
    transport.set_members(vec![(1, moves.address)]);
    assert!(!transport.send_raft(1, Lane::Log, Vec::new()), "a new link is not up at once");
    until_connected(&transport, true).await;
    assert_eq!(call(&transport, ECHO, "there").await, Ok((0, Bytes::from_static(b"there"))));

    // Members may be told by threads that are no part of the runtime.
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
    let mut lanes = Vec::new();
    for _ in 0..3 {
        lanes.push(RawLane { stream: listener.accept().await.unwrap().0, bytes: BytesMut::new() });
    }
    transport.set_members(Vec::new());
    for lane in &mut lanes {
        assert!(matches!(lane.hear().await, Some(Frame::Hello(_))));
        assert_eq!(lane.hear().await, None);
    }
}

#[tokio::test]
async fn a_store_that_is_not_believed_is_told_why() {
    let remote = remote_store(true).await;
    let (identity, mut refused) = Identity::new(0, LAYOUT, TOKEN + 1, 0);
    let transport = Transport::start(Arc::new(identity), [(1, remote.address)].into_iter());
    let (by, refusal) = refused.recv().await.unwrap();
    assert_eq!((by, refusal.reason), (1, RefusalReason::OtherToken));
    assert_eq!(refusal.text, "another token");
    drop(transport);
    let (identity, mut refused) = Identity::new(0, LAYOUT + 1, TOKEN, 0);
    let _transport = Transport::start(Arc::new(identity), [(1, remote.address)].into_iter());
    assert_eq!(refused.recv().await.unwrap().1.reason, RefusalReason::Wrong);
}

#[tokio::test]
async fn every_lane_hears_why_it_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (identity, mut refused) = Identity::new(0, LAYOUT, TOKEN, 0);
    let address = listener.local_addr().unwrap();
    let _transport = Transport::start(Arc::new(identity), [(1, address)].into_iter());
    let mut wire = BytesMut::new();
    let refusal = Refusal { reason: RefusalReason::Removed, text: "gone".into() };
    frame::encode(&Frame::Refused(refusal.clone()), &mut wire).unwrap();
    let mut lanes = Vec::new();
    for _ in 0..3 {
        let (mut stream, _) = listener.accept().await.unwrap();
        // In two pieces, as a network may deliver it.
        stream.write_all(&wire[..3]).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&wire[3..]).await.unwrap();
        lanes.push(stream);
    }
    for _ in 0..3 {
        assert_eq!(refused.recv().await.unwrap(), (1, refusal.clone()));
    }
}

#[tokio::test]
async fn a_store_that_is_not_heard_any_more_has_to_say_hello_again() {
    let remote = remote_store(true).await;
    let mut lane =
        RawLane { stream: TcpStream::connect(remote.address).await.unwrap(), bytes: BytesMut::new() };
    lane.send(Frame::Hello(hello(Lane::Control))).await;
    lane.send(Frame::Heartbeat(Bytes::from_static(b"a heartbeat"))).await;
    lane.send(Frame::Heartbeat(Bytes::from_static(GO_AWAY))).await;
    assert_eq!(lane.hear().await, None);
}

#[tokio::test]
async fn whoever_is_about_to_join_may_ask_and_no_more() {
    let remote = remote_store(true).await;
    let answer = ask_once(remote.address, ECHO, Bytes::from_static(b"who?")).await.unwrap();
    assert_eq!(answer, (0, Bytes::from_static(b"who?")));
    let mut lane =
        RawLane { stream: TcpStream::connect(remote.address).await.unwrap(), bytes: BytesMut::new() };
    let nobody = Hello { from: super::NOBODY, to: super::NOBODY, ..hello(Lane::Request) };
    lane.send(Frame::Hello(nobody.clone())).await;
    lane.send(Frame::Heartbeat(Bytes::new())).await;
    assert_eq!(lane.hear().await, None);
    let mut lane =
        RawLane { stream: TcpStream::connect(remote.address).await.unwrap(), bytes: BytesMut::new() };
    lane.send(Frame::Hello(Hello { lane: Lane::Control, ..nobody })).await;
    assert!(matches!(lane.hear().await, Some(Frame::Refused(_))));
}

#[tokio::test]
async fn both_ends_watch_for_silence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hello = hello(Lane::Log);
    let stream = super::link::connect(listener.local_addr().unwrap(), &hello).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    super::socket::prepare(&accepted).unwrap();
    for stream in [stream, accepted] {
        let socket = socket2::SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        let silence = socket.tcp_user_timeout().unwrap().unwrap();
        assert!(socket.keepalive_time().unwrap() + socket.keepalive_interval().unwrap() < silence);
    }
}
