//! What the region worker is told: one closed enum, one queue.

use cluster::Mark;
use node::{Messages, Outcome, Refusal, Submit};
use replica::Input;
use tokio::sync::oneshot;
use types::{LogIndex, RegionChange, RegionEpoch, RegionId, StoreId};

use super::PartId;
use crate::transport::Place;

/// Who waits for a submission.
#[derive(Debug)]
pub enum Asker {
    /// A task of the runtime.
    Task(oneshot::Sender<Outcome>),
    /// A client, on one of the loops.
    Client(PartId),
}

impl Asker {
    /// Answers a task. One that does not wait any more has been answered otherwise.
    #[cfg(test)]
    pub fn answer(self, outcome: Outcome) {
        match self {
            Asker::Task(task) => drop(task.send(outcome)),
            Asker::Client(part) => panic!("{part:?} is answered by the worker"),
        }
    }
}

/// Outcomes on their way to those who wait for them.
pub type Outcomes = Vec<(Asker, Outcome)>;

/// Who waits for a proof that this store leads.
pub type Reader = oneshot::Sender<Result<(), Refusal>>;

pub enum ToWorker {
    /// For the groups as it is: an input that needs nothing of the worker's, and no token above all, for the
    /// worker hands these out.
    Input(Input),
    Submit(Submit<Asker>),
    /// Prove that this store leads the region, for reads that begin now.
    ReadIndex {
        region: RegionId,
        reply: Reader,
    },
    Messages {
        from: StoreId,
        messages: Messages,
        /// Among what may come from that store; given back once they are taken in.
        place: Place,
    },
    /// Rows and states are written through these indexes, and this came of it.
    Applied {
        indexes: Vec<(RegionId, LogIndex)>,
        outcomes: Outcomes,
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
    /// The region's peer is quarantined, or skips entries, and that is written.
    Held {
        region: RegionId,
        mark: Mark,
    },
    /// The quarantine is over, and that is written.
    Released {
        region: RegionId,
        mark: Mark,
    },
    /// By an operator: the entry at which the peer is quarantined is to be executed again.
    Retry {
        region: RegionId,
    },
    /// By an operator: a quarantined peer's rows are served to those who accept old data, or not.
    ReadOnly {
        region: RegionId,
        read_only: bool,
    },
    /// By an operator: a quarantined peer takes a snapshot, should its leader have one for it.
    Admit {
        region: RegionId,
    },
    /// The peer's rows differ from the majority's in the check at this index.
    Differs {
        region: RegionId,
        checked: LogIndex,
    },
}
