//! A peer whose store is about to stop, or whose device hangs, leaves leadership to other voters.

use super::*;

impl<L: LogStore> Peer<L> {
    /// Returns true if this peer must not become leader and the region has another voter that can.
    pub(super) fn leaves_leading(&self) -> bool {
        let yields = self.yields || self.misses_committed();
        yields && self.has_other_voters() && !Failpoint::LeadsWhileStopping.is_on()
    }

    /// Steps down; see `Input::StepDown`. The next leader may still commit entries of this leader,
    /// so proposals stay open.
    pub fn step_down(&mut self, ctx: &mut Context) {
        if self.is_leader() && self.has_other_voters() {
            self.drive(ctx, |raw| {
                let term = raw.raft.term;
                raw.raft.become_follower(term, raft::INVALID_ID);
            });
        }
    }

    fn has_other_voters(&self) -> bool {
        self.raw.raft.prs().conf().voters().ids().len() > 1
    }

    /// Reports the leader and its term. The only voter leads at once, and its term may not be saved
    /// yet. After a crash another peer could lead in the same term, so the report waits until the
    /// term is saved.
    pub(super) fn tell_leadership(&mut self, out: &mut Outbox) {
        let is_self = self.is_leader();
        self.owes_leadership = is_self && self.raw.raft.term > self.saved_term;
        if !self.owes_leadership {
            let (region, term) = (self.region, self.raw.raft.term);
            out.first.push(Action::Leadership { region, term, leader: self.leader(), is_self });
        }
    }
}
