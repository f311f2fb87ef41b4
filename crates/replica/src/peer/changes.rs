//! Changes of the region itself: its peers, splits and merges.
//!
//! A change is proposed for one epoch, and one change at a time, by a leader that has applied all
//! earlier changes. So its effect on the descriptor is known when it is committed. The consensus
//! code is told of the change when it is applied.

use super::*;
use crate::change_entry;
use crate::conf::conf_change_of;
use crate::failpoints::Failpoint;
use raft::eraftpb::ConfChangeType;
use types::{PeerChange, PeerRole, RegionChange, RegionEpoch};

/// Interval, in election timeouts, at which a peer without a leader asks the others whether it is
/// still a member.
const ASK_AFTER_ELECTIONS: u64 = 8;

impl<L: LogStore> Peer<L> {
    pub fn applied(&mut self, ctx: &mut Context, index: LogIndex) {
        assert!(index <= self.handed, "region {}: applied {index} was never handed out", self.region);
        if index <= self.raw.raft.raft_log.applied {
            return;
        }
        let is_recovered = self.apply_changes(ctx, index);
        self.drive(ctx, |raw| raw.advance_apply_to(index));
        if is_recovered {
            self.campaign_if_alone(ctx);
        }
        let region = self.region;
        let ready = self.reads.take_ready(index);
        ctx.out.later.extend(ready.into_iter().map(|token| Action::ReadReady { region, token }));
        if self.is_leader() {
            self.settle_lease(ctx);
            self.leave_joint(ctx);
        }
    }

    /// Reports the changes through `index` to the consensus code, and reports created and removed
    /// peers to the worker. Returns true if one of the changes recovered the region.
    fn apply_changes(&mut self, ctx: &mut Context, index: LogIndex) -> bool {
        let mut is_recovered = false;
        while self.pending_changes.front().is_some_and(|pending| pending.index <= index) {
            let Some(pending) = self.pending_changes.pop_front() else { break };
            let PendingChange { index: at, conf_changes, changed, recovers } = pending;
            is_recovered |= recovers;
            let before = std::mem::replace(&mut self.descriptor, changed.region);
            for conf_change in conf_changes.into_iter().filter(|change| !loses(change)) {
                self.drive(ctx, |raw| {
                    raw.apply_conf_change(&conf_change).expect("the library allows what the descriptor does");
                });
            }
            let votes = self.descriptor.peer(self.id).is_some_and(|peer| peer.role != PeerRole::Learner);
            if self.is_leader() && !votes {
                // This peer became leader by a transfer after its own demotion was proposed. The
                // library would continue to lead.
                self.drive(ctx, |raw| {
                    let term = raw.raft.term;
                    raw.raft.become_follower(term, 0);
                });
            }
            self.strangers.retain(|_, id| *id >= self.descriptor.next_peer);
            if let Some(descriptor) = changed.split_off {
                let led = self.is_leader();
                self.last_split = at;
                ctx.out.later.push(Action::FlushSoon);
                ctx.out.turnover.push(Turnover::Born { descriptor, parent: self.region, at, led });
            }
            if let Some(source) = changed.absorbed {
                ctx.out.turnover.push(Turnover::Absorbed { source });
            }
            if self.descriptor.merging.is_some() {
                self.refuse(&mut ctx.out, Refusal::NotLeader { leader: None }, Reads::take_all);
            }
            if self.is_leader() {
                // A removed peer receives no further entries, so an announcement informs it.
                let removed = before.peers.iter().filter(|peer| self.descriptor.peer(peer.id).is_none());
                for peer in removed {
                    let descriptor = self.descriptor.clone();
                    ctx.out.sends.push(Action::Announce { to: peer.store, descriptor });
                }
            }
            if self.descriptor.peer(self.id).is_none() {
                ctx.out.turnover.push(Turnover::Gone { descriptor: self.descriptor.clone() });
            }
        }
        is_recovered
    }

    pub fn change_region(
        &mut self,
        ctx: &mut Context,
        token: u64,
        expect: RegionEpoch,
        change: RegionChange,
    ) {
        match self.propose_change(ctx, expect, &change) {
            Ok(index) => self.proposals.insert(index, self.raw.raft.term, token),
            Err(reason) => ctx.out.first.push(Action::Refused { region: self.region, token, reason }),
        }
    }

    fn propose_change(
        &mut self,
        ctx: &mut Context,
        expect: RegionEpoch,
        change: &RegionChange,
    ) -> Result<LogIndex, Refusal> {
        self.can_change()?;
        if self.confined.is_some() {
            return Err(Refusal::Quarantined);
        }
        let epoch = self.descriptor.epoch;
        if self.raw.raft.raft_log.applied < self.last_change || self.raw.raft.has_pending_conf() {
            return Err(Refusal::Changing);
        }
        if expect != epoch && !Failpoint::EpochIgnored.is_on() {
            return Err(Refusal::StaleEpoch { epoch });
        }
        let after = self.descriptor.after(change).map_err(Refusal::Invalid)?.region;
        self.check_peers(&ctx.config, change)?;
        self.check_merge(change)?;
        let context = change_entry::encode(expect, change);
        let conf_change = conf_change_of(change, &self.descriptor, &after);
        if matches!(change, RegionChange::Split { .. } | RegionChange::PrepareMerge { .. }) {
            // The lease ends before any other peer can see the change.
            self.lease_needs = self.raw.raft.raft_log.last_index() + 1;
            self.suspend_lease(ctx);
        }
        let mut proposed = false;
        self.drive(ctx, |raw| {
            proposed = match conf_change {
                Some(conf_change) => raw.propose_conf_change(context.to_vec(), conf_change).is_ok(),
                None => append_as_leader(raw, Bytes::new(), context),
            };
        });
        if !proposed {
            return Err(Refusal::Backpressure);
        }
        self.last_change = self.raw.raft.raft_log.last_index();
        if matches!(change, RegionChange::PrepareMerge { .. }) {
            self.sealing = self.last_change;
        }
        Ok(self.last_change)
    }

    /// Refuses changes that the descriptor allows but that could cost the region its quorum.
    fn check_peers(&self, config: &Config, change: &RegionChange) -> Result<(), Refusal> {
        let RegionChange::Peers(changes) = change else { return Ok(()) };
        for change in changes {
            match *change {
                PeerChange::Demote(store) | PeerChange::Remove(store) if store == config.store => {
                    return Err(Refusal::IsLeader);
                }
                PeerChange::Promote(store) if !self.has_caught_up(store) => {
                    return Err(Refusal::Behind { store });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns true if the peer on `store` needs no snapshot and holds the first entry of the
    /// leader's log. A voter that lags further would weaken every quorum that it is part of. A
    /// voter without the beginning of the log cannot even vote.
    pub(super) fn has_caught_up(&self, store: StoreId) -> bool {
        let raft = &self.raw.raft;
        let progress = self.descriptor.peer_on(store).and_then(|peer| raft.prs().get(peer.id));
        progress.is_some_and(|progress| {
            progress.state != raft::ProgressState::Snapshot && progress.matched >= self.raw.store().first()
        })
    }

    /// Leaves a joint configuration once it is applied, because it needs two majorities for every
    /// decision.
    pub(super) fn leave_joint(&mut self, ctx: &mut Context) {
        if self.is_leader() && self.descriptor.is_joint() {
            // A refusal is temporary: the next heartbeat tick tries again.
            let _ = self.propose_change(ctx, self.descriptor.epoch, &RegionChange::LeaveJoint);
        }
    }

    /// Announces the region to peers that hold none of its log. Their stores do not respond until
    /// they know that they have a peer.
    pub(super) fn announce_to_newcomers(&mut self, out: &mut Outbox) {
        if !self.is_leader() {
            return;
        }
        for (&id, progress) in self.raw.raft.prs().iter() {
            if progress.matched == 0 && id != self.id {
                if let Some(to) = self.store_of(id) {
                    out.sends.push(Action::Announce { to, descriptor: self.descriptor.clone() });
                }
            }
        }
    }

    /// Announces the region to its other voters before a campaign. A store that received the
    /// parent's snapshot from after a split has no peer of the split-off region, so it could not
    /// vote.
    pub(super) fn announce_to_voters(&self, out: &mut Outbox) {
        for peer in self.descriptor.peers.iter().filter(|peer| peer.id != self.id) {
            if self.raw.raft.prs().conf().voters().contains(peer.id) {
                out.sends.push(Action::Announce { to: peer.store, descriptor: self.descriptor.clone() });
            }
        }
    }

    /// Asks the other peers whether this peer is still a member, if no leader has contacted it for
    /// a long time. A peer that was removed while it was unreachable is in this state. A store that
    /// knows a newer descriptor answers.
    pub(super) fn ask_whether_member(&mut self, ctx: &mut Context) {
        let patience = ASK_AFTER_ELECTIONS * ctx.config.election_nanos();
        let silent_since = self.heard_at.max(self.asked_at);
        if self.is_leader() || ctx.now < silent_since.saturating_add(patience) {
            return;
        }
        self.asked_at = ctx.now;
        for peer in self.descriptor.peers.iter().filter(|peer| peer.id != self.id) {
            ctx.out.sends.push(Action::Announce { to: peer.store, descriptor: self.descriptor.clone() });
        }
    }

    /// Handles another store's descriptor of this region, which does not prove the end of this
    /// peer.
    pub fn hear_descriptor(&mut self, from: StoreId, theirs: RegionDescriptor, out: &mut Outbox) {
        let ours = &self.descriptor;
        let place = |descriptor: &RegionDescriptor| descriptor.peer(self.id).map(|peer| peer.store);
        if self.is_blank && theirs.epoch.is_newer_than(ours.epoch) && place(&theirs) == place(ours) {
            self.descriptor = theirs;
            return;
        }
        let they_are_gone = !self.is_blank && ours.peer_on(from).is_none();
        if ours.epoch.conf_version > theirs.epoch.conf_version && they_are_gone {
            out.sends.push(Action::Announce { to: from, descriptor: ours.clone() });
        }
    }

    /// Returns whether a message's sender is, or may have become, a peer of the region on that
    /// store. A sender that was removed gets an announcement.
    pub(super) fn knows_sender(
        &mut self,
        from: StoreId,
        message: &Message,
        out: &mut Outbox,
    ) -> Result<bool, DropReason> {
        let sender = message.from;
        if let Some(peer) = self.descriptor.peer(sender) {
            return if peer.store == from { Ok(true) } else { Err(DropReason::Sender) };
        }
        if self.is_blank || sender >= self.descriptor.next_peer {
            if self.strangers.iter().any(|(store, id)| *id == sender && *store != from) {
                return Err(DropReason::Sender);
            }
            // A store has at most one peer of the region at a time, and a later peer has a higher
            // number.
            let latest = self.strangers.entry(from).or_insert(sender);
            *latest = sender.max(*latest);
            return Ok(*latest == sender);
        }
        out.sends.push(Action::Announce { to: from, descriptor: self.descriptor.clone() });
        Ok(false)
    }
}

/// Returns whether a failpoint hides a change from the consensus code. It hides one that makes a
/// learner a voter.
fn loses(change: &ConfChangeV2) -> bool {
    let gives = |kind| change.get_changes().len() == 1 && change.get_changes()[0].get_change_type() == kind;
    Failpoint::PromotionLost.is_on() && gives(ConfChangeType::AddNode)
}
