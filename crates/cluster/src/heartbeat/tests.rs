use proptest::prelude::*;

use super::*;

prop_compose! {
    fn any_lead()(
        ids in any::<[u64; 8]>(),
        rates in [0.0..1e9, 0.0..1e9],
        peers in prop::collection::btree_map(any::<u64>(), any::<u64>(), 0..4),
    ) -> LeadReport {
        let [conf_version, version, term, commit, applied, bytes, keys, truncate_to] = ids;
        LeadReport {
            region: 0,
            epoch: RegionEpoch { conf_version, version },
            term, commit, applied, bytes, keys,
            write_rate: rates[0],
            read_rate: rates[1],
            truncate_to,
            peers: peers.into_iter().map(|(store, matched)| PeerProgress { store, matched }).collect(),
        }
    }
}

prop_compose! {
    fn any_heartbeat()(
        ids in any::<[u64; 6]>(),
        rates in [0.0..1e12, 0.0..1e9, 0.0..1e9],
        leads in prop::collection::btree_map(any::<u64>(), any_lead(), 0..5),
    ) -> StoreHeartbeat {
        let [store, incarnation, seq, capacity_bytes, used_bytes, p99_us] = ids;
        StoreHeartbeat {
            store, incarnation, seq, capacity_bytes, used_bytes, p99_us,
            capability: Capability { kv_bytes_per_s: rates[0], ops_per_s: rates[1] },
            load_ops_per_s: rates[2],
            leads: leads.into_iter().map(|(region, lead)| LeadReport { region, ..lead }).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn heartbeats_round_trip(heartbeat in any_heartbeat()) {
        prop_assert_eq!(StoreHeartbeat::decode(&heartbeat.encode()), Ok(heartbeat));
    }

    #[test]
    fn a_cut_heartbeat_is_an_error(heartbeat in any_heartbeat(), at in any::<prop::sample::Index>()) {
        let bytes = heartbeat.encode();
        prop_assert!(StoreHeartbeat::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_decode_to_what_encodes_or_to_an_error(
        heartbeat in any_heartbeat(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
    ) {
        let mut bytes = heartbeat.encode().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(decoded) = StoreHeartbeat::decode(&bytes) {
            prop_assert_eq!(StoreHeartbeat::decode(&decoded.encode()), Ok(decoded));
        }
    }

    #[test]
    fn noise_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = StoreHeartbeat::decode(&bytes);
    }
}

fn small() -> StoreHeartbeat {
    let peers = [(0, 9), (300, 7)].map(|(store, matched)| PeerProgress { store, matched }).to_vec();
    let leads = vec![LeadReport { region: 2, term: 3, commit: 9, peers, ..LeadReport::default() }];
    StoreHeartbeat { store: 1, incarnation: 2, seq: 300, leads, ..StoreHeartbeat::default() }
}

#[test]
fn an_encoded_heartbeat_is_what_the_format_says() {
    let one = 1f64.to_bits().to_be_bytes();
    let mut expected = vec![1, 1, 2, 0xac, 0x02];
    expected.extend(one);
    expected.extend(one);
    expected.extend([0, 0]);
    expected.extend([0; 8]);
    expected.extend([0, 1]);
    expected.extend([2, 0, 0, 3, 9, 0, 0, 0]);
    expected.extend([0; 16]);
    expected.extend([0, 2, 0, 9, 0xac, 0x02, 7]);
    assert_eq!(small().encode()[..], expected);
}

#[test]
fn nothing_is_allocated_for_a_length_that_the_input_cannot_hold() {
    let empty = StoreHeartbeat::default().encode();
    let mut bytes = empty[..empty.len() - 1].to_vec();
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert_eq!(StoreHeartbeat::decode(&bytes), Err(HeartbeatError::Cut));
}

#[test]
fn other_versions_trailing_bytes_and_disorder_are_errors() {
    let mut newer = small().encode().to_vec();
    newer[0] = 2;
    assert_eq!(StoreHeartbeat::decode(&newer), Err(HeartbeatError::UnknownVersion(2)));
    let mut longer = small().encode().to_vec();
    longer.push(0);
    assert!(matches!(StoreHeartbeat::decode(&longer), Err(HeartbeatError::Malformed(_))));
    // The second peer's store becomes 0, as the first's.
    let mut twice = small().encode().to_vec();
    let at = twice.len() - 3;
    twice.splice(at..at + 2, [0]);
    assert_eq!(StoreHeartbeat::decode(&twice), Err(HeartbeatError::Malformed("peers are out of order")));
}

#[test]
fn a_number_of_more_than_64_bits_is_an_error() {
    let mut bytes = vec![1];
    bytes.extend([0xff; 9]);
    bytes.push(0x02);
    assert!(matches!(StoreHeartbeat::decode(&bytes), Err(HeartbeatError::Malformed(_))));
    bytes[10] = 0x80;
    assert!(matches!(StoreHeartbeat::decode(&bytes), Err(HeartbeatError::Malformed(_))));
}

#[test]
fn rates_that_are_none_are_sent_as_zero() {
    for rate in [f64::NAN, f64::INFINITY, -3.0, -0.0] {
        let heartbeat = StoreHeartbeat { load_ops_per_s: rate, ..small() };
        assert_eq!(StoreHeartbeat::decode(&heartbeat.encode()).unwrap().load_ops_per_s, 0.0);
    }
}

#[test]
fn lag_is_counted_from_what_is_committed() {
    let heartbeat = small();
    let lead = heartbeat.lead(2).unwrap();
    assert_eq!([lead.lag_of(0), lead.lag_of(300), lead.lag_of(1)], [Some(0), Some(2), None]);
    assert_eq!(heartbeat.lead(1), None);
}
