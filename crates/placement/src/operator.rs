//! What a policy may ask for, and why it asks.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::units::BytesPerSecond;

/// One scheduled change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Operator {
    TransferLeader { region: RegionId, from: StoreId, to: StoreId, reason: Reason },
}

impl Operator {
    pub fn region(&self) -> RegionId {
        match self {
            Operator::TransferLeader { region, .. } => *region,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Operator::TransferLeader { .. } => "transfer-leader",
        }
    }

    /// The store that does less afterwards, where there is one.
    pub fn from(&self) -> Option<StoreId> {
        match self {
            Operator::TransferLeader { from, .. } => Some(*from),
        }
    }

    /// The store that does more afterwards.
    pub fn to(&self) -> StoreId {
        match self {
            Operator::TransferLeader { to, .. } => *to,
        }
    }

    pub fn reason(&self) -> &Reason {
        match self {
            Operator::TransferLeader { reason, .. } => reason,
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operator::TransferLeader { region, from, to, reason } => {
                write!(f, "move the leader of region {region} from store {from} to store {to}: {reason}")
            }
        }
    }
}

/// Why, in numbers; `Display` makes it a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Reason {
    /// `even`. The counts are those before the move, moves in flight and moves planned earlier in the same
    /// round counted as done. When no region of `most` has an eligible peer on `least`, leadership is
    /// handed on from store to store, each step a region of its own: `steps` is above 1.
    LeaderCounts {
        most: StoreId,
        most_leaders: u32,
        least: StoreId,
        least_leaders: u32,
        step: u32,
        steps: u32,
    },
    /// `leader-only`. Bytes/s of the leader's store and of the one that shall lead.
    MoreCapable { from_bytes_per_s: u64, to_bytes_per_s: u64 },
    /// Somebody asked for it.
    Requested,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::LeaderCounts { most, most_leaders, least, least_leaders, step, steps } => {
                let regions = |count: &u32| if *count == 1 { "region" } else { "regions" };
                write!(
                    f,
                    "store {most} leads {most_leaders} {} and store {least} leads {least_leaders}",
                    regions(most_leaders)
                )?;
                if *steps > 1 {
                    write!(f, " (step {step} of a chain of {steps} moves between them)")?;
                }
                Ok(())
            }
            Reason::MoreCapable { from_bytes_per_s, to_bytes_per_s } => write!(
                f,
                "its store writes {}, the present leader's {}",
                BytesPerSecond(*to_bytes_per_s),
                BytesPerSecond(*from_bytes_per_s)
            ),
            Reason::Requested => f.write_str("it was asked for"),
        }
    }
}
