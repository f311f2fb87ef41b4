//! Which store a write waits for.
//!
//! A write waits for the leader's log and for those of as many of the fastest followers as make a majority
//! with it, for the slowest of these; then for the leader, which applies it before it answers. With t(s) the
//! time that s takes for a byte:
//!
//! ```text
//! wait = max(t(leader), t(slowest follower needed)) + t(leader)
//! ```
//!
//! Here speeds are told apart only by class, so that one that is measured again and comes out a little
//! different changes nothing.

use crate::fill::Ordered;
use crate::round::{At, Round, Seat};

/// Seconds per byte of the slowest store of each store's class.
pub(crate) struct Waits {
    per_byte: Vec<f64>,
}

impl Waits {
    pub fn new(round: &Round<'_>) -> Waits {
        Waits { per_byte: classes(round) }
    }

    /// The slowest store of a majority that has `leader` and the fastest others of the region. `change`
    /// replaces a peer's store by another's.
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
                .map(|at| (Ordered::new(self.waited_for(at)), at))
                .filter(|rank| last.is_none_or(|last| *rank > last))
                .min();
            last = next.or(last);
        }
        match last {
            Some((_, follower)) if self.waited_for(follower) > self.waited_for(leader) => follower,
            _ => leader,
        }
    }

    /// Seconds per byte that the region's writes wait.
    pub fn of(&self, round: &Round<'_>, region: u32, leader: At, change: Option<(At, At)>) -> f64 {
        let slowest = self.slowest_needed(round, region, leader, change);
        let leader = change.filter(|(from, _)| *from == leader).map_or(leader, |(_, to)| to);
        self.waited_for(slowest) + self.waited_for(leader)
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
        let up = round.stores().filter(|&at| round.is_up(at));
        2.0 * up.map(|at| self.waited_for(at)).fold(f64::INFINITY, f64::min)
    }

    /// Seconds per byte as one that others wait for, by its class.
    pub fn waited_for(&self, at: At) -> f64 {
        self.per_byte.get(at as usize).copied().unwrap_or(f64::INFINITY)
    }
}

/// What waits for a store waits for the slowest of its class. A class begins with its slowest store and ends
/// before the first one that is faster by what a leader moves for. For stores that are not up nobody waits.
fn classes(round: &Round<'_>) -> Vec<f64> {
    let speed = |at: At| round.view.stores[at as usize].leader_speed();
    let mut ranked: Vec<At> = round.stores().filter(|&at| round.is_up(at)).collect();
    ranked.sort_unstable_by_key(|&at| speed(at));
    let mut per_byte = vec![f64::INFINITY; round.view.stores.len()];
    let mut slowest = ranked.first().map_or(0, |&at| speed(at));
    for at in ranked {
        if crate::leader_only::is_worth_it(slowest, speed(at), round.limits) {
            slowest = speed(at);
        }
        per_byte[at as usize] = 1.0 / slowest.max(1) as f64;
    }
    per_byte
}
