//! The search for a leader with the help of a coordinator, which chooses the candidate
//! (`Elections::ByCoordinator`).
//!
//! A peer that hears from no leader for an election timeout reports its position and waits to be
//! told to campaign. It begins earlier if the leader's store has lost its session with the
//! coordinator, but not before the stickiness period has passed: the leader may be alive and have a
//! lease. The coordinator may be wrong, late or gone. It can only cause campaigns of peers that
//! hear from no leader, or prevent them, and these begin with a pre-vote like all others.

use types::META_REGION;

use super::*;

/// Time without a leader after which peers of the meta region campaign by their own timeouts, if
/// the configured fallback is to never do so.
const META_FALLBACK_NANOS: u64 = 10_000_000_000;

#[derive(Default)]
pub(super) struct Search {
    /// The time at which the peer began to search, and its term then.
    since: Option<(BootNanos, Term)>,
    /// The position as last reported.
    told: Option<Seeker>,
    /// True if the session of the leader's store has ended, and no leader was heard since.
    has_lost_session: bool,
}

impl Search {
    pub fn heard_from_leader(&mut self) {
        self.has_lost_session = false;
    }
}

impl<L: LogStore> Peer<L> {
    /// Notes that the store of this peer's leader has lost its session with the coordinator.
    pub fn leader_session_ended(&mut self) {
        self.search.has_lost_session = true;
    }

    /// Reports the begin of a search, a changed position and the end. Returns true if the peer must
    /// not campaign by its own timeout.
    pub(super) fn seek_leader(&mut self, ctx: &mut Context) -> bool {
        let Elections::ByCoordinator { fallback_nanos } = ctx.config.elections else {
            self.end_search(&mut ctx.out);
            return false;
        };
        // A peer that slept has just been woken. A leader that is alive hears of it, and answers.
        let heard_until = self.heard_at.saturating_add(ctx.config.stickiness_nanos());
        let is_holding = self.stickiness.is_holding(ctx.now) || ctx.now < heard_until;
        let is_holding = is_holding && !Failpoint::SessionEndTrusted.is_on();
        if self.search.has_lost_session && !self.is_leader() && !is_holding {
            self.forget_leader(ctx);
        }
        if !self.misses_leader(&ctx.config) {
            self.end_search(&mut ctx.out);
            return false;
        }
        let raft = &self.raw.raft;
        let (since, _) = *self.search.since.get_or_insert((ctx.now, raft.term));
        let log = &raft.raft_log;
        let seeker = Seeker {
            last: (log.last_term(), log.last_index()),
            may_stand: self.may_be_chosen(ctx) && !self.is_blank,
            descriptor: self.descriptor.clone(),
        };
        if self.search.told.as_ref() != Some(&seeker) {
            self.search.told = Some(seeker.clone());
            ctx.out.first.push(Action::Seeking { region: self.region, seeker: Some(seeker) });
        }
        let is_alone = raft.prs().conf().voters().ids().len() == 1;
        // Operators cannot change the way of elections while the meta region has no leader.
        let fallback_nanos = fallback_nanos.or((self.region == META_REGION).then_some(META_FALLBACK_NANOS));
        let fallback_nanos = fallback_nanos.filter(|_| !Failpoint::FallbackForgotten.is_on());
        !is_alone && fallback_nanos.is_none_or(|fallback| ctx.now.saturating_sub(since) < fallback)
    }

    /// Campaigns by the coordinator's choice. A campaign under way is not interrupted: after a
    /// vote, its own or for another peer, the peer waits for an election timeout. That wait is
    /// random, so that peers with different views of the others do not depose each other again and
    /// again.
    pub fn stand(&mut self, ctx: &mut Context) {
        let Some((_, first_term)) = self.search.since else { return };
        let raft = &self.raw.raft;
        let wait = match raft.term == first_term {
            true => raft.election_timeout(),
            false => self.election_timeout.min(campaign::longest_wait(raft.election_timeout())),
        };
        if raft.election_elapsed < wait || self.is_unclean || !self.may_be_chosen(ctx) {
            return;
        }
        self.announce_to_voters(&mut ctx.out);
        self.drive(ctx, |raw| match Failpoint::SessionEndTrusted.is_on() {
            true => {
                let raft = &mut raw.raft;
                // A candidate ignores the order.
                raft.become_follower(raft.term, raft::INVALID_ID);
                let mut order = Message { to: raft.id, from: raft.id, term: raft.term, ..Message::default() };
                order.set_msg_type(MessageType::MsgTimeoutNow);
                let _ = raft.step(order);
            }
            false => drop(raw.campaign()),
        });
    }

    fn may_be_chosen(&self, ctx: &Context) -> bool {
        self.may_stand(ctx) || Failpoint::SessionEndTrusted.is_on() && self.search.has_lost_session
    }

    pub(super) fn end_search(&mut self, out: &mut Outbox) {
        self.search.since = None;
        if self.search.told.take().is_some() {
            out.first.push(Action::Seeking { region: self.region, seeker: None });
        }
    }

    /// A search that has begun ends only with a leader: campaigns without success reset the count
    /// of ticks.
    fn misses_leader(&self, config: &Config) -> bool {
        let raft = &self.raw.raft;
        let is_silent = raft.election_elapsed + 1 >= config.election_ticks as usize;
        let has_none = raft.leader_id == raft::INVALID_ID;
        let is_searching = self.search.since.is_some() || self.search.has_lost_session;
        !self.is_leader() && (is_silent || has_none && is_searching)
    }

    fn forget_leader(&mut self, ctx: &mut Context) {
        if self.raw.raft.leader_id != raft::INVALID_ID {
            self.drive(ctx, |raw| {
                let term = raw.raft.term;
                raw.raft.become_follower(term, raft::INVALID_ID);
                raw.raft.election_elapsed = raw.raft.election_timeout();
            });
        }
    }
}
