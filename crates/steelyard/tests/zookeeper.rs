//! Elections whose candidates a real ZooKeeper chooses: killed leaders, a stopped ZooKeeper and
//! lost sessions. The directory `faults` has more of them.

#[path = "tls/certificates.rs"]
mod certificates;
mod stores;
#[path = "zookeeper/tls.rs"]
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use client::zookeeper::Ensemble;
use stores::ledger::{Load, Shape};
use stores::way::Way;
use stores::{alone, ctl, eventually, median, say, Plan, Stores};

const TICK: Duration = Duration::from_millis(100);
const REGION: u64 = 1;
/// A killed leader must be replaced within this time (PaxStore §5.5).
const FAILOVER_MAX: Duration = Duration::from_secs(3);

/// Three stores, each with its own way to ZooKeeper, which chooses the candidates.
struct Cluster {
    stores: Stores,
    ways: Vec<Way>,
    ensemble: Ensemble,
    _dir: tempfile::TempDir,
}

impl Cluster {
    fn start(fallback: &str) -> Cluster {
        let dir = directory();
        let ensemble = Ensemble::start(dir.path(), 1, TICK).unwrap();
        let servers = ensemble.addresses();
        Cluster::with(ensemble, &servers, dir, fallback, |_| Vec::new())
    }

    /// Starts stores whose sessions are with `servers` of an ensemble, with more flags for each.
    fn with(
        ensemble: Ensemble,
        servers: &[SocketAddr],
        dir: tempfile::TempDir,
        fallback: &str,
        flags: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Cluster {
        assert!(ensemble.await_ready(Duration::from_secs(60)), "ZooKeeper does not start");
        let plan = Plan { stores: 3, ..Plan::default() };
        let mut stores = Stores::prepare(&plan);
        let mut ways = Vec::new();
        for (number, store) in stores.all.iter_mut().enumerate() {
            let own: Vec<Way> = servers.iter().map(|&to| Way::to(to, Ipv4Addr::LOCALHOST.into())).collect();
            let servers: Vec<String> = own.iter().map(|way| way.address().to_string()).collect();
            store.change(&[
                ("--zookeeper", &servers.join(",")),
                ("--zookeeper-session-timeout", "1000"),
                ("--raft-tick", "50"),
            ]);
            flags(number).iter().for_each(|(name, value)| store.change(&[(name, value)]));
            ways.extend(own);
            store.spawn();
        }
        stores.await_ready();
        let cluster = Cluster { stores, ways, ensemble, _dir: dir };
        eventually("every store has a session and the version allows it", || {
            cluster.set("election", "zookeeper").ok()
        });
        cluster.set("election-fallback", fallback).unwrap();
        for store in &cluster.stores.all {
            eventually("the store follows the setting", || {
                store.log_text().contains("znodes decide who campaigns").then_some(())
            });
        }
        cluster
    }

    fn set(&self, name: &str, value: &str) -> Result<String, String> {
        ctl(&self.stores, 0, &["config", name, value])
            .or_else(|_| ctl(&self.stores, 1, &["config", name, value]))
            .or_else(|_| ctl(&self.stores, 2, &["config", name, value]))
    }

    /// The ways of one store to the servers.
    fn ways_of(&self, store: usize) -> &[Way] {
        let each = self.ensemble.addresses().len();
        &self.ways[store * each..(store + 1) * each]
    }

    fn leader(&self) -> usize {
        self.stores.leader(REGION)
    }

    fn others(&self, store: usize) -> Vec<usize> {
        (0..3).filter(|other| *other != store).collect()
    }

    fn stood(&self) -> u64 {
        self.stores
            .all
            .iter()
            .filter(|store| store.answers())
            .map(|store| store.count("elections_stood"))
            .sum()
    }

    /// Kills the leader, and returns the time until a write is served.
    fn replace_leader(&mut self, load: &mut Load) -> Duration {
        let leader = self.leader();
        self.stores.all[leader].kill();
        let passed = load.time_to_serve(Duration::from_secs(20));
        self.stores.all[leader].restart();
        passed
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("steelyard-test-zookeeper-").tempdir().unwrap()
}

fn rounds(few: usize) -> usize {
    std::env::var("STEELYARD_ZOOKEEPER_ROUNDS").map_or(few, |rounds| rounds.parse().expect("a number"))
}

/// `never` shows that ZooKeeper chose: no peer campaigns by its own timeout.
#[test]
fn a_killed_leader_is_replaced_by_the_peer_that_the_znodes_name() {
    let _alone = alone();
    let mut cluster = Cluster::start("never");
    let mut load = Load::start(&cluster.stores.clients(), "kills", Shape::MIXED);
    let mut times = Vec::new();
    for _ in 0..rounds(3) {
        load.await_more(200);
        times.push(cluster.replace_leader(&mut load));
        cluster.stores.await_ready();
    }
    assert!(cluster.stood() > 0, "no peer campaigned by ZooKeeper's choice");
    say(&format!("killed leaders are replaced in {:?}, longest {:?}", median(&times), times.iter().max()));
    assert!(times.iter().all(|time| *time < FAILOVER_MAX), "{times:?}");
    load.finish().check("kills");
}

#[test]
fn without_zookeeper_leaders_serve_and_the_fallback_elects() {
    let _alone = alone();
    let mut cluster = Cluster::start("2s");
    let mut load = Load::start(&cluster.stores.clients(), "away", Shape::MIXED);
    let leader = cluster.leader();
    cluster.ensemble.kill(0);
    // Longer than a session and the fallback.
    std::thread::sleep(Duration::from_secs(4));
    load.await_more(200);
    assert_eq!(cluster.leader(), leader, "ZooKeeper's end moved a lead");
    let stood = cluster.stood();
    let passed = cluster.replace_leader(&mut load);
    assert!(passed > Duration::from_millis(1500), "nobody waited for the fallback: {passed:?}");
    assert!(cluster.stood() <= stood, "nobody can have been chosen");
    cluster.stores.await_ready();
    // Without a fallback, only ZooKeeper's return brings a leader.
    cluster.set("election-fallback", "never").unwrap();
    load.await_more(200);
    let leader = cluster.leader();
    cluster.stores.all[leader].kill();
    let asked = cluster.others(leader);
    std::thread::sleep(Duration::from_secs(4));
    let known = || asked.iter().find_map(|&store| cluster.stores.all[store].leader_of(REGION));
    assert!(known().is_none_or(|known| known == leader as u64), "a peer campaigned without ZooKeeper");
    cluster.ensemble.restart(0).unwrap();
    load.time_to_serve(Duration::from_secs(30));
    cluster.stores.all[leader].restart();
    cluster.stores.await_ready();
    load.finish().check("away");
}

#[test]
fn a_leader_that_loses_its_session_hands_over_and_gets_leads_again_after() {
    let _alone = alone();
    let cluster = Cluster::start("10s");
    let load = Load::start(&cluster.stores.clients(), "sessions", Shape::MIXED);
    for _ in 0..rounds(1) {
        let leader = cluster.leader();
        cluster.ways_of(leader).iter().for_each(Way::cut);
        eventually("the leader without a session hands over", || (cluster.leader() != leader).then_some(()));
        load.await_more(100);
        cluster.ways_of(leader).iter().for_each(Way::mend);
        eventually("the store has a session again", || {
            let text = cluster.stores.all[leader].log_text();
            let last = text.lines().rfind(|line| line.contains("ZooKeeper session"))?;
            last.contains("begins").then_some(())
        });
    }
    load.finish().check("sessions");
}

#[test]
fn zookeeper_is_not_chosen_while_a_store_has_no_session() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    let refusal = eventually("the cluster has the version", || {
        let refusal =
            ctl(&stores, 0, &["config", "election", "zookeeper"]).expect_err("no store has a session");
        (!refusal.contains("needs version")).then_some(refusal)
    });
    assert!(refusal.contains("stores without a session with it are 0, 1, 2"), "{refusal}");
    assert!(ctl(&stores, 0, &["config", "election", "paxos"]).is_err());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert!(stores
            .all
            .iter()
            .all(|store| store.log_text().lines().all(|line| !line.contains("ZooKeeper session"))));
        std::thread::sleep(Duration::from_millis(100));
    }
}
