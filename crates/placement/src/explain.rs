//! Explains the store of a region's leader, and the changes that are planned.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId, META_REGION};

use crate::leader_only::is_worth_it;
use crate::load::Loads;
use crate::repair::kept_voters;
use crate::round::{position, Eligibility, Round, StoreIndex, NOWHERE};
use crate::units::{permille, Bytes, BytesPerSecond, Cores, Nanos, Percent};
use crate::{ClusterView, Operator, PlanLimits, Policy, RegionView};

/// One peer of the region, with the numbers that decide its placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    pub store: StoreId,
    pub speed_bytes_per_s: u64,
    /// Duration of one sync on the otherwise idle device, in nanoseconds; 0 if unknown.
    pub sync_ns: u64,
    /// User regions that the store leads, with moves in flight counted as done.
    pub leaders: u32,
    /// Live user bytes, with moves in flight counted as done.
    pub used_bytes: u64,
    /// The store's load by measured rates, in thousandths of its capability.
    pub busy_permille: u64,
    /// The CPU of the store's machine; `None` if unknown.
    #[serde(default)]
    pub cpu: Option<CpuShare>,
    /// Log entries behind the leader's commit index.
    pub lag: Option<u64>,
    /// Other stores with peers of the region and the same rated write speed, because none of them
    /// is certainly faster.
    #[serde(default)]
    pub equals: Vec<StoreId>,
    pub standing: Standing,
}

/// The expected CPU use of a store's machine, with everything in flight counted as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuShare {
    pub busy_permille: u64,
    pub millicores: u64,
}

impl CpuShare {
    pub(crate) fn of(round: &Round<'_>, store: StoreIndex) -> Option<CpuShare> {
        let (share, cores) = round.cpus.expected(store)?;
        Some(CpuShare { busy_permille: permille(share), millicores: permille(cores) })
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU at {} of {}", Percent(self.busy_permille), Cores(self.millicores))
    }
}

/// A peer's role for the leadership of its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Leads,
    Eligible,
    Down,
    Lost,
    Draining,
    OutOfRoom,
    ClockOff,
    NoSession,
    CpuBusy,
    Learner,
    LagUnknown,
    Behind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    NoLeader,
    /// Raft itself elects another leader.
    LeaderDown,
    InFlight {
        operator: Operator,
    },
    /// The membership of the region is changing.
    Changing,
    /// A move failed recently.
    Cooldown,
    Held,
    /// Too few of its voters answer, so Raft can commit nothing.
    NoMajority {
        answering: u32,
        voters: u32,
    },
    /// There is no store for another peer, or none with room.
    TooFewVoters {
        voters: u32,
        wanted: u32,
    },
    /// An operator for the region is among the next operators to begin.
    Planned {
        operator: Operator,
    },
    /// Only the limits on operators in flight prevent a move.
    Waits,
    /// `even` does not place the meta region's leader.
    NotPlaced,
    /// `even`: moving it would not make the counts more even, or other regions are moved for that
    /// purpose.
    CountsAllow,
    /// `leader-only` and `alor`: no eligible peer is on a store that is faster by enough.
    MostCapable,
    /// `leader-only` and `alor`: the CPUs of the faster stores have no room for the leader.
    CpusBusy,
    /// `adaptive`: no move of the region improves the layout by enough.
    Balanced,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub region: RegionId,
    pub policy: Policy,
    pub leader: Option<StoreId>,
    /// Live user bytes of one copy.
    pub bytes: u64,
    /// Recent operations per second.
    pub writes: u64,
    pub reads: u64,
    /// The part of the reads that miss RAM.
    pub misses: u64,
    /// In the order of the region's peers.
    pub candidates: Vec<Candidate>,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Explains the state of a region. Returns `None` if the view does not have it.
pub fn explain(
    view: &ClusterView,
    policy: Policy,
    limits: &PlanLimits,
    region: RegionId,
) -> Option<Explanation> {
    let region = view.region(region)?;
    let round = Round::new(view, policy, limits);
    let loads = Loads::new(&round);
    let at = position(view, region.id)?;
    let candidates = region
        .peers
        .iter()
        .map(|peer| Candidate {
            store: peer.store,
            speed_bytes_per_s: round.at(peer.store).map_or(0, |at| round.leader_speed(at)),
            sync_ns: round.at(peer.store).map_or(0, |at| round.ratings[at as usize].sync_ns),
            leaders: round.at(peer.store).map_or(0, |at| round.totals.leaders[at as usize]),
            used_bytes: round.at(peer.store).map_or(0, |at| round.totals.used[at as usize]),
            busy_permille: round.at(peer.store).map_or(0, |at| permille(loads.busy(at))),
            cpu: round.at(peer.store).and_then(|at| CpuShare::of(&round, at)),
            lag: peer.lag,
            equals: equals(&round, region, peer.store),
            standing: match round.eligibility(peer) {
                Eligibility::Down => Standing::Down,
                Eligibility::Lost => Standing::Lost,
                _ if region.leader == Some(peer.store) => Standing::Leads,
                Eligibility::Draining => Standing::Draining,
                Eligibility::OutOfRoom => Standing::OutOfRoom,
                Eligibility::ClockOff => Standing::ClockOff,
                Eligibility::NoSession => Standing::NoSession,
                Eligibility::Eligible if !round.at(peer.store).is_some_and(|to| round.cpu_allows(at, to)) => {
                    Standing::CpuBusy
                }
                Eligibility::Eligible => Standing::Eligible,
                Eligibility::Learner => Standing::Learner,
                Eligibility::LagUnknown => Standing::LagUnknown,
                Eligibility::Behind => Standing::Behind,
            },
        })
        .collect();
    let verdict = verdict(&round, region.id);
    Some(Explanation {
        region: region.id,
        policy,
        leader: region.leader,
        bytes: region.bytes,
        // Casts saturate and turn NaN into 0.
        writes: region.write_rate as u64,
        reads: region.read_rate as u64,
        misses: region.miss_rate as u64,
        candidates,
        verdict,
    })
}

/// Returns the other stores of the region in the same write class, in the order of its peers.
fn equals(round: &Round<'_>, region: &RegionView, store: StoreId) -> Vec<StoreId> {
    let class = |store: StoreId| round.ratings[round.at(store)? as usize].classes.writes;
    let others = region.peers.iter().map(|peer| peer.store).filter(|&other| other != store);
    others.filter(|&other| class(store).is_some() && class(other) == class(store)).collect()
}

fn verdict(round: &Round<'_>, region: RegionId) -> Verdict {
    let takes_part =
        |operator: &&Operator| operator.region() == region || operator.into_region() == Some(region);
    if let Some(operator) = round.view.in_flight.iter().find(takes_part) {
        return Verdict::InFlight { operator: operator.clone() };
    }
    let at = position(round.view, region).expect("the region is in the view");
    let (view, row) = (round.region(at), &round.rows[at as usize]);
    if view.leader.is_none() {
        return Verdict::NoLeader;
    }
    if row.leader == NOWHERE {
        return Verdict::LeaderDown;
    }
    if view.joint {
        return Verdict::Changing;
    }
    if view.cooldown {
        return Verdict::Cooldown;
    }
    if !round.can_repair(at) {
        return Verdict::NoMajority { answering: row.live_voters.into(), voters: row.voters.into() };
    }
    let planned = crate::plan(round.view, round.policy, round.limits);
    if let Some(operator) = planned.into_iter().find(|operator| takes_part(&operator)) {
        return Verdict::Planned { operator };
    }
    if view.held {
        return Verdict::Held;
    }
    let wanted = round.wanted(at) as u32;
    let voters = kept_voters(round, at) as u32;
    match round.policy {
        _ if voters < wanted && round.peers_may_move() => Verdict::TooFewVoters { voters, wanted },
        Policy::Even if region == META_REGION => Verdict::NotPlaced,
        Policy::Even => Verdict::CountsAllow,
        Policy::LeaderOnly | Policy::Alor => {
            let speed = |at: u32| round.leader_speed(at);
            match round.candidates(at).map(speed).max() {
                Some(best) if is_worth_it(speed(row.leader), best, round.limits) => Verdict::Waits,
                _ => match round.able(at).map(speed).max() {
                    Some(best) if is_worth_it(speed(row.leader), best, round.limits) => Verdict::CpusBusy,
                    _ => Verdict::MostCapable,
                },
            }
        }
        Policy::Adaptive => Verdict::Balanced,
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Leads => "leads",
            Standing::Eligible => "could lead",
            Standing::Down => "down",
            Standing::Lost => "lost",
            Standing::Draining => "draining",
            Standing::OutOfRoom => "out of room, cannot lead",
            Standing::ClockOff => "its clock is off, cannot lead",
            Standing::NoSession => "has no session with ZooKeeper, cannot lead",
            Standing::CpuBusy => "its CPU has no room for the lead",
            Standing::Learner => "a learner, cannot lead",
            Standing::LagUnknown => "its lag is unknown",
            Standing::Behind => "too far behind to lead",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::NoLeader => f.write_str("Nothing is done until it has elected a leader."),
            Verdict::LeaderDown => f.write_str("Its leader's store is down; its peers elect another."),
            Verdict::InFlight { operator } => write!(f, "In flight: {operator}."),
            Verdict::Changing => f.write_str("Its membership is being changed."),
            Verdict::NoMajority { answering, voters } => {
                write!(f, "Nothing can be done: {answering} of its {voters} voters answer.")
            }
            Verdict::TooFewVoters { voters, wanted } => write!(
                f,
                "It has {voters} of {wanted} voters on stores that are not lost; another is made when there is a store with room for it."
            ),
            Verdict::Held => f.write_str(
                "One of its peers is quarantined and waits for a decision (ctl quarantine list): until then missing \
                 voters are added, and nothing else is done.",
            ),
            Verdict::Cooldown => f.write_str("A move failed a short while ago; it is left alone for now."),
            Verdict::Planned { operator } => write!(f, "Next: {operator}."),
            Verdict::Waits => {
                f.write_str("It will move to its most capable peer once fewer moves are in flight.")
            }
            Verdict::NotPlaced => f.write_str("This policy leaves the meta region's leader where it is."),
            Verdict::CountsAllow => f.write_str("It stays: moving it is not needed for even leader counts."),
            Verdict::Balanced => f.write_str(
                "It stays: no move of it makes the busiest stores less busy or its writes wait less, by enough.",
            ),
            Verdict::CpusBusy => f.write_str(
                "It stays: the CPUs of its more capable peers have no room for the lead, or had none lately.",
            ),
            Verdict::MostCapable => {
                f.write_str("It stays: none of its peers that could lead is on a store worth the move.")
            }
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.leader {
            Some(leader) => write!(f, "Region {} is led by store {leader}", self.region)?,
            None => write!(f, "Region {} has no known leader", self.region)?,
        }
        writeln!(f, "; the policy is {}.", self.policy)?;
        write!(f, "  {}, {} writes/s, {} reads/s", Bytes(self.bytes), self.writes, self.reads)?;
        match self.misses {
            0 => writeln!(f)?,
            misses => writeln!(f, ", {misses} of them not from RAM")?,
        }
        for candidate in &self.candidates {
            let Candidate { store, leaders, busy_permille, lag, standing, .. } = candidate;
            let speed = BytesPerSecond(candidate.speed_bytes_per_s);
            let used = Bytes(candidate.used_bytes);
            write!(f, "  store {store}: {standing}; writes {speed}")?;
            if let [first, more @ ..] = &candidate.equals[..] {
                write!(f, " (equal to store {first}")?;
                more.iter().try_for_each(|store| write!(f, " and {store}"))?;
                f.write_str(")")?;
            }
            if candidate.sync_ns > 0 {
                write!(f, ", syncs in {}", Nanos(candidate.sync_ns))?;
            }
            write!(f, ", leads {leaders}, holds {used}")?;
            if self.policy == Policy::Adaptive {
                write!(f, ", {} busy", Percent(*busy_permille))?;
            }
            if let Some(cpu) = candidate.cpu {
                write!(f, ", {cpu}")?;
            }
            match lag {
                Some(lag) if *standing != Standing::Leads => writeln!(f, ", {lag} entries behind")?,
                _ => writeln!(f)?,
            }
        }
        write!(f, "{}", self.verdict)
    }
}
