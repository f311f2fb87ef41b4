//! Executes the commands of one region, whichever store leads the region.
//!
//! All of this serves one rule for answers. An error that invites a retry (`MOVED`, `CLUSTERDOWN`,
//! `MISCONF`) means that nothing was proposed. A command that may have been proposed and whose
//! outcome is unknown gets `-UNKNOWN`. No code retries a write automatically.

mod at_once;
pub mod blocking;
mod copying;
pub mod passing;
mod reads;
mod rerouting;
mod weak_reads;

pub use at_once::Finished;
pub use weak_reads::Bound;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use node::reads::Origin;
use node::{Answer, Item, Work, REQUEST_BYTES_MAX};
use resp::{Protocol, Reply};
use storage::KeyCounts;
use types::{RegionId, StoreId};

use crate::proposals::{cluster_down, Answers, NotDone};
use crate::regions::RegionShared;
use crate::store::Store;
use crate::transport::kinds::{REQUEST_COMMANDS, STATUS_DONE, STATUS_ERROR, STATUS_NOT_LEADER};
use crate::transport::CallError;

/// Maximum bytes of replies with rows from flash that one read collects before it stops.
pub const REPLY_BYTES_MAX: usize = 1 << 20;

/// Returns the protocol of the command's client.
fn protocol_of(item: &Item) -> Protocol {
    match item.resp3 {
        true => Protocol::Resp3,
        false => Protocol::Resp2,
    }
}

/// Returns true if the region, as applied here, owns the slots of all commands. The commands assume
/// the descriptor of `version`.
fn lie_in(items: &[Item], region: &RegionShared, version: u64) -> bool {
    node::reads::lie_in(items.iter().map(|item| item.slot), region, version)
}

pub fn no_space() -> Reply {
    Reply::error("MISCONF Errors writing to the log: No space left on device. Commands that may add data are refused until there is room")
}

const ROOM_POLL: Duration = Duration::from_millis(50);

impl Store {
    /// Sends commands to the presumed leader. Returns `None` if that store does not lead and
    /// proposed nothing.
    async fn pass_on(
        &self,
        region: RegionId,
        version: u64,
        leader: StoreId,
        items: &[Item],
        deadline: Instant,
    ) -> Result<Option<Answers>, CallError> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let body = passing::encode_request(region, version, patience, items).await;
        self.metrics.forwarded.inc_by(items.len() as u64);
        // The other store answers by the deadline. The extra time covers the return trip.
        let wait = patience + Duration::from_millis(500);
        let (status, body) = self.transport.call(leader, REQUEST_COMMANDS, body, wait).await?;
        match status {
            STATUS_NOT_LEADER => Ok(None),
            STATUS_DONE => match passing::decode_answer(body) {
                Ok(replies) if replies.len() == items.len() => {
                    let answer = |reply: Bytes| (!reply.is_empty()).then_some(Answer::Encoded(reply));
                    Ok(Some(replies.into_iter().map(answer).collect()))
                }
                _ => Err(CallError::Unknown),
            },
            _ => Ok(Some(vec![Some(Answer::Encoded(body)); items.len()])),
        }
    }

    /// Executes commands that another store passed on.
    pub async fn execute_passed(self: Arc<Self>, body: Bytes) -> (u8, Bytes) {
        let encoded = |reply: &Reply| {
            let mut out = BytesMut::new();
            resp::encode(reply, Protocol::Resp2, &mut out);
            out.freeze()
        };
        let passing::Request { region, version, patience, items } = match passing::decode_request(body) {
            Ok(request) => request,
            Err(error) => return (STATUS_ERROR, encoded(&Reply::error(format!("ERR {error}")))),
        };
        let Some(region) = self.regions.get(region) else {
            return (STATUS_NOT_LEADER, Bytes::new());
        };
        let deadline = Instant::now() + patience;
        let protocols: Vec<Protocol> = items.iter().map(protocol_of).collect();
        let count = items.len() as u64;
        let started = Instant::now();
        let result = self.execute_all_here(&region, version, Arc::new(items), deadline).await;
        self.metrics.record_commands(&mut vec![(count, started.elapsed())]);
        match result {
            Ok(answers) => {
                let replies: Vec<Bytes> = answers
                    .iter()
                    .zip(protocols)
                    .map(|(answer, protocol)| {
                        let mut out = BytesMut::new();
                        if let Some(answer) = answer {
                            answer.encode(protocol, &mut out);
                        }
                        out.freeze()
                    })
                    .collect();
                (STATUS_DONE, passing::encode_answer(&replies))
            }
            Err(NotDone::NotLeader) => (STATUS_NOT_LEADER, Bytes::new()),
            Err(NotDone::Error(error)) => (STATUS_ERROR, encoded(&error)),
        }
    }

    /// Repeats `execute_here` until all commands have answers.
    async fn execute_all_here(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: Arc<Vec<Item>>,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        let from = Origin::Elsewhere;
        let mut answers = self.execute_here(region, version, items.clone(), from, deadline).await?;
        while answers.len() < items.len() {
            let rest = Arc::new(items[answers.len()..].to_vec());
            answers.extend(self.execute_here(region, version, rest, from, deadline).await?);
        }
        Ok(answers)
    }

    /// Executes commands on this store, if it leads the region and the region's version is the
    /// expected one. It may execute only some of the reads, see [`Store::execute`].
    async fn execute_here(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: Arc<Vec<Item>>,
        origin: Origin,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        // Apply makes the decision. This check only keeps commands out of the log that apply would
        // refuse.
        if !lie_in(&items, region, version) {
            return Err(NotDone::NotLeader);
        }
        if items.iter().any(Item::is_write) {
            // For most of its clients' writes, the loop has tried this.
            let mut counts = KeyCounts::default();
            if let Some(answers) = self.find_nothing_at_once(region, &items, origin, &mut counts) {
                self.metrics.keys.add(counts);
                return Ok(answers.into_iter().map(Some).collect());
            }
            let bytes = items.iter().map(|item| item.bytes() as u64).sum();
            if !self.disk.is_full() {
                self.disk.will_grow(bytes);
            }
            let grows = self.disk.is_full() && items.iter().any(|item| item.denies_oom());
            if grows && !self.finds_room(region, bytes, deadline).await {
                return Ok(self.refuse_growth(region, version, &items, origin, deadline).await);
            }
            self.proposals.submit(region, Work::Commands(items), deadline).await
        } else {
            self.read(region, version, items, origin, deadline).await
        }
    }

    /// Waits for room, for at most half of the remaining time. While this device is full and
    /// another store has room, the region's leader is about to move there, or shedding will make
    /// room here. Returns false if commands that may add data must be refused.
    async fn finds_room(&self, region: &RegionShared, bytes: u64, deadline: Instant) -> bool {
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / 2;
        while self.disk.is_full() && region.leader() == Some(self.id) {
            if Instant::now() >= until || !self.cluster.is_room_elsewhere() {
                return false;
            }
            let _ = tokio::time::timeout(ROOM_POLL, self.regions.leader_changes.notified()).await;
        }
        self.disk.will_grow(bytes);
        true
    }

    /// Handles a full disk: refuses commands that may add data, and executes the others.
    async fn refuse_growth(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: &[Item],
        origin: Origin,
        deadline: Instant,
    ) -> Answers {
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            if item.denies_oom() {
                answers.push(Some(no_space().into()));
                continue;
            }
            let one = Arc::new(vec![item.clone()]);
            let result = match item.is_write() {
                true => self.proposals.submit(region, Work::Commands(one), deadline).await,
                false => self.read(region, version, one, origin, deadline).await,
            };
            answers.push(match result {
                Ok(mut one) => one.pop().flatten(),
                Err(NotDone::NotLeader) => Some(cluster_down().into()),
                Err(NotDone::Error(error)) => Some(error.into()),
            });
        }
        answers
    }
}
