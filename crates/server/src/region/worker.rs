//! The region worker: one thread that owns the Raft groups of this store.
//!
//! It waits for input, steps the pure `replica::Worker`, and carries out the actions that come back. It
//! decides nothing itself, and waits for no device: the log and the rows have threads of their own. Commands
//! that arrive while a log batch is being synced wait and make one entry together.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use raftlog::RaftLog;
use replica::{Action, Input, LogBatch, RestartCause};
use tokio::sync::oneshot;
use types::{RegionId, StoreId};

use super::apply::{ApplyQueue, ToApply};
use super::dropped::Dropped;
use super::inbox::{Refusal, ToWorker};
use super::lives::LifeJob;
use super::proposals::Proposals;
use super::shared::Leadership;
use crate::clock;
use crate::store::Store;
use crate::transport::frame::Lane;

/// Messages taken from the inbox before the worker takes its turn.
const INBOX_PER_TURN_MAX: usize = 4096;
/// Deadlines are looked at, and the state of led regions is published, this often.
const EXPIRY_PERIOD: Duration = Duration::from_millis(100);

/// Readers' tokens have this bit, so that they never meet those of proposals.
const READER_TOKEN: u64 = 1 << 63;

/// Messages for one lane of one store.
type Messages = Vec<(RegionId, raft::eraftpb::Message)>;

struct Reader {
    region: RegionId,
    reply: oneshot::Sender<Result<(), Refusal>>,
    deadline: Instant,
}

pub struct RegionWorker {
    pub store: Arc<Store>,
    pub raft: replica::Worker<RaftLog>,
    pub inbox: Receiver<ToWorker>,
    /// Batches on their way to the device.
    pub batches: Sender<LogBatch>,
    log: RaftLog,
    apply: ApplyQueue,
    proposals: Proposals,
    readers: std::collections::HashMap<u64, Reader>,
    next_reader: u64,
    outgoing: Vec<(StoreId, Lane, Messages)>,
    /// Whose status was published when it was last time.
    published: BTreeSet<RegionId>,
    dropped: Dropped,
    stopping: bool,
}

impl RegionWorker {
    pub fn new(
        store: Arc<Store>,
        raft: replica::Worker<RaftLog>,
        inbox: Receiver<ToWorker>,
        batches: Sender<LogBatch>,
        log: RaftLog,
        apply: ApplyQueue,
    ) -> RegionWorker {
        RegionWorker {
            store,
            raft,
            inbox,
            batches,
            log,
            apply,
            proposals: Proposals::default(),
            readers: Default::default(),
            next_reader: 0,
            outgoing: Vec::new(),
            published: BTreeSet::new(),
            dropped: Dropped::default(),
            stopping: false,
        }
    }

    pub fn run(mut self) {
        let tick = self.store.config.raft_tick;
        let mut next_tick = Instant::now() + tick;
        let mut next_expiry = Instant::now() + EXPIRY_PERIOD;
        while !self.stopping {
            let wait = next_tick.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(wait) {
                Ok(first) => {
                    self.take(first);
                    for _ in 1..INBOX_PER_TURN_MAX {
                        match self.inbox.try_recv() {
                            Ok(next) => self.take(next),
                            Err(_) => break,
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if now >= next_tick {
                self.raft.step(Input::Tick, clock::boot_nanos());
                // Ticks missed in a pause are dropped, not replayed.
                next_tick = now + tick;
            }
            if now >= next_expiry {
                self.expire(now);
                self.publish_status();
                next_expiry = now + EXPIRY_PERIOD;
            }
            self.turn();
        }
    }

    fn take(&mut self, message: ToWorker) {
        let now = clock::boot_nanos();
        match message {
            ToWorker::Input(input) => self.raft.step(input, now),
            ToWorker::Submit(submit) => self.proposals.queue(submit),
            ToWorker::ReadIndex { region, reply } => {
                self.next_reader += 1;
                let token = READER_TOKEN | self.next_reader;
                let deadline = Instant::now() + self.store.config.request_timeout;
                self.readers.insert(token, Reader { region, reply, deadline });
                self.raft.step(Input::ReadIndex { region, token }, now);
            }
            ToWorker::Messages { from, messages } => {
                for (region, message) in messages {
                    self.raft.step(Input::Message { from, region, message }, now);
                }
            }
            ToWorker::Applied { indexes } => {
                for (region, index) in indexes {
                    self.raft.step(Input::Applied { region, index }, now);
                }
            }
            ToWorker::Flushed { applied } => {
                for (region, index) in applied {
                    self.raft.step(Input::Flushed { region, index }, now);
                }
            }
            ToWorker::HeldByAll { indexes } => {
                for (region, index) in indexes {
                    self.raft.step(Input::TruncateHint { region, index }, now);
                }
            }
            ToWorker::ChangeRegion { region, expect, change } => {
                self.next_reader += 1;
                let token = READER_TOKEN | self.next_reader;
                self.raft.step(Input::ChangeRegion { region, token, expect, change }, now);
            }
            ToWorker::SnapshotApplied { region } => {
                self.raft.step(Input::SnapshotApplied { region }, now);
                // The peer may be new here, and who leads was said before anybody could note it.
                if let Some(status) = self.raft.status(region, now) {
                    self.lead(region, Leadership { term: status.term, leader: status.leader });
                }
            }
            ToWorker::Stop => self.stopping = true,
        }
    }

    /// Proposes what has waited, and carries out actions until there are none.
    fn turn(&mut self) {
        loop {
            // While a batch is on its way to the disk, commands gather for the next entry.
            let may_propose = !self.raft.persist_in_flight() && !self.apply.is_behind();
            if self.proposals.has_queued() && may_propose && self.store.wall.may_stamp() {
                let (stamp, now) = (self.store.wall.millis(), clock::boot_nanos());
                let raft = &self.raft;
                for proposal in self.proposals.build(stamp, now, |region| raft.can_propose(region)) {
                    let (region, token, payload) = (proposal.region, proposal.token, proposal.payload);
                    self.raft.step(Input::Propose { region, token, payload }, now);
                }
            }
            if !self.raft.has_work() {
                break;
            }
            match self.raft.turn(clock::boot_nanos()) {
                Ok(actions) => self.carry_out(actions),
                Err(error) => self.store.fatal(&format!("consensus cannot go on: {error}")),
            }
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        let mut batches = Vec::new();
        let mut ended_leases = Vec::new();
        for action in actions {
            match action {
                Action::Send { to, region, lane, message } => {
                    let lane = match lane {
                        replica::Lane::Control => Lane::Control,
                        replica::Lane::Log => Lane::Log,
                    };
                    self.gather(to, lane, region, message);
                }
                Action::Persist(batch) => {
                    self.accept_snapshots(&batch);
                    batches.push(batch);
                }
                Action::Apply { region, entries } => {
                    let proposals = &mut self.proposals;
                    let entries = entries.into_iter().map(|entry| ToApply {
                        waiting: entry.token.and_then(|token| proposals.take(token)),
                        entry,
                    });
                    self.apply.send(region, entries.collect());
                }
                Action::Refused { region, token, reason } => {
                    if !self.refuse(token) {
                        tracing::info!(region, ?reason, "a change of the region is refused");
                    }
                }
                Action::Lost { token, .. } => {
                    if let Some(waiting) = self.proposals.take(token) {
                        waiting.unknown();
                    }
                }
                Action::ReadReady { token, .. } => {
                    if let Some(reader) = self.readers.remove(&token) {
                        let _ = reader.reply.send(Ok(()));
                    }
                }
                Action::Leadership { region, term, leader, .. } => {
                    self.lead(region, Leadership { term, leader })
                }
                Action::Lease { region, term, until } => {
                    // A lease that was ended in this turn does not come back in it, whatever the order.
                    if until.is_none() {
                        ended_leases.push(region);
                    }
                    if let Some(shared) = self.store.regions.get(region) {
                        let led = shared.leadership() == Leadership { term, leader: Some(self.store.id) };
                        shared.set_lease(until.filter(|_| led && !ended_leases.contains(&region)));
                    }
                }
                Action::Truncate { region, index, term } => self.log.truncate(region, index, term),
                Action::Announce { to, descriptor } => {
                    self.store.transport().send_announce(to, descriptor.encode());
                }
                Action::MakeSnapshot { region } => self.store.snapshots().make(region),
                Action::SendSnapshot { region, to, message } => {
                    self.store.snapshots().send(region, to, message);
                }
                Action::ApplySnapshot { index, term, descriptor, .. } => {
                    self.apply.send_life(LifeJob::Snapshot { descriptor, index, term });
                }
                Action::Destroy { region, peer } => {
                    self.apply.send_life(LifeJob::Destroy { region, peer });
                }
                Action::FlushSoon => self.store.flush_soon.store(true, Ordering::Relaxed),
                Action::Dropped { region, from, reason } => {
                    self.store.metrics.raft_messages_refused.inc();
                    self.dropped.note(region, from, reason, Instant::now());
                }
                Action::TransferDone { region, to } => tracing::info!(region, to, "leadership handed over"),
                Action::TransferAborted { region, to } => {
                    tracing::info!(region, to, "leadership stays: it was not taken over in time");
                }
            }
        }
        // Entries leave for the other stores first: their write goes on while ours does.
        self.send();
        for batch in batches {
            if self.batches.send(batch).is_err() {
                self.store.fatal("the log thread has gone");
            }
        }
    }

    /// Files of the snapshots that this batch accepts must not go before they are ingested.
    fn accept_snapshots(&self, batch: &LogBatch) {
        let restarts = batch.writes.iter().filter_map(|write| Some((write.region, write.restart.as_ref()?)));
        for (region, restart) in restarts.filter(|(_, restart)| restart.cause == RestartCause::Snapshot) {
            self.store.snapshots().accept(region, restart.index, restart.term);
        }
    }

    fn gather(&mut self, to: StoreId, lane: Lane, region: RegionId, message: raft::eraftpb::Message) {
        match self.outgoing.iter_mut().find(|(store, of, _)| *store == to && *of == lane) {
            Some((_, _, messages)) => messages.push((region, message)),
            None => self.outgoing.push((to, lane, vec![(region, message)])),
        }
    }

    fn send(&mut self) {
        for (to, lane, messages) in std::mem::take(&mut self.outgoing) {
            let count = messages.len() as u64;
            if self.store.transport().send_raft(to, lane, messages) {
                self.store.metrics.raft_messages_sent.inc_by(count);
            } else {
                self.store.metrics.raft_messages_dropped.inc_by(count);
                self.raft.step(Input::StoreUnreachable { store: to }, clock::boot_nanos());
            }
        }
    }

    /// False: nobody waits for the answer.
    fn refuse(&mut self, token: u64) -> bool {
        if let Some(waiting) = self.proposals.take(token) {
            waiting.refuse(Refusal::NotLeader);
        } else if let Some(reader) = self.readers.remove(&token) {
            let _ = reader.reply.send(Err(Refusal::NotLeader));
        } else {
            return false;
        }
        true
    }

    fn lead(&mut self, region: RegionId, leadership: Leadership) {
        let Some(shared) = self.store.regions.get(region) else { return };
        let before = shared.leader();
        if leadership.leader != Some(self.store.id) {
            shared.set_lease(None);
        }
        if shared.set_leadership(leadership) {
            self.store.leader_changed(&shared, before);
        }
    }

    /// What heartbeats tell of the regions that are led here.
    /// Of those that are awake, and once more of those that have just gone to sleep.
    fn publish_status(&mut self) {
        let now = clock::boot_nanos();
        let awake: BTreeSet<RegionId> = self.raft.awake().collect();
        let table = self.store.regions.table();
        for region in awake.union(&self.published).filter_map(|id| table.get(*id)) {
            let led = region.leader() == Some(self.store.id);
            let status = if led { self.raft.status(region.id(), now) } else { None };
            self.store.publish_status(region, status);
        }
        drop(table);
        self.published = awake;
    }

    fn expire(&mut self, now: Instant) {
        for (region, token) in self.proposals.expire(now) {
            self.raft.forget(region, token);
        }
        let late = |(token, reader): (&u64, &Reader)| (reader.deadline <= now).then_some(*token);
        let late: Vec<u64> = self.readers.iter().filter_map(late).collect();
        for token in late {
            if let Some(reader) = self.readers.remove(&token) {
                self.raft.forget(reader.region, token);
                let _ = reader.reply.send(Err(Refusal::TooLate));
            }
        }
    }
}
