//! What waits to be proposed, and how it ends.

use std::sync::Arc;

use bytes::Bytes;
use command::order::Order;
use resp::Reply;
use types::{BootNanos, RegionId, Slot};

use crate::item::Item;

/// Commands, or a change of the cluster's own state, for one Raft entry.
#[derive(Clone)]
pub enum Work {
    Commands(Arc<Vec<Item>>),
    /// An encoded `cluster::MetaCommand`, for the meta region.
    Meta(Bytes),
    Maintenance(Maintenance),
    /// An order, which is an entry of its own.
    Order(Order),
}

/// Slots with keys whose time is over, and slots with rows of dead collections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    pub expire: Vec<Slot>,
    pub sweep: Vec<Slot>,
}

impl Work {
    /// Replies that its execution gives.
    pub fn len(&self) -> usize {
        match self {
            Work::Commands(items) => items.len(),
            Work::Meta(_) | Work::Order(_) => 1,
            Work::Maintenance(slots) => slots.expire.len() + slots.sweep.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it takes in an entry, roughly.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Commands(items) => items.iter().map(Item::bytes).sum(),
            Work::Meta(bytes) => bytes.len(),
            Work::Order(_) => 16,
            Work::Maintenance(_) => 7 * self.len(),
        }
    }
}

/// Work of a client, `C`, who is answered once.
#[derive(Clone)]
pub struct Submit<C> {
    pub region: RegionId,
    pub work: Work,
    /// When the client is answered whatever has happened.
    pub deadline: BootNanos,
    pub client: C,
}

/// The answer to a submission.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// One reply for each command; `None` where the region had given the slot away, and nothing was executed.
    Applied(Vec<Option<Reply>>),
    /// Nothing was proposed.
    Refused(Refusal),
    /// It was proposed, and may or may not take effect.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotLeader,
    TooLate,
}
