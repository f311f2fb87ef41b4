//! Explains the data, leaders and load of a store, their targets, and the changes that are planned.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{StoreId, META_REGION};

use crate::class::APART;
use crate::fill::WEIGHT_MIN;
use crate::load::Loads;
use crate::round::{Round, StoreIndex, NOWHERE};
use crate::units::{permille, Bytes, BytesPerSecond, Cores, Nanos, Percent};
use crate::{ClusterView, CpuShare, Operator, PlanLimits, Policy, StoreState};

/// The state of a store. Everything in flight counts as done in all numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreExplanation {
    pub store: StoreId,
    pub policy: Policy,
    pub state: StoreState,
    pub used_bytes: u64,
    /// Live user bytes that the store may hold; 0 if unknown.
    pub capacity_bytes: u64,
    pub out_of_room: bool,
    pub clock_off: bool,
    /// True if the store has no session with ZooKeeper, and another store has one.
    #[serde(default)]
    pub no_session: bool,
    /// Set if the store is above its threshold: it sheds data until it holds less than this many
    /// bytes.
    pub sheds_down_to: Option<u64>,
    /// The reported capability.
    pub bytes_per_s: u64,
    pub ops_per_s: u64,
    /// Duration of one sync on the otherwise idle device, in nanoseconds; 0 if unknown.
    pub sync_ns: u64,
    /// The spread of `bytes_per_s`, in thousandths. 1000 means exact, because it was configured; 0
    /// means unknown.
    pub spread_permille: u64,
    /// The rated speed and sync time, by the classes of the store.
    pub counts_bytes_per_s: u64,
    pub counts_sync_ns: u64,
    /// Other stores of the same write class, ascending by id.
    pub equals: Vec<StoreId>,
    /// The CPU of the store's machine; `None` if unknown.
    #[serde(default)]
    pub cpu: Option<CpuShare>,
    /// Measured CPU of the store's own process, in thousandths of a core.
    #[serde(default)]
    pub cpu_own_millicores: u64,
    /// Set if the CPU was recently above the limit: leaders move to the store only up to this
    /// percentage.
    #[serde(default)]
    pub cpu_up_to_percent: Option<u32>,
    /// User regions with a peer on the store, and those that it leads.
    pub peers: u32,
    pub leaders: u32,
    /// The data that the store holds for placement, without the meta region. A small region counts
    /// as [`PlanLimits::region_bytes_min`], here and in `share_bytes`.
    pub data_bytes: u64,
    /// In millionths of the largest weight.
    pub weight_ppm: u32,
    /// The data that the store would hold if all data were placed in proportion to the weights.
    pub share_bytes: u64,
    /// The store's load by measured rates, in thousandths of its capability.
    pub busy_permille: u64,
    /// The busiest store; `None` if no load has been measured.
    pub busiest: Option<Busiest>,
    pub in_flight: Vec<Operator>,
    pub planned: Vec<Operator>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busiest {
    pub store: StoreId,
    pub permille: u64,
}

/// Explains the state of a store. Returns `None` if the view does not have it.
pub fn explain_store(
    view: &ClusterView,
    policy: Policy,
    limits: &PlanLimits,
    store: StoreId,
) -> Option<StoreExplanation> {
    let round = Round::new(view, policy, limits);
    let at = round.at(store)?;
    let loads = Loads::new(&round);
    let seen = &view.stores[at as usize];
    let regions = || (0..round.rows.len() as u32).filter(|&region| round.region(region).id != META_REGION);
    let held = regions().filter(|&region| round.holds(region, at));
    let up = || round.stores().filter(|&at| round.is_up(at));
    let data: f64 = up().map(|at| round.totals.data[at as usize] as f64).sum();
    let weights: f64 = up().map(|at| round.weight(at)).sum();
    let busiest = up()
        .filter(|&at| loads.busy(at) > 0.0)
        .max_by(|a, b| loads.busy(*a).total_cmp(&loads.busy(*b)).then(b.cmp(a)));
    let of_it = |operator: &&Operator| {
        let leads = || {
            let region = crate::round::position(view, operator.region());
            region.map_or(NOWHERE, |region| round.rows[region as usize].leader) == at
        };
        [operator.from(), operator.to()].contains(&Some(store)) || (operator.to().is_none() && leads())
    };
    let rating = &round.ratings[at as usize];
    let is_equal = |other: &StoreIndex| {
        let class = round.ratings[*other as usize].classes.writes;
        *other != at && class.is_some() && class == rating.classes.writes
    };
    let equals = round.stores().filter(is_equal).map(|other| round.id(other));
    let of_capacity = |percent: u32| (u128::from(seen.capacity_bytes) * u128::from(percent) / 100) as u64;
    Some(StoreExplanation {
        store,
        policy,
        state: seen.state,
        used_bytes: round.totals.used[at as usize],
        capacity_bytes: seen.capacity_bytes,
        out_of_room: seen.out_of_room,
        clock_off: seen.clock_off,
        no_session: seen.no_session,
        sheds_down_to: round.sheds_to(at).map(of_capacity),
        // Casts saturate and turn NaN into 0.
        bytes_per_s: seen.capability.kv_bytes_per_s as u64,
        ops_per_s: seen.capability.ops_per_s as u64,
        sync_ns: seen.sync_ns,
        spread_permille: permille(seen.spread.kv_bytes_per_s),
        counts_bytes_per_s: rating.capability.kv_bytes_per_s as u64,
        counts_sync_ns: rating.sync_ns,
        equals: equals.collect(),
        cpu: CpuShare::of(&round, at),
        cpu_own_millicores: seen.cpu.map_or(0, |cpu| permille(cpu.own)),
        cpu_up_to_percent: seen.cpu_high.then_some(limits.cpu_percent_low),
        peers: held.count() as u32,
        leaders: round.totals.leaders[at as usize],
        data_bytes: round.totals.data[at as usize],
        weight_ppm: (round.weight(at) / WEIGHT_MIN).round() as u32,
        share_bytes: if round.is_up(at) { (data * round.weight(at) / weights) as u64 } else { 0 },
        busy_permille: permille(loads.busy(at)),
        busiest: busiest.map(|at| Busiest { store: round.id(at), permille: permille(loads.busy(at)) }),
        in_flight: view.in_flight.iter().filter(of_it).cloned().collect(),
        planned: crate::plan(view, policy, limits).into_iter().filter(|operator| of_it(&operator)).collect(),
    })
}

impl fmt::Display for StoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreState::Up => "up",
            StoreState::Down => "down",
            StoreState::Draining => "draining",
            StoreState::Lost => "lost",
        })
    }
}

impl StoreExplanation {
    /// Writes which stores count as equal and why. Writes nothing if the store's configured numbers
    /// apply unchanged.
    fn write_class(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const TOLD: u64 = 1000;
        let counts = BytesPerSecond(self.counts_bytes_per_s);
        if self.spread_permille < TOLD {
            return writeln!(
                f,
                "  not measured yet: counts for {counts}, as the slowest of those that are known"
            );
        }
        let is_as_told = self.counts_bytes_per_s == self.bytes_per_s && self.counts_sync_ns == self.sync_ns;
        if self.spread_permille == TOLD && is_as_told {
            return Ok(());
        }
        let spread = self.spread_permille as f64 / 1000.0;
        match self.spread_permille {
            TOLD => write!(f, "  configured; counts for {counts}")?,
            _ => write!(f, "  measured to within a factor of {spread:.2}; counts for {counts}")?,
        }
        if self.counts_sync_ns > 0 {
            write!(f, " and a sync in {}", Nanos(self.counts_sync_ns))?;
        }
        match &self.equals[..] {
            [] => writeln!(f, "; no other store is as fast, or as slow, within {APART} times"),
            equals => {
                let names: Vec<String> = equals.iter().map(StoreId::to_string).collect();
                writeln!(
                    f,
                    "; equal to store {}: none of them is surely {APART} times as fast as another",
                    names.join(", ")
                )
            }
        }
    }
}

impl fmt::Display for StoreExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Store {} is {}; the policy is {}.", self.store, self.state, self.policy)?;
        write!(f, "  holds {}", Bytes(self.used_bytes))?;
        if self.capacity_bytes > 0 {
            let full = u128::from(self.used_bytes) * 1000 / u128::from(self.capacity_bytes);
            write!(f, " of {} ({})", Bytes(self.capacity_bytes), Percent(full as u64))?;
        }
        writeln!(f, ", {} peers, {} of them lead", self.peers, self.leaders)?;
        write!(f, "  can write {}", BytesPerSecond(self.bytes_per_s))?;
        if self.sync_ns > 0 {
            write!(f, ", sync in {}", Nanos(self.sync_ns))?;
        }
        writeln!(f, " and read {} times/s", self.ops_per_s)?;
        self.write_class(f)?;
        let weight = f64::from(self.weight_ppm) / 1e6;
        let (data, share) = (Bytes(self.data_bytes), Bytes(self.share_bytes));
        writeln!(f, "  weight {weight:.3}: its data counts as {data}, its share would be {share}")?;
        write!(f, "  busy {}", Percent(self.busy_permille))?;
        match self.busiest {
            Some(Busiest { store, .. }) if store == self.store => writeln!(f, ", the busiest store")?,
            Some(Busiest { store, permille }) => {
                writeln!(f, "; the busiest is store {store} with {}", Percent(permille))?;
            }
            None => writeln!(f)?,
        }
        if let Some(cpu) = self.cpu {
            write!(f, "  {cpu}, the store uses {}", Cores(self.cpu_own_millicores))?;
            match self.cpu_up_to_percent {
                Some(percent) => writeln!(f, "; it was too busy lately, leads come only up to {percent}%")?,
                None => writeln!(f)?,
            }
        }
        if self.out_of_room {
            writeln!(f, "  out of room on its device: it is to lead nothing that another can lead")?;
        }
        if self.no_session {
            writeln!(f, "  no session with ZooKeeper: it is to lead nothing that another can lead")?;
        }
        if self.clock_off {
            writeln!(
                f,
                "  its clock is too far from the others': it is to lead nothing that another can lead"
            )?;
        }
        for operator in &self.in_flight {
            writeln!(f, "  in flight: {operator}")?;
        }
        for operator in &self.planned {
            writeln!(f, "  next: {operator}")?;
        }
        match (self.state, self.sheds_down_to) {
            (StoreState::Down, _) => {
                f.write_str("It is silent: nothing moves to or from it until it answers or counts as lost.")
            }
            (StoreState::Lost, _) if self.peers > 0 => {
                write!(f, "The store is lost: {} of its peers must be replaced on other stores.", self.peers)
            }
            (StoreState::Lost, _) => f.write_str("The store is lost, and no region has a peer on it."),
            (StoreState::Draining, _) if self.peers > 0 => {
                write!(f, "It drains: {} peers are still to go, then it may be removed.", self.peers)
            }
            (StoreState::Draining, _) => f.write_str("It has drained and may be removed."),
            (StoreState::Up, Some(bytes)) if self.in_flight.is_empty() && self.planned.is_empty() => write!(
                f,
                "It is to shed until it holds less than {}, but none of its regions can go now, or only such as \
                 would be left with slower peers than others as cold.",
                Bytes(bytes)
            ),
            (StoreState::Up, Some(bytes)) => write!(
                f,
                "It is above its threshold and sheds its coldest regions until it holds less than {}.",
                Bytes(bytes)
            ),
            (StoreState::Up, None) if self.in_flight.is_empty() && self.planned.is_empty() => {
                f.write_str("Nothing is to be done for it.")
            }
            (StoreState::Up, None) => {
                write!(
                    f,
                    "{} operators for it are in flight or next.",
                    self.in_flight.len() + self.planned.len()
                )
            }
        }
    }
}
