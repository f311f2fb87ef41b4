//! The rounds of heartbeats that prove leadership, and the lease that follows from them.

use super::*;

impl<L: LogStore> Peer<L> {
    pub(super) fn settle_lease(&mut self, ctx: &mut Context) {
        let raft = &self.raw.raft;
        if self.transfer.is_none() {
            let descriptor = &self.descriptor;
            // A store without a peer cannot obey a request that was meant for its previous peer.
            let matched = |store| {
                descriptor.peer_on(store).map_or(LogIndex::MAX, |peer| {
                    raft.prs().get(peer.id).map_or(0, |progress| progress.matched)
                })
            };
            self.lease.clear_fences(matched);
        }
        let is_coordinated = ctx.config.elections != Elections::ByTimeout;
        if is_coordinated && Failpoint::SessionKeepsLease.is_on() {
            self.lease.confirm(ctx.now);
        }
        let is_current = raft.apply_to_current_term() || Failpoint::LeaseBeforeOwnTerm.is_on();
        let is_sealed = self.descriptor.merging.is_some();
        let may_serve = !is_sealed && self.confined.is_none();
        if is_current && may_serve && raft.raft_log.applied >= self.lease_needs {
            if let Some(until) = self.lease.extend(ctx.config.lease_nanos, ctx.now) {
                ctx.out.later.push(Action::Lease {
                    region: self.region,
                    term: raft.term,
                    until: Some(until),
                });
            }
        }
    }

    pub(super) fn may_renew(&self, ctx: &Context) -> bool {
        self.reads.is_wanted(ctx.now, ctx.config.lease_demand_nanos)
            && self.reads.is_stale(ctx.now, ctx.config.lease_nanos / 2)
            && !self.lease.is_suspended(ctx.now)
    }

    /// Sends a ReadIndex round. The raft crate silently drops rounds until the leader has committed
    /// an entry of its own term, so the reads wait here until then.
    pub(super) fn send_round(&mut self, ctx: &mut Context) {
        if self.raw.raft.commit_to_current_term() {
            let asked = self.asked_voters();
            let mut context = self.raw.raft.term.to_be_bytes().to_vec();
            context.extend(self.reads.open_round(ctx.now).to_be_bytes());
            if asked.is_some() && Failpoint::EpochRemembered.is_on() {
                let committed = self.raw.raft.raft_log.committed;
                return self.confirm_round(&context, committed, ctx.now);
            }
            self.drive(ctx, |raw| {
                let earlier = raw.raft.msgs.len();
                raw.read_index(context);
                if let Some(asked) = asked {
                    let mut number = 0;
                    raw.raft.msgs.retain(|message| {
                        number += 1;
                        number <= earlier || asked.contains(&message.to)
                    });
                }
            });
        }
    }

    /// Returns the voters that the next round asks, or `None` for all followers. While the voters
    /// change, two majorities count, and the round asks all.
    fn asked_voters(&self) -> Option<Vec<u64>> {
        if self.reads.asked() == Asked::All || self.descriptor.is_joint() {
            return None;
        }
        let raft = &self.raw.raft;
        let voters = raft.prs().conf().voters().ids();
        let (count, leads) = (voters.len(), voters.contains(raft.id));
        let others = voters.iter().filter(|&id| id != raft.id).collect();
        let majority = count / 2 + 1;
        Some(self.reads.choose(others, majority - usize::from(leads)))
    }

    /// Passes over the voters that were asked and have not answered for half a heartbeat interval.
    /// The leader's heartbeats repeat the last round's question to all followers, so another
    /// follower confirms the round soon after this.
    pub(super) fn pass_over_silent(&mut self, ctx: &Context) {
        let interval = ctx.config.tick_nanos.saturating_mul(u64::from(ctx.config.heartbeat_ticks));
        self.reads.pass_over_silent(ctx.now.saturating_sub(interval / 2));
    }

    pub(super) fn suspend_lease(&mut self, ctx: &mut Context) {
        if self.lease.suspend(ctx.now.saturating_add(ctx.config.election_nanos())) {
            ctx.out.first.push(Action::Lease { region: self.region, term: self.seen.term, until: None });
        }
    }
}
