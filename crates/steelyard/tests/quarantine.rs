//! An entry that cannot be executed quarantines its region's peer but does not stop the store, and
//! operators decide how to continue.

mod stores;

use std::time::Duration;

use client::admin::{CheckRequest, QuarantineQuery};
use stores::wire::Wire;
use stores::{alone, eventually, steelyard, within, Plan, Stores};
use types::NEWEST_VERSION;

const REGION: u64 = 1;
const KEYS: usize = 50;
const DEBUG: &[(&str, &str)] = &[("--enable-debug-command", "yes")];

fn three() -> Stores {
    let plan = Plan { stores: 3, regions: 1, cluster_enabled: true, flags: DEBUG, ..Plan::default() };
    let stores = Stores::start(&plan);
    // The cluster's first version does not support orders to skip.
    eventually("the version of the cluster has risen", || {
        let has_risen = |store: &stores::Store| {
            store.admin().gauge("cluster_version").is_ok_and(|version| version == u64::from(NEWEST_VERSION))
        };
        stores.all.iter().all(has_risen).then_some(())
    });
    stores
}

fn key(number: usize) -> String {
    format!("key:{number}")
}

fn fill(stores: &Stores, asked: usize, value: &str) {
    let mut wire = Wire::open(stores.all[asked].forward.expect("a forward port"));
    (0..KEYS).for_each(|number| wire.ok(&["SET", &key(number), value]));
}

fn has(stores: &Stores, asked: usize, value: &str) {
    let mut wire = Wire::open(stores.all[asked].forward.expect("a forward port"));
    (0..KEYS).for_each(|number| assert_eq!(wire.text(&["GET", &key(number)]).as_deref(), Some(value)));
}

/// Runs `ctl`. Returns true if it succeeded, and its output.
fn ctl(stores: &Stores, asked: usize, words: &[&str]) -> (bool, String) {
    let admin = stores.all[asked].admin().address().to_string();
    let output = steelyard().args(["ctl", "--admin", &admin]).args(words).output().expect("ctl runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}

fn fail_entry(stores: &Stores, words: &[&str]) {
    let (is_done, text) = ctl(stores, 0, &[&["fail-entry", "1"], words].concat());
    assert!(is_done, "{text}");
}

/// Returns the quarantined peers according to a store, as pairs of store and entry.
fn held(stores: &Stores, asked: usize) -> Vec<(u64, u64)> {
    let rows = stores.all[asked].admin().ask(&QuarantineQuery {}).expect("it is told");
    rows.iter().filter(|row| row.region == REGION).map(|row| (row.store, row.index)).collect()
}

fn await_held(stores: &Stores, asked: usize, count: usize) -> Vec<(u64, u64)> {
    eventually("peers are quarantined", || {
        let held = held(stores, asked);
        (held.len() == count).then_some(held)
    })
}

fn are_equal(stores: &Stores, asked: usize) -> Option<()> {
    let checked = stores.all[asked].admin().ask_of(REGION, &CheckRequest {}).ok()?;
    (checked.verdict == "equal").then_some(())
}

#[test]
fn a_peer_that_panics_alone_hands_over_stays_quarantined_and_is_refilled() {
    let _alone = alone();
    let mut stores = three();
    fill(&stores, 0, "before");
    let broken = stores.leader(REGION);
    let other = (broken + 1) % 3;
    fail_entry(&stores, &["--panic", "--store", &broken.to_string()]);
    let index = await_held(&stores, other, 1)[0].1;
    // The process keeps running, another store leads, and nothing is lost.
    eventually("another store leads", || {
        let leader = stores.all[other].leader_of(REGION)?;
        (leader != broken as u64).then_some(())
    });
    fill(&stores, broken, "after");
    has(&stores, broken, "after");
    let mut own = Wire::open(stores.all[broken].client);
    own.ok(&["READONLY"]);
    let refused = own.error(&["GET", &key(0)]);
    assert!(refused.starts_with("MOVED"), "old rows are not served: {refused}");
    // It is shown everywhere, with its entry.
    let entry = index.to_string();
    let (_, list) = ctl(&stores, other, &["quarantine", "list"]);
    assert!(list.contains(&entry) && list.contains("panic: the entry orders a panic"), "{list}");
    assert!(ctl(&stores, other, &["regions"]).1.contains(&format!("{broken}(quarantined)")));
    assert!(ctl(&stores, other, &["stores"]).1.contains("quarantined"));
    let info = own.text(&["INFO", "stats"]).expect("a text");
    assert!(info.contains("quarantined_regions:1") && info.contains(&format!("index={entry}")), "{info}");
    assert_eq!(stores.all[broken].admin().gauge("quarantined_regions").ok(), Some(1));
    assert!(stores.all[broken].log_text().contains("is quarantined: entry"));
    // Even a restart does not execute it.
    stores.all[broken].kill();
    stores.all[broken].restart();
    assert_eq!(await_held(&stores, broken, 1), [(broken as u64, index)]);
    assert!(stores.all[broken].leader_of(REGION).is_some_and(|leader| leader != broken as u64));
    // Other peers have executed it, so a skip would make the replicas differ.
    let (is_done, text) = ctl(&stores, other, &["quarantine", "skip", "1", &entry]);
    assert!(!is_done && text.contains("has executed entry"), "{text}");
    let (is_done, text) = ctl(&stores, other, &["quarantine", "refill", "1", &broken.to_string()]);
    assert!(is_done, "{text}");
    eventually("the replicas are equal", || {
        let rows = stores.all[other].regions()?;
        let peers = &rows.iter().find(|row| row.id == REGION)?.peers;
        let is_whole = peers.len() == 3 && peers.iter().all(|peer| peer.role == "voter");
        (is_whole && held(&stores, other).is_empty()).then(|| are_equal(&stores, other)).flatten()
    });
    has(&stores, broken, "after");
}

#[test]
fn an_entry_that_fails_everywhere_is_skipped_by_all_peers_or_none() {
    let _alone = alone();
    let mut stores = three();
    fill(&stores, 0, "before");
    fail_entry(&stores, &[]);
    let all = await_held(&stores, 0, 3);
    let index = all[0].1;
    assert!(all.iter().all(|(_, at)| *at == index), "{all:?}");
    // The processes keep running, and no client gets a wrong answer.
    let mut wire = Wire::open(stores.all[0].forward.expect("a forward port"));
    let refused = wire.error(&["SET", &key(0), "meanwhile"]);
    assert!(refused.starts_with("CLUSTERDOWN") || refused.starts_with("UNKNOWN"), "{refused}");
    // Data from before the entry can be read if READONLY reads are enabled.
    let weak = |stores: &Stores, at: usize| {
        let mut wire = Wire::open(stores.all[at].client);
        wire.ok(&["READONLY"]);
        match wire.call(&["GET", &key(7)]) {
            resp::Reply::Bulk(value) => Some(String::from_utf8_lossy(&value).into_owned()),
            _ => None,
        }
    };
    assert_eq!(weak(&stores, 1), None);
    let (is_done, text) = ctl(&stores, 0, &["quarantine", "read-only", "1"]);
    assert!(is_done, "{text}");
    eventually("old rows are served", || (weak(&stores, 1).as_deref() == Some("before")).then_some(()));
    // An absent store might have executed it.
    stores.all[2].kill();
    let entry = index.to_string();
    let refused = within(Duration::from_secs(40), || {
        let (is_done, text) = ctl(&stores, 0, &["quarantine", "skip", "1", &entry]);
        assert!(!is_done, "{text}");
        text.contains("does not answer").then_some(())
    });
    assert!(refused.is_some(), "it is refused because of the absent store");
    stores.all[2].spawn();
    eventually("the skip is executed", || {
        let (is_done, _) = ctl(&stores, 0, &["quarantine", "skip", "1", &entry]);
        (is_done || held(&stores, 0).is_empty()).then_some(())
    });
    eventually("every peer has gone on", || held(&stores, 0).is_empty().then_some(()));
    eventually("writes are served", || {
        let mut wire = Wire::open(stores.all[0].forward?);
        matches!(wire.call(&["SET", &key(0), "before"]), resp::Reply::Simple(_)).then_some(())
    });
    has(&stores, 1, "before");
    eventually("the replicas are equal", || are_equal(&stores, 1));
    // Replay skips it as well.
    stores.all.iter_mut().for_each(|store| store.kill());
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    eventually("the replicas are still equal", || are_equal(&stores, 1));
    assert!(held(&stores, 0).is_empty());
    has(&stores, 2, "before");
}

#[test]
fn an_entry_is_executed_again_when_the_program_can() {
    let _alone = alone();
    let mut stores = three();
    fill(&stores, 0, "before");
    fail_entry(&stores, &["--panic"]);
    let index = await_held(&stores, 0, 3)[0].1;
    let (is_done, text) = ctl(&stores, 0, &["quarantine", "retry", "1"]);
    assert!(is_done, "{text}");
    // The retry fails again.
    let times = |stores: &Stores| stores.all[0].admin().gauge("quarantines_total").ok();
    eventually("it is tried again", || (times(&stores) == Some(2)).then_some(()));
    assert_eq!(await_held(&stores, 0, 3)[0].1, index);
    // Without the setting the entry has no effect, as in a program that can execute it.
    stores.all.iter_mut().for_each(|store| {
        store.kill();
        store.change(&[("--enable-debug-command", "no")]);
        store.spawn();
    });
    eventually("all stores tell of their peers", || (held(&stores, 0).len() == 3).then_some(()));
    let (is_done, text) = ctl(&stores, 0, &["quarantine", "retry", "1"]);
    assert!(is_done, "{text}");
    eventually("every peer has gone on", || held(&stores, 0).is_empty().then_some(()));
    stores.await_ready();
    has(&stores, 0, "before");
    eventually("the replicas are equal", || are_equal(&stores, 0));
    let (is_done, text) = ctl(&stores, 0, &["fail-entry", "1"]);
    assert!(!is_done && text.contains("enable-debug-command"), "{text}");
}

#[test]
fn a_lost_majority_is_recovered_from_a_quarantined_survivor_once_it_has_gone_on() {
    let _alone = alone();
    let mut stores = three();
    fill(&stores, 0, "before");
    fail_entry(&stores, &[]);
    let index = await_held(&stores, 0, 3)[0].1;
    for store in &mut stores.all[1..] {
        store.kill();
        std::fs::remove_dir_all(&store.dir).expect("the directory is deleted");
    }
    // The recovery would be an entry after the one that cannot be executed.
    let order = ["recover", "--lost", "1,2", "--region", "1", "--yes"];
    let refused = eventually("the other stores are silent", || {
        let (is_done, text) = ctl(&stores, 0, &order);
        assert!(!is_done, "{text}");
        text.contains("quarantined").then_some(text)
    });
    assert!(refused.contains(&format!("quarantined at entry {index}")), "{refused}");
    assert!(refused.contains("ctl quarantine retry"), "it says what to do: {refused}");
    // A program that executes the entry.
    let store = &mut stores.all[0];
    store.kill();
    store.change(&[("--enable-debug-command", "no")]);
    store.spawn();
    eventually("the survivor tells of its peer", || {
        let rows = stores.all[0].admin().ask(&QuarantineQuery {}).ok()?;
        (!rows.is_empty()).then_some(())
    });
    let (is_done, text) = ctl(&stores, 0, &["quarantine", "retry", "1"]);
    assert!(is_done, "{text}");
    eventually("the survivor has gone on", || held(&stores, 0).is_empty().then_some(()));
    eventually("the regions are recovered", || ctl(&stores, 0, &order[..3]).0.then_some(()));
    let (is_done, text) = ctl(&stores, 0, &["recover", "--lost", "1,2", "--yes"]);
    assert!(is_done && text.contains("recovered region 0, 1"), "{text}");
    has(&stores, 0, "before");
    fill(&stores, 0, "after");
    has(&stores, 0, "after");
}
