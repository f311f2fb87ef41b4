//! Orders of an operator that recover regions whose majority of voters is lost for good.
//!
//! ```text
//!   survey every store ─▶ plan: the regions, each region's keeper, the possible losses
//!     ─▶ every survivor promises its vote to the keeper
//!     ─▶ survey: every promise is durable, and no log has moved
//!     ─▶ the keeper recovers ─▶ survey: it has applied the recovery, and leads
//! ```
//!
//! No step needs the meta region, because it may be one of the regions that lost their majority.
//! The store that carries out an order asks the other stores directly. A region is recovered only
//! if every store that has a peer of it and is not named as lost has answered.
//!
//! **The keeper's log.** The keeper's log must hold every entry that any survivor knows to be
//! committed. Among the survivors with such logs the keeper is the one with the largest (last term,
//! last index), as in an election. The second condition does not imply the first if the survivors
//! are a minority. One survivor may have an entry of a later term that was never committed, while
//! its log lacks an entry that another survivor knows to be committed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use types::{LogIndex, PeerId, Recovery, RegionDescriptor, RegionId, StoreId, Term, UnixMillis};

use crate::state::descriptors;

mod plan;

pub use plan::{plan, Situation};

/// A store's answer to a survey.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    pub store: StoreId,
    /// The other stores whose heartbeats arrived recently.
    pub hears: Vec<StoreId>,
    /// The version of its list of stores, and the members on it.
    pub members_version: u64,
    pub members: Vec<StoreId>,
    pub peers: Vec<PeerReport>,
    /// The largest number under which each region's peer was removed from this store. A store sends
    /// them from version 3 of the cluster on, because older programs refuse a survey with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<(RegionId, PeerId)>,
}

/// One peer of a surveyed store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerReport {
    pub region: RegionId,
    pub peer: PeerId,
    /// The descriptor as of the applied index.
    #[serde(with = "descriptors::one")]
    pub descriptor: RegionDescriptor,
    /// The descriptor as it will be when the whole log is applied.
    #[serde(with = "descriptors::one")]
    pub ends_as: RegionDescriptor,
    pub term: Term,
    pub vote: Option<PeerId>,
    /// True if the term, the vote and every entry are durable.
    pub is_saved: bool,
    pub leads: bool,
    pub unfit: Option<Unfit>,
    pub commit: LogIndex,
    pub commit_term: Term,
    pub applied: LogIndex,
    pub last: LogIndex,
    /// The first index and the term of each run of entries of one term, newest first. Old runs may
    /// be left out.
    pub runs: Vec<(LogIndex, Term)>,
}

/// The reason why a region cannot continue from a peer's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unfit {
    /// It holds neither a log nor rows.
    Blank,
    /// Its region has merged into another one.
    Merged,
    Other(String),
}

impl PeerReport {
    fn last_term(&self) -> Term {
        self.runs.first().map_or(0, |(_, term)| *term)
    }

    fn term_at(&self, index: LogIndex) -> Option<Term> {
        let within = self.runs.iter().filter(|_| index <= self.last).find(|(first, _)| *first <= index);
        within.map(|(_, term)| *term)
    }

    /// Returns true if the log holds the committed entry. A log holds every entry up to its own
    /// commit index.
    fn holds(&self, index: LogIndex, term: Term) -> bool {
        index <= self.commit || self.term_at(index) == Some(term)
    }

    /// Returns the number of entries at the end of the log that the other log lacks, as far as the
    /// reports show. Logs that share an entry of one index and term are equal up to it.
    fn beyond(&self, other: &PeerReport) -> u64 {
        let mut end = self.last;
        for (first, term) in &self.runs {
            let of_other = other.runs.iter().position(|(_, of_other)| of_other == term);
            if let Some(at) = of_other {
                let ends_at = if at == 0 { other.last } else { other.runs[at - 1].0 - 1 };
                let starts_at = other.runs[at].0.max(*first);
                let common = ends_at.min(end);
                if common >= starts_at {
                    return self.last - common;
                }
            }
            end = first.saturating_sub(1);
        }
        self.last - end.min(self.last)
    }
}

/// A step of an order that a store must take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RecoveryStep {
    /// The store's peer votes for the keeper in this term.
    Promise { region: RegionId, term: Term, keeper: PeerId },
    /// The store's peer is the keeper: the region continues from its log.
    Recover {
        region: RegionId,
        term: Term,
        #[serde(with = "descriptors::recovery")]
        recovery: Recovery,
    },
}

impl RecoveryStep {
    pub fn region(&self) -> RegionId {
        match self {
            RecoveryStep::Promise { region, .. } | RecoveryStep::Recover { region, .. } => *region,
        }
    }
}

/// The regions that an order would recover, and those that it refuses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoveryPlan {
    /// Ascending by region.
    pub regions: Vec<RegionPlan>,
    pub refused: Vec<RefusedRegion>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedRegion {
    pub region: RegionId,
    pub reason: String,
    /// True if the same order may succeed a moment later.
    pub is_passing: bool,
}

/// One region that continues from a survivor's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionPlan {
    pub region: RegionId,
    pub slots: Option<(u16, u16)>,
    /// The store of the keeper, and its peer there.
    pub keeper: StoreId,
    pub keeper_peer: PeerId,
    /// The term in which every survivor promises its vote to the keeper.
    pub term: Term,
    /// The lost stores that had a peer of the region, and the stores from which its peer was
    /// removed without the survivors' knowledge.
    pub lost: Vec<StoreId>,
    /// The survivors that have data, the keeper included.
    pub survivors: Vec<Survivor>,
    /// The last entry that a survivor knows to be committed, and the last entry of the keeper's
    /// log. The entries between them count as committed, although they may never have been
    /// acknowledged.
    pub committed: LogIndex,
    pub last: LogIndex,
    /// The last entry that a leader reported as committed to the planning store. Entries that were
    /// committed later and are lost cannot be counted.
    pub told: Option<LogIndex>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Survivor {
    pub store: StoreId,
    pub last_term: Term,
    pub last: LogIndex,
    pub commit: LogIndex,
    pub applied: LogIndex,
    /// The reason why the survivor's log cannot be used.
    pub unfit: Option<String>,
    /// The number of entries of its log that the keeper's log lacks. They are dropped.
    pub dropped: u64,
}

impl RegionPlan {
    /// Returns the number of entries that were committed and are certainly lost.
    pub fn certainly_lost(&self) -> u64 {
        self.told.map_or(0, |told| told.saturating_sub(self.last))
    }

    /// Returns the promise that each survivor must make.
    pub fn promises(&self) -> Vec<(StoreId, RecoveryStep)> {
        let (region, term, keeper) = (self.region, self.term, self.keeper_peer);
        let promise = |survivor: &Survivor| (survivor.store, RecoveryStep::Promise { region, term, keeper });
        self.survivors.iter().map(promise).collect()
    }

    /// Returns true if every survivor has durably promised its vote and no log has changed since
    /// the plan was made.
    pub fn is_promised(&self, surveys: &[Survey]) -> bool {
        let reports = reports_of(surveys);
        self.survivors.iter().all(|survivor| {
            reports.get(&(self.region, survivor.store)).is_some_and(|report| {
                report.is_saved
                    && (report.term, report.vote) == (self.term, Some(self.keeper_peer))
                    && (report.last, report.last_term()) == (survivor.last, survivor.last_term)
                    && report.commit == survivor.commit
            })
        })
    }

    /// Returns the keeper's step, to be sent once every survivor has promised its vote.
    pub fn recover(&self, order: u64, at_ms: UnixMillis) -> (StoreId, RecoveryStep) {
        let recovery = Recovery {
            order,
            at_ms,
            keeper: self.keeper,
            lost: self.lost.clone(),
            committed: self.committed,
            last: self.last,
        };
        (self.keeper, RecoveryStep::Recover { region: self.region, term: self.term, recovery })
    }

    /// Returns true if the keeper has carried out the order and leads the region. Also returns true
    /// if the region has merged away there: the recovery of the target region may commit a merge
    /// that was in progress.
    pub fn is_done(&self, surveys: &[Survey], order: u64) -> bool {
        let reports = reports_of(surveys);
        let leads = reports.get(&(self.region, self.keeper)).is_some_and(|report| {
            report.leads && report.descriptor.recoveries.iter().any(|recovery| recovery.order == order)
        });
        let took_over = |(&(_, store), report): (&(RegionId, StoreId), &&PeerReport)| {
            store == self.keeper && report.descriptor.absorbed.contains(&self.region)
        };
        leads || reports.iter().any(took_over)
    }
}

/// The reason why a whole order is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("no store is named as lost")]
    NoStore,
    #[error("no store {0} in this cluster")]
    UnknownStore(StoreId),
    #[error("store {0} answers: it is not lost. Leave it out, or stop it for good first")]
    Answers(StoreId),
    #[error("store {by} heard of store {store} within the last seconds: it is not lost. Look at the network between the stores; if it was stopped just now, wait a few seconds")]
    Heard { store: StoreId, by: StoreId },
    #[error("no region {0}")]
    UnknownRegion(RegionId),
}

fn reports_of(surveys: &[Survey]) -> BTreeMap<(RegionId, StoreId), &PeerReport> {
    let mut reports = BTreeMap::new();
    for survey in surveys {
        reports.extend(survey.peers.iter().map(|peer| ((peer.region, survey.store), peer)));
    }
    reports
}

fn is_majority_of(voters: &[StoreId], is_there: impl Fn(StoreId) -> bool) -> bool {
    2 * voters.iter().filter(|&&store| is_there(store)).count() > voters.len()
}

/// Returns true if the stores that are not lost could elect a leader.
fn may_live(region: &RegionDescriptor, lost: &BTreeSet<StoreId>) -> bool {
    use types::PeerRole::{Incoming, Outgoing, Voter};
    let with = |roles: [types::PeerRole; 2]| -> Vec<StoreId> {
        region.peers.iter().filter(|peer| roles.contains(&peer.role)).map(|peer| peer.store).collect()
    };
    let is_there = |store| !lost.contains(&store);
    is_majority_of(&with([Voter, Incoming]), is_there)
        && (!region.is_joint() || is_majority_of(&with([Voter, Outgoing]), is_there))
}

#[cfg(test)]
mod tests;
