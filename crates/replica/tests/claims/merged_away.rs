//! A region that merged away while its peer's store was absent, and whose heir no longer lists it.

use types::{Merging, RegionDescriptor, SlotRange};

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

/// Two regions with peers on this store: the first one is sealed and merges into the second one.
/// The heir here has not taken over the rows yet. Another region proves that the merge happened.
#[test]
fn a_peer_stays_until_its_heir_here_has_taken_over_its_rows() {
    const HEIR: RegionId = 5;
    let half = |first, last| Some(SlotRange { first, last });
    let mut source = RegionDescriptor::founded(REGION, half(0, 8191), &[0, 1, 2]);
    source.merging = Some(Merging { into: HEIR, sealed_at: 5 });
    let mut heir = RegionDescriptor::founded(HEIR, half(8192, 16383), &[0, 1, 2]);
    let mut later = RegionDescriptor::founded(77, Some(SlotRange::ALL), &[0, 2]);
    later.absorbed = vec![REGION];
    let hears_of_merge = |heir: &RegionDescriptor| {
        let disk = Disk::default();
        let of = |region: &RegionDescriptor| PeerSeed {
            descriptor: region.clone(),
            applied: Some((5, 5)),
            parent: None,
            unclean: Unclean::No,
        };
        disk.found(&source);
        disk.found(heir);
        let now = 1_000_000 * MILLISECOND;
        let seeds = vec![of(&source), of(heir)];
        let worker = Worker::new(config(1, 5), disk.clone(), seeds, BTreeMap::new(), now).unwrap();
        let node = Node { worker, disk, writing: Vec::new(), holds_writes: false, seen: Vec::new() };
        let mut trio = Trio { now, nodes: vec![node], wire: Vec::new() };
        trio.step(0, Input::Announced { from: 0, descriptor: later.clone() });
        trio.saw(0, |action| *action == Action::Destroy { region: REGION, peer: 2 })
    };
    assert!(!hears_of_merge(&heir), "the heir needs the rows");
    heir.absorbed = vec![REGION];
    assert!(hears_of_merge(&heir), "the heir has them");
}
