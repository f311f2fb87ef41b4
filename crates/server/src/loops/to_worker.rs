//! The messages to the region worker: one closed enum, one queue.

use cluster::quorum_loss::{PeerReport, RecoveryStep};
use node::{Input, Messages, Outcome, Refusal};
use replica::Asked;
use tokio::sync::oneshot;
use types::{LogIndex, PeerId, RegionId, StoreId};

use super::PartId;
use crate::transport::Place;

/// The groups' part of a survey.
#[derive(Debug)]
pub struct Surveyed {
    pub peers: Vec<PeerReport>,
    /// The largest number under which each region's peer was removed from this store.
    pub removed: Vec<(RegionId, PeerId)>,
}

/// The waiter for a submission.
#[derive(Debug)]
pub enum Asker {
    /// A task of the runtime.
    Task(oneshot::Sender<Outcome>),
    /// A client on one of the loops.
    Client(PartId),
}

impl Asker {
    /// Answers a task. A task that has stopped waiting already has its answer.
    #[cfg(test)]
    pub fn answer(self, outcome: Outcome) {
        match self {
            Asker::Task(task) => drop(task.send(outcome)),
            Asker::Client(part) => panic!("{part:?} is answered by the worker"),
        }
    }
}

/// Outcomes with their waiters.
pub type Outcomes = Vec<(Asker, Outcome)>;

/// The waiter for a proof that this store leads.
pub type Reader = oneshot::Sender<Result<(), Refusal>>;

pub enum ToWorker {
    /// An input for the shard. It holds no token, because the shard assigns tokens.
    Shard(Input<Asker, Reader>),
    /// Prove that this store leads the region, for reads that begin now.
    ReadIndex { region: RegionId, asked: Asked, reply: Reader },
    Messages {
        from: StoreId,
        messages: Messages,
        /// The messages' share of the bytes that may come from that store. It is released once the
        /// messages are processed. `None` for messages that the loop read itself.
        place: Option<Place>,
    },
    /// Rows and states are written through these indexes, with these outcomes.
    Applied { indexes: Vec<(RegionId, LogIndex)>, outcomes: Outcomes },
    /// A flush made everything durable that was applied through these indexes.
    Flushed { applied: Vec<(RegionId, LogIndex)> },
    /// Every peer of these regions holds the log through these indexes.
    HeldByAll { indexes: Vec<(RegionId, LogIndex)> },
    /// Report the facts about this store's peers that a recovery order needs.
    Survey { reply: oneshot::Sender<Surveyed> },
    /// Take steps of a recovery order. The reply lists the refused steps with their reasons.
    Recovery { steps: Vec<RecoveryStep>, reply: oneshot::Sender<Vec<(RegionId, String)>> },
}
