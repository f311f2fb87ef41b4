//! Weak reads with a bound: how much older than its leader's a copy may be.
//!
//! A store cannot tell from its own copy how old it is, because a leader that it no longer hears
//! may have committed more. So it asks the leader, which proves its leadership as for a strong read
//! and answers with the index that it has applied. A copy that has applied this index contains
//! every write that was acknowledged before the question was sent. The store's own clock measures
//! the time since then, so no two clocks are compared.
//!
//! ```text
//!   this store   ──── question, at t ──┐        ┌──▶ index 70; once it is applied,
//!   the leader                         └─ proof ┘    the copy is complete as of t
//! ```
//!
//! A read that arrives at `a` and allows a lag of `d` needs an answer to a question sent at `a - d`
//! or later. One answer serves all reads of the copy until it is too old. The next question is sent
//! ahead: after half of the time that is left of `d` once the copy has reached an answer. So reads
//! rarely wait while they keep coming, and a leader answers a few small questions per `d` and
//! copy, regardless of the number of reads.

use std::collections::VecDeque;

use types::{BootNanos, LogIndex};

use crate::failpoints::Failpoint;

/// Maximum number of answers kept per copy.
const ANSWERS_MAX: usize = 16;
/// Time in nanoseconds for which a read waits for its copy, even if the allowed lag is shorter.
const PATIENCE_MIN_NANOS: u64 = 100_000_000;
/// The shortest interval between two questions that are sent ahead, as a part of the lag.
const AHEAD_MIN_PART: u64 = 8;

/// The oldest copy that a connection's reads may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxLag {
    /// The result contains every write that was acknowledged this long before the read arrived.
    pub nanos: u64,
    /// Number of entries that the copy may lack, up to the newest index that a leader named.
    pub entries: Option<u64>,
}

impl MaxLag {
    /// Returns the time for which a read waits until the copy is fresh enough.
    pub fn patience_nanos(&self) -> u64 {
        self.nanos.max(PATIENCE_MIN_NANOS)
    }
}

/// A leader's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    asked_at: BootNanos,
    index: LogIndex,
    /// True once a read has found that the copy has applied the index.
    is_reached: bool,
}

/// The step that a read takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The copy is fresh enough. A view that is taken from now on may be answered if the rows were
    /// not replaced since `applied` was read.
    Read,
    /// The copy must apply entries that an answer named.
    AwaitEntries,
    /// No answer is new enough.
    AwaitAnswer,
}

/// The freshness of one copy, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    /// In the order of their questions.
    answers: VecDeque<Answer>,
    /// The time of the question that is not answered yet.
    open: Option<BootNanos>,
    /// Last measured time from sending a question until the copy had applied its answer's index, in
    /// nanoseconds.
    reached_after: u64,
}

impl Freshness {
    /// Decides about a read that arrived at `arrived`. `applied` is the copy's applied index. If
    /// the second result is true, the caller must send a question whose time is `now`.
    pub fn look(
        &mut self,
        max: MaxLag,
        arrived: BootNanos,
        now: BootNanos,
        applied: LogIndex,
    ) -> (Next, bool) {
        self.drop_old(applied, now);
        let (next, asks) = self.decide(max, arrived, now, applied);
        if asks {
            self.open = Some(now);
        }
        (next, asks)
    }

    /// Returns true if a read that arrives now may be answered and needs no question.
    pub fn suffices(&self, max: MaxLag, now: BootNanos, applied: LogIndex) -> bool {
        self.decide(max, now, now, applied) == (Next::Read, false)
    }

    fn decide(&self, max: MaxLag, arrived: BootNanos, now: BootNanos, applied: LogIndex) -> (Next, bool) {
        let oldest = arrived.saturating_sub(max.nanos);
        let newest_index = self.answers.iter().map(|answer| answer.index).max();
        let lacks = newest_index.map_or(0, |index| index.saturating_sub(applied));
        let is_in_reach = max.entries.is_none_or(|most| lacks <= most);
        let mut new_enough = self.answers.iter().filter(|answer| answer.asked_at >= oldest).peekable();
        let next = match new_enough.peek().is_some() {
            false => Next::AwaitAnswer,
            true if is_in_reach && new_enough.any(|answer| answer.index <= applied) => Next::Read,
            true => Next::AwaitEntries,
        };
        let left = max.nanos.saturating_sub(self.reached_after);
        let ahead = now.saturating_sub((left / 2).max(max.nanos / AHEAD_MIN_PART));
        let is_due = match next {
            Next::AwaitAnswer => true,
            // If no lag is allowed, reads that arrive later need their own question anyway.
            Next::Read | Next::AwaitEntries => {
                max.nanos > 0 && self.answers.back().is_some_and(|answer| answer.asked_at < ahead)
            }
        };
        (next, is_due && self.open.is_none())
    }

    /// Records the answer to the question sent at `asked_at`.
    pub fn answered(&mut self, asked_at: BootNanos, index: LogIndex, now: BootNanos) {
        self.not_answered(asked_at);
        let asked_at = if Failpoint::LagFromAnswer.is_on() { now } else { asked_at };
        let place = self.answers.partition_point(|answer| answer.asked_at <= asked_at);
        self.answers.insert(place, Answer { asked_at, index, is_reached: false });
        if self.answers.len() > ANSWERS_MAX {
            // The oldest answer is the first that the copy reaches, and the newest serves longest.
            // Among the rest, drops the answer whose neighbours are the closest substitutes.
            let gap = |place: &usize| self.answers[place + 1].asked_at - self.answers[place - 1].asked_at;
            if let Some(place) = (1..ANSWERS_MAX).min_by_key(gap) {
                self.answers.remove(place);
            }
        }
    }

    /// Gives up the question sent at `asked_at`, so that the next read asks again.
    pub fn not_answered(&mut self, asked_at: BootNanos) {
        if self.open == Some(asked_at) {
            self.open = None;
        }
    }

    /// Drops answers that are older than one which the copy has reached.
    fn drop_old(&mut self, applied: LogIndex, now: BootNanos) {
        let Some(reached) = self.answers.iter().rposition(|answer| answer.index <= applied) else { return };
        self.answers.drain(..reached);
        let answer = &mut self.answers[0];
        if !std::mem::replace(&mut answer.is_reached, true) {
            self.reached_after = now.saturating_sub(answer.asked_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn lag(ms: u64) -> MaxLag {
        MaxLag { nanos: ms * MS, entries: None }
    }

    /// A read that arrives now.
    fn look(freshness: &mut Freshness, max: MaxLag, now_ms: u64, applied: LogIndex) -> (Next, bool) {
        freshness.look(max, now_ms * MS, now_ms * MS, applied)
    }

    #[test]
    fn a_copy_is_fresh_from_the_question_on_and_not_from_the_answer() {
        let mut freshness = Freshness::default();
        assert_eq!(look(&mut freshness, lag(100), 1000, 70), (Next::AwaitAnswer, true));
        assert_eq!(
            look(&mut freshness, lag(100), 1001, 70),
            (Next::AwaitAnswer, false),
            "one question is open"
        );
        freshness.answered(1000 * MS, 70, 1090 * MS);
        assert_eq!(look(&mut freshness, lag(100), 1100, 70).0, Next::Read);
        assert_eq!(look(&mut freshness, lag(100), 1101, 70).0, Next::AwaitAnswer);
        assert_eq!(look(&mut freshness, lag(200), 1101, 70).0, Next::Read, "another connection allows more");
    }

    #[test]
    fn the_next_question_is_sent_when_half_of_the_time_that_is_left_has_passed() {
        let mut freshness = Freshness::default();
        look(&mut freshness, lag(100), 1000, 7);
        freshness.answered(1000 * MS, 7, 1002 * MS);
        assert_eq!(look(&mut freshness, lag(100), 1002, 7), (Next::Read, false));
        assert_eq!(look(&mut freshness, lag(100), 1049, 7), (Next::Read, false));
        assert_eq!(look(&mut freshness, lag(100), 1050, 7), (Next::Read, true));
        assert_eq!(look(&mut freshness, lag(100), 1060, 7), (Next::Read, false));
        freshness.not_answered(1050 * MS);
        assert_eq!(look(&mut freshness, lag(100), 1061, 7), (Next::Read, true));
    }

    /// The copy is 80 ms behind, and every answer comes after 1 ms.
    #[test]
    fn reads_of_a_copy_that_is_behind_by_less_than_the_lag_do_not_wait() {
        let mut freshness = Freshness::default();
        let (mut waits, mut questions) = (0, 0);
        for now in 1000..3000 {
            let applied = now - 80;
            if let Some(asked_at) = freshness.open {
                freshness.answered(asked_at, asked_at / MS, now * MS);
            }
            let (next, asks) = look(&mut freshness, lag(100), now, applied);
            questions += u64::from(asks);
            waits += u64::from(next != Next::Read && now > 1200);
        }
        assert_eq!(waits, 0);
        assert!((100..200).contains(&questions), "{questions}");
    }

    #[test]
    fn an_answer_that_comes_late_counts_from_its_own_question() {
        let mut freshness = Freshness::default();
        look(&mut freshness, lag(100), 1000, 7);
        freshness.not_answered(1000 * MS);
        assert_eq!(look(&mut freshness, lag(100), 1500, 7), (Next::AwaitAnswer, true));
        freshness.answered(1000 * MS, 7, 1501 * MS);
        assert_eq!(look(&mut freshness, lag(100), 1502, 7), (Next::AwaitAnswer, false), "the second is open");
        freshness.answered(1500 * MS, 7, 1503 * MS);
        assert_eq!(look(&mut freshness, lag(100), 1504, 7), (Next::Read, false));
    }

    #[test]
    fn a_copy_that_lacks_entries_is_read_once_it_has_applied_them() {
        let mut freshness = Freshness::default();
        look(&mut freshness, lag(100), 1000, 50);
        freshness.answered(1000 * MS, 70, 1001 * MS);
        let late =
            |freshness: &mut Freshness, applied| freshness.look(lag(100), 1000 * MS, 1040 * MS, applied);
        assert_eq!(late(&mut freshness, 69), (Next::AwaitEntries, false));
        // The copy took 40 ms, so the next question is sent ahead of the 60 ms that are left.
        assert_eq!(late(&mut freshness, 70), (Next::Read, true));
        // A new peer began with an older snapshot.
        assert_eq!(late(&mut freshness, 60), (Next::AwaitEntries, false));
    }

    #[test]
    fn no_lag_asks_for_each_read_that_arrives_after_the_last_question() {
        let mut freshness = Freshness::default();
        assert_eq!(look(&mut freshness, lag(0), 1000, 7), (Next::AwaitAnswer, true));
        freshness.answered(1000 * MS, 7, 1001 * MS);
        assert_eq!(freshness.look(lag(0), 1000 * MS, 1002 * MS, 7), (Next::Read, false));
        assert_eq!(look(&mut freshness, lag(0), 1002, 7), (Next::AwaitAnswer, true));
    }

    #[test]
    fn entries_are_counted_to_the_newest_index_that_a_leader_named() {
        let mut freshness = Freshness::default();
        let max = MaxLag { entries: Some(10), ..lag(1000) };
        look(&mut freshness, max, 1000, 50);
        freshness.answered(1000 * MS, 50, 1001 * MS);
        assert_eq!(look(&mut freshness, max, 1002, 50).0, Next::Read);
        freshness.answered(1600 * MS, 61, 1601 * MS);
        assert_eq!(look(&mut freshness, max, 1602, 50).0, Next::AwaitEntries);
        assert_eq!(look(&mut freshness, lag(1000), 1602, 50).0, Next::Read, "in time");
        assert_eq!(look(&mut freshness, max, 1602, 51).0, Next::Read);
    }

    #[test]
    fn many_answers_that_the_copy_has_not_reached_leave_the_one_that_it_has() {
        let mut freshness = Freshness::default();
        for at in 0..100 {
            freshness.answered((1000 + at) * MS, 50 + at, (1000 + at) * MS);
            assert_eq!(look(&mut freshness, lag(1000), 1000 + at, 50).0, Next::Read);
        }
        assert!(freshness.answers.len() <= ANSWERS_MAX);
        assert_eq!(
            freshness.answers.back(),
            Some(&Answer { asked_at: 1099 * MS, index: 149, is_reached: false })
        );
    }
}
