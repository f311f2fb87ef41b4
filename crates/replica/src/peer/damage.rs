//! Log entries that fail their checksum while the peer runs.
//!
//! The rows include all executed entries, in memory at first. If the damaged entries are executed,
//! the peer lost nothing: once the rows are flushed, its log begins after these entries. A follower
//! that needs them gets a snapshot. The peer takes part as before.
//!
//! If they are not executed, the peer cannot continue: it has acknowledged entries that it can send
//! to no other peer. It becomes unclean permanently, in three steps. The state is recorded, the
//! leadership moves to another voter, and then the peer is silent until another peer replaces it
//! (`PeerSeed::unclean`). Until then it does not mislead other peers, because the terms of its
//! entries are in memory.

use super::*;

#[derive(Clone, Copy, Debug)]
pub(super) struct Damage {
    /// The last damaged entry.
    last: LogIndex,
    /// True if all of them were executed when they were found.
    is_executed: bool,
    /// The time at which this peer was recorded as unclean.
    recorded_at: Option<BootNanos>,
}

impl<L: LogStore> Peer<L> {
    /// Returns true if committed entries cannot be read.
    pub(super) fn misses_committed(&self) -> bool {
        self.damage.is_some_and(|damage| !damage.is_executed)
    }

    /// Handles a failed read of the log. Any failure but damage stops the store.
    pub fn read_failed(&mut self, error: LogError, out: &mut Outbox) -> Result<(), Fatal> {
        let Some((first, last)) = error.damaged else { return Err(Fatal::Log(error)) };
        if self.is_unclean {
            out.later.push(Action::GiveUpLog { region: self.region, first });
            return Ok(());
        }
        let last = self.damage.map_or(last, |known| last.max(known.last));
        let is_executed = last <= self.raw.raft.raft_log.applied;
        let is_new = self.damage.is_none_or(|known| known.is_executed && (last > known.last || !is_executed));
        let recorded_at = self.damage.and_then(|known| known.recorded_at);
        self.damage = Some(Damage { last, is_executed, recorded_at });
        if is_new {
            let (region, peer, reason) = (self.region, self.id, error.reason);
            out.later.push(Action::Damaged { region, peer, first, executed: is_executed, reason });
        }
        if is_new && is_executed {
            out.later.push(Action::FlushSoon);
        }
        Ok(())
    }

    /// Drops the damaged entries if the rows of all of them are flushed.
    pub(super) fn heal(&mut self, out: &mut Outbox) {
        let is_flushed = |damage: &Damage| damage.is_executed && damage.last <= self.flushed;
        if let Some(damage) = self.damage.filter(is_flushed) {
            self.drop_through(damage.last, out);
            self.damage = None;
        }
    }

    /// Notes that this peer is recorded as unclean. A leader first transfers its leadership to the
    /// voter that has most of its log.
    pub fn damage_is_recorded(&mut self, ctx: &mut Context) {
        if self.is_unclean {
            return;
        }
        let last = self.raw.raft.raft_log.last_index();
        let damage = self.damage.get_or_insert(Damage { last, is_executed: false, recorded_at: None });
        (damage.is_executed, damage.recorded_at) = (false, Some(ctx.now));
        match self.successor().filter(|_| self.is_leader()) {
            Some(to) => self.transfer_leader(ctx, to),
            None => self.fall_silent(ctx),
        }
    }

    /// Returns the active voter that has most of this leader's log.
    fn successor(&self) -> Option<StoreId> {
        let progress = self.raw.raft.prs();
        let others = progress.iter().filter(|(&id, of)| {
            id != self.id && progress.conf().voters().contains(id) && self.is_active(id, of)
        });
        let best = others.max_by_key(|(&id, of)| (of.matched, id)).map(|(&id, _)| id);
        best.and_then(|id| self.store_of(id))
    }

    /// Falls silent once the leadership is transferred, or after an election timeout without a
    /// transfer.
    pub(super) fn leave_by_damage(&mut self, ctx: &mut Context) {
        let Some(since) = self.damage.and_then(|damage| damage.recorded_at) else { return };
        if !self.is_leader() || ctx.now >= since.saturating_add(ctx.config.election_nanos()) {
            self.fall_silent(ctx);
        }
    }

    fn fall_silent(&mut self, ctx: &mut Context) {
        self.drive(ctx, |raw| {
            let term = raw.raft.term;
            raw.raft.become_follower(term, raft::INVALID_ID);
        });
        // The peer will not learn the outcomes of its proposals.
        let lost = self.proposals.take_all();
        self.lose(lost, &mut ctx.out);
        self.end_search(&mut ctx.out);
        self.is_unclean = true;
    }
}
