//! The HTTP interface of the operations, of the metrics (`GET /metrics`) and of the health check:
//! `GET /healthz` answers 200 `ok` or 503 `not serving`.
//!
//! Requests that change something must declare a JSON body and must not come from a web page. A
//! browser sends such a request only after a CORS preflight, which is never granted here.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{header, HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::serve::IncomingStream;
use axum::{Extension, Json, Router};
use cluster::admin::{
    AcceptLossRequest, AuditQuery, CheckRequest, ConfigQuery, ConfigRequest, DeviceRequest, EncryptionQuery,
    EncryptionRequest, ExplainQuery, ExplainStoreQuery, FailRequest, FlashQuery, LeaderRequest, Method,
    Operation, OperatorsQuery, PolicyQuery, PolicyRequest, ProbeRequest, QuarantineQuery, QuarantineRequest,
    RecoverRequest, RecoveriesQuery, RegionRequest, RegionsQuery, StatusQuery, StoreRequest, StoresQuery,
    TokenRequest, TokensQuery, VersionsQuery, WindowsQuery,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::TcpListener;

use super::audit::{self, Author};
use super::listener::TlsListener;
use super::login::{self, Need, Refused};
use super::operations::Served;
use crate::admin_error::AdminError;
use crate::secrets::shown;
use crate::store::Store;
use crate::tls::Tls;

/// Maximum bytes of a request's body. Real bodies have a few dozen bytes.
const BODY_BYTES_MAX: usize = 16 << 10;

/// The store behind the endpoint. Tests use one that records the requests.
pub trait Backend: Clone + Send + Sync + 'static {
    fn carry_out<O: Served>(
        &self,
        of: O::Of,
        operation: O,
        author: Author,
    ) -> impl Future<Output = Result<O::Reply, AdminError>> + Send;
    /// Returns true if this store serves: for every region that it holds, it is the leader or knows
    /// the leader.
    fn healthy(&self) -> bool;
    /// Returns the metrics as Prometheus text.
    fn metrics(&self) -> String;
    /// Decides whether a request is carried out. `header` is its `Authorization`. Returns the name
    /// of the user, if a login is required.
    fn admits(&self, header: Option<&str>, need: Need) -> Result<Option<Bytes>, Refused>;
}

impl Backend for Arc<Store> {
    fn carry_out<O: Served>(
        &self,
        of: O::Of,
        operation: O,
        author: Author,
    ) -> impl Future<Output = Result<O::Reply, AdminError>> + Send {
        audit::carry_out(self, of, operation, author)
    }

    fn healthy(&self) -> bool {
        self.is_healthy()
    }

    fn admits(&self, header: Option<&str>, need: Need) -> Result<Option<Bytes>, Refused> {
        login::admits(self, header, need)
    }

    fn metrics(&self) -> String {
        self.metrics.set_snapshots(self.snapshots().counts());
        self.capability.present().show(&self.metrics);
        self.metrics.set_clock(&self.wall);
        self.metrics.zookeeper_session.set(i64::from(self.seekers.has_session()));
        let device = &self.hanging;
        self.metrics.set_device(device.is_hanging(), device.log_waited(), device.read_waited());
        let is_encrypted = self.config.tls_cluster;
        self.metrics.peers_encrypted.set(i64::from(is_encrypted));
        let is_on_network = !self.config.this().peer.ip().is_loopback();
        self.metrics.insecure_peers.set(i64::from(is_on_network && !is_encrypted));
        self.metrics.set_cluster_version(self.membership.version.get());
        self.metrics.set_unsynced(self.unsynced.counts());
        self.metrics.set_windows(&super::windows::led(self));
        self.metrics.set_recoveries(self.regions.recoveries_here());
        match self.engine.look() {
            Ok(stats) => self.metrics.set_engine(&stats),
            Err(error) => tracing::warn!(%error, "the statistics of RocksDB cannot be read"),
        }
        self.metrics.text()
    }
}

/// Answers requests, with TLS if there are certificates, until `shutdown` resolves, then lets those
/// in progress finish.
pub async fn serve(
    listener: TcpListener,
    backend: impl Backend,
    tls: Option<Arc<Tls>>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = router(backend).into_make_service_with_connect_info::<Source>();
    match tls {
        None => axum::serve(listener, router).with_graceful_shutdown(shutdown).await,
        Some(tls) => {
            axum::serve(TlsListener::new(listener, tls)?, router).with_graceful_shutdown(shutdown).await
        }
    }
}

/// The address of the program that sends a request.
#[derive(Clone, Copy)]
struct Source(SocketAddr);

impl Connected<IncomingStream<'_, TcpListener>> for Source {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Source {
        Source(*stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Source {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Source {
        Source(*stream.remote_addr())
    }
}

fn router<B: Backend>(backend: B) -> Router {
    let operations = Routes(Router::new())
        .with::<StoresQuery>()
        .with::<StoreRequest>()
        .with::<ExplainStoreQuery>()
        .with::<RegionsQuery>()
        .with::<WindowsQuery>()
        .with::<FlashQuery>()
        .with::<LeaderRequest>()
        .with::<RegionRequest>()
        .with::<CheckRequest>()
        .with::<ExplainQuery>()
        .with::<QuarantineQuery>()
        .with::<QuarantineRequest>()
        .with::<FailRequest>()
        .with::<PolicyQuery>()
        .with::<PolicyRequest>()
        .with::<ConfigQuery>()
        .with::<ConfigRequest>()
        .with::<OperatorsQuery>()
        .with::<VersionsQuery>()
        .with::<RecoverRequest>()
        .with::<RecoveriesQuery>()
        .with::<StatusQuery>()
        .with::<DeviceRequest>()
        .with::<ProbeRequest>()
        .with::<AcceptLossRequest>()
        .with::<EncryptionQuery>()
        .with::<EncryptionRequest>()
        .with::<AuditQuery>()
        .with::<TokensQuery>()
        .with::<TokenRequest>();
    operations
        .0
        .route("/healthz", get(healthz::<B>))
        .route("/metrics", get(metrics::<B>))
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            failure(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(backend.clone(), checked::<B>))
        .with_state(backend)
}

/// Returns the permission that a request needs. A path that is spelled in another way has no route.
fn need(path: &str, is_get: bool) -> Need {
    match (path, is_get) {
        ("/metrics", _) => Need::Metrics,
        (AuditQuery::PATH, _) => Need::Audit,
        (TokensQuery::PATH, true) => Need::Tokens,
        (TokensQuery::PATH, false) => Need::ChangeTokens,
        (_, true) => Need::Look,
        (_, false) => Need::Change,
    }
}

/// Carries out a request if its user may send it. The health check is for everyone.
async fn checked<B: Backend>(
    State(backend): State<B>,
    ConnectInfo(Source(address)): ConnectInfo<Source>,
    mut request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let is_get = [axum::http::Method::GET, axum::http::Method::HEAD].contains(request.method());
    let verdict = match request.uri().path() {
        "/healthz" => Ok(None),
        path => backend.admits(header, need(path, is_get)),
    };
    match verdict {
        Ok(user) => {
            let user = user.map(|name| shown(&name));
            request.extensions_mut().insert(Author { user, address });
            next.run(request).await
        }
        Err(refused) => refusal(refused),
    }
}

fn refusal(refused: Refused) -> Response {
    let unauthorized = |challenges: [&'static str; 2], text: &str| {
        let challenges = AppendHeaders(challenges.map(|challenge| (header::WWW_AUTHENTICATE, challenge)));
        (challenges, failure(StatusCode::UNAUTHORIZED, text)).into_response()
    };
    const BASIC: &str = "Basic realm=\"steelyard\"";
    match refused {
        Refused::NoLogin => unauthorized(
            [BASIC, "Bearer realm=\"steelyard\""],
            "the request needs a user and a password, or a token: set STEELYARD_ADMIN_AUTH=USER:PASSWORD or STEELYARD_ADMIN_TOKEN=TOKEN for ctl",
        ),
        Refused::WrongLogin => unauthorized(
            [BASIC, "Bearer realm=\"steelyard\""],
            "the user or the password is wrong, or the user is off: ctl takes both from STEELYARD_ADMIN_AUTH",
        ),
        Refused::BadToken => unauthorized(
            [BASIC, "Bearer realm=\"steelyard\", error=\"invalid_token\""],
            "this store knows no such token: it is mistyped, or was revoked, or its user was deleted",
        ),
        Refused::TokenExpired => unauthorized(
            [BASIC, "Bearer realm=\"steelyard\", error=\"invalid_token\""],
            "the token has expired: create another one with steelyard ctl token create",
        ),
        Refused::UserOff => failure(StatusCode::FORBIDDEN, "the user of the token is off"),
        Refused::NoPermission(command) => {
            failure(StatusCode::FORBIDDEN, format!("the user needs permission for {command}"))
        }
    }
}

struct Routes<B>(Router<B>);

impl<B: Backend> Routes<B> {
    /// Adds an operation.
    fn with<O: Served>(self) -> Routes<B> {
        let route = match O::METHOD {
            Method::Get => get(question::<B, O>),
            Method::Post => post(change::<B, O>),
            Method::PutOrPost => put(change::<B, O>).post(change::<B, O>),
        };
        Routes(self.0.route(O::PATH, route))
    }
}

/// Carries out an operation whose fields are a query.
async fn question<B: Backend, O: Served>(
    State(backend): State<B>,
    Extension(author): Extension<Author>,
    of: Result<Path<O::Of>, PathRejection>,
    query: Result<Query<O>, QueryRejection>,
) -> Outcome<O::Reply> {
    let Path(of) = of?;
    let Query(operation) = query?;
    Ok(Json(backend.carry_out(of, operation, author).await?))
}

/// Carries out an operation whose fields are a JSON body.
async fn change<B: Backend, O: Served>(
    State(backend): State<B>,
    Extension(author): Extension<Author>,
    of: Result<Path<O::Of>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Outcome<O::Reply> {
    let Path(of) = of?;
    let operation: O = parse(&headers, body)?;
    if let Some(reason) = operation.refusal() {
        return Err(bad_request(reason));
    }
    Ok(Json(backend.carry_out(of, operation, author).await?))
}

fn failure(status: StatusCode, message: impl Into<String>) -> Response {
    (status, Json(json!({ "error": message.into() }))).into_response()
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        failure(status, self.message)
    }
}

fn bad_request(message: impl Into<String>) -> AdminError {
    AdminError { status: 400, message: message.into() }
}

impl From<PathRejection> for AdminError {
    fn from(rejection: PathRejection) -> AdminError {
        bad_request(rejection.body_text())
    }
}

impl From<QueryRejection> for AdminError {
    fn from(rejection: QueryRejection) -> AdminError {
        bad_request(rejection.body_text())
    }
}

impl From<BytesRejection> for AdminError {
    fn from(rejection: BytesRejection) -> AdminError {
        AdminError { status: rejection.status().as_u16(), message: rejection.body_text() }
    }
}

type Outcome<T> = Result<Json<T>, AdminError>;
type Body = Result<Bytes, BytesRejection>;

fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, AdminError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(AdminError {
            status: 415,
            message: "the request needs the header Content-Type: application/json".into(),
        });
    }
    serde_json::from_slice(&body?).map_err(|error| bad_request(format!("the body is not valid: {error}")))
}

async fn healthz<B: Backend>(State(backend): State<B>) -> (StatusCode, &'static str) {
    if backend.healthy() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving\n")
    }
}

async fn metrics<B: Backend>(State(backend): State<B>) -> Response {
    // The format that `prometheus-client` writes, which ends in "# EOF".
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPEN_METRICS)], backend.metrics()).into_response()
}

#[cfg(test)]
mod tests;
