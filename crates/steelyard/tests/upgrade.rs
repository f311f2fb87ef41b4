//! Upgrades of a running cluster, store by store: the version rises once all stores support it, and
//! from then on no store can be downgraded.
//!
//! Two more programs take part in the rolling upgrades: one that supports less than this program,
//! and one that supports more. `make test-upgrade` builds them.

mod stores;

use std::path::PathBuf;
use std::time::Duration;

use resp::Reply;
use serde_json::Value;
use stores::ledger::{Load, Shape};
use stores::wire::Wire;
use stores::{alone, ctl, eventually, within, Plan, Stores};
use types::NEWEST_VERSION;

const SHAPE: Shape = Shape { writers: 6, incrementers: 4, readers: 4, counters: 3, value_bytes: 0 };

fn three() -> Plan<'static> {
    Plan { stores: 3, regions: 4, cluster_enabled: true, ..Plan::default() }
}

fn version_of(store: &stores::Store) -> Option<u32> {
    store.info("server", "cluster_version")?.parse().ok()
}

fn await_version(stores: &Stores, version: u32) {
    eventually("every store writes in the version", || {
        stores.all.iter().all(|store| version_of(store) == Some(version)).then_some(())
    });
}

/// Commands that a cluster of version 1 does not have, with the part of their replies that shows
/// that they are executed.
const NEWER_COMMANDS: [(&[&str], &str); 7] = [
    (&["SADD", "newer:set", "a", "b", "c"], "Int(3)"),
    (&["RPUSH", "newer:list", "x", "y"], "Int(2)"),
    (&["ZADD", "newer:scores", "1", "a", "2", "b"], "Int(2)"),
    (&["SETBIT", "newer:bits", "7", "1"], "Int(0)"),
    (&["PFADD", "newer:count", "a"], "Int(1)"),
    (&["BLPOP", "newer:list", "1"], "newer:list"),
    (&["ACL", "SETUSER", "newer", "on", ">secret", "~newer:*", "+@all"], "OK"),
];

/// Returns the replies to [`NEWER_COMMANDS`] by a store that passes commands on, as text.
fn newer_replies(stores: &Stores, at: usize) -> Vec<String> {
    let questions: Vec<&[&str]> = NEWER_COMMANDS.iter().map(|(words, _)| *words).collect();
    let address = stores.all[at].forward.expect("a forward port");
    let replies = eventually("the store answers", || Wire::ask(address, &questions));
    replies.iter().map(|reply| format!("{reply:?}")).collect()
}

/// Returns what a store answers to `ctl versions`. It leads the meta region for that, because a
/// program of the version before does not know the question.
fn versions(stores: &Stores, asked: usize) -> Value {
    eventually("the leader of the meta region answers", || {
        stores.all[asked].host().ctl(&["versions"]).ok().or_else(|| {
            let _ = ctl(stores, asked, &["move-leader", "0", &asked.to_string()]);
            None
        })
    })
}

#[test]
fn the_stores_of_a_new_cluster_agree_on_the_newest_version() {
    let _alone = alone();
    let mut stores = Stores::start(&three());
    await_version(&stores, NEWEST_VERSION);
    let row = versions(&stores, 1);
    assert_eq!(row["version"], NEWEST_VERSION);
    for store in row["stores"].as_array().expect("stores") {
        assert_eq!((&store["newest"], &store["prepared"]), (&NEWEST_VERSION.into(), &NEWEST_VERSION.into()));
    }
    let text = ctl(&stores, 2, &["versions"]).expect("a table");
    assert!(text.contains("the newest that its stores support"), "{text}");
    let metrics = stores.all[0].admin().gauge("cluster_version").expect("a gauge");
    assert_eq!(metrics, u64::from(NEWEST_VERSION));
    stores.kill_all();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    assert!(stores.all.iter().all(|store| version_of(store) == Some(NEWEST_VERSION)), "it is kept");

    // A directory that a newer program has prepared is refused.
    stores.all[1].terminate();
    let identity = stores.all[1].dir.join("IDENTITY");
    let text = std::fs::read_to_string(&identity).expect("an identity");
    let (now, next) =
        (format!("format = {}\n", NEWEST_VERSION + 4), format!("format = {}\n", NEWEST_VERSION + 5));
    assert!(text.contains(&now), "{text}");
    std::fs::write(&identity, text.replace(&now, &next)).expect("it is written");
    stores.all[1].spawn();
    assert!(!stores.all[1].await_end().success());
    let log = stores.all[1].log_text();
    assert!(log.contains("there is no way back"), "{log}");
}

#[test]
fn a_store_that_joins_writes_in_the_clusters_version_from_the_beginning() {
    let _alone = alone();
    let mut stores = Stores::prepare(&Plan { joining: true, stores: 2, ..three() });
    stores.all[0].restart();
    let first = || version_of(&stores.all[0]).filter(|version| *version == NEWEST_VERSION);
    eventually("the version rises", first);
    stores.all[1].restart();
    let identity = std::fs::read_to_string(stores.all[1].dir.join("IDENTITY")).expect("an identity");
    assert!(identity.contains(&format!("format = {}\n", NEWEST_VERSION + 4)), "{identity}");
    await_version(&stores, NEWEST_VERSION);
}

/// A program, by the variable that names its file.
fn program(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} names no program: run make test-upgrade")).into()
}

/// Replaces the program of each store by `to` while clients read and write, and back and forth. The
/// version must rise from `before` to `after` once all stores run `to`.
fn roll(from: Option<PathBuf>, to: Option<PathBuf>, (before, after): (u32, u32), refusal: &str) {
    let _alone = alone();
    let mut stores = Stores::prepare(&three());
    for store in &mut stores.all {
        store.program = from.clone();
        store.spawn();
    }
    stores.await_ready();
    let is_told = version_of(&stores.all[0]).is_some();
    if is_told {
        await_version(&stores, before);
    }
    let load = Load::start(&stores.clients(), "upgrade", SHAPE);
    let run = |stores: &mut Stores, at: usize, program: &Option<PathBuf>| {
        assert!(stores.all[at].terminate().success());
        stores.all[at].program = program.clone();
        stores.all[at].restart();
        std::thread::sleep(Duration::from_secs(2));
    };
    run(&mut stores, 0, &to);
    run(&mut stores, 1, &to);
    // Every store leads for a while, and one is killed among stores of both programs.
    for store in [0, 2, 1] {
        stores.all[store].kill();
        stores.all[store].restart();
        std::thread::sleep(Duration::from_secs(1));
    }
    let asked = versions(&stores, 0);
    assert_eq!(asked["version"], before, "{asked}");
    assert!(
        asked["note"].as_str().is_some_and(|note| note.contains("a newer program on store 2")),
        "{asked}"
    );
    // A store of the program before does not know some of the commands at all.
    if before < 3 {
        for (reply, (words, _)) in newer_replies(&stores, 0).iter().zip(NEWER_COMMANDS) {
            assert!(reply.contains("version 3 of the cluster"), "{words:?}: {reply}");
        }
    }
    // A downgrade is still possible.
    run(&mut stores, 1, &from);
    run(&mut stores, 1, &to);
    assert_eq!(version_of(&stores.all[1]), Some(before));
    run(&mut stores, 2, &to);
    await_version(&stores, after);
    std::thread::sleep(Duration::from_secs(2));
    for (reply, (words, part)) in newer_replies(&stores, 0).iter().zip(NEWER_COMMANDS) {
        assert!(reply.contains(part), "{words:?}: {reply}");
    }
    stores.all[0].kill();
    stores.all[0].restart();
    std::thread::sleep(Duration::from_secs(2));
    let kept = eventually("another store answers", || {
        let questions: [&[&str]; 3] =
            [&["SMEMBERS", "newer:set"], &["LRANGE", "newer:list", "0", "-1"], &["ZCARD", "newer:scores"]];
        Wire::ask(stores.all[1].forward.expect("a forward port"), &questions)
    });
    assert_eq!(format!("{:?}", kept[2]), "Int(2)", "{kept:?}");
    assert_eq!(kept[1], Reply::Array(vec![Reply::bulk("y")]), "{kept:?}");

    // A downgrade is no longer possible.
    stores.all[1].terminate();
    stores.all[1].program = from.clone();
    stores.all[1].spawn();
    assert!(!stores.all[1].await_end().success());
    let log = stores.all[1].log_text();
    assert!(log.contains(refusal), "{log}");
    stores.all[1].program = to;
    stores.all[1].restart();
    load.finish().check("upgrade");
    let row = within(Duration::from_secs(30), || ctl(&stores, 1, &["check"]).ok());
    assert!(row.is_some(), "the replicas of all regions are equal: {:?}", ctl(&stores, 1, &["check"]));
}

#[test]
#[ignore = "takes another program: make test-upgrade"]
fn a_cluster_of_the_program_before_is_upgraded_store_by_store() {
    let refusal = "newer than this program's";
    roll(Some(program("STEELYARD_OLDER")), None, (1, NEWEST_VERSION), refusal);
}

#[test]
#[ignore = "takes another program: make test-upgrade"]
fn a_cluster_of_this_program_is_upgraded_to_the_next_version_store_by_store() {
    let refusal = "there is no way back";
    roll(None, Some(program("STEELYARD_NEWER")), (NEWEST_VERSION, NEWEST_VERSION + 1), refusal);
}
