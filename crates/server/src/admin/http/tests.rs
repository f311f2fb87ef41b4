//! Requests over a real loopback socket to a backend that records its calls.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;

#[derive(Default)]
struct Recorder {
    asked: Mutex<Vec<String>>,
    authors: Mutex<Vec<Option<String>>>,
    needs: Mutex<Vec<Need>>,
    unhealthy: bool,
    guarded: bool,
}

impl Backend for Arc<Recorder> {
    async fn carry_out<O: Served>(
        &self,
        of: O::Of,
        operation: O,
        author: Author,
    ) -> Result<O::Reply, AdminError> {
        assert!(author.address.ip().is_loopback() && author.address.port() > 0);
        self.authors.lock().unwrap().push(author.user);
        self.asked.lock().unwrap().push(format!("{of:?} {operation:?}"));
        let error = |status, message: &str| Err(AdminError { status, message: message.into() });
        let answer = match (O::PATH, format!("{of:?}").as_str()) {
            ("/api/v1/stores", _) => "[]",
            ("/api/v1/regions", _) => return error(503, "the meta region has no leader"),
            ("/api/v1/policy", _) if O::METHOD == Method::Get => r#"{"policy":"even"}"#,
            ("/api/v1/config", _) if O::METHOD == Method::Get => {
                r#"[{"name":"replicas","value":"3","note":"copies"}]"#
            }
            ("/api/v1/regions/{id}/leader", _) => r#"{"region":7,"store":2}"#,
            ("/api/v1/regions/{id}/explain", _) => r#"{"explanation":"because","region":7}"#,
            ("/api/v1/stores/{id}/explain", "2") => r#"{"explanation":"therefore","store":2}"#,
            ("/api/v1/stores/{id}/explain", _) => return error(404, "no store 9 in this cluster"),
            ("/api/v1/operators" | "/api/v1/recoveries", _) => "[]",
            ("/api/v1/audit", _) => r#"{"first":1,"records":[]}"#,
            ("/api/v1/tokens", _) if O::METHOD == Method::Get => "[]",
            ("/api/v1/tokens", _) => r#"{"name":"t"}"#,
            ("/api/v1/status", _) => return error(9, "odd"),
            ("/api/v1/recover", _) => {
                r#"{"plan":{"regions":[],"refused":[]},"order":null,"recovered":[],"failed":[],"struck":[]}"#
            }
            ("/api/v1/versions", _) => r#"{"version":1,"finishes":true,"stores":[],"note":""}"#,
            ("/api/v1/probe", _) => {
                r#"{"store":1,"method":"direct","io_bytes_per_s":5e8,"sync_us":1000,"read_us":80,
                    "capability_bytes_per_s":2e7,"ops_per_s":3e4,"told":false,"kept":true,"load_ops_per_s":0}"#
            }
            ("/api/v1/accept-loss", _) => r#"[{"store":1,"region":7,"peer":2,"last":9}]"#,
            // Other changes are answered with their own JSON.
            _ => &serde_json::to_string(&operation).unwrap(),
        };
        Ok(serde_json::from_str(answer).unwrap())
    }

    fn healthy(&self) -> bool {
        !self.unhealthy
    }

    fn admits(&self, header: Option<&str>, need: Need) -> Result<Option<Bytes>, Refused> {
        self.needs.lock().unwrap().push(need);
        match (self.guarded, header, need) {
            (true, None, _) => Err(Refused::NoLogin),
            (true, Some("Basic wrong"), _) => Err(Refused::WrongLogin),
            (true, Some("Bearer wrong"), _) => Err(Refused::BadToken),
            (true, Some("Bearer off"), _) => Err(Refused::UserOff),
            (true, Some(_), Need::Change) => Err(Refused::NoPermission("CONFIG SET")),
            (true, Some(_), _) => Ok(Some(Bytes::from_static(b"ann"))),
            _ => Ok(None),
        }
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
        let task = tokio::spawn(serve(listener, backend.clone(), None, shutdown));
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
    assert_eq!(endpoint.get("/api/v1/probe").await.0, 405, "a GET measures nothing");
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
            "() StoresQuery",
            "() PolicyQuery",
            r#"() PolicyRequest { policy: "leader-only" }"#,
            r#"() PolicyRequest { policy: "leader-only" }"#,
            "() ConfigQuery",
            r#"() ConfigRequest { name: "domain-label", value: "zone" }"#,
            r#"() ConfigRequest { name: "domain-label", value: "zone" }"#,
            "() ProbeRequest",
            "() RecoverRequest { lost: [1], regions: [], act: false }",
            "() RecoveriesQuery",
            "() VersionsQuery",
            "() AcceptLossRequest { region: Some(7) }",
            "7 LeaderRequest { store: 2 }",
            "7 MovePeer { from: 1, to: 3 }",
            "2 Drain",
            "7 ExplainQuery",
            "2 ExplainStoreQuery",
            "() OperatorsQuery { history: false }",
            "() OperatorsQuery { history: true }",
            "() DeviceRequest { slow: 10.0 }"
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
    assert_eq!(endpoint.asked(), ["() RegionsQuery", "() StatusQuery", "9 ExplainStoreQuery"]);
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

#[tokio::test]
async fn requests_need_a_login_and_permission_but_the_health_check_does_not() {
    let endpoint = Endpoint::start(Recorder { guarded: true, ..Recorder::default() }).await;
    assert_eq!(endpoint.get("/healthz").await.0, 200);
    for path in ["/metrics", "/api/v1/stores", "/nothing"] {
        assert_eq!(endpoint.get(path).await.0, 401, "{path}");
    }
    let json = "Content-Type: application/json\r\n";
    let policy = r#"{"policy":"even"}"#;
    assert_eq!(endpoint.request("POST", "/api/v1/policy", json, policy).await.0, 401);
    let login = format!("{json}Authorization: Basic dTpw\r\n");
    assert_eq!(endpoint.request("POST", "/api/v1/policy", &login, policy).await.0, 403);
    assert_eq!(endpoint.request("GET", "/metrics", &login, "").await.0, 200);
    assert_eq!(endpoint.asked(), [""; 0], "nothing was carried out");
}

#[tokio::test]
async fn each_request_needs_the_permission_of_its_route_and_says_what_is_wrong_with_a_login() {
    let endpoint = Endpoint::start(Recorder { guarded: true, ..Recorder::default() }).await;
    let token = "Authorization: Bearer t\r\n";
    let json = "Content-Type: application/json\r\nAuthorization: Bearer t\r\n";
    let create = r#"{"change":"create","name":"t","user":"ann"}"#;
    for (method, path, body, status, need) in [
        ("GET", "/metrics", "", 200, Need::Metrics),
        ("GET", "/api/v1/stores", "", 200, Need::Look),
        ("GET", "/api/v1/audit", "", 200, Need::Audit),
        ("GET", "/api/v1/audit?last=5", "", 200, Need::Audit),
        ("GET", "/api/v1/tokens", "", 200, Need::Tokens),
        ("POST", "/api/v1/tokens", create, 200, Need::ChangeTokens),
        ("POST", "/api/v1/policy", r#"{"policy":"even"}"#, 403, Need::Change),
        // No other spelling of a path is the same route with another need.
        ("GET", "/api/v1/audit/", "", 404, Need::Look),
        ("GET", "/api/v1/%61udit", "", 404, Need::Look),
        ("GET", "//api/v1/audit", "", 404, Need::Look),
    ] {
        let headers = if body.is_empty() { token } else { json };
        assert_eq!(endpoint.request(method, path, headers, body).await.0, status, "{method} {path}");
        assert_eq!(endpoint.backend.needs.lock().unwrap().pop(), Some(need), "{method} {path}");
    }
    let authors = std::mem::take(&mut *endpoint.backend.authors.lock().unwrap());
    assert!(authors.len() == 5 && authors.iter().all(|author| author.as_deref() == Some("ann")));
    for (header, status, text) in [
        ("Basic wrong", 401, "the user or the password is wrong"),
        ("Bearer wrong", 401, "no such token"),
        ("Bearer off", 403, "the user of the token is off"),
        ("Bearer t", 403, "the user needs permission for CONFIG SET"),
    ] {
        let headers = format!("Content-Type: application/json\r\nAuthorization: {header}\r\n");
        let answer = endpoint.request("POST", "/api/v1/policy", &headers, r#"{"policy":"even"}"#).await;
        assert!(answer.0 == status && answer.1.contains(text), "{header}: {answer:?}");
    }
}
