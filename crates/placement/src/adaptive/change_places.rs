//! Two peers that change places, so that the writes of both regions together wait less.
//!
//! Fast stores are full sooner or later. Then no follower can come to one, and a region that has all its peers on slow
//! stores keeps them, however many others have more fast ones than they need: a fast store that has become slow leaves
//! such regions behind. What one region can spare another one takes, and each store holds as much as before.
//!
//! Only a follower is spared. Rates are never twice the same, so the region that spares it counts for up to twice what
//! is asked of it, as long as that is no more than what is asked of the other: for the sake of rates alone peers change places when
//! these differ twofold, and to change back they would have to differ as much the other way. Together the two gain
//! what two moves should, and what the copies cost.

use std::cmp::Reverse;

use super::{permille, Held, Planner};
use crate::fill::{Fill, Ordered};
use crate::round::{At, Round, NOWHERE};
use crate::{Operator, Reason};

/// The fastest stores are looked at, so many, …
const FAST_TRIED: usize = 8;
/// … and of what each could spare so many regions, those that lose least first.
const SPARED_TRIED: usize = 64;
/// In one round no more regions and pairs of them are weighed.
const WEIGHED_MAX: usize = 100_000;

/// A follower of the one region goes from `slow` to `fast`, and one of the other comes back.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Bytes written per second, by the seconds that each waits: less by so much, of so much.
    gain: f64,
    of: f64,
    slow: At,
    fast: At,
    spares: u32,
}

/// What a round has found out.
struct Search {
    held: Held,
    /// Stores that are up, those first that others wait for least.
    fastest: Vec<At>,
    /// What stores could spare, each looked at once.
    spares: Vec<Option<Vec<u32>>>,
    weighed: usize,
    ceiling: f64,
}

impl Planner {
    pub(super) fn change_places(
        &mut self,
        round: &mut Round<'_>,
        fill: &mut Fill,
        operators: &mut Vec<Operator>,
    ) {
        let has_room = |round: &Round<'_>| round.room() >= 2 && round.data_room() >= 2;
        if !has_room(round) {
            return;
        }
        let mut wanting = self.wanting(round);
        if wanting.is_empty() {
            return;
        }
        wanting.sort_unstable();
        let mut search = Search::new(round, self);
        for (_, region) in wanting {
            if !has_room(round) || search.weighed >= WEIGHED_MAX {
                break;
            }
            if let Some(pair) = self.best_pair(round, fill, region, &mut search) {
                self.begin_pair(round, fill, region, pair, operators);
            }
        }
    }

    /// Regions whose writes could wait less, those first that could gain most.
    fn wanting(&self, round: &Round<'_>) -> Vec<(Reverse<Ordered>, u32)> {
        let least = self.loads.waits.least(round);
        let mut wanting = Vec::new();
        for (region, cell) in (0..).zip(&round.cells) {
            let written = self.loads.demand(region).write_bytes;
            if !cell.healthy || !cell.free || written <= 0.0 || round.region(region).id == types::META_REGION
            {
                continue;
            }
            let most = (self.loads.waits.of(round, region, cell.leader, None) - least) * written;
            if self.is_worth_a_copy(round, region, cell.leader, most) {
                wanting.push((Reverse(Ordered::new(most)), region));
            }
        }
        wanting
    }

    /// Whether what is gained in a second is worth a copy.
    fn is_worth_a_copy(&self, round: &Round<'_>, region: u32, to: At, gain: f64) -> bool {
        let cost = self.loads.copy_cost(round.region(region).bytes, round.cells[region as usize].leader, to);
        gain > 0.0 && gain * f64::from(round.limits.repay_seconds) > cost
    }

    fn best_pair(&self, round: &Round<'_>, fill: &Fill, region: u32, search: &mut Search) -> Option<Pair> {
        search.weighed += 1;
        let (waits, leader, ceiling) =
            (&self.loads.waits, round.cells[region as usize].leader, search.ceiling);
        let followers = round.seats(region).iter().map(|seat| seat.store).filter(|&at| at != leader);
        let slow = followers
            .filter(|&at| round.data_room_at(at) >= 2)
            .max_by_key(|&at| (Ordered::new(waits.log(at)), Reverse(at)))?;
        let written = self.loads.demand(region).write_bytes;
        let now = waits.of(round, region, leader, None);
        let takes = |at: &At| {
            round.data_room_at(*at) >= 2
                && !round.holds(region, *at)
                && round.companions(region, slow, *at) <= round.companions(region, slow, slow)
        };
        let fastest = search.fastest.iter().copied().take_while(|&at| waits.log(at) < waits.log(slow));
        let fastest: Vec<At> = fastest.filter(takes).take(FAST_TRIED).collect();
        let mut best: Option<Pair> = None;
        for fast in fastest {
            let gain = (now - self.wait_with(round, region, (slow, fast), ceiling)) * written;
            if !self.is_worth_a_copy(round, region, fast, gain) {
                continue;
            }
            for &other in search.spared_by(self, round, fast) {
                let Some((loss, of)) = self.loss(round, region, other, (slow, fast)) else { continue };
                let pair = Pair { gain: gain - loss, of: now * written + of, slow, fast, spares: other };
                if best.is_none_or(|best| pair.gain > best.gain)
                    && self.is_worth(round, region, &pair)
                    && self.fits(round, fill, region, &pair, ceiling)
                {
                    best = Some(pair);
                }
            }
        }
        best
    }

    /// How long writes wait once the follower has moved, under the present leader, or under the new peer if its store
    /// can bear that.
    fn wait_with(&self, round: &Round<'_>, region: u32, (slow, fast): (At, At), ceiling: f64) -> f64 {
        let (loads, leader) = (&self.loads, round.cells[region as usize].leader);
        let wait = |leader| loads.waits.of(round, region, leader, Some((slow, fast)));
        let bearable = loads.busy(fast) + loads.lead_cost(region, fast) <= ceiling;
        // Named by where it is now, the peer that moves is the one on `slow`.
        wait(leader).min(if bearable { wait(slow) } else { f64::INFINITY })
    }

    /// What `other` loses by sparing its follower on `fast`, and what it waits now; `None`: it cannot.
    fn loss(&self, round: &Round<'_>, region: u32, other: u32, (slow, fast): (At, At)) -> Option<(f64, f64)> {
        let cell = &round.cells[other as usize];
        let can = other != region
            && cell.free
            && cell.healthy
            && cell.leader != fast
            && !round.holds(other, slow)
            && round.companions(other, fast, slow) <= round.companions(other, fast, fast);
        if !can {
            return None;
        }
        let waits = &self.loads.waits;
        let now = waits.of(round, other, cell.leader, None);
        let after = waits.of(round, other, cell.leader, Some((fast, slow)));
        let (own, its) = (self.loads.demand(region).write_bytes, self.loads.demand(other).write_bytes);
        let counts = its.max((2.0 * its).min(own));
        Some(((after - now) * counts, now * counts))
    }

    fn is_worth(&self, round: &Round<'_>, region: u32, pair: &Pair) -> bool {
        let leads = |region: u32| round.cells[region as usize].leader;
        let copy = |region: u32, to: At| self.loads.copy_cost(round.region(region).bytes, leads(region), to);
        let costs = copy(region, pair.fast) + copy(pair.spares, pair.slow);
        pair.gain > 2.0 * self.gap * pair.of && pair.gain * f64::from(round.limits.repay_seconds) > costs
    }

    /// No store gets too busy, or so full that it sheds, not even while it holds both.
    fn fits(&self, round: &Round<'_>, fill: &Fill, region: u32, pair: &Pair, ceiling: f64) -> bool {
        let loads = &self.loads;
        let bearable = |at: At, comes: u32, goes: u32| {
            let more = loads.peer_cost(comes, at) - loads.peer_cost(goes, at);
            more <= 0.0 || loads.busy(at) + more <= ceiling
        };
        let bytes = |region: u32| round.region(region).bytes;
        let has_room =
            |at: At, comes: u32, goes: u32| fill.admits_for_another(round, at, bytes(comes), bytes(goes));
        let takers = [(pair.fast, region, pair.spares), (pair.slow, pair.spares, region)];
        takers.into_iter().all(|(at, comes, goes)| bearable(at, comes, goes) && has_room(at, comes, goes))
    }

    fn begin_pair(
        &mut self,
        round: &mut Round<'_>,
        fill: &mut Fill,
        region: u32,
        pair: Pair,
        operators: &mut Vec<Operator>,
    ) {
        let Pair { gain, of, slow, fast, spares } = pair;
        let waits_permille = permille((of - gain) / of);
        for (region, with, from, to) in [(region, spares, slow, fast), (spares, region, fast, slow)] {
            self.loads.move_peer(round, region, from, to);
            let (id, with) = (round.region(region).id, round.region(with).id);
            let reason = Reason::ChangePlaces { with, waits_permille };
            let operator = Operator::MovePeer { region: id, from: round.id(from), to: round.id(to), reason };
            round.begin(region, &operator);
            operators.push(operator);
        }
        fill.refresh(round);
    }
}

impl Search {
    fn new(round: &Round<'_>, planner: &Planner) -> Search {
        let mut fastest: Vec<At> = round.stores().filter(|&at| round.is_up(at)).collect();
        fastest.sort_unstable_by_key(|&at| (Ordered::new(planner.loads.waits.log(at)), at));
        Search {
            held: Held::new(round),
            fastest,
            spares: vec![None; round.view.stores.len()],
            weighed: 0,
            ceiling: planner.ceiling(round),
        }
    }

    /// Regions with a follower there, in the order of what they would lose with nothing in its place.
    fn spared_by(&mut self, planner: &Planner, round: &Round<'_>, fast: At) -> &[u32] {
        let held = &self.held;
        let spares = self.spares[fast as usize].get_or_insert_with(|| {
            let loss = |region: u32| {
                let (waits, leader) = (&planner.loads.waits, round.cells[region as usize].leader);
                let now = waits.of(round, region, leader, None);
                (waits.of(round, region, leader, Some((fast, NOWHERE))) - now)
                    * planner.loads.demand(region).write_bytes
            };
            let followed = held.by(fast).iter().filter(|&&at| round.cells[at as usize].leader != fast);
            let mut ranked: Vec<(Ordered, u32)> =
                followed.map(|&region| (Ordered::new(loss(region)), region)).collect();
            ranked.sort_unstable();
            ranked.truncate(SPARED_TRIED);
            ranked.into_iter().map(|(_, region)| region).collect()
        });
        self.weighed += spares.len();
        spares
    }
}
