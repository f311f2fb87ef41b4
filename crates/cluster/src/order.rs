//! Orders that the meta region's leader sends to leaders of regions.
//!
//! ```text
//! version u8 = 1 | term | kind u8 | region | ...
//!
//! kind                  rest
//! 1  transfer leader    to
//! 2  change             conf_version, version, change
//! 3  split              conf_version, version, new_region
//!
//! change (kind u8, rest)
//! 1  peers              count, then: kind u8 (1 add learner, 2 promote, 3 demote, 4 remove), store
//! 2  leave joint        -
//! 3  split              at, new_region
//! 4  prepare merge      into
//! 5  roll merge back    -
//! 6  commit merge       length, source's descriptor, source_index
//! ```
//!
//! Integers are unsigned LEB128; no byte may follow. `term` is the term of region 0 in which the
//! sender leads it. A store that knows a later term ignores the order, because the sender may not
//! know the decisions of that term.

use std::fmt;

use bytes::Bytes;
use types::{PeerChange, RegionChange, RegionEpoch, RegionId, StoreId, Term};

use crate::wire::{Reader, Writer};
use crate::WireError;

const VERSION: u8 = 1;

/// An order for a region's leader. The leader ignores it if the region's epoch is not `expect`, so
/// an order may be late or repeated. Heartbeats report the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    TransferLeader {
        region: RegionId,
        to: StoreId,
    },
    Change {
        region: RegionId,
        expect: RegionEpoch,
        change: RegionChange,
    },
    /// The region's leader chooses the slot and proposes the change.
    Split {
        region: RegionId,
        expect: RegionEpoch,
        new_region: RegionId,
    },
}

impl Order {
    pub fn region(&self) -> RegionId {
        match self {
            Order::TransferLeader { region, .. }
            | Order::Change { region, .. }
            | Order::Split { region, .. } => *region,
        }
    }

    pub fn encode(&self, term: Term) -> Bytes {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.uint(term);
        out.u8(match self {
            Order::TransferLeader { .. } => 1,
            Order::Change { .. } => 2,
            Order::Split { .. } => 3,
        });
        out.uint(self.region());
        match self {
            Order::TransferLeader { to, .. } => out.uint(*to),
            Order::Change { expect, change, .. } => {
                out.epoch(*expect);
                encode_change(change, &mut out);
            }
            Order::Split { expect, new_region, .. } => {
                out.epoch(*expect);
                out.uint(*new_region);
            }
        }
        out.finish()
    }

    pub fn decode(bytes: &[u8]) -> Result<(Term, Order), WireError> {
        let mut from = Reader(bytes);
        from.version(VERSION)?;
        let term = from.uint()?;
        let kind = from.u8()?;
        let region = from.uint()?;
        let order = match kind {
            1 => Order::TransferLeader { region, to: from.uint()? },
            2 => Order::Change { region, expect: from.epoch()?, change: decode_change(&mut from)? },
            3 => Order::Split { region, expect: from.epoch()?, new_region: from.uint()? },
            _ => return Err(WireError::Malformed("an unknown kind of order")),
        };
        from.end()?;
        Ok((term, order))
    }
}

fn encode_change(change: &RegionChange, out: &mut Writer) {
    match change {
        RegionChange::Peers(changes) => {
            out.u8(1);
            out.uint(changes.len() as u64);
            for change in changes {
                out.u8(change.code());
                out.uint(change.store());
            }
        }
        RegionChange::LeaveJoint => out.u8(2),
        RegionChange::Split { at, new_region } => {
            out.u8(3);
            out.uint(u64::from(*at));
            out.uint(*new_region);
        }
        RegionChange::PrepareMerge { into } => {
            out.u8(4);
            out.uint(*into);
        }
        RegionChange::RollbackMerge => out.u8(5),
        RegionChange::CommitMerge { source, source_index } => {
            out.u8(6);
            out.descriptor(source);
            out.uint(*source_index);
        }
    }
}

fn decode_change(from: &mut Reader<'_>) -> Result<RegionChange, WireError> {
    Ok(match from.u8()? {
        1 => {
            let count = from.count(2)?;
            let changes = (0..count).map(|_| {
                let change = PeerChange::from_code(from.u8()?, from.uint()?);
                change.ok_or(WireError::Malformed("an unknown change of a peer"))
            });
            RegionChange::Peers(changes.collect::<Result<_, _>>()?)
        }
        2 => RegionChange::LeaveJoint,
        3 => RegionChange::Split { at: from.slot()?, new_region: from.uint()? },
        4 => RegionChange::PrepareMerge { into: from.uint()? },
        5 => RegionChange::RollbackMerge,
        6 => RegionChange::CommitMerge { source: Box::new(from.descriptor()?), source_index: from.uint()? },
        _ => return Err(WireError::Malformed("an unknown change of a region")),
    })
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::TransferLeader { region, to } => write!(f, "region {region}: transfer the leader to {to}"),
            Order::Change { region, change, .. } => match change {
                RegionChange::Peers(changes) => {
                    write!(f, "region {region}:")?;
                    for (at, change) in changes.iter().enumerate() {
                        let verb = match change {
                            PeerChange::AddLearner(_) => "add learner",
                            PeerChange::Promote(_) => "promote",
                            PeerChange::Demote(_) => "demote",
                            PeerChange::Remove(_) => "remove",
                        };
                        write!(f, "{} {verb} {}", if at == 0 { "" } else { "," }, change.store())?;
                    }
                    Ok(())
                }
                RegionChange::LeaveJoint => write!(f, "region {region}: leave the joint configuration"),
                RegionChange::Split { at, new_region } => {
                    write!(f, "region {region}: split at slot {at} into {new_region}")
                }
                RegionChange::PrepareMerge { into } => {
                    write!(f, "region {region}: prepare to merge into {into}")
                }
                RegionChange::RollbackMerge => write!(f, "region {region}: roll the merge back"),
                RegionChange::CommitMerge { source, source_index } => {
                    write!(f, "region {region}: take over region {} as of {source_index}", source.id)
                }
            },
            Order::Split { region, new_region, .. } => write!(f, "region {region}: split into {new_region}"),
        }
    }
}

#[cfg(test)]
mod tests;
