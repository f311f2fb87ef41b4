//! Which store a write waits for, and how long.
//!
//! A write waits for the leader's log and for those of as many of the fastest followers as make a majority
//! with it, for the slowest of these; then for the leader, which applies it before it answers. For a byte that is
//! written, with the KV bytes/s of stores, and what their syncs take:
//!
//! ```text
//! wait     = max(5/4 · log(leader), log(slowest follower needed)) + apply(leader)
//! apply(s) = 1 / speed(s)
//! log(s)   = apply(s) / 7 + sync(s) / 64 KiB            apply(s) where nobody knows how long a sync takes
//! ```
//!
//! The log's is one of about seven bytes that a device writes for a byte of user data (the rest is what flushes and
//! compactions write, and what apply waits for when they fall behind), and at work about so many bytes share a sync. For a
//! follower's log another one may stand in, which is written by chance sooner; for the leader's none does.
//!
//! Here stores are told apart by less than elsewhere: beside the classes that stores form by how sure their numbers are
//! ([`crate::class`]), those whose speeds differ by little, or whose syncs differ by less than twofold, count as one,
//! so that one that is measured again and comes out a little different moves nothing.

use std::cmp::Reverse;

use crate::fill::Ordered;
use crate::leader_only::is_worth_it;
use crate::round::{At, Round, Seat};

/// The log's part of what a device writes is one in so many.
const LOG_PART: f64 = 7.0;
const BYTES_PER_SYNC: f64 = 65_536.0;
/// What the leader's log counts, a follower's being 1.
const OWN_LOG: f64 = 1.25;

/// Syncs are of different classes when the one takes so many times as long as the other, for what is measured in a
/// second or two of them scatters, …
const SYNC_CLASS: f64 = 2.0;
/// … and all that take less are of one.
const SYNC_NS_MIN: f64 = 50_000.0;

/// Seconds per byte of the slowest store of each store's class. For stores that are not up nobody waits.
pub(crate) struct Waits {
    apply: Vec<f64>,
    log: Vec<f64>,
}

impl Waits {
    pub fn new(round: &Round<'_>) -> Waits {
        let speed = |at: At| round.leader_speed(at);
        let gains = |slow: At, fast: At| is_worth_it(speed(slow), speed(fast), round.limits);
        let mut apply = by_class(round, round.stores(), |at| 1.0 / speed(at).max(1) as f64, gains);
        let sync = |at: At| sync_ns(round, at);
        let known = round.stores().filter(|&at| round.ratings[at as usize].sync_ns > 0);
        let syncs = by_class(round, known, sync, |slow, fast| sync(fast) * SYNC_CLASS <= sync(slow));
        for at in round.stores().filter(|&at| !round.is_up(at)) {
            apply[at as usize] = f64::INFINITY;
        }
        let log = apply.iter().zip(syncs).map(|(&apply, sync)| match sync {
            known if known.is_finite() && apply.is_finite() => {
                apply / LOG_PART + known / 1e9 / BYTES_PER_SYNC
            }
            _ => apply,
        });
        Waits { log: log.collect(), apply }
    }

    /// The store that is the last of a majority to have written: of `leader` and the fastest others of the region.
    /// `change` replaces a peer's store by another's.
    pub fn slowest_needed(&self, round: &Round<'_>, region: u32, leader: At, change: Option<(At, At)>) -> At {
        let moved = |at: At| change.filter(|(from, _)| *from == at).map_or(at, |(_, to)| to);
        let voters = || round.seats(region).iter().filter(|seat: &&Seat| seat.voter);
        let needed = voters().count() / 2;
        let leader = moved(leader);
        // Few peers: as many passes as followers are needed, each for the next fastest.
        let mut last: Option<(Ordered, At)> = None;
        for _ in 0..needed {
            let next = voters()
                .map(|seat| moved(seat.store))
                .filter(|&at| at != leader)
                .map(|at| (Ordered::new(self.log(at)), at))
                .filter(|rank| last.is_none_or(|last| *rank > last))
                .min();
            last = next.or(last);
        }
        match last {
            Some((_, follower)) if self.log(follower) > OWN_LOG * self.log(leader) => follower,
            _ => leader,
        }
    }

    /// Seconds per byte that the region's writes wait.
    pub fn of(&self, round: &Round<'_>, region: u32, leader: At, change: Option<(At, At)>) -> f64 {
        let slowest = self.slowest_needed(round, region, leader, change);
        let leader = change.filter(|(from, _)| *from == leader).map_or(leader, |(_, to)| to);
        let own = if slowest == leader { OWN_LOG } else { 1.0 };
        own * self.log(slowest) + self.apply(leader)
    }

    /// The same after a peer has moved, and with the best of them in the lead. `to` may be `NOWHERE`: what is counted
    /// are the peers that stay. Where those are no majority nothing is told apart.
    pub fn best(&self, round: &Round<'_>, region: u32, from: At, to: At) -> f64 {
        let voters = round.seats(region).iter().filter(|seat| seat.voter);
        let waits = voters.map(|seat| self.of(round, region, seat.store, Some((from, to))));
        waits.fold(f64::INFINITY, f64::min)
    }

    /// Nothing waits less.
    pub fn least(&self, round: &Round<'_>) -> f64 {
        let least = |of: &dyn Fn(At) -> f64| {
            round.stores().filter(|&at| round.is_up(at)).map(of).fold(f64::INFINITY, f64::min)
        };
        OWN_LOG * least(&|at| self.log(at)) + least(&|at| self.apply(at))
    }

    /// Seconds per byte until a store has it in its log.
    pub fn log(&self, at: At) -> f64 {
        self.log.get(at as usize).copied().unwrap_or(f64::INFINITY)
    }

    /// Of both together: who is faster in the one is so in the other, as a rule.
    pub fn cost(&self, at: At) -> f64 {
        self.log(at) + self.apply(at)
    }

    fn apply(&self, at: At) -> f64 {
        self.apply.get(at as usize).copied().unwrap_or(f64::INFINITY)
    }
}

/// A store that is pinned to lead as one of another speed counts as one that is faster in everything.
fn sync_ns(round: &Round<'_>, at: At) -> f64 {
    let rating = &round.ratings[at as usize];
    let pinned = round.leader_speed(at).max(1) as f64 / rating.capability.speed().max(1) as f64;
    (rating.sync_ns as f64 / pinned).max(SYNC_NS_MIN)
}

/// Of each store what the slowest of its class takes, whether it is up or not: the classes of others do not change when one
/// restarts. A class begins with its slowest store and ends before the
/// first one that is enough `faster`. Infinite for stores that are not `among`.
fn by_class(
    round: &Round<'_>,
    among: impl Iterator<Item = At>,
    takes: impl Fn(At) -> f64,
    faster: impl Fn(At, At) -> bool,
) -> Vec<f64> {
    let mut ranked: Vec<At> = among.collect();
    ranked.sort_by_key(|&at| Reverse(Ordered::new(takes(at))));
    let mut all = vec![f64::INFINITY; round.view.stores.len()];
    let mut slowest = ranked.first().copied();
    for at in ranked {
        slowest = slowest.filter(|&slow| !faster(slow, at)).or(Some(at));
        all[at as usize] = slowest.map_or(f64::INFINITY, &takes);
    }
    all
}
