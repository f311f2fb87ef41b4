use cluster::{bootstrap_plan, encode_entry, Layout};
use placement::Reason;
use storage::MemoryKeyspace;

use super::*;
use crate::config::Member;

/// Returns the state of a cluster with three stores and one region. The first two stores share a
/// zone. This is store 0, which leads everything. A recent heartbeat of every store has arrived.
fn three() -> ClusterState {
    let mut config = Config::single("nowhere".into(), 7000);
    let member = config.members.remove(0);
    config.members = (0..3).map(|id| Member { id, ..member.clone() }).collect();
    for (member, zone) in config.members.iter_mut().zip(["a", "a", "b"]) {
        member.labels.insert("zone".into(), zone.into());
    }
    let regions = bootstrap_plan(&Layout { stores: vec![0, 1, 2], regions: 1, replicas: 3 });
    let state = ClusterState::new(MetaState::default(), &config);
    apply(&state, &bootstrap_command(&config, StoreKey([7; 32]), 1, regions));
    for store in 0..3 {
        state.hear(StoreHeartbeat { store, incarnation: 1, seq: 1, ..StoreHeartbeat::default() });
    }
    for region in [META_REGION, 1] {
        state.learn(region, Route { term: 1, leader: 0 });
    }
    state
}

fn apply(state: &ClusterState, command: &MetaCommand) -> Reply {
    let engine = MemoryKeyspace::default();
    let mut txn = Txn::begin(&engine, META_REGION).unwrap();
    let entry = encode_entry(1, &command.encode());
    state.apply(&entry, &mut txn).unwrap().remove(0).unwrap()
}

#[test]
fn an_operator_has_begun_once_it_is_agreed_and_where_the_meta_region_is_led() {
    let state = three();
    let transfer = Operator::TransferLeader { region: 1, from: 0, to: 1, reason: Reason::Requested };
    let command = state.request(transfer).unwrap();
    let MetaCommand::BeginOperator { id, .. } = command else { panic!("{command:?}") };
    let refused = Err(MetaError::RegionBusy(1));
    assert_eq!(begun(&state.parts.lock(), &refused, 0), None);
    assert!(!apply(&state, &command).is_error());
    let agreed = Ok(MetaReply::Begun { id });
    let sentence = begun(&state.parts.lock(), &agreed, 0).map(|flight| flight.operator.to_string());
    let expected = "move the leader of region 1 from store 0 to store 1: it was asked for";
    assert_eq!(sentence.as_deref(), Some(expected));
    assert_eq!(begun(&state.parts.lock(), &agreed, 1), None, "elsewhere");
}

#[test]
fn a_store_is_explained_by_its_weight_and_none_that_is_no_member() {
    let state = three();
    apply(&state, &MetaCommand::SetPolicy { policy: Policy::Alor });
    apply(&state, &MetaCommand::SetPins { store: 2, data_weight: Some(0.25), leader_weight: None });
    let text = state.explain_store(2).unwrap().to_string();
    assert!(text.starts_with("Store 2 is up; the policy is alor."), "{text}");
    assert!(text.contains("weight 0.250"), "{text}");
    assert_eq!(state.explain_store(9), Err(MetaError::UnknownStore(9)));
}

#[test]
fn the_label_of_failure_domains_is_set_while_the_cluster_runs() {
    let state = three();
    let label = || state.settings().into_iter().find(|setting| setting.name == "domain-label").unwrap();
    assert_eq!(label().value, "none");
    apply(&state, &state.set("domain-label", "zone").unwrap());
    assert_eq!(label().value, "zone");
    assert_eq!(label().note, "stores that fail together: a (0 1), b (2)");
    assert!(matches!(state.set("domain-label", "zome"), Err(SettingError::NoSuchLabel { .. })));
    assert_eq!(label().value, "zone");
}

#[test]
fn a_setting_for_every_store_is_new_to_those_that_have_not_said_that_they_know_it() {
    let state = three();
    let told = |store, seq, members_version| {
        let heartbeat = StoreHeartbeat { store, incarnation: 1, seq, members_version, ..Default::default() };
        assert!(state.hear(heartbeat));
    };
    (0..3).for_each(|store| told(store, 2, 1));
    assert_eq!(state.stores_behind(), [0; 0]);
    assert_eq!(state.members_after(1), None);
    apply(&state, &state.set("strong-reads", "read-index").unwrap());
    assert_eq!(state.stores_behind(), [0, 1, 2]);
    let agreed = state.members_after(1).expect("there is a new version");
    assert_eq!((agreed.version, agreed.settings.strong_reads), (2, cluster::StrongReads::ReadIndex));
    told(0, 3, 2);
    told(2, 3, 5);
    assert_eq!(state.stores_behind(), [1]);
}
