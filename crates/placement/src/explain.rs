//! Why a region's leader is where it is, and what would be done about it.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId, META_REGION};

use crate::leader_only::is_worth_it;
use crate::round::{Eligibility, Round};
use crate::units::BytesPerSecond;
use crate::{ClusterView, Operator, PlanLimits, Policy, RegionView};

/// One peer of the region, with the numbers that decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    pub store: StoreId,
    pub speed_bytes_per_s: u64,
    /// User regions that the store leads, moves in flight counted as done.
    pub leaders: u32,
    /// Log entries behind the leader's commit index.
    pub lag: Option<u64>,
    pub standing: Standing,
}

/// Whether a peer leads or could.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Leads,
    Eligible,
    Down,
    Learner,
    LagUnknown,
    Behind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    NoLeader,
    /// Raft itself elects another.
    LeaderDown,
    InFlight {
        operator: Operator,
    },
    /// A move failed lately.
    Cooldown,
    /// It is the next to be done, or among the next.
    Planned {
        operator: Operator,
    },
    /// A move would be made but for the limits on what is in flight.
    Waits,
    /// `even` does not place the meta region's leader.
    NotPlaced,
    /// `even`: moving it would not make the counts more even, or others are moved for that.
    CountsAllow,
    /// `leader-only`: no eligible peer is on a store more capable by enough.
    MostCapable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub region: RegionId,
    pub policy: Policy,
    pub leader: Option<StoreId>,
    /// In the order of the region's peers.
    pub candidates: Vec<Candidate>,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// `None` for a region that the view does not have.
pub fn explain(
    view: &ClusterView,
    policy: Policy,
    limits: &PlanLimits,
    region: RegionId,
) -> Option<Explanation> {
    let region = view.region(region)?;
    let round = Round::new(view, limits);
    let leaders = round.leader_counts();
    let candidates = region
        .peers
        .iter()
        .map(|peer| Candidate {
            store: peer.store,
            speed_bytes_per_s: view.store(peer.store).map_or(0, |store| store.capability.speed()),
            leaders: round.at(peer.store).map_or(0, |at| leaders[at as usize]),
            lag: peer.lag,
            standing: match round.eligibility(peer) {
                Eligibility::Down => Standing::Down,
                _ if region.leader == Some(peer.store) => Standing::Leads,
                Eligibility::Eligible => Standing::Eligible,
                Eligibility::Learner => Standing::Learner,
                Eligibility::LagUnknown => Standing::LagUnknown,
                Eligibility::Behind => Standing::Behind,
            },
        })
        .collect();
    let verdict = verdict(&round, policy, region);
    Some(Explanation { region: region.id, policy, leader: region.leader, candidates, verdict })
}

fn verdict(round: &Round<'_>, policy: Policy, region: &RegionView) -> Verdict {
    if let Some(operator) = round.view.in_flight.iter().find(|operator| operator.region() == region.id) {
        return Verdict::InFlight { operator: operator.clone() };
    }
    if region.leader.is_none() {
        return Verdict::NoLeader;
    }
    let Some(leader) = round.live_leader(region) else { return Verdict::LeaderDown };
    if region.cooldown {
        return Verdict::Cooldown;
    }
    let planned = crate::plan(round.view, policy, round.limits);
    if let Some(operator) = planned.into_iter().find(|operator| operator.region() == region.id) {
        return Verdict::Planned { operator };
    }
    match policy {
        Policy::Even if region.id == META_REGION => Verdict::NotPlaced,
        Policy::Even => Verdict::CountsAllow,
        Policy::LeaderOnly => {
            let speed = |at: u32| round.view.stores[at as usize].capability.speed();
            match round.candidates(region).map(speed).max() {
                Some(best) if is_worth_it(speed(leader), best, round.limits) => Verdict::Waits,
                _ => Verdict::MostCapable,
            }
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Leads => "leads",
            Standing::Eligible => "could lead",
            Standing::Down => "down",
            Standing::Learner => "a learner, cannot lead",
            Standing::LagUnknown => "how far it is behind is not known",
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
            Verdict::Cooldown => f.write_str("A move failed a short while ago; it is left alone for now."),
            Verdict::Planned { operator } => write!(f, "Next: {operator}."),
            Verdict::Waits => {
                f.write_str("It will move to its most capable peer once fewer moves are in flight.")
            }
            Verdict::NotPlaced => f.write_str("This policy leaves the meta region's leader where it is."),
            Verdict::CountsAllow => f.write_str("It stays: moving it is not needed for even leader counts."),
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
        for candidate in &self.candidates {
            let Candidate { store, speed_bytes_per_s, leaders, lag, standing } = candidate;
            let speed = BytesPerSecond(*speed_bytes_per_s);
            write!(f, "  store {store}: {standing}; writes {speed}, leads {leaders}")?;
            match lag {
                Some(lag) if *standing != Standing::Leads => writeln!(f, ", {lag} entries behind")?,
                _ => writeln!(f)?,
            }
        }
        write!(f, "{}", self.verdict)
    }
}
