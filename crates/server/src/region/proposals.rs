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
    clients: Vec<Client>,
}

struct Client {
    /// `None` once it was answered before its entry was.
    reply: Option<oneshot::Sender<SubmitOutcome>>,
    commands: usize,
    deadline: Instant,
}

impl Waiting {
    /// Gives each client its share of the entry's replies.
    pub fn answer(self, replies: Vec<Option<Reply>>, outcomes: &mut Outcomes) {
        let mut replies = replies.into_iter();
        for client in self.clients {
            let own: Vec<Option<Reply>> = replies.by_ref().take(client.commands).collect();
            if let Some(reply) = client.reply {
                outcomes.push((reply, SubmitOutcome::Applied(own)));
            }
        }
    }

    pub fn refuse(self, refusal: Refusal) {
        for reply in self.clients.into_iter().filter_map(|client| client.reply) {
            let _ = reply.send(SubmitOutcome::Refused(refusal));
        }
    }

    pub fn unknown(self) {
        for reply in self.clients.into_iter().filter_map(|client| client.reply) {
            let _ = reply.send(SubmitOutcome::Unknown);
        }
    }

    /// Answers those who have waited long enough. True when nobody waits any more.
    fn expire(&mut self, now: Instant) -> bool {
        for client in self.clients.iter_mut().filter(|client| client.deadline <= now) {
            if let Some(reply) = client.reply.take() {
                let _ = reply.send(SubmitOutcome::Unknown);
            }
        }
        self.clients.iter().all(|client| client.reply.is_none())
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
    /// the given time and a seed derived from it. `may` says whether a region can take proposals now: where
    /// this store does not lead, the clients hear so; where it cannot for a while, they wait on.
    pub fn build(
        &mut self,
        stamp_ms: u64,
        seed: u64,
        may: impl Fn(RegionId) -> Result<(), replica::Refusal>,
    ) -> Vec<Proposal> {
        let mut made = Vec::new();
        for (region, mut queue) in std::mem::take(&mut self.queues) {
            match may(region) {
                Ok(()) => {}
                Err(replica::Refusal::NotLeader { .. }) => {
                    for submit in queue {
                        let _ = submit.reply.send(SubmitOutcome::Refused(Refusal::NotLeader));
                    }
                    continue;
                }
                Err(_) => {
                    self.queues.insert(region, queue);
                    continue;
                }
            }
            while let Some(first) = queue.pop_front() {
                self.next_token += 1;
                let token = self.next_token;
                let entry_seed = seed ^ token.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let (payload, clients) = match first.work {
                    Work::Meta(command) => {
                        let client =
                            Client { reply: Some(first.reply), commands: 1, deadline: first.deadline };
                        (cluster::encode_entry(stamp_ms, &command), vec![client])
                    }
                    Work::Commands(_) | Work::Maintenance(_) => {
                        merge(first, &mut queue, stamp_ms, entry_seed)
                    }
                };
                self.proposed.insert(token, Waiting { region, clients });
                made.push(Proposal { region, token, payload });
            }
        }
        made
    }

    pub fn take(&mut self, token: u64) -> Option<Waiting> {
        self.proposed.remove(&token)
    }

    /// Answers everyone whose time is over: queued submissions were not proposed, the outcome of proposed
    /// ones is unknown. Gives the entries for which nobody waits any more.
    pub fn expire(&mut self, now: Instant) -> Vec<(RegionId, u64)> {
        for queue in self.queues.values_mut() {
            let (late, waiting): (VecDeque<_>, _) =
                queue.drain(..).partition(|submit| submit.deadline <= now);
            *queue = waiting;
            for submit in late {
                let _ = submit.reply.send(SubmitOutcome::Refused(Refusal::TooLate));
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        let mut ended = Vec::new();
        self.proposed.retain(|token, waiting| {
            let over = waiting.expire(now);
            if over {
                ended.push((waiting.region, *token));
            }
            !over
        });
        ended
    }
}

/// Keys or rows that one maintenance step of a slot deletes.
const MAINTENANCE_STEP: u32 = 256;

/// One entry of the first submission and of as many of those behind it as there is room for.
fn merge(first: Submit, queue: &mut VecDeque<Submit>, stamp_ms: u64, seed: u64) -> (Bytes, Vec<Client>) {
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
        let commands = builder.len() - before;
        clients.push(Client { reply: Some(submit.reply), commands, deadline: submit.deadline });
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
