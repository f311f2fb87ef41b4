//! The loss of a majority of stores with their directories. `ctl recover` refuses while the
//! majority lives, shows its plan, and makes the regions continue from a survivor's log. Lost
//! stores that return do no harm.

mod stores;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::admin::RegionRow;
use stores::wire::Wire;
use stores::{alone, ctl, within, Plan, Stores};

/// Maximum time to wait. Data is copied between many processes on few CPUs.
const PATIENCE: Duration = Duration::from_secs(120);

const KEYS: usize = 300;

fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, check).unwrap_or_else(|| panic!("not within {} s: {what}", PATIENCE.as_secs()))
}

fn refused(stores: &Stores, words: &[&str], because: &str) {
    let error = ctl(stores, 0, words).expect_err("it is refused");
    assert!(error.contains(because), "{words:?}: {error}");
}

fn fill(stores: &Stores, asked: usize, round: &str) {
    let mut wire = Wire::open(stores.all[asked].forward.expect("a forward port"));
    for number in 0..KEYS {
        wire.ok(&["SET", &format!("key:{round}:{number}"), &format!("{round}-{number}")]);
    }
}

/// Asserts that every acknowledged key has its value.
fn assert_filled(stores: &Stores, asked: usize, rounds: &[&str]) {
    let mut wire = Wire::open(stores.all[asked].forward.expect("a forward port"));
    for round in rounds {
        for number in 0..KEYS {
            let found = wire.text(&["GET", &format!("key:{round}:{number}")]);
            assert_eq!(found, Some(format!("{round}-{number}")), "key:{round}:{number}");
        }
    }
}

/// Returns the text of the store's `/metrics`.
fn metrics(stores: &Stores, asked: usize) -> String {
    let mut socket = TcpStream::connect(stores.all[asked].admin().address()).expect("the admin port");
    socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it is asked");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("it answers");
    text
}

fn voters(region: &RegionRow) -> BTreeSet<u64> {
    region.peers.iter().filter(|peer| peer.role == "voter").map(|peer| peer.store).collect()
}

/// Waits until these stores, and no others, have a voter of every region with its complete log.
fn await_whole(stores: &Stores, asked: usize, on: &[u64]) {
    let on: BTreeSet<u64> = on.iter().copied().collect();
    eventually(&format!("every region is whole on {on:?}"), || {
        let regions = stores.all[asked].regions()?;
        let is_whole = |region: &RegionRow| {
            voters(region) == on
                && region.peers.len() == on.len()
                && region.leader.is_some()
                && region.peers.iter().all(|peer| peer.lag == Some(0))
        };
        (regions.len() > 1 && regions.iter().all(is_whole)).then_some(())
    });
}

/// Kills stores and deletes their directories. Returns copies of these.
fn lose(stores: &mut Stores, lost: &[usize]) -> Vec<(usize, PathBuf)> {
    lost.iter().for_each(|&store| stores.all[store].kill());
    let copy = |&store: &usize| {
        let dir = &stores.all[store].dir;
        let copy = dir.with_extension("copy");
        copy_dir(dir, &copy);
        std::fs::remove_dir_all(dir).expect("the directory is deleted");
        (store, copy)
    };
    lost.iter().map(copy).collect()
}

fn copy_dir(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{from:?} is copied");
}

/// Repeats the request until no survivor has a recent heartbeat from the lost stores.
fn await_plan(stores: &Stores, words: &[&str]) -> String {
    let mut last = String::new();
    let plan = within(PATIENCE, || ctl(stores, 0, words).map_err(|error| last = error).ok());
    plan.unwrap_or_else(|| panic!("{words:?}: {last}"))
}

/// Starts the lost stores from the copies of their directories. They end on their own, and serve no
/// client.
fn come_back(stores: &mut Stores, copies: &[(usize, PathBuf)]) {
    for (store, copy) in copies {
        copy_dir(copy, &stores.all[*store].dir);
    }
    copies.iter().for_each(|(store, _)| stores.all[*store].spawn());
    for (store, _) in copies {
        let served = within(PATIENCE, || {
            let asked: &[&[&str]] = &[&["SET", "key:a:0", "from the dead"]];
            let replies = Wire::ask(stores.all[*store].client, asked);
            let ok = resp::Reply::Simple("OK".into());
            if replies.is_some_and(|replies| replies.contains(&ok)) {
                return Some(true);
            }
            stores.all[*store].ended().map(|_| false)
        });
        assert_eq!(served, Some(false), "store {store} ends and serves no client");
        let log = stores.all[*store].log_text();
        assert!(log.contains("was declared lost for good"), "{log}");
    }
}

#[test]
fn a_lost_majority_of_three_is_recovered_the_meta_region_first() {
    let _alone = alone();
    let mut stores = Stores::prepare(&Plan {
        stores: 5,
        regions: 3,
        cluster_enabled: true,
        joining: true,
        flags: &[("--replace-after", "600")],
        ..Plan::default()
    });
    for store in &mut stores.all[..3] {
        store.spawn();
        store.await_ready();
    }
    await_whole(&stores, 0, &[0, 1, 2]);
    fill(&stores, 0, "a");
    await_whole(&stores, 0, &[0, 1, 2]);
    assert!(ctl(&stores, 0, &["recover", "--list"]).unwrap().contains("no region was ever recovered"));

    // A live majority is left alone, although the operator declares its stores lost.
    refused(&stores, &["recover", "--lost", "1,2", "--yes"], "store 1 answers: it is not lost");
    let mut copies = lose(&mut stores, &[2]);
    refused(&stores, &["recover", "--lost", "1,2", "--yes"], "store 1 answers: it is not lost");
    let plan = await_plan(&stores, &["recover", "--lost", "2"]);
    assert!(plan.contains("no region has lost its majority"), "{plan}");
    refused(&stores, &["recover", "--lost", "2", "--yes"], "no region has lost its majority");
    refused(&stores, &["recover", "--lost", "2", "--region", "1", "--yes"], "it has not lost its majority");

    copies.extend(lose(&mut stores, &[1]));
    let plan = await_plan(&stores, &["recover", "--lost", "1,2"]);
    assert!(plan.contains("region 0 continues from the log of store 0"), "{plan}");
    assert!(plan.contains("region 3 continues from the log of store 0"), "{plan}");
    assert!(plan.contains("known to be committed") && plan.contains("nothing is changed"), "{plan}");
    // A store that does not answer does not count as lost.
    refused(&stores, &["recover", "--lost", "1", "--region", "1"], "it has not lost its majority");
    refused(&stores, &["policy"], "meta region has no leader");

    // The meta region cannot be asked, and is recovered first.
    let done = ctl(&stores, 0, &["recover", "--lost", "1,2", "--region", "0", "--yes"]).unwrap();
    assert!(done.contains("recovered region 0\n") && done.contains("still on the list of stores"), "{done}");
    assert!(ctl(&stores, 0, &["policy"]).is_ok());
    assert_eq!(stores.all[0].leader_of(1), None);

    let done = ctl(&stores, 0, &["recover", "--lost", "1,2", "--yes"]).unwrap();
    assert!(done.contains("recovered region 1, 2, 3\n"), "{done}");
    assert!(done.contains("store 1 is no member any more\nstore 2 is no member any more\n"), "{done}");
    assert_filled(&stores, 0, &["a"]);
    fill(&stores, 0, "b");
    let list = ctl(&stores, 0, &["recover", "--list"]).unwrap();
    assert_eq!(list.lines().filter(|line| line.contains(" 1 2 ")).count(), 4, "{list}");
    let metrics = metrics(&stores, 0);
    assert!(metrics.contains("\nsteelyard_recovered_regions 4"), "{metrics}");
    assert!(stores.all[0].log_text().contains("the region was recovered by order of an operator"));

    // The recovery must be durable.
    stores.all[0].kill();
    stores.all[0].restart();
    assert_filled(&stores, 0, &["a", "b"]);
    come_back(&mut stores, &copies);
    assert_filled(&stores, 0, &["a", "b"]);

    for store in &mut stores.all[3..] {
        store.spawn();
        store.await_ready();
    }
    let (first, second) = (3, 4);
    await_whole(&stores, 0, &[0, first, second]);
    assert_filled(&stores, 4, &["a", "b"]);
    ctl(&stores, 0, &["check"]).expect("all replicas are equal");
    assert!(ctl(&stores, 4, &["recover", "--list"]).unwrap().contains(" 1 2 "), "new peers have the record");
}

#[test]
fn a_lost_majority_of_five_is_recovered_and_the_other_survivor_follows() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan {
        stores: 5,
        regions: 3,
        cluster_enabled: true,
        flags: &[("--replicas", "5"), ("--replace-after", "600")],
        ..Plan::default()
    });
    await_whole(&stores, 0, &[0, 1, 2, 3, 4]);
    fill(&stores, 0, "a");
    await_whole(&stores, 0, &[0, 1, 2, 3, 4]);
    let copies = lose(&mut stores, &[2, 3, 4]);
    // A store that does not answer does not count as lost.
    stores.all[1].signal("-STOP");
    let error = eventually("store 1 is taken for silent", || {
        ctl(&stores, 0, &["recover", "--lost", "2,3,4", "--yes"])
            .err()
            .filter(|error| error.contains("store 1"))
    });
    assert!(error.contains("store 1 has a peer of it, and neither answers nor is named as lost"), "{error}");
    stores.all[1].signal("-CONT");
    let done = eventually("the order is carried out", || {
        ctl(&stores, 0, &["recover", "--lost", "2,3,4", "--yes"]).ok()
    });
    assert!(done.contains("recovered region 0, 1, 2, 3\n"), "{done}");
    // Placement gives the learner its vote back.
    await_whole(&stores, 0, &[0, 1]);
    assert_filled(&stores, 1, &["a"]);
    fill(&stores, 1, "b");
    come_back(&mut stores, &copies);
    assert_filled(&stores, 0, &["a", "b"]);
    ctl(&stores, 0, &["check"]).expect("all replicas are equal");
}
