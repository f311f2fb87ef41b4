//! Connections with TLS, and attacks by those who have certificates.

use rcgen::{
    date_time_ymd, BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::ServerName;
use tls_stream::TlsStream;
use tokio::net::TcpStream;

use super::*;
use crate::tls_settings::TlsSettings;
use crate::transport::certificates::{name_of, Certificates};
use crate::transport::frame::Hello;
use crate::transport::handshake::NotOpened;

/// An authority with its directory.
struct Authority {
    dir: tempfile::TempDir,
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Authority {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("ca"), certificate.pem()).unwrap();
        Authority { dir, certificate, key }
    }

    /// Signs a certificate that is valid until a year. Returns the settings of its owner, who
    /// trusts this authority.
    fn sign(&self, file: &str, names: &[String], year: i32) -> TlsSettings {
        self.sign_for(file, names, year, Vec::new())
    }

    /// Does the same for a certificate with these extended key usages only.
    fn sign_for(
        &self,
        file: &str,
        names: &[String],
        year: i32,
        usages: Vec<ExtendedKeyUsagePurpose>,
    ) -> TlsSettings {
        let mut params = CertificateParams::new(names.to_vec()).unwrap();
        params.extended_key_usages = usages;
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        let path = |extension: &str| self.dir.path().join(format!("{file}.{extension}"));
        std::fs::write(path("crt"), certificate.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        TlsSettings {
            cert_file: Some(path("crt")),
            key_file: Some(path("key")),
            ca_cert_file: Some(self.dir.path().join("ca")),
            ..TlsSettings::default()
        }
    }

    fn of_store(&self, store: StoreId) -> Arc<Certificates> {
        let names = [name_of("a", store), name_of("a", super::super::NO_STORE)];
        let settings = self.sign(&format!("store-{store}"), &names, 4000);
        Arc::new(Certificates::read("a", &settings).unwrap())
    }
}

fn identity_with(store: StoreId, certificates: Arc<Certificates>) -> Arc<Identity> {
    let (identity, _) = Identity::new(store, LAYOUT, SecretKey::numbered(store as u8), 0, None);
    identity.set_members([0, 1].map(|id| (id, Some(SecretKey::numbered(id as u8).public()))).into_iter());
    Arc::new(identity.with(Some(certificates)))
}

async fn remote_with(certificates: Arc<Certificates>) -> RemoteStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (raft, heard) = mpsc::unbounded_channel();
    let is_welcome = Arc::new(AtomicBool::new(true));
    let inbound = Heard { raft, can_refuse: true, is_welcome: is_welcome.clone() };
    tokio::spawn(listen(listener, identity_with(1, certificates), Arc::new(inbound)));
    RemoteStore { address, raft: heard, is_welcome }
}

async fn connect(identity: Arc<Identity>, address: SocketAddr, lane: Lane) -> Result<PeerStream, NotOpened> {
    Caller::new(identity, 1, lane).unwrap().connect(address).await
}

/// Returns what a store answers to a request over an open connection, if it does.
async fn answer(stream: PeerStream) -> Option<Frame> {
    let mut lane = RawLane { stream, bytes: BytesMut::new() };
    let mut bytes = BytesMut::new();
    let body = Bytes::from_static(b"body");
    frame::encode(&Frame::Request { id: 1, kind: ECHO, body }, &mut bytes).unwrap();
    lane.stream.write_all(&bytes).await.ok()?;
    lane.stream.flush().await.ok()?;
    lane.hear().await
}

/// Returns true if a caller with this identity gets an answer.
async fn is_served(identity: Arc<Identity>, address: SocketAddr) -> bool {
    match connect(identity, address, Lane::Request).await {
        Ok(stream) => answer(stream).await == response(1, 0, "body"),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_any_size_and_requests_go_through_tls() {
    let authority = Authority::new();
    let mut remote = remote_with(authority.of_store(1)).await;
    let transport = started(identity_with(0, authority.of_store(0)), remote.address);
    until_connected(&transport, true).await;
    let sizes = [0, 1, 100, 16 << 10, (16 << 10) + 1, 300 << 10, 5 << 20, 7];
    for (at, &bytes) in sizes.iter().cycle().take(64).enumerate() {
        let mut message = message(1, bytes);
        message.commit = at as u64;
        while !transport.send_raft(1, Lane::Log, vec![(3, message.clone())]) {
            tokio::task::yield_now().await;
        }
        let heard = remote.raft.recv().await.unwrap();
        assert_eq!((heard.commit, heard.get_entries()), (at as u64, message.get_entries()));
    }
    while call(&transport, ECHO, "body").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let large = Bytes::from(vec![7; 3 << 20]);
    assert_eq!(transport.call(1, ECHO, large.clone(), PATIENCE).await, Ok((0, large)));
}

#[tokio::test]
async fn only_a_certificate_of_the_store_itself_opens_a_connection() {
    let authority = Authority::new();
    let remote = remote_with(authority.of_store(1)).await;
    let is_in = |names: Vec<String>, year, authority: &Authority| {
        let settings = authority.sign("tried", &names, year);
        // What the file says is not judged here, but by the other end.
        let certificates = Certificates::unjudged("a", &settings).unwrap();
        is_served(identity_with(0, Arc::new(certificates)), remote.address)
    };
    let (own, any) = (name_of("a", 0), name_of("a", super::super::NO_STORE));
    assert!(is_in(vec![own.clone(), any.clone()], 4000, &authority).await);
    assert!(is_in(vec!["*.a.steelyard".into()], 4000, &authority).await, "it is good for any store");
    for (what, names) in [
        ("another store", vec![name_of("a", 2), any.clone()]),
        ("another cluster", vec![name_of("b", 0), name_of("b", super::super::NO_STORE)]),
        ("any store of another cluster", vec!["*.b.steelyard".into()]),
        ("a client", vec!["client".into(), "127.0.0.1".into()]),
        ("a number without the name of all", vec![own.clone()]),
    ] {
        assert!(!is_in(names, 4000, &authority).await, "{what}");
    }
    assert!(!is_in(vec![own.clone(), any.clone()], 2020, &authority).await, "expired");
    // One authority is not trusted by the other end, and does not trust it either.
    let other = Authority::new();
    assert!(!is_in(vec![own, any], 4000, &other).await, "another authority");
    // Without TLS nothing is answered.
    assert!(!is_served(identity_of(0).0, remote.address).await);
    // And a store without TLS answers nothing to one with it.
    let plain = remote_store(true).await;
    assert!(!is_served(identity_with(0, authority.of_store(0)), plain.address).await);
}

#[tokio::test]
async fn a_store_judges_each_of_its_certificates_by_its_use() {
    let authority = Authority::new();
    let names = [name_of("a", 0), name_of("a", super::super::NO_STORE)];
    let (servers, clients) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    let for_servers = authority.sign_for("servers", &names, 4000, vec![servers]);
    let for_clients = authority.sign_for("clients", &names, 4000, vec![clients]);
    let refused = |settings: &TlsSettings| Certificates::read("a", settings).err().expect("it is refused");
    assert!(refused(&for_servers).starts_with("tls-cert-file: other stores would refuse"));
    assert!(refused(&for_clients).starts_with("tls-cert-file: other stores would refuse"));
    let both = TlsSettings {
        client_cert_file: for_clients.cert_file.clone(),
        client_key_file: for_clients.key_file.clone(),
        ..for_servers.clone()
    };
    let certificates = Arc::new(Certificates::read("a", &both).unwrap());
    let remote = remote_with(authority.of_store(1)).await;
    assert!(is_served(identity_with(0, certificates), remote.address).await);
    let swapped = TlsSettings {
        client_cert_file: for_servers.cert_file.clone(),
        client_key_file: for_servers.key_file.clone(),
        ..for_servers
    };
    assert!(refused(&swapped).starts_with("tls-client-cert-file: other stores would refuse"));
}

#[tokio::test]
async fn a_caller_trusts_only_the_store_that_it_calls() {
    let authority = Authority::new();
    let caller = identity_with(0, authority.of_store(0));
    // The process at the address has a certificate of this authority, but for store 2.
    let remote = remote_with(authority.of_store(2)).await;
    let refused = connect(caller.clone(), remote.address, Lane::Log).await.err().unwrap();
    let told = refused.refusal().expect("the operator is told").text;
    assert!(told.contains("no TLS connection with store 1"), "{told}");
    let remote = remote_with(Authority::new().of_store(1)).await;
    assert!(connect(caller, remote.address, Lane::Log).await.is_err());
}

/// Passes all frames on between two connections, each with TLS of its own.
async fn relay(mut near: PeerStream, mut far: PeerStream) {
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}

#[tokio::test]
async fn a_store_in_the_middle_with_a_good_certificate_cannot_pass_connections_on() {
    let authority = Authority::new();
    let remote = remote_with(authority.of_store(1)).await;
    // The worst case: the process in the middle has stolen the certificates of both ends.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let (as_acceptor, as_caller) = (authority.of_store(1), authority.of_store(0));
    let address = remote.address;
    tokio::spawn(async move {
        loop {
            let near = as_acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let far = as_caller.call(TcpStream::connect(address).await.unwrap(), 1).await.unwrap();
            tokio::spawn(relay(near, far));
        }
    });
    let caller = identity_with(0, authority.of_store(0));
    let refused = connect(caller.clone(), there, Lane::Request).await.err().expect("it notices");
    assert!(matches!(refused, NotOpened::Stranger(text) if text.contains("cannot prove its key")));
    assert!(is_served(caller, remote.address).await, "without the middle it works");
}

#[tokio::test]
async fn nothing_is_taken_from_a_caller_with_a_certificate_before_its_proof() {
    let authority = Authority::new();
    let mut remote = remote_with(authority.of_store(1)).await;
    let certificates = authority.of_store(0);
    let open = || async {
        let stream = TcpStream::connect(remote.address).await.unwrap();
        RawLane { stream: certificates.call(stream, 1).await.unwrap(), bytes: BytesMut::new() }
    };
    let said = |frame: Frame| {
        let mut bytes = BytesMut::new();
        frame::encode(&frame, &mut bytes).unwrap();
        bytes
    };
    for frame in [
        Frame::Raft(Vec::new()),
        Frame::Heartbeat(Bytes::new()),
        Frame::Order(Bytes::new()),
        Frame::Request { id: 1, kind: ECHO, body: Bytes::new() },
    ] {
        let mut lane = open().await;
        lane.stream.write_all(&said(frame.clone())).await.unwrap();
        lane.stream.flush().await.unwrap();
        assert_eq!(lane.hear().await, None, "{frame:?}");
    }
    // A stolen certificate does not help without the store's own key.
    let key = SecretKey::numbered(0).public();
    let hello =
        Hello { from: 0, to: 1, lane: Lane::Log, layout_digest: LAYOUT, cluster_id: 0, key, nonce: [8; 32] };
    let mut lane = open().await;
    lane.stream.write_all(&said(Frame::Hello(hello.clone()))).await.unwrap();
    lane.stream.flush().await.unwrap();
    assert!(matches!(lane.hear().await, Some(Frame::Challenge(_))));
    let proof = frame::Proof { signature: SecretKey::numbered(9).sign(b"x"), password: [0; 32], token: None };
    lane.stream.write_all(&said(Frame::Proof(proof))).await.unwrap();
    lane.stream.flush().await.unwrap();
    assert!(
        matches!(lane.hear().await, Some(Frame::Refused(refusal)) if refusal.reason == RefusalReason::Wrong)
    );
    // A certificate of one store with the number of another is refused before the challenge.
    let mut lane = open().await;
    lane.stream.write_all(&said(Frame::Hello(Hello { from: 7, ..hello }))).await.unwrap();
    lane.stream.flush().await.unwrap();
    let heard = lane.hear().await;
    assert!(
        matches!(&heard, Some(Frame::Refused(refusal)) if refusal.text.contains("store-7.a.steelyard")),
        "{heard:?}"
    );
    assert!(remote.raft.try_recv().is_err());
}

#[tokio::test]
async fn old_versions_of_tls_and_damaged_bytes_open_nothing() {
    let authority = Authority::new();
    let remote = remote_with(authority.of_store(1)).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).unwrap();
    let settings = authority.sign("old", &[name_of("a", 0), name_of("a", super::super::NO_STORE)], 4000);
    let (chain, key) = settings.own_certificate().unwrap();
    let old = rustls::ClientConfig::builder_with_provider(tls_stream::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let stream = TcpStream::connect(remote.address).await.unwrap();
    let name = ServerName::try_from(name_of("a", 1)).unwrap();
    assert!(TlsStream::connect(stream, Arc::new(old), name).await.is_err());
    // A byte that is changed on its way ends the connection, and nothing of the record is taken.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let address = remote.address;
    let flips = Arc::new(AtomicBool::new(false));
    let now = flips.clone();
    tokio::spawn(async move {
        let near = listener.accept().await.unwrap().0;
        let far = TcpStream::connect(address).await.unwrap();
        let ((mut from, mut to), (mut back_from, mut back_to)) = (near.into_split(), far.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut back_from, &mut to).await });
        let mut chunk = vec![0; 4096];
        while let Ok(read) = from.read(&mut chunk).await {
            if now.load(Ordering::Relaxed) {
                chunk[read / 2] ^= 1;
            }
            if read == 0 || back_to.write_all(&chunk[..read]).await.is_err() {
                break;
            }
        }
    });
    let caller = identity_with(0, authority.of_store(0));
    let stream =
        connect(caller, there, Lane::Request).await.unwrap_or_else(|_| panic!("it is not damaged yet"));
    flips.store(true, Ordering::Relaxed);
    assert_eq!(answer(stream).await, None);
}

#[tokio::test]
async fn handshakes_that_stall_or_never_end_cost_only_their_connection() {
    let authority = Authority::new();
    let remote = remote_with(authority.of_store(1)).await;
    let mut stalled = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(remote.address).await.unwrap();
        stream.write_all(&[22, 3, 1, 0, 200, 1]).await.unwrap();
        stalled.push(stream);
    }
    // A message of the handshake that claims 16 MiB, and goes on.
    let mut endless = TcpStream::connect(remote.address).await.unwrap();
    for number in 0..40 {
        let mut record = vec![0; 5 + 0x4000];
        record[..5].copy_from_slice(&[22, 3, 1, 0x40, 0]);
        if number == 0 {
            record[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
        }
        if endless.write_all(&record).await.is_err() {
            break;
        }
    }
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, endless.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a handshake has a maximum of bytes");
    assert!(is_served(identity_with(0, authority.of_store(0)), remote.address).await);
    for mut stream in stalled {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a handshake has a time limit");
    }
}

#[tokio::test]
async fn certificates_are_replaced_whole_or_not_at_all() {
    let authority = Authority::new();
    let names = |store| [name_of("a", store), name_of("a", super::super::NO_STORE)];
    let first = authority.sign("first", &names(1), 4000);
    let certificates = Arc::new(Certificates::read("a", &first).unwrap());
    let remote = remote_with(certificates.clone()).await;
    let caller = identity_with(0, authority.of_store(0));
    let shown = || async {
        let stream = connect(caller.clone(), remote.address, Lane::Request).await;
        stream.unwrap_or_else(|_| panic!("it is served")).certificate().unwrap()
    };
    let before = shown().await;
    // Its directory ends with the authority.
    let gone = { Authority::new().sign("gone", &names(1), 4000) };
    for (bad, why) in [
        (authority.sign("of-2", &names(2), 4000), "is for another"),
        (authority.sign("late", &names(1), 2020), "would refuse"),
        (authority.sign("of-b", &[name_of("b", 1)], 4000), "would refuse"),
        (gone, "cannot be read"),
    ] {
        let refused = certificates.load(&bad, 1).unwrap_err();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(shown().await, before);
    }
    certificates.load(&authority.sign("second", &names(1), 4000), 1).unwrap();
    assert_ne!(shown().await, before);
}
