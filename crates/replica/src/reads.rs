//! Strong reads, grouped by the round of heartbeats that confirms them.
//!
//! All reads that arrived since the last round was sent share the next one. A read never joins a
//! round that is already in flight, because a round proves leadership only for the moment at which
//! it was sent. A confirmed round also confirms the rounds that were sent before it.
//!
//! A round normally asks all followers. It can also ask just enough of them for a majority, as
//! PaxStore's strong read does, whose leader reads the epoch of one follower out of two (PaxStore
//! §3.2). This saves the other followers' share of the messages, but a slow follower then delays
//! the round.

use std::collections::VecDeque;

use types::{BootNanos, LogIndex};

/// Maximum number of rounds in flight. Further reads wait until one of them is confirmed.
const ROUNDS: usize = 4;

/// The followers that a round of heartbeats asks. The answers of a majority confirm it in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// All followers, so the slower ones do not delay the round.
    #[default]
    All,
    /// As many voters as make a majority with the leader. If they do not answer, the leader's next
    /// heartbeat asks all, and the following rounds ask others.
    Majority,
}

#[derive(Clone, Copy)]
struct Read {
    token: u64,
    since: BootNanos,
    asked: Asked,
}

struct Round {
    number: u64,
    sent: BootNanos,
    reads: Vec<Read>,
}

#[derive(Default)]
pub(crate) struct Reads {
    waiting: Vec<Read>,
    rounds: VecDeque<Round>,
    /// Confirmed reads that wait until their read index is applied. The indexes never decrease.
    proven: VecDeque<(LogIndex, Vec<Read>)>,
    next_round: u64,
    last_sent: Option<BootNanos>,
    wanted: Option<BootNanos>,
    /// Position of the first voter that a round to a mere majority asks, modulo their number.
    first_asked: usize,
}

impl Reads {
    pub fn push(&mut self, token: u64, asked: Asked, now: BootNanos) {
        self.waiting.push(Read { token, since: now, asked });
        self.want(now);
    }

    pub fn want(&mut self, now: BootNanos) {
        self.wanted = self.wanted.max(Some(now));
    }

    pub fn is_wanted(&self, now: BootNanos, demand: BootNanos) -> bool {
        self.wanted.is_some_and(|wanted| now <= wanted.saturating_add(demand))
    }

    /// Returns whether reads wait for a round and one may be sent.
    pub fn needs_round(&self) -> bool {
        !self.waiting.is_empty() && self.rounds.len() < ROUNDS
    }

    /// Returns true if the last round was sent at least `age` ago and another round may be sent.
    /// The lease that depends on the last round should then be renewed.
    pub fn is_stale(&self, now: BootNanos, age: BootNanos) -> bool {
        self.rounds.len() < ROUNDS && self.last_sent.is_none_or(|sent| now >= sent.saturating_add(age))
    }

    /// Returns the followers that the next round should ask. One that only renews a lease asks all.
    pub fn asked(&self) -> Asked {
        let is_frugal = |read: &Read| read.asked == Asked::Majority;
        match !self.waiting.is_empty() && self.waiting.iter().all(is_frugal) {
            true => Asked::Majority,
            false => Asked::All,
        }
    }

    /// Chooses the `needed` voters that a round to a mere majority asks, from the voters other than
    /// the leader.
    pub fn choose(&self, mut others: Vec<u64>, needed: usize) -> Vec<u64> {
        others.sort_unstable();
        if !others.is_empty() {
            let first = self.first_asked % others.len();
            others.rotate_left(first);
        }
        others.truncate(needed);
        others
    }

    /// Lets the next rounds ask other voters if a round that was sent before `limit` is not
    /// confirmed.
    pub fn pass_over_silent(&mut self, limit: BootNanos) {
        if self.rounds.front().is_some_and(|round| round.sent < limit) {
            self.first_asked = self.first_asked.wrapping_add(1);
        }
    }

    /// Opens a round that is sent at `now` and includes all waiting reads. Returns its number.
    pub fn open_round(&mut self, now: BootNanos) -> u64 {
        self.next_round += 1;
        self.last_sent = Some(now);
        let reads = std::mem::take(&mut self.waiting);
        self.rounds.push_back(Round { number: self.next_round, sent: now, reads });
        self.next_round
    }

    /// Marks a round as answered by a quorum: its reads may be served once `index` is applied.
    /// Returns the time at which the round was sent, or `None` if the round is unknown.
    pub fn confirm(&mut self, number: u64, index: LogIndex) -> Option<BootNanos> {
        self.rounds.iter().find(|round| round.number == number)?;
        let mut sent = None;
        while self.rounds.front().is_some_and(|round| round.number <= number) {
            let round = self.rounds.pop_front()?;
            sent = Some(round.sent);
            if !round.reads.is_empty() {
                self.proven.push_back((index, round.reads));
            }
        }
        sent
    }

    /// Removes and returns the tokens of the reads whose read index is applied.
    pub fn take_ready(&mut self, applied: LogIndex) -> Vec<u64> {
        let mut ready = Vec::new();
        while self.proven.front().is_some_and(|&(index, _)| index <= applied) {
            ready.extend(
                self.proven.pop_front().into_iter().flat_map(|(_, reads)| reads).map(|read| read.token),
            );
        }
        ready
    }

    /// Removes and returns the tokens of all reads, when leadership is lost. Also clears the demand
    /// for a lease.
    pub fn take_all(&mut self) -> Vec<u64> {
        let Reads { next_round, first_asked, .. } = *self;
        let Reads { waiting, rounds, proven, .. } = std::mem::take(self);
        (self.next_round, self.first_asked) = (next_round, first_asked);
        let reads = waiting
            .into_iter()
            .chain(rounds.into_iter().flat_map(|round| round.reads))
            .chain(proven.into_iter().flat_map(|(_, reads)| reads));
        reads.map(|read| read.token).collect()
    }

    /// Removes and returns the tokens of the reads that arrived before `limit`. Their rounds
    /// continue.
    pub fn take_older(&mut self, limit: BootNanos) -> Vec<u64> {
        let mut late = Vec::new();
        let lists = std::iter::once(&mut self.waiting)
            .chain(self.rounds.iter_mut().map(|round| &mut round.reads))
            .chain(self.proven.iter_mut().map(|(_, reads)| reads));
        for list in lists {
            list.retain(|read| {
                let keep = read.since >= limit;
                if !keep {
                    late.push(read.token);
                }
                keep
            });
        }
        late
    }

    pub fn forget(&mut self, token: u64) {
        self.waiting.retain(|read| read.token != token);
        self.rounds.iter_mut().for_each(|round| round.reads.retain(|read| read.token != token));
        self.proven.iter_mut().for_each(|(_, reads)| reads.retain(|read| read.token != token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_never_joins_a_round_that_was_already_sent() {
        let mut reads = Reads::default();
        reads.push(1, Asked::All, 10);
        reads.push(2, Asked::All, 11);
        let first = reads.open_round(12);
        reads.push(3, Asked::All, 13);
        assert_eq!(reads.confirm(first, 5), Some(12));
        assert_eq!(reads.take_ready(4), Vec::<u64>::new());
        assert_eq!(reads.take_ready(5), vec![1, 2]);
        let second = reads.open_round(14);
        assert_eq!(reads.confirm(second, 6), Some(14));
        assert_eq!(reads.take_ready(6), vec![3]);
        assert_eq!(reads.confirm(second, 6), None);
    }

    #[test]
    fn a_confirmed_round_confirms_earlier_ones_and_the_rest_can_be_refused() {
        let mut reads = Reads::default();
        reads.push(1, Asked::All, 10);
        reads.open_round(10);
        reads.push(2, Asked::All, 20);
        let second = reads.open_round(20);
        reads.push(3, Asked::All, 30);
        reads.open_round(30);
        assert_eq!(reads.confirm(second, 9), Some(20));
        reads.push(4, Asked::All, 40);
        assert_eq!(reads.take_older(20), vec![1]);
        assert_eq!(reads.take_all(), vec![4, 3, 2]);
        assert!(reads.take_ready(u64::MAX).is_empty());
    }

    #[test]
    fn rounds_under_way_are_bounded() {
        let mut reads = Reads::default();
        for round in 0..ROUNDS as u64 {
            reads.push(round, Asked::All, round);
            assert!(reads.needs_round());
            reads.open_round(round);
        }
        reads.push(99, Asked::All, 99);
        assert!(!reads.needs_round());
    }

    #[test]
    fn a_round_asks_a_mere_majority_only_if_all_its_reads_allow_it() {
        let mut reads = Reads::default();
        assert_eq!(reads.asked(), Asked::All, "a renewal");
        reads.push(1, Asked::Majority, 10);
        reads.push(2, Asked::Majority, 10);
        assert_eq!(reads.asked(), Asked::Majority);
        reads.push(3, Asked::All, 10);
        assert_eq!(reads.asked(), Asked::All);
        reads.open_round(10);
        reads.push(4, Asked::Majority, 11);
        assert_eq!(reads.asked(), Asked::Majority, "the round under way does not count");
    }

    #[test]
    fn voters_that_do_not_confirm_a_round_in_time_are_passed_over() {
        let mut reads = Reads::default();
        assert_eq!(reads.choose(vec![9, 5, 7, 3], 2), [3, 5]);
        let round = reads.open_round(10);
        reads.pass_over_silent(10);
        assert_eq!(reads.choose(vec![3, 5, 7, 9], 2), [3, 5], "it is still in time");
        reads.pass_over_silent(11);
        assert_eq!(reads.choose(vec![3, 5, 7, 9], 2), [5, 7]);
        reads.confirm(round, 1);
        reads.pass_over_silent(99);
        assert_eq!(reads.choose(vec![3, 5, 7, 9], 2), [5, 7], "no round waits");
        assert_eq!(reads.choose(Vec::new(), 0), Vec::<u64>::new());
    }
}
