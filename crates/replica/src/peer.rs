//! One region's peer on this store: the raft crate's node and the state around it.
//!
//! Every call into the raft crate goes through `drive`. It detects a change of term, role or leader
//! afterwards. It also replaces the election timeout, which the crate draws from the thread's own
//! randomness, by one derived from (seed, store, region, term, attempt).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use raft::eraftpb::{
    ConfChangeV2, ConfState, Entry, EntryType, HardState as RaftHardState, Message, MessageType,
};
use raft::{RaftState, RawNode, StateRole};
use types::{
    BootNanos, Changed, Draw, LogIndex, PeerId, RegionDescriptor, RegionId, StoreId, Term, FIRST_INDEX,
    FIRST_TERM,
};

use crate::action::{
    Action, Committed, DropReason, Fatal, PeerProgress, PeerSeed, Refusal, RegionStatus, RegionWrite,
    Restart, RestartCause, Role, Seeker, Unclean,
};
use crate::chain::{Chain, RelayCounts};
use crate::conf::conf_state_of;
use crate::config::{Config, Elections};
use crate::failpoints::Failpoint;
use crate::lease::Lease;
use crate::log_store::{HardState, LogError, LogStore};
use crate::log_view::{LogView, Logs};
use crate::message::{is_transfer_vote, lane};
use crate::proposals::Proposals;
use crate::reads::{Asked, Reads};
use crate::stickiness::{Promise, Stickiness};
use crate::truncation::LogUse;
use crate::unsaved::{InFlight, Unsaved};
use damage::Damage;
use inspect::Stance;
use merge::Takeover;
use quarantine::Confined;
use search::Search;

mod campaign;
mod changes;
mod damage;
mod hibernation;
pub(crate) mod inspect;
mod lease_rounds;
mod merge;
mod quarantine;
mod quorum_loss;
mod relay;
mod search;
mod snapshots;
mod turn;
mod unclean;
mod yielding;

/// Backlog of committed bytes above which a peer does not campaign, as a multiple of the bytes of
/// one `Apply`.
const BEHIND_APPLIES: u64 = 16;

/// Maximum bytes of entries that one read scans for changes.
const CHANGES_READ_BYTES: u64 = 1 << 20;

/// Returns true if an entry of `first..=last` changes the set of peers.
fn changes_peers<L: LogStore>(
    log: &L,
    region: RegionId,
    mut first: LogIndex,
    last: LogIndex,
) -> Result<bool, LogError> {
    while first <= last {
        let entries = log.entries(region, first, last + 1, CHANGES_READ_BYTES)?;
        if entries.iter().any(|entry| entry.get_entry_type() != EntryType::EntryNormal) {
            return Ok(true);
        }
        first += entries.len().max(1) as u64;
    }
    Ok(false)
}

/// The worker's state that a peer uses during a call.
pub(crate) struct Context {
    pub config: Config,
    /// The time of the present input or turn.
    pub now: BootNanos,
    pub out: Outbox,
    pub relays: RelayCounts,
}

/// A turn's actions, grouped by the time at which they must happen.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Ends of leases, changes of leadership and refusals, which come before anything that is sent
    /// to other stores.
    pub first: Vec<Action>,
    pub sends: Vec<Action>,
    pub later: Vec<Action>,
    /// Changes of the store's set of peers by applied entries, for the worker.
    pub turnover: Vec<Turnover>,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.sends.is_empty() && self.later.is_empty()
    }
}

/// The state of a peer after its turn.
pub(crate) enum Turned {
    Done,
    HasMore,
    /// Committed entries remain, because there was no room for them.
    Withheld,
}

pub(crate) enum Turnover {
    /// A split created the region. `led` is true if this store leads the parent; this peer then
    /// campaigns at once.
    Born { descriptor: RegionDescriptor, parent: RegionId, at: LogIndex, led: bool },
    /// The region no longer has a peer here.
    Gone { descriptor: RegionDescriptor },
    /// The region has merged into another.
    Absorbed { source: RegionDescriptor },
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    term: Term,
    role: StateRole,
    leader: u64,
}

/// A committed change. It takes effect in the raft crate when it is applied.
struct PendingChange {
    index: LogIndex,
    /// Passed to the library one after the other. There are several if a configuration is forced.
    conf_changes: Vec<ConfChangeV2>,
    changed: Changed,
    recovers: bool,
}

pub(crate) struct Peer<L: LogStore> {
    region: RegionId,
    /// This peer's id.
    id: PeerId,
    raw: RawNode<LogView<L>>,
    seen: Seen,
    /// The descriptor as applied. A blank peer has the one with which it was announced.
    descriptor: RegionDescriptor,
    /// The descriptor as of the entries that were handed out.
    handed_descriptor: RegionDescriptor,
    pending_changes: VecDeque<PendingChange>,
    /// While leading: the index that must be applied before a change may be proposed.
    last_change: LogIndex,
    /// While leading: the index that must be applied before a lease may begin. The new region of a
    /// split may have a leader elsewhere as soon as any store has applied the split. From then on
    /// this store must not read the new region's slots.
    lease_needs: LogIndex,
    /// The last split that was applied. The new region's rows depend on this log until a flush
    /// covers them.
    last_split: LogIndex,
    /// The latest peer on each store that the descriptor does not list.
    strangers: BTreeMap<StoreId, PeerId>,
    /// The term whose leader relies on entries that are not in the log. Either the leader is wrong,
    /// or entries that this peer acknowledged are lost. This peer neither votes nor campaigns until
    /// a later leader has filled the log.
    missing_since: Option<Term>,
    /// True if the peer holds no log and no rows, and waits for a snapshot. It has acknowledged no
    /// entry, so it votes like any voter with an empty log. It never campaigns, because it knows no
    /// configuration.
    is_blank: bool,
    /// The index of an accepted snapshot, until it is applied.
    applying: Option<LogIndex>,
    /// Committed entries that must not be handed out yet: they come after an unfinished snapshot,
    /// or follow a merge whose source is not completely applied.
    held: Vec<Committed>,
    /// The merges among the held entries.
    takeovers: VecDeque<Takeover>,
    /// True if the region has merged into another and all entries of its log are applied. Nothing
    /// more is handed out.
    is_taken: bool,
    /// The index at which this peer, as the leader, proposed to seal the region.
    sealing: LogIndex,
    /// True while a `MakeSnapshot` is unanswered.
    making: bool,
    /// Term and vote that were last handed to the log.
    given_vote: (Term, u64),
    /// The term that the log holds durably.
    saved_term: Term,
    /// True if this peer leads in a term that is not saved yet, and its leadership is not reported
    /// yet.
    owes_leadership: bool,
    election_timeout: usize,
    /// Number of election timeouts drawn so far.
    attempt: u64,
    stickiness: Stickiness,
    proposals: Proposals,
    reads: Reads,
    lease: Lease,
    transfer: Option<StoreId>,
    /// True if the store is about to stop or its device hangs: this peer must not become leader.
    pub yields: bool,
    /// The search for a leader with the help of a coordinator.
    search: Search,
    /// While leading: the followers that pass appends on.
    chain: Chain,
    /// True if this peer may have lost state that it acknowledged: see `PeerSeed::unclean`.
    is_unclean: bool,
    /// Entries of the log that were found damaged at runtime.
    damage: Option<Damage>,
    /// See `Input::Quarantine`.
    confined: Option<Confined>,
    pub unsaved: Unsaved,
    in_flight: Option<InFlight>,
    /// The index through which entries were handed out.
    handed: LogIndex,
    flushed: LogIndex,
    held_by_all_hint: LogIndex,
    /// The time of the last message from a leader, or the time at which this peer was opened.
    heard_at: BootNanos,
    /// The time at which this peer last asked the others whether it is still a member.
    asked_at: BootNanos,
    ticks: u32,
    /// While leading in that term: the peers whose messages arrived in the previous election
    /// timeout.
    heard_before: (Term, BTreeSet<PeerId>),
    /// While leading: the number of ticks without activity, and the peers that accepted the offer
    /// to hibernate.
    quiet_ticks: u32,
    sleepers: BTreeSet<PeerId>,
    is_asleep: bool,
}

impl<L: LogStore> Peer<L> {
    /// Opens a peer whose log and rows exist. `committed` is an index that another source proves to
    /// be committed.
    pub fn open(
        ctx: &Context,
        logs: &Logs<L>,
        seed: PeerSeed,
        committed: LogIndex,
        logger: &slog::Logger,
    ) -> Result<Peer<L>, Fatal> {
        let region = seed.descriptor.id;
        let (applied, applied_term) = seed.applied.unwrap_or((FIRST_INDEX, FIRST_TERM));
        let id = seed.descriptor.peer_on(ctx.config.store).ok_or(Fatal::NotAPeer { region })?.id;
        let log = &logs.store;
        let bounds = log.bounds(region)?;
        let saved = log.hard_state(region)?;
        let state = saved.unwrap_or_default();
        if bounds.first > applied + 1 {
            return Err(Fatal::Gap { region, first: bounds.first, applied });
        }
        // A commit index is written with or after the entries that it covers.
        let needed = applied.max(state.commit).max(committed);
        if bounds.last < needed {
            return Err(Fatal::LostTail { region, last: bounds.last, needed });
        }
        // The descriptor is as old as the last flush. Later log entries may have added voters.
        let is_alone = !seed.descriptor.is_joint()
            && seed.descriptor.voters().eq([ctx.config.store])
            && !changes_peers(log, region, applied + 1, bounds.last)?;
        // The only voter commits what it has written. Damage may have taken the commit index. The
        // entries before the damage are executed, although the peer does not lead.
        let is_cut = is_alone && seed.unclean == Unclean::Damage;
        let commit = if is_cut { bounds.last } else { needed };
        let hard_state = to_raft(HardState { commit, ..state });
        let conf_state = conf_state_of(&seed.descriptor);
        let view = LogView::open(logs.clone(), region, hard_state, conf_state)?;
        let in_log = view.term_if_held(applied);
        if let Some(error) = view.take_failure() {
            return Err(Fatal::Log(error));
        }
        if in_log != Some(applied_term) {
            let in_log = in_log.unwrap_or(0);
            return Err(Fatal::Diverged { region, index: applied, in_log, in_engine: applied_term });
        }
        let is_new = state.term <= FIRST_TERM && bounds.last <= FIRST_INDEX;
        let votes_at_once = is_alone || is_new || Failpoint::NoStickinessAfterRestart.is_on();
        let restarted_at = (!votes_at_once).then_some(ctx.now);
        let mut peer = Peer::with_view(ctx, seed.descriptor, id, view, applied, restarted_at, logger)?;
        peer.is_unclean = match seed.unclean {
            Unclean::No => false,
            Unclean::Crash => !is_alone,
            Unclean::Damage => true,
        };
        Ok(peer)
    }

    /// Creates the peer of a region that a split has just created. Nothing of the peer is written
    /// yet; the first batch holds its beginning. `promise` is the promise of the blank peer that it
    /// replaces.
    pub fn born(
        ctx: &Context,
        logs: &Logs<L>,
        descriptor: RegionDescriptor,
        (parent, at): (RegionId, LogIndex),
        promise: Promise,
        logger: &slog::Logger,
    ) -> Result<Peer<L>, Fatal> {
        let region = descriptor.id;
        let id = descriptor.peer_on(ctx.config.store).ok_or(Fatal::NotAPeer { region })?.id;
        let recorded = Some(promise.hard_state).filter(|_| !Failpoint::BirthForgetsVote.is_on());
        let hard_state = HardState::begun(recorded);
        let initial = RaftState::new(to_raft(hard_state), conf_state_of(&descriptor));
        let begin = (FIRST_INDEX, FIRST_TERM);
        let view = LogView::new_at(logs.clone(), region, initial, begin);
        let restart = Restart {
            index: FIRST_INDEX,
            term: FIRST_TERM,
            descriptor: descriptor.clone(),
            cause: RestartCause::Split { parent, at },
        };
        let mut peer = Peer::with_view(ctx, descriptor, id, view, FIRST_INDEX, None, logger)?;
        peer.stickiness = promise.stickiness;
        // The blank peer's term may not be written yet.
        peer.saved_term = FIRST_TERM;
        peer.unsaved.restart(restart);
        peer.unsaved.hard_state = Some(hard_state);
        Ok(peer)
    }

    /// Creates a peer that another peer of the region announced, and of which this store holds no
    /// rows and no entries. `promise` is the promise that an earlier blank peer of the region left
    /// in the log.
    pub fn blank(
        ctx: &Context,
        logs: &Logs<L>,
        descriptor: RegionDescriptor,
        promise: Promise,
        logger: &slog::Logger,
    ) -> Result<Peer<L>, Fatal> {
        let region = descriptor.id;
        let id = descriptor.peer_on(ctx.config.store).ok_or(Fatal::NotAPeer { region })?.id;
        let Promise { hard_state, stickiness } = promise;
        let initial = RaftState::new(to_raft(HardState { commit: 0, ..hard_state }), ConfState::default());
        let view = LogView::new_at(logs.clone(), region, initial, (0, 0));
        let mut peer = Peer::with_view(ctx, descriptor, id, view, 0, None, logger)?;
        peer.is_blank = true;
        peer.stickiness = stickiness;
        Ok(peer)
    }

    /// Returns the promise that a peer that replaces this one must keep.
    pub fn promise(&self) -> Promise {
        let raft = &self.raw.raft;
        let vote = (raft.vote != 0).then_some(raft.vote);
        Promise { hard_state: HardState { term: raft.term, vote, commit: 0 }, stickiness: self.stickiness }
    }

    fn with_view(
        ctx: &Context,
        descriptor: RegionDescriptor,
        id: PeerId,
        mut view: LogView<L>,
        applied: LogIndex,
        restarted_at: Option<BootNanos>,
        logger: &slog::Logger,
    ) -> Result<Peer<L>, Fatal> {
        let (region, config) = (descriptor.id, &ctx.config);
        let settings = raft::Config {
            id,
            election_tick: config.election_ticks as usize,
            heartbeat_tick: config.heartbeat_ticks as usize,
            applied,
            max_size_per_msg: config.max_message_bytes,
            max_inflight_msgs: config.max_inflight_messages,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            skip_bcast_commit: config.skip_commit_broadcast,
            max_uncommitted_size: config.max_uncommitted_bytes,
            max_committed_size_per_ready: config.max_apply_bytes,
            ..raft::Config::default()
        };
        view.set_large_bytes(config.max_message_bytes);
        let raw = RawNode::new(&settings, view, logger)
            .map_err(|error| Fatal::Consensus { region, reason: error.to_string() })?;
        let seen = seen(&raw);
        let given_vote = (raw.raft.term, raw.raft.vote);
        let mut peer = Peer {
            region,
            id,
            raw,
            seen,
            handed_descriptor: descriptor.clone(),
            descriptor,
            pending_changes: VecDeque::new(),
            last_change: 0,
            lease_needs: 0,
            last_split: 0,
            strangers: BTreeMap::new(),
            missing_since: None,
            is_blank: false,
            applying: None,
            held: Vec::new(),
            takeovers: VecDeque::new(),
            is_taken: false,
            sealing: 0,
            making: false,
            saved_term: given_vote.0,
            owes_leadership: false,
            given_vote,
            election_timeout: 0,
            attempt: 0,
            stickiness: Stickiness::new(config.stickiness_nanos(), restarted_at),
            proposals: Proposals::default(),
            reads: Reads::default(),
            lease: Lease::default(),
            transfer: None,
            yields: false,
            search: Search::default(),
            chain: Chain::default(),
            is_unclean: false,
            damage: None,
            confined: None,
            unsaved: Unsaved::default(),
            in_flight: None,
            handed: applied,
            // The engine has no log of its own, so all rows that are visible after opening are
            // durable.
            flushed: applied,
            held_by_all_hint: 0,
            heard_at: ctx.now,
            asked_at: ctx.now,
            ticks: 0,
            heard_before: (0, BTreeSet::new()),
            quiet_ticks: 0,
            sleepers: BTreeSet::new(),
            is_asleep: false,
        };
        peer.draw_election_timeout(config);
        Ok(peer)
    }

    pub fn id(&self) -> PeerId {
        self.id
    }

    pub fn descriptor(&self) -> &RegionDescriptor {
        &self.descriptor
    }

    /// Returns true if the rows of a split-off region can be restored from this log only.
    pub fn owes_rows(&self) -> bool {
        self.flushed < self.last_split
    }

    pub fn is_blank(&self) -> bool {
        self.is_blank
    }

    fn store_of(&self, peer: PeerId) -> Option<StoreId> {
        let known = self.descriptor.peer(peer).map(|peer| peer.store);
        known.or_else(|| self.strangers.iter().find(|(_, id)| **id == peer).map(|(&store, _)| store))
    }

    fn leader(&self) -> Option<StoreId> {
        self.store_of(self.raw.raft.leader_id)
    }

    pub fn tick(&mut self, ctx: &mut Context) -> bool {
        if self.is_unclean {
            self.ask_whether_member(ctx);
            self.truncate(ctx);
            return self.raw.has_ready();
        }
        let waits = self.seek_leader(ctx);
        let raft = &self.raw.raft;
        let would_stand = raft.state != StateRole::Leader
            && raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        if ctx.config.hibernate_ticks > 0 && raft.election_elapsed == ctx.config.election_ticks as usize / 2 {
            // The leader may hibernate while this peer does not. It is woken before a peer
            // campaigns against it.
            self.wake_leader(&mut ctx.out);
        }
        if waits || would_stand && !self.may_stand(ctx) {
            self.tick_without_campaign(ctx);
        } else {
            if would_stand {
                self.announce_to_voters(&mut ctx.out);
            }
            self.note_who_was_heard();
            self.watch_chain(ctx);
            self.drive(ctx, |raw| {
                raw.tick();
            });
            if would_stand {
                self.draw_election_timeout(&ctx.config);
            }
        }
        let limit = ctx.now.saturating_sub(2 * ctx.config.election_nanos());
        self.refuse(&mut ctx.out, Refusal::Unproven, |reads| reads.take_older(limit));
        if self.is_leader() {
            self.pass_over_silent(ctx);
            self.settle_lease(ctx);
            if self.may_renew(ctx) {
                self.send_round(ctx);
            }
        }
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks % ctx.config.heartbeat_ticks == 0 {
            self.announce_to_newcomers(&mut ctx.out);
            self.leave_joint(ctx);
        }
        self.ask_whether_member(ctx);
        self.give_up_lead(ctx);
        self.leave_by_damage(ctx);
        self.truncate(ctx);
        self.hibernate(ctx);
        self.raw.has_ready()
    }

    /// Returns true if the backlog of committed entries is so large that the peer could answer no
    /// client for a while. A campaign would also make the consensus code read the whole backlog at
    /// once.
    fn is_behind(&self, config: &Config) -> bool {
        let log = &self.raw.raft.raft_log;
        let entries = log.committed.saturating_sub(log.applied);
        entries.saturating_mul(self.raw.store().entry_bytes()) > BEHIND_APPLIES * config.max_apply_bytes
    }

    fn is_persisted(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.persisted == log.last_index()
    }

    /// Records the peers whose messages arrived, at the tick that ends an election timeout. The
    /// raft crate then clears its own record.
    fn note_who_was_heard(&mut self) {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader || raft.election_elapsed + 1 < raft.election_timeout() {
            return;
        }
        let heard = raft.prs().iter().filter(|(_, progress)| progress.recent_active);
        self.heard_before = (raft.term, heard.map(|(&id, _)| id).collect());
    }

    fn is_active(&self, peer: PeerId, progress: &raft::Progress) -> bool {
        let (term, heard) = &self.heard_before;
        let was_heard = *term == self.raw.raft.term && heard.contains(&peer);
        peer == self.id || progress.recent_active || was_heard
    }

    /// Processes a message that has a valid form for this region. A relayed message is one that
    /// another store passed on.
    pub fn receive(&mut self, ctx: &mut Context, from: StoreId, mut message: Message, is_relayed: bool) {
        if self.is_taken || message.to != self.id {
            return;
        }
        if self.ignores(&message) {
            return self.state_commit(from, &message, &mut ctx.out);
        }
        match self.knows_sender(from, &message, &mut ctx.out) {
            Ok(true) => {}
            Ok(false) => return,
            Err(reason) => return self.drop_message(from, reason, &mut ctx.out),
        }
        if self.is_blank && !fits_blank(&message) || inspect::is_misjoined(&message) {
            return;
        }
        if let Err(reason) = inspect::inspect(&message, &self.stance()) {
            if reason == DropReason::CommitBeyondLog {
                self.missing_since = self.missing_since.max(Some(message.term));
            }
            return self.drop_message(from, reason, &mut ctx.out);
        }
        let kind = message.get_msg_type();
        let (sender, term, commit) = (message.from, message.term, message.commit);
        let is_about_sleep = Self::is_about_sleep(&message);
        // A hibernating leader handles the response to a heartbeat without waking.
        if !is_about_sleep && kind != MessageType::MsgHeartbeatResponse {
            self.wake(ctx);
        }
        let last = self.raw.raft.raft_log.last_index();
        match kind {
            // A quarantined peer's rows are preserved for inspection.
            MessageType::MsgSnapshot
                if self.applying.is_some()
                    || self.refuses_snapshots()
                    || !names_peer(ctx.config.store, &message) =>
            {
                return
            }
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                let held = self.stickiness.is_holding(ctx.now) && !is_transfer_vote(&message);
                if held || self.stickiness.is_restarting(ctx.now) || self.missing_since.is_some() {
                    return;
                }
                let is_coordinated = ctx.config.elections != Elections::ByTimeout;
                if is_coordinated && Failpoint::StaleEpochWins.is_on() {
                    message.log_term = Term::MAX;
                }
            }
            // The request to take over names the end of the log for which it is valid (see
            // `lease`).
            MessageType::MsgTimeoutNow => {
                let is_ready =
                    self.applying.is_none() && self.missing_since.is_none() && self.confined.is_none();
                let is_fit = is_ready && self.is_persisted() && !self.is_behind(&ctx.config);
                if self.stickiness.is_restarting(ctx.now)
                    || self.leaves_leading()
                    || !is_fit
                    || message.index != last
                {
                    return;
                }
            }
            MessageType::MsgHeartbeat | MessageType::MsgAppend | MessageType::MsgSnapshot
                if message.term >= self.raw.raft.term && !is_relayed =>
            {
                self.stickiness.heard_from_leader(ctx.now);
                self.heard_at = ctx.now;
                self.search.heard_from_leader();
            }
            _ => {}
        }
        self.hear_commit(ctx, &message);
        let is_doubled = Failpoint::ChainLosesEntry.is_on() && kind == MessageType::MsgAppendResponse;
        let doubled = is_doubled.then(|| message.clone());
        self.drive(ctx, |raw| {
            // Errors mean that the message came too late or too early to matter.
            let _ = raw.step(message);
        });
        if let Some(response) = doubled {
            self.acknowledge_for_next(ctx, response);
        }
        if is_about_sleep {
            self.consider_sleep(kind, sender, term, commit);
        }
        // A later leader has every committed entry. Once that leader's first entry is committed
        // here, this peer has them, too.
        let is_filled = |term| self.raw.raft.term > term && self.raw.raft.commit_to_current_term();
        if self.missing_since.is_some_and(is_filled) {
            self.missing_since = None;
        }
    }

    fn stance(&self) -> Stance {
        let raft = &self.raw.raft;
        Stance {
            term: raft.term,
            role: raft.state,
            leader: raft.leader_id,
            last: raft.raft_log.last_index(),
            is_persisted: self.is_persisted(),
        }
    }

    fn drop_message(&self, from: StoreId, reason: DropReason, out: &mut Outbox) {
        out.first.push(Action::Dropped { region: self.region, from, reason });
    }

    pub fn propose(&mut self, ctx: &mut Context, token: u64, payload: Bytes) {
        let can = self.can_propose();
        self.append_proposal(ctx, can, token, payload);
    }

    fn append_proposal(&mut self, ctx: &mut Context, can: Result<(), Refusal>, token: u64, payload: Bytes) {
        let refusal = can.err().or_else(|| {
            let mut proposed = false;
            self.drive(ctx, |raw| proposed = append_as_leader(raw, payload, Bytes::new()));
            (!proposed).then_some(Refusal::Backpressure)
        });
        match refusal {
            Some(reason) => ctx.out.first.push(Action::Refused { region: self.region, token, reason }),
            None => {
                let raft = &self.raw.raft;
                self.proposals.insert(raft.raft_log.last_index(), raft.term, token);
            }
        }
    }

    pub fn can_propose(&self) -> Result<(), Refusal> {
        self.can_change()?;
        if self.confined.is_some() {
            return Err(Refusal::Quarantined);
        }
        if self.is_sealed() {
            return Err(Refusal::Merging);
        }
        Ok(())
    }

    /// Returns the number of entries beyond the commit index.
    pub fn uncommitted(&self) -> u64 {
        let log = &self.raw.raft.raft_log;
        log.last_index().saturating_sub(log.committed)
    }

    fn can_change(&self) -> Result<(), Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeader { leader: self.leader() });
        }
        if self.raw.raft.lead_transferee.is_some() {
            return Err(Refusal::Transferring);
        }
        Ok(())
    }

    pub fn read_index(&mut self, ctx: &mut Context, token: u64, asked: Asked) {
        if self.is_leader() && self.descriptor.merging.is_none() && self.confined.is_none() {
            self.reads.push(token, asked, ctx.now);
        } else {
            let is_sealed = self.descriptor.merging.is_some();
            // Leadership of a sealed region does not prove that no other region has its slots.
            let leader = self.leader().filter(|_| !is_sealed);
            let reason = Refusal::NotLeader { leader };
            ctx.out.first.push(Action::Refused { region: self.region, token, reason });
        }
    }

    pub fn want_lease(&mut self, ctx: &mut Context) {
        if self.is_leader() {
            self.reads.want(ctx.now);
            if self.may_renew(ctx) {
                self.send_round(ctx);
            }
        }
    }

    pub fn transfer_leader(&mut self, ctx: &mut Context, to: StoreId) {
        let voters = self.raw.raft.prs().conf().voters();
        let target = self.descriptor.peer_on(to).map(|peer| peer.id).filter(|&id| voters.contains(id));
        let target = target.filter(|&id| self.is_leader() && self.transfer.is_none() && id != self.id);
        let Some(target) = target else {
            ctx.out.first.push(Action::TransferAborted { region: self.region, to });
            return;
        };
        self.transfer = Some(to);
        self.lease.fence(to, self.raw.raft.raft_log.last_index());
        if !Failpoint::LeaseInTransfer.is_on() {
            self.suspend_lease(ctx);
        }
        self.drive(ctx, |raw| raw.transfer_leader(target));
    }

    pub fn unreachable(&mut self, ctx: &mut Context, store: StoreId) -> bool {
        let peer = self.descriptor.peer_on(store).map(|peer| peer.id).filter(|_| self.is_leader());
        if let Some(peer) = peer {
            self.drive(ctx, |raw| raw.report_unreachable(peer));
            self.chain_broke_at(ctx, peer);
        }
        peer.is_some()
    }

    pub fn flushed(&mut self, ctx: &mut Context, index: LogIndex) {
        self.flushed = self.flushed.max(index);
        self.heal(&mut ctx.out);
        self.truncate(ctx);
    }

    pub fn truncate_hint(&mut self, ctx: &mut Context, index: LogIndex) {
        self.held_by_all_hint = self.held_by_all_hint.max(index);
        self.truncate(ctx);
    }

    pub fn forget(&mut self, token: u64) {
        self.proposals.forget(token);
        self.reads.forget(token);
    }

    pub fn status(&self, config: &Config, now: BootNanos) -> RegionStatus {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Leader if self.owes_leadership => Role::Candidate,
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        let progress = |(&id, progress): (&u64, &raft::Progress)| {
            let known = PeerProgress {
                matched: progress.matched,
                is_active: self.is_active(id, progress),
                needs_snapshot: progress.state == raft::ProgressState::Snapshot
                    || progress.next_idx < self.raw.store().first(),
            };
            Some((self.store_of(id)?, known))
        };
        let leads = role == Role::Leader;
        RegionStatus {
            term: raft.term,
            leader: self.leader().filter(|_| !self.owes_leadership),
            role,
            commit: raft.raft_log.committed,
            applied: raft.raft_log.applied,
            first: self.raw.store().first(),
            last: raft.raft_log.last_index(),
            peers: raft.prs().iter().filter(|_| leads).filter_map(progress).collect(),
            truncate_to: if leads { self.released(config) } else { 0 },
            lease: self.lease.until().filter(|&until| until > now),
            descriptor: self.descriptor.clone(),
            is_quarantined: self.confined.is_some(),
        }
    }

    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    fn drive(&mut self, ctx: &mut Context, call: impl FnOnce(&mut RawNode<LogView<L>>)) {
        call(&mut self.raw);
        let (before, after) = (self.seen, seen(&self.raw));
        if before != after {
            self.seen = after;
            self.draw_election_timeout(&ctx.config);
            let still_leads = after.role == StateRole::Leader && before.term == after.term;
            if before.role == StateRole::Leader && !still_leads {
                self.lose_leadership(&mut ctx.out);
            }
            if (before.term, before.leader) != (after.term, after.leader) {
                self.tell_leadership(&mut ctx.out);
            }
            if after.role == StateRole::Leader && !still_leads {
                // Any entry of an earlier leader may be a change.
                self.last_change = self.raw.raft.raft_log.last_index();
            }
        }
        self.raw.raft.set_randomized_election_timeout(self.election_timeout);
        if self.is_leader() && self.raw.raft.lead_transferee.is_none() {
            if let Some(to) = self.transfer.take() {
                self.suspend_lease(ctx);
                // The fence: once the target holds this entry, any earlier request to take over is
                // void.
                append_as_leader(&mut self.raw, Bytes::new(), Bytes::new());
                ctx.out.first.push(Action::TransferAborted { region: self.region, to });
            }
        }
    }

    fn lose_leadership(&mut self, out: &mut Outbox) {
        let region = self.region;
        if self.lease.reset() {
            out.first.push(Action::Lease { region, term: self.seen.term, until: None });
        }
        if let Some(to) = self.transfer.take() {
            out.first.push(Action::TransferDone { region, to });
        }
        let leader = self.leader();
        if Failpoint::RefuseWhatWasProposed.is_on() {
            let (reason, tokens) = (Refusal::NotLeader { leader }, self.proposals.take_all());
            self.refuse(out, reason, |_| tokens);
        }
        self.refuse(out, Refusal::NotLeader { leader }, Reads::take_all);
    }

    /// Ends the peer's leadership and proposals, because the peer is removed.
    pub fn retire(&mut self, out: &mut Outbox) {
        self.lose_leadership(out);
        self.end_search(out);
        let lost = self.proposals.take_all();
        self.lose(lost, out);
        let (region, term) = (self.region, self.seen.term);
        out.first.push(Action::Leadership { region, term, leader: None, is_self: false });
    }

    fn refuse(&mut self, out: &mut Outbox, reason: Refusal, take: impl FnOnce(&mut Reads) -> Vec<u64>) {
        let region = self.region;
        let tokens = take(&mut self.reads);
        out.first.extend(tokens.into_iter().map(|token| Action::Refused { region, token, reason }));
    }

    fn lose(&self, tokens: Vec<u64>, out: &mut Outbox) {
        let region = self.region;
        out.first.extend(tokens.into_iter().map(|token| Action::Lost { region, token }));
    }

    fn confirm_round(&mut self, context: &[u8], index: LogIndex, now: BootNanos) {
        let Some((term, number)) = context.split_at_checked(8) else { return };
        let Ok(number) = <[u8; 8]>::try_from(number).map(u64::from_be_bytes) else { return };
        if self.is_leader() && term == self.raw.raft.term.to_be_bytes() {
            if let Some(sent) = self.reads.confirm(number, index) {
                let late = Failpoint::LeaseFromConfirmation.is_on();
                self.lease.confirm(if late { now } else { sent });
            }
        }
    }

    /// Returns the least index of the snapshots in transit. Their receivers will need the entries
    /// after it.
    fn receiving(&self) -> Option<LogIndex> {
        let (raft, view) = (&self.raw.raft, self.raw.store());
        raft.prs()
            .iter()
            .filter(|(_, progress)| progress.state == raft::ProgressState::Snapshot)
            .map(|(_, progress)| progress.pending_snapshot)
            .chain(view.offered())
            .min()
    }

    /// Returns the index through which no peer needs entries from this leader.
    fn released(&self, config: &Config) -> LogIndex {
        let (raft, view) = (&self.raw.raft, self.raw.store());
        let slowest = raft.prs().iter().map(|(_, progress)| progress.matched).min().unwrap_or(0);
        let receiving = self.receiving();
        config.truncation.released(slowest, receiving, raft.raft_log.last_index(), view.entry_bytes())
    }

    fn truncate(&mut self, ctx: &mut Context) {
        let released = if self.is_leader() { self.released(&ctx.config) } else { 0 };
        let (raft, view) = (&self.raw.raft, self.raw.store());
        let log = LogUse {
            first: view.first(),
            flushed: if Failpoint::TruncatePastFlush.is_on() { raft.raft_log.applied } else { self.flushed },
            applied: raft.raft_log.applied,
            held_by_all: released.max(self.held_by_all_hint),
            entry_bytes: view.entry_bytes(),
        };
        if let Some(index) = ctx.config.truncation.decide(&log) {
            self.drop_through(index, &mut ctx.out);
        }
    }

    /// Drops all entries that neither a restart nor the receiver of a snapshot needs, because the
    /// store's log is too large. Requests no flush: a log full of unflushed entries already causes
    /// one, and a second one would flush a memtable too early.
    pub fn let_go(&mut self, out: &mut Outbox) {
        let applied = self.raw.raft.raft_log.applied;
        let index = self.flushed.min(applied).min(self.receiving().unwrap_or(LogIndex::MAX));
        self.drop_through(index, out);
    }

    fn drop_through(&mut self, index: LogIndex, out: &mut Outbox) {
        let view = self.raw.mut_store();
        if index < view.first() {
            return;
        }
        if let Some(term) = view.truncate(index) {
            out.later.push(Action::Truncate { region: self.region, index, term });
        }
    }
}

fn to_raft(HardState { term, vote, commit }: HardState) -> RaftHardState {
    RaftHardState { term, vote: vote.unwrap_or(0), commit, ..RaftHardState::default() }
}

fn seen<L: LogStore>(raw: &RawNode<LogView<L>>) -> Seen {
    Seen { term: raw.raft.term, role: raw.raft.state, leader: raw.raft.leader_id }
}

/// Returns true if a blank peer accepts the message. It accepts vote requests from candidates, and
/// heartbeats and a snapshot from a leader. It refuses an append from the very beginning of the
/// log, which would create a log without the rows with which the region was founded.
fn fits_blank(message: &Message) -> bool {
    match message.get_msg_type() {
        MessageType::MsgHeartbeat | MessageType::MsgSnapshot => true,
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => true,
        MessageType::MsgAppend => message.index > 0,
        _ => false,
    }
}

/// Returns true if a snapshot's descriptor lists its receiver as the peer on `store`. The snapshot
/// may have been made before that peer existed.
fn names_peer(store: StoreId, message: &Message) -> bool {
    let descriptor = RegionDescriptor::decode(message.get_snapshot().get_data());
    descriptor.is_ok_and(|descriptor| descriptor.peer_on(store).is_some_and(|peer| peer.id == message.to))
}

/// Appends an entry as the leader. Returns false if too many bytes are uncommitted; an empty entry
/// is always accepted.
fn append_as_leader<L: LogStore>(raw: &mut RawNode<LogView<L>>, payload: Bytes, context: Bytes) -> bool {
    let mut message = Message { from: raw.raft.id, ..Message::default() };
    message.set_msg_type(MessageType::MsgPropose);
    message.set_entries(vec![Entry { data: payload, context, ..Entry::default() }].into());
    raw.raft.step(message).is_ok()
}
