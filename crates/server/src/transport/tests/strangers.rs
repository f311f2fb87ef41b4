//! Attacks by a stranger that knows everything that stores send each other, but not their secrets.

use tokio::net::TcpStream;

use super::*;
use crate::transport::frame::{Challenge, Hello, Proof};

const LANES: [Lane; 4] = [Lane::Control, Lane::Log, Lane::Request, Lane::Snapshot];

fn encoded(frame: Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    frame::encode(&frame, &mut bytes).unwrap();
    bytes
}

async fn raw(address: SocketAddr) -> RawLane {
    RawLane { stream: PeerStream::Plain(TcpStream::connect(address).await.unwrap()), bytes: BytesMut::new() }
}

fn hello(lane: Lane) -> Hello {
    let key = SecretKey::numbered(0).public();
    Hello { from: 0, to: 1, lane, layout_digest: LAYOUT, cluster_id: 0, key, nonce: [8; 32] }
}

/// All frames of a connection, as seen by an attacker in the middle.
struct Seen {
    from_caller: Vec<Frame>,
    from_acceptor: Vec<Frame>,
}

/// Lets store 0 connect to `to` at a stranger's address. The stranger forwards everything to a
/// store at `address`.
async fn overhear(
    address: SocketAddr,
    to: StoreId,
    pass_on: impl Fn(Frame) -> Frame,
) -> (Seen, Option<Frame>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let caller = Caller::new(identity_of(0).0, to, Lane::Request).unwrap();
    let there = listener.local_addr().unwrap();
    let calling = tokio::spawn(async move { caller.connect(there).await });
    let mut near =
        RawLane { stream: PeerStream::Plain(listener.accept().await.unwrap().0), bytes: BytesMut::new() };
    let mut far = raw(address).await;
    let mut seen = Seen { from_caller: Vec::new(), from_acceptor: Vec::new() };
    seen.from_caller.extend(near.hear().await);
    far.send(pass_on(seen.from_caller[0].clone())).await;
    seen.from_acceptor.extend(far.hear().await);
    near.send(seen.from_acceptor[0].clone()).await;
    seen.from_caller.extend(near.hear().await);
    let mut last = None;
    if let Some(proof) = seen.from_caller.get(1) {
        far.send(proof.clone()).await;
        far.ask(1, ECHO).await;
        last = far.hear().await;
    }
    drop(near);
    let _ = calling.await;
    (seen, last)
}

fn is_refused(heard: &Option<Frame>) -> bool {
    matches!(heard, Some(Frame::Refused(refusal)) if refusal.reason == RefusalReason::Wrong)
}

#[tokio::test]
async fn whoever_knows_a_stores_key_and_not_its_secret_is_refused_on_every_lane() {
    let remote = remote_store(true).await;
    for lane in LANES {
        // The hello is the one that the store would send. The signature is the stranger's own.
        let mut stranger = raw(remote.address).await;
        stranger.send(Frame::Hello(hello(lane))).await;
        assert!(matches!(stranger.hear().await, Some(Frame::Challenge(_))));
        let (greeted, _) = Greeted::new(&identity_of(1).0, hello(lane), &[]).unwrap();
        let proof =
            Proof { signature: SecretKey::numbered(9).sign(b"whatever"), password: [0; 32], token: None };
        assert!(greeted.check(proof.clone()).is_none());
        stranger.send(Frame::Proof(proof)).await;
        stranger.ask(1, ECHO).await;
        assert!(is_refused(&stranger.hear().await), "{lane:?}");
        // Nothing is processed before the proof.
        let mut hasty = raw(remote.address).await;
        hasty.send(Frame::Hello(hello(lane))).await;
        hasty.ask(1, ECHO).await;
        assert!(matches!(hasty.hear().await, Some(Frame::Challenge(_))));
        assert_eq!(hasty.hear().await, None);
    }
}

#[tokio::test]
async fn what_was_said_on_one_connection_is_worth_nothing_on_another() {
    let remote = remote_store(true).await;
    // The frames are forwarded to the store for which they were meant, and open that connection.
    let (seen, last) = overhear(remote.address, 1, |frame| frame).await;
    assert_eq!(last, response(1, 0, "body"));
    // They open no other connection, at that store or another.
    for address in [remote.address, remote_store(true).await.address] {
        let mut replay = raw(address).await;
        replay.send(seen.from_caller[0].clone()).await;
        assert!(matches!(replay.hear().await, Some(Frame::Challenge(_))));
        replay.send(seen.from_caller[1].clone()).await;
        replay.ask(1, ECHO).await;
        assert!(is_refused(&replay.hear().await));
    }
    // A store's own challenge cannot be replayed.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let caller = Caller::new(identity_of(0).0, 1, Lane::Request).unwrap();
    let there = listener.local_addr().unwrap();
    let calling = tokio::spawn(async move { caller.connect(there).await });
    let mut near =
        RawLane { stream: PeerStream::Plain(listener.accept().await.unwrap().0), bytes: BytesMut::new() };
    near.hear().await;
    near.send(seen.from_acceptor[0].clone()).await;
    assert_eq!(near.hear().await, None, "no proof");
    assert!(calling.await.unwrap().is_err());
}

#[tokio::test]
async fn a_store_that_is_called_cannot_pass_for_the_caller_elsewhere() {
    let remote = remote_store(true).await;
    // A stranger has joined as store 2. A caller that wants store 2 reaches the stranger, which
    // forwards the call to store 1.
    let as_if_to_1 = |frame| match frame {
        Frame::Hello(hello) => Frame::Hello(Hello { to: 1, ..hello }),
        other => other,
    };
    let (seen, _) = overhear(remote.address, 2, as_if_to_1).await;
    assert_eq!(seen.from_caller.len(), 1, "store 1's challenge does not prove store 2");
    // A challenge that the stranger signs itself gets a proof, which store 1 rejects.
    let (identity, _) = Identity::new(0, LAYOUT, SecretKey::numbered(0), 0, None);
    identity.set_members([(2, Some(SecretKey::numbered(2).public()))].into_iter());
    let stranger = Identity::new(2, LAYOUT, SecretKey::numbered(2), 0, None).0;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let caller = Caller::new(Arc::new(identity), 2, Lane::Request).unwrap();
    let _calling = tokio::spawn(async move { caller.connect(there).await });
    let mut near =
        RawLane { stream: PeerStream::Plain(listener.accept().await.unwrap().0), bytes: BytesMut::new() };
    let Some(Frame::Hello(hello)) = near.hear().await else { panic!("no hello") };
    let (_, challenge) = Greeted::new(&stranger, hello.clone(), &[]).unwrap();
    near.stream.write_all(&challenge).await.unwrap();
    let Some(Frame::Proof(proof)) = near.hear().await else { panic!("no proof") };
    let mut far = raw(remote.address).await;
    far.send(Frame::Hello(Hello { to: 1, ..hello })).await;
    assert!(matches!(far.hear().await, Some(Frame::Challenge(_))));
    far.send(Frame::Proof(proof)).await;
    far.ask(1, ECHO).await;
    assert!(is_refused(&far.hear().await));
}

#[tokio::test]
async fn who_sits_at_a_stores_address_learns_nothing_and_ends_no_store() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (identity, mut refused) = identity_of(0);
    let secret = serde_json::to_string(&SecretKey::numbered(0)).unwrap();
    let transport = started(identity, address);
    let of_another = Identity::new(1, LAYOUT, SecretKey::numbered(7), 0, None).0;
    for ends in [RefusalReason::OtherKey, RefusalReason::Removed] {
        let mut lane =
            RawLane { stream: PeerStream::Plain(listener.accept().await.unwrap().0), bytes: BytesMut::new() };
        let Some(Frame::Hello(hello)) = lane.hear().await else { panic!("no hello") };
        let said = encoded(Frame::Hello(hello.clone()));
        assert!(!String::from_utf8_lossy(&said).contains(secret.trim_matches('"')));
        assert!(!said.windows(32).any(|bytes| *bytes == [0x40; 32]), "the secret was sent");
        // The stranger tells the store to stop, without a proof of its identity.
        lane.send(Frame::Refused(Refusal { reason: ends, text: "go".into() })).await;
        let (by, refusal) = refused.recv().await.unwrap();
        assert_eq!((by, refusal.reason), (1, RefusalReason::Wrong));
    }
    // The stranger answers with its own key, or with an invalid signature.
    for _ in 0..3 {
        let mut lane =
            RawLane { stream: PeerStream::Plain(listener.accept().await.unwrap().0), bytes: BytesMut::new() };
        let Some(Frame::Hello(hello)) = lane.hear().await else { panic!("no hello") };
        let (_, challenge) = Greeted::new(&of_another, hello, &[]).unwrap();
        lane.stream.write_all(&challenge).await.unwrap();
        assert_eq!(lane.hear().await, None, "no proof is sent");
    }
    let mut lane =
        RawLane { stream: PeerStream::Plain(listener.accept().await.unwrap().0), bytes: BytesMut::new() };
    lane.hear().await;
    let key = SecretKey::numbered(1).public();
    lane.send(Frame::Challenge(Challenge { key, nonce: [1; 32], signature: [2; 64] })).await;
    assert_eq!(lane.hear().await, None, "no proof is sent");
    assert!(!transport.is_connected(1));
    assert_eq!(call(&transport, ECHO, "").await, Err(CallError::NotSent));
}
