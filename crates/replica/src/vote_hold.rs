//! The voters' half of the lease: when this store must neither vote nor stand.
//!
//! A leader's lease counts from the sending of heartbeats that a quorum answered. It is sound if no
//! member of that quorum helps to elect another leader before the lease is over. So a voter that heard
//! from a leader grants nothing for the vote hold, which outlasts any lease by the clocks' drift. The
//! consensus library has a check of its own, but it forgets the leader when any message of a later term
//! comes in, and it counts ticks; this one does neither.
//!
//! A store that restarts has forgotten whom it answered, so it holds back from its start as if it had
//! just heard from a leader. Two exceptions: the only voter of a region, which is in no joint configuration and
//! has no change of the peers in its log that waits to be applied, for nobody else could hold a lease; and a peer that never was in any term, for it cannot have answered a heartbeat (an answer
//! leaves only after the term is synced).

use types::{BootNanos, PeerId, Term};

#[derive(Clone, Copy)]
pub(crate) struct VoteHold {
    length: BootNanos,
    started: Option<BootNanos>,
    heard: Option<BootNanos>,
}

/// What a voter must remember as long as its number is in use, whether or not it holds any entries: a
/// blank peer votes, and a later peer of the same number takes its place.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    pub term: Term,
    /// The peer that it voted for in the term; 0 for none.
    pub vote: PeerId,
    pub hold: VoteHold,
}

impl VoteHold {
    pub fn new(length: BootNanos, restarted_at: Option<BootNanos>) -> VoteHold {
        VoteHold { length, started: restarted_at, heard: None }
    }

    pub fn heard_from_leader(&mut self, now: BootNanos) {
        self.heard = self.heard.max(Some(now));
    }

    fn within(&self, since: Option<BootNanos>, now: BootNanos) -> bool {
        since.is_some_and(|since| now < since.saturating_add(self.length))
    }

    /// From a restart on: not even a leader's own wish to hand over counts.
    pub fn is_restarting(&self, now: BootNanos) -> bool {
        self.within(self.started, now)
    }

    pub fn is_holding(&self, now: BootNanos) -> bool {
        self.is_restarting(now) || self.within(self.heard, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_holds_after_a_restart_and_after_every_word_from_a_leader() {
        let mut hold = VoteHold::new(100, Some(1000));
        assert!(hold.is_restarting(1099) && hold.is_holding(1099));
        assert!(!hold.is_holding(1100));
        hold.heard_from_leader(1200);
        hold.heard_from_leader(1150);
        assert!(hold.is_holding(1299) && !hold.is_restarting(1299));
        assert!(!hold.is_holding(1300));
        assert!(!VoteHold::new(100, None).is_holding(0));
    }
}
