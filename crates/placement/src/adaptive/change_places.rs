//! Pairs of peers that change places to shorten the total wait of both regions' writes.
//!
//! When the fast stores are full, no follower can move to one. A region with all peers on slow
//! stores would then keep them, even if other regions have more fast peers than they need. A fast
//! store that has become slow leaves such regions behind. In a change of places one region receives
//! a fast peer that another can spare, and each store holds about as much as before.
//!
//! Only followers move. The waits of the two regions before and after are computed in the same way,
//! under the best leaders that the stores can bear ([`Planner::best_wait`]). So the gain of a pair
//! is the loss of its reverse. Rates differ each time they are measured. Peers therefore change
//! places because of rates only if the regions' rates differ twofold, both recently and in the long
//! run ([`Planner::counts`]). To change back, the rates would have to differ twofold the other way.
//! The pair must gain as much as two moves, and more than its copies cost.
//!
//! After these pairs, a region without any fast peer gets one from a region that keeps another,
//! even if the two together gain nothing. Every client eventually waits for such a region, and the
//! model underestimates how much longer a slow leader takes under load. A store counts as fast if
//! writes wait at most half as long for it, whatever its class, because neighbouring classes are
//! close to each other. Such a change is not reversed, because the reverse gains nothing.

use std::collections::BTreeMap;

use super::{Held, Planner, TARGETS_TRIED};
use crate::fill::Ordered;
use crate::round::{Replica, Round, StoreIndex, NOWHERE};
use crate::units::permille;
use crate::Reason;

/// Maximum number of fast stores tried per region, fastest first.
const FAST_TRIED: usize = 8;
/// Maximum number of regions considered per fast store that could give up their peer there,
/// smallest loss first.
const SPARED_TRIED: usize = 64;
/// Maximum number of pairs weighed per round and aim. The search ends after the region at which the
/// maximum is reached.
const WEIGHED_MAX: usize = 50_000;
/// Maximum number of regions without a fast peer considered per round, busiest first. If no region
/// can spare a peer for one of them, none can for the others either.
const RESCUED_TRIED: usize = 256;
/// A store is fast compared with one whose cost is at least this many times as high.
const FAST: f64 = 2.0;

/// The reason why two peers change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// The writes of both regions wait less.
    Gain,
    /// A region without a fast peer gets one.
    Rescue,
}

/// Two moves: a follower of one region goes from `slow` to `fast`, and a follower of the region
/// `spares` goes from `fast` to `slow`. Waits are in seconds per byte times bytes per second.
#[derive(Clone, Copy, Debug)]
struct Pair {
    slow: StoreIndex,
    fast: StoreIndex,
    spares: u32,
    /// The gain of the first region, its wait afterwards, and the loss of `spares`.
    own_gain: f64,
    own_after: f64,
    loss: f64,
    /// The waits of both regions together.
    before: f64,
    after: f64,
    /// Gain and wait of both together, with `spares` weighted by [`Planner::counts`].
    gain: f64,
    of: f64,
}

/// The state of the search for pairs within a round.
struct Search {
    held: Held,
    /// Stores that are up, fastest first, and among equals the least busy.
    fastest: Vec<StoreIndex>,
    /// The regions that could give up their peer on a store, computed once per store.
    spares: BTreeMap<StoreIndex, Vec<u32>>,
    /// For pairs of stores between which no pair of regions was found: the smallest loss of a
    /// region that gives up its peer. A region with a smaller gain need not be tried. Infinite if
    /// no region can give up its peer.
    tried: BTreeMap<(StoreIndex, StoreIndex), f64>,
    weighed: usize,
    ceiling: f64,
}

impl Planner<'_, '_> {
    pub(super) fn change_places(&mut self, wanting: &[u32]) {
        if !has_room(self.round) || wanting.is_empty() {
            return;
        }
        let mut search = Search::new(self);
        self.begin_pairs(wanting, Aim::Gain, &mut search);
        search.weighed = 0;
        let in_need = wanting.iter().filter(|region| self.has_no_fast_peer(**region, &search));
        let in_need: Vec<u32> = in_need.copied().take(RESCUED_TRIED).collect();
        self.begin_pairs(&in_need, Aim::Rescue, &mut search);
    }

    fn begin_pairs(&mut self, regions: &[u32], aim: Aim, search: &mut Search) {
        for &region in regions {
            if !has_room(self.round) || search.weighed >= WEIGHED_MAX {
                break;
            }
            // A peer of the region may already be moving.
            if !self.round.rows[region as usize].free {
                continue;
            }
            if let Some(pair) = self.best_pair(region, aim, search) {
                self.begin_pair(region, pair);
            }
        }
    }

    /// Returns the cost of the region's fastest peer.
    fn best_cost(&self, region: u32) -> f64 {
        let round = &*self.round;
        let cost = |replica: &Replica| round.store_wait(replica.store);
        round.replicas(region).iter().map(cost).fold(f64::INFINITY, f64::min)
    }

    fn has_no_fast_peer(&self, region: u32, search: &Search) -> bool {
        let own = self.best_cost(region);
        search.fastest.first().is_some_and(|&at| FAST * self.round.store_wait(at) <= own)
    }

    fn best_pair(&self, region: u32, aim: Aim, search: &mut Search) -> Option<Pair> {
        let round = &*self.round;
        let leader = round.rows[region as usize].leader;
        let followers = || {
            let replicas = round.replicas(region).iter().map(|replica| replica.store);
            replicas.filter(|&at| at != leader && has_no_copies(round, at))
        };
        let slowest = followers().map(|at| round.log_wait(at)).fold(0.0, f64::max);
        let written = self.loads.demand(region).write_bytes;
        let now = self.best_wait(region, None, |_| 0.0, search.ceiling).0 * written;
        let mut best: Option<Pair> = None;
        for slow in followers().filter(|&at| round.log_wait(at) >= slowest) {
            let companions = round.companions(region, slow, slow);
            let takes = |at: &StoreIndex| {
                has_no_copies(round, *at)
                    && !round.holds(region, *at)
                    && round.companions(region, slow, *at) <= companions
                    // If the store has room, no other peer needs to leave.
                    && !self.has_place(region, *at, search.ceiling)
            };
            let faster = search
                .fastest
                .iter()
                .copied()
                .take_while(|&at| round.store_wait(at) < round.store_wait(slow));
            let faster: Vec<StoreIndex> = faster.take(TARGETS_TRIED).filter(takes).take(FAST_TRIED).collect();
            for fast in faster {
                // `tried` excludes a common gain, but not the rescue of one region.
                let tried = match aim {
                    Aim::Gain => search.tried.get(&(slow, fast)).copied().unwrap_or(0.0),
                    Aim::Rescue => 0.0,
                };
                if tried.is_infinite() {
                    continue;
                }
                search.weighed += 1;
                // An upper bound of the gain, as if `fast` could bear any load.
                let change = Some((slow, fast));
                let after = self.best_wait(region, change, |_| f64::NEG_INFINITY, search.ceiling).0;
                let most = now - after * written;
                if most <= tried || !self.is_worth_a_copy(region, fast, most) {
                    continue;
                }
                search.look_at(self, fast);
                let mut least_loss = f64::INFINITY;
                for &other in &search.spares[&fast] {
                    if aim == Aim::Rescue && !self.could_rescue(region, other, fast) {
                        continue;
                    }
                    search.weighed += 1;
                    let Some(pair) = self.weigh((region, now), other, (slow, fast), search.ceiling) else {
                        continue;
                    };
                    least_loss = least_loss.min(pair.loss);
                    if best.is_none_or(|best| pair.gain > best.gain)
                        && self.is_worth(region, aim, &pair)
                        && self.fits(region, &pair, search.ceiling)
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

    /// Returns true if a follower could move to the store without displacing another one.
    fn has_place(&self, region: u32, at: StoreIndex, ceiling: f64) -> bool {
        let round = &*self.round;
        round.admits(at, round.region(region).bytes)
            && self.loads.busy(at) + self.loads.peer_cost(region, at) <= ceiling
    }

    /// Computes the waits of both regions before and after. Returns `None` if `other` cannot spare
    /// its peer on `fast`.
    fn weigh(
        &self,
        (region, now): (u32, f64),
        other: u32,
        (slow, fast): (StoreIndex, StoreIndex),
        ceiling: f64,
    ) -> Option<Pair> {
        let Planner { round, loads, .. } = self;
        let row = &round.rows[other as usize];
        let can = other != region
            && row.free
            && row.healthy
            && row.leader != fast
            && !round.holds(other, slow)
            && round.companions(other, fast, slow) <= round.companions(other, fast, fast);
        if !can {
            return None;
        }
        let more = |at: StoreIndex| match at {
            _ if at == fast => loads.peer_cost(region, at) - loads.peer_cost(other, at),
            _ if at == slow => loads.peer_cost(other, at) - loads.peer_cost(region, at),
            _ => 0.0,
        };
        let (own, its) = (loads.demand(region).write_bytes, loads.demand(other).write_bytes);
        let counts = self.counts(region, other);
        let after = self.best_wait(region, Some((slow, fast)), more, ceiling).0 * own;
        let other_now = self.best_wait(other, None, |_| 0.0, ceiling).0;
        let other_after = self.best_wait(other, Some((fast, slow)), more, ceiling).0;
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

    /// Returns the write rate in bytes per second with which `other` is weighted. `other` gives up
    /// its peer, and `region` receives it.
    ///
    /// `times` is the ratio of the rate of `region` to the rate of `other`, recently or in the long
    /// run, whichever is smaller. If `times` is at most 2, the weight is the larger of the two
    /// rates. If it is more than 2, the weight is `2 · own / times`, where `own` is the rate of
    /// `region`, or the rate of `other` if that is larger.
    fn counts(&self, region: u32, other: u32) -> f64 {
        let round = &*self.round;
        let times = |own: f64, its: f64| match its.max(0.0) {
            // Nothing is known of either region.
            its if its == 0.0 && own <= 0.0 => f64::INFINITY,
            its => own / its,
        };
        let (own, its) = (self.loads.demand(region).write_bytes, self.loads.demand(other).write_bytes);
        let heat = times(round.region(region).heat, round.region(other).heat);
        let times = times(own, its).min(heat);
        its.max(own.min(2.0 * own / times))
    }

    /// Returns true if `other` may give up its peer on `fast` for a region with only slow peers:
    /// `other` keeps another fast peer, and its rates are at most twice those of `region`.
    fn could_rescue(&self, region: u32, other: u32, fast: StoreIndex) -> bool {
        let round = &*self.round;
        let own = self.best_cost(region);
        let is_fast = |at: StoreIndex| FAST * round.store_wait(at) <= own;
        let (this, giver) = (round.region(region), round.region(other));
        is_fast(fast)
            && round.replicas(other).iter().any(|replica| replica.store != fast && is_fast(replica.store))
            && giver.write_bytes_rate <= 2.0 * this.write_bytes_rate
            && giver.heat <= 2.0 * this.heat
    }

    fn is_worth(&self, region: u32, aim: Aim, pair: &Pair) -> bool {
        let round = &*self.round;
        let leads = |region: u32| round.rows[region as usize].leader;
        let copy =
            |region: u32, to: StoreIndex| self.loads.copy_cost(round.region(region).bytes, leads(region), to);
        let costs = copy(region, pair.fast) + copy(pair.spares, pair.slow);
        // The gain that two moves must have.
        let part = 2.0 * self.gap;
        let (gain, of, at_most) = match aim {
            Aim::Gain => (pair.gain, pair.of, pair.before),
            // This is the gain of the rescued region, at almost no cost to both together.
            Aim::Rescue => (pair.own_gain, pair.own_gain + pair.own_after, pair.before * (1.0 + part)),
        };
        pair.after < at_most && gain > part * of && gain * f64::from(round.limits.repay_seconds) > costs
    }

    /// Returns true if no store gets too busy or so full that it sheds, even while it holds both
    /// peers.
    fn fits(&self, region: u32, pair: &Pair, ceiling: f64) -> bool {
        let Planner { round, loads, .. } = self;
        let bearable = |at: StoreIndex, comes: u32, goes: u32| {
            let more = loads.peer_cost(comes, at) - loads.peer_cost(goes, at);
            more <= 0.0 || loads.busy(at) + more <= ceiling
        };
        let bytes = |region: u32| round.region(region).bytes;
        let has_room =
            |at: StoreIndex, comes: u32, goes: u32| round.admits_for_another(at, bytes(comes), bytes(goes));
        let takers = [(pair.fast, region, pair.spares), (pair.slow, pair.spares, region)];
        takers.into_iter().all(|(at, comes, goes)| bearable(at, comes, goes) && has_room(at, comes, goes))
    }

    fn begin_pair(&mut self, region: u32, pair: Pair) {
        let Pair { slow, fast, spares, .. } = pair;
        let waits_permille = permille(pair.after / pair.before);
        for (region, with, from, to) in [(region, spares, slow, fast), (spares, region, fast, slow)] {
            self.loads.move_peer(self.round, region, from, to);
            let reason = Reason::ChangePlaces { with: self.round.region(with).id, waits_permille };
            self.round.begin_move(region, from, to, reason);
        }
    }
}

/// Returns true if two more copies may begin.
fn has_room(round: &Round<'_>) -> bool {
    round.room() >= 2 && round.data_room() >= 2
}

/// Returns true if no copy goes to or leaves the store and two may begin.
fn has_no_copies(round: &Round<'_>, at: StoreIndex) -> bool {
    round.data_room_at(at) >= round.limits.data_moves_per_store_max.max(2)
}

impl Search {
    fn new(planner: &Planner) -> Search {
        let Planner { round, loads, .. } = planner;
        let mut fastest: Vec<StoreIndex> = round.stores().filter(|&at| round.is_up(at)).collect();
        fastest.sort_unstable_by_key(|&at| {
            (Ordered::new(round.store_wait(at)), Ordered::new(loads.busy(at)), at)
        });
        Search {
            held: Held::new(round),
            fastest,
            spares: BTreeMap::new(),
            tried: BTreeMap::new(),
            weighed: 0,
            ceiling: planner.ceiling(),
        }
    }

    /// Finds the regions with a follower on the store, sorted by their loss without it. Skips
    /// regions below the minimum size, because moving them frees no room.
    fn look_at(&mut self, planner: &Planner, fast: StoreIndex) {
        let held = &self.held;
        let Planner { round, loads, .. } = planner;
        self.spares.entry(fast).or_insert_with(|| {
            let loss = |region: u32| {
                let leader = round.rows[region as usize].leader;
                let now = round.wait(region, leader, None);
                (round.wait(region, leader, Some((fast, NOWHERE))) - now) * loads.demand(region).write_bytes
            };
            let followed = held.by(fast).iter().copied().filter(|&region| {
                round.rows[region as usize].leader != fast
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
