//! Classes of stores that count as equal.
//!
//! A measured capability is an estimate: two measurements of the same device give two numbers. Each
//! estimate therefore has a *spread*, a factor: the true value lies within `value / spread ..=
//! value * spread`. Two stores are *apart* in a quantity if
//!
//! ```text
//! fast / spread  >  1.25 · slow · spread      (1.1 if their classes differed in the last round)
//! ```
//!
//! A configured or pinned number is exact (its spread is 1), and two exact numbers are apart
//! whenever they differ. The factor of 1.25 covers differences that no spread includes, such as
//! those between two probes of one machine at different times of the day.
//!
//! "Not apart" is not transitive: of 100, 140 and 190, each within 20%, the first and the last are
//! apart, but no neighbours are. A class is a group of stores that are neighbours by their
//! estimates, and **no two stores of a class are apart**. Several groupings may be possible. The
//! closest neighbours join first. It follows that:
//!
//! - If no two stores are apart there is one class, whatever their estimates.
//! - Stores are in different classes only because some two stores are apart, never because of the
//!   order of their ids.
//! - A chain of overlapping estimates is cut at its widest gaps.
//! - A store with an imprecise measurement joins the nearest class, and the others do not change.
//!
//! The number of a class is the configured number of one of its members if there is one, and
//! otherwise the median of its estimates. A store without known numbers counts as much as the
//! slowest class.
//!
//! Bytes written, reads and syncs have separate classes, because two devices may be equal in one
//! and differ in another.

use serde::{Deserialize, Serialize};
use types::StoreId;

use crate::{Capability, StoreView};

/// Minimum ratio of two estimates, divided by both spreads, at which stores are apart.
pub const APART: f64 = 1.25;
/// The same ratio for stores that were of different classes in the previous round.
pub const APART_STILL: f64 = 1.1;

/// The uncertainty of a store's numbers: the factors by which the true values may be above or
/// below. 1 means exact, because the number was configured. Less than 1 means that the number is
/// unknown.
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

/// The classes of a store, each named by the lowest id of its members. `None` if nothing is known
/// of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    pub writes: Option<StoreId>,
    pub reads: Option<StoreId>,
    pub syncs: Option<StoreId>,
}

/// The capability and sync time that every policy uses for a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rating {
    pub capability: Capability,
    /// The sync time in nanoseconds; 0 if unknown.
    pub sync_ns: u64,
    /// To be passed back in the next view ([`StoreView::previous`]).
    pub classes: Classes,
}

/// Rates all stores and returns their ratings in the same order. Stores that are down take part, so
/// that nothing changes when a store restarts.
pub fn rate(stores: &[StoreView]) -> Vec<Rating> {
    let estimates = |of: fn(&StoreView) -> (f64, f64, Option<StoreId>)| {
        let estimate = |store| {
            let (value, spread, previous) = of(store);
            // NaN and negative numbers count as 0.
            Estimate { value: if value > 0.0 { value } else { 0.0 }, spread, previous }
        };
        form(stores, &stores.iter().map(estimate).collect::<Vec<_>>())
    };
    let writes = estimates(|store| {
        (store.capability.kv_bytes_per_s, store.spread.kv_bytes_per_s, store.previous.writes)
    });
    let reads = estimates(|store| (store.capability.ops_per_s, store.spread.ops_per_s, store.previous.reads));
    let syncs = estimates(|store| {
        let spread = if store.sync_ns > 0 { store.spread.sync } else { 0.0 };
        (store.sync_ns as f64, spread, store.previous.syncs)
    });
    let each = stores.iter().zip(writes.into_iter().zip(reads).zip(syncs));
    each.map(|(store, ((writes, reads), syncs))| Rating {
        capability: Capability { kv_bytes_per_s: writes.value, ops_per_s: reads.value },
        // An unknown sync time stays unknown; the time of another store's class is not a
        // substitute.
        sync_ns: if store.sync_ns > 0 { syncs.value.round() as u64 } else { 0 },
        classes: Classes { writes: writes.class, reads: reads.class, syncs: syncs.class },
    })
    .collect()
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    value: f64,
    spread: f64,
    previous: Option<StoreId>,
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

/// Returns true if the two are apart. Requires `slow.value <= fast.value`.
fn are_apart(slow: &Estimate, fast: &Estimate) -> bool {
    if slow.is_exact() && fast.is_exact() {
        return slow.value != fast.value;
    }
    let parted = slow.previous.is_some() && fast.previous.is_some() && slow.previous != fast.previous;
    let factor = if parted { APART_STILL } else { APART };
    fast.value / fast.spread > slow.value * slow.spread * factor
}

fn form(stores: &[StoreView], estimates: &[Estimate]) -> Vec<Counted> {
    let mut ranked: Vec<usize> = (0..stores.len()).filter(|&at| estimates[at].is_known()).collect();
    ranked.sort_by(|&a, &b| {
        estimates[a].value.total_cmp(&estimates[b].value).then(stores[a].id.cmp(&stores[b].id))
    });
    let value = |place: usize| estimates[ranked[place]].value;
    // The closest neighbours join first. Two groups that cannot be joined now cannot be joined
    // after they have grown either.
    let gap = |place: &usize| match (value(*place), value(*place + 1)) {
        (low, high) if low == high => 1.0,
        (low, high) => high / low,
    };
    let mut gaps: Vec<usize> = (0..ranked.len().saturating_sub(1)).collect();
    gaps.sort_by(|a, b| gap(a).total_cmp(&gap(b)).then(a.cmp(b)));
    // `first[place]` is the start of the place's group; `end[start]` is the end of the group.
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

/// Returns the number of a class. `members` ascend by value, and all exact ones have the same
/// value.
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
