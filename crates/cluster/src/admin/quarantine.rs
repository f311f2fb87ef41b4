//! Quarantined peers, and decisions about them.

use serde::{Deserialize, Serialize};

use super::{Method, Operation};

/// Asks for the quarantined peers of all stores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuarantineQuery {}

impl Operation for QuarantineQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/quarantine";
    type Of = ();
    type Reply = Vec<QuarantineRow>;
}

/// A quarantined peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuarantineRow {
    pub region: u64,
    pub store: u64,
    /// The first entry of the region's log that it does not execute.
    pub index: u64,
    /// entry, change or rows.
    pub cause: String,
    /// True if its rows are served to connections that sent READONLY.
    pub read_only: bool,
    /// The command of the entry and the beginning of its key, or the check that found a difference.
    /// Empty for the later ones if the store has many quarantined peers.
    pub what: String,
    pub error: String,
}

/// An operator's decision about a region's quarantined peers:
/// `{"decision": "skip", "index": 7}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case", deny_unknown_fields)]
pub enum QuarantineRequest {
    /// No peer executes the entry.
    Skip {
        index: u64,
        /// True if the entry is skipped even if a store with a peer does not answer.
        #[serde(default)]
        force: bool,
    },
    /// Executes the entry again, on one store or on all stores.
    Retry { on: Option<u64> },
    /// Decides whether the rows are served to connections that sent READONLY.
    ReadOnly { read_only: bool },
    /// Removes the peer on this store. A snapshot then creates a new peer.
    Refill { from: u64 },
}

impl Operation for QuarantineRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/regions/{id}/quarantine";
    const CHANGE: &'static str = "quarantine";
    type Of = u64;
    type Reply = QuarantineRequest;
}

/// Proposes an entry that fails where it is executed, for tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    pub by_panic: bool,
    /// The stores on which the entry fails. An empty list means every store.
    #[serde(default)]
    pub stores: Vec<u64>,
}

impl Operation for FailRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/regions/{id}/fail";
    const CHANGE: &'static str = "fail-entry";
    type Of = u64;
    type Reply = FailRequest;
}
