use proptest::prelude::*;
use types::{RegionDescriptor, SlotRange};

use super::*;

fn any_peer_change() -> impl Strategy<Value = PeerChange> {
    (0..4, any::<u64>()).prop_map(|(kind, store)| match kind {
        0 => PeerChange::AddLearner(store),
        1 => PeerChange::Promote(store),
        2 => PeerChange::Demote(store),
        _ => PeerChange::Remove(store),
    })
}

fn any_change() -> impl Strategy<Value = RegionChange> {
    let source = RegionDescriptor::founded(7, Some(SlotRange { first: 10, last: 20 }), &[1, 5]);
    prop_oneof![
        prop::collection::vec(any_peer_change(), 0..4).prop_map(RegionChange::Peers),
        Just(RegionChange::LeaveJoint),
        any::<(u16, u64)>().prop_map(|(at, new_region)| RegionChange::Split { at, new_region }),
        any::<u64>().prop_map(|into| RegionChange::PrepareMerge { into }),
        Just(RegionChange::RollbackMerge),
        any::<u64>().prop_map(move |source_index| RegionChange::CommitMerge {
            source: Box::new(source.clone()),
            source_index
        }),
    ]
}

fn any_order() -> impl Strategy<Value = Order> {
    let expect = |epoch: [u64; 2]| RegionEpoch { conf_version: epoch[0], version: epoch[1] };
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(region, to)| Order::TransferLeader { region, to }),
        (any::<u64>(), any::<[u64; 2]>(), any_change()).prop_map(move |(region, epoch, change)| {
            Order::Change { region, expect: expect(epoch), change }
        }),
        (any::<u64>(), any::<[u64; 2]>(), any::<u64>()).prop_map(move |(region, epoch, new_region)| {
            Order::Split { region, expect: expect(epoch), new_region }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn orders_round_trip_and_no_cut_of_one_is_an_order(order in any_order(), term in any::<u64>()) {
        let bytes = order.encode(term);
        prop_assert_eq!(Order::decode(&bytes), Ok((term, order)));
        for end in 0..bytes.len() {
            prop_assert!(Order::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn noise_does_not_panic(kind in 0..5u8, change in 0..8u8, rest in prop::collection::vec(any::<u8>(), 0..90)) {
        let mut bytes = vec![VERSION, 1, kind, 1, 1, 1, change];
        bytes.extend(rest);
        if let Ok((term, order)) = Order::decode(&bytes) {
            prop_assert_eq!(Order::decode(&order.encode(term)), Ok((term, order)));
        }
    }
}

#[test]
fn each_encoded_change_is_what_the_format_says() {
    let expect = RegionEpoch { conf_version: 4, version: 5 };
    let source = Box::new(RegionDescriptor::founded(7, None, &[1]));
    let descriptor = source.encode();
    let peers = [PeerChange::AddLearner, PeerChange::Promote, PeerChange::Demote, PeerChange::Remove];
    let peers = peers.into_iter().zip(5..).map(|(change, store)| change(store)).collect();
    for (change, rest) in [
        (RegionChange::Peers(peers), vec![1, 4, 1, 5, 2, 6, 3, 7, 4, 8]),
        (RegionChange::LeaveJoint, vec![2]),
        (RegionChange::Split { at: 300, new_region: 8 }, vec![3, 0xac, 0x02, 8]),
        (RegionChange::PrepareMerge { into: 2 }, vec![4, 2]),
        (RegionChange::RollbackMerge, vec![5]),
        (
            RegionChange::CommitMerge { source, source_index: 70 },
            [&[6, descriptor.len() as u8][..], &descriptor, &[70]].concat(),
        ),
    ] {
        let order = Order::Change { region: 3, expect, change };
        assert_eq!(order.encode(9)[..], [&[1, 9, 2, 3, 4, 5][..], &rest].concat(), "{order}");
    }
    let moved = Order::TransferLeader { region: 3, to: 6 };
    assert_eq!(moved.encode(9)[..], [1, 9, 1, 3, 6]);
    let split = Order::Split { region: 3, expect, new_region: 8 };
    assert_eq!(split.encode(9)[..], [1, 9, 3, 3, 4, 5, 8]);
}

#[test]
fn an_encoded_order_is_what_the_format_says() {
    let expect = RegionEpoch { conf_version: 4, version: 300 };
    let change = RegionChange::Peers(vec![PeerChange::Promote(5), PeerChange::Demote(6)]);
    let order = Order::Change { region: 3, expect, change };
    assert_eq!(order.encode(9)[..], [1, 9, 2, 3, 4, 0xac, 0x02, 1, 2, 2, 5, 3, 6]);
    assert_eq!(order.to_string(), "region 3: promote 5, demote 6");
    assert_eq!(Order::decode(&[2, 9, 1, 3, 4]), Err(WireError::UnknownVersion(2)));
    assert!(matches!(Order::decode(&[1, 9, 9, 3, 4]), Err(WireError::Malformed(_))));
    assert!(matches!(Order::decode(&[1, 9, 1, 3, 4, 0]), Err(WireError::Malformed(_))));
    assert!(matches!(Order::decode(&[1, 9, 2, 3, 4, 4, 1, 1, 9, 5]), Err(WireError::Malformed(_))));
}
