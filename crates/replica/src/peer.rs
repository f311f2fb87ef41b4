//! One region's peer on this store: the consensus code and what is wrapped around it.
//!
//! Every call into the consensus code goes through `drive`, which notices a change of term, role or
//! leader afterwards and overrides the election timeout that the library drew from the thread's own
//! randomness with one derived from (seed, store, region, term, attempt).

use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, HardState as RaftHardState, Message, MessageType};
use raft::{RawNode, StateRole};
use types::{BootNanos, LogIndex, RegionId, StoreId, Term};

use crate::action::{Action, Committed, Fatal, PeerSeed, Refusal, RegionStatus, RegionWrite, Role};
use crate::config::Config;
use crate::lease::Lease;
use crate::log_store::{HardState, LogStore};
use crate::log_view::LogView;
use crate::message::{is_admissible, is_transfer_vote, lane, raft_id, store_of};
use crate::proposals::Proposals;
use crate::reads::Reads;
use crate::truncation::LogUse;
use crate::unsaved::{InFlight, Unsaved};
use crate::vote_hold::VoteHold;

/// A turn's actions, by when they must happen.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Ends of leases, news and refusals: before anything leaves the store.
    pub first: Vec<Action>,
    pub sends: Vec<Action>,
    pub later: Vec<Action>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    term: Term,
    role: StateRole,
    leader: u64,
}

pub(crate) struct Peer<L: LogStore> {
    region: RegionId,
    raw: RawNode<LogView<L>>,
    seen: Seen,
    /// Term and vote as last handed to the log.
    given_vote: (Term, u64),
    election_timeout: usize,
    /// Election timeouts drawn so far.
    attempt: u64,
    hold: VoteHold,
    proposals: Proposals,
    reads: Reads,
    lease: Lease,
    transfer: Option<StoreId>,
    pub unsaved: Unsaved,
    in_flight: Option<InFlight>,
    /// Handed out to be applied.
    handed: LogIndex,
    flushed: LogIndex,
    held_by_all_hint: LogIndex,
}

impl<L: LogStore> Peer<L> {
    pub fn open(
        config: &Config,
        log: &L,
        seed: PeerSeed,
        logger: &slog::Logger,
        now: BootNanos,
    ) -> Result<Peer<L>, Fatal> {
        let region = seed.descriptor.id;
        let (applied, applied_term) = seed.applied;
        if !seed.descriptor.voters().any(|store| store == config.store) {
            return Err(Fatal::NotAPeer { region });
        }
        let voters: Vec<u64> = seed.descriptor.voters().map(raft_id).collect();
        let is_alone = voters.len() == 1;
        let bounds = log.bounds(region)?;
        let saved = log.hard_state(region)?;
        let state = saved.unwrap_or_default();
        if bounds.first > applied + 1 {
            return Err(Fatal::Gap { region, first: bounds.first, applied });
        }
        // A commit index is written with or after the entries that it covers.
        let needed = applied.max(state.commit);
        if bounds.last < needed {
            return Err(Fatal::LostTail { region, last: bounds.last, needed });
        }
        let hard_state = RaftHardState {
            term: state.term,
            vote: state.vote.map_or(0, raft_id),
            commit: needed,
            ..RaftHardState::default()
        };
        let view = LogView::open(log.clone(), region, hard_state, voters, config.entry_cache_bytes)?;
        let in_log = view.term_if_held(applied);
        if let Some(error) = view.take_failure() {
            return Err(Fatal::Log(error));
        }
        if in_log != Some(applied_term) {
            let in_log = in_log.unwrap_or(0);
            return Err(Fatal::Diverged { region, index: applied, in_log, in_engine: applied_term });
        }
        let settings = raft::Config {
            id: raft_id(config.store),
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
        let raw = RawNode::new(&settings, view, logger)
            .map_err(|error| Fatal::Consensus { region, reason: error.to_string() })?;
        let is_new = state.term == 0 && bounds.last == 0;
        let restarted_at = (!is_alone && !is_new).then_some(now);
        let seen = seen(&raw);
        let mut peer = Peer {
            region,
            raw,
            seen,
            given_vote: (state.term, state.vote.map_or(0, raft_id)),
            election_timeout: 0,
            attempt: 0,
            hold: VoteHold::new(config.vote_hold_nanos(), restarted_at),
            proposals: Proposals::default(),
            reads: Reads::default(),
            lease: Lease::default(),
            transfer: None,
            unsaved: Unsaved::default(),
            in_flight: None,
            handed: applied,
            // What the engine shows after opening is what it has durably: it keeps no log of its own.
            flushed: applied,
            held_by_all_hint: 0,
        };
        peer.draw_election_timeout(config);
        Ok(peer)
    }

    /// The only voter of a region need not wait for a silence that nobody could break.
    pub fn campaign_if_alone(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) {
        if self.raw.raft.prs().conf().voters().ids().len() == 1 {
            self.drive(config, now, out, |raw| {
                let _ = raw.campaign();
            });
        }
    }

    pub fn tick(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) -> bool {
        let raft = &self.raw.raft;
        let would_stand = raft.state != StateRole::Leader
            && raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        if !(would_stand && self.hold.is_holding(now)) {
            self.drive(config, now, out, |raw| {
                raw.tick();
            });
            if would_stand {
                self.draw_election_timeout(config);
            }
        }
        let limit = now.saturating_sub(2 * config.election_nanos());
        self.refuse(out, Refusal::Unproven, |reads| reads.take_older(limit));
        if self.is_leader() {
            self.settle_lease(config, now, out);
            if self.may_renew(config, now) {
                self.send_round(config, now, out);
            }
        }
        self.truncate(config, out);
        self.raw.has_ready()
    }

    /// `Err`: this store's own log proves that it lost what it once acknowledged.
    pub fn receive(
        &mut self,
        config: &Config,
        from: StoreId,
        message: Message,
        now: BootNanos,
        out: &mut Outbox,
    ) -> Result<(), Fatal> {
        let raft = &self.raw.raft;
        if !is_admissible(&message, from, config.store) || raft.prs().get(message.from).is_none() {
            return Ok(());
        }
        let last = raft.raft_log.last_index();
        match message.get_msg_type() {
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                let held = self.hold.is_holding(now) && !is_transfer_vote(&message);
                if held || self.hold.is_restarting(now) {
                    return Ok(());
                }
            }
            // The word to take over names the log's end for which it was meant (see `lease`).
            MessageType::MsgTimeoutNow if self.hold.is_restarting(now) || message.index != last => {
                return Ok(())
            }
            MessageType::MsgHeartbeat if message.term >= raft.term => {
                if message.commit > last {
                    return Err(Fatal::LostTail { region: self.region, last, needed: message.commit });
                }
                self.hold.heard_from_leader(now);
            }
            MessageType::MsgAppend if message.term >= raft.term => self.hold.heard_from_leader(now),
            _ => {}
        }
        self.drive(config, now, out, |raw| {
            // Errors are messages that came too late or too early to mean anything.
            let _ = raw.step(message);
        });
        Ok(())
    }

    pub fn propose(&mut self, config: &Config, token: u64, payload: Bytes, now: BootNanos, out: &mut Outbox) {
        let refusal = self.can_propose().err().or_else(|| {
            let mut proposed = false;
            self.drive(config, now, out, |raw| proposed = append_as_leader(raw, payload));
            (!proposed).then_some(Refusal::Backpressure)
        });
        match refusal {
            Some(reason) => out.first.push(Action::Refused { region: self.region, token, reason }),
            None => {
                let raft = &self.raw.raft;
                self.proposals.insert(raft.raft_log.last_index(), raft.term, token);
            }
        }
    }

    pub fn can_propose(&self) -> Result<(), Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeader { leader: store_of(self.raw.raft.leader_id) });
        }
        if self.raw.raft.lead_transferee.is_some() {
            return Err(Refusal::Transferring);
        }
        Ok(())
    }

    pub fn read_index(&mut self, token: u64, now: BootNanos, out: &mut Outbox) {
        if self.is_leader() {
            self.reads.push(token, now);
        } else {
            let reason = Refusal::NotLeader { leader: store_of(self.raw.raft.leader_id) };
            out.first.push(Action::Refused { region: self.region, token, reason });
        }
    }

    pub fn want_lease(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) {
        if self.is_leader() {
            self.reads.want(now);
            if self.may_renew(config, now) {
                self.send_round(config, now, out);
            }
        }
    }

    pub fn transfer_leader(&mut self, config: &Config, to: StoreId, now: BootNanos, out: &mut Outbox) {
        let is_voter = to != u64::MAX && self.raw.raft.prs().conf().voters().contains(raft_id(to));
        if !self.is_leader() || self.transfer.is_some() || to == config.store || !is_voter {
            out.first.push(Action::TransferAborted { region: self.region, to });
            return;
        }
        self.transfer = Some(to);
        self.lease.fence(to, self.raw.raft.raft_log.last_index());
        self.suspend_lease(config, now, out);
        self.drive(config, now, out, |raw| raw.transfer_leader(raft_id(to)));
    }

    pub fn unreachable(&mut self, config: &Config, store: StoreId, now: BootNanos, out: &mut Outbox) -> bool {
        let affected =
            self.is_leader() && store != u64::MAX && self.raw.raft.prs().get(raft_id(store)).is_some();
        if affected {
            self.drive(config, now, out, |raw| raw.report_unreachable(raft_id(store)));
        }
        affected
    }

    pub fn applied(&mut self, config: &Config, index: LogIndex, now: BootNanos, out: &mut Outbox) {
        assert!(index <= self.handed, "region {}: applied {index} was never handed out", self.region);
        if index <= self.raw.raft.raft_log.applied {
            return;
        }
        self.drive(config, now, out, |raw| raw.advance_apply_to(index));
        let region = self.region;
        let ready = self.reads.take_ready(index);
        out.later.extend(ready.into_iter().map(|token| Action::ReadReady { region, token }));
        if self.is_leader() {
            self.settle_lease(config, now, out);
        }
    }

    pub fn flushed(&mut self, config: &Config, index: LogIndex, out: &mut Outbox) {
        self.flushed = self.flushed.max(index);
        self.truncate(config, out);
    }

    pub fn truncate_hint(&mut self, config: &Config, index: LogIndex, out: &mut Outbox) {
        self.held_by_all_hint = self.held_by_all_hint.max(index);
        self.truncate(config, out);
    }

    pub fn forget(&mut self, token: u64) {
        self.proposals.forget(token);
        self.reads.forget(token);
    }

    /// Takes what the consensus code has ready. Anything for the log gathers in `unsaved`.
    pub fn turn(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) -> Result<bool, Fatal> {
        if self.is_leader() && self.reads.needs_round() {
            self.send_round(config, now, out);
        }
        if self.raw.has_ready() {
            self.take_ready(config, now, out)?;
        }
        if let Some(error) = self.raw.store().take_failure() {
            return Err(Fatal::Log(error));
        }
        Ok(self.raw.has_ready())
    }

    fn take_ready(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) -> Result<(), Fatal> {
        let mut ready = self.raw.ready();
        if !ready.snapshot().is_empty() {
            return Err(Fatal::Consensus { region: self.region, reason: "a snapshot out of nowhere".into() });
        }
        let number = ready.number();
        self.send(ready.take_messages(), out);

        let entries = ready.take_entries();
        if let Some(head) = entries.first().map(|entry| entry.index) {
            let view = self.raw.mut_store();
            view.append(&entries);
            let lost = self.proposals.replaced(head, |index| view.term_if_held(index));
            self.lose(lost, out);
            self.unsaved.append(entries);
        }
        if let Some(state) = ready.hs() {
            self.unsaved.hard_state =
                Some(HardState { term: state.term, vote: store_of(state.vote), commit: state.commit });
            let is_vote = self.given_vote != (state.term, state.vote);
            self.given_vote = (state.term, state.vote);
            self.unsaved.must_sync |= is_vote;
            self.unsaved.is_urgent |= is_vote;
        }

        let vouching = ready.take_persisted_messages();
        let region = self.region;
        for state in ready.take_read_states() {
            self.confirm_round(&state.request_ctx, state.index);
        }
        let committed = ready.take_committed_entries();
        self.raw.advance_append_async(ready);

        if self.unsaved.is_urgent {
            self.unsaved.ready = number;
            self.unsaved.messages.extend(vouching);
        } else if let Some(in_flight) = &mut self.in_flight {
            in_flight.ready = number;
            in_flight.messages.extend(vouching);
        } else {
            self.drive(config, now, out, |raw| raw.on_persist_ready(number));
            self.send(vouching, out);
        }
        if let Some(last) = committed.last() {
            self.handed = last.index;
            let entries = committed.into_iter().map(|entry| self.commit(entry, out)).collect();
            out.later.push(Action::Apply { region, entries });
        }
        if self.is_leader() {
            let ready = self.reads.take_ready(self.raw.raft.raft_log.applied);
            out.later.extend(ready.into_iter().map(|token| Action::ReadReady { region, token }));
            self.settle_lease(config, now, out);
        }
        Ok(())
    }

    fn commit(&mut self, entry: Entry, out: &mut Outbox) -> Committed {
        let (index, term) = (entry.index, entry.term);
        let token = self.proposals.applied(index, term).unwrap_or_else(|lost| {
            self.lose(vec![lost], out);
            None
        });
        // Membership is static: an entry that would change it is not ours and changes nothing.
        let is_normal = entry.get_entry_type() == EntryType::EntryNormal;
        Committed { index, term, payload: if is_normal { entry.data } else { Bytes::new() }, token }
    }

    /// Hands what gathered to a batch that is being cut.
    pub fn take_unsaved(&mut self) -> (RegionWrite, bool) {
        assert!(self.in_flight.is_none(), "one batch at a time");
        let unsaved = std::mem::take(&mut self.unsaved);
        self.in_flight = Some(InFlight {
            ready: unsaved.ready,
            last: unsaved.entries.last().map(|entry| (entry.index, entry.term)),
            messages: unsaved.messages,
        });
        let Unsaved { entries, hard_state, must_sync, .. } = unsaved;
        (RegionWrite { region: self.region, entries, hard_state }, must_sync)
    }

    pub fn persisted(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) {
        let Some(InFlight { ready, last, messages }) = self.in_flight.take() else { return };
        if let Some((index, term)) = last {
            self.raw.mut_store().persisted(index, term);
        }
        if ready > 0 {
            self.drive(config, now, out, |raw| raw.on_persist_ready(ready));
        }
        self.send(messages, out);
    }

    pub fn status(&self, now: BootNanos) -> RegionStatus {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        let peers = raft.prs().iter().filter(|_| role == Role::Leader);
        RegionStatus {
            term: raft.term,
            leader: store_of(raft.leader_id),
            role,
            commit: raft.raft_log.committed,
            applied: raft.raft_log.applied,
            first: self.raw.store().first(),
            last: raft.raft_log.last_index(),
            matched: peers.filter_map(|(&id, progress)| Some((store_of(id)?, progress.matched))).collect(),
            lease: self.lease.until().filter(|&until| until > now),
        }
    }

    pub fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    fn drive(
        &mut self,
        config: &Config,
        now: BootNanos,
        out: &mut Outbox,
        call: impl FnOnce(&mut RawNode<LogView<L>>),
    ) {
        call(&mut self.raw);
        let (before, after) = (self.seen, seen(&self.raw));
        if before != after {
            self.seen = after;
            self.draw_election_timeout(config);
            let still_leads = after.role == StateRole::Leader && before.term == after.term;
            if before.role == StateRole::Leader && !still_leads {
                self.lose_leadership(out);
            }
            if (before.term, before.leader) != (after.term, after.leader) {
                out.first.push(Action::Leadership {
                    region: self.region,
                    term: after.term,
                    leader: store_of(after.leader),
                    is_self: after.role == StateRole::Leader,
                });
            }
        }
        self.raw.raft.set_randomized_election_timeout(self.election_timeout);
        if self.is_leader() && self.raw.raft.lead_transferee.is_none() {
            if let Some(to) = self.transfer.take() {
                self.suspend_lease(config, now, out);
                // The fence: whatever was sent to the target is void once it holds this entry.
                append_as_leader(&mut self.raw, Bytes::new());
                out.first.push(Action::TransferAborted { region: self.region, to });
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
        let leader = store_of(self.raw.raft.leader_id);
        self.refuse(out, Refusal::NotLeader { leader }, Reads::take_all);
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

    fn send(&self, messages: Vec<Message>, out: &mut Outbox) {
        for mut message in messages {
            let Some(to) = store_of(message.to) else { continue };
            if message.get_msg_type() == MessageType::MsgTimeoutNow {
                match self.lease.fence_of(to) {
                    Some(index) => message.index = index,
                    // The leadership was lost since: nothing is to be handed over.
                    None => continue,
                }
            }
            out.sends.push(Action::Send { to, region: self.region, lane: lane(&message), message });
        }
    }

    /// Until the leader has committed an entry of its own term, the library drops a round without a word:
    /// the reads wait here instead.
    fn send_round(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) {
        if self.raw.raft.commit_to_current_term() {
            let mut context = self.raw.raft.term.to_be_bytes().to_vec();
            context.extend(self.reads.open_round(now).to_be_bytes());
            self.drive(config, now, out, |raw| raw.read_index(context));
        }
    }

    fn confirm_round(&mut self, context: &[u8], index: LogIndex) {
        let Some((term, number)) = context.split_at_checked(8) else { return };
        let Ok(number) = <[u8; 8]>::try_from(number).map(u64::from_be_bytes) else { return };
        if self.is_leader() && term == self.raw.raft.term.to_be_bytes() {
            if let Some(sent) = self.reads.confirm(number, index) {
                self.lease.confirm(sent);
            }
        }
    }

    fn may_renew(&self, config: &Config, now: BootNanos) -> bool {
        self.reads.is_wanted(now, config.lease_demand_nanos)
            && self.reads.is_stale(now, config.lease_nanos / 2)
            && !self.lease.is_suspended(now)
    }

    fn suspend_lease(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) {
        if self.lease.suspend(now.saturating_add(config.election_nanos())) {
            out.first.push(Action::Lease { region: self.region, term: self.seen.term, until: None });
        }
    }

    fn settle_lease(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) {
        let raft = &self.raw.raft;
        if self.transfer.is_none() {
            self.lease
                .clear_fences(|store| raft.prs().get(raft_id(store)).map_or(0, |progress| progress.matched));
        }
        if raft.apply_to_current_term() {
            if let Some(until) = self.lease.extend(config.lease_nanos, now) {
                out.later.push(Action::Lease { region: self.region, term: raft.term, until: Some(until) });
            }
        }
    }

    fn truncate(&mut self, config: &Config, out: &mut Outbox) {
        let (raft, view) = (&self.raw.raft, self.raw.store());
        let matched = raft.prs().iter().map(|(_, progress)| progress.matched).min().unwrap_or(0);
        let held = if self.is_leader() { matched.max(self.held_by_all_hint) } else { self.held_by_all_hint };
        let log = LogUse {
            first: view.first(),
            flushed: self.flushed,
            applied: raft.raft_log.applied,
            held_by_all: held,
            entry_bytes: view.entry_bytes(),
        };
        let Some(index) = config.truncation.decide(&log) else { return };
        if let Some(term) = self.raw.mut_store().truncate(index) {
            out.later.push(Action::Truncate { region: self.region, index, term });
        }
    }

    fn draw_election_timeout(&mut self, config: &Config) {
        self.attempt += 1;
        let parts = [config.store, self.region, self.seen.term, self.attempt];
        let drawn = parts.iter().fold(mix(config.seed), |hash, &part| mix(hash ^ part));
        let ticks = u64::from(config.election_ticks);
        self.election_timeout = (ticks + drawn % ticks) as usize;
        self.raw.raft.set_randomized_election_timeout(self.election_timeout);
    }
}

fn seen<L: LogStore>(raw: &RawNode<LogView<L>>) -> Seen {
    Seen { term: raw.raft.term, role: raw.raft.state, leader: raw.raft.leader_id }
}

/// False if too many bytes wait to be committed; an empty entry is always taken.
fn append_as_leader<L: LogStore>(raw: &mut RawNode<LogView<L>>, payload: Bytes) -> bool {
    let mut message = Message { from: raw.raft.id, ..Message::default() };
    message.set_msg_type(MessageType::MsgPropose);
    message.set_entries(vec![Entry { data: payload, ..Entry::default() }].into());
    raw.raft.step(message).is_ok()
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
