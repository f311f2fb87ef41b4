//! Which stores count as equal.
//!
//! A measured capability is an estimate: the same device measured twice gives two numbers. Each estimate therefore
//! has a *spread*, a factor: what was measured is surely within `value / spread ..= value * spread`. Two stores are
//! *apart* in a quantity when
//!
//! ```text
//! fast / spread  >  1.25 · slow · spread              1.1 where they were of different classes in the round before
//! ```
//!
//! What was told or pinned is exact (a spread of 1), and two exact numbers are apart whenever they differ. The
//! factor covers what no spread knows: two probes of one machine at different times of the day.
//!
//! "Not apart" is not transitive: of 100, 140 and 190, each within 20%, the first and the last are apart and no
//! neighbours are. A class is a group of stores, neighbours by their estimates, **no two of which are apart**. Of the
//! ways to form such groups the closest neighbours join first. So
//!
//! - where no two stores are apart there is one class, whatever their estimates;
//! - stores are of different classes only because some two stores are apart, never by the order of their ids;
//! - a chain of overlapping estimates is cut at its widest gaps;
//! - a store that was measured badly joins the class nearest to it, and the others stay as they are.
//!
//! A class counts for the number that was told of one of its members, or else for the median of its estimates. Stores of
//! which nothing is known count for what the slowest class does.
//!
//! Written bytes, reads and syncs are classed apart: a device may be like another in the one and not in the other.

use serde::{Deserialize, Serialize};
use types::StoreId;

use crate::{Capability, StoreView};

/// A store counts as faster than another when it surely is so many times as fast.
pub const APART: f64 = 1.25;
/// Stores that counted as different in the round before do so until they are as close as this.
pub const APART_STILL: f64 = 1.1;

/// How sure the numbers of a store are: factors, by which the truth may be above or below. 1: told, exact. Anything less:
/// the number itself is not known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub kv_bytes_per_s: f64,
    pub ops_per_s: f64,
    pub sync: f64,
}

impl Spread {
    pub const EXACT: Spread = Spread::all(1.0);
    pub const UNKNOWN: Spread = Spread::all(0.0);

    pub const fn all(spread: f64) -> Spread {
        Spread { kv_bytes_per_s: spread, ops_per_s: spread, sync: spread }
    }
}

impl Default for Spread {
    fn default() -> Spread {
        Spread::EXACT
    }
}

/// The classes of a store, each named by the lowest id of its members. `None`: nothing is known of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    pub writes: Option<StoreId>,
    pub reads: Option<StoreId>,
    pub syncs: Option<StoreId>,
}

/// What a store counts for in every policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rating {
    pub capability: Capability,
    /// 0: not known.
    pub sync_ns: u64,
    /// To be given back in the next view ([`StoreView::former`]).
    pub classes: Classes,
}

/// In the order of the stores. Whether they are up makes no difference, so that nothing changes when one restarts.
pub fn rate(stores: &[StoreView]) -> Vec<Rating> {
    let estimates = |of: fn(&StoreView) -> (f64, f64, Option<StoreId>)| {
        let estimate = |store| {
            let (value, spread, former) = of(store);
            // What makes no sense is no speed.
            Estimate { value: if value > 0.0 { value } else { 0.0 }, spread, former }
        };
        form(stores, &stores.iter().map(estimate).collect::<Vec<_>>())
    };
    let writes = estimates(|store| {
        (store.capability.kv_bytes_per_s, store.spread.kv_bytes_per_s, store.former.writes)
    });
    let reads = estimates(|store| (store.capability.ops_per_s, store.spread.ops_per_s, store.former.reads));
    let syncs = estimates(|store| {
        let spread = if store.sync_ns > 0 { store.spread.sync } else { 0.0 };
        (store.sync_ns as f64, spread, store.former.syncs)
    });
    let each = stores.iter().zip(writes.into_iter().zip(reads).zip(syncs));
    each.map(|(store, ((writes, reads), syncs))| Rating {
        capability: Capability { kv_bytes_per_s: writes.value, ops_per_s: reads.value },
        // A sync that nobody measured is told as such, and not as that of another store.
        sync_ns: if store.sync_ns > 0 { syncs.value.round() as u64 } else { 0 },
        classes: Classes { writes: writes.class, reads: reads.class, syncs: syncs.class },
    })
    .collect()
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    value: f64,
    spread: f64,
    former: Option<StoreId>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    value: f64,
    class: Option<StoreId>,
}

impl Estimate {
    fn is_known(&self) -> bool {
        self.spread >= 1.0
    }

    fn is_exact(&self) -> bool {
        self.spread == 1.0
    }
}

/// `slow.value <= fast.value`.
fn are_apart(slow: &Estimate, fast: &Estimate) -> bool {
    if slow.is_exact() && fast.is_exact() {
        return slow.value != fast.value;
    }
    let parted = slow.former.is_some() && fast.former.is_some() && slow.former != fast.former;
    let factor = if parted { APART_STILL } else { APART };
    fast.value / fast.spread > slow.value * slow.spread * factor
}

fn form(stores: &[StoreView], estimates: &[Estimate]) -> Vec<Counted> {
    let mut ranked: Vec<usize> = (0..stores.len()).filter(|&at| estimates[at].is_known()).collect();
    ranked.sort_by(|&a, &b| {
        estimates[a].value.total_cmp(&estimates[b].value).then(stores[a].id.cmp(&stores[b].id))
    });
    let value = |place: usize| estimates[ranked[place]].value;
    // The closest neighbours first. A pair of groups that cannot be one cannot be one when they have grown either.
    let gap = |place: &usize| match (value(*place), value(*place + 1)) {
        (low, high) if low == high => 1.0,
        (low, high) => high / low,
    };
    let mut gaps: Vec<usize> = (0..ranked.len().saturating_sub(1)).collect();
    gaps.sort_by(|a, b| gap(a).total_cmp(&gap(b)).then(a.cmp(b)));
    // Of each place the first of its group; of the first of a group its end.
    let mut first: Vec<usize> = (0..ranked.len()).collect();
    let mut end: Vec<usize> = (1..=ranked.len()).collect();
    for place in gaps {
        let (low, high) = (first[place], place + 1);
        let high_end = end[high];
        let apart = |slow: usize, fast: usize| are_apart(&estimates[ranked[slow]], &estimates[ranked[fast]]);
        if (low..high).any(|slow| (high..high_end).any(|fast| apart(slow, fast))) {
            continue;
        }
        end[low] = high_end;
        first[high..high_end].fill(low);
    }
    let unknown = Counted { value: 0.0, class: None };
    let mut counted = vec![unknown; stores.len()];
    let mut slowest: Option<f64> = None;
    let mut low = 0;
    while low < ranked.len() {
        let members = &ranked[low..end[low]];
        let class = members.iter().map(|&at| stores[at].id).min();
        let value = counts_for(members, estimates);
        slowest.get_or_insert(value);
        for &at in members {
            counted[at] = Counted { value, class };
        }
        low = end[low];
    }
    for (counted, estimate) in counted.iter_mut().zip(estimates).filter(|(_, estimate)| !estimate.is_known())
    {
        counted.value = slowest.unwrap_or(estimate.value);
    }
    counted
}

/// Members ascend by value, and those that are exact have one value.
fn counts_for(members: &[usize], estimates: &[Estimate]) -> f64 {
    let told = members.iter().find(|&&at| estimates[at].is_exact());
    let (lower, upper) = match told {
        Some(&told) => (told, told),
        None => (members[(members.len() - 1) / 2], members[members.len() / 2]),
    };
    estimates[lower].value.midpoint(estimates[upper].value)
}

#[cfg(test)]
mod tests;
