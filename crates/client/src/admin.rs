//! A blocking HTTP client of a store's admin endpoint, with short timeouts, and the operations that
//! it can ask for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use cluster::admin::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::tls::{self, ClientTls, HttpTls};

/// The reason why a request to an admin endpoint failed. Its text is meant for people.
#[derive(Debug)]
pub enum AdminFailure {
    /// The store answered with an error.
    Answered { status: u16, message: String },
    /// The store sent no answer, or one that could not be read.
    Silent(String),
}

impl std::fmt::Display for AdminFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AdminFailure::Answered { message, .. } => f.write_str(message),
            AdminFailure::Silent(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for AdminFailure {}

#[derive(Clone)]
pub struct AdminClient {
    address: SocketAddr,
    /// `https` with TLS.
    scheme: &'static str,
    agent: ureq::Agent,
    /// The header of a login, if [`TOKEN`] or [`LOGIN`] gives one.
    login: Option<String>,
}

/// The variable with a user and a password for admin endpoints that ask for them:
/// `USER:PASSWORD`.
pub const LOGIN: &str = "STEELYARD_ADMIN_AUTH";

/// The variable with a bearer token for admin endpoints. It has priority over [`LOGIN`].
pub const TOKEN: &str = "STEELYARD_ADMIN_TOKEN";

impl AdminClient {
    /// Creates a client that uses TLS if this process does.
    pub fn new(address: SocketAddr, timeout: Duration) -> AdminClient {
        AdminClient::with_tls(address, timeout, tls::of_process())
    }

    /// Creates a client with the given use of TLS, if there is one.
    pub fn with_tls(
        address: SocketAddr,
        timeout: Duration,
        tls: Result<Option<ClientTls>, String>,
    ) -> AdminClient {
        let mut agent = ureq::AgentBuilder::new().timeout_connect(timeout).timeout(timeout);
        let tls = tls.transpose();
        let scheme = if tls.is_some() { "https" } else { "http" };
        if let Some(tls) = tls {
            agent = agent.tls_connector(Arc::new(HttpTls(tls)));
        }
        let agent = agent.build();
        let token = std::env::var(TOKEN).ok().map(|token| format!("Bearer {}", token.trim()));
        let basic = || Some(format!("Basic {}", base64(std::env::var(LOGIN).ok()?.as_bytes())));
        let login = token.or_else(basic);
        AdminClient { address, scheme, agent, login }
    }

    /// Sends the request with the login, if there is one.
    fn with_login(&self, request: ureq::Request) -> ureq::Request {
        match &self.login {
            Some(login) => request.set("Authorization", login),
            None => request,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn healthy(&self) -> bool {
        self.agent.get(&self.url("/healthz")).call().is_ok()
    }

    /// Asks the store for an operation of the cluster or of the store itself.
    pub fn ask<O: Operation<Of = ()>>(&self, operation: &O) -> Result<O::Reply, AdminFailure> {
        self.send(O::PATH, operation)
    }

    /// Asks the store for an operation on the region or the store `of`.
    pub fn ask_of<O: Operation<Of = u64>>(&self, of: u64, operation: &O) -> Result<O::Reply, AdminFailure> {
        self.send(&O::PATH.replace("{id}", &of.to_string()), operation)
    }

    fn send<O: Operation>(&self, path: &str, operation: &O) -> Result<O::Reply, AdminFailure> {
        let url = self.url(path);
        match O::METHOD {
            Method::Get => {
                let fields = serde_json::to_value(operation).expect("plain data");
                let fields = fields.as_object().into_iter().flatten();
                // Numbers and booleans look the same in a query and in JSON.
                let with = |request: ureq::Request, (name, value): (&String, &Value)| {
                    request.query(name, &value.to_string())
                };
                self.read(fields.fold(self.with_login(self.agent.get(&url)), with).call())
            }
            Method::Post | Method::PutOrPost => {
                self.read(self.with_login(self.agent.post(&url)).send_json(operation))
            }
        }
    }

    /// Sends `GET path` to a server that may be no store.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminFailure> {
        self.read(self.with_login(self.agent.get(&self.url(path))).call())
    }

    /// Returns the value of one of the store's counters. It is an error if there is no such
    /// counter.
    pub fn counter(&self, name: &str) -> Result<u64, AdminFailure> {
        let counters = self.ask(&StatusQuery {})?.counters;
        counters
            .into_iter()
            .find_map(|(of, value)| (of == name).then_some(value))
            .ok_or_else(|| AdminFailure::Silent(format!("{} has no counter {name}", self.address)))
    }

    /// Returns the value of one of the store's gauges in `GET /metrics`. It is an error if there is
    /// no such gauge.
    pub fn gauge(&self, name: &str) -> Result<u64, AdminFailure> {
        let silent =
            |error: String| AdminFailure::Silent(format!("no answer from {}: {error}", self.address));
        let answer = self
            .with_login(self.agent.get(&self.url("/metrics")))
            .call()
            .map_err(|error| silent(error.to_string()))?;
        let text = answer.into_string().map_err(|error| silent(error.to_string()))?;
        gauge(&text, name)
            .ok_or_else(|| AdminFailure::Silent(format!("{} has no gauge {name}", self.address)))
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    fn read<T: DeserializeOwned>(
        &self,
        answer: Result<ureq::Response, ureq::Error>,
    ) -> Result<T, AdminFailure> {
        match answer {
            Ok(response) => response.into_json().map_err(|error| {
                AdminFailure::Silent(format!("{} sent an answer that cannot be read: {error}", self.address))
            }),
            Err(ureq::Error::Status(status, response)) => {
                let body: Value = response.into_json().unwrap_or_default();
                let message = body["error"].as_str().unwrap_or("no reason given").to_owned();
                Err(AdminFailure::Answered { status, message })
            }
            Err(ureq::Error::Transport(error)) => {
                let source = || std::error::Error::source(&error).map(ToString::to_string);
                let reason = error.message().map(str::to_owned).or_else(source);
                let reason = reason.unwrap_or_else(|| error.kind().to_string());
                Err(AdminFailure::Silent(format!("no answer from {}: {reason}", self.address)))
            }
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= chunk.len() { char::from(ALPHABET[value as usize]) } else { '=' });
        }
    }
    text
}

/// Finds a gauge in Prometheus text by its name without the prefix `steelyard_`.
fn gauge(text: &str, name: &str) -> Option<u64> {
    let value =
        |line: &str| line.strip_prefix("steelyard_")?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::{base64, gauge};

    #[test]
    fn logins_are_encoded_with_padding() {
        for (plain, text) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("user:pass", "dXNlcjpwYXNz")] {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }

    #[test]
    fn a_gauge_is_found_by_its_whole_name() {
        let text = "# TYPE steelyard_compactions_running gauge\n\
                    steelyard_compactions_running_since 7\nsteelyard_compactions_running 2\n# EOF\n";
        assert_eq!(gauge(text, "compactions_running"), Some(2));
        assert_eq!(gauge(text, "compactions"), None);
        assert_eq!(gauge("", "compactions_running"), None);
    }
}
