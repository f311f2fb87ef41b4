//! CPU as a resource of stores: the cost of leading a region, and the work that a machine can still
//! take.
//!
//! A store reports how many cores its machine has, which share of them is busy, and how many of the
//! busy ones its own process uses. Other processes use the rest, which does not change when leaders
//! move. Work is counted in units. So the cost of leading a region follows from the measured CPU
//! use of the store's process:
//!
//! ```text
//! writes            = writes/s + bytes written/s ÷ 4 KiB
//! units(s)          = Σ over its leads (writes + reads/s ÷ 4) + Σ over its followers writes · 5/8
//! cores per unit(s) = (own cores − 0.05 at rest) ÷ mean units(s) over the same seconds
//! lead's cost(s)    = (writes · 3/8 + reads/s ÷ 4) · cores per unit(s)
//! ```
//!
//! A follower does not serve the client, but it writes the log and applies like the leader. A read
//! costs a quarter of a write (docs/PERFORMANCE.md: 12 us and 51 us on one store, of which 32 us
//! are for log, Raft and apply). If a store uses too little CPU for a measurement, the mean of the
//! others is used. The cost of a unit on any store is limited to between a quarter of that mean and
//! four times that mean, because forwarding or compaction may cost more than the work of leading.
//!
//! Units change as soon as a leader moves, but measured CPU only some seconds later. So the mean of
//! units is taken over the same number of seconds ([`CpuMemory`]). The expected use of a machine is
//!
//! ```text
//! expected = measured + Σ over its stores (units now − mean units) · cores per unit
//! ```
//!
//! Stores that name the same machine share it. Moving a leader between them changes nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use types::StoreId;

use crate::fill::Ordered;
use crate::load::{at_ease, Loads};
use crate::round::{Round, StoreIndex, Table, NOWHERE};
use crate::units::permille;
use crate::{ClusterView, Cpu, PlanLimits, Policy, Reason, RegionView, StoreState, StoreView};

/// CPU, in cores, that a store's process uses at rest.
const AT_REST_CORES: f64 = 0.05;
/// Minimum CPU, in cores, that a store's work must use to measure the cost of a unit.
const MEASURED_CORES_MIN: f64 = 0.05;
/// Maximum number of cores that is accepted from a store.
const CORES_MAX: f64 = 1e6;
/// The costs of a write at a follower and of a read, as parts of the cost of a leader's write.
const FOLLOWER: f64 = 0.625;
const READ: f64 = 0.25;
/// Number of bytes written that cost as much as one more write.
const BYTES_PER_WRITE: f64 = 4096.0;
/// Maximum factor by which the cost of a unit on one store may differ from the mean.
const COST_FACTOR_MAX: f64 = 4.0;
/// Minimum time in seconds for which a store that exceeded the limit counts as busy.
const HIGH_FOR_S: f64 = 600.0;
/// Minimum cost of leading a region, as a part of the machine's cores, for its leader to move
/// because of CPU.
const RELIEF_MIN: f64 = 0.001;

/// The work that a region causes, in units.
#[derive(Clone, Copy)]
struct Units {
    /// Units of the leader, in addition to those of each peer.
    lead: f64,
    peer: f64,
}

fn units(region: &RegionView) -> Units {
    // Invalid rates count as no load.
    let sane = |rate: f64| if rate.is_finite() { rate.max(0.0) } else { 0.0 };
    let writes = sane(region.write_rate) + sane(region.write_bytes_rate) / BYTES_PER_WRITE;
    Units { lead: writes * (1.0 - FOLLOWER) + sane(region.read_rate) * READ, peer: writes * FOLLOWER }
}

impl Cpu {
    /// Returns true if the numbers can be those of a machine.
    fn is_sane(&self) -> bool {
        let numbers = [self.cores, self.busy, self.own];
        self.cores > 0.0 && numbers.iter().all(|number| (0.0..=CORES_MAX).contains(number))
    }
}

impl StoreView {
    /// Returns the CPU of the store if it is known. The last report of a silent store says nothing
    /// about the present.
    fn known_cpu(&self) -> Option<Cpu> {
        let answers = matches!(self.state, StoreState::Up | StoreState::Draining);
        self.cpu.filter(|cpu| answers && cpu.is_sane())
    }
}

/// Returns true if the measured share of the store's CPU is known and above this percentage.
fn is_above(store: &StoreView, percent: u32) -> bool {
    store.known_cpu().is_some_and(|cpu| cpu.busy * 100.0 > f64::from(percent))
}

/// The CPU load of stores in earlier rounds, stored by the caller that creates views.
#[derive(Clone, Debug, Default)]
pub struct CpuMemory {
    stores: BTreeMap<StoreId, Remembered>,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    mean_units: f64,
    high: bool,
    /// Seconds since the share was last above the limit.
    calm_s: f64,
}

impl CpuMemory {
    /// Records a view made `seconds` after the previous one, and sets its [`StoreView::cpu_units`]
    /// and [`StoreView::cpu_high`]. `window_s` is the time in seconds over which stores average
    /// their CPU.
    pub fn note(&mut self, view: &mut ClusterView, seconds: f64, window_s: f64, limits: &PlanLimits) {
        let kept = std::mem::take(&mut self.stores);
        if kept.is_empty() && view.stores.iter().all(|store| store.cpu.is_none()) {
            return;
        }
        let seconds = seconds.max(0.0);
        let part = 1.0 - (-seconds / window_s).exp();
        let now = units_by_store(view);
        for (store, units) in view.stores.iter_mut().zip(now) {
            let known = kept.get(&store.id).copied();
            if store.cpu.is_none() {
                // The store has restarted or is silent. For a while it keeps its previous state.
                let noted = known.map(|noted| Remembered { calm_s: noted.calm_s + seconds, ..noted });
                let noted = noted.filter(|noted| noted.calm_s < HIGH_FOR_S);
                store.cpu_high = noted.is_some_and(|noted| noted.high);
                self.stores.extend(noted.map(|noted| (store.id, noted)));
                continue;
            }
            let fresh = Remembered { mean_units: units, high: false, calm_s: 0.0 };
            let mut noted = known.unwrap_or(fresh);
            noted.mean_units += part * (units - noted.mean_units);
            if is_above(store, limits.cpu_percent_max) {
                (noted.high, noted.calm_s) = (true, 0.0);
            } else {
                noted.calm_s += seconds;
                noted.high &= noted.calm_s < HIGH_FOR_S || is_above(store, limits.cpu_percent_low);
            }
            (store.cpu_units, store.cpu_high) = (Some(noted.mean_units), noted.high);
            self.stores.insert(store.id, noted);
        }
    }

    /// Returns a store's mean units and whether its CPU was above the limit recently, as last
    /// recorded.
    pub fn of(&self, store: StoreId) -> Option<(f64, bool)> {
        self.stores.get(&store).map(|remembered| (remembered.mean_units, remembered.high))
    }
}

/// Returns the units of work of each store, by position in `ClusterView::stores`.
fn units_by_store(view: &ClusterView) -> Vec<f64> {
    let table = Table::new(view);
    let mut sums = vec![0.0; view.stores.len()];
    for region in &view.regions {
        let units = units(region);
        for peer in &region.peers {
            if let Some(at) = table.at(peer.store) {
                let leads = region.leader == Some(peer.store);
                sums[at as usize] += units.peer + if leads { units.lead } else { 0.0 };
            }
        }
    }
    sums
}

/// The CPUs of a round.
pub(crate) struct Cpus {
    /// The machine of each store. `None`: its CPU is unknown.
    machine_of: Vec<Option<u32>>,
    machines: Vec<Machine>,
    /// Cores per unit of work, by store.
    per_unit: Vec<f64>,
    /// The share above which leaders move away. `low` is the share up to which leaders move to a
    /// machine that was recently above `limit`.
    limit: f64,
    low: f64,
}

#[derive(Clone, Copy, Debug)]
struct Machine {
    cores: f64,
    /// Cores in use: as measured, by other processes, and as expected after all moves.
    measured: f64,
    others: f64,
    expected: f64,
    /// True if one of its stores was recently above the limit.
    high: bool,
}

impl Machine {
    fn share(&self) -> f64 {
        self.expected / self.cores
    }
}

impl Cpus {
    pub fn none() -> Cpus {
        Cpus { machine_of: Vec::new(), machines: Vec::new(), per_unit: Vec::new(), limit: 1.0, low: 1.0 }
    }

    pub fn new(view: &ClusterView, limits: &PlanLimits) -> Cpus {
        if view.stores.iter().all(|store| store.known_cpu().is_none()) {
            return Cpus::none();
        }
        let units = units_by_store(view);
        let mean_units = |at: usize| {
            let noted = view.stores[at].cpu_units.filter(|units| units.is_finite() && *units >= 0.0);
            noted.unwrap_or(units[at])
        };
        let per_unit = per_unit(view, mean_units);
        let mut cpus = Cpus {
            machine_of: Vec::with_capacity(units.len()),
            machines: Vec::new(),
            per_unit,
            limit: f64::from(limits.cpu_percent_max) / 100.0,
            low: f64::from(limits.cpu_percent_low) / 100.0,
        };
        // The fields are sums over the machine's stores until the loop below divides them.
        let mut by_name: BTreeMap<u64, u32> = BTreeMap::new();
        let mut stores_on: Vec<f64> = Vec::new();
        for (at, store) in view.stores.iter().enumerate() {
            let Some(cpu) = store.known_cpu() else {
                cpus.machine_of.push(None);
                continue;
            };
            let next = cpus.machines.len() as u32;
            let machine = match cpu.machine {
                0 => next,
                name => *by_name.entry(name).or_insert(next),
            };
            if machine == next {
                cpus.machines.push(Machine {
                    cores: 0.0,
                    measured: 0.0,
                    others: 0.0,
                    expected: 0.0,
                    high: false,
                });
                stores_on.push(0.0);
            }
            cpus.machine_of.push(Some(machine));
            stores_on[machine as usize] += 1.0;
            let machine = &mut cpus.machines[machine as usize];
            machine.cores += cpu.cores;
            machine.measured += cpu.busy.min(1.0) * cpu.cores;
            machine.others -= cpu.own;
            machine.expected += (units[at] - mean_units(at)) * cpus.per_unit[at];
            machine.high |= store.cpu_high || is_above(store, limits.cpu_percent_max);
        }
        for (machine, stores) in cpus.machines.iter_mut().zip(stores_on) {
            machine.cores /= stores;
            machine.measured /= stores;
            machine.others = (machine.others + machine.measured).max(0.0);
            machine.expected = (machine.expected + machine.measured).max(machine.others);
        }
        cpus
    }

    fn machine_of(&self, at: StoreIndex) -> Option<u32> {
        self.machine_of.get(at as usize).copied().flatten()
    }

    fn machine(&self, at: StoreIndex) -> Option<&Machine> {
        self.machine_of(at).map(|machine| &self.machines[machine as usize])
    }

    /// Returns the cores that leading the region takes on the store.
    fn lead_cost(&self, region: &RegionView, at: StoreIndex) -> f64 {
        self.per_unit.get(at as usize).map_or(0.0, |per_unit| per_unit * units(region).lead)
    }

    /// Moves the cost of leading the region. Either store may be `NOWHERE`.
    pub fn move_lead(&mut self, region: &RegionView, from: StoreIndex, to: StoreIndex) {
        for (at, sign) in [(from, -1.0), (to, 1.0)] {
            let cost = sign * self.lead_cost(region, at);
            if let Some(machine) = self.machine_of(at) {
                let machine = &mut self.machines[machine as usize];
                machine.expected = (machine.expected + cost).max(machine.others);
            }
        }
    }

    /// Returns the share of the store's machine that is expected to be busy, and its cores. `None`:
    /// unknown.
    pub fn expected(&self, at: StoreIndex) -> Option<(f64, f64)> {
        self.machine(at).map(|machine| (machine.share(), machine.cores))
    }

    /// Returns the cores that may be in use on the machine after a leader has moved to it.
    fn bound(&self, machine: &Machine) -> f64 {
        machine.cores * if machine.high { self.low.min(self.limit) } else { self.limit }
    }

    fn shares_machine(&self, one: StoreIndex, other: StoreIndex) -> bool {
        self.machine_of(one).is_some_and(|machine| self.machine_of(other) == Some(machine))
    }
}

/// Returns the cores per unit of work of each store.
fn per_unit(view: &ClusterView, mean_units: impl Fn(usize) -> f64) -> Vec<f64> {
    let work = |at: usize| {
        let cores = view.stores[at].known_cpu()?.own - AT_REST_CORES;
        (cores >= MEASURED_CORES_MIN && mean_units(at) >= 1.0).then(|| (cores, mean_units(at)))
    };
    let stores = || 0..view.stores.len();
    let (cores, units) = stores().filter_map(work).fold((0.0, 0.0), |sum, (c, u)| (sum.0 + c, sum.1 + u));
    let mean = if units > 0.0 { cores / units } else { 0.0 };
    let cost = |at: usize| work(at).map_or(mean, |(cores, units)| cores / units);
    stores().map(|at| cost(at).clamp(mean / COST_FACTOR_MAX, mean * COST_FACTOR_MAX)).collect()
}

impl Round<'_> {
    /// Returns true if the CPU of `to` has room to lead the region, or if the present leader is on
    /// the same machine. A store with unknown CPU counts as having room.
    pub fn cpu_fits(&self, region: u32, to: StoreIndex) -> bool {
        let Some(machine) = self.cpus.machine(to) else {
            // A store that was recently too busy and has restarted has reported nothing yet.
            return !self.view.stores[to as usize].cpu_high;
        };
        let leader = self.rows[region as usize].leader;
        let after = machine.expected + self.cpus.lead_cost(self.region(region), to);
        self.cpus.shares_machine(leader, to) || after <= self.cpus.bound(machine)
    }

    /// Returns true if a policy may move the region's leader to `to`. Either the CPU of `to` has
    /// room, or no voter's CPU has room and the machine would be no busier than the leader's is at
    /// present.
    pub fn cpu_allows(&self, region: u32, to: StoreIndex) -> bool {
        if self.cpu_fits(region, to) {
            return true;
        }
        let leader = self.rows[region as usize].leader;
        let (Some((now, _)), Some(machine)) = (self.cpus.expected(leader), self.cpus.machine(to)) else {
            // A leader on an unknown CPU stays.
            return leader == NOWHERE;
        };
        let after = (machine.expected + self.cpus.lead_cost(self.region(region), to)) / machine.cores;
        now > self.cpus.limit && after <= now && !self.able(region).any(|other| self.cpu_fits(region, other))
    }
}

/// Moves leaders from machines whose CPU is above the limit to voters whose machines have room,
/// until the former are below it.
///
/// A machine gives up leaders only if both its measured and its expected use are above the limit.
/// The measured use does not show a burst that has just begun, and the expected use alone shows a
/// recent move. Both differences disappear with time. A machine that other processes keep above the
/// limit keeps its leaders, because they are not the cause.
pub(crate) fn relieve(round: &mut Round<'_>) {
    let limit = round.cpus.limit;
    let is_over = |machine: &Machine| {
        let bound = limit * machine.cores;
        machine.measured > bound && machine.expected > bound && machine.others < bound
    };
    let mut over: Vec<u32> =
        (0..).zip(&round.cpus.machines).filter(|(_, m)| is_over(m)).map(|(at, _)| at).collect();
    if over.is_empty()
        || round.cpus.machines.iter().all(|machine| machine.expected >= round.cpus.bound(machine))
    {
        return;
    }
    over.sort_by_key(|&at| (Reverse(Ordered::new(round.cpus.machines[at as usize].share())), at));
    let mut led: BTreeMap<u32, Vec<(Ordered, u32)>> = over.iter().map(|&at| (at, Vec::new())).collect();
    for (region, row) in (0..).zip(&round.rows) {
        let machine = round.cpus.machine_of(row.leader);
        if !row.free || !round.is_up(row.leader) {
            continue;
        }
        if let Some((at, led)) = machine.and_then(|at| Some((at, led.get_mut(&at)?))) {
            let cost = round.cpus.lead_cost(round.region(region), row.leader);
            if cost >= RELIEF_MIN * round.cpus.machines[at as usize].cores {
                led.push((Ordered::new(cost), region));
            }
        }
    }
    let loads = (round.policy == Policy::Adaptive).then(|| Loads::new(round));
    for at in over {
        let led = led.get_mut(&at).expect("each has a list");
        led.sort_unstable();
        while round.room() > 0 && is_over(&round.cpus.machines[at as usize]) {
            let machine = round.cpus.machines[at as usize];
            let excess = Ordered::new(machine.expected - limit * machine.cores);
            // Choose the cheapest sufficient leader, or otherwise the costliest.
            let enough = led.partition_point(|(cost, _)| *cost < excess);
            let order = (enough..led.len()).chain((0..enough).rev());
            let found = order
                .map(|at| (at, led[at].1))
                .find_map(|(at, region)| heir(round, loads.as_ref(), region).map(|to| (at, region, to)));
            let Some((at, region, to)) = found else { break };
            led.remove(at);
            hand_over(round, region, to);
        }
    }
}

/// The ranking of stores that may take a leader because of CPU.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Fitness {
    /// True if, under `adaptive`, the store's device would become so busy that it had to be
    /// relieved.
    busy: bool,
    speed: Reverse<u64>,
    leaders: u32,
    share: Ordered,
    store: StoreIndex,
}

/// Returns the voter that the policy prefers among those on other machines with known room.
fn heir(round: &Round<'_>, loads: Option<&Loads>, region: u32) -> Option<StoreIndex> {
    let leader = round.rows[region as usize].leader;
    let takes = |at: &StoreIndex| {
        round.has_room_towards(*at)
            && !round.cpus.shares_machine(leader, *at)
            && round.cpus.machine(*at).is_some()
            && round.cpu_fits(region, *at)
    };
    let rank = |at: StoreIndex| {
        let busy_max = at_ease(round.limits);
        Fitness {
            busy: loads.is_some_and(|loads| loads.busy(at) + loads.lead_cost(region, at) > busy_max),
            speed: Reverse(if round.policy == Policy::Even { 0 } else { round.leader_speed(at) }),
            leaders: round.totals.leaders[at as usize],
            share: Ordered::new(round.cpus.expected(at).map_or(0.0, |(share, _)| share)),
            store: at,
        }
    };
    round.able(region).filter(takes).map(rank).min().map(|fitness| fitness.store)
}

fn hand_over(round: &mut Round<'_>, region: u32, to: StoreIndex) {
    let from = round.rows[region as usize].leader;
    let shown = |at: StoreIndex| round.cpus.expected(at).unwrap_or_default();
    let (from_now, to_now) = (shown(from), shown(to));
    let to_after = to_now.0 + round.cpus.lead_cost(round.region(region), to) / to_now.1;
    let reason = Reason::CpuBusy {
        from_permille: permille(from_now.0),
        from_millicores: permille(from_now.1),
        to_permille: permille(to_now.0),
        to_after_permille: permille(to_after),
        to_millicores: permille(to_now.1),
    };
    round.begin_transfer(region, from, to, reason);
}
