//! The initial layout of a cluster: the slots and peers of each region.
//!
//! Every store computes the layout from its configuration at every start to find its peers.
//! Therefore **the result for given inputs must never change**; a test compares it with samples.

use std::collections::BTreeMap;

use placement::{ClusterView, Operator, PeerView, PlanLimits, Policy, RegionView, StoreView};
use types::{PeerRole, RegionDescriptor, RegionId, SlotRange, StoreId, META_REGION};

/// Number of peers of the meta region at bootstrap. Three survive the loss of one store; more would
/// slow its commits.
const META_REPLICAS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The members, sorted, without duplicates.
    pub stores: Vec<StoreId>,
    /// Number of user regions, which share the slots evenly; 1 without cluster mode.
    pub regions: u16,
    /// Number of peers of each user region. It is limited to the number of stores.
    pub replicas: usize,
}

/// Returns region 0 on the first three stores, then the user regions in the order of their slots.
/// The numbers of peers per store differ by at most one. The numbers of regions that any two stores
/// share are nearly equal. So when a store fails, all others take an equal part of its work.
///
/// # Panics
/// If there are no stores, they are not sorted, or `regions` or `replicas` is 0.
pub fn bootstrap_plan(layout: &Layout) -> Vec<RegionDescriptor> {
    let Layout { stores, regions, replicas } = layout;
    assert!(!stores.is_empty() && *replicas >= 1, "a region needs a store and a peer");
    assert!(stores.windows(2).all(|pair| pair[0] < pair[1]), "stores are sorted");
    let meta = stores.iter().take(META_REPLICAS).copied().collect();
    let mut plan = vec![descriptor(META_REGION, None, meta)];
    let peers = spread_peers(stores.len(), usize::from(*regions), (*replicas).min(stores.len()));
    for ((range, id), chosen) in SlotRange::split_evenly(*regions).into_iter().zip(1..).zip(peers) {
        plan.push(descriptor(id, Some(range), chosen.into_iter().map(|at| stores[at]).collect()));
    }
    plan
}

fn descriptor(id: RegionId, slots: Option<SlotRange>, mut stores: Vec<StoreId>) -> RegionDescriptor {
    stores.sort_unstable();
    RegionDescriptor::founded(id, slots, &stores)
}

/// Maximum number of following regions with which a region is compared when shared regions are
/// balanced.
const WINDOW: usize = 64;
const PASSES_MAX: usize = 16;

/// Returns, for each region, the positions of its peers' stores.
///
/// The first pass fills one region after the other. It balances the numbers of peers but leaves
/// some pairs of stores together too often. Later passes let two regions exchange a store each, as
/// long as this lowers the sum of squares of the shared regions. An exchange does not change any
/// store's number of peers.
fn spread_peers(stores: usize, regions: usize, replicas: usize) -> Vec<Vec<usize>> {
    let mut spread = Spread { peers: vec![0; stores], together: vec![vec![0; stores]; stores] };
    let mut chosen: Vec<Vec<usize>> = (0..regions).map(|_| spread.choose(replicas)).collect();
    for _ in 0..PASSES_MAX {
        let mut improved = false;
        for one in 0..regions {
            for other in one + 1..regions.min(one + 1 + WINDOW) {
                let (head, tail) = chosen.split_at_mut(other);
                improved |= spread.exchange(&mut head[one], &mut tail[0]);
            }
        }
        if !improved {
            break;
        }
    }
    chosen
}

/// The numbers of peers so far, per store and per pair of stores.
struct Spread {
    peers: Vec<u32>,
    together: Vec<Vec<i64>>,
}

/// The order in which stores take the next peer: fewest peers first, then fewest regions shared
/// with the stores that are already chosen, then the position.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    peers: u32,
    shared: i64,
    at: usize,
}

impl Spread {
    /// Chooses the stores of one region. Taking a store with the fewest peers each time keeps the
    /// numbers of peers within one of each other.
    fn choose(&mut self, count: usize) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::with_capacity(count);
        for _ in 0..count {
            let shared = |at: usize| chosen.iter().map(|&with| self.together[at][with]).sum();
            let free = (0..self.peers.len()).filter(|at| !chosen.contains(at));
            let ranks = free.map(|at| Rank { peers: self.peers[at], shared: shared(at), at });
            let Rank { at, .. } = ranks.min().expect("no more peers than stores");
            self.peers[at] += 1;
            self.pair(at, &chosen, 1);
            chosen.push(at);
        }
        chosen
    }

    /// Exchanges a store between two regions if some exchange lowers the cost.
    fn exchange(&mut self, one: &mut [usize], other: &mut [usize]) -> bool {
        for i in 0..one.len() {
            for j in 0..other.len() {
                let (a, b) = (one[i], other[j]);
                if other.contains(&a) || one.contains(&b) {
                    continue;
                }
                let cost = self.replace(one, i, b) + self.replace(other, j, a);
                if cost < 0 {
                    return true;
                }
                self.replace(one, i, a);
                self.replace(other, j, b);
            }
        }
        false
    }

    /// Puts `store` into a region's place `at`. Returns the increase of the cost.
    fn replace(&mut self, region: &mut [usize], at: usize, store: usize) -> i64 {
        region.swap(at, 0);
        let removed = self.pair(region[0], &region[1..], -1);
        region[0] = store;
        let added = self.pair(store, &region[1..], 1);
        region.swap(at, 0);
        removed + added
    }

    /// Adds `by` to the number of regions that `store` shares with each of `others`. Returns the
    /// increase of the sum of squares.
    fn pair(&mut self, store: usize, others: &[usize], by: i64) -> i64 {
        let mut raised = 0;
        for &other in others {
            let before = self.together[store][other];
            let after = before + by;
            self.together[store][other] = after;
            self.together[other][store] = after;
            raised += after * after - before * before;
        }
        raised
    }
}

/// Returns the store that should campaign first for each user region, so that leaders start evenly
/// distributed. The meta region's first leader is arbitrary.
pub fn first_leaders(plan: &[RegionDescriptor]) -> BTreeMap<RegionId, StoreId> {
    let mut stores: Vec<StoreId> = plan.iter().flat_map(|region| region.voters()).collect();
    stores.sort_unstable();
    stores.dedup();
    let mut view = ClusterView {
        stores: stores.into_iter().map(blank_store).collect(),
        regions: plan.iter().filter(|region| region.id != META_REGION).map(blank_region).collect(),
        ..ClusterView::default()
    };
    let limits = PlanLimits {
        in_flight_max: usize::MAX,
        per_target_max: usize::MAX,
        data_moves_max: 0,
        ..PlanLimits::default()
    };
    loop {
        let moves = placement::plan(&view, Policy::Even, &limits);
        if moves.is_empty() {
            return view.regions.iter().filter_map(|region| Some((region.id, region.leader?))).collect();
        }
        for operator in moves {
            let Operator::TransferLeader { region, to, .. } = operator else {
                unreachable!("peers stay where they are: {operator}");
            };
            let at = view.regions.binary_search_by_key(&region, |region| region.id);
            view.regions[at.expect("moves are of the view's regions")].leader = Some(to);
        }
    }
}

fn blank_store(id: StoreId) -> StoreView {
    StoreView { id, ..StoreView::default() }
}

fn blank_region(region: &RegionDescriptor) -> RegionView {
    RegionView {
        id: region.id,
        leader: region.voters().next(),
        peers: region
            .peers
            .iter()
            .map(|peer| PeerView {
                store: peer.store,
                voter: peer.role == PeerRole::Voter,
                lag: Some(0),
                unclean: false,
                lost_rows: false,
            })
            .collect(),
        ..RegionView::default()
    }
}

#[cfg(test)]
mod tests;
