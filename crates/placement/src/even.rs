//! Leaders under `even` (ED, the usual scheme; ALOR §3.1, §4.1): every live store leads as many
//! user regions as any other. [`crate::data`] balances data.
//!
//! A leader can only move to one of its region's peers. A direct move from a store that leads many
//! regions to one that leads few may therefore be impossible, although a move through a third store
//! is possible. The leaders form a semi-matching between regions and stores. Such a matching is as
//! even as the peers allow exactly if no chain of moves leads from a store to another with at least
//! two leaders fewer (Harvey, Ladner, Lovász, Tamir: *Semi-matchings for bipartite graphs and load
//! balancing*). The planner repeatedly finds the shortest such chain from the store that leads most
//! and begins its moves. Each chain lowers the sum of squared counts, so this ends.
//!
//! The meta region's leader is neither counted nor moved.

use std::collections::VecDeque;

use types::META_REGION;

use crate::data::Allow;
use crate::round::{Round, StoreIndex};
use crate::Reason;

/// The ranking of regions that could move: the least busy first, because fewest clients notice,
/// then the id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pick {
    rate: u64,
    /// Position in the view, which is sorted by id.
    region: u32,
}

/// The movable regions of every store with their candidates, in flat arrays. A search visits up to
/// a few million candidates, and following a pointer for each would dominate its cost.
struct Movable {
    /// Store `s` leads `led[starts[s]..starts[s + 1]]`.
    starts: Vec<u32>,
    led: Vec<Led>,
    candidates: Vec<StoreIndex>,
}

#[derive(Clone, Copy)]
struct Led {
    pick: Pick,
    /// Position in `Movable::candidates`.
    first: u32,
    count: u32,
    /// True if an operator of this round moves the region.
    taken: bool,
}

/// One step of a chain: the leader of the region at position `led` moves from `from` to `to`.
#[derive(Clone, Copy)]
struct Step {
    from: StoreIndex,
    to: StoreIndex,
    led: u32,
}

pub(crate) fn plan(round: &mut Round<'_>, allow: &mut impl Allow) {
    if round.room() == 0 || !is_uneven(round) {
        return;
    }
    let mut movable = Movable::new(round);
    let mut search = Search::new(round.view.stores.len());
    while round.room() > 0 {
        let Some(mut chain) = search.find(round, &movable, allow) else { break };
        let (most, least) = (chain[0].from, chain[chain.len() - 1].to);
        let counts = &round.totals.leaders;
        let (most_leaders, least_leaders) = (counts[most as usize], counts[least as usize]);
        let steps = chain.len() as u32;
        if chain.len() > round.room() {
            if round.room() < round.limits.in_flight_max {
                break;
            }
            // The chain is longer than the budget of a whole round. If it begins at its far end, a
            // shorter chain remains for the next round.
            chain.drain(..chain.len() - round.room());
        }
        for (step, &Step { from, to, led }) in (steps - chain.len() as u32 + 1..).zip(&chain) {
            let led = &mut movable.led[led as usize];
            led.taken = true;
            let region = led.pick.region;
            let reason = Reason::LeaderCounts {
                most: round.id(most),
                most_leaders,
                least: round.id(least),
                least_leaders,
                step,
                steps,
            };
            round.begin_transfer(region, from, to, reason);
            allow.begun(round, region, from, to);
        }
    }
}

fn is_uneven(round: &Round<'_>) -> bool {
    let live =
        || round.totals.leaders.iter().zip(0..).filter(|(_, at)| round.is_up(*at)).map(|(count, _)| *count);
    live().max().unwrap_or(0) >= live().min().unwrap_or(0) + 2
}

impl Movable {
    fn new(round: &Round<'_>) -> Movable {
        let stores = round.view.stores.len();
        let mut by_leader: Vec<(StoreIndex, u32)> = Vec::with_capacity(round.rows.len());
        for (at, row) in (0..).zip(&round.rows) {
            if row.free && round.is_up(row.leader) && round.region(at).id != META_REGION {
                by_leader.push((row.leader, at));
            }
        }
        let mut starts = vec![0u32; stores + 1];
        for &(leader, _) in &by_leader {
            starts[leader as usize + 1] += 1;
        }
        for store in 0..stores {
            starts[store + 1] += starts[store];
        }
        let unset = Led { pick: Pick { rate: 0, region: 0 }, first: 0, count: 0, taken: false };
        let mut led = vec![unset; by_leader.len()];
        let mut next = starts.clone();
        let mut candidates = Vec::with_capacity(2 * by_leader.len());
        for (leader, region) in by_leader {
            let first = candidates.len() as u32;
            candidates.extend(round.able(region));
            let place = &mut next[leader as usize];
            led[*place as usize] = Led {
                pick: Pick { rate: round.region(region).rate(), region },
                first,
                count: candidates.len() as u32 - first,
                taken: false,
            };
            *place += 1;
        }
        Movable { starts, led, candidates }
    }

    fn led_by(&self, store: StoreIndex) -> std::ops::Range<u32> {
        self.starts[store as usize]..self.starts[store as usize + 1]
    }

    fn candidates_of(&self, led: &Led) -> &[StoreIndex] {
        &self.candidates[led.first as usize..(led.first + led.count) as usize]
    }
}

/// A breadth-first search for chains that remembers exhausted stores.
struct Search {
    /// For each store, true if no store with two leaders fewer can be reached from it. This stays
    /// true within a round, for three reasons. Every store reachable from an exhausted store is
    /// exhausted too and leads at most one region fewer. Chains do not pass through exhausted
    /// stores. Budgets only shrink. (The CPU of a store that gives up a leader may get room for
    /// another, but only the next round sees that.)
    exhausted: Vec<bool>,
    /// The step by which the current search reached each store.
    reached_by: Vec<Option<Step>>,
    queue: VecDeque<StoreIndex>,
    visited: Vec<StoreIndex>,
}

impl Search {
    fn new(stores: usize) -> Search {
        Search {
            exhausted: vec![false; stores],
            reached_by: vec![None; stores],
            queue: VecDeque::new(),
            visited: Vec::new(),
        }
    }

    /// Returns the shortest chain from the store that leads most, among stores that have a chain.
    fn find(&mut self, round: &Round<'_>, movable: &Movable, allow: &impl Allow) -> Option<Vec<Step>> {
        let counts = &round.totals.leaders;
        loop {
            let live =
                (0..counts.len() as StoreIndex).filter(|&at| round.is_up(at) && !self.exhausted[at as usize]);
            // `max_by_key` would return the last of equals; the lowest id is wanted.
            let source = live.min_by_key(|&at| (std::cmp::Reverse(counts[at as usize]), at))?;
            if counts[source as usize] < 2 {
                return None;
            }
            let found = self.search_from(source, round, movable, allow);
            let chain = found.map(|last| self.chain_to(source, last));
            for at in self.visited.drain(..) {
                self.reached_by[at as usize] = None;
                self.exhausted[at as usize] |= chain.is_none();
            }
            if chain.is_some() {
                return chain;
            }
        }
    }

    /// Returns the last step of a shortest chain. Among stores at equal distance, it ends at the
    /// one that leads the fewest regions.
    fn search_from(
        &mut self,
        source: StoreIndex,
        round: &Round<'_>,
        movable: &Movable,
        allow: &impl Allow,
    ) -> Option<Step> {
        let counts = &round.totals.leaders;
        let low = counts[source as usize] - 2;
        self.queue.clear();
        self.queue.push_back(source);
        self.visited.push(source);
        while let Some(from) = self.queue.pop_front() {
            let mut best: Option<(u32, StoreIndex, Pick, Step)> = None;
            for at in movable.led_by(from) {
                let led = &movable.led[at as usize];
                if led.taken {
                    continue;
                }
                for &to in movable.candidates_of(led) {
                    if to == source || self.exhausted[to as usize] || !round.has_room_towards(to) {
                        continue;
                    }
                    let region = led.pick.region;
                    if !round.cpu_allows(region, to) || !allow.allows(round, region, from, to) {
                        continue;
                    }
                    let step = Step { from, to, led: at };
                    if counts[to as usize] <= low {
                        let rank = (counts[to as usize], to, led.pick);
                        if best.is_none_or(|(count, store, pick, _)| rank < (count, store, pick)) {
                            best = Some((rank.0, rank.1, rank.2, step));
                        }
                    } else {
                        match &mut self.reached_by[to as usize] {
                            // Among regions of the same store, the less busy one is preferred.
                            Some(known) if known.from == from => {
                                if led.pick < movable.led[known.led as usize].pick {
                                    *known = step;
                                }
                            }
                            Some(_) => {}
                            unreached => {
                                *unreached = Some(step);
                                self.visited.push(to);
                                self.queue.push_back(to);
                            }
                        }
                    }
                }
            }
            if let Some((_, _, _, step)) = best {
                return Some(step);
            }
        }
        None
    }

    fn chain_to(&self, source: StoreIndex, last: Step) -> Vec<Step> {
        let mut chain = vec![last];
        let mut from = last.from;
        while from != source {
            let step = self.reached_by[from as usize].expect("a chain begins at its source");
            chain.push(step);
            from = step.from;
        }
        chain.reverse();
        chain
    }
}
