//! The HTTP interface of [`AdminBackend`].
//!
//! | request | answer |
//! |---|---|
//! | `GET /healthz` | 200 `ok` or 503 `not serving` |
//! | `GET /metrics` | Prometheus text |
//! | `GET /api/v1/stores`, `regions`, `status`, `operators[?history=true]` | rows of `backend` |
//! | `GET /api/v1/policy`, `PUT` or `POST` `{"policy": "even"}` | `{"policy": ...}` |
//! | `GET /api/v1/config` | rows of `backend` |
//! | `PUT` or `POST /api/v1/config` `{"name": "domain-label", "value": "zone"}` | the same |
//! | `POST /api/v1/regions/{id}/leader` `{"store": 2}` | `{"region": ..., "store": ...}` |
//! | `POST /api/v1/regions/{id}/change` a `RegionRequest`: `{"change": "split"}` | the same |
//! | `POST /api/v1/stores/{id}/change` a `StoreRequest`: `{"change": "drain"}` | the same |
//! | `POST /api/v1/regions/{id}/check` `{}` | a `CheckRow`, once every peer has read its rows |
//! | `GET /api/v1/quarantine` | rows of `backend` |
//! | `POST /api/v1/regions/{id}/quarantine` `{"decision": "skip", "index": 7}` | the same |
//! | `POST /api/v1/regions/{id}/fail` `{"by_panic": true}`, for tests | the same |
//! | `GET /api/v1/regions/{id}/explain` | `{"region": ..., "explanation": ...}` |
//! | `GET /api/v1/stores/{id}/explain` | `{"store": ..., "explanation": ...}` |
//! | `POST /api/v1/recover` a `RecoverRequest`: `{"lost": [1, 2], "act": true}` | a `RecoverRow` |
//! | `GET /api/v1/recoveries` | rows of `backend` |
//! | `GET /api/v1/versions` | a `VersionsRow` |
//! | `POST /api/v1/device` `{"slow": 10}` | `{"slow": ...}` |
//! | `POST /api/v1/probe` `{}` | a `ProbeRow`, after some seconds |
//! | `POST /api/v1/accept-loss` `{"region": 3}` | `AcceptedRow`s |
//!
//! The answer to `recover` may take a minute. `accept-loss` without a region accepts the loss of
//! all regions that have no leader.
//!
//! Every error is `{"error": "..."}` with its status. Requests that change something must declare a
//! JSON body and must not come from a web page. A browser sends such a request only after a CORS
//! preflight, which is never granted here.

use std::future::Future;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{header, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;

use super::{
    AdminBackend, AdminError, FailRequest, QuarantineRequest, RecoverRequest, RegionRequest, StoreRequest,
};

/// Maximum bytes of a request's body. Real bodies have a few dozen bytes.
const BODY_BYTES_MAX: usize = 16 << 10;

type Backend = State<Arc<dyn AdminBackend>>;

/// Answers requests until `shutdown` resolves, then lets those in progress finish.
pub async fn serve(
    listener: TcpListener,
    backend: Arc<dyn AdminBackend>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router(backend)).with_graceful_shutdown(shutdown).await
}

fn router(backend: Arc<dyn AdminBackend>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route("/api/v1/stores", get(stores))
        .route("/api/v1/regions", get(regions))
        .route("/api/v1/regions/{id}/leader", post(move_leader))
        .route("/api/v1/regions/{id}/change", post(change_region))
        .route("/api/v1/regions/{id}/check", post(check))
        .route("/api/v1/regions/{id}/quarantine", post(quarantine))
        .route("/api/v1/regions/{id}/fail", post(fail))
        .route("/api/v1/quarantine", get(quarantined))
        .route("/api/v1/stores/{id}/change", post(change_store))
        .route("/api/v1/regions/{id}/explain", get(explain))
        .route("/api/v1/stores/{id}/explain", get(explain_store))
        .route("/api/v1/policy", get(policy).put(set_policy).post(set_policy))
        .route("/api/v1/config", get(config).put(set_config).post(set_config))
        .route("/api/v1/operators", get(operators))
        .route("/api/v1/status", get(status))
        .route("/api/v1/device", post(device))
        .route("/api/v1/probe", post(probe))
        .route("/api/v1/accept-loss", post(accept_loss))
        .route("/api/v1/recover", post(recover))
        .route("/api/v1/recoveries", get(recoveries))
        .route("/api/v1/versions", get(versions))
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            failure(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(backend)
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
/// The id of a region or a store.
type NumberPath = Result<Path<u64>, PathRejection>;
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

async fn healthz(State(backend): Backend) -> (StatusCode, &'static str) {
    if backend.healthy() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving\n")
    }
}

async fn metrics(State(backend): Backend) -> Response {
    // The format that `prometheus-client` writes, which ends in "# EOF".
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPEN_METRICS)], backend.metrics()).into_response()
}

async fn stores(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(backend.stores().await?))
}

async fn regions(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(backend.regions().await?))
}

async fn status(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(backend.status().await?))
}

async fn policy(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(json!({ "policy": backend.policy().await? })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRequest {
    policy: String,
}

async fn set_policy(State(backend): Backend, headers: HeaderMap, body: Body) -> Outcome<impl Serialize> {
    let PolicyRequest { policy } = parse(&headers, body)?;
    backend.set_policy(policy.clone()).await?;
    Ok(Json(json!({ "policy": policy })))
}

async fn config(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(backend.config().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigRequest {
    name: String,
    value: String,
}

async fn set_config(State(backend): Backend, headers: HeaderMap, body: Body) -> Outcome<impl Serialize> {
    let ConfigRequest { name, value } = parse(&headers, body)?;
    backend.set_config(name.clone(), value.clone()).await?;
    Ok(Json(json!({ "name": name, "value": value })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaderRequest {
    store: u64,
}

async fn move_leader(
    State(backend): Backend,
    region: NumberPath,
    headers: HeaderMap,
    body: Body,
) -> Outcome<impl Serialize> {
    let Path(region) = region?;
    let LeaderRequest { store } = parse(&headers, body)?;
    backend.move_leader(region, store).await?;
    Ok(Json(json!({ "region": region, "store": store })))
}

async fn change_region(
    State(backend): Backend,
    region: NumberPath,
    headers: HeaderMap,
    body: Body,
) -> Outcome<impl Serialize> {
    let Path(region) = region?;
    let change: RegionRequest = parse(&headers, body)?;
    backend.change_region(region, change.clone()).await?;
    Ok(Json(change))
}

async fn check(
    State(backend): Backend,
    region: NumberPath,
    headers: HeaderMap,
    body: Body,
) -> Outcome<impl Serialize> {
    let Path(region) = region?;
    let NoParameters {} = parse(&headers, body)?;
    Ok(Json(backend.check(region).await?))
}

async fn quarantined(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(backend.quarantined().await?))
}

async fn quarantine(
    State(backend): Backend,
    region: NumberPath,
    headers: HeaderMap,
    body: Body,
) -> Outcome<impl Serialize> {
    let Path(region) = region?;
    let request: QuarantineRequest = parse(&headers, body)?;
    backend.quarantine(region, request.clone()).await?;
    Ok(Json(request))
}

async fn fail(
    State(backend): Backend,
    region: NumberPath,
    headers: HeaderMap,
    body: Body,
) -> Outcome<impl Serialize> {
    let Path(region) = region?;
    let request: FailRequest = parse(&headers, body)?;
    backend.fail(region, request.clone()).await?;
    Ok(Json(request))
}

async fn change_store(
    State(backend): Backend,
    store: NumberPath,
    headers: HeaderMap,
    body: Body,
) -> Outcome<impl Serialize> {
    let Path(store) = store?;
    let change: StoreRequest = parse(&headers, body)?;
    backend.change_store(store, change.clone()).await?;
    Ok(Json(change))
}

async fn versions(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(backend.versions().await?))
}

async fn explain(State(backend): Backend, region: NumberPath) -> Outcome<impl Serialize> {
    let Path(region) = region?;
    let explanation = backend.explain(region).await?;
    Ok(Json(json!({ "region": region, "explanation": explanation })))
}

async fn explain_store(State(backend): Backend, store: NumberPath) -> Outcome<impl Serialize> {
    let Path(store) = store?;
    let explanation = backend.explain_store(store).await?;
    Ok(Json(json!({ "store": store, "explanation": explanation })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperatorsQuery {
    #[serde(default)]
    history: bool,
}

async fn operators(
    State(backend): Backend,
    query: Result<Query<OperatorsQuery>, QueryRejection>,
) -> Outcome<impl Serialize> {
    let Query(OperatorsQuery { history }) = query?;
    Ok(Json(backend.operators(history).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceRequest {
    slow: f64,
}

async fn device(State(backend): Backend, headers: HeaderMap, body: Body) -> Outcome<impl Serialize> {
    let DeviceRequest { slow } = parse(&headers, body)?;
    if !slow.is_finite() || slow <= 0.0 {
        return Err(bad_request(
            "slow is a factor above 0: 10 is ten times slower, 1 is the profile's own speed",
        ));
    }
    backend.slow_device(slow).await?;
    Ok(Json(json!({ "slow": slow })))
}

/// The body of a request without parameters, `{}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

async fn probe(State(backend): Backend, headers: HeaderMap, body: Body) -> Outcome<impl Serialize> {
    let NoParameters {} = parse(&headers, body)?;
    Ok(Json(backend.probe().await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptLossRequest {
    #[serde(default)]
    region: Option<u64>,
}

async fn accept_loss(State(backend): Backend, headers: HeaderMap, body: Body) -> Outcome<impl Serialize> {
    let AcceptLossRequest { region } = parse(&headers, body)?;
    Ok(Json(backend.accept_loss(region).await?))
}

async fn recover(State(backend): Backend, headers: HeaderMap, body: Body) -> Outcome<impl Serialize> {
    let request: RecoverRequest = parse(&headers, body)?;
    Ok(Json(backend.recover(request).await?))
}

async fn recoveries(State(backend): Backend) -> Outcome<impl Serialize> {
    Ok(Json(backend.recoveries().await?))
}

#[cfg(test)]
mod tests;
