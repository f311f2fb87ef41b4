//! What the region worker is told: one closed enum, one queue.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use raft::eraftpb;
use replica::Input;
use resp::Reply;
use tokio::sync::oneshot;
use types::{LogIndex, RegionChange, RegionEpoch, RegionId, Slot, StoreId};

use crate::dispatch::Item;

pub enum ToWorker {
    /// For the groups as it is: an input that needs nothing of the worker's, and no token above all, for the
    /// worker hands these out.
    Input(Input),
    Submit(Submit),
    /// Prove that this store leads the region, for reads that begin now.
    ReadIndex {
        region: RegionId,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    Messages {
        from: StoreId,
        messages: Vec<(RegionId, eraftpb::Message)>,
    },
    /// Rows and states are written through these indexes.
    Applied {
        indexes: Vec<(RegionId, LogIndex)>,
    },
    /// A flush made everything durable that was applied up to these indexes.
    Flushed {
        applied: Vec<(RegionId, LogIndex)>,
    },
    /// Every peer of these regions holds the log up to these indexes.
    HeldByAll {
        indexes: Vec<(RegionId, LogIndex)>,
    },
    /// By order of the meta region's leader, if the region is of this epoch and led here.
    ChangeRegion {
        region: RegionId,
        expect: RegionEpoch,
        change: RegionChange,
    },
    SnapshotApplied {
        region: RegionId,
    },
    Stop,
}

/// Commands, or a change of the cluster's own state, for one Raft entry.
pub enum Work {
    Commands(Arc<Vec<Item>>),
    /// An encoded `cluster::MetaCommand`, for the meta region.
    Meta(Bytes),
    Maintenance(Maintenance),
}

/// Slots with keys whose time is over, and slots with rows of dead collections.
#[derive(Default)]
pub struct Maintenance {
    pub expire: Vec<Slot>,
    pub sweep: Vec<Slot>,
}

impl Work {
    pub fn len(&self) -> usize {
        match self {
            Work::Commands(items) => items.len(),
            Work::Meta(_) => 1,
            Work::Maintenance(slots) => slots.expire.len() + slots.sweep.len(),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Work::Commands(items) => items.iter().map(Item::bytes).sum(),
            Work::Meta(bytes) => bytes.len(),
            Work::Maintenance(_) => 7 * self.len(),
        }
    }
}

pub struct Submit {
    pub region: RegionId,
    pub work: Work,
    /// When it is answered whatever has happened.
    pub deadline: Instant,
    pub reply: oneshot::Sender<SubmitOutcome>,
}

pub enum SubmitOutcome {
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
