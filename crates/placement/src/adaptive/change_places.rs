//! Two peers that change places, so that the writes of both regions together wait less.
//!
//! Fast stores are full sooner or later. Then no follower can come to one, and a region that has all its peers on slow
//! stores keeps them, however many others have more fast ones than they need: a fast store that has become slow leaves
//! such regions behind. What one region can spare another one takes, and each store holds about as much as before.
//!
//! Only followers are moved. What the two regions wait before and after is measured alike, under the best leaders that
//! stores can bear ([`Planner::best_wait`]), so that what a pair gains is what its opposite would lose. Rates are never
//! twice the same, so for their sake alone peers change places only when they differ twofold, lately and on the long
//! run ([`Planner::counts`]), and to change back they would have to differ as much the other way. Together the two gain
//! what two moves should, and what the copies cost.
//!
//! After these a region that has no fast peer at all gets one from a region that keeps another, also where the two together
//! gain nothing: every client waits for it sooner or later, and how much longer a slow store's leader takes when it has
//! much to do is more than the model knows. Fast is what is waited for half as long, not a class: those are near each
//! other. To change back would gain nobody anything, so it is not done.

use std::collections::BTreeMap;

use super::{permille, Held, Planner, TARGETS_TRIED};
use crate::fill::{Fill, Ordered};
use crate::round::{At, Round, Seat, NOWHERE};
use crate::{Operator, Reason};

/// Of the fastest stores so many are looked at for each region, …
const FAST_TRIED: usize = 8;
/// … and of what each could spare so many regions, those that lose least first.
const SPARED_TRIED: usize = 64;
/// In one round no more pairs are weighed.
const WEIGHED_MAX: usize = 50_000;
/// Of regions without a fast peer so many are looked at, those first of which most is asked: what nobody spares one, spares
/// the others none.
const RESCUED_TRIED: usize = 256;
/// Beside a store that is waited for so many times as long one is fast.
const FAST: f64 = 2.0;

/// For what two peers change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// The writes of both wait less.
    Gain,
    /// The one has a fast peer then, too.
    Rescue,
}

/// A follower of the one region goes from `slow` to `fast`, and one of the other comes back. Waits are in seconds per
/// byte by bytes per second.
#[derive(Clone, Copy, Debug)]
struct Pair {
    slow: At,
    fast: At,
    spares: u32,
    /// Of the one that gets the fast peer alone, and of the other.
    own_gain: f64,
    own_after: f64,
    loss: f64,
    /// Of both, …
    before: f64,
    after: f64,
    /// … and with the other counted for more than is asked of it.
    gain: f64,
    of: f64,
}

/// What a round has found out.
struct Search {
    held: Held,
    /// Stores that are up, those first that others wait for least, the calmest of equals.
    fastest: Vec<At>,
    /// What stores could spare, each looked at once.
    spares: BTreeMap<At, Vec<u32>>,
    /// Between two stores nothing was found: who spares a peer loses as much at least, and what gains no more need not
    /// be tried.
    tried: BTreeMap<(At, At), f64>,
    weighed: usize,
    ceiling: f64,
}

impl Planner {
    pub(super) fn change_places(
        &mut self,
        round: &mut Round<'_>,
        fill: &mut Fill,
        wanting: &[u32],
        operators: &mut Vec<Operator>,
    ) {
        if !has_room(round) || wanting.is_empty() {
            return;
        }
        let mut search = Search::new(round, self);
        self.begin_pairs(round, fill, wanting, Aim::Gain, &mut search, operators);
        search.weighed = 0;
        let in_need = wanting.iter().filter(|region| self.has_no_fast_peer(round, **region, &search));
        let in_need: Vec<u32> = in_need.copied().take(RESCUED_TRIED).collect();
        self.begin_pairs(round, fill, &in_need, Aim::Rescue, &mut search, operators);
    }

    fn begin_pairs(
        &mut self,
        round: &mut Round<'_>,
        fill: &mut Fill,
        regions: &[u32],
        aim: Aim,
        search: &mut Search,
        operators: &mut Vec<Operator>,
    ) {
        for &region in regions {
            if !has_room(round) || search.weighed >= WEIGHED_MAX {
                break;
            }
            // A peer of it may be on its way already, for its own sake or to make room.
            if !round.cells[region as usize].free {
                continue;
            }
            if let Some(pair) = self.best_pair(round, fill, region, aim, search) {
                self.begin_pair(round, fill, region, pair, operators);
            }
        }
    }

    /// How little the region's best peer is waited for.
    fn best_cost(&self, round: &Round<'_>, region: u32) -> f64 {
        let cost = |seat: &Seat| self.loads.waits.cost(seat.store);
        round.seats(region).iter().map(cost).fold(f64::INFINITY, f64::min)
    }

    fn has_no_fast_peer(&self, round: &Round<'_>, region: u32, search: &Search) -> bool {
        let own = self.best_cost(round, region);
        search.fastest.first().is_some_and(|&at| FAST * self.loads.waits.cost(at) <= own)
    }

    fn best_pair(
        &self,
        round: &Round<'_>,
        fill: &Fill,
        region: u32,
        aim: Aim,
        search: &mut Search,
    ) -> Option<Pair> {
        let (waits, leader) = (&self.loads.waits, round.cells[region as usize].leader);
        let followers = || {
            let seats = round.seats(region).iter().map(|seat| seat.store);
            seats.filter(|&at| at != leader && has_no_copies(round, at))
        };
        let slowest = followers().map(|at| waits.log(at)).fold(0.0, f64::max);
        let written = self.loads.demand(region).write_bytes;
        let now = self.best_wait(round, region, None, |_| 0.0, search.ceiling).0 * written;
        let mut best: Option<Pair> = None;
        for slow in followers().filter(|&at| waits.log(at) >= slowest) {
            let companions = round.companions(region, slow, slow);
            let takes = |at: &At| {
                has_no_copies(round, *at)
                    && !round.holds(region, *at)
                    && round.companions(region, slow, *at) <= companions
                    // Where there is room nobody has to go.
                    && !self.has_place(round, fill, region, *at, search.ceiling)
            };
            let faster = search.fastest.iter().copied().take_while(|&at| waits.cost(at) < waits.cost(slow));
            let faster: Vec<At> = faster.take(TARGETS_TRIED).filter(takes).take(FAST_TRIED).collect();
            for fast in faster {
                // What was tried rules out that both gain, and not that one is rescued.
                let tried = match aim {
                    Aim::Gain => search.tried.get(&(slow, fast)).copied().unwrap_or(0.0),
                    Aim::Rescue => 0.0,
                };
                if tried.is_infinite() {
                    continue;
                }
                search.weighed += 1;
                // At most, whatever the other's peer leaves free.
                let change = Some((slow, fast));
                let after = self.best_wait(round, region, change, |_| f64::NEG_INFINITY, search.ceiling).0;
                let most = now - after * written;
                if most <= tried || !self.is_worth_a_copy(round, region, fast, most) {
                    continue;
                }
                search.look_at(self, round, fast);
                let mut least_loss = f64::INFINITY;
                for &other in &search.spares[&fast] {
                    if aim == Aim::Rescue && !self.could_rescue(round, region, other, fast) {
                        continue;
                    }
                    search.weighed += 1;
                    let Some(pair) = self.weigh(round, (region, now), other, (slow, fast), search.ceiling)
                    else {
                        continue;
                    };
                    least_loss = least_loss.min(pair.loss);
                    if best.is_none_or(|best| pair.gain > best.gain)
                        && self.is_worth(round, region, aim, &pair)
                        && self.fits(round, fill, region, &pair, search.ceiling)
                    {
                        best = Some(pair);
                    }
                }
                if best.is_none() && aim == Aim::Gain {
                    search.tried.insert((slow, fast), least_loss);
                }
            }
        }
        best
    }

    /// Whether a follower could come there and nobody would have to go.
    fn has_place(&self, round: &Round<'_>, fill: &Fill, region: u32, at: At, ceiling: f64) -> bool {
        fill.admits(round, at, round.region(region).bytes)
            && self.loads.busy(at) + self.loads.peer_cost(region, at) <= ceiling
    }

    /// What both regions wait before and after; `None`: the other cannot spare that follower.
    fn weigh(
        &self,
        round: &Round<'_>,
        (region, now): (u32, f64),
        other: u32,
        (slow, fast): (At, At),
        ceiling: f64,
    ) -> Option<Pair> {
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
        let loads = &self.loads;
        let more = |at: At| match at {
            _ if at == fast => loads.peer_cost(region, at) - loads.peer_cost(other, at),
            _ if at == slow => loads.peer_cost(other, at) - loads.peer_cost(region, at),
            _ => 0.0,
        };
        let (own, its) = (loads.demand(region).write_bytes, loads.demand(other).write_bytes);
        let counts = self.counts(round, region, other);
        let after = self.best_wait(round, region, Some((slow, fast)), more, ceiling).0 * own;
        let other_now = self.best_wait(round, other, None, |_| 0.0, ceiling).0;
        let other_after = self.best_wait(round, other, Some((fast, slow)), more, ceiling).0;
        let loss = other_after - other_now;
        Some(Pair {
            slow,
            fast,
            spares: other,
            own_gain: now - after,
            own_after: after,
            loss: loss * its,
            before: now + other_now * its,
            after: after + other_after * its,
            gain: (now - after) - loss * if loss > 0.0 { counts } else { its },
            of: now + other_now * counts,
        })
    }

    /// What `other` counts for that spares a peer: for as much as the region that it spares it for, or for twice what is
    /// asked of it where less is asked of it by more than half, both lately and on the long run.
    fn counts(&self, round: &Round<'_>, region: u32, other: u32) -> f64 {
        let times = |own: f64, its: f64| match its.max(0.0) {
            // Of neither anything is known.
            its if its == 0.0 && own <= 0.0 => f64::INFINITY,
            its => own / its,
        };
        let (own, its) = (self.loads.demand(region).write_bytes, self.loads.demand(other).write_bytes);
        let heat = times(round.region(region).heat, round.region(other).heat);
        let times = times(own, its).min(heat);
        its.max(own.min(2.0 * own / times))
    }

    /// Whether a region of slow peers only may be spared the other's on `fast`: that one keeps another fast peer, and no
    /// more than twice as much is asked of it.
    fn could_rescue(&self, round: &Round<'_>, region: u32, other: u32, fast: At) -> bool {
        let own = self.best_cost(round, region);
        let is_fast = |at: At| FAST * self.loads.waits.cost(at) <= own;
        let (this, giver) = (round.region(region), round.region(other));
        is_fast(fast)
            && round.seats(other).iter().any(|seat| seat.store != fast && is_fast(seat.store))
            && giver.write_bytes_rate <= 2.0 * this.write_bytes_rate
            && giver.heat <= 2.0 * this.heat
    }

    fn is_worth(&self, round: &Round<'_>, region: u32, aim: Aim, pair: &Pair) -> bool {
        let leads = |region: u32| round.cells[region as usize].leader;
        let copy = |region: u32, to: At| self.loads.copy_cost(round.region(region).bytes, leads(region), to);
        let costs = copy(region, pair.fast) + copy(pair.spares, pair.slow);
        // What two moves should gain.
        let part = 2.0 * self.gap;
        let (gain, of, at_most) = match aim {
            Aim::Gain => (pair.gain, pair.of, pair.before),
            // For the one that is rescued, at next to no cost for both.
            Aim::Rescue => (pair.own_gain, pair.own_gain + pair.own_after, pair.before * (1.0 + part)),
        };
        pair.after < at_most && gain > part * of && gain * f64::from(round.limits.repay_seconds) > costs
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
        let Pair { slow, fast, spares, .. } = pair;
        let waits_permille = permille(pair.after / pair.before);
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

/// For two operators that copy.
fn has_room(round: &Round<'_>) -> bool {
    round.room() >= 2 && round.data_room() >= 2
}

/// Whether no copy comes to the store or leaves it, and two may begin.
fn has_no_copies(round: &Round<'_>, at: At) -> bool {
    round.data_room_at(at) >= round.limits.data_moves_per_store_max.max(2)
}

impl Search {
    fn new(round: &Round<'_>, planner: &Planner) -> Search {
        let loads = &planner.loads;
        let mut fastest: Vec<At> = round.stores().filter(|&at| round.is_up(at)).collect();
        fastest.sort_unstable_by_key(|&at| {
            (Ordered::new(loads.waits.cost(at)), Ordered::new(loads.busy(at)), at)
        });
        Search {
            held: Held::new(round),
            fastest,
            spares: BTreeMap::new(),
            tried: BTreeMap::new(),
            weighed: 0,
            ceiling: planner.ceiling(round),
        }
    }

    /// Finds the regions with a follower there, in the order of what they would lose with nothing in its place. Small
    /// ones would make no room.
    fn look_at(&mut self, planner: &Planner, round: &Round<'_>, fast: At) {
        let held = &self.held;
        self.spares.entry(fast).or_insert_with(|| {
            let loss = |region: u32| {
                let (waits, leader) = (&planner.loads.waits, round.cells[region as usize].leader);
                let now = waits.of(round, region, leader, None);
                (waits.of(round, region, leader, Some((fast, NOWHERE))) - now)
                    * planner.loads.demand(region).write_bytes
            };
            let followed = held.by(fast).iter().copied().filter(|&region| {
                round.cells[region as usize].leader != fast
                    && round.region(region).bytes >= round.limits.region_bytes_min
            });
            let mut ranked: Vec<(Ordered, u32)> =
                followed.map(|region| (Ordered::new(loss(region)), region)).collect();
            ranked.sort_unstable();
            ranked.truncate(SPARED_TRIED);
            ranked.into_iter().map(|(_, region)| region).collect()
        });
    }
}
