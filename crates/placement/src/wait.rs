//! The store that a write waits for, and the length of the wait.
//!
//! A write waits until a majority has it in its logs: the leader and the fastest followers. The
//! slowest of these logs decides. Then it waits for the leader, which applies it before it answers.
//! For each byte written, with the KV bytes per second of the stores and the duration of their
//! syncs:
//!
//! ```text
//! wait     = max(5/4 · log(leader), log(slowest follower needed)) + apply(leader)
//! apply(s) = 1 / speed(s)
//! log(s)   = apply(s) / 7 + sync(s) / 64 KiB            apply(s) if sync(s) is unknown
//! ```
//!
//! The device writes about seven bytes per byte of user data. One of them is the log's. Flushes and
//! compactions write the others, and apply waits for them when they fall behind. Under load about
//! 64 KiB share a sync. The leader's log counts a quarter more: another follower can make up for a
//! slow sync of one follower, but no store can replace the leader.
//!
//! Stores are grouped more coarsely here than elsewhere. In addition to the classes by measured
//! uncertainty ([`crate::class`]), speeds that differ by little count as one, and so do syncs that
//! differ by less than a factor of two. So a slightly different measurement of a store causes no
//! move.

use std::cmp::Reverse;

use crate::fill::Ordered;
use crate::leader_only::is_worth_it;
use crate::round::{Replica, Round, StoreIndex};

/// Number of bytes that a device writes for each byte of the log.
const LOG_PART: f64 = 7.0;
const BYTES_PER_SYNC: f64 = 65_536.0;
/// The weight of the leader's log; that of a follower's is 1.
const OWN_LOG: f64 = 1.25;

/// Minimum ratio at which two sync durations are of different classes. Sync measurements of a
/// second or two scatter widely.
const SYNC_CLASS: f64 = 2.0;
/// Minimum sync duration in nanoseconds that is distinguished. All shorter syncs are of one class.
const SYNC_NS_MIN: f64 = 50_000.0;

/// Seconds per byte of the slowest store in each store's class. Infinite for stores that are not
/// up.
#[derive(Default)]
pub(crate) struct Waits {
    apply: Vec<f64>,
    log: Vec<f64>,
}

impl Waits {
    pub fn new(round: &Round<'_>) -> Waits {
        let speed = |at: StoreIndex| round.leader_speed(at);
        let gains = |slow: StoreIndex, fast: StoreIndex| is_worth_it(speed(slow), speed(fast), round.limits);
        let mut apply = by_class(round, round.stores(), |at| 1.0 / speed(at).max(1) as f64, gains);
        let sync = |at: StoreIndex| sync_ns(round, at);
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
}

impl Round<'_> {
    /// Returns the store whose log completes the majority: the slowest of `leader` and the fastest
    /// others needed. `change` replaces the store of one peer with another.
    pub fn slowest_needed(
        &self,
        region: u32,
        leader: StoreIndex,
        change: Option<(StoreIndex, StoreIndex)>,
    ) -> StoreIndex {
        let voters = || self.replicas(region).iter().filter(|replica: &&Replica| replica.voter);
        let needed = voters().count() / 2;
        let leader = moved(leader, change);
        // There are few peers. Each pass finds the next fastest of the followers needed.
        let mut last: Option<(Ordered, StoreIndex)> = None;
        for _ in 0..needed {
            let next = voters()
                .map(|replica| moved(replica.store, change))
                .filter(|&at| at != leader)
                .map(|at| (Ordered::new(self.log_wait(at)), at))
                .filter(|rank| last.is_none_or(|last| *rank > last))
                .min();
            last = next.or(last);
        }
        match last {
            Some((_, follower)) if self.log_wait(follower) > OWN_LOG * self.log_wait(leader) => follower,
            _ => leader,
        }
    }

    /// Returns the time that the region's writes wait, in seconds per byte.
    pub fn wait(&self, region: u32, leader: StoreIndex, change: Option<(StoreIndex, StoreIndex)>) -> f64 {
        let slowest = self.slowest_needed(region, leader, change);
        let leader = moved(leader, change);
        let own = if slowest == leader { OWN_LOG } else { 1.0 };
        own * self.log_wait(slowest) + self.apply_wait(leader)
    }

    /// Returns the same after a peer has moved, under the best leader. If `to` is `NOWHERE`, only
    /// the remaining peers count. If these are no majority, the result is infinite.
    pub fn wait_after(&self, region: u32, from: StoreIndex, to: StoreIndex) -> f64 {
        let voters = self.replicas(region).iter().filter(|replica| replica.voter);
        let waits = voters.map(|replica| self.wait(region, replica.store, Some((from, to))));
        waits.fold(f64::INFINITY, f64::min)
    }

    /// Returns a lower bound of the wait under any layout.
    pub fn least_wait(&self) -> f64 {
        let least = |of: &dyn Fn(StoreIndex) -> f64| {
            self.stores().filter(|&at| self.is_up(at)).map(of).fold(f64::INFINITY, f64::min)
        };
        OWN_LOG * least(&|at| self.log_wait(at)) + least(&|at| self.apply_wait(at))
    }

    /// Returns the time until a store has a write in its log, in seconds per byte.
    pub fn log_wait(&self, at: StoreIndex) -> f64 {
        self.waits.log.get(at as usize).copied().unwrap_or(f64::INFINITY)
    }

    /// Returns the sum of log and apply. Ranks stores by speed: a store that is faster in one is
    /// usually faster in the other.
    pub fn store_wait(&self, at: StoreIndex) -> f64 {
        self.log_wait(at) + self.apply_wait(at)
    }

    fn apply_wait(&self, at: StoreIndex) -> f64 {
        self.waits.apply.get(at as usize).copied().unwrap_or(f64::INFINITY)
    }
}

/// Returns the store of a peer after `change`, which moves one peer to another store.
pub(crate) fn moved(at: StoreIndex, change: Option<(StoreIndex, StoreIndex)>) -> StoreIndex {
    change.filter(|(from, _)| *from == at).map_or(at, |(_, to)| to)
}

/// Returns the duration of a sync. If the leader weight of a store is pinned, its syncs count as
/// faster by the same factor.
fn sync_ns(round: &Round<'_>, at: StoreIndex) -> f64 {
    let rating = &round.ratings[at as usize];
    let pinned = round.leader_speed(at).max(1) as f64 / rating.capability.speed().max(1) as f64;
    (rating.sync_ns as f64 / pinned).max(SYNC_NS_MIN)
}

/// Groups the stores into classes, and returns for each store the value of the slowest store of its
/// class. A store that is not in `among` gets infinity.
///
/// A class begins with its slowest store. It ends before the first store for which `faster` holds
/// relative to that one. Stores that are down belong to classes, too, so that a restart changes no
/// class.
fn by_class(
    round: &Round<'_>,
    among: impl Iterator<Item = StoreIndex>,
    takes: impl Fn(StoreIndex) -> f64,
    faster: impl Fn(StoreIndex, StoreIndex) -> bool,
) -> Vec<f64> {
    let mut ranked: Vec<StoreIndex> = among.collect();
    ranked.sort_by_key(|&at| Reverse(Ordered::new(takes(at))));
    let mut all = vec![f64::INFINITY; round.view.stores.len()];
    let mut slowest = ranked.first().copied();
    for at in ranked {
        slowest = slowest.filter(|&slow| !faster(slow, at)).or(Some(at));
        all[at as usize] = slowest.map_or(f64::INFINITY, &takes);
    }
    all
}
