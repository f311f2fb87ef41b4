//! Work that waits to be proposed, and its outcome.

use std::sync::Arc;

use bytes::Bytes;
use command::entry::Builder;
use command::order::Order;
use resp::Reply;
use types::{BootNanos, RegionId, Slot};

use crate::item::Item;

/// Maximum bytes of commands that the groups' thread should copy into an entry.
pub const COPIED_BYTES_MAX: usize = 1 << 20;

/// The contents of one Raft entry: commands, or a change of the cluster's own state.
#[derive(Clone)]
pub enum Work {
    Commands(Arc<Vec<Item>>),
    /// Commands that are already encoded, so that the groups' thread copies none of their bytes.
    /// Used for commands of more than [`COPIED_BYTES_MAX`].
    Encoded(Builder),
    /// An encoded `cluster::MetaCommand`, for the meta region.
    Meta(Bytes),
    Maintenance(Maintenance),
    /// An order, which is an entry of its own.
    Order(Order),
}

/// Slots with expired keys, and slots with rows of deleted collections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    pub expire: Vec<Slot>,
    pub sweep: Vec<Slot>,
}

impl Work {
    /// Returns the number of replies of an execution.
    pub fn len(&self) -> usize {
        match self {
            Work::Commands(items) => items.len(),
            Work::Encoded(items) => items.len(),
            Work::Meta(_) | Work::Order(_) => 1,
            Work::Maintenance(slots) => slots.expire.len() + slots.sweep.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the approximate bytes in an entry.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Commands(items) => items.iter().map(Item::bytes).sum(),
            Work::Encoded(items) => items.bytes(),
            Work::Meta(bytes) => bytes.len(),
            Work::Order(_) => 16,
            Work::Maintenance(_) => 7 * self.len(),
        }
    }
}

/// Work of a client `C`, which gets one answer.
#[derive(Clone)]
pub struct Submit<C> {
    pub region: RegionId,
    pub work: Work,
    /// The latest time at which the client is answered.
    pub deadline: BootNanos,
    /// The number of the connection that sent the commands, or 0 if it is not known. With `NOLOOP`,
    /// that client is not told of its own changes.
    pub author: u64,
    pub client: C,
}

/// The answer to a submission.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// One reply for each command. `None` means that the command was not executed, because the
    /// region no longer had its slot.
    Applied(Vec<Option<Reply>>),
    /// Nothing was proposed.
    Refused(Refusal),
    /// The work was proposed and may or may not take effect.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotLeader,
    TooLate,
}
