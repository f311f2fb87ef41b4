//! The audit log, and the bearer tokens of the admin endpoint.

use serde::{Deserialize, Serialize};

use super::{Method, Operation, HIDDEN};
use crate::state::is_token_name;
pub use crate::state::{AuditOutcome, AuditRecord, AuditedChange};

/// Asks for the last records of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    #[serde(default = "last")]
    pub last: usize,
}

/// The number of records that are shown unless a query says otherwise.
pub const AUDIT_LAST: usize = 50;

fn last() -> usize {
    AUDIT_LAST
}

impl Operation for AuditQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/audit";
    type Of = ();
    type Reply = AuditRows;
}

/// Records of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditRows {
    /// The number of the oldest record that is kept. Those before it were dropped.
    pub first: u64,
    /// The last records, oldest first.
    pub records: Vec<AuditRecord>,
}

/// Asks for the bearer tokens, without the secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokensQuery {}

impl Operation for TokensQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/tokens";
    type Of = ();
    type Reply = Vec<TokenRow>;
}

/// A bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    pub name: String,
    pub user: String,
    pub created_unix_ms: u64,
    /// The time from which on it is refused, if it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<u64>,
}

/// Creates or revokes a token: `{"change": "create", "name": "prometheus", "user": "metrics"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TokenRequest {
    Create {
        name: String,
        user: String,
        /// Seconds until it expires. Without them it is valid until it is revoked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
    },
    Revoke {
        name: String,
    },
}

impl Operation for TokenRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/tokens";
    const CHANGE: &'static str = "token";
    type Of = ();
    type Reply = TokenReply;

    /// Returns the names. One that no token can have may be a token itself.
    fn audited(&self) -> Vec<String> {
        let (change, name, user, seconds) = match self {
            TokenRequest::Create { name, user, seconds } => ("create", name, Some(user), *seconds),
            TokenRequest::Revoke { name } => ("revoke", name, None, None),
        };
        let name = if is_token_name(name) { name } else { HIDDEN };
        let mut fields = vec![format!("change={change}"), format!("name={name}")];
        fields.extend(user.map(|user| format!("user={user}")));
        fields.extend(seconds.map(|seconds| format!("seconds={seconds}")));
        fields
    }
}

/// The result of a change of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReply {
    pub name: String,
    /// The token, which is shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}
