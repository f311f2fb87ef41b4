//! Regions that may have merged away while their store was absent, and the rules by which the store
//! is informed.
//!
//! A region's descriptor lists the regions that it absorbed last. A store that receives a
//! descriptor that concerns it tells its groups. A store may have been away for more merges than a
//! descriptor lists. It then asks the meta region, which records all of them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::iter;

use cluster::MetaState;
use replica::Input;
use types::{BootNanos, RegionDescriptor, RegionId, SlotRange, StoreId};

use crate::failpoints::Failpoint;

const SECOND: BootNanos = 1_000_000_000;
/// Interval between two looks at all regions.
pub const LOOK_AGAIN: BootNanos = SECOND;
/// Time without a leader after which the meta region is asked, and interval between two questions.
pub const ASK_AFTER: BootNanos = 5 * SECOND;
/// Maximum number of regions in one question.
pub const ASKED_MAX: usize = 64;

/// The regions with a peer here that have no leader, each with the time since which it has had
/// none.
#[derive(Debug, Default)]
pub struct MergedWatch {
    silent: BTreeMap<RegionId, BootNanos>,
    looked: Option<BootNanos>,
    asked: Option<BootNanos>,
}

impl MergedWatch {
    /// Returns true if it is time to look at the regions again.
    pub fn is_due(&self, now: BootNanos) -> bool {
        self.looked.is_none_or(|at| now.saturating_sub(at) >= LOOK_AGAIN)
    }

    /// Takes all regions with a peer here that have no leader, except the meta region. Returns
    /// those about which the meta region's leader must be asked now. `is_asking` is true while a
    /// question is pending.
    pub fn look(
        &mut self,
        without_leader: impl IntoIterator<Item = RegionId>,
        is_asking: bool,
        now: BootNanos,
    ) -> Vec<RegionId> {
        self.looked = Some(now);
        let since = |region| (region, self.silent.get(&region).copied().unwrap_or(now));
        self.silent = without_leader.into_iter().map(since).collect();
        let waits = |since: BootNanos| now.saturating_sub(since) < ASK_AFTER;
        if is_asking || self.asked.is_some_and(waits) {
            return Vec::new();
        }
        let due = self.silent.iter().filter(|(_, &since)| !waits(since)).map(|(&region, _)| region);
        let due: Vec<RegionId> = due.take(ASKED_MAX).collect();
        if !due.is_empty() {
            self.asked = Some(now);
        }
        due
    }
}

/// A region that merged away, and the regions that have its slots now.
pub type Merged = (RegionId, Vec<RegionDescriptor>);

/// Returns the answer of the meta region's leader. Each region comes with the slots that the asking
/// store last knew it to have.
pub fn answer(meta: &MetaState, asked: &[(RegionId, SlotRange)]) -> Vec<Merged> {
    let merged = |&(region, slots): &(RegionId, SlotRange)| {
        if Failpoint::LivingIsMerged.is_on() && meta.regions.contains_key(&region) {
            let others = meta.regions.values().filter(|other| other.id != region && other.slots.is_some());
            return Some((region, others.cloned().collect()));
        }
        Some((region, meta.heirs_of(region, slots)?.into_iter().cloned().collect()))
    };
    asked.iter().filter_map(merged).collect()
}

/// Returns the inputs for the groups that follow from an answer of the meta region's leader. The
/// answer lists the regions that have merged away, each with the regions that have its slots now. A
/// region that it does not list may be a new one, so no input follows for it.
pub fn conclude(asked: &[RegionId], answer: Vec<Merged>) -> Vec<Input> {
    let of_asked = answer.into_iter().filter(|(region, _)| asked.contains(region));
    of_asked.map(|(region, heirs)| Input::MergedAway { region, heirs }).collect()
}

/// Returns true if the groups of `store` must be told of this descriptor from a heartbeat, because
/// it proves the end of a peer here. The peer may have ended while the store was absent. `local`
/// returns the descriptor of a region that has a peer here.
pub fn concerns<D: Borrow<RegionDescriptor>>(
    heard: &RegionDescriptor,
    store: StoreId,
    local: impl FnMut(RegionId) -> Option<D>,
) -> bool {
    let has_ended = |last: D| {
        let last = last.borrow();
        last.peer_on(store).is_none_or(|peer| heard.end_of(last, peer.id).is_some())
    };
    iter::once(heard.id).chain(heard.absorbed.iter().copied()).filter_map(local).any(has_ended)
}
