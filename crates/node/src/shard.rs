//! The Raft groups of a store, and the commands that go through them.
//!
//! An executor tells the shard what happened ([`Shard::step`]), and has it take turns until there is nothing to do
//! ([`Shard::turn`]). Each turn gives effects, to be executed in their order; none of them is waited for. What comes of
//! a write to the log, of committed entries or of a snapshot comes back as an [`Input`].

use std::collections::BTreeMap;
use std::sync::Arc;

use replica::eraftpb::Message;
use replica::{
    Action, Committed, DropReason, EntryMemory, Fatal, Lane, LogBatch, LogStore, RegionStatus, RestartCause,
};
use types::{
    BootNanos, LogIndex, RegionChange, RegionDescriptor, RegionEpoch, RegionId, StoreId, Term, UnixMillis,
};

use crate::apply::{ToApply, Watch};
use crate::leadership::Leadership;
use crate::lives::Job;
use crate::queue::{Queue, Waiting};
use crate::work::{Outcome, Refusal, Submit};

/// Messages for one lane of one store.
pub type Messages = Vec<(RegionId, Message)>;

/// When a turn is taken.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub boot: BootNanos,
    /// For entries that are proposed; `None`: the wall clock is not to be trusted, and nothing is proposed.
    pub stamp: Option<UnixMillis>,
    /// From which the entries' seeds are derived; another one for each turn.
    pub seed: u64,
    /// Bytes of committed entries that may be handed out to be executed. At 0 nothing is proposed either: new entries would
    /// only lengthen the queue.
    pub room: u64,
}

/// Something that happened. `C` is answered for a submission, `R` for the proof that a read needs.
pub enum Input<C, R> {
    /// For the groups as it is: an input that needs nothing of the shard's, and no token above all, for the shard
    /// hands these out.
    Raft(replica::Input),
    Submit(Submit<C>),
    /// Prove that this store leads the region, for reads that begin now.
    ReadIndex {
        region: RegionId,
        deadline: BootNanos,
        reader: R,
    },
    /// By order of the meta region's leader, if the region is of this epoch and led here.
    ChangeRegion {
        region: RegionId,
        expect: RegionEpoch,
        change: RegionChange,
    },
    /// The rows of a snapshot that was to be applied are in place, durably.
    SnapshotApplied {
        region: RegionId,
    },
}

/// Something to do now. The order counts: a lease ends before the message by which another store may lead, and entries
/// leave for other stores before this one's log is written, so that the two writes overlap.
pub enum Effect<C, R> {
    /// What the region's own peer says of who leads.
    Leadership {
        region: RegionId,
        leadership: Leadership,
        is_self: bool,
    },
    /// Reads of local rows may be answered until then, if the leadership is known to be of this store and term
    /// ([`Leadership::is_of`]). `None`: the lease has ended.
    Lease {
        region: RegionId,
        term: Term,
        until: Option<BootNanos>,
    },
    Send {
        to: StoreId,
        lane: Lane,
        messages: Messages,
    },
    /// The snapshot, all of which is here, must not go before it has replaced the region's rows.
    AcceptSnapshot {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    /// One write to the log, and one sync. Then the groups are told that it is `Persisted`.
    Persist(LogBatch),
    /// To be executed, after everything of the region that was handed out before.
    Apply {
        region: RegionId,
        entries: Vec<ToApply<C>>,
    },
    /// To be begun after everything of the region that was handed out before, and after earlier jobs.
    Life(Job),
    /// The log may forget the entries through `index`.
    Truncate {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    Answer {
        client: C,
        outcome: Outcome,
    },
    /// An entry that was not proposed (`Refused`), or of which this store will not learn what becomes (`Unknown`).
    NotApplied {
        waiting: Waiting<C>,
        outcome: Outcome,
    },
    /// A proof that was asked for, or none.
    Read {
        region: RegionId,
        reader: R,
        proven: Result<(), Refusal>,
    },
    Announce {
        to: StoreId,
        descriptor: RegionDescriptor,
    },
    /// Entries for a follower that lags are read, beside everything else, and given back as `replica::Input::LogRead`.
    ReadLog {
        region: RegionId,
        number: u64,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    },
    MakeSnapshot {
        region: RegionId,
    },
    SendSnapshot {
        region: RegionId,
        to: StoreId,
        message: Message,
    },
    FlushSoon,
    ChangeRefused {
        region: RegionId,
        reason: replica::Refusal,
    },
    /// `is_done`: the store has taken the lead over; else it stays here.
    Transferred {
        region: RegionId,
        to: StoreId,
        is_done: bool,
    },
    /// A store sent what no correct store sends.
    Dropped {
        region: RegionId,
        from: StoreId,
        reason: DropReason,
    },
}

struct Reader<R> {
    region: RegionId,
    reader: R,
    deadline: BootNanos,
}

pub struct Shard<L: LogStore, C, R> {
    raft: replica::Worker<L>,
    queue: Queue<C>,
    readers: BTreeMap<u64, Reader<R>>,
    last_token: u64,
    /// Effects of inputs, which come out of the next turn.
    pending: Vec<Effect<C, R>>,
}

impl<L: LogStore, C, R> Shard<L, C, R> {
    pub fn new(raft: replica::Worker<L>) -> Shard<L, C, R> {
        Shard { raft, queue: Queue::default(), readers: BTreeMap::new(), last_token: 0, pending: Vec::new() }
    }

    /// Takes an input. What it causes comes out of the next turn.
    pub fn step(&mut self, input: Input<C, R>, now: BootNanos) {
        match input {
            Input::Raft(input) => self.raft.step(input, now),
            Input::Submit(submit) => self.queue.add(submit),
            Input::ReadIndex { region, deadline, reader } => {
                let token = self.next_token();
                self.readers.insert(token, Reader { region, reader, deadline });
                self.raft.step(replica::Input::ReadIndex { region, token }, now);
            }
            Input::ChangeRegion { region, expect, change } => {
                let token = self.next_token();
                self.raft.step(replica::Input::ChangeRegion { region, token, expect, change }, now);
            }
            Input::SnapshotApplied { region } => {
                self.raft.step(replica::Input::SnapshotApplied { region }, now);
                // The peer may be new here, and who leads was said before anybody could note it.
                if let Some(status) = self.raft.status(region, now) {
                    let leadership = Leadership { term: status.term, leader: status.leader };
                    self.pending.push(Effect::Leadership { region, leadership, is_self: false });
                }
            }
        }
    }

    /// Answers everyone whose deadline has passed.
    pub fn expire(&mut self, now: BootNanos) {
        let mut answers = Vec::new();
        for (region, token) in self.queue.expire(now, &mut answers) {
            self.raft.forget(region, token);
        }
        let answers = answers.into_iter().map(|(client, outcome)| Effect::Answer { client, outcome });
        self.pending.extend(answers);
        let is_late = |(token, reader): (&u64, &Reader<R>)| (reader.deadline <= now).then_some(*token);
        let late: Vec<u64> = self.readers.iter().filter_map(is_late).collect();
        for token in late {
            if let Some(Reader { region, reader, .. }) = self.readers.remove(&token) {
                self.raft.forget(region, token);
                self.pending.push(Effect::Read { region, reader, proven: Err(Refusal::TooLate) });
            }
        }
    }

    /// Proposes what has waited and takes one turn. `None`: there is nothing to do before the next input. After an
    /// error the store must stop, and nothing of this turn may be done.
    pub fn turn(
        &mut self,
        now: Moment,
        watch: &mut impl Watch<C>,
    ) -> Result<Option<Vec<Effect<C, R>>>, Fatal> {
        self.raft.make_room(now.room);
        self.propose(now, watch);
        if !self.raft.has_work() {
            let pending = std::mem::take(&mut self.pending);
            return Ok((!pending.is_empty()).then_some(pending));
        }
        let actions = self.raft.turn(now.boot)?;
        Ok(Some(self.effects_of(actions)))
    }

    /// The memory that the groups' entries share.
    pub fn entry_memory(&self) -> Arc<EntryMemory> {
        self.raft.entry_memory()
    }

    /// Bytes that are committed and not handed out, for want of room.
    pub fn withheld_bytes(&self) -> u64 {
        self.raft.withheld_bytes()
    }

    pub fn status(&self, region: RegionId, now: BootNanos) -> Option<RegionStatus> {
        self.raft.status(region, now)
    }

    /// The regions in which something may happen without being asked for; the others sleep.
    pub fn awake(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.raft.awake()
    }

    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.raft.regions()
    }

    fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Makes entries of what waits, unless a batch is on its way to the log: while it is, commands gather for the
    /// next entry.
    fn propose(&mut self, now: Moment, watch: &mut impl Watch<C>) {
        let Some(stamp) = now.stamp else { return };
        if self.queue.is_empty() || self.raft.persist_in_flight() || now.room == 0 {
            return;
        }
        let (raft, last_token) = (&self.raft, &mut self.last_token);
        let token = || {
            *last_token += 1;
            *last_token
        };
        let mut refused = Vec::new();
        let may = |region| raft.can_propose(region);
        let proposals = self.queue.build((stamp, now.seed), may, token, &mut refused);
        let refuse = |client| Effect::Answer { client, outcome: Outcome::Refused(Refusal::NotLeader) };
        self.pending.extend(refused.into_iter().map(refuse));
        for proposal in proposals {
            let (region, token, payload) = (proposal.region, proposal.token, proposal.payload);
            if let Some((seed, mut clients)) = self.queue.waiting(token) {
                watch.proposed(region, seed, &mut clients);
            }
            self.raft.step(replica::Input::Propose { region, token, payload }, now.boot);
        }
    }

    /// In the order in which they are to be executed.
    fn effects_of(&mut self, actions: Vec<Action>) -> Vec<Effect<C, R>> {
        let mut first = std::mem::take(&mut self.pending);
        let mut sends: Vec<(StoreId, Lane, Messages)> = Vec::new();
        let (mut log, mut later) = (Vec::new(), Vec::new());
        let mut ended_leases = Vec::new();
        for action in actions {
            match action {
                Action::Leadership { region, term, leader, is_self } => {
                    let leadership = Leadership { term, leader };
                    first.push(Effect::Leadership { region, leadership, is_self });
                }
                Action::Lease { region, term, until } => {
                    // A lease that was ended in this turn does not come back in it, whatever the order.
                    if until.is_none() {
                        ended_leases.push(region);
                    }
                    let until = until.filter(|_| !ended_leases.contains(&region));
                    first.push(Effect::Lease { region, term, until });
                }
                Action::Send { to, region, lane, message } => {
                    match sends.iter_mut().find(|(store, of, _)| *store == to && *of == lane) {
                        Some((_, _, messages)) => messages.push((region, message)),
                        None => sends.push((to, lane, vec![(region, message)])),
                    }
                }
                Action::Persist(batch) => {
                    for write in &batch.writes {
                        let restart = write.restart.as_ref();
                        if let Some(restart) = restart.filter(|to| to.cause == RestartCause::Snapshot) {
                            let (region, index, term) = (write.region, restart.index, restart.term);
                            log.push(Effect::AcceptSnapshot { region, index, term });
                        }
                    }
                    log.push(Effect::Persist(batch));
                }
                Action::Apply { region, entries } => {
                    let entries = entries.into_iter().map(|entry| self.awaited(entry)).collect();
                    later.push(Effect::Apply { region, entries });
                }
                Action::Refused { region, token, reason } => later.push(self.refused(region, token, reason)),
                Action::Lost { token, .. } => {
                    if let Some(waiting) = self.queue.take(token) {
                        later.push(Effect::NotApplied { waiting, outcome: Outcome::Unknown });
                    }
                }
                Action::ReadReady { token, .. } => {
                    if let Some(Reader { region, reader, .. }) = self.readers.remove(&token) {
                        later.push(Effect::Read { region, reader, proven: Ok(()) });
                    }
                }
                Action::Truncate { region, index, term } => {
                    later.push(Effect::Truncate { region, index, term });
                }
                Action::Announce { to, descriptor } => later.push(Effect::Announce { to, descriptor }),
                Action::ReadLog { region, number, low, high, max_bytes } => {
                    later.push(Effect::ReadLog { region, number, low, high, max_bytes });
                }
                Action::MakeSnapshot { region } => later.push(Effect::MakeSnapshot { region }),
                Action::SendSnapshot { region, to, message } => {
                    later.push(Effect::SendSnapshot { region, to, message });
                }
                Action::ApplySnapshot { index, term, descriptor, .. } => {
                    later.push(Effect::Life(Job::Replace { descriptor, index, term }));
                }
                Action::Destroy { region, peer } => later.push(Effect::Life(Job::End { region, peer })),
                Action::FlushSoon => later.push(Effect::FlushSoon),
                Action::Dropped { region, from, reason } => {
                    later.push(Effect::Dropped { region, from, reason });
                }
                Action::TransferDone { region, to } => {
                    later.push(Effect::Transferred { region, to, is_done: true });
                }
                Action::TransferAborted { region, to } => {
                    later.push(Effect::Transferred { region, to, is_done: false });
                }
            }
        }
        let sends = sends.into_iter().map(|(to, lane, messages)| Effect::Send { to, lane, messages });
        first.extend(sends);
        first.extend(log);
        first.extend(later);
        first
    }

    fn awaited(&mut self, entry: Committed) -> ToApply<C> {
        // A change of the region itself has a token, too, and nobody who waits.
        let waiting = entry.token.and_then(|token| self.queue.take(token));
        ToApply { entry, waiting }
    }

    fn refused(&mut self, region: RegionId, token: u64, reason: replica::Refusal) -> Effect<C, R> {
        if let Some(waiting) = self.queue.take(token) {
            Effect::NotApplied { waiting, outcome: Outcome::Refused(Refusal::NotLeader) }
        } else if let Some(Reader { region, reader, .. }) = self.readers.remove(&token) {
            Effect::Read { region, reader, proven: Err(Refusal::NotLeader) }
        } else {
            Effect::ChangeRefused { region, reason }
        }
    }

    /// The number under which a proposal, a read or a change was handed on last.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }
}
