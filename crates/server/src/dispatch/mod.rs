//! From a command of one region to its reply, wherever that region's leader is.
//!
//! The rule of answers (which everything here serves): an error that invites a retry (`MOVED`,
//! `TRYAGAIN`, `CLUSTERDOWN`) means that nothing was proposed; a command that may have been proposed and
//! whose outcome is not known is answered `-UNKNOWN`; nothing retries a write on its own.

pub mod passing;
mod reads;
mod rerouting;

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use command::CommandSpec;
use resp::{Protocol, Reply};
use tokio::sync::oneshot;
use types::{RegionId, Slot, SlotRange, StoreId};

use crate::region::inbox::{Refusal, Submit, SubmitOutcome, ToWorker, Work};
use crate::region::shared::RegionShared;
use crate::store::Store;
use crate::transport::CallError;

/// One keyspace command, looked up and checked for arity.
#[derive(Clone)]
pub struct Item {
    pub spec: &'static CommandSpec,
    pub args: Vec<Bytes>,
    pub db: u16,
    /// Whether the client speaks RESP3: some replies have another shape then.
    pub resp3: bool,
    pub slot: ItemSlot,
}

/// The slot of a command's keys, which says what region it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemSlot {
    /// It has no keys, or one region has all slots and nobody asks.
    Any,
    One(Slot),
    Several,
}

impl ItemSlot {
    pub fn of(spec: &'static CommandSpec, args: &[Bytes]) -> ItemSlot {
        let mut slots = command::keys_of(spec, args).map(|(key, _)| types::slot_of_key(key));
        match slots.next() {
            None => ItemSlot::Any,
            Some(first) if slots.all(|slot| slot == first) => ItemSlot::One(first),
            Some(_) => ItemSlot::Several,
        }
    }
}

impl Item {
    /// `None` when the command is unknown or its argument count is wrong.
    pub fn new(args: Vec<Bytes>, db: u16, resp3: bool) -> Option<Item> {
        let spec = command::lookup(args.first()?)?;
        command::check_arity(spec, &args).ok()?;
        let slot = ItemSlot::of(spec, &args);
        Some(Item { spec: command::leaf(spec, &args), args, db, resp3, slot })
    }

    pub fn is_write(&self) -> bool {
        self.spec.is_write()
    }

    /// Whether the command reads a few rows at most, however much there is: such a read may ride in a log
    /// entry, which every replica applies before it goes on.
    pub fn is_bounded_read(&self) -> bool {
        match self.spec.name {
            "get" | "strlen" | "getrange" | "substr" | "ttl" | "pttl" | "expiretime" | "pexpiretime"
            | "type" | "hlen" | "hget" | "hexists" | "hstrlen" => true,
            "exists" | "touch" | "mget" | "hmget" => self.args.len() <= BOUNDED_READ_ARGUMENTS_MAX,
            _ => false,
        }
    }

    /// `EXISTS` of the command's keys; `None` when it has none.
    fn keys_exist(&self) -> Option<Item> {
        let mut args = vec![Bytes::from_static(b"EXISTS")];
        args.extend(command::keys_of(self.spec, &self.args).map(|(key, _)| key.clone()));
        Item::new(args, self.db, self.resp3)
    }

    pub fn bytes(&self) -> usize {
        self.args.iter().map(|arg| arg.len() + 8).sum()
    }

    fn protocol(&self) -> Protocol {
        if self.resp3 {
            Protocol::Resp3
        } else {
            Protocol::Resp2
        }
    }
}

/// A reply made here, or the bytes of one made by another store in the client's protocol.
#[derive(Clone, Debug)]
pub enum Answer {
    Reply(Reply),
    Encoded(Bytes),
}

impl Answer {
    pub fn encode(&self, protocol: Protocol, out: &mut BytesMut) {
        match self {
            Answer::Reply(reply) => resp::encode(reply, protocol, out),
            Answer::Encoded(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// The reply as a value; one that came encoded is RESP3 or RESP2 alike to the decoder.
    pub fn into_reply(self) -> Reply {
        match self {
            Answer::Reply(reply) => reply,
            Answer::Encoded(bytes) => {
                let mut buffer = BytesMut::from(&bytes[..]);
                match resp::ReplyDecoder::default().decode(&mut buffer) {
                    Ok(Some(reply)) => reply,
                    _ => Reply::error("ERR a store sent a reply that cannot be read"),
                }
            }
        }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer::Reply(reply)
    }
}

/// Kinds of requests between stores.
pub const REQUEST_COMMANDS: u8 = 1;
pub const REQUEST_ADMIN: u8 = 2;
/// For the list of stores.
pub const REQUEST_MEMBERS: u8 = 3;
/// To be taken into the cluster.
pub const REQUEST_JOIN: u8 = 4;

/// Statuses of their answers.
pub const STATUS_DONE: u8 = 0;
pub const STATUS_NOT_LEADER: u8 = 1;
pub const STATUS_ERROR: u8 = 2;

/// One for each command. `None`: it was not executed and will not be, for its slot is not the region's any
/// more.
pub type Answers = Vec<Option<Answer>>;

/// Whether the region, as it is applied here, has the slots of all commands. A command without keys is about all
/// of a region's slots: it needs the very range that the asker knows, which is that of `version`.
fn lie_in(items: &[Item], region: &RegionShared, version: u64) -> bool {
    let slots = region.slots_or_all();
    let lies_in = |item: &Item| match item.slot {
        ItemSlot::Any => region.descriptor().epoch.version == version,
        ItemSlot::One(slot) => slots.contains(slot),
        ItemSlot::Several => false,
    };
    slots == SlotRange::ALL || items.iter().all(lies_in)
}

/// Why a group of commands was not carried out at this store.
pub enum NotDone {
    /// Nothing was proposed: another store may be asked, or this one again.
    NotLeader,
    /// The error goes to the client for every command of the group.
    Error(Reply),
}

pub fn cluster_down() -> Reply {
    Reply::error("CLUSTERDOWN The cluster is down: the region has no leader that can reach a quorum")
}

pub fn unknown_outcome() -> Reply {
    Reply::error("UNKNOWN The command was proposed but its outcome is not known; it may still take effect")
}

pub fn no_space() -> Reply {
    Reply::error("MISCONF Errors writing to the log: No space left on device. Commands that may add data are refused until there is room")
}

const ROOM_POLL: Duration = Duration::from_millis(50);

/// Rows that a bounded read may name.
const BOUNDED_READ_ARGUMENTS_MAX: usize = 64;

/// The largest command that is replicated, with what its encoding adds.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Refuses a command that is too large to replicate, before anything is proposed.
pub fn too_large(item: &Item) -> Option<Reply> {
    let bytes = item.bytes();
    (bytes > REQUEST_BYTES_MAX).then(|| {
        Reply::error(format!(
            "ERR request of {bytes} bytes is larger than the largest that is replicated, {REQUEST_BYTES_MAX}"
        ))
    })
}

impl Store {
    /// Passes commands to the store that is thought to lead. `None`: it does not, and proposed nothing.
    async fn pass_on(
        &self,
        region: RegionId,
        version: u64,
        leader: StoreId,
        items: &[Item],
        deadline: Instant,
    ) -> Result<Option<Answers>, CallError> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let body = passing::encode_request(region, version, patience, items);
        self.metrics.forwarded.inc_by(items.len() as u64);
        // The other store answers by the deadline; a little more covers the way back.
        let wait = patience + Duration::from_millis(500);
        let (status, body) = self.transport().call(leader, REQUEST_COMMANDS, body, wait).await?;
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

    /// Serves commands that another store passed on.
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
        let protocols: Vec<Protocol> = items.iter().map(Item::protocol).collect();
        let count = items.len() as u64;
        let started = Instant::now();
        let result = self.execute_here(&region, version, Arc::new(items), deadline).await;
        self.metrics.record_commands(count, started.elapsed());
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

    /// Carries out commands at this store, if it leads the region, and if the region is what the asker takes
    /// it for.
    async fn execute_here(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: Arc<Vec<Item>>,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        // Apply decides. This only keeps out of the log what would be refused there.
        if !lie_in(&items, region, version) {
            return Err(NotDone::NotLeader);
        }
        if items.iter().any(Item::is_write) {
            let bytes = items.iter().map(|item| item.bytes() as u64).sum();
            if !self.disk.is_full() {
                self.disk.will_grow(bytes);
            }
            let grows = self.disk.is_full() && items.iter().any(|item| item.spec.denies_oom());
            if grows && !self.finds_room(region, bytes, deadline).await {
                return Ok(self.refuse_growth(region, version, &items, deadline).await);
            }
            self.submit(region, Work::Commands(items), deadline).await
        } else {
            self.read(region, version, items, deadline).await
        }
    }

    /// While this device is full and another store has room, the region's lead is about to go elsewhere, or what
    /// is shed makes room here: that is waited for, at most half of the time that there is. False: what may add
    /// data is to be refused.
    async fn finds_room(&self, region: &RegionShared, bytes: u64, deadline: Instant) -> bool {
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / 2;
        while self.disk.is_full() && region.leader() == Some(self.id) {
            if Instant::now() >= until || !self.cluster.is_room_elsewhere() {
                return false;
            }
            let _ = tokio::time::timeout(ROOM_POLL, self.leader_news.notified()).await;
        }
        self.disk.will_grow(bytes);
        true
    }

    /// On a full disk: commands that may add data are refused, the others are carried out.
    async fn refuse_growth(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: &[Item],
        deadline: Instant,
    ) -> Answers {
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            if item.spec.denies_oom() {
                answers.push(Some(no_space().into()));
                continue;
            }
            let one = Arc::new(vec![item.clone()]);
            let result = match item.is_write() {
                true => self.submit(region, Work::Commands(one), deadline).await,
                false => self.read(region, version, one, deadline).await,
            };
            answers.push(match result {
                Ok(mut one) => one.pop().flatten(),
                Err(NotDone::NotLeader) => Some(cluster_down().into()),
                Err(NotDone::Error(error)) => Some(error.into()),
            });
        }
        answers
    }

    /// Proposes work to the region's worker and waits until it is applied.
    pub async fn submit(
        &self,
        region: &RegionShared,
        work: Work,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        let count = work.len();
        region.writes.fetch_add(count as u64, Ordering::Relaxed);
        region.write_bytes.fetch_add(work.bytes() as u64, Ordering::Relaxed);
        self.touch(region);
        let (sender, outcome) = oneshot::channel();
        let submit = Submit { region: region.id(), work, deadline, reply: sender };
        if self.worker.send(ToWorker::Submit(submit)).is_err() {
            return Err(NotDone::NotLeader);
        }
        // The worker answers at the deadline; this is only the net below it.
        let wait = deadline.saturating_duration_since(Instant::now()) + Duration::from_secs(1);
        match tokio::time::timeout(wait, outcome).await {
            Ok(Ok(SubmitOutcome::Applied(replies))) => {
                Ok(replies.into_iter().map(|reply| reply.map(Answer::Reply)).collect())
            }
            Ok(Ok(SubmitOutcome::Refused(Refusal::NotLeader))) => Err(NotDone::NotLeader),
            Ok(Ok(SubmitOutcome::Refused(Refusal::TooLate))) => Err(NotDone::Error(cluster_down())),
            Ok(Ok(SubmitOutcome::Unknown)) | Ok(Err(_)) | Err(_) => {
                self.metrics.unknown_outcomes.inc_by(count as u64);
                Err(NotDone::Error(unknown_outcome()))
            }
        }
    }
}
