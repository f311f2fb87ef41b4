//! The voters' half of the lease: the periods in which this store must neither vote nor campaign.
//!
//! A leader's lease counts from the sending of heartbeats that a quorum answered. It is sound if no
//! member of that quorum helps to elect another leader before the lease ends. So a voter that
//! received a message from a leader grants no vote for the stickiness period, which outlasts any
//! lease even if the clocks drift. The consensus library has a similar check, but it counts ticks,
//! and it forgets the leader when any message of a later term arrives. This check does neither.
//!
//! A store that restarts does not know which leader it answered, so it starts with a stickiness
//! period, as if it had just received a message from a leader. There are two exceptions:
//! - The only voter of a region, if the configuration is not joint and the log holds no unapplied
//!   change of peers: no other store could hold a lease.
//! - A peer whose log and term are still those of a new region: it cannot have answered a
//!   heartbeat, because it sends an answer only after the term is synced.

use types::BootNanos;

use crate::log_store::HardState;

#[derive(Clone, Copy)]
pub(crate) struct Stickiness {
    length: BootNanos,
    started: Option<BootNanos>,
    heard: Option<BootNanos>,
}

/// The promise that a voter must keep as long as its number is in use. It does not depend on
/// entries: a blank peer votes, and a later peer of the same number replaces it.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    /// The term and the vote in it. The commit index has no meaning.
    pub hard_state: HardState,
    pub stickiness: Stickiness,
}

impl Stickiness {
    pub fn new(length: BootNanos, restarted_at: Option<BootNanos>) -> Stickiness {
        Stickiness { length, started: restarted_at, heard: None }
    }

    pub fn heard_from_leader(&mut self, now: BootNanos) {
        self.heard = self.heard.max(Some(now));
    }

    fn within(&self, since: Option<BootNanos>, now: BootNanos) -> bool {
        since.is_some_and(|since| now < since.saturating_add(self.length))
    }

    /// Returns true during the stickiness period that begins with a restart. During it the store
    /// refuses even the votes of a leader transfer.
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
        let mut stickiness = Stickiness::new(100, Some(1000));
        assert!(stickiness.is_restarting(1099) && stickiness.is_holding(1099));
        assert!(!stickiness.is_holding(1100));
        stickiness.heard_from_leader(1200);
        stickiness.heard_from_leader(1150);
        assert!(stickiness.is_holding(1299) && !stickiness.is_restarting(1299));
        assert!(!stickiness.is_holding(1300));
        assert!(!Stickiness::new(100, None).is_holding(0));
    }
}
