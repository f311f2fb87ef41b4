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
            let mut context = self.raw.raft.term.to_be_bytes().to_vec();
            context.extend(self.reads.open_round(ctx.now).to_be_bytes());
            self.drive(ctx, |raw| raw.read_index(context));
        }
    }

    pub(super) fn suspend_lease(&mut self, ctx: &mut Context) {
        if self.lease.suspend(ctx.now.saturating_add(ctx.config.election_nanos())) {
            ctx.out.first.push(Action::Lease { region: self.region, term: self.seen.term, until: None });
        }
    }
}
