//! A region that merged away while its peer's store was absent, and whose heir no longer lists it.

use types::{RegionDescriptor, SlotRange};

use super::*;

/// Returns a region with all slots on the given stores that lists no absorbed region.
fn heir(stores: &[StoreId]) -> RegionDescriptor {
    let mut heir = RegionDescriptor::founded(77, Some(SlotRange::ALL), stores);
    heir.epoch.version = 50;
    heir
}

fn is_destroyed(trio: &Trio) -> bool {
    trio.saw(1, |action| *action == Action::Destroy { region: REGION, peer: 2 })
}

#[test]
fn a_peer_goes_when_the_meta_region_says_that_its_region_has_merged_away() {
    let mut trio = Trio::led();
    trio.settle();
    trio.step(1, Input::Announced { from: 0, descriptor: heir(&[0, 2]) });
    assert!(!is_destroyed(&trio), "an heir that does not list the region proves nothing");
    trio.step(1, Input::MergedAway { region: REGION, heirs: vec![heir(&[0, 2])] });
    assert!(is_destroyed(&trio));
}
