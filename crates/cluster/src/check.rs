//! Comparison of a region's replicas by checksums of their rows at one index of the region's log.
//!
//! An entry of the region's log orders a checksum (`command::order`). Every peer computes it at the
//! index of that entry. Its store repeats the report in heartbeats for [`TOLD_NANOS`], so that a
//! lost heartbeat does not lose the report. A store can judge once it has received reports from a
//! majority. Equal reports give every store the same verdict.

use std::collections::{BTreeMap, BTreeSet};

use storage::RowsChecksum;
use types::{BootNanos, LogIndex, RegionDescriptor, RegionId, StoreId};

use crate::wire::{Reader, Writer};
use crate::WireError;

/// Time in nanoseconds for which heartbeats repeat a report.
const TOLD_NANOS: BootNanos = 60_000_000_000;

/// Minimum bytes of an encoded report.
pub(crate) const REPORT_BYTES_MIN: usize = 4;

/// The result of one peer's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    Rows(RowsChecksum),
    /// The rows cannot be read.
    Unreadable,
    /// The store computed no checksum, because it had too many checks in progress or was stopping.
    Skipped,
}

/// A report on one peer's rows as of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckReport {
    pub region: RegionId,
    /// The number of the check's order. It distinguishes the checks of one region.
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

/// The verdict on the reports of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every peer has the same rows.
    Equal,
    /// A majority of the voters has the same rows. The peers on these stores have different rows or
    /// cannot read theirs.
    Minority { stores: Vec<StoreId> },
    /// Peers differ, and no majority of the voters has the same rows. The correct rows are unknown.
    NoMajority,
    /// The peers that reported have the same rows, and these stores have not reported.
    Incomplete { missing: Vec<StoreId> },
}

/// The reports of one check, by store, and the verdict on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub region: RegionId,
    pub index: LogIndex,
    pub reports: BTreeMap<StoreId, CheckOutcome>,
    pub verdict: Verdict,
}

impl Comparison {
    /// Returns true if another report could change the verdict.
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

/// Returns the verdict on the reports of the descriptor's peers. `descriptor` is as of the check's
/// index.
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

/// The newest reports that a store has made and received, by region.
#[derive(Debug, Default)]
pub struct CheckBook {
    /// This store's own reports, each with the descriptor as of its index and the time until which
    /// heartbeats repeat it.
    own: BTreeMap<RegionId, (CheckReport, RegionDescriptor, BootNanos)>,
    heard: BTreeMap<RegionId, BTreeMap<StoreId, CheckReport>>,
    /// The index of the region's newest check, and the time at which this store first learned of
    /// it.
    last: BTreeMap<RegionId, (LogIndex, BootNanos)>,
}

impl CheckBook {
    /// Adds the report of this store's own peer. `descriptor` is the region's descriptor as of the
    /// report's index.
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

    /// Adds another store's reports. Returns the regions with a new report.
    pub fn hear(&mut self, from: StoreId, reports: &[CheckReport], now: BootNanos) -> Vec<RegionId> {
        let mut changed = Vec::new();
        for report in reports {
            let known = self.heard.entry(report.region).or_default().get(&from);
            // A restarted store may execute an old order again and report it.
            if known.is_some_and(|known| known == report || known.index > report.index) {
                continue;
            }
            self.heard.entry(report.region).or_default().insert(from, *report);
            let last = self.last.entry(report.region).or_insert((report.index, now));
            if last.0 < report.index {
                *last = (report.index, now);
            }
            changed.push(report.region);
        }
        changed
    }

    /// Returns the reports for the next heartbeat: at most one for each region, ascending.
    pub fn tell(&self, now: BootNanos) -> Vec<CheckReport> {
        self.own.values().filter(|(_, _, until)| now < *until).map(|(report, ..)| *report).collect()
    }

    /// Removes this store's own report of the region, because its peer's rows were replaced or the
    /// peer was removed.
    pub fn withdraw(&mut self, this: StoreId, region: RegionId) {
        self.own.remove(&region);
        if let Some(reports) = self.heard.get_mut(&region) {
            reports.remove(&this);
        }
    }

    /// Returns the time at which this store first learned of the region's newest check.
    pub fn last(&self, region: RegionId) -> Option<BootNanos> {
        self.last.get(&region).map(|(_, at)| *at)
    }

    /// Compares the reports of the last check in which this store's own peer took part.
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
