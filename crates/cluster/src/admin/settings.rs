//! The settings of the cluster, its version, and the operators that change it.

use placement::Policy;
use serde::{Deserialize, Serialize};

use super::{Method, Operation, HIDDEN};
use crate::state::is_setting;

/// Asks for the placement policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyQuery {}

impl Operation for PolicyQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/policy";
    type Of = ();
    type Reply = PolicyRow;
}

/// The placement policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyRow {
    pub policy: String,
}

/// Changes the placement policy: `{"policy": "even"}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    pub policy: String,
}

impl Operation for PolicyRequest {
    const METHOD: Method = Method::PutOrPost;
    const PATH: &'static str = "/api/v1/policy";
    const CHANGE: &'static str = "policy";
    type Of = ();
    type Reply = PolicyRequest;

    fn audited(&self) -> Vec<String> {
        let is_known = self.policy.parse::<Policy>().is_ok();
        vec![format!("policy={}", if is_known { &self.policy } else { HIDDEN })]
    }
}

/// Asks for the settings that can be changed while the cluster runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfigQuery {}

impl Operation for ConfigQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/config";
    type Of = ();
    type Reply = Vec<ConfigRow>;
}

/// A cluster setting that can be changed while the cluster runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigRow {
    pub name: String,
    pub value: String,
    /// The meaning of the value, for display.
    pub note: String,
}

/// Changes a setting: `{"name": "domain-label", "value": "zone"}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigRequest {
    pub name: String,
    pub value: String,
}

impl Operation for ConfigRequest {
    const METHOD: Method = Method::PutOrPost;
    const PATH: &'static str = "/api/v1/config";
    const CHANGE: &'static str = "config";
    type Of = ();
    type Reply = ConfigRequest;

    /// Returns a known setting. An unknown one may be a mistyped password.
    fn audited(&self) -> Vec<String> {
        match is_setting(&self.name) {
            true => vec![format!("name={}", self.name), format!("value={}", self.value)],
            false => vec![format!("name={HIDDEN}"), format!("value={HIDDEN}")],
        }
    }
}

/// Asks for the cluster's version, and the versions that its stores support.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionsQuery {}

impl Operation for VersionsQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/versions";
    type Of = ();
    type Reply = VersionsRow;
}

/// The version of the cluster, and the conditions that delay a newer one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsRow {
    pub version: u32,
    /// True if the version rises automatically.
    pub finishes: bool,
    pub stores: Vec<StoreVersionsRow>,
    /// The reason why the version does not rise yet, for display.
    pub note: String,
}

/// The versions of a store. They are `None` if the store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreVersionsRow {
    pub store: u64,
    /// The newest version that its program supports.
    pub newest: Option<u32>,
    /// The version that its data directory records. An older program cannot start on that
    /// directory.
    pub prepared: Option<u32>,
}

/// Asks for the operators in flight, and with `history` also for those that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorsQuery {
    #[serde(default)]
    pub history: bool,
}

impl Operation for OperatorsQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/operators";
    type Of = ();
    type Reply = Vec<OperatorRow>;
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperatorRow {
    pub region: u64,
    pub kind: String,
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub reason: String,
    /// The kind of the reason, such as `wait` or `data-levels`. Empty from a store of an older
    /// version.
    #[serde(default)]
    pub reason_kind: String,
    pub state: String,
    pub started_unix_ms: u64,
    pub finished_unix_ms: Option<u64>,
}
