//! Work that is proposed to the groups of this store, and its results.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::{Answer, Outcome, Refusal, Submit, Work};
use resp::Reply;
use tokio::sync::oneshot;

use crate::clock;
use crate::loops::{Asker, ToWorker, WorkerSender};
use crate::metrics::Metrics;
use crate::regions::{RegionShared, Regions};

/// One answer for each command. `None` means that the command was not executed and will not be,
/// because its slot no longer belongs to the region.
pub type Answers = Vec<Option<Answer>>;

/// Why a group of commands was not executed on this store.
pub enum NotDone {
    /// Nothing was proposed. Another store may be asked, or this one again.
    NotLeader,
    /// The error reply for every command of the group.
    Error(Reply),
}

pub fn cluster_down() -> Reply {
    Reply::error("CLUSTERDOWN The cluster is down: the region has no leader that can reach a quorum")
}

pub fn unknown_outcome() -> Reply {
    Reply::error("UNKNOWN The command was proposed but its outcome is not known; it may still take effect")
}

#[derive(Clone)]
pub struct Proposals {
    pub worker: WorkerSender,
    pub regions: Arc<Regions>,
    pub metrics: Arc<Metrics>,
}

impl Proposals {
    /// Proposes work to the region's worker and waits until it is applied.
    pub async fn submit(
        &self,
        region: &RegionShared,
        work: Work,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        let count = work.len();
        self.note_writes(region, &work);
        let (sender, outcome) = oneshot::channel();
        let client = Asker::Task(sender);
        let submit = Submit { region: region.id(), work, deadline: clock::boot_nanos_at(deadline), client };
        if self.worker.send(ToWorker::Submit(submit)).is_err() {
            return Err(NotDone::NotLeader);
        }
        // The worker answers at the deadline. This longer timeout is only a safeguard.
        let wait = deadline.saturating_duration_since(Instant::now()) + Duration::from_secs(1);
        let outcome = match tokio::time::timeout(wait, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => Outcome::Unknown,
        };
        self.answers_of(outcome, count)
    }

    /// Counts writes that will be proposed.
    pub fn note_writes(&self, region: &RegionShared, work: &Work) {
        region.writes.fetch_add(work.len() as u64, Ordering::Relaxed);
        region.write_bytes.fetch_add(work.bytes() as u64, Ordering::Relaxed);
        self.regions.touch(region);
    }

    /// Converts the outcome of a submission of `count` commands.
    pub fn answers_of(&self, outcome: Outcome, count: usize) -> Result<Answers, NotDone> {
        match outcome {
            Outcome::Applied(replies) => {
                Ok(replies.into_iter().map(|reply| reply.map(Answer::Reply)).collect())
            }
            Outcome::Refused(Refusal::NotLeader) => Err(NotDone::NotLeader),
            Outcome::Refused(Refusal::TooLate) => Err(NotDone::Error(cluster_down())),
            Outcome::Unknown => {
                self.metrics.unknown_outcomes.inc_by(count as u64);
                Err(NotDone::Error(unknown_outcome()))
            }
        }
    }
}
