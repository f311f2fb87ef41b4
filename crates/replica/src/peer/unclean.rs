//! Peers that may have lost entries, a term or a vote that they acknowledged (`PeerSeed::unclean`).
//!
//! An unclean peer ignores every message and answers with one statement only: the last entry that
//! it knows to be committed. A majority acknowledged that entry, so the statement is true,
//! regardless of what the peer has lost. Index and term identify an entry, so the receiver can tell
//! whether its log has the entry, and then knows that it is committed.
//!
//! Without the statement a region can wait for ever although a majority of its voters is clean. The
//! others may hold the entry, but not know that it is committed, because they have crashed as well:
//!
//! - The entry removes unclean voters. A peer that has not executed the entry still needs the votes
//!   of the earlier voters, and too few of them are clean.
//! - The entry splits the region. The leader needs a further voter, which is blank. That voter
//!   cannot take the rows from before the split, because its store has the new region.

use super::*;

impl<L: LogStore> Peer<L> {
    /// Returns true for every message to an unclean peer. Its log may be shorter than the one it
    /// acknowledged, so it would grant votes wrongly. The leader of the term believes that this
    /// peer holds the lost entries, and so cannot send them again.
    pub(super) fn ignores(&self, message: &Message) -> bool {
        let asks_for_vote =
            matches!(message.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
        self.is_unclean && !(asks_for_vote && Failpoint::UncleanVotes.is_on())
    }

    pub fn is_unclean(&self) -> bool {
        self.is_unclean
    }

    /// Makes an unclean peer take part again; see `Input::AcceptLoss`.
    pub fn accept_loss(&mut self, ctx: &Context) {
        if std::mem::take(&mut self.is_unclean) {
            // The peer was silent for longer than any lease that it helped to confirm. One more
            // stickiness period is an extra precaution.
            self.stickiness = Stickiness::new(ctx.config.stickiness_nanos(), Some(ctx.now));
        }
    }

    /// Answers a leader or a candidate that knows fewer committed entries than this unclean peer.
    /// The answer has the form in which the consensus library refuses a vote.
    pub(super) fn state_commit(&self, from: StoreId, message: &Message, out: &mut Outbox) {
        let (kind, term) = match message.get_msg_type() {
            MessageType::MsgRequestVote => (MessageType::MsgRequestVoteResponse, message.term),
            // A pre-vote names the term after the candidate's own.
            MessageType::MsgRequestPreVote => (MessageType::MsgRequestPreVoteResponse, message.term - 1),
            MessageType::MsgHeartbeat | MessageType::MsgAppend => {
                (MessageType::MsgRequestPreVoteResponse, message.term)
            }
            _ => return,
        };
        let log = &self.raw.raft.raft_log;
        let commit = log.committed;
        if commit <= message.commit || term == 0 {
            return;
        }
        // The entry may be damaged.
        let Ok(commit_term) = log.term(commit) else { return };
        let mut answer =
            Message { from: self.id, to: message.from, term, commit, commit_term, ..Message::default() };
        answer.set_msg_type(kind);
        answer.reject = true;
        let lane = lane(&answer);
        out.sends.push(Action::Send { to: from, region: self.region, lane, message: answer });
    }

    /// Notes the committed entry that an unclean peer states to a leader. Candidates need no help:
    /// the library notes the statement as part of a refused vote.
    pub(super) fn hear_commit(&mut self, ctx: &mut Context, message: &Message) {
        let is_statement = message.get_msg_type() == MessageType::MsgRequestPreVoteResponse
            && message.reject
            && message.commit_term != 0;
        if is_statement && self.is_leader() {
            let (commit, term) = (message.commit, message.commit_term);
            self.drive(ctx, |raw| {
                raw.raft.raft_log.maybe_commit(commit, term);
            });
        }
    }
}
