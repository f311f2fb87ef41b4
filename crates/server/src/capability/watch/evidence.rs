//! Rules of evidence: a number of the last values must be above a limit.
//!
//! Under noise one value is above or below by chance, but not three quarters of forty. The limits
//! are halfway, on a logarithmic scale, between a healthy device and one that is half as fast.

use super::SLOW;

/// The number of values that must be above a limit, among the last ones.
#[derive(Clone, Copy, Debug)]
pub struct Quorum {
    pub votes: usize,
    pub among: usize,
    pub above: f64,
}

impl Quorum {
    pub fn is_reached(self, latest_first: impl Iterator<Item = f64>) -> bool {
        self.count(latest_first) >= self.votes
    }

    pub fn count(self, latest_first: impl Iterator<Item = f64>) -> usize {
        latest_first.take(self.among).filter(|value| *value > self.above).count()
    }
}

/// Evidence of windows compared with the expected maximum. It suffices alone.
pub const FAR_ABOVE_MOST: Quorum = Quorum { votes: 7, among: 8, above: 2.5 };
pub const ABOVE_MOST: Quorum = Quorum { votes: 30, among: 40, above: SLOW };
/// Evidence of windows compared with the store's own past. It makes the device suspect.
pub const FAR_ABOVE_USUAL: Quorum = Quorum { votes: 4, among: 5, above: 3.0 };
pub const ABOVE_USUAL_LATELY: Quorum = Quorum { votes: 12, among: 16, above: SUSPECT };
pub const ABOVE_USUAL: Quorum = Quorum { votes: 30, among: 40, above: SUSPECT };
/// Evidence of touches that confirms a suspicion.
pub const TOUCHED_FAR: Quorum = Quorum { votes: 2, among: 3, above: 2.5 };
pub const TOUCHED: Quorum = Quorum { votes: 6, among: TOUCHES, above: SUSPECT };
/// Maximum number of touches above the limit that still clears a suspected device. Too many touches
/// clear it, too.
pub const CLEARED: usize = 2;
pub const TOUCHES_MAX: usize = 30;
/// Evidence of touches of a store whose log is idle.
pub const TOUCHED_ALONE_FAR: Quorum = Quorum { votes: 4, among: 5, above: 3.0 };
pub const TOUCHED_ALONE: Quorum = Quorum { votes: 7, among: TOUCHES, above: SLOW };

/// The multiple of the usual time above which a device may be half as fast as before.
pub const SUSPECT: f64 = 1.45;
/// Number of touches that are kept.
pub const TOUCHES: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn latest_first(above: usize, below: usize, limit: f64) -> impl Iterator<Item = f64> {
        std::iter::repeat_n(limit * 1.01, above).chain(std::iter::repeat_n(limit * 0.99, below))
    }

    #[test]
    fn a_quorum_counts_the_latest_values_alone() {
        for quorum in [FAR_ABOVE_MOST, ABOVE_MOST, ABOVE_USUAL, TOUCHED, TOUCHED_FAR, TOUCHED_ALONE] {
            let Quorum { votes, among, above } = quorum;
            assert!(quorum.is_reached(latest_first(votes, 100, above)), "{quorum:?}");
            assert!(!quorum.is_reached(latest_first(votes - 1, 100, above)), "{quorum:?}");
            let too_late = latest_first(0, among - votes + 1, above).chain(latest_first(votes, 0, above));
            assert!(!quorum.is_reached(too_late), "{quorum:?}");
        }
    }
}
