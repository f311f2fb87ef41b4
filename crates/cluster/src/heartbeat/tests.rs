use placement::{Cpu, Spread};
use proptest::prelude::*;
use types::{Merging, Peer, PeerRole, SlotRange, NEWEST_VERSION, OLDEST_VERSION};

use super::*;
use crate::{Cause, CheckOutcome};

prop_compose! {
    fn any_descriptor()(
        slots in prop::option::of((0u16..16384, 0u16..16384)),
        epoch in [0u64..1 << 62, 0u64..1 << 62],
        peers in prop::collection::btree_map(any::<u64>(), 0..4usize, 0..4),
        merging in prop::option::of(any::<(u64, u64)>()),
        absorbed in prop::collection::vec(any::<u64>(), 0..4),
    ) -> RegionDescriptor {
        let roles = [PeerRole::Voter, PeerRole::Learner, PeerRole::Incoming, PeerRole::Outgoing];
        let next_peer = peers.len() as u64 + 1;
        RegionDescriptor {
            id: 0,
            slots: slots.map(|(a, b)| SlotRange { first: a.min(b), last: a.max(b) }),
            epoch: RegionEpoch { conf_version: epoch[0], version: epoch[1] },
            peers: (1..).zip(peers).map(|(id, (store, role))| Peer { store, id, role: roles[role] }).collect(),
            next_peer,
            merging: merging.map(|(into, sealed_at)| Merging { into, sealed_at }),
            absorbed,
            recoveries: Vec::new(),
        }
    }
}

prop_compose! {
    fn any_lead()(
        descriptor in any_descriptor(),
        ids in any::<[u64; 6]>(),
        rates in [0.0..1e9, 0.0..1e9, 0.0..1e9, 0.0..1e12, 0.0..1e9],
        sized in any::<bool>(),
        peers in prop::collection::btree_map(any::<u64>(), any::<(u64, bool, bool)>(), 0..4),
    ) -> LeadReport {
        let [term, commit, applied, bytes, keys, truncate_to] = ids;
        let [write_rate, read_rate, miss_rate, write_bytes_rate, heat] = rates;
        let peers = peers.into_iter().map(|(store, (matched, active, needs_snapshot))| {
            PeerProgress { store, matched, active, needs_snapshot }
        });
        LeadReport {
            descriptor, term, commit, applied, bytes, sized, keys, truncate_to,
            write_rate, read_rate, miss_rate, write_bytes_rate, heat,
            peers: peers.collect(),
        }
    }
}

prop_compose! {
    fn any_heartbeat()(
        ids in any::<[u64; 12]>(),
        rates in [0.0..1e12, 0.0..1e9, 0.0..1e9],
        leads in prop::collection::btree_map(any::<u64>(), any_lead(), 0..5),
        gone in prop::collection::btree_set(any::<u64>(), 0..4),
        cpu in prop::option::of((0.1..1e3, 0.0..=1.0, 0.0..1e3, any::<u64>())),
        granted in prop::collection::btree_map(any::<u64>(), any::<u64>(), 0..4),
        followed in prop::option::of(prop::collection::btree_map(any::<u64>(), 0.0..1e9, 0..4)),
        checks in prop::collection::btree_map(any::<u64>(), (any::<u64>(), any::<u64>(), 0..3u8), 0..4),
        unclean in prop::collection::btree_map(any::<u64>(), any::<u64>(), 0..4),
        quarantined in prop::collection::btree_map(any::<u64>(), (any::<u64>(), 0..3usize, any::<bool>()), 0..4),
    ) -> StoreHeartbeat {
        let [store, cluster_id, members_version, incarnation, one, other, ..] = ids;
        let [.., sync_ns, capacity_bytes, used_bytes, p99_us, snapshots_in] = ids;
        let reports = leads.into_iter().map(|(region, mut lead)| {
            lead.descriptor.id = region;
            lead
        });
        StoreHeartbeat {
            store, cluster_id, members_version, incarnation,
            seq: one.max(other),
            capability: Capability { kv_bytes_per_s: rates[0], ops_per_s: rates[1] },
            spread: Spread { kv_bytes_per_s: rates[1], ops_per_s: 1.0, sync: rates[0] },
            io_bytes_per_s: rates[2],
            correction: rates[1],
            sync_ns, capacity_bytes, used_bytes, p99_us, snapshots_in,
            snapshots_out: 3,
            unapplied_bytes: 4,
            stopping: rates[0] < 1e11,
            out_of_room: rates[1] < 1e11,
            clock_off: rates[2] < 1e11,
            hanging: rates[2] < 1e10,
            has_session: rates[1] < 1e10,
            cpu: cpu.map(|(cores, busy, own, machine)| Cpu { cores, busy, own, machine }),
            wall_ms: other,
            place: Place { host: p99_us, device: used_bytes },
            told: rates[0] < 1e11,
            turn: Turn {
                state: [TurnState::Idle, TurnState::Waits, TurnState::Sits][(one % 3) as usize],
                number: one,
                millis: other,
            },
            grants: granted.into_iter().map(|(store, number)| TurnGrant { store, number }).collect(),
            load_ops_per_s: rates[2],
            leads: Leads {
                since: if followed.is_some() { one.max(other) } else { one.min(other) },
                reports: reports.collect(),
                gone: gone.into_iter().collect(),
            },
            followed: followed.unwrap_or_default().into_iter().collect(),
            checks: checks.into_iter().map(|(region, check)| check_report(region, check)).collect(),
            unclean: unclean.into_iter().collect(),
            quarantined: quarantined.into_iter().map(|(region, of)| (region, quarantine(of))).collect(),
        }
    }
}

fn quarantine((index, cause, read_only): (u64, usize, bool)) -> Quarantine {
    let cause = [Cause::Entry, Cause::Change, Cause::Rows][cause];
    Quarantine { read_only, ..Quarantine::new(index, cause, "set \"k\"", "a panic") }
}

fn check_report(region: RegionId, (number, index, outcome): (u64, u64, u8)) -> CheckReport {
    let rows = storage::RowsChecksum { checksum: number, rows: index, bytes: 7 };
    let outcome = match outcome {
        0 => CheckOutcome::Skipped,
        1 => CheckOutcome::Unreadable,
        _ => CheckOutcome::Rows(rows),
    };
    CheckReport { region, number, index, outcome }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn heartbeats_round_trip(heartbeat in any_heartbeat()) {
        prop_assert_eq!(StoreHeartbeat::decode(&heartbeat.encode(NEWEST_VERSION)), Ok(heartbeat));
    }

    #[test]
    fn a_cut_heartbeat_is_an_error(heartbeat in any_heartbeat(), at in any::<prop::sample::Index>()) {
        let bytes = heartbeat.encode(NEWEST_VERSION);
        prop_assert!(StoreHeartbeat::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_decode_to_what_encodes_or_to_an_error(
        heartbeat in any_heartbeat(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
    ) {
        let mut bytes = heartbeat.encode(NEWEST_VERSION).to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(decoded) = StoreHeartbeat::decode(&bytes) {
            prop_assert_eq!(StoreHeartbeat::decode(&decoded.encode(NEWEST_VERSION)), Ok(decoded));
        }
    }

    #[test]
    fn noise_does_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 1..400)) {
        let _ = StoreHeartbeat::decode(&bytes);
        bytes[0] = FORMAT;
        let _ = StoreHeartbeat::decode(&bytes);
    }
}

fn small() -> StoreHeartbeat {
    let peers = [(0, 9, true), (300, 7, false)]
        .map(|(store, matched, active)| PeerProgress { store, matched, active, needs_snapshot: !active })
        .to_vec();
    let lead =
        LeadReport { commit: 9, peers, ..LeadReport::blank(RegionDescriptor::founded(2, None, &[]), 3) };
    StoreHeartbeat {
        store: 1,
        cluster_id: 6,
        members_version: 7,
        incarnation: 2,
        seq: 300,
        sync_ns: 200,
        snapshots_in: 8,
        snapshots_out: 9,
        unapplied_bytes: 10,
        out_of_room: true,
        clock_off: true,
        hanging: true,
        cpu: Some(Cpu { cores: 4.0, busy: 0.5, own: 1.0, machine: 300 }),
        wall_ms: 1000,
        place: Place { host: 11, device: 12 },
        told: true,
        turn: Turn { state: TurnState::Sits, number: 13, millis: 14 },
        grants: vec![TurnGrant { store: 15, number: 16 }],
        leads: Leads { since: 299, reports: vec![lead], gone: vec![4] },
        ..StoreHeartbeat::default()
    }
}

#[test]
fn an_encoded_heartbeat_is_what_the_format_says() {
    let one = 1f64.to_bits().to_be_bytes();
    let mut expected = vec![11, 1, 6, 7, 2, 0xac, 0x02, 0xab, 0x02, 0xe8, 0x07];
    expected.extend(one);
    expected.extend(one);
    expected.extend([0; 16]);
    expected.extend([0xc8, 0x01]);
    expected.extend([one; 3].as_flattened());
    expected.extend([0, 0]);
    expected.extend([0; 8]);
    expected.extend([0, 8, 9, 10, 14]);
    expected.extend([4.0, 0.5, 1.0].map(|value: f64| value.to_bits().to_be_bytes()).as_flattened());
    expected.extend([0xac, 0x02, 11, 12, 1, 2, 13, 14, 1, 15, 16, 1]);
    expected.push(61);
    expected.extend(&RegionDescriptor::founded(2, None, &[]).encode());
    expected.extend([3, 9, 0, 0, 1, 0]);
    expected.extend([0; 40]);
    expected.extend([0, 2, 0, 9, 1, 0xac, 0x02, 7, 2, 1, 4, 0, 0, 0, 0]);
    assert_eq!(small().encode(NEWEST_VERSION)[..], expected);
}

#[test]
fn a_turn_that_makes_no_sense_is_an_error() {
    let good = small().encode(NEWEST_VERSION).to_vec();
    let at = good.windows(4).position(|bytes| bytes == [11, 12, 1, 2]).expect("the place");
    for (offset, bad) in [(2, 2), (3, 3)] {
        let mut bytes = good.clone();
        bytes[at + offset] = bad;
        assert!(matches!(StoreHeartbeat::decode(&bytes), Err(WireError::Malformed(_))), "{offset}");
    }
    let mut twice = good;
    twice.splice(at + 6..at + 9, [2, 15, 16, 15, 17]);
    assert_eq!(StoreHeartbeat::decode(&twice), Err(WireError::Malformed("turns are out of order")));
}

#[test]
fn nothing_is_allocated_for_a_length_that_the_input_cannot_hold() {
    let empty = StoreHeartbeat::default().encode(NEWEST_VERSION);
    for lists in [1, 2, 3, 4, 5] {
        let mut bytes = empty[..empty.len() - lists].to_vec();
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(StoreHeartbeat::decode(&bytes), Err(WireError::Cut));
    }
}

#[test]
fn other_versions_trailing_bytes_and_disorder_are_errors() {
    let malformed = |what| Err(WireError::Malformed(what));
    let mut newer = small().encode(NEWEST_VERSION).to_vec();
    newer[0] = 12;
    assert_eq!(StoreHeartbeat::decode(&newer), Err(WireError::UnknownVersion(12)));
    let mut longer = small().encode(NEWEST_VERSION).to_vec();
    longer.push(0);
    assert!(matches!(StoreHeartbeat::decode(&longer), Err(WireError::Malformed(_))));
    // The second peer gets the store of the first, then unknown flags.
    let good = small().encode(NEWEST_VERSION).to_vec();
    let peer = good.len() - 10;
    let mut twice = good.clone();
    twice.splice(peer..peer + 2, [0]);
    assert_eq!(StoreHeartbeat::decode(&twice), malformed("peers are out of order"));
    let mut flags = good.clone();
    flags[peer + 3] = 4;
    assert_eq!(StoreHeartbeat::decode(&flags), malformed("a peer has unknown flags"));
    let mut later = good;
    later[7] = 0xad;
    assert_eq!(StoreHeartbeat::decode(&later), malformed("it builds on a later heartbeat"));
}

#[test]
fn what_followers_answered_is_in_order_and_in_full_reports_only() {
    let mut heartbeat = StoreHeartbeat { followed: vec![(3, 1.0), (5, 2.5)], ..StoreHeartbeat::default() };
    let full = heartbeat.encode(NEWEST_VERSION);
    assert_eq!(StoreHeartbeat::decode(&full).unwrap().followed, heartbeat.followed);
    let mut twice = full.to_vec();
    // The numbers of checks, of unclean peers and of quarantines, all 0, come last.
    let region = twice.len() - 12;
    twice[region] = 3;
    assert_eq!(StoreHeartbeat::decode(&twice), Err(WireError::Malformed("regions are out of order")));
    let followed = std::mem::take(&mut heartbeat.followed);
    heartbeat.seq = 1;
    let mut delta = heartbeat.encode(NEWEST_VERSION).to_vec();
    delta.truncate(delta.len() - 4);
    delta.extend(&full[full.len() - 9 * followed.len() - 4..]);
    assert_eq!(
        StoreHeartbeat::decode(&delta),
        Err(WireError::Malformed("only a full heartbeat has the heat of followers"))
    );
}

#[test]
fn a_cpu_that_is_not_known_or_makes_no_sense_is_told_as_none() {
    let told = |cpu| {
        let bytes = StoreHeartbeat { cpu, ..small() }.encode(NEWEST_VERSION);
        StoreHeartbeat::decode(&bytes).map(|heartbeat| heartbeat.cpu)
    };
    let cpu = Cpu { cores: 2.5, busy: 0.25, own: 0.5, machine: 0 };
    assert_eq!(told(Some(cpu)), Ok(Some(cpu)));
    assert_eq!(told(None), Ok(None));
    for cores in [0.0, f64::NAN, -1.0, f64::INFINITY] {
        assert_eq!(told(Some(Cpu { cores, machine: 7, ..cpu })), Ok(None), "{cores} cores");
    }
    assert_eq!(told(Some(Cpu { busy: 1.5, ..cpu })), Ok(Some(Cpu { busy: 1.0, ..cpu })));
    assert_eq!(told(Some(Cpu { own: f64::NAN, ..cpu })), Ok(Some(Cpu { own: 0.0, ..cpu })));
}

#[test]
fn a_cpu_without_cores_or_more_than_busy_is_an_error() {
    let encoded = |cpu| StoreHeartbeat { cpu, ..StoreHeartbeat::default() }.encode(NEWEST_VERSION).to_vec();
    let (good, other) = (encoded(None), encoded(Some(Cpu { cores: 1.0, ..Cpu::default() })));
    let cores = std::iter::zip(&good, &other).position(|(a, b)| a != b).expect("they differ");
    for (at, value) in [(cores + 8, 0.5f64), (cores + 8, 2.0)] {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_bits().to_be_bytes());
        assert_eq!(
            StoreHeartbeat::decode(&bytes),
            Err(WireError::Malformed("a CPU has no cores, or is more than busy"))
        );
    }
}

#[test]
fn a_number_of_more_than_64_bits_is_an_error() {
    let mut bytes = vec![FORMAT];
    bytes.extend([0xff; 9]);
    bytes.push(0x02);
    assert!(matches!(StoreHeartbeat::decode(&bytes), Err(WireError::Malformed(_))));
    bytes[10] = 0x80;
    assert!(matches!(StoreHeartbeat::decode(&bytes), Err(WireError::Malformed(_))));
}

#[test]
fn rates_that_are_none_are_sent_as_zero() {
    for rate in [f64::NAN, f64::INFINITY, -3.0, -0.0] {
        let heartbeat = StoreHeartbeat { load_ops_per_s: rate, ..small() };
        assert_eq!(StoreHeartbeat::decode(&heartbeat.encode(NEWEST_VERSION)).unwrap().load_ops_per_s, 0.0);
    }
}

#[test]
fn lag_is_counted_from_what_is_committed_and_known_of_a_peer_that_answers() {
    let mut heartbeat = small();
    let lead = heartbeat.lead(2).unwrap();
    assert_eq!([lead.lag_of(0), lead.lag_of(300), lead.lag_of(1)], [Some(0), None, None]);
    assert_eq!(heartbeat.lead(1), None);
    heartbeat.leads.reports[0].peers[1].active = true;
    assert_eq!(heartbeat.lead(2).unwrap().lag_of(300), None, "the peer waits for a snapshot");
    heartbeat.leads.reports[0].peers[1].needs_snapshot = false;
    assert_eq!(heartbeat.lead(2).unwrap().lag_of(300), Some(2));
    heartbeat.leads.reports[0].peers[1].matched = 0;
    assert_eq!(heartbeat.lead(2).unwrap().lag_of(300), None, "it is unknown what the peer holds");
}

#[test]
fn unclean_peers_are_in_order_and_bounded() {
    let unclean = vec![(3, 1), (5, 7)];
    let good = StoreHeartbeat { unclean: unclean.clone(), ..small() }.encode(NEWEST_VERSION).to_vec();
    assert_eq!(StoreHeartbeat::decode(&good).unwrap().unclean, unclean);
    let mut twice = good.clone();
    let last = twice.len() - 3;
    twice[last] = 3;
    assert_eq!(StoreHeartbeat::decode(&twice), Err(WireError::Malformed("regions are out of order")));
    let mut many = StoreHeartbeat::default().encode(NEWEST_VERSION).to_vec();
    assert_eq!([many.pop(), many.pop()], [Some(0); 2], "the numbers of unclean peers and quarantines");
    many.extend([0x81, 0x02]);
    many.extend((0..=UNCLEAN_MAX).flat_map(|region| [region as u8 | 0x80, (region >> 7) as u8, 1]));
    assert_eq!(StoreHeartbeat::decode(&many), Err(WireError::Malformed("too many unclean peers")));
}

#[test]
fn checks_are_in_order_and_of_a_known_outcome() {
    let checks = vec![check_report(3, (1, 2, 0)), check_report(5, (1, 2, 1))];
    let good = StoreHeartbeat { checks: checks.clone(), ..small() }.encode(NEWEST_VERSION).to_vec();
    assert_eq!(StoreHeartbeat::decode(&good).unwrap().checks, checks);
    let mut twice = good.clone();
    let last = twice.len() - 6;
    twice[last] = 3;
    assert_eq!(StoreHeartbeat::decode(&twice), Err(WireError::Malformed("regions are out of order")));
    let mut unknown = good;
    let outcome = unknown.len() - 3;
    unknown[outcome] = 9;
    let refused = Err(WireError::Malformed("an unknown outcome of a check"));
    assert_eq!(StoreHeartbeat::decode(&unknown), refused);
}

#[test]
fn in_the_first_version_a_heartbeat_is_what_programs_of_that_version_read() {
    let held = vec![(4, quarantine((9, 0, false)))];
    let heartbeat = StoreHeartbeat { quarantined: held.clone(), ..small() };
    let old = heartbeat.encode(OLDEST_VERSION);
    let new = small().encode(NEWEST_VERSION);
    assert_eq!((old[0], new[0]), (10, 11));
    assert_eq!(old[1..], new[1..new.len() - 1], "without the number of quarantines");
    assert_eq!(StoreHeartbeat::decode(&old), Ok(small()));
    let told = StoreHeartbeat::decode(&heartbeat.encode(NEWEST_VERSION)).unwrap();
    assert_eq!(told.quarantined, held);
}
