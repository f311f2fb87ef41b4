//! Regions in which nothing happens sleep: no ticks, no heartbeats, no cost.
//!
//! A leader that has been idle for a while, with every peer level, offers sleep in a heartbeat. A follower that
//! is level takes it at once and says so; the leader sleeps when all have. Whatever is asked or sent of the
//! region wakes its peer. That the leader's store is alive is judged for all of its regions together, by what
//! stores tell each other, and when it falls silent the worker wakes what it led.
//!
//! Safety does not rest on any of this: a peer that sleeps too long only leads, follows or stands late. A
//! sleeping leader has no lease, and none begins before a full hold after it woke.

use super::*;

/// The mark of an offer, in a heartbeat's context and in that of its answer. Rounds of reads have longer ones.
const OFFER: &[u8] = b"sleep";

impl<L: LogStore> Peer<L> {
    pub fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// Whether that store led the region when it was last heard of, or nobody is known to.
    pub fn follows(&self, store: StoreId) -> bool {
        !self.is_leader() && self.leader().is_none_or(|leader| leader == store)
    }

    /// Something happens: the next tick counts again. True if it slept.
    pub fn wake(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) -> bool {
        self.quiet_ticks = 0;
        self.sleepers.clear();
        if !std::mem::take(&mut self.is_asleep) {
            return false;
        }
        // Time has passed that no tick told of: who is late, and who only slept?
        self.heard_at = now;
        self.asked_at = now;
        if self.is_leader() {
            self.suspend_lease(config, now, out);
        }
        true
    }

    /// Wakes a leader that is alive after all, before anybody stands in its place.
    pub fn knock(&self, out: &mut Outbox) {
        if let Some(to) = self.leader().filter(|_| !self.is_leader()) {
            out.sends.push(Action::Announce { to, descriptor: self.descriptor.clone() });
        }
    }

    /// At the end of a leader's tick.
    pub(super) fn drowse(&mut self, config: &Config, now: BootNanos) {
        if config.hibernate_ticks == 0 || !self.is_leader() || !self.is_idle(config, now) {
            self.quiet_ticks = 0;
            self.sleepers.clear();
            return;
        }
        self.quiet_ticks = self.quiet_ticks.saturating_add(1);
        if self.quiet_ticks < config.hibernate_ticks {
            return;
        }
        let others: Vec<PeerId> =
            self.raw.raft.prs().iter().map(|(&id, _)| id).filter(|&id| id != self.id).collect();
        self.is_asleep = others.iter().all(|id| self.sleepers.contains(id));
        if self.is_asleep || self.ticks % config.heartbeat_ticks == 0 {
            // Behind whatever this tick has to say: a plain heartbeat that came after it would wake them. For
            // that reason it is said once more, as the last word, by a leader that goes to sleep.
            for to in others {
                let mut offer = Message { from: self.id, to, term: self.raw.raft.term, ..Message::default() };
                offer.set_msg_type(MessageType::MsgHeartbeat);
                offer.commit = self.raw.raft.raft_log.committed;
                offer.context = OFFER.into();
                self.raw.raft.msgs.push(offer);
            }
        }
    }

    fn is_idle(&self, config: &Config, now: BootNanos) -> bool {
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
            && self.lease.until().is_none_or(|until| until <= now)
            && !self.reads.is_wanted(now, config.lease_demand_nanos)
    }

    /// Whether a message is an offer of sleep, or the answer to one, that leaves nothing else to do.
    pub(super) fn is_about_sleep(message: &Message) -> bool {
        message.get_context() == OFFER
    }

    /// After the consensus code took the message in.
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
