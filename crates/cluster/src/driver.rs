//! Drives operators from their beginning to their end.
//!
//! The driver runs only on the leader of region 0. The operators in flight and their phases are
//! replicated ([`MetaState::operators`]). The progress of an operator follows from the region's own
//! descriptor, as its leader last reported it. So the driver of the next leader continues without a
//! message from this one. Only timers are local to the driver: a new driver gives every operator
//! its full time again.
//!
//! Each round returns [`Order`]s for leaders of regions and [`MetaCommand`]s to propose in region
//! 0. Orders may be lost, late or repeated, because each names the epoch for which it is meant.

use std::collections::{BTreeMap, BTreeSet};

use placement::{CpuMemory, Operator, PlanLimits, Rating, Reason};
use types::{BootNanos, RegionDescriptor, RegionId, StoreId, Term, UnixMillis, META_REGION};

use crate::heartbeat::CPU_WINDOW_S;
use crate::state::{InFlight, MemberState, OperatorId, Outcome, Phase};
use crate::{Ledger, MetaCommand, MetaState, Order};

mod requests;
mod steps;

pub use requests::{may_drain, DrainError, StartError};
use steps::Next;

/// Maximum number of times that a region's pause doubles. It doubles with each failure in a row.
const COOLDOWN_DOUBLINGS_MAX: u32 = 5;

/// Maximum number of region reports in one command.
const REPORTS_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// The time limit in nanoseconds for an operator that moves no data.
    pub deadline_nanos: u64,
    /// The time limit in nanoseconds for an operator that moves data. It grows by one second for
    /// every `data_bytes_per_s` bytes of the region.
    pub data_deadline_nanos: u64,
    pub data_bytes_per_s: u64,
    /// The time in nanoseconds after which an order without effect is repeated.
    pub repeat_nanos: u64,
    /// The time in nanoseconds after which a proposal without a visible result is abandoned.
    pub proposal_nanos: u64,
    /// The pause in nanoseconds of a region after its first failed operator.
    pub cooldown_nanos: u64,
    /// Maximum lag, in log entries, of a learner that is promoted and of a peer that becomes the
    /// leader.
    pub caught_up_entries: u64,
    /// Maximum interval in nanoseconds between surveys, which look at every region. A survey also
    /// follows every change of its inputs (`Seen`).
    pub survey_nanos: u64,
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        const SECOND: u64 = 1_000_000_000;
        DriverConfig {
            deadline_nanos: 5 * SECOND,
            data_deadline_nanos: 60 * SECOND,
            data_bytes_per_s: 4 << 20,
            repeat_nanos: 2 * SECOND,
            proposal_nanos: 2 * SECOND,
            cooldown_nanos: 2 * SECOND,
            caught_up_entries: 1024,
            survey_nanos: SECOND,
        }
    }
}

/// The work that a round requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Orders, each with the store that leads the order's region.
    pub orders: Vec<(StoreId, Order)>,
    /// Commands to propose in region 0, in this order.
    pub commands: Vec<MetaCommand>,
}

/// The driver's own state of an operator in flight.
#[derive(Clone, Debug)]
struct Watch {
    phase: Phase,
    /// The time at which this driver first saw the operator in this phase.
    since: BootNanos,
    /// The region's term when this driver first saw the operator.
    term: Term,
    ordered: Option<Ordered>,
}

#[derive(Clone, Debug)]
struct Ordered {
    order: Order,
    leader: StoreId,
    term: Term,
    at: BootNanos,
}

#[derive(Clone, Copy, Debug)]
struct Cooldown {
    until: BootNanos,
    failures: u32,
}

#[derive(Clone, Debug)]
pub struct Driver {
    config: DriverConfig,
    watches: BTreeMap<OperatorId, Watch>,
    /// Operators that were proposed and are not yet in flight. Placement counts them as in flight.
    beginning: BTreeMap<OperatorId, (Operator, BootNanos)>,
    /// Other recent proposals, kept so that rounds do not repeat them.
    proposed: Vec<(MetaCommand, BootNanos)>,
    cooldowns: BTreeMap<RegionId, Cooldown>,
    /// Stores above their threshold that have not yet fallen below the lower end of the band.
    shedding: BTreeSet<StoreId>,
    /// The ratings of the stores in the last survey.
    ratings: BTreeMap<StoreId, Rating>,
    /// The recent load of the stores' CPUs, as of the last survey.
    cpus: CpuMemory,
    cpus_at: BootNanos,
    surveyed: Option<(BootNanos, Seen)>,
}

/// The inputs of a survey, except rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    descriptors: u64,
    members_version: u64,
    next_operator: OperatorId,
    in_flight: usize,
    policy_since_ms: UnixMillis,
}

impl Driver {
    pub fn new(config: DriverConfig) -> Driver {
        Driver {
            config,
            watches: BTreeMap::new(),
            beginning: BTreeMap::new(),
            proposed: Vec::new(),
            cooldowns: BTreeMap::new(),
            shedding: BTreeSet::new(),
            ratings: BTreeMap::new(),
            cpus: CpuMemory::default(),
            cpus_at: 0,
            surveyed: None,
        }
    }

    /// Runs one round: proposes new reports of regions, advances operators in flight, plans new
    /// operators, and removes drained stores. `term` is the term in which this store leads region
    /// 0. The first rounds of a term only propose [`MetaCommand::TakeOver`], so that everything
    /// agreed before is applied here before the driver plans.
    pub fn step(
        &mut self,
        meta: &MetaState,
        ledger: &Ledger,
        limits: &PlanLimits,
        term: Term,
        now: BootNanos,
    ) -> Step {
        let mut step = Step::default();
        if !meta.is_bootstrapped() {
            return step;
        }
        self.forget_old_proposals(meta, now);
        if meta.planner_term != term {
            if meta.planner_term < term {
                self.propose(MetaCommand::TakeOver { term }, now, &mut step);
            }
            return step;
        }
        for flight in meta.operators.values() {
            self.drive(meta, ledger, limits, flight, now, &mut step);
        }
        let seen = Seen {
            descriptors: ledger.descriptors_learned(),
            members_version: meta.members_version,
            next_operator: meta.next_operator,
            in_flight: meta.operators.len(),
            policy_since_ms: meta.policy_since_ms,
        };
        let is_due = |(at, last): &(BootNanos, Seen)| {
            *last != seen || now.saturating_sub(*at) >= self.config.survey_nanos
        };
        if self.surveyed.as_ref().is_none_or(is_due) {
            self.surveyed = Some((now, seen));
            self.survey(meta, ledger, limits, now, &mut step);
        }
        step
    }

    fn survey(
        &mut self,
        meta: &MetaState,
        ledger: &Ledger,
        limits: &PlanLimits,
        now: BootNanos,
        step: &mut Step,
    ) {
        self.report(meta, ledger, now, step);
        self.unseal(meta, ledger, now, step);
        if ledger.is_settled(meta, now) {
            let mut view = crate::view(meta, ledger, self, now);
            let since = now.saturating_sub(std::mem::replace(&mut self.cpus_at, now));
            self.cpus.note(&mut view, since as f64 / 1e9, CPU_WINDOW_S, limits);
            let sheds = view.stores.iter().filter(|store| placement::sheds(store, limits));
            self.shedding = sheds.map(|store| store.id).collect();
            let ids = view.stores.iter().map(|store| store.id);
            self.ratings = ids.zip(placement::rate(&view.stores)).collect();
            for operator in placement::plan(&view, meta.policy, limits) {
                if is_current(meta, ledger, &operator) && meta.check_operator(&operator).is_ok() {
                    let command = self.begin(meta, operator, now);
                    step.commands.push(command);
                }
            }
        }
        self.let_go(meta, ledger, now, step);
    }

    /// Handles a refusal: the region's leader abandoned an order or cannot carry it out. Leaders do
    /// not report an order for another epoch or another leader, because the driver repeats those.
    pub fn aborted(&mut self, meta: &MetaState, region: RegionId, now: BootNanos) -> Option<MetaCommand> {
        let flight = meta.operator_on(region)?;
        if flight.phase != Phase::Going {
            return None;
        }
        self.cool(flight.operator.region(), now);
        Some(fail(flight, Outcome::Aborted))
    }

    /// Drops all state of the driver, because region 0's leadership was lost or won.
    pub fn forget(&mut self) {
        *self = Driver::new(self.config);
    }

    /// Returns the operators that were proposed and are not yet agreed, ascending by id.
    pub fn beginning(&self) -> impl Iterator<Item = &Operator> {
        self.beginning.values().map(|(operator, _)| operator)
    }

    pub fn is_cooling(&self, region: RegionId, now: BootNanos) -> bool {
        self.cooldowns.get(&region).is_some_and(|cooldown| now < cooldown.until)
    }

    pub(crate) fn is_shedding(&self, store: StoreId) -> bool {
        self.shedding.contains(&store)
    }

    /// Returns the mean load of a store's CPU in units of work, and whether it was too busy for
    /// more leaders. `None` if the CPU is unknown.
    pub(crate) fn cpu_of(&self, store: StoreId) -> Option<(f64, bool)> {
        self.cpus.of(store)
    }

    /// Returns the rating of a store; `None` before the first survey with the store.
    pub(crate) fn rating(&self, store: StoreId) -> Option<&Rating> {
        self.ratings.get(&store)
    }

    fn forget_old_proposals(&mut self, meta: &MetaState, now: BootNanos) {
        let age_max = self.config.proposal_nanos;
        let is_young = |at: BootNanos| now.saturating_sub(at) <= age_max;
        // The operator began, was refused, or was superseded by one with a larger id. It can no
        // longer begin.
        self.beginning.retain(|&id, (_, at)| id >= meta.next_operator && is_young(*at));
        self.proposed.retain(|(_, at)| is_young(*at));
        self.watches.retain(|id, _| meta.operators.contains_key(id));
    }

    fn propose(&mut self, command: MetaCommand, now: BootNanos, step: &mut Step) {
        if !self.proposed.iter().any(|(earlier, _)| *earlier == command) {
            self.proposed.push((command.clone(), now));
            step.commands.push(command);
        }
    }

    fn report(&mut self, meta: &MetaState, ledger: &Ledger, now: BootNanos, step: &mut Step) {
        let known = |region: &&RegionDescriptor| {
            meta.regions.get(&region.id).is_none_or(|known| region.epoch.is_newer_than(known.epoch))
        };
        let newer: Vec<&RegionDescriptor> = ledger.descriptors().filter(known).collect();
        if newer.is_empty() {
            return;
        }
        let changed = meta.newer_descriptors(newer);
        // Reports that change ranges depend on each other, so they go into one command.
        let is_alone = |region: &RegionDescriptor| {
            meta.regions.get(&region.id).is_some_and(|known| known.slots == region.slots)
        };
        let (alone, together): (Vec<_>, Vec<_>) = changed.into_iter().partition(|region| is_alone(region));
        for regions in alone.chunks(REPORTS_MAX).chain([&together[..]]).filter(|chunk| !chunk.is_empty()) {
            let regions = regions.iter().map(|&region| region.clone()).collect();
            self.propose(MetaCommand::ReportRegions { regions }, now, step);
        }
    }

    fn begin(&mut self, meta: &MetaState, operator: Operator, now: BootNanos) -> MetaCommand {
        let last = self.beginning.keys().next_back();
        let id = meta.next_operator.max(last.map_or(0, |last| last + 1));
        self.beginning.insert(id, (operator.clone(), now));
        MetaCommand::BeginOperator { id, operator }
    }

    fn drive(
        &mut self,
        meta: &MetaState,
        ledger: &Ledger,
        limits: &PlanLimits,
        flight: &InFlight,
        now: BootNanos,
        step: &mut Step,
    ) {
        let region = flight.operator.region();
        let term = ledger.routes().get(region).map_or(0, |route| route.term);
        let fresh = Watch { phase: flight.phase, since: now, term, ordered: None };
        let watch = self.watches.entry(flight.id).or_insert_with(|| fresh.clone());
        if watch.phase != flight.phase {
            *watch = Watch { term: watch.term, ordered: watch.ordered.take(), ..fresh };
        }
        let (since, began_term) = (watch.since, watch.term);
        let (config, ratings) = (&self.config, &self.ratings);
        let scene = steps::Scene { config, limits, meta, ledger, ratings, flight, began_term, now };
        let is_late = now.saturating_sub(since) > self.deadline(&scene);
        let next = match (scene.next(), flight.phase) {
            (Next::Wait | Next::Order(_), Phase::Going) if is_late => Next::Fail(Outcome::TimedOut),
            // An operator that cannot be undone in time is finished, and planning repairs the
            // region. The exception is a region that accepts no commands until its merge is rolled
            // back.
            (Next::Wait | Next::Order(_), Phase::Undoing { because }) if is_late && !scene.is_frozen() => {
                Next::Done(because)
            }
            (next, _) => next,
        };
        match next {
            Next::Wait => {}
            Next::Order(order) => self.order(flight.id, order, ledger, now, step),
            Next::Bind => {
                self.propose(MetaCommand::AdvanceOperator { id: flight.id, phase: Phase::Bound }, now, step);
            }
            Next::Fail(_) | Next::Done(_) => {
                let (command, outcome) = match next {
                    Next::Fail(because) => (fail(flight, because), because),
                    Next::Done(outcome) => (MetaCommand::FinishOperator { id: flight.id, outcome }, outcome),
                    _ => unreachable!("matched above"),
                };
                if !self.proposed.iter().any(|(earlier, _)| *earlier == command) {
                    match outcome {
                        Outcome::Succeeded => drop(self.cooldowns.remove(&region)),
                        _ => self.cool(region, now),
                    }
                }
                self.propose(command, now, step);
            }
        }
    }

    /// Sends an order to the region's leader, unless that leader received it recently.
    fn order(&mut self, id: OperatorId, order: Order, ledger: &Ledger, now: BootNanos, step: &mut Step) {
        let Some(route) = ledger.routes().get(order.region()) else { return };
        let watch = self.watches.get_mut(&id).expect("it is being driven");
        let is_fresh = watch.ordered.as_ref().is_some_and(|given| {
            given.order == order
                && (given.leader, given.term) == (route.leader, route.term)
                && now.saturating_sub(given.at) < self.config.repeat_nanos
        });
        if !is_fresh {
            let (leader, term) = (route.leader, route.term);
            watch.ordered = Some(Ordered { order: order.clone(), leader, term, at: now });
            step.orders.push((leader, order));
        }
    }

    fn deadline(&self, scene: &steps::Scene<'_>) -> u64 {
        let operator = &scene.flight.operator;
        if !operator.moves_data() {
            // A removal takes up to four steps, each as long as a transfer. A merge takes several
            // steps, too, but gets no more time because its source accepts no writes until the
            // merge ends.
            let steps = match operator {
                Operator::RemovePeer { .. } => 4,
                _ => 1,
            };
            return self.config.deadline_nanos.saturating_mul(steps);
        }
        let bytes = scene.lead().map_or(0, |lead| lead.bytes);
        let copying = u128::from(bytes) * 1_000_000_000 / u128::from(self.config.data_bytes_per_s.max(1));
        self.config.data_deadline_nanos.saturating_add(u64::try_from(copying).unwrap_or(u64::MAX))
    }

    fn cool(&mut self, region: RegionId, now: BootNanos) {
        let failures = self.cooldowns.get(&region).map_or(0, |cooldown| cooldown.failures);
        let pause = self.config.cooldown_nanos << failures.min(COOLDOWN_DOUBLINGS_MAX);
        self.cooldowns.insert(region, Cooldown { until: now.saturating_add(pause), failures: failures + 1 });
    }

    /// Begins an operator that frees a region which accepts no commands although no operator holds
    /// it. This happens when the order to prepare a merge arrives after the merge was abandoned.
    /// The operator waits for no other region because it needs none.
    fn unseal(&mut self, meta: &MetaState, ledger: &Ledger, now: BootNanos, step: &mut Step) {
        for region in meta.regions.keys() {
            let Some(into) = ledger.lead(*region).and_then(|lead| lead.merging_into()) else { continue };
            let operator = Operator::Unseal { region: *region, reason: Reason::MergeGivenUp { into } };
            if is_current(meta, ledger, &operator)
                && !self.beginning().any(|other| touches(other, *region))
                && meta.check_operator(&operator).is_ok()
            {
                let command = self.begin(meta, operator, now);
                step.commands.push(command);
            }
        }
    }

    /// Proposes to remove draining stores that hold nothing.
    fn let_go(&mut self, meta: &MetaState, ledger: &Ledger, now: BootNanos, step: &mut Step) {
        let draining: Vec<StoreId> = meta
            .members()
            .filter(|store| store.state == MemberState::Draining)
            .map(|store| store.id)
            .collect();
        if draining.is_empty() {
            return;
        }
        let lives = |region: RegionId| meta.regions.contains_key(&region);
        let leading: BTreeSet<StoreId> = ledger
            .routes()
            .iter()
            .filter(|(region, _)| lives(*region))
            .map(|(_, route)| route.leader)
            .collect();
        let heard_with_peers: BTreeSet<StoreId> = ledger
            .descriptors()
            .filter(|region| lives(region.id) || region.id == META_REGION)
            .flat_map(|region| region.peers.iter().map(|peer| peer.store))
            .collect();
        for store in draining {
            let is_empty = meta.first_peer_on(store).is_none()
                && !leading.contains(&store)
                && !heard_with_peers.contains(&store)
                && !self.beginning().any(|operator| operator.to() == Some(store));
            let idle = |flight: &InFlight| {
                flight.operator.to() != Some(store) && flight.operator.from() != Some(store)
            };
            if is_empty && meta.operators.values().all(idle) {
                self.propose(MetaCommand::RemoveStore { store }, now, step);
            }
        }
    }
}

/// Returns the command for a failed operator that is still in [`Phase::Going`].
fn fail(flight: &InFlight, because: Outcome) -> MetaCommand {
    let id = flight.id;
    match flight.operator {
        // These operators leave no partial change.
        Operator::TransferLeader { .. } | Operator::Split { .. } => {
            MetaCommand::FinishOperator { id, outcome: because }
        }
        _ => MetaCommand::AdvanceOperator { id, phase: Phase::Undoing { because } },
    }
}

fn touches(operator: &Operator, region: RegionId) -> bool {
    operator.region() == region || operator.into_region() == Some(region)
}

/// Returns true if the agreed ranges of an operator's regions equal those that their leaders
/// report. Splits and merges recognize their own completion by the region's version.
fn is_current(meta: &MetaState, ledger: &Ledger, operator: &Operator) -> bool {
    if !matches!(operator, Operator::Split { .. } | Operator::Merge { .. } | Operator::Unseal { .. }) {
        return true;
    }
    [Some(operator.region()), operator.into_region()].into_iter().flatten().all(|region| {
        let agreed = meta.regions.get(&region).map(|region| region.epoch.version);
        let said = ledger.lead(region).map(|lead| lead.epoch().version);
        agreed.is_some() && agreed == said
    })
}
