//! Checks which reports of regions are consistent: after they are accepted, the user regions still
//! cover every slot exactly once.
//!
//! Two leaders report a split and one reports a merge, each at its own time and in any order. A
//! report that is not consistent yet is ignored. It arrives again, together with the reports that
//! it depends on.
//!
//! The version of a slot's region increases whenever the slot moves to another region. Hence a
//! range with a lower version than the slot's present region is outdated, and no record of merged
//! regions is needed.

use std::collections::{BTreeMap, BTreeSet};

use types::{RegionDescriptor, RegionId, META_REGION, SLOT_COUNT};

type Regions = BTreeMap<RegionId, RegionDescriptor>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fit<'a> {
    /// Ascending by id.
    pub taken: Vec<&'a RegionDescriptor>,
    /// Regions that no longer exist, because other regions own their slots.
    pub gone: Vec<RegionId>,
    /// Regions whose reports are newer but do not fit.
    pub ignored: Vec<RegionId>,
}

/// Returns the largest set of `reports` that are newer than `known` and fit. `known` covers every
/// slot once.
pub(crate) fn fit<'a>(
    known: &Regions,
    reports: impl IntoIterator<Item = &'a RegionDescriptor>,
    is_plausible: impl Fn(&RegionDescriptor) -> bool,
) -> Fit<'a> {
    let mut fit = Fit::default();
    let mut newest: BTreeMap<RegionId, &RegionDescriptor> = BTreeMap::new();
    for report in reports {
        let is_newer = |than: &RegionDescriptor| report.epoch.is_newer_than(than.epoch);
        if known.get(&report.id).is_some_and(|region| !is_newer(region)) {
            continue;
        }
        let is_meta = report.id == META_REGION;
        if report.slots.is_none() != is_meta || !is_plausible(report) {
            fit.ignored.push(report.id);
        } else if newest.get(&report.id).is_none_or(|other| is_newer(other)) {
            newest.insert(report.id, report);
        }
    }
    fit.taken.extend(newest.remove(&META_REGION));
    // Most reports change no range. They fit regardless of the others.
    let slots_now = |id: RegionId| known.get(&id).and_then(|region| region.slots);
    let (same, other): (Vec<_>, Vec<_>) =
        newest.into_values().partition(|report| slots_now(report.id) == report.slots);
    if other.is_empty() {
        fit.taken.extend(same);
    } else {
        let candidates = same.into_iter().chain(other).collect();
        let settled = settle(known, candidates);
        fit.taken.extend(settled.taken);
        fit.gone = settled.gone;
        fit.ignored.extend(settled.ignored);
    }
    fit.taken.sort_unstable_by_key(|region| region.id);
    fit.ignored.sort_unstable();
    fit.ignored.dedup();
    fit
}

const NO_TAKER: usize = usize::MAX;

/// Lays the candidates over the known regions, the highest version first. While a slot has no
/// region, rejects the candidates that took the slot's region away.
fn settle<'a>(known: &Regions, mut candidates: Vec<&'a RegionDescriptor>) -> Fit<'a> {
    candidates.sort_unstable_by_key(|region| (std::cmp::Reverse(region.epoch.version), region.id));
    let mut rejected = vec![false; candidates.len()];
    loop {
        // The index of the candidate that has each slot.
        let mut taker = vec![NO_TAKER; usize::from(SLOT_COUNT)];
        let mut accepted: BTreeMap<RegionId, usize> = BTreeMap::new();
        for (at, region) in candidates.iter().enumerate().filter(|(at, _)| !rejected[*at]) {
            let slots = slots_of(region);
            if taker[slots.clone()].iter().all(|&taker| taker == NO_TAKER) {
                taker[slots].fill(at);
                accepted.insert(region.id, at);
            }
        }
        let mut gone = Vec::new();
        let mut wrong = BTreeSet::new();
        for old in known.values().filter(|old| old.id != META_REGION) {
            let slots = slots_of(old);
            let successor = accepted.get(&old.id).copied();
            let takers: BTreeSet<usize> = taker[slots.clone()].iter().copied().collect();
            if takers.iter().all(|&taker| taker == NO_TAKER) && successor.is_none() {
                continue;
            }
            // The region moves or ends. All its slots must have a successor with a higher version.
            let others = takers.iter().copied().filter(|&at| at != NO_TAKER && Some(at) != successor);
            let all_newer = others.clone().all(|at| candidates[at].epoch.version > old.epoch.version);
            if takers.contains(&NO_TAKER) || !all_newer {
                wrong.extend(others.chain(successor));
            } else if successor.is_none() {
                gone.push(old.id);
            }
        }
        if wrong.is_empty() {
            let is_taken = |at: usize| accepted.get(&candidates[at].id) == Some(&at);
            let (taken, ignored): (Vec<usize>, Vec<usize>) =
                (0..candidates.len()).partition(|&at| is_taken(at));
            return Fit {
                taken: taken.into_iter().map(|at| candidates[at]).collect(),
                gone,
                ignored: ignored.into_iter().map(|at| candidates[at].id).collect(),
            };
        }
        wrong.into_iter().for_each(|at| rejected[at] = true);
    }
}

fn slots_of(region: &RegionDescriptor) -> std::ops::Range<usize> {
    let slots = region.slots.expect("user regions have slots");
    usize::from(slots.first)..usize::from(slots.last) + 1
}

#[cfg(test)]
mod tests;
