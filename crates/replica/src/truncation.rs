//! Policy that decides how much of a region's log may be dropped.

use types::LogIndex;

/// Limits that control log truncation.
///
/// The log keeps a tail so that a follower that lags a little finds its entries there. It is
/// truncated in steps rather than entry by entry. For large entries, the byte limits take
/// precedence over the entry limits.
#[derive(Clone, Copy, Debug)]
pub struct Truncation {
    pub keep_entries: u64,
    pub keep_bytes: u64,
    /// Minimum number of entries that a truncation drops. Fewer entries suffice if their size is at
    /// least `step_bytes`.
    pub step_entries: u64,
    pub step_bytes: u64,
    /// Maximum number of log bytes that a leader keeps for a lagging peer. A peer that lags by more
    /// gets a snapshot.
    pub lag_bytes: u64,
}

impl Default for Truncation {
    fn default() -> Truncation {
        Truncation::of_log_size(256 << 20)
    }
}

impl Truncation {
    /// Returns limits for a store whose log should stay at about `bytes` bytes.
    pub fn of_log_size(bytes: u64) -> Truncation {
        Truncation {
            keep_entries: 1024,
            keep_bytes: bytes / 16,
            step_entries: 1024,
            step_bytes: bytes / 64,
            lag_bytes: bytes,
        }
    }
}

pub(crate) struct LogUse {
    pub first: LogIndex,
    /// Index covered by a completed flush of the engine. Replay after a restart begins above it.
    pub flushed: LogIndex,
    pub applied: LogIndex,
    /// Index through which no peer that the log waits for needs any entry.
    pub held_by_all: LogIndex,
    /// Typical size of an entry in bytes, at least 1.
    pub entry_bytes: u64,
}

impl Truncation {
    /// Returns the index through which a leader keeps no entries for its peers. The slowest of them
    /// holds the log through `slowest`.
    ///
    /// `receiving` is the lowest index of the snapshots in transit. Their receivers will need the
    /// entries after it. For them the leader keeps up to four times `lag_bytes`.
    pub(crate) fn released(
        &self,
        slowest: LogIndex,
        receiving: Option<LogIndex>,
        last: LogIndex,
        entry_bytes: u64,
    ) -> LogIndex {
        let budget = (self.lag_bytes / entry_bytes.max(1)).max(1);
        let floor = last.saturating_sub(budget);
        let floor = receiving.map_or(floor, |index| floor.min(index.max(floor.saturating_sub(3 * budget))));
        slowest.max(floor)
    }

    /// Returns the last index that may be dropped, or `None` if truncation is not possible or not
    /// worthwhile yet.
    ///
    /// `held_by_all` may come from an earlier leader. A peer that lacks entries dropped because of
    /// it gets a snapshot.
    pub(crate) fn decide(&self, log: &LogUse) -> Option<LogIndex> {
        let per_entry = log.entry_bytes.max(1);
        let keep = self.keep_entries.min(self.keep_bytes / per_entry);
        let step = self.step_entries.min(self.step_bytes / per_entry).max(1);
        let safe = log.flushed.min(log.applied).min(log.held_by_all);
        let index = safe.checked_sub(keep)?;
        let gone = (index + 1).checked_sub(log.first)?;
        (gone >= step).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Truncation =
        Truncation { keep_entries: 10, keep_bytes: 1000, step_entries: 5, step_bytes: 1000, lag_bytes: 1000 };

    #[test]
    fn a_peer_is_waited_for_within_a_budget_and_longer_while_it_receives_a_snapshot() {
        assert_eq!(RULE.released(950, None, 1000, 10), 950);
        assert_eq!(RULE.released(20, None, 1000, 10), 900);
        assert_eq!(RULE.released(20, Some(700), 1000, 10), 700);
        assert_eq!(RULE.released(20, Some(30), 1000, 10), 600);
        assert_eq!(RULE.released(20, Some(990), 1000, 10), 900);
    }

    fn log(first: u64, flushed: u64, applied: u64, held_by_all: u64) -> LogUse {
        LogUse { first, flushed, applied, held_by_all, entry_bytes: 10 }
    }

    #[test]
    fn truncation_never_passes_the_flush_the_apply_or_the_slowest_peer() {
        assert_eq!(RULE.decide(&log(1, 50, 100, 100)), Some(40));
        assert_eq!(RULE.decide(&log(1, 100, 60, 100)), Some(50));
        assert_eq!(RULE.decide(&log(1, 100, 100, 30)), Some(20));
        assert_eq!(RULE.decide(&log(1, 100, 100, 0)), None);
    }

    #[test]
    fn a_step_too_small_is_left() {
        assert_eq!(RULE.decide(&log(1, 14, 14, 14)), None);
        assert_eq!(RULE.decide(&log(1, 15, 15, 15)), Some(5));
        assert_eq!(RULE.decide(&log(40, 15, 15, 15)), None);
    }

    #[test]
    fn large_entries_are_kept_by_bytes() {
        let large = LogUse { entry_bytes: 500, ..log(1, 100, 100, 100) };
        assert_eq!(RULE.decide(&large), Some(98));
    }
}
