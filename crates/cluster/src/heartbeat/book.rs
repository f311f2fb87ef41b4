//! What a store leads, as it is reported: whole now and then, and in between only what changed.

use std::collections::{BTreeMap, BTreeSet};

use types::RegionId;

use super::LeadReport;

/// The part of a heartbeat about the regions that its store leads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leads {
    /// The heartbeat that this one builds on; its own number: on none, and `gone` is empty.
    pub since: u64,
    /// Ascending, none twice.
    pub reports: Vec<LeadReport>,
    /// Ascending, none twice, and none that is reported.
    pub gone: Vec<RegionId>,
}

/// Kept by the store that reports. It is told of what changes, and costs nothing for what does not.
#[derive(Clone, Debug, Default)]
pub struct LeadBook {
    leads: BTreeMap<RegionId, LeadReport>,
    /// Since the last full report.
    changed: BTreeSet<RegionId>,
    gone: BTreeSet<RegionId>,
    full_seq: Option<u64>,
}

impl LeadBook {
    /// The store leads a region, or something about one that it leads is different.
    pub fn put(&mut self, report: LeadReport) {
        let region = report.region();
        if self.leads.get(&region).is_some_and(|known| !is_news(known, &report)) {
            return;
        }
        self.leads.insert(region, report);
        self.changed.insert(region);
        self.gone.remove(&region);
    }

    /// The store leads it no more.
    pub fn remove(&mut self, region: RegionId) {
        if self.leads.remove(&region).is_some() {
            self.changed.remove(&region);
            self.gone.insert(region);
        }
    }

    pub fn get(&self, region: RegionId) -> Option<&LeadReport> {
        self.leads.get(&region)
    }

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = &LeadReport> {
        self.leads.values()
    }

    /// What heartbeat `seq` says. The first is full, whatever is asked for; after that the caller says when
    /// one is due again.
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

/// A rate that decays while nothing happens would keep a region in every heartbeat for minutes.
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
