//! Requests over a real loopback socket to a backend that records its calls.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;
use crate::admin::{
    AcceptedRow, Answer, CheckRow, ConfigRow, OperatorRow, ProbeRow, QuarantineRow, RecoverRow, RecoveryRow,
    RegionRow, StoreRow, StoreStatus, VersionsRow,
};

#[derive(Default)]
struct Recorder {
    asked: Mutex<Vec<String>>,
    unhealthy: bool,
}

impl Recorder {
    fn note<T: Send + 'static>(&self, what: String, answer: Result<T, AdminError>) -> Answer<'_, T> {
        self.asked.lock().unwrap().push(what);
        Box::pin(async move { answer })
    }
}

impl AdminBackend for Recorder {
    fn stores(&self) -> Answer<'_, Vec<StoreRow>> {
        self.note("stores".into(), Ok(Vec::new()))
    }
    fn regions(&self) -> Answer<'_, Vec<RegionRow>> {
        let error = AdminError { status: 503, message: "the meta region has no leader".into() };
        self.note("regions".into(), Err(error))
    }
    fn policy(&self) -> Answer<'_, String> {
        self.note("policy".into(), Ok("even".into()))
    }
    fn set_policy(&self, name: String) -> Answer<'_, ()> {
        self.note(format!("set_policy {name}"), Ok(()))
    }
    fn config(&self) -> Answer<'_, Vec<ConfigRow>> {
        let row = ConfigRow { name: "replicas".into(), value: "3".into(), note: "copies".into() };
        self.note("config".into(), Ok(vec![row]))
    }
    fn set_config(&self, name: String, value: String) -> Answer<'_, ()> {
        self.note(format!("set_config {name} {value}"), Ok(()))
    }
    fn move_leader(&self, region: u64, to: u64) -> Answer<'_, ()> {
        self.note(format!("move_leader {region} {to}"), Ok(()))
    }
    fn change_region(&self, region: u64, change: RegionRequest) -> Answer<'_, ()> {
        self.note(format!("change_region {region} {change:?}"), Ok(()))
    }
    fn change_store(&self, store: u64, change: StoreRequest) -> Answer<'_, ()> {
        self.note(format!("change_store {store} {change:?}"), Ok(()))
    }
    fn check(&self, region: u64) -> Answer<'_, CheckRow> {
        let error = AdminError { status: 503, message: format!("region {region} has no leader") };
        self.note(format!("check {region}"), Err(error))
    }
    fn quarantined(&self) -> Answer<'_, Vec<QuarantineRow>> {
        self.note("quarantined".into(), Ok(Vec::new()))
    }
    fn quarantine(&self, region: u64, request: QuarantineRequest) -> Answer<'_, ()> {
        self.note(format!("quarantine {region} {request:?}"), Ok(()))
    }
    fn fail(&self, region: u64, request: FailRequest) -> Answer<'_, ()> {
        let error = AdminError { status: 403, message: "enable-debug-command is no".into() };
        self.note(format!("fail {region} {request:?}"), Err(error))
    }
    fn explain(&self, region: u64) -> Answer<'_, String> {
        self.note(format!("explain {region}"), Ok("because".into()))
    }
    fn explain_store(&self, store: u64) -> Answer<'_, String> {
        let error = AdminError { status: 404, message: format!("no store {store} in this cluster") };
        let answer = if store == 2 { Ok("therefore".into()) } else { Err(error) };
        self.note(format!("explain_store {store}"), answer)
    }
    fn operators(&self, history: bool) -> Answer<'_, Vec<OperatorRow>> {
        self.note(format!("operators {history}"), Ok(Vec::new()))
    }
    fn status(&self) -> Answer<'_, StoreStatus> {
        self.note("status".into(), Err(AdminError { status: 9, message: "odd".into() }))
    }
    fn slow_device(&self, factor: f64) -> Answer<'_, ()> {
        self.note(format!("slow {factor}"), Ok(()))
    }
    fn recover(&self, request: RecoverRequest) -> Answer<'_, RecoverRow> {
        let RecoverRequest { lost, regions, act } = request;
        self.note(format!("recover {lost:?} {regions:?} {act}"), Ok(RecoverRow::default()))
    }
    fn recoveries(&self) -> Answer<'_, Vec<RecoveryRow>> {
        self.note("recoveries".into(), Ok(Vec::new()))
    }
    fn versions(&self) -> Answer<'_, VersionsRow> {
        self.note("versions".into(), Ok(VersionsRow::default()))
    }
    fn probe(&self) -> Answer<'_, ProbeRow> {
        let row = ProbeRow {
            store: 1,
            method: "direct".into(),
            io_bytes_per_s: 5e8,
            sync_us: 1000.0,
            read_us: 80.0,
            capability_bytes_per_s: 2e7,
            ops_per_s: 3e4,
            told: false,
            kept: true,
            load_ops_per_s: 0.0,
        };
        self.note("probe".into(), Ok(row))
    }
    fn accept_loss(&self, region: Option<u64>) -> Answer<'_, Vec<AcceptedRow>> {
        let row = AcceptedRow { store: 1, region: region.unwrap_or(7), peer: 2, last: 9 };
        self.note(format!("accept_loss {region:?}"), Ok(vec![row]))
    }
    fn healthy(&self) -> bool {
        !self.unhealthy
    }
    fn metrics(&self) -> String {
        "steelyard_commands_total 1\n".into()
    }
}

struct Endpoint {
    address: std::net::SocketAddr,
    backend: Arc<Recorder>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Endpoint {
    async fn start(backend: Recorder) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backend = Arc::new(backend);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve(listener, backend.clone(), shutdown));
        Endpoint { address, backend, stop, task }
    }

    /// Sends a request. Returns the status and the body.
    async fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.request("GET", path, "", "").await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.request(method, path, "Content-Type: application/json\r\n", body).await
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.backend.asked.lock().unwrap())
    }
}

#[tokio::test]
async fn requests_reach_the_backend_with_their_arguments() {
    let endpoint = Endpoint::start(Recorder::default()).await;
    assert_eq!(endpoint.get("/healthz").await, (200, "ok\n".into()));
    assert_eq!(endpoint.get("/metrics").await, (200, "steelyard_commands_total 1\n".into()));
    assert_eq!(endpoint.get("/api/v1/stores").await, (200, "[]".into()));
    assert_eq!(endpoint.get("/api/v1/policy").await, (200, r#"{"policy":"even"}"#.into()));
    for method in ["PUT", "POST"] {
        let (status, body) = endpoint.send(method, "/api/v1/policy", r#"{"policy":"leader-only"}"#).await;
        assert_eq!((status, body.as_str()), (200, r#"{"policy":"leader-only"}"#));
    }
    let config = r#"[{"name":"replicas","value":"3","note":"copies"}]"#;
    assert_eq!(endpoint.get("/api/v1/config").await, (200, config.into()));
    for method in ["PUT", "POST"] {
        let setting = r#"{"name":"domain-label","value":"zone"}"#;
        assert_eq!(endpoint.send(method, "/api/v1/config", setting).await, (200, setting.into()));
    }
    let (status, body) = endpoint.send("POST", "/api/v1/probe", "{}").await;
    assert!(status == 200 && body.contains(r#""io_bytes_per_s":500000000.0"#), "{body}");
    assert_eq!(endpoint.get("/api/v1/probe").await.0, 405, "a look measures nothing");
    assert_eq!(endpoint.send("POST", "/api/v1/recover", r#"{"lost":[1]}"#).await.0, 200);
    assert_eq!(endpoint.send("POST", "/api/v1/recover", r#"{"lost":[1],"force":true}"#).await.0, 400);
    assert_eq!(endpoint.get("/api/v1/recoveries").await.0, 200);
    assert_eq!(endpoint.get("/api/v1/versions").await.0, 200);
    let accepted = endpoint.send("POST", "/api/v1/accept-loss", r#"{"region":7}"#).await;
    assert_eq!(accepted, (200, r#"[{"store":1,"region":7,"peer":2,"last":9}]"#.into()));
    assert_eq!(endpoint.send("POST", "/api/v1/regions/7/leader", r#"{"store":2}"#).await.0, 200);
    let moved = r#"{"change":"move-peer","from":1,"to":3}"#;
    assert_eq!(endpoint.send("POST", "/api/v1/regions/7/change", moved).await, (200, moved.into()));
    assert_eq!(endpoint.send("POST", "/api/v1/stores/2/change", r#"{"change":"drain"}"#).await.0, 200);
    let explained = endpoint.get("/api/v1/regions/7/explain").await;
    assert_eq!(explained, (200, r#"{"explanation":"because","region":7}"#.into()));
    let explained = endpoint.get("/api/v1/stores/2/explain").await;
    assert_eq!(explained, (200, r#"{"explanation":"therefore","store":2}"#.into()));
    assert_eq!(endpoint.get("/api/v1/operators").await.0, 200);
    assert_eq!(endpoint.get("/api/v1/operators?history=true").await.0, 200);
    assert_eq!(endpoint.send("POST", "/api/v1/device", r#"{"slow":10}"#).await.0, 200);
    let asked = endpoint.asked();
    assert_eq!(
        asked,
        [
            "stores",
            "policy",
            "set_policy leader-only",
            "set_policy leader-only",
            "config",
            "set_config domain-label zone",
            "set_config domain-label zone",
            "probe",
            "recover [1] [] false",
            "recoveries",
            "versions",
            "accept_loss Some(7)",
            "move_leader 7 2",
            "change_region 7 MovePeer { from: 1, to: 3 }",
            "change_store 2 Drain",
            "explain 7",
            "explain_store 2",
            "operators false",
            "operators true",
            "slow 10"
        ]
    );
}

#[tokio::test]
async fn every_error_is_json_with_its_status_and_changes_nothing() {
    let endpoint = Endpoint::start(Recorder::default()).await;
    let cases = [
        ("GET", "/api/v1/regions", "", 503),
        // An invalid HTTP status becomes 500.
        ("GET", "/api/v1/status", "", 500),
        ("GET", "/nowhere", "", 404),
        ("DELETE", "/api/v1/stores", "", 405),
        ("GET", "/api/v1/regions/x/explain", "", 400),
        ("GET", "/api/v1/stores/x/explain", "", 400),
        ("GET", "/api/v1/stores/9/explain", "", 404),
        ("GET", "/api/v1/operators?history=perhaps", "", 400),
        ("POST", "/api/v1/policy", "{", 400),
        ("POST", "/api/v1/policy", r#"{"policy":"even","more":1}"#, 400),
        ("POST", "/api/v1/config", r#"{"name":"replicas"}"#, 400),
        ("POST", "/api/v1/config", r#"{"name":"replicas","value":5}"#, 400),
        ("POST", "/api/v1/regions/1/leader", r#"{"store":-1}"#, 400),
        ("POST", "/api/v1/regions/1/change", r#"{"change":"shrink"}"#, 400),
        ("POST", "/api/v1/stores/1/change", r#"{"change":"pin","weight":1}"#, 400),
        ("POST", "/api/v1/device", r#"{"slow":0}"#, 400),
    ];
    for (method, path, body, expected) in cases {
        let (status, answer) = endpoint.send(method, path, body).await;
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("an error is JSON");
        assert!(answer["error"].as_str().is_some_and(|text| !text.is_empty()));
    }
    assert_eq!(endpoint.asked(), ["regions", "status", "explain_store 9"]);
}

#[tokio::test]
async fn a_change_without_the_json_content_type_is_refused() {
    let endpoint = Endpoint::start(Recorder::default()).await;
    for headers in ["", "Content-Type: text/plain\r\n"] {
        let (status, _) = endpoint.request("POST", "/api/v1/policy", headers, r#"{"policy":"even"}"#).await;
        assert_eq!(status, 415);
    }
    let long = format!(r#"{{"policy":"{}"}}"#, "x".repeat(BODY_BYTES_MAX));
    let (status, answer) = endpoint.send("POST", "/api/v1/policy", &long).await;
    assert_eq!(status, 413);
    assert!(answer.starts_with(r#"{"error":"#), "{answer}");
    assert!(endpoint.asked().is_empty());
}

#[tokio::test]
async fn a_store_that_does_not_serve_says_so_and_shutdown_ends_the_endpoint() {
    let endpoint = Endpoint::start(Recorder { unhealthy: true, ..Default::default() }).await;
    assert_eq!(endpoint.get("/healthz").await, (503, "not serving\n".into()));
    endpoint.stop.send(()).unwrap();
    endpoint.task.await.unwrap().unwrap();
    assert!(TcpStream::connect(endpoint.address).await.is_err());
}
