//! The load that regions' previous leaders reported, while it is still relevant.
//!
//! Rates and heat are decaying averages. A leader starts them at zero, or at its value as a
//! follower, because it does not know the operations under another leader or in its own earlier
//! terms. An average of this kind is a sum over time. So a region's load is the sum of its present
//! leader's averages and the decayed averages of the previous leaders. Without the latter, each
//! transfer would make a hot region look cold for minutes. Its new leader would look idle and
//! attract the next leader, too.
//!
//! The share of reads that miss RAM is different, because a new leader has not read the region's
//! rows yet. For [`COLD_S`] the share is limited to its value before the transfer. Otherwise the
//! misses that a transfer causes would cause the next transfer.

use std::collections::BTreeMap;

use types::{BootNanos, RegionId, StoreId, Term};

use crate::heartbeat::{HEAT_WINDOW_S, RATE_WINDOW_S};
use crate::LeadReport;

/// Time in seconds after which a new leader's RAM holds the frequently read rows.
const COLD_S: u64 = 60;
/// Minimum read rate at which the share of misses is meaningful, in reads per second.
const READS_TELLING: f64 = 1.0;

/// A region's load per second, as in a [`LeadReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    pub write_rate: f64,
    pub read_rate: f64,
    pub miss_rate: f64,
    pub write_bytes_rate: f64,
    pub heat: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PreviousLeaders {
    regions: BTreeMap<RegionId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    /// The store that reported, and its incarnation: a restarted store has lost its averages.
    by: (StoreId, u64),
    by_since: BootNanos,
    term: Term,
    bytes: u64,
    told: Load,
    /// The sum of the previous leaders' loads at the first report of the present leader.
    before: Load,
    before_at: BootNanos,
}

impl PreviousLeaders {
    /// Records a leader's report. Returns false if a leader of a later term has reported already.
    pub fn told(&mut self, store: StoreId, incarnation: u64, lead: &LeadReport, now: BootNanos) -> bool {
        let (by, told) = ((store, incarnation), Load::of(lead));
        let before = Load::default();
        let fresh =
            Known { by, by_since: now, term: lead.term, bytes: lead.bytes, told, before, before_at: now };
        let known = self.regions.entry(lead.region()).or_insert(fresh);
        if lead.term < known.term {
            return false;
        }
        if by != known.by || lead.term != known.term {
            known.before = known.at(now);
            known.before_at = now;
        }
        if by != known.by {
            known.by = by;
            known.by_since = now;
        }
        known.term = lead.term;
        known.told = told;
        // A leader that has not measured the region yet knows less than the previous leader.
        known.bytes = if lead.sized { lead.bytes } else { lead.bytes.max(known.bytes) };
        true
    }

    pub fn bytes(&self, region: RegionId) -> u64 {
        self.regions.get(&region).map_or(0, |known| known.bytes)
    }

    pub fn load(&self, region: RegionId, now: BootNanos) -> Load {
        self.regions.get(&region).map_or(Load::default(), |known| known.at(now))
    }

    pub fn forget(&mut self, region: RegionId) {
        self.regions.remove(&region);
    }
}

impl Known {
    fn at(&self, now: BootNanos) -> Load {
        let seconds = now.saturating_sub(self.before_at) as f64 / 1e9;
        let (rates, heat) = ((-seconds / RATE_WINDOW_S).exp(), (-seconds / HEAT_WINDOW_S).exp());
        let Known { told, before, .. } = self;
        let read_rate = told.read_rate + before.read_rate * rates;
        let is_cold = now.saturating_sub(self.by_since) < COLD_S * 1_000_000_000;
        let most = match is_cold && before.read_rate >= READS_TELLING {
            true => read_rate * before.miss_rate / before.read_rate,
            false => f64::INFINITY,
        };
        Load {
            write_rate: told.write_rate + before.write_rate * rates,
            read_rate,
            miss_rate: (told.miss_rate + before.miss_rate * rates).min(most),
            write_bytes_rate: told.write_bytes_rate + before.write_bytes_rate * rates,
            heat: told.heat + before.heat * heat,
        }
    }
}

impl Load {
    fn of(lead: &LeadReport) -> Load {
        let LeadReport { write_rate, read_rate, miss_rate, write_bytes_rate, heat, .. } = *lead;
        Load { write_rate, read_rate, miss_rate, write_bytes_rate, heat }
    }
}
