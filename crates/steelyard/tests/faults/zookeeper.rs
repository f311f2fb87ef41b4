//! Elections whose candidates ZooKeeper chooses.

use std::time::Duration;

use client::zookeeper::Ensemble;

use crate::stores::{ctl, eventually};
use crate::{await_operations, judge, load, pause, rounds, three, warm_up, Stores, REGION};

/// The long run has more rounds than other faults: fifty failovers and a hundred ended sessions.
const KILLS: u64 = 5;
const SESSIONS: u64 = 5;

struct Chosen {
    stores: Stores,
    ensemble: Ensemble,
    _dir: tempfile::TempDir,
}

/// Three stores with an ensemble of `servers`. No peer campaigns by its own timeout.
fn chosen(servers: usize) -> Chosen {
    let dir = tempfile::Builder::new().prefix("steelyard-test-zookeeper-").tempdir().unwrap();
    let ensemble = Ensemble::start(dir.path(), servers, Duration::from_millis(100)).unwrap();
    assert!(ensemble.await_ready(Duration::from_secs(60)), "ZooKeeper does not start");
    let servers = ensemble.connect_string();
    let mut stores = Stores::prepare(&three());
    for store in &mut stores.all {
        store.change(&[("--zookeeper", &servers), ("--zookeeper-session-timeout", "600")]);
        store.spawn();
    }
    stores.await_ready();
    eventually("ZooKeeper chooses the candidates", || {
        ctl(&stores, 0, &["config", "election", "zookeeper"]).ok()?;
        ctl(&stores, 0, &["config", "election-fallback", "never"]).ok()
    });
    for store in &stores.all {
        let is_told = |text: String| text.contains("znodes decide who campaigns");
        eventually("every store knows it", || is_told(store.log_text()).then_some(()));
    }
    Chosen { stores, ensemble, _dir: dir }
}

#[test]
fn leaders_that_are_killed_are_replaced_by_zookeepers_choice_without_a_loss() {
    let _place = crate::place();
    let mut chosen = chosen(1);
    let load = load(&chosen.stores, "zookeeper-kills");
    for _ in 0..rounds(1) * KILLS / 2 {
        warm_up(&load);
        let leader = chosen.stores.leader(REGION);
        chosen.stores.all[leader].kill();
        await_operations(&load, 300);
        chosen.stores.all[leader].restart();
        chosen.stores.await_ready();
    }
    judge(load.finish());
}

/// A store that is stopped for longer than a session loses it, and its lead. It finds both gone
/// when it goes on.
#[test]
fn sessions_that_expire_under_load_lose_nothing() {
    let _place = crate::place();
    let chosen = chosen(1);
    let load = load(&chosen.stores, "zookeeper-sessions");
    for round in 0..rounds(1) * SESSIONS {
        warm_up(&load);
        let store = round as usize % 3;
        chosen.stores.all[store].signal("-STOP");
        pause(900 + round % 7 * 100);
        chosen.stores.all[store].signal("-CONT");
        await_operations(&load, 100);
    }
    judge(load.finish());
}

#[test]
fn zookeepers_own_failover_beside_that_of_a_region_loses_nothing() {
    let _place = crate::place();
    let mut chosen = chosen(3);
    let load = load(&chosen.stores, "zookeeper-ensemble");
    for _ in 0..rounds(1) {
        warm_up(&load);
        let server = eventually("the ensemble has a leader", || chosen.ensemble.leader());
        chosen.ensemble.kill(server);
        let leader = chosen.stores.leader(REGION);
        chosen.stores.all[leader].kill();
        await_operations(&load, 300);
        chosen.stores.all[leader].restart();
        chosen.ensemble.restart(server).unwrap();
        assert!(chosen.ensemble.await_ready(Duration::from_secs(60)));
        chosen.stores.await_ready();
    }
    judge(load.finish());
}
