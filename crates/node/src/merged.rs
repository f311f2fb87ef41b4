//! Regions that may have merged away while their store was absent, and the rules by which a store
//! learns of it.
//!
//! A region's descriptor names the latest regions that it took over. A store that hears such a
//! descriptor, or one without its own peer, tells its groups. A store that was away for more merges
//! than a descriptor names asks the meta region, which records all of them.

use std::collections::BTreeMap;

use replica::Input;
use types::{BootNanos, RegionDescriptor, RegionId, StoreId};

use crate::planted::{self, Bug};

const SECOND: BootNanos = 1_000_000_000;
/// The time between two looks at all regions.
const LOOK_AGAIN: BootNanos = SECOND;
/// The time without a leader after which the meta region is asked, and between two questions.
const ASK_AFTER: BootNanos = 5 * SECOND;
/// Maximum number of regions of one question.
const ASKED_MAX: usize = 64;

/// The regions with a peer here that have no leader, and since when.
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

    /// Takes all regions with a peer here that have no leader, without the meta region. Returns
    /// those about which the meta region's leader is to be asked now. `is_asking` is true while a
    /// question is under way.
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

/// Returns what an answer of the meta region's leader tells the groups. The answer names the
/// regions that have merged away, each with the regions that have its slots now. A region that it
/// does not name may be a new one, so nothing follows for it.
pub fn conclude(asked: &[RegionId], answer: Vec<(RegionId, Vec<RegionDescriptor>)>) -> Vec<Input> {
    if planted::is(Bug::AskedIsMerged) {
        let heirs = answer.first().map_or(Vec::new(), |(_, heirs)| heirs.clone());
        let all = asked.iter().map(|&region| Input::MergedAway { region, heirs: heirs.clone() });
        return all.collect();
    }
    let of_asked = answer.into_iter().filter(|(region, _)| asked.contains(region));
    of_asked.map(|(region, heirs)| Input::MergedAway { region, heirs }).collect()
}

/// Returns true if the groups of `store` must hear of this descriptor, which a heartbeat told: it
/// took over a region that has a peer here, or the region's own peer here was removed, perhaps
/// while this store was absent.
pub fn concerns(
    descriptor: &RegionDescriptor,
    store: StoreId,
    mut is_here: impl FnMut(RegionId) -> bool,
) -> bool {
    let is_gone = !descriptor.has_peer_on(store) && is_here(descriptor.id);
    is_gone || descriptor.absorbed.iter().any(|&region| is_here(region))
}

#[cfg(test)]
mod tests {
    use types::SlotRange;

    use super::*;

    #[test]
    fn a_region_is_asked_about_when_it_has_long_had_no_leader_and_not_again_at_once() {
        let mut watch = MergedWatch::default();
        assert!(watch.is_due(0));
        assert!(watch.look([1, 2], false, 0).is_empty());
        assert!(!watch.is_due(SECOND - 1) && watch.is_due(SECOND));
        // Region 1 has a leader meanwhile.
        assert!(watch.look([2], false, SECOND).is_empty());
        assert!(watch.look([1, 2], false, ASK_AFTER - 1).is_empty());
        assert!(watch.look([1, 2], true, ASK_AFTER).is_empty(), "a question is under way");
        assert_eq!(watch.look([1, 2], false, ASK_AFTER), [2]);
        assert!(watch.look([1, 2], false, 2 * ASK_AFTER - 1).is_empty());
        assert_eq!(watch.look([1, 2], false, 2 * ASK_AFTER), [1, 2]);
    }

    #[test]
    fn a_question_has_a_bound() {
        let mut watch = MergedWatch::default();
        watch.look(0..1000, false, 0);
        assert_eq!(watch.look(0..1000, false, ASK_AFTER).len(), ASKED_MAX);
    }

    #[test]
    fn nothing_follows_for_a_region_that_the_answer_does_not_name() {
        let heir = RegionDescriptor::founded(9, Some(SlotRange::ALL), &[1]);
        let answer = vec![(2, vec![heir.clone()]), (7, vec![heir.clone()])];
        let told = conclude(&[2, 3], answer);
        assert!(matches!(&told[..], [Input::MergedAway { region: 2, heirs }] if *heirs == [heir]));
        assert!(conclude(&[2, 3], Vec::new()).is_empty());
    }

    #[test]
    fn groups_hear_of_what_took_their_regions_over_and_of_removals() {
        let mut region = RegionDescriptor::founded(9, Some(SlotRange::ALL), &[1, 2, 3]);
        region.absorbed = vec![4, 5];
        assert!(concerns(&region, 1, |region| region == 5));
        assert!(!concerns(&region, 1, |region| region == 9 || region == 6), "it has its peer");
        assert!(concerns(&region, 7, |region| region == 9), "the peer was removed");
        assert!(!concerns(&region, 7, |_| false));
    }
}
