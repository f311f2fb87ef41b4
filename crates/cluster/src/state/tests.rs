use types::{Peer, PeerRole, SlotRange};

use super::*;
use crate::{bootstrap_plan, decode_entry, encode_entry, CommandError, Layout};

pub(crate) fn record(id: StoreId) -> StoreRecord {
    StoreRecord {
        id,
        client: format!("127.0.0.1:{}", 7000 + id),
        peer: format!("127.0.0.1:{}", 17000 + id),
        admin: format!("127.0.0.1:{}", 27000 + id),
        forward: (id == 1).then(|| "127.0.0.1:8001".to_owned()),
        device: "nvm".to_owned(),
        capability: Capability { kv_bytes_per_s: 0.1 + id as f64, ops_per_s: 1e7 / 3.0 },
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
    }
}

pub(crate) fn bootstrap(stores: u64, regions: u16) -> MetaCommand {
    let stores: Vec<StoreId> = (0..stores).collect();
    MetaCommand::Bootstrap {
        cluster_id: u64::MAX,
        regions: bootstrap_plan(&Layout { stores: stores.clone(), regions, replicas: 3 }),
        stores: stores.into_iter().map(record).collect(),
        policy: Policy::Even,
        config: BTreeMap::from([("databases".to_owned(), "16".to_owned())]),
        semantics: 1,
    }
}

pub(crate) fn commands() -> Vec<MetaCommand> {
    vec![
        bootstrap(4, 7),
        MetaCommand::SetPolicy { policy: Policy::LeaderOnly },
        MetaCommand::SetStore { store: StoreRecord { client: "[::1]:1".into(), ..record(2) } },
        MetaCommand::SetConfig { name: "x".into(), value: Some("y".into()) },
        MetaCommand::SetConfig { name: "databases".into(), value: None },
        MetaCommand::SetConfig { name: "x".into(), value: Some("z".into()) },
    ]
}

#[test]
fn commands_change_what_they_name() {
    let mut state = MetaState::default();
    for (command, stamp_ms) in commands().iter().zip(100..) {
        let reply = state.apply(command, stamp_ms).unwrap();
        let expected = if stamp_ms == 100 { MetaReply::Bootstrapped } else { MetaReply::Changed };
        assert_eq!(reply, expected, "{command:?}");
    }
    assert_eq!((state.created_ms, state.policy, state.policy_since_ms), (100, Policy::LeaderOnly, 101));
    assert_eq!(state.stores[&2].client, "[::1]:1");
    assert_eq!(state.config, BTreeMap::from([("x".to_owned(), "z".to_owned())]));
    assert_eq!(state.regions.len(), 8);
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
        MetaCommand::SetStore { store: record(1) },
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
    let stranger = MetaCommand::SetStore { store: record(3) };
    assert_eq!(state.apply(&stranger, 2), Err(MetaError::UnknownStore(3)));
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
        let MetaCommand::Bootstrap { cluster_id, mut stores, mut regions, policy, config, semantics } =
            bootstrap(3, 3)
        else {
            unreachable!()
        };
        damage(&mut stores, &mut regions);
        let command = MetaCommand::Bootstrap { cluster_id, stores, regions, policy, config, semantics };
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
    assert_eq!(command.encode(), "\x01{\"command\":\"set-policy\",\"policy\":\"leader-only\"}".as_bytes());
    assert_eq!(encode_entry(258, b"\x01x")[..], *b"\x01\0\0\0\0\0\0\x01\x02\x01x");
}

#[test]
fn senseless_capabilities_can_be_read_back() {
    let capability = Capability { kv_bytes_per_s: f64::NAN, ops_per_s: f64::INFINITY };
    let command = MetaCommand::SetStore { store: StoreRecord { capability, ..record(0) } };
    let Ok(MetaCommand::SetStore { store }) = MetaCommand::decode(&command.encode()) else { panic!() };
    assert_eq!(store.capability, Capability { kv_bytes_per_s: 0.0, ops_per_s: f64::MAX });
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
    newer[9] = 3;
    assert!(matches!(decode_entry(&newer), Err(CommandError::UnknownFormat { format: 3, .. })));
    let unknown = b"\x01{\"command\":\"set-policy\",\"policy\":\"even\",\"more\":1}";
    assert!(matches!(MetaCommand::decode(unknown), Err(CommandError::Malformed(_))));
}
