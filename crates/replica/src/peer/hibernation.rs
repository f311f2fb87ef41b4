//! Hibernation: a region in which nothing happens needs no ticks and no heartbeats.
//!
//! A leader that has been idle for a while, and whose peers all hold its whole log, offers sleep in
//! a heartbeat. A follower that has applied everything accepts at once and says so in its response.
//! The leader falls asleep when all have accepted. Any request or message for the region wakes its
//! peer. Heartbeats between stores detect a failed store for all of its regions together. When a
//! store falls silent, the worker wakes the peers of the regions that it led.
//!
//! Safety does not depend on hibernation: a peer that sleeps too long only leads, follows or
//! campaigns late. A sleeping leader has no lease. After it wakes, no lease begins before a full
//! stickiness period has passed.

use super::*;

/// Context that marks an offer of sleep in a heartbeat, and the acceptance in its response. The
/// contexts of read rounds are longer.
const OFFER: &[u8] = b"sleep";

impl<L: LogStore> Peer<L> {
    pub fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// Returns true if that store led the region when its last message arrived, or if no leader is
    /// known. Returns false on the leader.
    pub fn follows(&self, store: StoreId) -> bool {
        !self.is_leader() && self.leader().is_none_or(|leader| leader == store)
    }

    /// Wakes the peer and resets its idle count. Returns true if it was asleep.
    pub fn wake(&mut self, ctx: &mut Context) -> bool {
        self.quiet_ticks = 0;
        self.sleepers.clear();
        if !std::mem::take(&mut self.is_asleep) {
            return false;
        }
        // The peer got no ticks while it slept, so this time does not count as silence.
        self.heard_at = ctx.now;
        self.asked_at = ctx.now;
        if self.is_leader() {
            self.suspend_lease(ctx);
        }
        true
    }

    /// Announces the region to its leader before this peer campaigns against it. The announcement
    /// wakes a sleeping leader.
    pub fn wake_leader(&self, out: &mut Outbox) {
        if let Some(to) = self.leader().filter(|_| !self.is_leader()) {
            out.sends.push(Action::Announce { to, descriptor: self.descriptor.clone() });
        }
    }

    /// Offers sleep to idle followers, and falls asleep when all have accepted. Called at the end
    /// of a leader's tick.
    pub(super) fn hibernate(&mut self, ctx: &Context) {
        if ctx.config.hibernate_ticks == 0 || !self.is_leader() || !self.is_idle(ctx) {
            self.quiet_ticks = 0;
            self.sleepers.clear();
            return;
        }
        self.quiet_ticks = self.quiet_ticks.saturating_add(1);
        if self.quiet_ticks < ctx.config.hibernate_ticks {
            return;
        }
        let others: Vec<PeerId> =
            self.raw.raft.prs().iter().map(|(&id, _)| id).filter(|&id| id != self.id).collect();
        self.is_asleep = others.iter().all(|id| self.sleepers.contains(id));
        if self.is_asleep || self.ticks % ctx.config.heartbeat_ticks == 0 {
            // The offer follows the tick's other messages, because a plain heartbeat after it would
            // wake the followers. For the same reason, a leader that falls asleep repeats the offer
            // as its last message.
            for to in others {
                let mut offer = Message { from: self.id, to, term: self.raw.raft.term, ..Message::default() };
                offer.set_msg_type(MessageType::MsgHeartbeat);
                offer.commit = self.raw.raft.raft_log.committed;
                offer.context = OFFER.into();
                self.raw.raft.msgs.push(offer);
            }
        }
    }

    fn is_idle(&self, ctx: &Context) -> bool {
        let raft = &self.raw.raft;
        let last = raft.raft_log.last_index();
        raft.raft_log.applied == last
            && raft.prs().iter().all(|(_, progress)| progress.matched == last)
            && raft.apply_to_current_term()
            && !self.descriptor.is_joint()
            && self.descriptor.merging.is_none()
            && self.transfer.is_none()
            && !self.making
            && self.in_flight.is_none()
            && !self.unsaved.is_urgent
            && self.lease.until().is_none_or(|until| until <= ctx.now)
            && !self.reads.is_wanted(ctx.now, ctx.config.lease_demand_nanos)
    }

    /// Returns true if a message is an offer of sleep or its acceptance, which needs no other
    /// action.
    pub(super) fn is_about_sleep(message: &Message) -> bool {
        message.get_context() == OFFER
    }

    /// Handles an offer of sleep or its acceptance after the consensus code has processed the
    /// message.
    pub(super) fn consider_sleep(
        &mut self,
        message_type: MessageType,
        from: PeerId,
        term: Term,
        commit: LogIndex,
    ) {
        let raft = &self.raw.raft;
        match message_type {
            MessageType::MsgHeartbeat => {
                let last = raft.raft_log.last_index();
                let is_level =
                    commit == last && raft.raft_log.applied == last && raft.raft_log.committed == last;
                let follows =
                    raft.state == StateRole::Follower && raft.term == term && raft.leader_id == from;
                self.is_asleep = is_level && follows && self.applying.is_none() && !self.unsaved.is_urgent;
            }
            MessageType::MsgHeartbeatResponse if self.is_leader() && raft.term == term => {
                self.sleepers.insert(from);
            }
            _ => {}
        }
    }
}
