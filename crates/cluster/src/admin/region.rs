//! Operations on one region, and on the list of regions.

use serde::{Deserialize, Serialize};

use super::{Method, Operation};

/// Asks for the regions of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionsQuery {}

impl Operation for RegionsQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/regions";
    type Of = ();
    type Reply = Vec<RegionRow>;
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionRow {
    pub id: u64,
    pub first_slot: Option<u16>,
    pub last_slot: Option<u16>,
    pub epoch_conf_version: u64,
    pub epoch_version: u64,
    /// True while the region has a joint configuration.
    pub joint: bool,
    pub leader: Option<u64>,
    pub term: u64,
    pub peers: Vec<PeerRow>,
    pub keys: u64,
    pub bytes: u64,
    /// Operations per second.
    pub read_rate: f64,
    /// Reads per second that needed the device because RAM lacked the row.
    pub miss_rate: f64,
    pub write_rate: f64,
    /// Operations per second, averaged over minutes. Heat per byte decides how cold a region is.
    pub heat: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerRow {
    pub store: u64,
    /// The peer's id within the region, never used twice.
    pub id: u64,
    /// voter, learner, incoming or outgoing.
    pub role: String,
    /// Log entries behind the leader's commit index.
    pub lag: Option<u64>,
    /// The cause of the quarantine: entry, change, rows or damage.
    #[serde(default)]
    pub quarantined: Option<String>,
    /// True if its store reports that the peer takes no part in consensus, because it may have lost
    /// writes.
    #[serde(default)]
    pub unclean: bool,
}

/// Asks for the proposal windows of all regions, as their leaders see them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WindowsQuery {}

impl Operation for WindowsQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/windows";
    type Of = ();
    type Reply = Vec<WindowRow>;
}

/// The proposals of one region that are under way (PaxStore Fig. 4.4). The numbers are indexes of
/// the region's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowRow {
    pub region: u64,
    pub leader: u64,
    /// The last committed entry.
    pub commit: u64,
    /// The last entry that another peer has acknowledged.
    pub promised: u64,
    /// The last entry that the leader has written to its own log.
    pub written: u64,
    /// The first index that no entry has.
    pub next: u64,
    /// The number of entries beyond `commit` from which on the leader makes no more proposals.
    pub window: u64,
}

impl WindowRow {
    /// Returns the number of entries that are not committed yet.
    pub fn in_flight(&self) -> u64 {
        self.next.saturating_sub(self.commit).saturating_sub(1)
    }
}

/// Moves a region's leader to a store that holds a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaderRequest {
    pub store: u64,
}

impl Operation for LeaderRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/regions/{id}/leader";
    const CHANGE: &'static str = "move-leader";
    type Of = u64;
    type Reply = LeaderRow;
}

/// The store to which a leader moves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaderRow {
    pub region: u64,
    pub store: u64,
}

/// Changes a region's peers or slots: `{"change": "split"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RegionRequest {
    AddPeer {
        to: u64,
    },
    RemovePeer {
        from: u64,
    },
    MovePeer {
        from: u64,
        to: u64,
    },
    Split,
    /// Ends the region. Its neighbour takes over its slots.
    Merge {
        into: u64,
    },
}

impl Operation for RegionRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/regions/{id}/change";
    const CHANGE: &'static str = "region";
    type Of = u64;
    type Reply = RegionRequest;
}

/// Compares the replicas of a region by reading all of their rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {}

impl Operation for CheckRequest {
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/api/v1/regions/{id}/check";
    type Of = u64;
    type Reply = CheckRow;
}

/// The result of a check of one region's replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckRow {
    pub region: u64,
    /// The index of the region's log at which all checksums were computed.
    pub index: u64,
    /// equal, minority, no majority or incomplete.
    pub verdict: String,
    /// The stores whose peers differ from the majority.
    pub differing: Vec<u64>,
    pub stores: Vec<CheckedRow>,
    /// The verdict as text, with advice for the operator.
    pub note: String,
}

/// One store's checksum of its peer's rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckedRow {
    pub store: u64,
    /// Sixteen hexadecimal digits, `unreadable`, `skipped` or `none`.
    pub checksum: String,
    pub rows: u64,
    pub bytes: u64,
}

/// Asks for the reasons of a region's placement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainQuery {}

impl Operation for ExplainQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/regions/{id}/explain";
    type Of = u64;
    type Reply = ExplainRow;
}

/// A region's placement, as text for display.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainRow {
    pub explanation: String,
    pub region: u64,
}
