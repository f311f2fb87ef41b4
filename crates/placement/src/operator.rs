//! The operators: the changes that a policy can request.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::Reason;

/// One scheduled change of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Operator {
    TransferLeader {
        region: RegionId,
        from: StoreId,
        to: StoreId,
        reason: Reason,
    },
    /// Adds a learner, fills it and promotes it. A learner that exists already is filled and
    /// promoted.
    AddPeer {
        region: RegionId,
        to: StoreId,
        reason: Reason,
    },
    /// Removes the peer on `from`, voter or learner. If it leads, leadership is transferred first.
    RemovePeer {
        region: RegionId,
        from: StoreId,
        reason: Reason,
    },
    /// Adds a learner on `to` and fills it, swaps it with the peer on `from` in one joint change,
    /// and removes the latter. If `from` leads, leadership is transferred first.
    MovePeer {
        region: RegionId,
        from: StoreId,
        to: StoreId,
        reason: Reason,
    },
    /// The region's leader chooses the slot.
    Split {
        region: RegionId,
        reason: Reason,
    },
    /// Ends `region` and gives its slots to `into`, whose peers are on the same stores.
    Merge {
        region: RegionId,
        into: RegionId,
        reason: Reason,
    },
    /// Lets `region` accept commands again. It has refused them since it was sealed for a merge
    /// that was abandoned.
    Unseal {
        region: RegionId,
        reason: Reason,
    },
}

impl Operator {
    pub fn region(&self) -> RegionId {
        match self {
            Operator::TransferLeader { region, .. }
            | Operator::AddPeer { region, .. }
            | Operator::RemovePeer { region, .. }
            | Operator::MovePeer { region, .. }
            | Operator::Split { region, .. }
            | Operator::Merge { region, .. }
            | Operator::Unseal { region, .. } => *region,
        }
    }

    /// Returns the second region that takes part. No other operator may affect it at the same time.
    pub fn into_region(&self) -> Option<RegionId> {
        match self {
            Operator::Merge { into, .. } => Some(*into),
            _ => None,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Operator::TransferLeader { .. } => "transfer-leader",
            Operator::AddPeer { .. } => "add-peer",
            Operator::RemovePeer { .. } => "remove-peer",
            Operator::MovePeer { .. } => "move-peer",
            Operator::Split { .. } => "split",
            Operator::Merge { .. } => "merge",
            Operator::Unseal { .. } => "unseal",
        }
    }

    /// Returns the store whose load decreases, if there is one.
    pub fn from(&self) -> Option<StoreId> {
        match self {
            Operator::TransferLeader { from, .. }
            | Operator::RemovePeer { from, .. }
            | Operator::MovePeer { from, .. } => Some(*from),
            Operator::AddPeer { .. }
            | Operator::Split { .. }
            | Operator::Merge { .. }
            | Operator::Unseal { .. } => None,
        }
    }

    /// Returns the store whose load increases, if there is one.
    pub fn to(&self) -> Option<StoreId> {
        match self {
            Operator::TransferLeader { to, .. }
            | Operator::AddPeer { to, .. }
            | Operator::MovePeer { to, .. } => Some(*to),
            Operator::RemovePeer { .. }
            | Operator::Split { .. }
            | Operator::Merge { .. }
            | Operator::Unseal { .. } => None,
        }
    }

    /// Returns true if the operator copies the region to a store.
    pub fn moves_data(&self) -> bool {
        matches!(self, Operator::AddPeer { .. } | Operator::MovePeer { .. })
    }

    pub fn reason(&self) -> &Reason {
        match self {
            Operator::TransferLeader { reason, .. }
            | Operator::AddPeer { reason, .. }
            | Operator::RemovePeer { reason, .. }
            | Operator::MovePeer { reason, .. }
            | Operator::Split { reason, .. }
            | Operator::Merge { reason, .. }
            | Operator::Unseal { reason, .. } => reason,
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operator::TransferLeader { region, from, to, .. } => {
                write!(f, "move the leader of region {region} from store {from} to store {to}")?;
            }
            Operator::AddPeer { region, to, .. } => write!(f, "add a peer of region {region} on store {to}")?,
            Operator::RemovePeer { region, from, .. } => {
                write!(f, "remove the peer of region {region} on store {from}")?;
            }
            Operator::MovePeer { region, from, to, .. } => {
                write!(f, "move the peer of region {region} on store {from} to store {to}")?;
            }
            Operator::Split { region, .. } => write!(f, "split region {region}")?,
            Operator::Merge { region, into, .. } => write!(f, "merge region {region} into region {into}")?,
            Operator::Unseal { region, .. } => write!(f, "let region {region} take commands again")?,
        }
        write!(f, ": {}", self.reason())
    }
}
