//! Attacks on the peer port of a running store.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::BytesMut;
use cluster::{StoreFacts, StoreKey, StoreRecord};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::config::Beginning;
use crate::transport::frame::{self, Frame, Lane, RefusalReason};
use crate::transport::handshake::Caller;
use crate::transport::keys::SecretKey;
use crate::transport::kinds::{REQUEST_ADMIN, REQUEST_COMMANDS, REQUEST_MEMBERS};
use crate::transport::stream::PeerStream;

/// This is long enough for a slow machine. A passing test never waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first store of a cluster that others may join.
struct Running {
    peer: SocketAddr,
    client: SocketAddr,
    end: mpsc::Sender<()>,
    running: JoinHandle<Result<(), StartError>>,
    dir: TempDir,
}

impl Running {
    async fn begin(password: Option<&str>) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners = [free(), free(), free()];
        let [client, peer, admin] = listeners.each_ref().map(|free| free.local_addr().unwrap());
        drop(listeners);
        let mut config = Config::single(dir.path().to_path_buf(), client.port());
        (config.members[0].peer, config.members[0].admin) = (peer, admin);
        config.beginning = Beginning::Bootstrap;
        config.requirepass = password.map(str::to_owned);
        config.reserve_bytes = 0;
        config.probe = false;
        let (ready, is_ready) = oneshot::channel();
        let (end, ended) = mpsc::channel(1);
        let running = tokio::spawn(async move {
            crate::run(config, move |_| ready.send(()).unwrap(), ended).await.map(drop)
        });
        tokio::time::timeout(PATIENCE, is_ready).await.expect("the store starts in time").expect("it starts");
        Running { peer, client, end, running, dir }
    }

    async fn end(self) {
        self.end.send(()).await.unwrap();
        self.running.await.unwrap().unwrap();
    }

    /// Returns a field of the store's IDENTITY file.
    fn field(&self, name: &str) -> String {
        let identity = std::fs::read_to_string(self.dir.path().join("IDENTITY")).unwrap();
        let line = identity.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
        line.unwrap().trim_matches('"').to_owned()
    }

    /// Sends a request from a process that is not a store.
    async fn ask(&self, number: u8, kind: u8, body: Vec<u8>) -> std::io::Result<(u8, Bytes)> {
        self.ask_knowing(None, number, kind, body).await
    }

    async fn ask_knowing(
        &self,
        password: Option<&str>,
        number: u8,
        kind: u8,
        body: Vec<u8>,
    ) -> std::io::Result<(u8, Bytes)> {
        let identity = Identity::joining(SecretKey::numbered(number), password.map(str::to_owned), None);
        ask_once(self.peer, Arc::new(identity), kind, body.into()).await
    }

    /// Asks to join until the store admits it, as a store that joins does: shortly after the start,
    /// the meta region may have no leader yet.
    async fn ask_until_admitted(&self, facts: &StoreFacts, number: u8) -> Bytes {
        let begun = Instant::now();
        loop {
            let body = serde_json::to_vec(facts).unwrap();
            let (status, answer) = self.ask(number, REQUEST_JOIN, body).await.unwrap();
            if status == STATUS_DONE {
                return answer;
            }
            let error = read_error(&answer);
            assert!(error.status == 503 && begun.elapsed() < PATIENCE, "{error:?}");
            tokio::time::sleep(JOIN_AGAIN).await;
        }
    }

    async fn join(&self, facts: &StoreFacts, number: u8) -> Result<Welcome, AdminError> {
        let body = serde_json::to_vec(facts).unwrap();
        match self.ask(number, REQUEST_JOIN, body).await.expect("there is an answer") {
            (STATUS_DONE, answer) => Ok(serde_json::from_slice(&answer).unwrap()),
            (_, answer) => Err(read_error(&answer)),
        }
    }

    /// Connects as a store of the cluster and asks for the list of stores. Returns the first frame
    /// of the answer.
    async fn ask_as(&self, from: StoreId, secret: SecretKey, welcome: &Welcome, lane: Lane) -> Option<Frame> {
        let layout = types::key_hash(welcome.layout.as_bytes());
        let (identity, _) = Identity::new(from, layout, secret, welcome.cluster_id, None);
        identity.set_members([(0, None)].into_iter());
        let mut stream = Caller::new(Arc::new(identity), 0, lane).unwrap().connect(self.peer).await.unwrap();
        let mut bytes = BytesMut::new();
        let request = Frame::Request { id: 1, kind: REQUEST_MEMBERS, body: Bytes::new() };
        frame::encode(&request, &mut bytes).unwrap();
        stream.write_all(&bytes).await.unwrap();
        hear(&mut stream).await
    }
}

async fn hear(stream: &mut PeerStream) -> Option<Frame> {
    let mut bytes = BytesMut::new();
    loop {
        if let Some(frame) = frame::take(&mut bytes).unwrap() {
            return Some(frame);
        }
        match tokio::time::timeout(PATIENCE, stream.read_buf(&mut bytes))
            .await
            .expect("a frame arrives, or the connection ends")
        {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

fn reason(heard: Option<Frame>) -> Option<RefusalReason> {
    match heard {
        Some(Frame::Refused(refusal)) => Some(refusal.reason),
        Some(Frame::Response { status: STATUS_DONE, .. }) => None,
        other => panic!("{other:?}"),
    }
}

/// Returns the facts of an unknown store on this machine.
fn facts(number: u8) -> StoreFacts {
    let mut member = Config::single("nowhere".into(), 1).members.remove(0);
    let at = |port| SocketAddr::from(([127, 0, 1, number], port));
    (member.client, member.peer, member.admin) = (at(1), at(2), at(3));
    facts_of(&member, Some(SecretKey::numbered(number).public()))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_stranger_is_told_helps_it_to_pass_for_a_store() {
    let store = Running::begin(None).await;
    let secret = store.field("secret");
    let raw: Vec<u8> =
        (0..64).step_by(2).map(|at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap()).collect();
    let holds_secret = |answer: &[u8]| {
        let text = String::from_utf8_lossy(answer).to_lowercase();
        let numbers = raw.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        text.contains(&secret) || text.contains(&numbers) || answer.windows(32).any(|bytes| bytes == raw)
    };
    let answer = store.ask_until_admitted(&facts(1), 1).await;
    assert!(!holds_secret(&answer));
    let welcome: Welcome = serde_json::from_slice(&answer).unwrap();
    let of = |id| welcome.members.stores.iter().find(|record: &&StoreRecord| record.id == id).unwrap();
    assert!(of(0).facts.key.is_some() && of(1).facts.key == facts(1).key && welcome.store == 1);

    // As the member that it has become, it gets no more than the list.
    let Some(Frame::Response { body, .. }) =
        store.ask_as(1, SecretKey::numbered(1), &welcome, Lane::Request).await
    else {
        panic!("a member gets an answer")
    };
    assert!(!holds_secret(&body) && !body.is_empty());

    // Another process that has copied all of this cannot act as that store, on any lane.
    for lane in [Lane::Control, Lane::Log, Lane::Request, Lane::Snapshot] {
        let heard = store.ask_as(1, SecretKey::numbered(2), &welcome, lane).await;
        assert_eq!(reason(heard), Some(RefusalReason::OtherKey), "{lane:?}");
    }
    // A process that is not a store can only join.
    for kind in [REQUEST_COMMANDS, REQUEST_ADMIN, REQUEST_MEMBERS, 77] {
        let (status, answer) = store.ask(2, kind, b"{\"ask\":\"policy\"}".to_vec()).await.unwrap();
        assert_eq!((status, &answer[..]), (STATUS_ERROR, &b"join first"[..]), "{kind}");
    }
    store.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_heard_once_it_has_joined_and_under_one_number() {
    let store = Running::begin(None).await;
    let cluster_id = loop {
        // The id is written shortly after the cluster has begun.
        match u64::from_str_radix(&store.field("cluster_id"), 16).unwrap() {
            0 => tokio::time::sleep(Duration::from_millis(10)).await,
            known => break known,
        }
    };
    let layout = store.field("layout");
    let members = AgreedMembers::default();
    let guess = Welcome { store: 1, cluster_id, layout, cluster_enabled: false, members };
    let heard = store.ask_as(1, SecretKey::numbered(1), &guess, Lane::Request).await;
    assert_eq!(reason(heard), Some(RefusalReason::NotYetKnown), "the cluster's id is not a secret");

    let begun = Instant::now();
    let welcome = store.join(&facts(1), 1).await.unwrap();
    assert_eq!((welcome.store, welcome.cluster_id), (1, cluster_id));
    while reason(store.ask_as(1, SecretKey::numbered(1), &welcome, Lane::Request).await).is_some() {
        assert!(begun.elapsed() < Duration::from_secs(3), "the early attempt does not delay the join");
    }
    // A repeated request gets the same answer. With another store's key or address it is refused.
    assert_eq!(store.join(&facts(1), 1).await.unwrap().store, 1);
    assert_eq!(store.join(&facts(1), 2).await.unwrap_err().status, 403);
    let there = StoreFacts { peer: store.peer.to_string(), ..facts(3) };
    let refused = store.join(&there, 3).await.unwrap_err();
    assert_eq!((refused.status, refused.message.contains("store 0 uses")), (503, true));
    let there = StoreFacts { client: store.client.to_string(), ..facts(3) };
    assert_eq!(store.join(&there, 3).await.unwrap_err().status, 503);
    store.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_joins_makes_a_bounded_number_of_stores() {
    let store = Running::begin(None).await;
    // Requests that come before the cluster's state do not count.
    let first = loop {
        match store.join(&facts(99), 99).await {
            Ok(welcome) => break welcome.store,
            Err(error) => assert_eq!(error.status, 503, "{}", error.message),
        }
    };
    let mut numbers = BTreeSet::from([first]);
    for number in 1..=80 {
        // Most of these requests hold invalid facts, and do not count.
        for bad in [
            StoreFacts { peer: "nowhere".into(), ..facts(number) },
            StoreFacts { device: "x".repeat(5000), ..facts(number) },
            StoreFacts { key: Some(StoreKey([1; 32])), ..facts(number) },
        ] {
            let refused = store.join(&bad, number).await.unwrap_err();
            assert!(matches!(refused.status, 400 | 403), "{}", refused.message);
        }
        match store.join(&facts(number), number).await {
            Ok(welcome) => drop(numbers.insert(welcome.store)),
            Err(error) => assert_eq!(error.status, 503, "{}", error.message),
        }
    }
    assert!((30..60).contains(&numbers.len()), "{}", numbers.len());
    let last = loop {
        // After a short time there is room for another join.
        match store.join(&facts(100), 100).await {
            Ok(welcome) => break welcome,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    assert_eq!(last.members.stores.len(), 1 + numbers.len() + 1);
    store.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_a_password_nobody_joins_without_it() {
    let store = Running::begin(Some("a long secret")).await;
    let body = || serde_json::to_vec(&facts(1)).unwrap();
    for guess in [None, Some("a long guess")] {
        let refused = store.ask_knowing(guess, 1, REQUEST_JOIN, body()).await.unwrap_err();
        assert!(refused.to_string().contains("requirepass"), "{refused}");
    }
    let (status, _) = store.ask_knowing(Some("a long secret"), 1, REQUEST_JOIN, body()).await.unwrap();
    assert_eq!(status, STATUS_DONE);
    store.end().await;
}
