//! The operations of a store's admin endpoint: requests and their answers, as plain data.
//!
//! Each operation has one type, which the stores and their clients share. So its path and its JSON
//! are defined once. The names of queries end in `Query`, and those of changes in `Request`. Every
//! store answers for the whole cluster.
//!
//! Every error is answered with its HTTP status and `{"error": "..."}`.

mod audit;
mod catch_up;
mod encryption;
mod flash;
mod quarantine;
mod quorum_loss;
mod region;
mod settings;
mod store;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::Serialize;

pub use audit::{
    AuditOutcome, AuditQuery, AuditRecord, AuditRows, AuditedChange, TokenReply, TokenRequest, TokenRow,
    TokensQuery, AUDIT_LAST,
};
pub use catch_up::{catch_up, CatchUpRow};
pub use encryption::{EncryptionQuery, EncryptionRequest, EncryptionRow, KeyRow};
pub use flash::{FlashQuery, FlashRow};
pub use quarantine::{FailRequest, QuarantineQuery, QuarantineRequest, QuarantineRow};
pub use quorum_loss::{FailedRegion, RecoverRequest, RecoverRow, RecoveriesQuery, RecoveryRow, StruckStore};
pub use region::{
    CheckRequest, CheckRow, CheckedRow, ExplainQuery, ExplainRow, LeaderRequest, LeaderRow, PeerRow,
    RegionRequest, RegionRow, RegionsQuery, WindowRow, WindowsQuery,
};
pub use settings::{
    ConfigQuery, ConfigRequest, ConfigRow, OperatorRow, OperatorsQuery, PolicyQuery, PolicyRequest,
    PolicyRow, StoreVersionsRow, VersionsQuery, VersionsRow,
};
pub use store::{
    AcceptLossRequest, AcceptedRow, DeviceRequest, ExplainStoreQuery, ExplainStoreRow, ProbeRequest,
    ProbeRow, StageRow, StatusQuery, StoreRequest, StoreRow, StoreStatus, StoresQuery,
};

pub use crate::quorum_loss::{RecoveryPlan, RefusedRegion, RegionPlan, Survivor};

/// An operation of the admin endpoint. Its fields are the query parameters of a query, or the JSON
/// body of a change.
pub trait Operation: Debug + Serialize + DeserializeOwned + Send + 'static {
    const METHOD: Method;
    /// The path. `{id}` in it stands for a region's or a store's number.
    const PATH: &'static str;
    /// The name of the change in the audit log; empty for an operation that changes nothing.
    const CHANGE: &'static str = "";
    /// The number in the path: `u64`, or `()` if the path has none.
    type Of: Debug + Serialize + DeserializeOwned + Send + 'static;
    type Reply: Serialize + DeserializeOwned + Send + 'static;

    /// Returns the reason why no store accepts the operation's values.
    fn refusal(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if the operation is a change, which is recorded in the audit log.
    fn is_change(&self) -> bool {
        !Self::CHANGE.is_empty()
    }

    /// Returns the operation's fields for the audit log, each as `name=value`.
    fn audited(&self) -> Vec<String> {
        let fields = serde_json::to_value(self).expect("plain data");
        let fields = fields.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
        fields.map(|(name, value)| format!("{name}={}", text(value))).collect()
    }
}

/// The text in the audit log in place of a value that is left out.
pub const HIDDEN: &str = "(hidden)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    /// PUT and POST mean the same.
    PutOrPost,
}
