//! What regions' former leaders told, for as long as it counts.
//!
//! Rates and heat are decaying averages, and a leader begins them at nothing, or at what it answered as a follower: what
//! was done under another, or by itself in a former term, it does not know. Such an average is a sum over time, so a region's own is what its present leader has come to
//! and what the former ones had, decayed since. Without that, each transfer would make a hot region the coldest
//! of all for minutes, and the store that leads it now an idle one that takes the next leader, too.
//!
//! Which of its reads miss RAM is another matter: a new leader has not read the region's rows yet. For
//! [`COLD_S`] no more of them count than did before, in proportion, or a leader would be sent on because it has
//! come.

use std::collections::BTreeMap;

use types::{BootNanos, RegionId, StoreId, Term};

use crate::heartbeat::{HEAT_WINDOW_S, RATE_WINDOW_S};
use crate::LeadReport;

/// After so long a new leader's RAM holds what is read often.
const COLD_S: u64 = 60;
/// Of fewer reads a second nobody knows how many miss.
const READS_TELLING: f64 = 1.0;

/// Per second, as in a [`LeadReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    pub write_rate: f64,
    pub read_rate: f64,
    pub miss_rate: f64,
    pub write_bytes_rate: f64,
    pub heat: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Former {
    regions: BTreeMap<RegionId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    /// Who told, in which incarnation: one that restarted has forgotten.
    by: (StoreId, u64),
    by_since: BootNanos,
    term: Term,
    bytes: u64,
    told: Load,
    /// Of those before, when the present leader was first heard.
    before: Load,
    before_at: BootNanos,
}

impl Former {
    /// False: a later leader has told already.
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
        // A leader that has not measured the region yet knows less than the one before it.
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
