//! Conditions under which a peer campaigns, and the delay before it does.

use super::*;

impl<L: LogStore> Peer<L> {
    /// Campaigns at once if the peer is the region's only voter, because no other peer could become
    /// leader.
    pub fn campaign_if_alone(&mut self, ctx: &mut Context) {
        let voters = self.raw.raft.prs().conf().voters();
        if voters.ids().len() == 1 && voters.contains(self.id) {
            self.campaign(ctx);
        }
    }

    /// Campaigns. The leader of a split's parent calls this at once, because no other peer is
    /// expected to campaign.
    pub fn campaign(&mut self, ctx: &mut Context) {
        if self.stickiness.is_restarting(ctx.now) || self.leaves_leading() || self.is_unclean {
            return;
        }
        self.drive(ctx, |raw| {
            let _ = raw.campaign();
        });
    }

    pub(super) fn may_stand(&self, ctx: &Context) -> bool {
        // A peer whose rows are being replaced by a snapshot must not campaign.
        let is_fit = self.applying.is_none() && self.missing_since.is_none() && !self.is_behind(&ctx.config);
        // The only voter becomes leader without asking other peers, so nothing else makes it wait
        // for its log.
        let is_written = self.is_persisted() || self.raw.raft.prs().conf().voters().ids().len() > 1;
        let is_allowed = !self.leaves_leading() && self.may_stand_confined(ctx);
        is_fit && is_written && !self.stickiness.is_holding(ctx.now) && is_allowed
    }

    pub(super) fn draw_election_timeout(&mut self, config: &Config) {
        self.attempt += 1;
        let parts = [config.store, self.region, self.seen.term, self.attempt];
        let drawn =
            parts.iter().fold(Draw::new(config.seed).number(), |hash, &part| Draw::new(hash ^ part).number());
        let ticks = u64::from(config.election_ticks);
        self.election_timeout = (ticks + drawn % ticks) as usize;
        self.raw.raft.set_randomized_election_timeout(self.election_timeout);
    }

    /// Counts a tick, up to the longest wait of a peer that campaigns. From the end of the election
    /// timeout on, the consensus code accepts other peers' requests for votes. The tick does not
    /// make the peer campaign.
    pub(super) fn tick_without_campaign(&mut self, ctx: &mut Context) {
        let wait = longest_wait(self.raw.raft.election_timeout());
        if self.raw.raft.election_elapsed < wait {
            self.drive(ctx, |raw| {
                raw.raft.set_randomized_election_timeout(wait + 1);
                raw.tick();
            });
        }
    }
}

/// Returns the largest number of ticks for which a peer waits before it campaigns, below the
/// largest random timeout that the consensus code allows.
pub(super) fn longest_wait(election_timeout: usize) -> usize {
    2 * election_timeout - 2
}
