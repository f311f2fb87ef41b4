//! Work that is proposed to the groups of this store, and its results.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::MetaCommand;
use command::entry::Builder;
use futures::future::join_all;
use node::{Answer, Outcome, Refusal, Submit, Work, COPIED_BYTES_MAX};
use resp::Reply;
use tokio::sync::oneshot;

use crate::clock;
use crate::loops::{Asker, WorkerSender};
use crate::metrics::Metrics;
use crate::regions::{RegionShared, Regions};

/// One answer for each command. `None` means that the command was not executed and will not be,
/// because its slot no longer belongs to the region.
pub type Answers = Vec<Option<Answer>>;

/// The reason why a group of commands was not executed on this store.
pub enum NotDone {
    /// Nothing was proposed. The caller may ask another store, or this one again.
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
        let work = encoded(work).await;
        let (sender, outcome) = oneshot::channel();
        let client = Asker::Task(sender);
        let until = clock::boot_nanos_at(deadline);
        let submit = Submit { region: region.id(), work, deadline: until, author: 0, client };
        if self.worker.step(node::Input::Submit(submit)).is_err() {
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

/// Encodes very large commands in pieces. The groups' thread then copies none of their bytes, and
/// no task delays others for long.
async fn encoded(work: Work) -> Work {
    let bytes = work.bytes();
    let Work::Commands(items) = &work else { return work };
    if bytes <= COPIED_BYTES_MAX {
        return work;
    }
    let mut builder = Builder::with_capacity(bytes);
    for item in items.iter() {
        builder.push_in_pieces((item.db, item.resp3), &item.args, tokio::task::yield_now).await;
    }
    Work::Encoded(builder)
}

/// Proposes commands for the meta region in this order. Lost commands are only logged: the callers
/// check again which commands are needed.
pub async fn propose_all(proposals: Proposals, patience: Duration, commands: Vec<MetaCommand>) {
    let deadline = Instant::now() + patience;
    let meta = proposals.regions.meta();
    let proposed =
        commands.iter().map(|command| proposals.submit(meta, Work::Meta(command.encode()), deadline));
    for (outcome, command) in join_all(proposed).await.into_iter().zip(&commands) {
        match outcome {
            Ok(replies) => {
                for reply in replies.into_iter().flatten() {
                    if let resp::Reply::Error(error) = reply.into_reply() {
                        tracing::warn!(?command, %error, "a change of the cluster's state was refused");
                    }
                }
            }
            Err(NotDone::NotLeader) => {}
            Err(NotDone::Error(error)) => tracing::debug!(?error, "a change was not proposed"),
        }
    }
}
