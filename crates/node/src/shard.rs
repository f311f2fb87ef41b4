//! The Raft groups of a store, and the commands that are proposed to them.
//!
//! An executor passes events to the shard ([`Shard::step`]) and has it take turns until there is
//! nothing to do ([`Shard::turn`]). Each turn returns effects, to be executed in order. The shard
//! waits for none of them: the result of a log write, of committed entries or of a snapshot returns
//! as an [`Input`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cluster::quorum_loss::{PeerReport, RecoveryStep, Unfit};
use cluster::{Cause, Mark, Quarantine};
use command::order::Order;
use replica::eraftpb::Message;
use replica::{
    Action, Asked, Committed, DropReason, EntryMemory, Fatal, Lane, LogBatch, LogStore, RecoveryRefusal,
    RegionStatus, RelayCounts, RestartCause, Seeker,
};
use types::{
    BootNanos, LogIndex, PeerId, RegionChange, RegionDescriptor, RegionEpoch, RegionId, StoreId, Term,
    Thresholds, UnixMillis, Version,
};

use crate::apply::{ToApply, Watch};
use crate::failpoints::Failpoint;
use crate::leadership::Leadership;
use crate::lifecycle::Job;
use crate::queue::{May, Queue, Waiting};
use crate::work::{Outcome, Refusal, Submit};

/// Messages for one lane of one store.
pub type Messages = Vec<(RegionId, Message)>;

/// The circumstances of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub boot: BootNanos,
    /// Timestamp of proposed entries. `None` means that the wall clock cannot be trusted; nothing
    /// is then proposed.
    pub stamp: Option<UnixMillis>,
    /// The cluster's version as known to this store. Proposed entries are written in it.
    pub version: Version,
    /// The thresholds of collections as known to this store. Proposed entries carry them.
    pub thresholds: Thresholds,
    /// Source of the entries' seeds; it must differ in each turn.
    pub seed: u64,
    /// Maximum size of the committed entries to hand out for execution, in bytes. At 0 nothing is
    /// proposed either, because new entries would only lengthen the queue.
    pub room: u64,
}

/// An event. `C` is the client that gets the answer to a submission, and `R` the reader that gets
/// the proof for a read.
pub enum Input<C, R> {
    /// An input that goes to the Raft groups unchanged. It must not contain a token, because the
    /// shard assigns these.
    Raft(replica::Input),
    Submit(Submit<C>),
    /// Requests a proof that this store leads the region, for reads that begin at this time.
    ReadIndex {
        region: RegionId,
        asked: Asked,
        deadline: BootNanos,
        reader: R,
    },
    /// Changes the region by order of the meta region's leader, if the region has this epoch and
    /// this store leads it.
    ChangeRegion {
        region: RegionId,
        expect: RegionEpoch,
        change: RegionChange,
    },
    /// The rows of an applied snapshot are in place, durably.
    SnapshotApplied {
        region: RegionId,
    },
    /// The region's peer is quarantined, and its mark is written. At start the shard gets this
    /// input for each mark that was found.
    Held {
        region: RegionId,
        mark: Mark,
    },
    /// The quarantine has ended, and its end is written.
    Released {
        region: RegionId,
        mark: Mark,
    },
    /// By order of an operator, executes again the entry at which the peer is quarantined. Does
    /// nothing if the peer's rows differ.
    Retry {
        region: RegionId,
    },
    /// By order of an operator, starts or stops serving a quarantined peer's rows to readers that
    /// accept old data.
    ReadOnly {
        region: RegionId,
        read_only: bool,
    },
    /// The peer's rows differ from those of the majority in the check at this index.
    Differs {
        region: RegionId,
        checked: LogIndex,
    },
}

/// An effect to execute, in order. The order matters in three cases. A lease ends before the
/// message that lets another store lead. Entries are sent to other stores before this store's log
/// is written, so that the writes overlap. An apply queue is stopped before the rows are replaced,
/// and resumes before it gets the entries that were withheld.
pub enum Effect<C, R> {
    /// The region's leader, as reported by its own peer.
    Leadership {
        region: RegionId,
        leadership: Leadership,
        is_self: bool,
    },
    /// Time until which reads of local rows may be answered, if this store is known to lead in this
    /// term ([`Leadership::is_of`]). `None` means that the lease has ended.
    Lease {
        region: RegionId,
        term: Term,
        until: Option<BootNanos>,
    },
    /// The region's peer hears from no leader (`replica::Action::Seeking`).
    Seeking {
        region: RegionId,
        seeker: Option<Seeker>,
    },
    Send {
        to: StoreId,
        lane: Lane,
        messages: Messages,
    },
    /// Keeps the snapshot, which this store has received completely, until it has replaced the
    /// region's rows.
    AcceptSnapshot {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    /// One log write and one sync. Afterwards the groups are told that it is `Persisted`.
    Persist(LogBatch),
    /// Entries to execute after everything that was handed out for the region before.
    Apply {
        region: RegionId,
        entries: Vec<ToApply<C>>,
    },
    /// A job to begin after everything that was handed out for the region before, and after earlier
    /// jobs.
    Life(Job),
    /// The region's peer is quarantined: executes neither the entry at `index` nor a later one.
    StopApplying {
        region: RegionId,
        index: LogIndex,
    },
    /// The quarantine is over. The entries that were not executed are handed out again.
    ResumeApplying {
        region: RegionId,
    },
    /// Allows the log to drop the entries through `index`.
    Truncate {
        region: RegionId,
        index: LogIndex,
        term: Term,
    },
    Answer {
        client: C,
        outcome: Outcome,
    },
    /// An entry that was not proposed (`Refused`), or whose outcome remains unknown to this store
    /// (`Unknown`).
    NotApplied {
        waiting: Waiting<C>,
        outcome: Outcome,
    },
    /// The result of a proof that a reader requested.
    Read {
        region: RegionId,
        reader: R,
        proven: Result<(), Refusal>,
    },
    Announce {
        to: StoreId,
        descriptor: RegionDescriptor,
    },
    /// Reads entries for a lagging follower or for execution, in parallel with other effects. The
    /// result returns as `replica::Input::LogRead`.
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
    /// The end of a leader transfer. `is_done` is true if `to` has become leader and false if this
    /// store keeps the leadership.
    Transferred {
        region: RegionId,
        to: StoreId,
        is_done: bool,
    },
    /// Entries of the region's log are damaged; see `replica::Action::Damaged`.
    Damaged {
        region: RegionId,
        peer: PeerId,
        first: LogIndex,
        executed: bool,
        reason: String,
    },
    /// See `replica::Action::GiveUpLog`.
    GiveUpLog {
        region: RegionId,
        first: LogIndex,
    },
    /// Another store sent a message that no correct store sends.
    Dropped {
        region: RegionId,
        from: StoreId,
        reason: DropReason,
    },
}

/// Returns the entry that may be skipped in the region.
fn skippable(marks: &BTreeMap<RegionId, Mark>, region: RegionId) -> Option<LogIndex> {
    let held = marks.get(&region)?.held.as_ref()?;
    (held.cause == Cause::Entry).then_some(held.index)
}

/// Returns the proposals that the region accepts at the moment.
fn may<L: LogStore>(raft: &replica::Worker<L>, marks: &BTreeMap<RegionId, Mark>, region: RegionId) -> May {
    match raft.can_propose(region) {
        Ok(()) => match raft.proposal_room(region) {
            0 => May::Wait,
            room => May::Propose(room),
        },
        Err(replica::Refusal::Quarantined) => skippable(marks, region).map_or(May::Refuse, May::Skip),
        Err(replica::Refusal::NotLeader { .. }) => May::Refuse,
        Err(_) => May::Wait,
    }
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
    /// The marks of peers that are quarantined or skip entries, as last written.
    marks: BTreeMap<RegionId, Mark>,
    last_token: u64,
    /// Effects of inputs, returned by the next turn.
    pending: Vec<Effect<C, R>>,
}

impl<L: LogStore, C, R> Shard<L, C, R> {
    pub fn new(raft: replica::Worker<L>) -> Shard<L, C, R> {
        Shard {
            raft,
            queue: Queue::default(),
            readers: BTreeMap::new(),
            marks: BTreeMap::new(),
            last_token: 0,
            pending: Vec::new(),
        }
    }

    /// Takes an input. Its effects are returned by the next turn.
    pub fn step(&mut self, input: Input<C, R>, now: BootNanos) {
        match input {
            Input::Raft(input) => self.raft.step(input, now),
            Input::Submit(submit) => self.queue.add(submit),
            Input::ReadIndex { region, asked, deadline, reader } => {
                let token = self.next_token();
                self.readers.insert(token, Reader { region, reader, deadline });
                self.raft.step(replica::Input::ReadIndex { region, token, asked }, now);
            }
            Input::ChangeRegion { region, expect, change } => {
                let token = self.next_token();
                self.raft.step(replica::Input::ChangeRegion { region, token, expect, change }, now);
            }
            Input::SnapshotApplied { region } => {
                self.raft.step(replica::Input::SnapshotApplied { region }, now);
                // The peer may be new on this store. In that case its leader was reported before it
                // could be recorded.
                if let Some(status) = self.raft.status(region, now) {
                    let leadership = Leadership { term: status.term, leader: status.leader };
                    self.pending.push(Effect::Leadership { region, leadership, is_self: false });
                }
            }
            Input::Held { region, mark } => self.hold(region, mark, now),
            Input::Released { region, mark } => self.release(region, mark, now),
            Input::Retry { region } => {
                let is_meant =
                    |mark: &&mut Mark| mark.held.as_ref().is_some_and(|held| held.cause != Cause::Rows);
                if let Some(mark) = self.marks.get_mut(&region).filter(is_meant) {
                    if let Some(held) = mark.held.take().filter(|_| Failpoint::SkipAlone.is_on()) {
                        *mark = mark.skipping(held.index);
                    }
                    self.pending.push(Effect::Life(Job::Release { region, mark: mark.clone() }));
                }
            }
            Input::ReadOnly { region, read_only } => {
                if let Some(mark) = self.marks.get(&region).filter(|mark| mark.held.is_some()) {
                    let mut mark = mark.clone();
                    mark.held.iter_mut().for_each(|held| held.read_only = read_only);
                    self.pending.push(Effect::Life(Job::Hold { region, mark }));
                }
            }
            Input::Differs { region, checked } => {
                self.pending.push(Effect::Life(Job::Differ { region, checked }));
            }
        }
    }

    fn hold(&mut self, region: RegionId, mark: Mark, now: BootNanos) {
        // A mark that arrives while a snapshot replaces the rows concerns the rows before.
        // Execution forgets it with them, so nothing would end the quarantine.
        if !self.raft.keeps_rows(region) && !Failpoint::HeedsOldMark.is_on() {
            // The apply thread reports none of the entries from the mark on as applied.
            if let Some(Quarantine { index, .. }) = mark.held {
                self.pending.push(Effect::StopApplying { region, index });
                self.pending.push(Effect::ResumeApplying { region });
            }
            return;
        }
        if let Some(Quarantine { index, cause, .. }) = mark.held {
            // A peer without sound rows must not lead, not even as the last one.
            let may_lead = cause.leaves_rows_sound();
            self.raft.step(replica::Input::Quarantine { region, index, may_lead }, now);
            self.pending.push(Effect::StopApplying { region, index });
        }
        self.marks.insert(region, mark);
    }

    fn release(&mut self, region: RegionId, mark: Mark, now: BootNanos) {
        if !self.raft.keeps_rows(region) {
            return;
        }
        self.marks.insert(region, mark);
        self.raft.step(replica::Input::Release { region }, now);
        self.pending.push(Effect::ResumeApplying { region });
    }

    /// Searches the committed entries that a quarantined peer does not execute for the order that
    /// releases it.
    fn look_for_skip(&mut self, region: RegionId, entries: Vec<(LogIndex, Bytes)>) -> Option<Job> {
        let index = skippable(&self.marks, region)?;
        let is_skip = |(at, payload): &(LogIndex, Bytes)| {
            *at > index && matches!(Order::decode(payload), Ok(Some(Order::Skip(of))) if of == index)
        };
        entries.iter().find(|entry| is_skip(entry))?;
        let mark = self.marks.get_mut(&region)?;
        *mark = mark.skipping(index);
        Some(Job::Release { region, mark: mark.clone() })
    }

    /// Answers every client and reader whose deadline has passed.
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

    /// Proposes the waiting submissions and takes one turn. Returns `None` if there is nothing to
    /// do before the next input. After an error the store must stop, and no effect of this turn may
    /// be executed.
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

    /// Returns the shared memory accounting of the groups' entries.
    pub fn entry_memory(&self) -> Arc<EntryMemory> {
        self.raft.entry_memory()
    }

    pub fn relay_counts(&self) -> RelayCounts {
        self.raft.relay_counts()
    }

    /// Returns the stores of a region's chain, the first one first. Empty unless this store leads
    /// the region and sends along a chain.
    pub fn chain(&self, region: RegionId) -> Vec<StoreId> {
        self.raft.chain(region)
    }

    /// Returns the bytes of committed entries that are withheld for lack of room.
    pub fn withheld_bytes(&self) -> u64 {
        self.raft.withheld_bytes()
    }

    pub fn status(&self, region: RegionId, now: BootNanos) -> Option<RegionStatus> {
        self.raft.status(region, now)
    }

    /// Returns the regions that are awake. The others do nothing until an input concerns them.
    pub fn awake(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.raft.awake()
    }

    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.raft.regions()
    }

    /// Returns the peers that take no part in consensus since a machine crash, by region.
    pub fn unclean(&self) -> BTreeMap<RegionId, PeerId> {
        self.raft.unclean()
    }

    /// Takes part in the recovery of regions by order of an operator. The next turns return all
    /// effects. Later reports show the caller what is durable.
    pub fn recovery(&mut self, step: &RecoveryStep, now: BootNanos) -> Result<(), RecoveryRefusal> {
        match step {
            RecoveryStep::Promise { region, term, keeper } => {
                self.raft.promise_recovery(*region, *term, *keeper, now)
            }
            RecoveryStep::Recover { region, term, recovery } => {
                self.raft.recover(*region, *term, recovery, now)
            }
        }
    }

    /// Reports this store's peers for an order that recovers regions.
    pub fn recovery_reports(&mut self, now: BootNanos) -> Vec<PeerReport> {
        self.raft.reports(now).into_iter().map(told).collect()
    }

    /// Returns the largest number under which each region's peer was removed from this store.
    pub fn removed_peers(&self) -> &BTreeMap<RegionId, PeerId> {
        self.raft.removed_peers()
    }

    fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Builds entries from the waiting submissions. While a log batch is in flight, commands are
    /// collected for the next entry instead.
    fn propose(&mut self, now: Moment, watch: &mut impl Watch<C>) {
        let Some(stamp) = now.stamp else { return };
        if self.queue.is_empty() {
            return;
        }
        if self.raft.persist_in_flight() || now.room == 0 {
            // Commands must not wait for a log write that does not return, because other stores may
            // lead their regions by now.
            if self.raft.is_hanging() {
                let mut refused = Vec::new();
                self.queue.refuse(|region| may(&self.raft, &self.marks, region), &mut refused);
                self.pending.extend(refused.into_iter().map(refusal));
            }
            return;
        }
        let last_token = &mut self.last_token;
        let token = || {
            *last_token += 1;
            *last_token
        };
        let mut refused = Vec::new();
        let (raft, marks) = (&self.raft, &self.marks);
        let may = |region| may(raft, marks, region);
        let proposals =
            self.queue.build(((now.version, now.thresholds), stamp, now.seed), may, token, &mut refused);
        self.pending.extend(refused.into_iter().map(refusal));
        for proposal in proposals {
            let (region, token, payload) = (proposal.region, proposal.token, proposal.payload);
            if let Some((seed, mut clients)) = self.queue.waiting(token) {
                watch.proposed(region, seed, &mut clients);
            }
            let input = match proposal.is_skip {
                true => replica::Input::ProposeOrder { region, token, payload },
                false => replica::Input::Propose { region, token, payload },
            };
            self.raft.step(input, now.boot);
        }
    }

    /// Converts actions to effects, in the order in which they must be executed.
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
                    // A lease that ended in this turn is not renewed in this turn, whatever the
                    // order of the actions.
                    if until.is_none() {
                        ended_leases.push(region);
                    }
                    let until = until.filter(|_| !ended_leases.contains(&region));
                    first.push(Effect::Lease { region, term, until });
                }
                Action::Seeking { region, seeker } => later.push(Effect::Seeking { region, seeker }),
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
                Action::Withheld { region, entries } => {
                    later.extend(self.look_for_skip(region, entries).map(Effect::Life));
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
                    self.marks.remove(&descriptor.id);
                    later.push(Effect::Life(Job::Replace { descriptor, index, term }));
                }
                Action::Destroy { region, peer } => later.push(Effect::Life(Job::End { region, peer })),
                Action::FlushSoon => later.push(Effect::FlushSoon),
                Action::Damaged { region, peer, first, executed, reason } => {
                    later.push(Effect::Damaged { region, peer, first, executed, reason });
                }
                Action::GiveUpLog { region, first } => later.push(Effect::GiveUpLog { region, first }),
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
        // A region change has a token, too, but no waiting client.
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

    /// Returns the token that was last assigned to a proposal, a read or a change.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }
}

fn refusal<C, R>(client: C) -> Effect<C, R> {
    Effect::Answer { client, outcome: Outcome::Refused(Refusal::NotLeader) }
}

fn told(report: replica::PeerReport) -> PeerReport {
    let unfit = report.unfit.map(|unfit| match unfit {
        replica::Unfit::Blank => Unfit::Blank,
        replica::Unfit::Merged => Unfit::Merged,
        other => Unfit::Other(other.to_string()),
    });
    PeerReport {
        region: report.region,
        peer: report.peer,
        descriptor: report.descriptor,
        ends_as: report.ends_as,
        term: report.term,
        vote: report.vote,
        is_saved: report.is_saved,
        leads: report.leads,
        unfit,
        commit: report.commit,
        commit_term: report.commit_term,
        applied: report.applied,
        last: report.last,
        runs: report.runs,
    }
}
