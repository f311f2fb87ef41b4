//! Reports of the regions that a store leads: a full report at intervals, and deltas in between.

use std::collections::{BTreeMap, BTreeSet};

use types::RegionId;

use super::LeadReport;

/// The part of a heartbeat about the regions that its store leads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leads {
    /// The number of the full heartbeat on which this one builds. In a full heartbeat it is the
    /// heartbeat's own number, and `gone` is empty.
    pub since: u64,
    /// The reports, ascending by region, without duplicates.
    pub reports: Vec<LeadReport>,
    /// The regions that the store no longer leads, ascending, without duplicates. None of them is
    /// in `reports`.
    pub gone: Vec<RegionId>,
}

/// Tracks the changes that the reporting store must report. The store calls it for every change, so
/// unchanged regions cost nothing.
#[derive(Clone, Debug, Default)]
pub struct DeltaTracker {
    leads: BTreeMap<RegionId, LeadReport>,
    /// The regions that changed since the last full report.
    changed: BTreeSet<RegionId>,
    gone: BTreeSet<RegionId>,
    full_seq: Option<u64>,
}

impl DeltaTracker {
    /// Adds a region that the store leads, or updates its report.
    pub fn put(&mut self, report: LeadReport) {
        let region = report.region();
        if self.leads.get(&region).is_some_and(|known| !is_news(known, &report)) {
            return;
        }
        self.leads.insert(region, report);
        self.changed.insert(region);
        self.gone.remove(&region);
    }

    /// Removes a region that the store no longer leads.
    pub fn remove(&mut self, region: RegionId) {
        if self.leads.remove(&region).is_some() {
            self.changed.remove(&region);
            self.gone.insert(region);
        }
    }

    pub fn get(&self, region: RegionId) -> Option<&LeadReport> {
        self.leads.get(&region)
    }

    /// Returns the reports, ascending by region.
    pub fn iter(&self) -> impl Iterator<Item = &LeadReport> {
        self.leads.values()
    }

    /// Returns the contents of heartbeat `seq`. The first is always full; for later ones the caller
    /// decides with `full`.
    pub fn tell(&mut self, seq: u64, full: bool) -> Leads {
        match self.full_seq.filter(|_| !full) {
            Some(since) => Leads {
                since,
                reports: self.changed.iter().map(|region| self.leads[region].clone()).collect(),
                gone: self.gone.iter().copied().collect(),
            },
            None => {
                self.full_seq = Some(seq);
                self.changed.clear();
                self.gone.clear();
                Leads { since: seq, reports: self.leads.values().cloned().collect(), gone: Vec::new() }
            }
        }
    }
}

/// Returns true if the report differs enough to be sent. Small changes of rates do not count: a
/// rate that decays in an idle region would keep the region in every heartbeat for minutes.
fn is_news(known: &LeadReport, report: &LeadReport) -> bool {
    let rates = |lead: &LeadReport| {
        [lead.write_rate, lead.read_rate, lead.miss_rate, lead.write_bytes_rate, lead.heat]
    };
    let is_near = |(known, now): (f64, f64)| {
        let moved = (known - now).abs();
        known == now || (now != 0.0 && moved <= f64::max(0.5, 0.1 * known.max(now)))
    };
    if !rates(known).into_iter().zip(rates(report)).all(is_near) {
        return true;
    }
    let [write_rate, read_rate, miss_rate, write_bytes_rate, heat] = rates(known);
    *known != LeadReport { write_rate, read_rate, miss_rate, write_bytes_rate, heat, ..report.clone() }
}

#[cfg(test)]
mod tests;
