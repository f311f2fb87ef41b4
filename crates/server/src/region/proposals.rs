//! Commands that wait for a proposal, and proposals that wait for their outcome.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use resp::Reply;
use tokio::sync::oneshot;
use types::RegionId;

use super::inbox::{Refusal, Submit, SubmitOutcome, Work};
use command::entry::Builder;

/// Bytes of commands that make one Raft entry; a single command may be larger.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Outcomes on their way to the clients' tasks.
pub type Outcomes = Vec<(oneshot::Sender<SubmitOutcome>, SubmitOutcome)>;

/// The clients of one proposed entry, in the order of their commands.
pub struct Waiting {
    region: RegionId,
    clients: Vec<(oneshot::Sender<SubmitOutcome>, usize)>,
    deadline: Instant,
}

impl Waiting {
    /// Gives each client its share of the entry's replies.
    pub fn answer(self, replies: Vec<Reply>, outcomes: &mut Outcomes) {
        let mut replies = replies.into_iter();
        for (client, count) in self.clients {
            let own: Vec<Reply> = replies.by_ref().take(count).collect();
            outcomes.push((client, SubmitOutcome::Applied(own)));
        }
    }

    pub fn refuse(self, refusal: Refusal) {
        for (client, _) in self.clients {
            let _ = client.send(SubmitOutcome::Refused(refusal));
        }
    }

    pub fn unknown(self) {
        for (client, _) in self.clients {
            let _ = client.send(SubmitOutcome::Unknown);
        }
    }
}

/// An entry ready to be proposed.
pub struct Proposal {
    pub region: RegionId,
    pub token: u64,
    pub payload: Bytes,
}

#[derive(Default)]
pub struct Proposals {
    queues: BTreeMap<RegionId, VecDeque<Submit>>,
    proposed: HashMap<u64, Waiting>,
    next_token: u64,
}

impl Proposals {
    pub fn queue(&mut self, submit: Submit) {
        self.queues.entry(submit.region).or_default().push_back(submit);
    }

    pub fn has_queued(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Makes one entry of what waits for each region (more where that would be too large), stamped with
    /// the given time and a seed derived from it.
    pub fn build(&mut self, stamp_ms: u64, seed: u64) -> Vec<Proposal> {
        let mut made = Vec::new();
        for (region, mut queue) in std::mem::take(&mut self.queues) {
            while let Some(first) = queue.pop_front() {
                self.next_token += 1;
                let token = self.next_token;
                let deadline = first.deadline;
                let entry_seed = seed ^ token.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let (payload, clients) = match first.work {
                    Work::Meta(command) => {
                        (cluster::encode_entry(stamp_ms, &command), vec![(first.reply, 1)])
                    }
                    Work::Commands(_) | Work::Maintenance(_) => {
                        merge(first, &mut queue, stamp_ms, entry_seed)
                    }
                };
                self.proposed.insert(token, Waiting { region, clients, deadline });
                made.push(Proposal { region, token, payload });
            }
        }
        made
    }

    pub fn take(&mut self, token: u64) -> Option<Waiting> {
        self.proposed.remove(&token)
    }

    /// Regions and tokens of entries whose clients have waited long enough, and queued submissions likewise.
    pub fn expire(&mut self, now: Instant) -> Vec<(RegionId, u64)> {
        for queue in self.queues.values_mut() {
            while queue.front().is_some_and(|submit| submit.deadline <= now) {
                let late = queue.pop_front().expect("there is a front");
                let _ = late.reply.send(SubmitOutcome::Refused(Refusal::TooLate));
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        let late = |(token, waiting): (&u64, &Waiting)| {
            (waiting.deadline <= now).then_some((waiting.region, *token))
        };
        self.proposed.iter().filter_map(late).collect()
    }
}

type Clients = Vec<(oneshot::Sender<SubmitOutcome>, usize)>;

/// Keys or rows that one maintenance step of a slot deletes.
const MAINTENANCE_STEP: u32 = 256;

/// One entry of the first submission and of as many of those behind it as there is room for.
fn merge(first: Submit, queue: &mut VecDeque<Submit>, stamp_ms: u64, seed: u64) -> (Bytes, Clients) {
    let mut builder = Builder::new();
    let mut clients = Vec::new();
    let mut next = Some(first);
    while let Some(submit) = next {
        let before = builder.len();
        match submit.work {
            Work::Commands(items) => {
                items.iter().for_each(|item| builder.push(item.db, item.resp3, &item.args));
            }
            Work::Maintenance(slots) => {
                slots.expire.iter().for_each(|slot| builder.push_expire_due(*slot, MAINTENANCE_STEP));
                slots.sweep.iter().for_each(|slot| builder.push_sweep(*slot, MAINTENANCE_STEP));
            }
            Work::Meta(_) => unreachable!("changes of the cluster's state are entries of their own"),
        }
        clients.push((submit.reply, builder.len() - before));
        let room = |submit: &Submit| {
            !matches!(submit.work, Work::Meta(_)) && builder.bytes() + submit.work.bytes() <= ENTRY_BYTES_MAX
        };
        next = if queue.front().is_some_and(room) { queue.pop_front() } else { None };
    }
    (builder.finish(stamp_ms, seed), clients)
}

/// Hands outcomes out from inside the runtime. Each hand-over wakes a client's task, which costs a system
/// call when it comes from another thread and next to nothing here; so the worker wakes this task alone.
pub async fn hand_out(mut batches: tokio::sync::mpsc::UnboundedReceiver<Outcomes>) {
    while let Some(batch) = batches.recv().await {
        for (client, outcome) in batch {
            let _ = client.send(outcome);
        }
    }
}
