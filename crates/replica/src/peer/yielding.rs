//! A peer whose store is about to stop, or whose device hangs, leaves leading to other voters.

use super::*;

impl<L: LogStore> Peer<L> {
    /// Returns true if this peer must not become leader, and the region has another voter that can.
    pub(super) fn leaves_leading(&self) -> bool {
        self.yields && self.has_other_voters() && !planted::is(Bug::LeadsWhileStopping)
    }

    /// Gives up the lead; see `Input::StepDown`. Entries of this leader may still be committed by
    /// the next one, so proposals stay open.
    pub fn step_down(&mut self, config: &Config, now: BootNanos, out: &mut Outbox) {
        if self.is_leader() && self.has_other_voters() {
            self.drive(config, now, out, |raw| {
                let term = raw.raft.term;
                raw.raft.become_follower(term, raft::INVALID_ID);
            });
        }
    }

    fn has_other_voters(&self) -> bool {
        self.raw.raft.prs().conf().voters().ids().len() > 1
    }
}
