//! The state of one planning round: indexed stores and regions, what each store holds, and the
//! budget.
//!
//! A view may hold a million regions. The facts that rules look up repeatedly are therefore copied
//! once into flat arrays, addressed by position instead of by id. Visiting every peer of every
//! region then costs a few instructions each, and no rule follows a pointer per region.
//!
//! Operators in flight, and those planned in this round, count as done: see [`Round::begin`].

use types::{RegionId, StoreId, META_REGION};

use crate::cpu::Cpus;
use crate::domain::Domains;
use crate::fill::Fill;
use crate::view::Bar;
use crate::wait::Waits;
use crate::{
    rate, ClusterView, Operator, PeerView, PlanLimits, Policy, Rating, Reason, RegionView, StoreState,
};

/// A store's position in `ClusterView::stores`.
pub(crate) type StoreIndex = u32;

/// No store, or a store that is not in the view.
pub(crate) const NOWHERE: StoreIndex = StoreIndex::MAX;

pub(crate) struct Round<'a> {
    pub view: &'a ClusterView,
    pub policy: Policy,
    pub limits: &'a PlanLimits,
    pub domains: Domains,
    table: Table,
    /// The state of each store. `NOWHERE` has no entry and counts as lost.
    states: Vec<StoreState>,
    /// The rated capability of each store, by its classes.
    pub ratings: Vec<Rating>,
    /// For each store, true if its backlog of entries to apply is too large to take over leaders.
    behind: Vec<bool>,
    /// By position in `ClusterView::regions`.
    pub rows: Vec<RegionRow>,
    replicas: Vec<Replica>,
    /// Positions of regions that may need repair, ascending.
    pub ailing: Vec<u32>,
    pub totals: Totals,
    pub cpus: Cpus,
    pub fill: Fill,
    pub waits: Waits,
    /// The operators of this round, in the order in which they began.
    pub operators: Vec<Operator>,
    room: usize,
    data_room: usize,
    leaders_to: Vec<usize>,
    data_moves: Vec<usize>,
    /// Bytes of the regions that are copied to or from each store.
    data_bytes: Vec<u64>,
}

/// A region as the rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionRow {
    first: u32,
    replicas: u16,
    pub voters: u16,
    /// The number of voters that answer: clean voters on stores that answer.
    pub live_voters: u16,
    /// The leader's store, or `NOWHERE` if that store does not answer.
    pub leader: StoreIndex,
    /// True if no operator for the region is in flight, it neither cools down nor is held, and its
    /// membership is not changing.
    pub free: bool,
    /// True if the region would be free if it were not held.
    pub held: bool,
    /// True if the region is free, all its peers are voters on stores that are up, there are as
    /// many as wanted, and its leader has reported the lag of each.
    pub healthy: bool,
    /// The size of the region for data placement. It equals the region's bytes, unless these are
    /// too few to reflect the cost of the region.
    pub size: u64,
}

/// A peer of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    pub store: StoreIndex,
    pub voter: bool,
    pub can_lead: bool,
    pub unclean: bool,
    pub lost_rows: bool,
}

/// Totals per store. `data` and `leaders` count user regions only.
pub(crate) struct Totals {
    /// Sum of region sizes.
    pub data: Vec<u64>,
    /// Live user bytes from the view, with moves in flight counted as done.
    pub used: Vec<u64>,
    pub leaders: Vec<u32>,
    pub user_regions: usize,
}

/// Maps store ids to positions. Uses a direct table if ids are small numbers, which they usually
/// are.
pub(crate) enum Table {
    Direct(Vec<StoreIndex>),
    Sorted(Vec<StoreId>),
}

/// The result of the check whether a peer may become the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligibility {
    Eligible,
    Down,
    Lost,
    Draining,
    OutOfRoom,
    ClockOff,
    NoSession,
    Learner,
    LagUnknown,
    Behind,
}

/// Divisor of the mean region size that gives the minimum size of a region. A small region has a
/// log, heartbeats and a share of the load from the start, so it must not count as almost nothing.
const SIZE_FLOOR_PART: u64 = 8;

impl<'a> Round<'a> {
    pub fn new(view: &'a ClusterView, policy: Policy, limits: &'a PlanLimits) -> Round<'a> {
        assert!(view.stores.windows(2).all(|pair| pair[0].id < pair[1].id), "stores are sorted");
        assert!(view.regions.windows(2).all(|pair| pair[0].id < pair[1].id), "regions are sorted");
        let stores = view.stores.len();
        let data_in_flight = view.in_flight.iter().filter(|operator| operator.moves_data()).count();
        let mut round = Round {
            view,
            policy,
            limits,
            domains: Domains::new(view),
            table: Table::new(view),
            states: view.stores.iter().map(|store| store.state).collect(),
            ratings: rate(&view.stores),
            behind: view.stores.iter().map(|store| store.is_behind(limits)).collect(),
            rows: Vec::with_capacity(view.regions.len()),
            replicas: Vec::with_capacity(4 * view.regions.len()),
            ailing: Vec::new(),
            totals: Totals {
                data: vec![0; stores],
                used: view.stores.iter().map(|store| store.used_bytes).collect(),
                leaders: vec![0; stores],
                user_regions: 0,
            },
            cpus: Cpus::new(view, limits),
            fill: Fill::default(),
            waits: Waits::default(),
            operators: Vec::new(),
            room: limits.in_flight_max.saturating_sub(view.in_flight.len()),
            data_room: limits.data_moves_max.saturating_sub(data_in_flight),
            leaders_to: vec![0; stores],
            data_moves: vec![0; stores],
            data_bytes: vec![0; stores],
        };
        round.read_regions();
        for operator in &view.in_flight {
            round.count(operator);
            let ends = [Some(operator.region()), operator.into_region()];
            for region in ends.into_iter().flatten() {
                if let Ok(at) = view.regions.binary_search_by_key(&region, |region| region.id) {
                    round.rows[at].free = false;
                    round.rows[at].held = false;
                    round.rows[at].healthy = false;
                }
            }
        }
        let rows = &round.rows;
        round.ailing.retain(|&at| rows[at as usize].free || rows[at as usize].held);
        round.waits = Waits::new(&round);
        round.fill = Fill::new(&round);
        round.refresh_fill();
        round
    }

    fn read_regions(&mut self) {
        let view = self.view;
        let wanted = (view.replicas, self.meta_wanted());
        let floor = size_floor(view).max(self.limits.region_bytes_min);
        for (at, region) in view.regions.iter().enumerate() {
            let wanted = if region.id == META_REGION { wanted.1 } else { wanted.0 };
            let mut row = RegionRow {
                first: self.replicas.len() as u32,
                replicas: region.peers.len() as u16,
                voters: 0,
                live_voters: 0,
                leader: NOWHERE,
                free: !(region.cooldown || region.joint || region.held),
                held: region.held && !(region.cooldown || region.joint),
                healthy: true,
                size: region.bytes.max(floor),
            };
            for peer in &region.peers {
                let store = self.at(peer.store).unwrap_or(NOWHERE);
                let state = self.state(store);
                let answers = matches!(state, StoreState::Up | StoreState::Draining);
                row.voters += u16::from(peer.voter);
                row.live_voters += u16::from(peer.voter && answers && !peer.unclean);
                let told = peer.lag.is_some() || region.leader == Some(peer.store);
                row.healthy &= state == StoreState::Up && peer.voter && told;
                row.healthy &= !peer.unclean && !peer.lost_rows;
                if answers && region.leader == Some(peer.store) {
                    row.leader = store;
                }
                let can_lead = self.eligibility(peer) == Eligibility::Eligible && !peer.lost_rows;
                let (voter, unclean, lost_rows) = (peer.voter, peer.unclean, peer.lost_rows);
                self.replicas.push(Replica { store, voter, can_lead, unclean, lost_rows });
            }
            row.healthy &= usize::from(row.voters) == wanted && row.free && row.leader != NOWHERE;
            self.rows.push(row);
            let replicas = &self.replicas[row.first as usize..];
            let odd = usize::from(row.voters) != wanted
                || replicas.iter().any(|replica| {
                    !replica.voter
                        || replica.unclean
                        || replica.lost_rows
                        || matches!(self.state(replica.store), StoreState::Lost | StoreState::Draining)
                })
                || self.domains.can_spread(replicas)
                || self.bar(row.leader).is_some();
            if odd && (row.free || row.held) {
                self.ailing.push(at as u32);
            }
            if region.id != META_REGION {
                self.totals.user_regions += 1;
                for replica in replicas.iter().filter(|replica| replica.store != NOWHERE) {
                    let data = &mut self.totals.data[replica.store as usize];
                    *data = data.saturating_add(row.size);
                }
                if self.is_up(row.leader) {
                    self.totals.leaders[row.leader as usize] += 1;
                }
            }
        }
    }

    /// Returns the number of voters that the meta region should have. It is odd, because an even
    /// number tolerates no more failures than the odd number below it. The exception is a cluster
    /// of two stores, where both have a copy.
    fn meta_wanted(&self) -> usize {
        let places = self.states.iter().filter(|state| matches!(state, StoreState::Up | StoreState::Down));
        match places.count().min(self.view.meta_replicas) {
            few @ 0..=2 => few.max(1),
            more => more - 1 + more % 2,
        }
    }

    pub fn wanted(&self, region: u32) -> usize {
        match self.view.regions[region as usize].id {
            META_REGION => self.meta_wanted(),
            _ => self.view.replicas,
        }
    }

    pub fn at(&self, store: StoreId) -> Option<StoreIndex> {
        self.table.at(store)
    }

    pub fn id(&self, at: StoreIndex) -> StoreId {
        self.view.stores[at as usize].id
    }

    pub fn stores(&self) -> std::ops::Range<StoreIndex> {
        0..self.states.len() as StoreIndex
    }

    /// Returns the state of a store. A store that is not in the view is lost.
    pub fn state(&self, at: StoreIndex) -> StoreState {
        self.states.get(at as usize).copied().unwrap_or(StoreState::Lost)
    }

    pub fn is_up(&self, at: StoreIndex) -> bool {
        self.state(at) == StoreState::Up
    }

    pub fn region(&self, at: u32) -> &'a RegionView {
        &self.view.regions[at as usize]
    }

    pub fn replicas(&self, region: u32) -> &[Replica] {
        let row = &self.rows[region as usize];
        &self.replicas[row.first as usize..row.first as usize + usize::from(row.replicas)]
    }

    /// Returns true if the store has a peer of the region, voter or learner.
    pub fn holds(&self, region: u32, store: StoreIndex) -> bool {
        self.replicas(region).iter().any(|replica| replica.store == store)
    }

    /// Returns the bytes per second by which leaders are placed: those of the store's class, or the
    /// pinned weight.
    pub fn leader_speed(&self, at: StoreIndex) -> u64 {
        let pinned = self.view.stores[at as usize].leader_weight;
        pinned.map_or(self.ratings[at as usize].capability.speed(), |weight| weight as u64)
    }

    /// Returns the bytes per second by which data is placed: those of the store's class, or the
    /// pinned weight.
    pub fn data_speed(&self, at: StoreIndex) -> f64 {
        let pinned = self.view.stores[at as usize].data_weight;
        pinned.unwrap_or(self.ratings[at as usize].capability.kv_bytes_per_s)
    }

    /// Returns true if the region is free, has a leader and a majority of its voters answers. Only
    /// then can it be changed.
    pub fn can_change(&self, region: u32) -> bool {
        self.rows[region as usize].free && self.has_quorum(region)
    }

    /// Returns true if the region can be repaired. A held region can, although it is not free.
    pub fn can_repair(&self, region: u32) -> bool {
        let row = &self.rows[region as usize];
        (row.free || row.held) && self.has_quorum(region)
    }

    fn has_quorum(&self, region: u32) -> bool {
        let row = &self.rows[region as usize];
        row.leader != NOWHERE && row.live_voters > row.voters / 2
    }

    /// Returns true if the peer on `from` may be removed or moved. If it leads, another peer must
    /// be able to take over. A single voter is an exception: it transfers its leadership to the
    /// peer that replaces it.
    pub fn can_leave(&self, region: u32, from: StoreIndex) -> bool {
        let row = &self.rows[region as usize];
        row.leader != from || row.voters == 1 || self.able(region).next().is_some()
    }

    pub fn eligibility(&self, peer: &PeerView) -> Eligibility {
        match self.at(peer.store).map_or(StoreState::Lost, |at| self.state(at)) {
            StoreState::Up => {}
            StoreState::Draining => return Eligibility::Draining,
            StoreState::Down => return Eligibility::Down,
            StoreState::Lost => return Eligibility::Lost,
        }
        if !peer.voter {
            return Eligibility::Learner;
        }
        match self.at(peer.store).and_then(|at| self.bar(at)) {
            Some(Bar::OutOfRoom) => return Eligibility::OutOfRoom,
            Some(Bar::ClockOff) => return Eligibility::ClockOff,
            Some(Bar::NoSession) => return Eligibility::NoSession,
            None => {}
        }
        match peer.lag {
            None => Eligibility::LagUnknown,
            Some(lag) if lag > self.limits.lag_entries_max => Eligibility::Behind,
            Some(_) if self.is_behind(peer.store) => Eligibility::Behind,
            Some(_) => Eligibility::Eligible,
        }
    }

    /// Returns true if the device of the store is down to its reserve.
    pub fn is_out_of_room(&self, at: StoreIndex) -> bool {
        self.view.stores.get(at as usize).is_some_and(|store| store.out_of_room)
    }

    /// Returns the reason why the store should not lead regions that another store can lead, if
    /// there is one.
    pub fn bar(&self, at: StoreIndex) -> Option<Bar> {
        self.view.stores.get(at as usize).and_then(|store| store.bar())
    }

    /// Returns true if a peer that moves to this store could lead, once it is a voter and has
    /// caught up.
    pub fn could_lead(&self, at: StoreIndex) -> bool {
        self.is_up(at) && self.bar(at).is_none() && !self.behind[at as usize]
    }

    fn is_behind(&self, store: StoreId) -> bool {
        self.at(store).is_some_and(|at| self.behind[at as usize])
    }

    /// Returns the peers to which a policy may move leadership: the able ones whose CPU permits it
    /// ([`crate::cpu`]).
    pub fn candidates(&self, region: u32) -> impl Iterator<Item = StoreIndex> + '_ {
        self.able(region).filter(move |&at| self.cpu_allows(region, at))
    }

    /// Returns the live, caught-up voters of the region other than its leader.
    pub fn able(&self, region: u32) -> impl Iterator<Item = StoreIndex> + '_ {
        let leader = self.rows[region as usize].leader;
        self.replicas(region)
            .iter()
            .filter(move |replica| replica.can_lead && replica.store != leader)
            .map(|replica| replica.store)
    }

    /// Returns the number of operators that may still begin.
    pub fn room(&self) -> usize {
        self.room
    }

    pub fn has_room_towards(&self, at: StoreIndex) -> bool {
        self.leaders_to[at as usize] < self.limits.per_target_max
    }

    pub fn has_data_room(&self) -> bool {
        self.room > 0 && self.data_room > 0
    }

    /// Returns true if one more copy may go to or leave this store. A store that is not in the view
    /// has no limit.
    pub fn has_data_room_at(&self, at: StoreIndex) -> bool {
        self.data_moves.get(at as usize).is_none_or(|moves| *moves < self.limits.data_moves_per_store_max)
    }

    /// Same as [`has_data_room_at`](Self::has_data_room_at) for a copy that repairs a region or
    /// empties a store.
    pub fn has_repair_room_at(&self, at: StoreIndex) -> bool {
        let Some(&moves) = self.data_moves.get(at as usize) else { return true };
        let speed = self.view.stores[at as usize].capability.speed();
        self.has_data_room_at(at)
            || moves < self.limits.repairs_per_store_max
                && self.data_bytes[at as usize] < speed.saturating_mul(self.limits.repair_seconds)
    }

    /// Returns the number of copies that may still begin in this round.
    pub fn data_room(&self) -> usize {
        self.data_room.min(self.room)
    }

    /// Returns the number of copies that may still go to or leave this store.
    pub fn data_room_at(&self, at: StoreIndex) -> usize {
        let moves = self.data_moves.get(at as usize).copied().unwrap_or(usize::MAX);
        self.limits.data_moves_per_store_max.saturating_sub(moves)
    }

    /// Returns false if the limits forbid moving peers altogether.
    pub fn peers_may_move(&self) -> bool {
        self.limits.data_moves_max > 0
    }

    /// Adds an operator to this round: subtracts it from the budget and counts it as done.
    pub fn begin(&mut self, region: u32, operator: Operator) {
        self.room -= 1;
        if operator.moves_data() {
            self.data_room = self.data_room.saturating_sub(1);
        }
        self.count(&operator);
        self.rows[region as usize].free = false;
        self.rows[region as usize].held = false;
        self.rows[region as usize].healthy = false;
        if !matches!(operator, Operator::TransferLeader { .. }) {
            self.refresh_fill();
        }
        self.operators.push(operator);
    }

    pub fn begin_transfer(&mut self, region: u32, from: StoreIndex, to: StoreIndex, reason: Reason) {
        let (id, from, to) = (self.region(region).id, self.id(from), self.id(to));
        self.begin(region, Operator::TransferLeader { region: id, from, to, reason });
    }

    pub fn begin_move(&mut self, region: u32, from: StoreIndex, to: StoreIndex, reason: Reason) {
        let (id, from, to) = (self.region(region).id, self.id(from), self.id(to));
        self.begin(region, Operator::MovePeer { region: id, from, to, reason });
    }

    fn count(&mut self, operator: &Operator) {
        let from = operator.from().and_then(|store| self.at(store)).unwrap_or(NOWHERE);
        let to = operator.to().and_then(|store| self.at(store)).unwrap_or(NOWHERE);
        let region = self.view.regions.binary_search_by_key(&operator.region(), |region| region.id);
        if let Operator::TransferLeader { .. } = operator {
            if let Some(moves) = self.leaders_to.get_mut(to as usize) {
                *moves += 1;
            }
        } else if operator.moves_data() {
            let bytes = region.map_or(0, |at| self.view.regions[at].bytes);
            for end in [from, to] {
                if let Some(moves) = self.data_moves.get_mut(end as usize) {
                    *moves += 1;
                    let sum = &mut self.data_bytes[end as usize];
                    *sum = sum.saturating_add(bytes);
                }
            }
        }
        let Ok(region) = region else { return };
        let user = operator.region() != META_REGION;
        let leader = self.rows[region].leader;
        // A leader's peer transfers its leadership before it leaves. The driver chooses the
        // successor.
        let unseats = matches!(operator, Operator::TransferLeader { .. })
            || !matches!(operator, Operator::AddPeer { .. }) && leader == from;
        if unseats {
            let heir = if let Operator::TransferLeader { .. } = operator { to } else { NOWHERE };
            self.cpus.move_lead(&self.view.regions[region], leader, heir);
        }
        if unseats && user && self.is_up(leader) {
            self.totals.leaders[leader as usize] = self.totals.leaders[leader as usize].saturating_sub(1);
            self.rows[region].leader = NOWHERE;
        }
        if let Operator::TransferLeader { .. } = operator {
            if user && self.is_up(to) {
                self.totals.leaders[to as usize] += 1;
                self.rows[region].leader = to;
            }
            return;
        }
        let (size, bytes) = (self.rows[region].size, self.view.regions[region].bytes);
        let stays = from == NOWHERE || !self.holds(region as u32, from);
        if !stays {
            self.totals.used[from as usize] = self.totals.used[from as usize].saturating_sub(bytes);
            if user {
                self.totals.data[from as usize] = self.totals.data[from as usize].saturating_sub(size);
            }
        }
        if to != NOWHERE && !self.holds(region as u32, to) {
            self.totals.used[to as usize] = self.totals.used[to as usize].saturating_add(bytes);
            if user {
                self.totals.data[to as usize] = self.totals.data[to as usize].saturating_add(size);
            }
        }
    }
}

fn size_floor(view: &ClusterView) -> u64 {
    let users = view.regions.iter().filter(|region| region.id != META_REGION);
    let (count, bytes) =
        users.fold((0u64, 0u128), |(n, sum), region| (n + 1, sum + u128::from(region.bytes)));
    let mean = (bytes / u128::from(count.max(1))) as u64;
    (mean / SIZE_FLOOR_PART).max(1)
}

impl Table {
    pub fn at(&self, store: StoreId) -> Option<StoreIndex> {
        match self {
            Table::Direct(table) => {
                let at = *table.get(usize::try_from(store).ok()?)?;
                (at != NOWHERE).then_some(at)
            }
            Table::Sorted(ids) => ids.binary_search(&store).ok().map(|at| at as StoreIndex),
        }
    }

    pub fn new(view: &ClusterView) -> Table {
        let sparse = || Table::Sorted(view.stores.iter().map(|store| store.id).collect());
        let Some(last) = view.stores.last() else { return sparse() };
        if last.id >= 4 * view.stores.len() as u64 + 1024 {
            return sparse();
        }
        let mut table = vec![NOWHERE; last.id as usize + 1];
        for (at, store) in view.stores.iter().enumerate() {
            table[store.id as usize] = at as StoreIndex;
        }
        Table::Direct(table)
    }
}

/// Returns the position of a region in the view.
pub(crate) fn position(view: &ClusterView, region: RegionId) -> Option<u32> {
    view.regions.binary_search_by_key(&region, |region| region.id).ok().map(|at| at as u32)
}
