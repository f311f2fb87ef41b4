use placement::{Capability, StoreState};

use super::*;
use crate::state::tests::bootstrap;
use crate::{view, Driver, DriverConfig, PeerProgress};

const DOWN_AFTER: u64 = 1000;

fn heartbeat(store: StoreId, seq: u64, leads: &[(RegionId, Term)]) -> StoreHeartbeat {
    let report = |&(region, term): &(RegionId, Term)| LeadReport {
        region,
        term,
        commit: 10,
        bytes: 77,
        peers: vec![PeerProgress { store, matched: 10 }, PeerProgress { store: store + 1, matched: 4 }],
        ..LeadReport::default()
    };
    StoreHeartbeat {
        store,
        incarnation: 1,
        seq,
        leads: leads.iter().map(report).collect(),
        ..Default::default()
    }
}

fn meta(stores: u64, regions: u16) -> MetaState {
    let mut meta = MetaState::default();
    meta.apply(&bootstrap(stores, regions), 0).unwrap();
    meta
}

#[test]
fn the_larger_term_wins_in_whatever_order_news_comes() {
    let news = [(5, 1), (7, 2), (6, 0)].map(|(term, leader)| Route { term, leader });
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut routes = Routes::default();
        for at in order {
            routes.learn(1, news[at]);
        }
        assert_eq!(routes.get(1), Some(news[1]));
        assert!(!routes.learn(1, news[1]), "known already");
    }
}

#[test]
fn an_old_heartbeat_changes_nothing() {
    let mut ledger = Ledger::new(0, DOWN_AFTER);
    assert!(ledger.hear(heartbeat(1, 5, &[]), 10));
    assert!(!ledger.hear(heartbeat(1, 5, &[(1, 3)]), 500));
    assert!(!ledger.hear(heartbeat(1, 4, &[(1, 3)]), 500));
    assert_eq!(ledger.heard(1).unwrap().at, 10);
    assert_eq!(ledger.routes().get(1), None);
    assert!(ledger.hear(StoreHeartbeat { incarnation: 2, ..heartbeat(1, 0, &[]) }, 600));
}

#[test]
fn a_store_is_down_when_nothing_was_heard_for_long_enough() {
    let mut ledger = Ledger::new(0, DOWN_AFTER);
    assert!(!ledger.is_up(1, 0));
    ledger.hear(heartbeat(1, 1, &[]), 100);
    assert!(ledger.is_up(1, 100 + DOWN_AFTER));
    assert!(!ledger.is_up(1, 101 + DOWN_AFTER));
    ledger.hear(heartbeat(1, 2, &[]), 2000);
    assert!(ledger.is_up(1, 2000));
}

#[test]
fn a_report_counts_while_its_store_leads() {
    let mut ledger = Ledger::new(0, DOWN_AFTER);
    ledger.hear(heartbeat(0, 1, &[(1, 3)]), 0);
    assert_eq!(ledger.lead(1).unwrap().bytes, 77);
    ledger.learn(1, Route { term: 4, leader: 1 });
    assert_eq!(ledger.lead(1), None, "the new leader has not reported");
    ledger.hear(heartbeat(1, 1, &[(1, 4)]), 0);
    assert_eq!(ledger.lead(1).unwrap().term, 4);
    ledger.hear(heartbeat(1, 2, &[]), 0);
    assert_eq!(ledger.lead(1), None, "it says that it no longer leads");
    ledger.hear(heartbeat(0, 2, &[(1, 5)]), 0);
    ledger.learn(1, Route { term: 6, leader: 0 });
    assert_eq!(ledger.lead(1), None, "its report is from an earlier term");
}

#[test]
fn planning_waits_until_every_store_was_heard_or_had_the_time() {
    let meta = meta(2, 1);
    let mut ledger = Ledger::new(500, DOWN_AFTER);
    ledger.hear(heartbeat(0, 1, &[]), 500);
    assert!(!ledger.is_settled(&meta, 500 + DOWN_AFTER));
    assert!(ledger.is_settled(&meta, 501 + DOWN_AFTER));
    ledger.hear(heartbeat(1, 1, &[]), 600);
    assert!(ledger.is_settled(&meta, 600));
}

#[test]
fn the_view_joins_what_is_agreed_with_what_was_heard() {
    let meta = meta(3, 2);
    let mut ledger = Ledger::new(0, DOWN_AFTER);
    let driver = Driver::new(DriverConfig::default());
    let fast = Capability { kv_bytes_per_s: 9e9, ops_per_s: 9e6 };
    ledger.hear(StoreHeartbeat { capability: fast, used_bytes: 5, ..heartbeat(0, 1, &[(1, 2)]) }, 0);
    ledger.hear(heartbeat(1, 1, &[]), 2000);
    let view = view(&meta, &ledger, &driver, 2000);

    assert_eq!(view.stores.iter().map(|s| s.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((view.stores[0].capability, view.stores[0].used_bytes), (fast, 5));
    assert_eq!(view.stores[2].capability, meta.stores[&2].capability);
    assert_eq!(view.stores[0].labels["zone"], "a");
    let states: Vec<StoreState> = view.stores.iter().map(|store| store.state).collect();
    assert_eq!(states, [StoreState::Down, StoreState::Up, StoreState::Down]);

    assert_eq!(view.regions.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((view.regions[1].leader, view.regions[1].bytes), (Some(0), 77));
    let lags: Vec<Option<u64>> = view.regions[1].peers.iter().map(|peer| peer.lag).collect();
    assert_eq!(lags, [Some(0), Some(6), None]);
    assert_eq!((view.regions[2].leader, view.regions[2].peers[0].lag), (None, None));
}
