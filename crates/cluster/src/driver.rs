//! Operators from their start to their end.
//!
//! The driver lives on the leader of region 0 and nowhere else; it keeps nothing that the next leader would
//! need, for a leader transfer that nobody waits for either happens or does not. Ends are seen in the
//! routing table: the region has another leader, or the deadline passed.

use std::collections::{BTreeMap, VecDeque};

use placement::{Operator, PlanLimits, Reason};
use serde::{Deserialize, Serialize};
use types::{BootNanos, RegionId, StoreId, Term, UnixMillis};

use crate::{Ledger, MetaState};

/// A failed region's pause doubles with each failure in a row, up to this many times.
const COOLDOWN_DOUBLINGS_MAX: u32 = 5;

/// One moment, on the clock that deadlines use and on the one that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub boot: BootNanos,
    pub unix_ms: UnixMillis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// How long an operator may take.
    pub deadline_nanos: u64,
    /// How long a region is left alone after its first failed operator.
    pub cooldown_nanos: u64,
    /// Finished operators that are remembered.
    pub history_max: usize,
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        const SECOND: u64 = 1_000_000_000;
        DriverConfig { deadline_nanos: 5 * SECOND, cooldown_nanos: 2 * SECOND, history_max: 1000 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    pub operator: Operator,
    pub started: Now,
    /// The region's term when the operator began.
    term: Term,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    Succeeded,
    /// The region has a new term and another leader than the wanted one.
    LedElsewhere {
        leader: StoreId,
    },
    TimedOut,
    /// The leader gave the transfer up.
    Aborted,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Succeeded => f.write_str("succeeded"),
            Outcome::LedElsewhere { leader } => write!(f, "led by store {leader} instead"),
            Outcome::TimedOut => f.write_str("timed out"),
            Outcome::Aborted => f.write_str("aborted"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub operator: Operator,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub started_unix_ms: UnixMillis,
    pub finished_unix_ms: UnixMillis,
}

/// Why a requested move was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("no region {0}")]
    NoRegion(RegionId),
    #[error("region {0} has no known leader")]
    NoLeader(RegionId),
    #[error("region {region} has an operator in flight")]
    Busy { region: RegionId },
    #[error("store {store} leads region {region} already")]
    LeadsAlready { region: RegionId, store: StoreId },
    #[error("store {store} has no voting peer of region {region}")]
    NotAVoter { region: RegionId, store: StoreId },
    #[error("store {0} is down")]
    Down(StoreId),
}

#[derive(Clone, Copy, Debug)]
struct Cooldown {
    until: BootNanos,
    failures: u32,
}

#[derive(Clone, Debug)]
pub struct Driver {
    config: DriverConfig,
    in_flight: BTreeMap<RegionId, InFlight>,
    cooldowns: BTreeMap<RegionId, Cooldown>,
    /// Oldest first.
    history: VecDeque<Finished>,
}

impl Driver {
    pub fn new(config: DriverConfig) -> Driver {
        Driver { config, in_flight: BTreeMap::new(), cooldowns: BTreeMap::new(), history: VecDeque::new() }
    }

    /// One round: sees which operators ended, plans, and returns the operators to send out, which are in
    /// flight from then on.
    pub fn step(
        &mut self,
        meta: &MetaState,
        ledger: &Ledger,
        limits: &PlanLimits,
        now: Now,
    ) -> Vec<Operator> {
        self.observe(ledger, now);
        if !meta.is_bootstrapped() || !ledger.is_settled(meta, now.boot) {
            return Vec::new();
        }
        let view = crate::view(meta, ledger, self, now.boot);
        let operators = placement::plan(&view, meta.policy, limits);
        for operator in &operators {
            self.begin(operator.clone(), ledger, now);
        }
        operators
    }

    /// Begins a move that somebody asked for. A policy that wants the leader elsewhere moves it again.
    pub fn request(
        &mut self,
        meta: &MetaState,
        ledger: &Ledger,
        region: RegionId,
        to: StoreId,
        now: Now,
    ) -> Result<Operator, StartError> {
        self.observe(ledger, now);
        let descriptor = meta.regions.get(&region).ok_or(StartError::NoRegion(region))?;
        let from = ledger.routes().get(region).ok_or(StartError::NoLeader(region))?.leader;
        if self.in_flight.contains_key(&region) {
            return Err(StartError::Busy { region });
        }
        if from == to {
            return Err(StartError::LeadsAlready { region, store: to });
        }
        if !descriptor.voters().any(|store| store == to) {
            return Err(StartError::NotAVoter { region, store: to });
        }
        if let Some(down) = [from, to].into_iter().find(|&store| !ledger.is_up(store, now.boot)) {
            return Err(StartError::Down(down));
        }
        let operator = Operator::TransferLeader { region, from, to, reason: Reason::Requested };
        self.begin(operator.clone(), ledger, now);
        Ok(operator)
    }

    /// The region's leader says that it gave the transfer up.
    pub fn aborted(&mut self, region: RegionId, now: Now) {
        self.finish(region, Outcome::Aborted, now);
    }

    /// Forgets what is in flight, as when region 0's leadership is lost or won.
    pub fn forget(&mut self) {
        self.in_flight.clear();
        self.cooldowns.clear();
    }

    /// Ascending by region.
    pub fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.values()
    }

    /// Oldest first.
    pub fn history(&self) -> impl Iterator<Item = &Finished> {
        self.history.iter()
    }

    pub fn is_cooling(&self, region: RegionId, now: BootNanos) -> bool {
        self.cooldowns.get(&region).is_some_and(|cooldown| now < cooldown.until)
    }

    /// Ends the operators whose outcome the routing table or the clock shows.
    pub fn observe(&mut self, ledger: &Ledger, now: Now) {
        let ended: Vec<(RegionId, Outcome)> = self
            .in_flight
            .iter()
            .filter_map(|(&region, flight)| Some((region, self.outcome_of(region, flight, ledger, now)?)))
            .collect();
        for (region, outcome) in ended {
            self.finish(region, outcome, now);
        }
    }

    fn outcome_of(&self, region: RegionId, flight: &InFlight, ledger: &Ledger, now: Now) -> Option<Outcome> {
        if let Some(route) = ledger.routes().get(region).filter(|route| route.term > flight.term) {
            return Some(match route.leader {
                leader if Some(leader) == flight.operator.to() => Outcome::Succeeded,
                leader => Outcome::LedElsewhere { leader },
            });
        }
        let age = now.boot.saturating_sub(flight.started.boot);
        (age > self.config.deadline_nanos).then_some(Outcome::TimedOut)
    }

    fn begin(&mut self, operator: Operator, ledger: &Ledger, now: Now) {
        let region = operator.region();
        let term = ledger.routes().get(region).map_or(0, |route| route.term);
        let before = self.in_flight.insert(region, InFlight { operator, started: now, term });
        assert!(before.is_none(), "a region has one operator at a time");
    }

    fn finish(&mut self, region: RegionId, outcome: Outcome, now: Now) {
        let Some(flight) = self.in_flight.remove(&region) else { return };
        match outcome {
            Outcome::Succeeded => drop(self.cooldowns.remove(&region)),
            _ => {
                let failures = self.cooldowns.get(&region).map_or(0, |cooldown| cooldown.failures);
                let pause = self.config.cooldown_nanos << failures.min(COOLDOWN_DOUBLINGS_MAX);
                let cooldown = Cooldown { until: now.boot.saturating_add(pause), failures: failures + 1 };
                self.cooldowns.insert(region, cooldown);
            }
        }
        self.history.push_back(Finished {
            operator: flight.operator,
            outcome,
            started_unix_ms: flight.started.unix_ms,
            finished_unix_ms: now.unix_ms,
        });
        let excess = self.history.len().saturating_sub(self.config.history_max);
        self.history.drain(..excess);
    }
}

#[cfg(test)]
mod tests;
