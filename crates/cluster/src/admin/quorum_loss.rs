//! The recovery of regions whose majority is lost for good.

use serde::{Deserialize, Serialize};

use super::{Method, Operation, RecoveryPlan};

/// An order to recover regions whose majority is lost for good:
/// `{"lost": [1, 2], "act": true}`. The answer may take a minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoverRequest {
    /// The stores that will never return.
    pub lost: Vec<u64>,
    /// The regions to recover. An empty list means every region that lost its majority with those
    /// stores.
    #[serde(default)]
    pub regions: Vec<u64>,
    /// False if the request only asks for a plan.
    #[serde(default)]
    pub act: bool,
}

impl Operation for RecoverRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/recover";
    const CHANGE: &'static str = "recover";
    type Of = ();
    type Reply = RecoverRow;

    /// A plan alone changes nothing.
    fn is_change(&self) -> bool {
        self.act
    }
}

/// The plan of an order, and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoverRow {
    pub plan: RecoveryPlan,
    /// The order's number, once it was carried out.
    pub order: Option<u64>,
    /// Regions that continue from a survivor's log and have a leader.
    pub recovered: Vec<u64>,
    pub failed: Vec<FailedRegion>,
    /// The lost stores. Each row says whether the store was removed from the list of stores.
    pub struck: Vec<StruckStore>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedRegion {
    pub region: u64,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StruckStore {
    pub store: u64,
    /// The reason why the store is still on the list of stores.
    pub not_struck: Option<String>,
}

/// Asks for the recoveries that regions have on record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveriesQuery {}

impl Operation for RecoveriesQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/recoveries";
    type Of = ();
    type Reply = Vec<RecoveryRow>;
}

/// The record of a region's recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryRow {
    pub region: u64,
    pub order: u64,
    pub at_unix_ms: u64,
    /// The store whose log was kept.
    pub keeper: u64,
    pub lost: Vec<u64>,
    /// The last entry that a survivor knew to be committed, and the last entry that was kept.
    pub committed: u64,
    pub last: u64,
}
