use cluster::{StoreKey, StoreRecord};

use super::*;
use crate::config::facts_of;
use crate::fixture::Fixture;
use crate::store::Store;
use crate::transport::frame::{Frame, Lane};
use crate::transport::handshake::{take, Caller, Greeted};
use crate::transport::keys::SecretKey;
use crate::transport::Identity;

/// A caller that claims this number and this cluster, with this key.
struct Comes {
    from: StoreId,
    cluster_id: u64,
    key: u8,
    password: Option<&'static str>,
}

fn comes(from: StoreId, cluster_id: u64, key: u8) -> Comes {
    Comes { from, cluster_id, key, password: None }
}

fn key(number: u8) -> StoreKey {
    SecretKey::numbered(number).public()
}

fn introduced(store: &Store, comes: Comes) -> Introduced {
    let Comes { from, cluster_id, key, password } = comes;
    let secret = SecretKey::numbered(key);
    let password = password.map(str::to_owned);
    let identity = Arc::new(Identity::new(from, 0, secret, cluster_id, password).0);
    let to = if from == NO_STORE { NO_STORE } else { store.id };
    identity.set_members([(store.id, None)].into_iter());
    let caller = Caller::new(identity, to, Lane::Request).unwrap();
    let (mut hello, mut proof) = (caller.said(), bytes::BytesMut::new());
    let Ok(Some(Frame::Hello(hello))) = take(&mut hello) else { panic!("no hello") };
    let (greeted, mut challenge) = Greeted::new(&store.membership.identity, hello, &[]).unwrap();
    proof.extend_from_slice(&caller.answers(take(&mut challenge).unwrap().unwrap()));
    let Ok(Some(Frame::Proof(proof))) = take(&mut proof) else { panic!("no proof") };
    greeted.check(proof).unwrap()
}

fn reason(store: &Arc<Store>, comes: Comes) -> Option<RefusalReason> {
    store.membership.admit(&introduced(store, comes)).err().map(|refusal| refusal.reason)
}

/// Returns store 0, which knows the keys of stores 1 to 3 from the list.
fn with_list(keys: [Option<StoreKey>; 3]) -> Fixture {
    let fixture = Fixture::new();
    let store = &fixture.store;
    fixture.start_links(&tokio::runtime::Handle::current());
    store.membership.take_cluster_id(77);
    let states = [MemberState::Draining, MemberState::Removed, MemberState::Up];
    let record = |id, key, state| {
        let member = Member { id, ..store.config.this().clone() };
        StoreRecord { state, ..StoreRecord::new(id, facts_of(&member, key)) }
    };
    let mut stores = vec![record(0, Some(store.membership.identity.key()), MemberState::Up)];
    stores.extend(keys.into_iter().zip(states).zip(1..).map(|((key, state), id)| record(id, key, state)));
    store.membership.take_members(AgreedMembers { version: 4, stores, ..Default::default() });
    fixture
}

#[tokio::test]
async fn a_store_is_believed_with_its_cluster_and_its_key() {
    let fixture = with_list([Some(key(5)), Some(key(6)), None]);
    let store = &fixture.store;
    assert_eq!(reason(store, comes(1, 77, 5)), None);
    assert_eq!(reason(store, comes(1, 0, 5)), None, "the store may not know the cluster's id");
    assert_eq!(reason(store, comes(1, 78, 5)), Some(RefusalReason::Wrong), "another cluster's");
    assert_eq!(reason(store, comes(1, 77, 6)), Some(RefusalReason::OtherKey));
    assert_eq!(reason(store, comes(2, 77, 6)), Some(RefusalReason::Removed));
    assert_eq!(reason(store, comes(2, 77, 9)), Some(RefusalReason::OtherKey), "another key is refused");
    let remote = |store, number| Remote { store, key: key(number) };
    assert!(store.membership.is_welcome(&remote(1, 5)) && !store.membership.is_welcome(&remote(1, 6)));
    assert!(!store.membership.is_welcome(&remote(2, 6)) && !store.membership.is_welcome(&remote(9, 5)));
}

#[tokio::test]
async fn a_store_that_is_not_in_the_list_waits_until_it_is() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    fixture.start_links(&tokio::runtime::Handle::current());
    assert_eq!(reason(store, comes(9, 0, 5)), Some(RefusalReason::Wrong), "the store is unknown");
    assert_eq!(reason(store, comes(9, 77, 5)), Some(RefusalReason::Wrong), "its cluster is unknown, too");
    let fixture = with_list([Some(key(5)), None, None]);
    let store = &fixture.store;
    assert_eq!(reason(store, comes(9, 0, 7)), Some(RefusalReason::Wrong));
    assert_eq!(reason(store, comes(9, 77, 7)), Some(RefusalReason::NotYetKnown), "the claim is unproved");
    let members = store.membership.members();
    let mut stores = members.agreed.stores.clone();
    let member = Member { id: 9, ..store.config.this().clone() };
    stores.push(StoreRecord::new(9, facts_of(&member, Some(key(7)))));
    store.membership.take_members(AgreedMembers { version: 5, stores, ..Default::default() });
    assert_eq!(reason(store, comes(9, 77, 7)), None);
    assert_eq!(reason(store, comes(9, 77, 8)), Some(RefusalReason::OtherKey));
}

#[tokio::test]
async fn of_those_who_come_as_a_store_that_has_not_told_its_key_the_first_is_believed() {
    let fixture = with_list([Some(key(5)), None, None]);
    let store = &fixture.store;
    assert_eq!(reason(store, comes(3, 77, 9)), None);
    assert_eq!(
        reason(store, comes(3, 77, 8)),
        Some(RefusalReason::Wrong),
        "the refusal must not stop the store"
    );
    assert_eq!(reason(store, comes(3, 77, 9)), None);
    // With a password, the first caller must know the password.
    let fixture = with_list([Some(key(5)), None, None]);
    let store = &fixture.store;
    store.settings.write().set("requirepass", "secret").unwrap();
    let knows = |from, key, password| Comes { password, ..comes(from, 77, key) };
    assert_eq!(reason(store, comes(3, 77, 8)), Some(RefusalReason::Wrong));
    assert_eq!(reason(store, knows(3, 8, Some("guess"))), Some(RefusalReason::Wrong));
    assert_eq!(reason(store, knows(3, 9, Some("secret"))), None);
    assert_eq!(reason(store, comes(1, 77, 5)), None, "a known key needs no password");
}

#[tokio::test]
async fn who_is_about_to_join_knows_the_password_if_there_is_one() {
    let fixture = with_list([None; 3]);
    let store = &fixture.store;
    let joins = |password| Comes { password, ..comes(NO_STORE, 0, 9) };
    assert_eq!(reason(store, joins(None)), None);
    store.settings.write().set("requirepass", "secret").unwrap();
    assert_eq!(reason(store, joins(None)), Some(RefusalReason::Wrong));
    assert_eq!(reason(store, joins(Some("Secret"))), Some(RefusalReason::Wrong));
    assert_eq!(reason(store, joins(Some("secret"))), None);
}

#[tokio::test]
async fn strangers_make_a_store_ask_now_and_then_and_no_more() {
    let fixture = with_list([Some(key(5)), None, None]);
    let asks = (0..1000).filter(|_| fixture.store.membership.may_ask_again()).count();
    assert_eq!(asks, 1);
}

#[tokio::test]
async fn lists_of_stores_only_go_forward_and_are_kept() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let list = |version| AgreedMembers { version, ..Default::default() };
    store.membership.take_members(list(3));
    store.membership.take_members(list(2));
    assert_eq!(store.membership.members().agreed.version, 3);
    let (status, body) = store.membership.answer_members();
    assert_eq!(status, STATUS_DONE);
    assert_eq!(serde_json::from_slice::<AgreedMembers>(&body).unwrap(), list(3));
    let path = store.config.dir.join("MEMBERS");
    let kept = loop {
        match std::fs::read(&path) {
            Ok(kept) => break kept,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    assert_eq!(serde_json::from_slice::<AgreedMembers>(&kept).unwrap(), list(3));
    assert!(store.membership.begin_fetch() && !store.membership.begin_fetch());
    store.membership.end_fetch();
    assert!(store.membership.begin_fetch());
}
