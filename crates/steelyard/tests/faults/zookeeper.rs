//! Elections whose candidates ZooKeeper chooses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::zookeeper::Ensemble;
use faults::chance::Chance;
use faults::sessions::{self, Session};
use faults::workload::Workload;
use resp::Reply;

use crate::partitions::network;
use crate::stores::ledger::time_to_serve;
use crate::stores::way::Way;
use crate::stores::wire::Wire;
use crate::stores::{eventually, median, say};
use crate::{
    await_operations, is_long_run, judge, leader_of_any, load, pause, rounds, three, warm_up, Plan, Stores,
    REGION,
};

/// The long run has more rounds than other faults: fifty failovers and a hundred ended sessions.
const KILLS: u64 = 5;
const SESSIONS: u64 = 5;
const SESSION_TIMEOUT_MS: u64 = 600;
/// A killed leader must be replaced within this time (PaxStore §5.5).
const FAILOVER_MAX: Duration = Duration::from_secs(3);

struct Chosen {
    stores: Stores,
    ensemble: Ensemble,
    /// Each store's way to ZooKeeper, if the stores are in a network of their own.
    ways: Vec<Way>,
    _dir: tempfile::TempDir,
}

/// Three stores with an ensemble of `servers`. No peer campaigns by its own timeout.
fn chosen(servers: usize) -> Chosen {
    chosen_on(servers, &three())
}

fn chosen_on(servers: usize, plan: &Plan) -> Chosen {
    let dir = tempfile::Builder::new().prefix("steelyard-test-zookeeper-").tempdir().unwrap();
    let ensemble = Ensemble::start(dir.path(), servers, Duration::from_millis(100)).unwrap();
    assert!(ensemble.await_ready(Duration::from_secs(60)), "ZooKeeper does not start");
    let mut stores = Stores::prepare(plan);
    let mut ways = Vec::new();
    for store in &mut stores.all {
        let servers = match plan.network {
            Some(network) => {
                let way = Way::to(ensemble.addresses()[0], network.outside());
                let address = way.address().to_string();
                ways.push(way);
                address
            }
            None => ensemble.connect_string(),
        };
        let timeout = SESSION_TIMEOUT_MS.to_string();
        store.change(&[("--zookeeper", &servers), ("--zookeeper-session-timeout", &timeout)]);
        store.spawn();
    }
    stores.await_ready();
    set(&stores, "election-fallback", "never");
    set_election(&stores, "zookeeper");
    Chosen { stores, ensemble, ways, _dir: dir }
}

fn set(stores: &Stores, name: &str, value: &str) {
    eventually("a setting is accepted", || stores.all[0].host().ctl(&["config", name, value]).ok());
}

/// Sets the way of elections, and waits until every store follows it.
fn set_election(stores: &Stores, way: &str) {
    set(stores, "election", way);
    let line = match way {
        "zookeeper" => "znodes decide who campaigns",
        _ => "campaign after a random timeout",
    };
    for store in &stores.all {
        eventually("every store knows who chooses the candidates", || {
            let text = store.log_text();
            let last = text.lines().rfind(|line| line.contains("elections: "))?;
            last.contains(line).then_some(())
        });
    }
}

/// Returns the leader and the term of each region. `None` while one has no leader.
fn leads(stores: &Stores) -> Option<BTreeMap<u64, (u64, u64)>> {
    let rows = stores.any().regions()?;
    rows.iter().map(|row| Some((row.id, (row.leader?, row.term)))).collect()
}

/// Waits until no lead has changed for three seconds.
fn settled(stores: &Stores) -> BTreeMap<u64, (u64, u64)> {
    eventually("the leads stay where they are", || {
        let before = leads(stores)?;
        pause(3000);
        (leads(stores)? == before).then_some(before)
    })
}

fn has_session(stores: &Stores) -> Vec<bool> {
    let gauge = |store: &crate::stores::Store| store.admin().gauge("zookeeper_session").ok();
    stores.all.iter().map(|store| gauge(store).expect("the metrics of a store") == 1).collect()
}

fn await_sessions(stores: &Stores) {
    eventually("every store has a session", || has_session(stores).iter().all(|&has| has).then_some(()));
}

/// Returns the session of a store.
fn session_of(server: SocketAddr, store: usize) -> Option<Session> {
    let own = format!("/stores/{store}");
    let mut all = sessions::sessions(server).ok()?.into_iter();
    all.find(|session| session.znodes.iter().any(|znode| znode.ends_with(&own)))
}

#[test]
fn leaders_that_are_killed_are_replaced_by_zookeepers_choice_without_a_loss() {
    let _place = crate::place();
    let mut chosen = chosen(1);
    let load = load(&chosen.stores, "zookeeper-kills");
    let clients = chosen.stores.clients();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut times = Vec::new();
    for round in 0..rounds(1) * KILLS / 2 {
        warm_up(&load);
        let leader = chosen.stores.leader(REGION);
        let began = Instant::now();
        chosen.stores.all[leader].kill();
        runtime.block_on(time_to_serve(&clients, &format!("probe:{round}"), Duration::from_secs(20)));
        times.push(began.elapsed());
        await_operations(&load, 300);
        chosen.stores.all[leader].restart();
        chosen.stores.await_ready();
        await_sessions(&chosen.stores);
    }
    judge(load.finish());
    let longest = times.iter().max().expect("a kill");
    say(&format!(
        "zookeeper-kills: {} leaders replaced in {:?}, longest {longest:?}",
        times.len(),
        median(&times)
    ));
    assert!(*longest < FAILOVER_MAX, "{times:?}");
}

/// A store that is stopped for longer than a session loses it, and its lead. It finds both gone
/// when it goes on. A session that another client closes ends while its store runs.
#[test]
fn sessions_that_expire_under_load_lose_nothing() {
    let _place = crate::place();
    let chosen = chosen(1);
    let server = chosen.ensemble.addresses()[0];
    let load = load(&chosen.stores, "zookeeper-sessions");
    let mut chance = Chance::new(17);
    let (mut stopped, mut closed) = (0, 0);
    for _ in 0..rounds(1) * SESSIONS {
        await_operations(&load, 200);
        let store = chance.below(3) as usize;
        let session = eventually("the store has a session", || session_of(server, store));
        if chance.below(3) == 0 {
            chosen.stores.all[store].signal("-STOP");
            pause(SESSION_TIMEOUT_MS + 300 + chance.below(700));
            chosen.stores.all[store].signal("-CONT");
            stopped += 1;
        } else {
            // The store may connect again with its session before it is closed.
            eventually("the session is closed", || {
                let is_gone = || (session_of(server, store)?.id != session.id).then_some(());
                sessions::end(server, session.id).ok().or_else(is_gone)
            });
            pause(chance.below(300));
            closed += 1;
        }
        await_operations(&load, 100);
        eventually("the store has another session", || {
            (session_of(server, store)?.id != session.id).then_some(())
        });
    }
    say(&format!("zookeeper-sessions: {stopped} sessions expired and {closed} were closed"));
    judge(load.finish());
}

#[test]
fn zookeepers_own_failover_beside_that_of_a_region_loses_nothing() {
    let _place = crate::place();
    let mut chosen = chosen(3);
    let load = load(&chosen.stores, "zookeeper-ensemble");
    for _ in 0..rounds(1) {
        kill_both_leaders(&mut chosen, &load);
    }
    judge(load.finish());
}

/// Kills ZooKeeper's leader and that of the region, waits for service, and starts both again.
fn kill_both_leaders(chosen: &mut Chosen, load: &Workload) {
    warm_up(load);
    let server = eventually("the ensemble has a leader", || chosen.ensemble.leader());
    chosen.ensemble.kill(server);
    let leader = chosen.stores.leader(REGION);
    chosen.stores.all[leader].kill();
    await_operations(load, 300);
    chosen.stores.all[leader].restart();
    chosen.ensemble.restart(server).unwrap();
    assert!(chosen.ensemble.await_ready(Duration::from_secs(60)));
    chosen.stores.await_ready();
}

/// The long run makes ten changes in each direction.
#[test]
fn the_way_of_elections_is_changed_under_load() {
    let _place = crate::place();
    let mut chosen = chosen(3);
    let load = load(&chosen.stores, "zookeeper-modes");
    for round in 0..rounds(2) {
        set_election(&chosen.stores, if round % 2 == 0 { "raft" } else { "zookeeper" });
        kill_both_leaders(&mut chosen, &load);
    }
    judge(load.finish());
}

type Away = (&'static str, fn(&mut Ensemble), fn(&mut Ensemble));

/// The ways in which an ensemble goes away and comes back.
const AWAY: &[Away] = &[
    ("stands still", Ensemble::suspend, Ensemble::resume),
    (
        "is down",
        |ensemble| (0..ensemble.addresses().len()).for_each(|server| ensemble.kill(server)),
        |ensemble| {
            (0..ensemble.addresses().len()).for_each(|server| ensemble.restart(server).expect("it starts"));
        },
    ),
];

/// In the long run three servers are away for a minute, in each way. The short run has one server
/// that stands still for some seconds.
#[test]
fn leaders_serve_without_a_pause_while_zookeeper_is_away_and_when_it_comes_back() {
    let _place = crate::place();
    let is_long = is_long_run();
    let (servers, away_s, after_s) = if is_long { (3, 60, 20) } else { (1, 3, 2) };
    let mut chosen = chosen(servers);
    let load = load(&chosen.stores, "zookeeper-away");
    for (how, leave, come_back) in &AWAY[..if is_long { AWAY.len() } else { 1 }] {
        warm_up(&load);
        let before = settled(&chosen.stores);
        leave(&mut chosen.ensemble);
        let least = least_in_a_second(&load, away_s);
        say(&format!(
            "zookeeper-away: ZooKeeper {how} for {away_s} s, at least {least} operations in a second"
        ));
        assert!(least > 0, "a second without an answer while ZooKeeper {how}");
        assert_eq!(leads(&chosen.stores), Some(before.clone()), "ZooKeeper {how}, and a lead moved");
        assert_eq!(has_session(&chosen.stores), [false; 3], "it was away for longer than a session");
        come_back(&mut chosen.ensemble);
        assert!(chosen.ensemble.await_ready(Duration::from_secs(60)), "ZooKeeper does not come back");
        await_sessions(&chosen.stores);
        let least = least_in_a_second(&load, after_s);
        assert!(least > 0, "a second without an answer after ZooKeeper's return");
        assert_eq!(leads(&chosen.stores), Some(before), "ZooKeeper's return moved a lead");
    }
    judge(load.finish());
}

/// Returns the smallest number of operations that ended in one of these seconds.
fn least_in_a_second(load: &Workload, seconds: u64) -> u64 {
    let in_a_second = |_| {
        let before = load.acknowledged();
        pause(1000);
        load.acknowledged() - before
    };
    (0..seconds).map(in_a_second).min().expect("a second")
}

/// An answer to a client that stays with the old leader.
struct Answer {
    asked: Instant,
    is_write: bool,
    reply: Reply,
}

/// Writes and reads a key in turn until it is told to stop.
fn ask_on(client: &mut Wire, key: &str, stop: &AtomicBool) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let is_write = answers.len() % 2 == 0;
        let reply = match is_write {
            true => client.call(&["SET", key, "of the old leader"]),
            false => client.call(&["GET", key]),
        };
        answers.push(Answer { asked, is_write, reply });
        pause(5);
    }
    answers
}

/// The old leader is cut off from its peers and, in every other round, from ZooKeeper, but not from
/// its clients. In the other rounds it keeps its session, and its log is the longest.
#[test]
fn an_old_leader_apart_from_peers_and_zookeeper_answers_no_write_and_no_stale_read() {
    let _place = crate::place();
    let Some(mut network) = network("two leaders", 3) else { return };
    let flags = &[("--request-timeout", "300")];
    let chosen = chosen_on(1, &Plan { network: Some(&network), flags, ..three() });
    let stores = &chosen.stores;
    let load = load(stores, "zookeeper-two-leaders");
    let mut times = Vec::new();
    let mut refused = 0;
    for round in 0..rounds(1) {
        warm_up(&load);
        let old = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|&store| store != old).collect();
        let key = format!("two-leaders:{round}");
        let mut at_old = Wire::open(stores.all[old].client);
        at_old.ok(&["SET", &key, "before"]);
        if round % 2 == 0 {
            chosen.ways[old].cut();
        }
        network.part(&[&others]);
        let parted = Instant::now();
        let stop = AtomicBool::new(false);
        let (answers, replaced) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask_on(&mut at_old, &key, &stop));
            let new = leader_of_any(stores, &others);
            Wire::open(stores.all[new].client).ok(&["SET", &key, "of the new leader"]);
            let replaced = Instant::now();
            eventually("the old leader steps down", || {
                (stores.all[old].leader_of(REGION) != Some(old as u64)).then_some(())
            });
            pause(500);
            stop.store(true, Ordering::Relaxed);
            (asking.join().expect("the client goes on"), replaced)
        });
        times.push(replaced - parted);
        for Answer { asked, is_write, reply } in &answers {
            let is_late = *asked >= replaced;
            match reply {
                Reply::Error(text) => {
                    assert!(text.starts_with("CLUSTERDOWN ") || text.starts_with("UNKNOWN "), "{text}");
                    refused += u64::from(is_late);
                }
                reply => assert!(
                    !is_write && !is_late,
                    "{:?} after the cut, the old leader answers {reply:?} (write: {is_write}, replaced: {is_late})",
                    *asked - parted
                ),
            }
        }
        assert!(answers.iter().any(|answer| answer.asked >= replaced), "nothing was asked");
        network.heal();
        chosen.ways[old].mend();
        eventually("the old leader follows", || {
            (at_old.text_if_any(&["GET", &key])? == "of the new leader").then_some(())
        });
        await_operations(&load, 500);
    }
    say(&format!(
        "zookeeper-two-leaders: {} old leaders replaced in {:?}, longest {:?}; {refused} requests refused after",
        times.len(),
        median(&times),
        times.iter().max()
    ));
    judge(load.finish());
}
