//! Comparison of a region's replicas: what peers report of their rows at one index, and what follows from it.
//!
//! An entry of the region's log orders a checksum (`command::check`). Every peer computes it at that entry's index and
//! its store tells all others in heartbeats, for a while, so that a lost one costs nothing. Whoever has the reports of
//! a majority can judge; the same reports give every store the same verdict.

use std::collections::{BTreeMap, BTreeSet};

use storage::RowsChecksum;
use types::{BootNanos, LogIndex, RegionDescriptor, RegionId, StoreId};

use crate::wire::{Reader, Writer};
use crate::WireError;

/// A report is told for this long after it was made.
const TOLD_NANOS: BootNanos = 60_000_000_000;

/// The smallest encoding of a report.
pub(crate) const REPORT_BYTES_MIN: usize = 4;

/// What a peer's store found of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    Rows(RowsChecksum),
    /// The rows cannot be read.
    Unreadable,
    /// The store had too many checks under way, or was stopping: it says nothing of its rows.
    Skipped,
}

/// One peer's rows as of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckReport {
    pub region: RegionId,
    /// Of the order: tells checks of a region apart.
    pub number: u64,
    /// The order's index in the region's log.
    pub index: LogIndex,
    pub outcome: CheckOutcome,
}

impl CheckReport {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.uint(self.region);
        out.uint(self.number);
        out.uint(self.index);
        match self.outcome {
            CheckOutcome::Skipped => out.u8(0),
            CheckOutcome::Unreadable => out.u8(1),
            CheckOutcome::Rows(RowsChecksum { checksum, rows, bytes }) => {
                out.u8(2);
                [checksum, rows, bytes].into_iter().for_each(|number| out.uint(number));
            }
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<CheckReport, WireError> {
        let (region, number, index) = (from.uint()?, from.uint()?, from.uint()?);
        let outcome = match from.u8()? {
            0 => CheckOutcome::Skipped,
            1 => CheckOutcome::Unreadable,
            2 => CheckOutcome::Rows(RowsChecksum {
                checksum: from.uint()?,
                rows: from.uint()?,
                bytes: from.uint()?,
            }),
            _ => return Err(WireError::Malformed("an unknown outcome of a check")),
        };
        Ok(CheckReport { region, number, index, outcome })
    }
}

/// What the reports of one check come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every peer has the same rows.
    Equal,
    /// A majority of the voters has the same rows, and the peers on these stores have others or cannot read theirs.
    Minority { stores: Vec<StoreId> },
    /// Peers differ, and no rows are those of a majority of the voters: which are right is not known.
    NoMajority,
    /// Those who reported have the same rows, and these stores have not reported.
    Incomplete { missing: Vec<StoreId> },
}

/// The reports of one check, by store, and what they come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub region: RegionId,
    pub index: LogIndex,
    pub reports: BTreeMap<StoreId, CheckOutcome>,
    pub verdict: Verdict,
}

impl Comparison {
    /// Whether another report could still change the verdict.
    pub fn is_open(&self, descriptor: &RegionDescriptor) -> bool {
        match self.verdict {
            Verdict::Equal => false,
            Verdict::Incomplete { .. } => true,
            Verdict::Minority { .. } | Verdict::NoMajority => {
                descriptor.peers.iter().any(|peer| !self.reports.contains_key(&peer.store))
            }
        }
    }
}

/// Judges the reports of the peers that `descriptor`, as of the check's index, names.
pub fn judge(descriptor: &RegionDescriptor, reports: &BTreeMap<StoreId, CheckOutcome>) -> Verdict {
    let voters: BTreeSet<StoreId> = descriptor.voters().collect();
    let mut votes: BTreeMap<RowsChecksum, usize> = BTreeMap::new();
    let (mut missing, mut unreadable, mut rows) = (Vec::new(), false, BTreeMap::new());
    for peer in &descriptor.peers {
        match reports.get(&peer.store) {
            Some(CheckOutcome::Rows(sum)) => {
                rows.insert(peer.store, Some(*sum));
                *votes.entry(*sum).or_default() += usize::from(voters.contains(&peer.store));
            }
            Some(CheckOutcome::Unreadable) => {
                rows.insert(peer.store, None);
                unreadable = true;
            }
            Some(CheckOutcome::Skipped) | None => missing.push(peer.store),
        }
    }
    let majority = votes.iter().find(|(_, votes)| **votes > voters.len() / 2).map(|(sum, _)| *sum);
    let stores: Vec<StoreId> = match majority {
        Some(sum) => rows.iter().filter(|(_, of)| **of != Some(sum)).map(|(store, _)| *store).collect(),
        None => Vec::new(),
    };
    match majority {
        Some(_) if !stores.is_empty() => Verdict::Minority { stores },
        None if unreadable || votes.len() > 1 => Verdict::NoMajority,
        _ if missing.is_empty() => Verdict::Equal,
        _ => Verdict::Incomplete { missing },
    }
}

/// The newest report of each region's peers, as this store heard them.
#[derive(Debug, Default)]
pub struct CheckBook {
    /// This store's own, with the descriptor as of the index and the moment until which they are told.
    own: BTreeMap<RegionId, (CheckReport, RegionDescriptor, BootNanos)>,
    heard: BTreeMap<RegionId, BTreeMap<StoreId, CheckReport>>,
    /// When a check of the region was first heard of that is not older than any before.
    last: BTreeMap<RegionId, (LogIndex, BootNanos)>,
}

impl CheckBook {
    /// Takes in the report of this store's own peer. `descriptor` is the region's as of the report's index.
    pub fn report(
        &mut self,
        this: StoreId,
        report: CheckReport,
        descriptor: RegionDescriptor,
        now: BootNanos,
    ) {
        self.own.insert(report.region, (report, descriptor, now.saturating_add(TOLD_NANOS)));
        self.hear(this, &[report], now);
    }

    /// Takes in what another store tells. Returns the regions of which that was news.
    pub fn hear(&mut self, from: StoreId, reports: &[CheckReport], now: BootNanos) -> Vec<RegionId> {
        let mut news = Vec::new();
        for report in reports {
            let known = self.heard.entry(report.region).or_default().get(&from);
            // A store that starts again may execute an old order once more, and report it.
            if known.is_some_and(|known| known == report || known.index > report.index) {
                continue;
            }
            self.heard.entry(report.region).or_default().insert(from, *report);
            let last = self.last.entry(report.region).or_insert((report.index, now));
            if last.0 < report.index {
                *last = (report.index, now);
            }
            news.push(report.region);
        }
        news
    }

    /// Returns what the next heartbeat tells: one report for each region, ascending.
    pub fn tell(&self, now: BootNanos) -> Vec<CheckReport> {
        self.own.values().filter(|(_, _, until)| now < *until).map(|(report, ..)| *report).collect()
    }

    /// This store's peer of the region has other rows now, or is gone: its report says nothing of it any more.
    pub fn withdraw(&mut self, this: StoreId, region: RegionId) {
        self.own.remove(&region);
        if let Some(reports) = self.heard.get_mut(&region) {
            reports.remove(&this);
        }
    }

    /// When the region was checked last, as far as this store heard.
    pub fn last(&self, region: RegionId) -> Option<BootNanos> {
        self.last.get(&region).map(|(_, at)| *at)
    }

    /// Compares the reports of the check that this store's own peer took part in last.
    pub fn compare_own(&self, region: RegionId) -> Option<(CheckReport, RegionDescriptor, Comparison)> {
        let (report, descriptor, _) = self.own.get(&region)?;
        let comparison = self.compare(report.number, report.index, descriptor);
        Some((*report, descriptor.clone(), comparison))
    }

    /// Compares the reports of one check.
    pub fn compare(&self, number: u64, index: LogIndex, descriptor: &RegionDescriptor) -> Comparison {
        let region = descriptor.id;
        let heard = self.heard.get(&region).into_iter().flatten();
        let is_of = |report: &CheckReport| (report.number, report.index) == (number, index);
        let of_check = heard.filter(|(_, report)| is_of(report));
        let reports: BTreeMap<_, _> = of_check.map(|(store, report)| (*store, report.outcome)).collect();
        let verdict = judge(descriptor, &reports);
        Comparison { region, index, reports, verdict }
    }
}

#[cfg(test)]
mod tests;
