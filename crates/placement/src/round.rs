//! One planning round: stores by position instead of by id, who may lead, and the budget.
//!
//! A view may hold a million regions. Stores are therefore looked up in a table, not in a tree, and what is
//! asked for every peer of every region costs a few instructions.

use types::{RegionId, StoreId};

use crate::{ClusterView, Operator, PeerView, PlanLimits, RegionView, StoreState};

/// A store's position in `ClusterView::stores`.
pub(crate) type At = u32;

const NOWHERE: At = At::MAX;

pub(crate) struct Round<'a> {
    pub view: &'a ClusterView,
    pub limits: &'a PlanLimits,
    table: Table,
    up: Vec<bool>,
    /// Regions with an operator in flight, sorted.
    busy: Vec<RegionId>,
    in_flight: usize,
    to: Vec<usize>,
}

/// From ids to positions: direct where ids are small numbers, as they usually are.
enum Table {
    Direct(Vec<At>),
    Sorted(Vec<StoreId>),
}

/// Why a peer may not be handed the lead, or that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligibility {
    Eligible,
    Down,
    Learner,
    LagUnknown,
    Behind,
}

impl<'a> Round<'a> {
    pub fn new(view: &'a ClusterView, limits: &'a PlanLimits) -> Round<'a> {
        debug_assert!(view.stores.windows(2).all(|pair| pair[0].id < pair[1].id), "stores are sorted");
        debug_assert!(view.regions.windows(2).all(|pair| pair[0].id < pair[1].id), "regions are sorted");
        let mut round = Round {
            view,
            limits,
            table: Table::new(view),
            up: view.stores.iter().map(|store| store.state == StoreState::Up).collect(),
            busy: view.in_flight.iter().flat_map(|o| [Some(o.region()), o.into_region()]).flatten().collect(),
            in_flight: view.in_flight.len(),
            to: vec![0; view.stores.len()],
        };
        round.busy.sort_unstable();
        for operator in &view.in_flight {
            if let Some(at) = operator.to().and_then(|to| round.at(to)) {
                round.to[at as usize] += 1;
            }
        }
        round
    }

    pub fn at(&self, store: StoreId) -> Option<At> {
        match &self.table {
            Table::Direct(table) => {
                let at = *table.get(usize::try_from(store).ok()?)?;
                (at != NOWHERE).then_some(at)
            }
            Table::Sorted(ids) => ids.binary_search(&store).ok().map(|at| at as At),
        }
    }

    pub fn id(&self, at: At) -> StoreId {
        self.view.stores[at as usize].id
    }

    pub fn is_up(&self, at: At) -> bool {
        self.up[at as usize]
    }

    /// The store of a region's leader when it is live.
    pub fn live_leader(&self, region: &RegionView) -> Option<At> {
        self.at(region.leader?).filter(|&at| self.is_up(at))
    }

    pub fn is_busy(&self, region: RegionId) -> bool {
        !self.busy.is_empty() && self.busy.binary_search(&region).is_ok()
    }

    pub fn eligibility(&self, peer: &PeerView) -> Eligibility {
        match self.at(peer.store) {
            Some(at) if self.is_up(at) => {}
            _ => return Eligibility::Down,
        }
        match peer.lag {
            _ if !peer.voter => Eligibility::Learner,
            None => Eligibility::LagUnknown,
            Some(lag) if lag > self.limits.lag_entries_max => Eligibility::Behind,
            Some(_) => Eligibility::Eligible,
        }
    }

    /// Live, caught-up voters of the region beside its leader.
    pub fn candidates<'r>(&'r self, region: &'r RegionView) -> impl Iterator<Item = At> + 'r {
        region
            .peers
            .iter()
            .filter(|peer| {
                Some(peer.store) != region.leader && self.eligibility(peer) == Eligibility::Eligible
            })
            .filter_map(|peer| self.at(peer.store))
    }

    /// How many more operators may begin.
    pub fn room(&self) -> usize {
        self.limits.in_flight_max.saturating_sub(self.in_flight)
    }

    pub fn has_room_towards(&self, at: At) -> bool {
        self.to[at as usize] < self.limits.per_target_max
    }

    /// Takes one operator towards `at` out of the budget.
    pub fn spend(&mut self, at: At) {
        self.in_flight += 1;
        self.to[at as usize] += 1;
    }

    /// User regions led per live store, with what is in flight counted as done.
    pub fn leader_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.view.stores.len()];
        for region in self.view.regions.iter().filter(|region| region.id != types::META_REGION) {
            let at = match self.destination(region) {
                Some(to) => self.at(to).filter(|&at| self.is_up(at)),
                None => self.live_leader(region),
            };
            if let Some(at) = at {
                counts[at as usize] += 1;
            }
        }
        counts
    }

    /// Where an operator in flight takes the region's leader.
    fn destination(&self, region: &RegionView) -> Option<StoreId> {
        if !self.is_busy(region.id) {
            return None;
        }
        self.view.in_flight.iter().find_map(|operator| match operator {
            Operator::TransferLeader { region: moved, to, .. } if *moved == region.id => Some(*to),
            _ => None,
        })
    }
}

impl Table {
    fn new(view: &ClusterView) -> Table {
        let sparse = || Table::Sorted(view.stores.iter().map(|store| store.id).collect());
        let Some(last) = view.stores.last() else { return sparse() };
        if last.id >= 4 * view.stores.len() as u64 + 1024 {
            return sparse();
        }
        let mut table = vec![NOWHERE; last.id as usize + 1];
        for (at, store) in view.stores.iter().enumerate() {
            table[store.id as usize] = at as At;
        }
        Table::Direct(table)
    }
}
