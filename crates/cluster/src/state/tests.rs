use placement::{Capability, Operator, Reason};
use types::{Peer, PeerChange, PeerRole, RegionChange, SlotRange};

use super::*;
use crate::{bootstrap_plan, decode_entry, encode_entry, CommandError, Layout};

pub(crate) fn key(number: u64) -> Option<StoreKey> {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    Some(StoreKey(key))
}

pub(crate) fn facts(id: StoreId) -> StoreFacts {
    StoreFacts {
        key: key(1000 + id),
        client: format!("127.0.0.1:{}", 7000 + id),
        peer: format!("127.0.0.1:{}", 17000 + id),
        admin: format!("127.0.0.1:{}", 27000 + id),
        forward: (id == 1).then(|| "127.0.0.1:8001".to_owned()),
        device: "nvm".to_owned(),
        capability: Capability { kv_bytes_per_s: 0.1 + id as f64, ops_per_s: 1e7 / 3.0 },
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
    }
}

pub(crate) fn record(id: StoreId) -> StoreRecord {
    StoreRecord::new(id, facts(id))
}

pub(crate) fn bootstrap(stores: u64, regions: u16) -> MetaCommand {
    let stores: Vec<StoreId> = (0..stores).collect();
    MetaCommand::Bootstrap {
        cluster_id: u64::MAX,
        regions: bootstrap_plan(&Layout { stores: stores.clone(), regions, replicas: 3 }),
        stores: stores.into_iter().map(record).collect(),
        policy: Policy::Even,
        config: BTreeMap::from([("databases".to_owned(), "16".to_owned())]),
        version: 1,
    }
}

pub(crate) fn commands() -> Vec<MetaCommand> {
    vec![
        bootstrap(4, 7),
        MetaCommand::SetPolicy { policy: Policy::LeaderOnly },
        MetaCommand::SetStore { store: 2, facts: StoreFacts { client: "[::1]:1".into(), ..facts(2) } },
        MetaCommand::SetConfig { name: "x".into(), value: Some("y".into()) },
        MetaCommand::SetConfig { name: "databases".into(), value: None },
        MetaCommand::SetConfig { name: "x".into(), value: Some("z".into()) },
        MetaCommand::Join { facts: facts(4), newest: None },
        MetaCommand::SetStoreState { store: 1, state: MemberState::Draining },
        MetaCommand::SetPins { store: 0, data_weight: Some(0.1), leader_weight: None },
        MetaCommand::AllocateRegions { count: 3 },
        MetaCommand::TakeOver { term: 6 },
        MetaCommand::BeginOperator { id: 1, operator: split(3) },
        MetaCommand::AdvanceOperator { id: 1, phase: Phase::Undoing { because: Outcome::Aborted } },
        MetaCommand::BeginOperator { id: 7, operator: transfer(2, 0) },
        MetaCommand::FinishOperator { id: 1, outcome: Outcome::LedElsewhere { leader: 2 } },
        MetaCommand::RemoveStore { store: 4 },
        MetaCommand::ReportRegions { regions: vec![grown()] },
    ]
}

pub(crate) fn split(region: RegionId) -> Operator {
    Operator::Split { region, reason: Reason::Requested }
}

pub(crate) fn transfer(region: RegionId, to: StoreId) -> Operator {
    Operator::TransferLeader { region, from: 3, to, reason: Reason::Requested }
}

/// Returns region 1 of the cluster that `bootstrap(4, 7)` begins, with an added learner.
fn grown() -> RegionDescriptor {
    let MetaCommand::Bootstrap { regions, .. } = bootstrap(4, 7) else { unreachable!() };
    let free = (0..4).find(|&store| !regions[1].has_peer_on(store)).unwrap();
    regions[1].after(&RegionChange::Peers(vec![PeerChange::AddLearner(free)])).unwrap().region
}

pub(crate) fn begun(stores: u64, regions: u16) -> MetaState {
    let mut state = MetaState::default();
    state.apply(&bootstrap(stores, regions), 0).unwrap();
    state
}

#[test]
fn commands_change_what_they_name() {
    let mut state = MetaState::default();
    for (command, stamp_ms) in commands().iter().zip(100..) {
        let reply = state.apply(command, stamp_ms).unwrap();
        let expected = match command {
            MetaCommand::Bootstrap { .. } => MetaReply::Bootstrapped,
            MetaCommand::Join { .. } => MetaReply::Joined { store: 4, cluster_id: u64::MAX },
            MetaCommand::AllocateRegions { .. } => MetaReply::Allocated { first: 8, count: 3 },
            MetaCommand::BeginOperator { id, .. } => MetaReply::Begun { id: *id },
            MetaCommand::ReportRegions { .. } => MetaReply::Reported { taken: vec![1], ignored: vec![] },
            _ => MetaReply::Changed,
        };
        assert_eq!(reply, expected, "{command:?}");
    }
    assert_eq!((state.created_ms, state.policy, state.policy_since_ms), (100, Policy::LeaderOnly, 101));
    assert_eq!(state.stores[&2].facts.client, "[::1]:1");
    assert_eq!(state.config, BTreeMap::from([("x".to_owned(), "z".to_owned())]));
    assert_eq!(state.regions.len(), 8);
    assert_eq!(state.regions[&1], grown());
    assert_eq!(
        (state.stores[&1].state, state.stores[&4].state),
        (MemberState::Draining, MemberState::Removed)
    );
    assert_eq!(state.stores[&0].data_weight, Some(0.1));
    assert_eq!((state.next_store, state.next_region, state.next_operator), (5, 12, 8));
    assert_eq!((state.members_version, state.planner_term), (6, 6));
    assert_eq!(state.operators.keys().collect::<Vec<_>>(), [&7]);
    let finished = &state.history[&1];
    assert_eq!((finished.started_ms, finished.finished_ms), (111, 114));
    assert_eq!(finished.outcome, Outcome::LedElsewhere { leader: 2 });
}

#[test]
fn the_first_bootstrap_wins() {
    let mut state = MetaState::default();
    assert_eq!(state.apply(&bootstrap(3, 1), 1), Ok(MetaReply::Bootstrapped));
    let first = state.clone();
    let again = state.apply(&bootstrap(5, 9), 2);
    assert_eq!(again, Ok(MetaReply::AlreadyBootstrapped { cluster_id: u64::MAX }));
    assert_eq!(state, first);
}

#[test]
fn what_is_so_already_is_unchanged() {
    let mut state = MetaState::default();
    for command in commands() {
        state.apply(&command, 1).unwrap();
    }
    let before = state.clone();
    for command in [
        MetaCommand::SetPolicy { policy: Policy::LeaderOnly },
        MetaCommand::SetStore { store: 0, facts: facts(0) },
        MetaCommand::SetStoreState { store: 1, state: MemberState::Draining },
        MetaCommand::SetPins { store: 0, data_weight: Some(0.1), leader_weight: None },
        MetaCommand::AdvanceOperator { id: 1, phase: Phase::Bound },
        MetaCommand::FinishOperator { id: 1, outcome: Outcome::Succeeded },
        MetaCommand::TakeOver { term: 6 },
        MetaCommand::SetConfig { name: "x".into(), value: Some("z".into()) },
        MetaCommand::SetConfig { name: "never".into(), value: None },
    ] {
        assert_eq!(state.apply(&command, 9), Ok(MetaReply::Unchanged), "{command:?}");
    }
    assert_eq!(state, before);
}

#[test]
fn refused_commands_change_nothing() {
    let mut state = MetaState::default();
    let policy = MetaCommand::SetPolicy { policy: Policy::LeaderOnly };
    assert_eq!(state.apply(&policy, 1), Err(MetaError::NotBootstrapped));
    assert_eq!(state, MetaState::default());
    state.apply(&bootstrap(3, 2), 1).unwrap();
    let before = state.clone();
    let set =
        |store, number| MetaCommand::SetStore { store, facts: StoreFacts { key: key(number), ..facts(0) } };
    let config = |value: &str| MetaCommand::SetConfig { name: "replicas".into(), value: Some(value.into()) };
    let pin = |weight| MetaCommand::SetPins { store: 0, data_weight: None, leader_weight: Some(weight) };
    for (command, expected) in [
        (set(3, 1003), MetaError::UnknownStore(3)),
        (set(0, 7), MetaError::OtherDisk(0)),
        (MetaCommand::Join { facts: StoreFacts { key: None, ..facts(9) }, newest: None }, MetaError::NoKey),
        (MetaCommand::SetStore { store: 0, facts: StoreFacts { key: None, ..facts(0) } }, MetaError::NoKey),
        (MetaCommand::RemoveStore { store: 0 }, MetaError::HoldsPeer { store: 0, region: 0 }),
        (MetaCommand::RemoveStore { store: 9 }, MetaError::UnknownStore(9)),
        (
            MetaCommand::SetStoreState { store: 0, state: MemberState::Draining },
            MetaError::TooFewStores { staying: 2, replicas: 3 },
        ),
        (
            MetaCommand::SetStoreState { store: 0, state: MemberState::Removed },
            MetaError::HoldsPeer { store: 0, region: 0 },
        ),
        (pin(0.0), MetaError::BadWeight),
        (pin(f64::INFINITY), MetaError::BadWeight),
        (
            MetaCommand::BeginOperator { id: 0, operator: split(1) },
            MetaError::StaleOperator { id: 0, last: 0 },
        ),
        (MetaCommand::BeginOperator { id: 1, operator: split(9) }, MetaError::UnknownRegion(9)),
        (MetaCommand::BeginOperator { id: 1, operator: split(0) }, MetaError::NotForRegion(0)),
        (MetaCommand::BeginOperator { id: 1, operator: transfer(1, 9) }, MetaError::UnknownStore(9)),
        (MetaCommand::BeginOperator { id: u64::MAX, operator: split(1) }, MetaError::NoIds),
    ] {
        assert_eq!(state.apply(&command, 2), Err(expected), "{command:?}");
    }
    for value in ["0", "10", "", "three"] {
        assert!(matches!(state.apply(&config(value), 2), Err(MetaError::BadConfig { .. })), "{value}");
    }
    for value in ["4", "-5", "5s"] {
        let silence = MetaCommand::SetConfig { name: CONFIG_REPLACE_AFTER.into(), value: Some(value.into()) };
        assert!(matches!(state.apply(&silence, 2), Err(MetaError::BadConfig { .. })), "{value}");
    }
    for value in ["", "zone=a", "zone "] {
        let label = MetaCommand::SetConfig { name: CONFIG_DOMAIN_LABEL.into(), value: Some(value.into()) };
        assert!(matches!(state.apply(&label, 2), Err(MetaError::BadConfig { .. })), "{value}");
    }
    assert_eq!(state, before);
}

#[test]
fn a_bootstrap_that_makes_no_cluster_is_refused() {
    type Damage = fn(&mut Vec<StoreRecord>, &mut Vec<RegionDescriptor>);
    let damages: [Damage; 11] = [
        |stores, _| stores.clear(),
        |stores, _| stores[1].id = 0,
        |_, regions| drop(regions.remove(0)),
        |_, regions| drop(regions.remove(1)),
        |_, regions| drop(regions.pop()),
        |_, regions| regions[2].id = 1,
        |_, regions| regions[0].slots = Some(SlotRange::ALL),
        |_, regions| regions[1].slots = regions[2].slots,
        |_, regions| regions[1].peers[0].store = 77,
        |_, regions| regions[1].peers.clear(),
        |_, regions| regions[1].peers.push(Peer { store: 0, id: 9, role: PeerRole::Voter }),
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        let MetaCommand::Bootstrap { cluster_id, mut stores, mut regions, policy, config, version } =
            bootstrap(3, 3)
        else {
            unreachable!()
        };
        damage(&mut stores, &mut regions);
        let command = MetaCommand::Bootstrap { cluster_id, stores, regions, policy, config, version };
        let mut state = MetaState::default();
        let refused = state.apply(&command, 1);
        assert!(matches!(refused, Err(MetaError::BadBootstrap(_))), "damage {at}: {refused:?}");
        assert!(!state.is_bootstrapped());
    }
}

#[test]
fn commands_and_entries_round_trip() {
    for command in commands() {
        let bytes = command.encode();
        assert_eq!(MetaCommand::decode(&bytes), Ok(command.clone()));
        assert_eq!(decode_entry(&encode_entry(u64::MAX, &bytes)), Ok((u64::MAX, command)));
    }
}

#[test]
fn an_encoded_command_is_what_the_format_says() {
    let command = MetaCommand::SetPolicy { policy: Policy::LeaderOnly };
    assert_eq!(command.encode(), "\x03{\"command\":\"set-policy\",\"policy\":\"leader-only\"}".as_bytes());
    assert_eq!(encode_entry(258, b"\x01x")[..], *b"\x01\0\0\0\0\0\0\x01\x02\x01x");
}

#[test]
fn senseless_capabilities_can_be_read_back() {
    let capability = Capability { kv_bytes_per_s: f64::NAN, ops_per_s: f64::INFINITY };
    let command = MetaCommand::Join { facts: StoreFacts { capability, ..facts(0) }, newest: None };
    let Ok(MetaCommand::Join { facts, .. }) = MetaCommand::decode(&command.encode()) else { panic!() };
    assert_eq!(facts.capability, Capability { kv_bytes_per_s: 0.0, ops_per_s: f64::MAX });
}

#[test]
fn bytes_that_are_no_entry_are_errors() {
    let entry = encode_entry(7, &bootstrap(3, 4).encode());
    for cut in 0..entry.len() {
        assert!(decode_entry(&entry[..cut]).is_err(), "{cut}");
    }
    let mut newer = entry.to_vec();
    newer[0] = 2;
    assert!(matches!(decode_entry(&newer), Err(CommandError::UnknownFormat { format: 2, .. })));
    newer[0] = 1;
    newer[9] = 4;
    assert!(matches!(decode_entry(&newer), Err(CommandError::UnknownFormat { format: 4, .. })));
    let unknown = b"\x03{\"command\":\"set-policy\",\"policy\":\"even\",\"more\":1}";
    assert!(matches!(MetaCommand::decode(unknown), Err(CommandError::Malformed { .. })));
}

#[test]
fn a_descriptor_that_is_none_makes_a_command_unreadable() {
    let report = MetaCommand::ReportRegions { regions: vec![grown()] }.encode();
    let text = std::str::from_utf8(&report).unwrap();
    assert!(text.contains("\"slots\":[0,2339]"), "{text}");
    for (from, to) in
        [("[0,2339]", "[0,16384]"), ("[0,2339]", "[9,8]"), ("\"next_peer\":5", "\"next_peer\":1")]
    {
        let bad = text.replace(from, to);
        assert_ne!(bad, text);
        assert!(MetaCommand::decode(bad.as_bytes()).is_err(), "{to}");
    }
}

#[test]
fn replies_round_trip() {
    let reported = MetaReply::Reported { taken: vec![1, u64::MAX], ignored: vec![7] };
    for reply in [reported, MetaReply::Joined { store: 4, cluster_id: u64::MAX }, MetaReply::Unchanged] {
        assert_eq!(MetaReply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn joining_twice_is_joining_once() {
    let mut state = begun(3, 1);
    let join =
        |number| MetaCommand::Join { facts: StoreFacts { key: key(number), ..facts(7) }, newest: None };
    let joined = |store| Ok(MetaReply::Joined { store, cluster_id: u64::MAX });
    assert_eq!(state.apply(&join(77), 1), joined(3));
    let version = state.members_version;
    assert_eq!(state.apply(&join(77), 2), joined(3));
    assert_eq!(state.members_version, version, "nothing has changed");
    assert_eq!(state.apply(&join(78), 3), joined(4));
    assert_eq!(state.members_version, version + 1);
    assert_eq!(state.stores[&3].facts.key, key(77));
}

#[test]
fn a_removed_store_stays_removed_and_its_id_is_not_used_again() {
    let mut state = begun(3, 1);
    let join =
        |number| MetaCommand::Join { facts: StoreFacts { key: key(number), ..facts(7) }, newest: None };
    state.apply(&join(77), 1).unwrap();
    state.apply(&MetaCommand::RemoveStore { store: 3 }, 2).unwrap();
    assert_eq!(state.apply(&join(77), 3), Err(MetaError::StoreRemoved(3)));
    let back = MetaCommand::SetStoreState { store: 3, state: MemberState::Up };
    assert_eq!(state.apply(&back, 3), Err(MetaError::StoreRemoved(3)));
    assert_eq!(state.members().count(), 3);
    assert_eq!(state.apply(&join(78), 4), Ok(MetaReply::Joined { store: 4, cluster_id: u64::MAX }));
}

#[test]
fn joins_make_no_more_than_so_many_stores_and_none_that_says_too_much() {
    let mut state = begun(3, 1);
    let join =
        |number| MetaCommand::Join { facts: StoreFacts { key: key(number), ..facts(7) }, newest: None };
    for number in 0..STORES_MAX as u64 - 3 {
        state.apply(&join(5000 + number), 1).unwrap();
    }
    let full = state.clone();
    for number in 10_000..10_100 {
        assert_eq!(state.apply(&join(number), 2), Err(MetaError::TooManyStores));
    }
    let device = "x".repeat(1 << 20);
    let facts = StoreFacts { key: key(20_000), device, ..facts(7) };
    let bad = MetaError::BadFacts("the device's name is longer than 128 bytes");
    assert_eq!(state.apply(&MetaCommand::Join { facts: facts.clone(), newest: None }, 2), Err(bad.clone()));
    let facts = StoreFacts { key: key(1000), ..facts };
    assert_eq!(state.apply(&MetaCommand::SetStore { store: 0, facts }, 2), Err(bad));
    assert_eq!(state, full);
    // A known store is answered, and a free place is given to another store.
    assert!(state.apply(&join(5000), 2).is_ok());
    state.apply(&MetaCommand::RemoveStore { store: 3 }, 3).unwrap();
    assert!(state.apply(&join(30_000), 4).is_ok());
}

#[test]
fn a_store_whose_key_was_not_known_tells_it_once() {
    let MetaCommand::Bootstrap { cluster_id, mut stores, regions, policy, config, version } = bootstrap(3, 1)
    else {
        unreachable!()
    };
    stores[2].facts.key = None;
    let mut state = MetaState::default();
    let command = MetaCommand::Bootstrap { cluster_id, stores, regions, policy, config, version };
    state.apply(&command, 0).unwrap();
    let tell =
        |number| MetaCommand::SetStore { store: 2, facts: StoreFacts { key: key(number), ..facts(2) } };
    assert_eq!(state.apply(&tell(1001), 1), Err(MetaError::KeyInUse(1)));
    assert_eq!(state.apply(&tell(5), 1), Ok(MetaReply::Changed));
    assert_eq!(state.apply(&tell(6), 1), Err(MetaError::OtherDisk(2)));
}

#[test]
fn a_store_drains_while_the_others_can_hold_every_replica() {
    let mut state = begun(5, 4);
    let drain = |store| MetaCommand::SetStoreState { store, state: MemberState::Draining };
    assert_eq!(state.apply(&drain(0), 1), Ok(MetaReply::Changed));
    assert_eq!(state.apply(&drain(1), 1), Ok(MetaReply::Changed));
    let too_few = Err(MetaError::TooFewStores { staying: 2, replicas: 3 });
    assert_eq!(state.apply(&drain(2), 1), too_few);
    let back = MetaCommand::SetStoreState { store: 0, state: MemberState::Up };
    assert_eq!(state.apply(&back, 1), Ok(MetaReply::Changed));
    assert_eq!(state.apply(&drain(2), 1), Ok(MetaReply::Changed));
    let fewer = MetaCommand::SetConfig { name: CONFIG_REPLICAS.into(), value: Some("1".into()) };
    state.apply(&fewer, 1).unwrap();
    assert_eq!(state.apply(&drain(3), 1), Ok(MetaReply::Changed));
    assert_eq!(state.apply(&drain(4), 1), Ok(MetaReply::Changed));
    assert_eq!(state.apply(&drain(0), 1), Err(MetaError::TooFewStores { staying: 0, replicas: 1 }));
}

#[test]
fn an_operator_keeps_others_from_its_regions_and_its_stores_from_leaving() {
    let mut state = begun(4, 4);
    state.apply(&MetaCommand::Join { facts: facts(4), newest: None }, 0).unwrap();
    let begin = |id, operator| MetaCommand::BeginOperator { id, operator };
    let merge = Operator::Merge { region: 2, into: 1, reason: Reason::Requested };
    assert_eq!(state.apply(&begin(5, merge), 1), Ok(MetaReply::Begun { id: 5 }));
    for region in [1, 2] {
        assert_eq!(state.apply(&begin(6, split(region)), 1), Err(MetaError::RegionBusy(region)));
        assert_eq!(state.operator_on(region).unwrap().id, 5);
    }
    let into_itself = Operator::Merge { region: 3, into: 3, reason: Reason::Requested };
    assert_eq!(state.apply(&begin(6, into_itself), 1), Err(MetaError::NotForRegion(3)));
    assert_eq!(state.apply(&begin(5, split(3)), 1), Err(MetaError::StaleOperator { id: 5, last: 5 }));
    let add = Operator::AddPeer { region: 3, to: 4, reason: Reason::Requested };
    assert_eq!(state.apply(&begin(6, add), 1), Ok(MetaReply::Begun { id: 6 }));
    let remove = MetaCommand::RemoveStore { store: 4 };
    assert_eq!(state.apply(&remove, 1), Err(MetaError::StoreInUse(4)));
    state.apply(&MetaCommand::FinishOperator { id: 6, outcome: Outcome::TimedOut }, 2).unwrap();
    assert_eq!(state.apply(&remove, 1), Ok(MetaReply::Changed));
}

#[test]
fn no_operator_brings_anything_to_a_store_that_leaves_or_takes_the_last_voter() {
    let mut state = begun(4, 1);
    state.apply(&MetaCommand::SetStoreState { store: 3, state: MemberState::Draining }, 0).unwrap();
    let to_draining = MetaCommand::BeginOperator { id: 1, operator: transfer(1, 3) };
    assert_eq!(state.apply(&to_draining, 1), Err(MetaError::StoreDraining(3)));
    state.regions.insert(1, RegionDescriptor::founded(1, Some(SlotRange::ALL), &[2]));
    let remove = |from| {
        let operator = Operator::RemovePeer { region: 1, from, reason: Reason::Requested };
        MetaCommand::BeginOperator { id: 1, operator }
    };
    assert_eq!(state.apply(&remove(2), 1), Err(MetaError::LastVoter(1)));
    assert!(state.apply(&remove(1), 1).is_ok(), "a store without a peer is not a voter");
}

#[test]
fn a_phase_leads_to_no_other_and_what_is_bound_only_succeeds() {
    let mut state = begun(3, 3);
    let advance = |id, phase| MetaCommand::AdvanceOperator { id, phase };
    let undoing = Phase::Undoing { because: Outcome::TimedOut };
    for (id, region) in [(1, 1), (2, 2)] {
        state.apply(&MetaCommand::BeginOperator { id, operator: split(region) }, 0).unwrap();
    }
    assert_eq!(state.apply(&advance(1, undoing), 1), Ok(MetaReply::Changed));
    assert_eq!(state.apply(&advance(1, undoing), 1), Ok(MetaReply::Unchanged));
    assert_eq!(state.apply(&advance(1, Phase::Bound), 1), Err(MetaError::BadPhase(1)));
    assert_eq!(state.apply(&advance(2, Phase::Bound), 1), Ok(MetaReply::Changed));
    assert_eq!(state.apply(&advance(2, undoing), 1), Err(MetaError::BadPhase(2)));
    let finish = |outcome| MetaCommand::FinishOperator { id: 2, outcome };
    assert_eq!(state.apply(&finish(Outcome::TimedOut), 1), Err(MetaError::BadPhase(2)));
    assert_eq!(state.apply(&finish(Outcome::Succeeded), 1), Ok(MetaReply::Changed));
}

#[test]
fn history_keeps_the_latest() {
    let mut state = begun(3, 3);
    let many = HISTORY_MAX as u64 + 5;
    for id in 1..=many {
        state.apply(&MetaCommand::BeginOperator { id, operator: transfer(1, 2) }, id).unwrap();
        state.apply(&MetaCommand::FinishOperator { id, outcome: Outcome::Succeeded }, id).unwrap();
    }
    assert_eq!(state.history.len(), HISTORY_MAX);
    assert_eq!((state.history.keys().next(), state.history.keys().last()), (Some(&6), Some(&many)));
}

#[test]
fn what_is_configured_is_read_and_the_rest_has_defaults() {
    let mut state = begun(3, 1);
    assert_eq!((state.replicas(), state.meta_replicas(), state.domain_label()), (3, 5, None));
    assert_eq!(state.replace_after_nanos(), None);
    for (name, value) in [
        (CONFIG_REPLICAS, "5"),
        (CONFIG_META_REPLICAS, "7"),
        (CONFIG_DOMAIN_LABEL, "zone"),
        (CONFIG_REPLACE_AFTER, "5"),
    ] {
        let command = MetaCommand::SetConfig { name: name.into(), value: Some(value.into()) };
        assert_eq!(state.apply(&command, 1), Ok(MetaReply::Changed));
    }
    assert_eq!((state.replicas(), state.meta_replicas(), state.domain_label()), (5, 7, Some("zone")));
    assert_eq!(state.replace_after_nanos(), Some(5_000_000_000));
}
