//! Stores that join a running cluster, leave it, die and are replaced, while regions move, split
//! and merge. Every load keeps a ledger, and no acknowledged write may be lost.

mod stores;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use client::admin::{RegionRow, StatusQuery, StoreRequest, StoresQuery};
use resp::Reply;
use stores::ledger::{Load, Shape};
use stores::wire::Wire;
use stores::{alone, ctl, within, Plan, Store, Stores};

/// Maximum time to wait. Data is copied between many processes on few CPUs.
const PATIENCE: Duration = Duration::from_secs(120);

const SHAPE: Shape = Shape { writers: 6, incrementers: 4, readers: 4, counters: 3, value_bytes: 0 };

fn plan(stores: u16) -> Plan<'static> {
    Plan {
        stores,
        regions: 4,
        cluster_enabled: true,
        joining: true,
        flags: &[("--replace-after", "4")],
        ..Plan::default()
    }
}

fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, check).unwrap_or_else(|| panic!("not within {} s: {what}", PATIENCE.as_secs()))
}

/// Returns the stores of a region's peers that have the role.
fn with_role(region: &RegionRow, role: &str) -> BTreeSet<u64> {
    region.peers.iter().filter(|peer| peer.role == role).map(|peer| peer.store).collect()
}

/// Waits until every region has a leader, exactly three voters and no other peers, all on `on`.
fn await_whole(stores: &Stores, asked: usize, on: &[u64]) -> Vec<RegionRow> {
    eventually(&format!("every region has three voters among {on:?}"), || {
        let regions = stores.all[asked].regions()?;
        let whole = regions.iter().all(|region| {
            let voters = with_role(region, "voter");
            let others = region.peers.len() - voters.len();
            let meta = region.id == 0;
            // The meta region has up to five voters.
            let enough = if meta { voters.len() >= 3 } else { voters.len() == 3 };
            enough && others == 0 && voters.iter().all(|store| on.contains(store)) && region.leader.is_some()
        });
        whole.then_some(regions)
    })
}

/// Repeats the command until it is accepted. Another operator may be in flight for the region.
fn insist(stores: &Stores, asked: usize, words: &[&str]) {
    let mut last = String::new();
    let done = within(PATIENCE, || ctl(stores, asked, words).map_err(|error| last = error).ok());
    assert!(done.is_some(), "{words:?}: {last}");
}

fn listed(stores: &Stores, asked: usize) -> Option<BTreeSet<u64>> {
    let rows = stores.all[asked].admin().ask(&StoresQuery {}).ok()?;
    Some(rows.iter().map(|row| row.id).collect())
}

#[test]
fn a_cluster_grows_under_load_and_its_regions_move_split_and_merge() {
    let _alone = alone();
    let mut stores = Stores::prepare(&plan(4));
    stores.all[0].spawn();
    stores.all[0].await_ready();
    let load = Load::start(&stores.clients()[..1], "growing", SHAPE);
    load.await_more(200);
    for store in &mut stores.all[1..] {
        store.spawn();
        store.await_ready();
        load.await_more(100);
    }
    await_whole(&stores, 3, &[0, 1, 2, 3]);
    eventually("the fourth store holds peers", || {
        let rows = stores.all[0].admin().ask(&StoresQuery {}).ok()?;
        (rows.len() == 4 && rows[3].regions > 0).then_some(())
    });
    load.await_more(200);

    // A store without a peer of region 1 gets one in place of another store. Placement may still be
    // moving peers and may already have moved one there.
    let to = eventually("a peer begins to move", || {
        let regions = stores.all[0].regions()?;
        let voters = with_role(regions.iter().find(|region| region.id == 1)?, "voter");
        let (from, to) = (voters.first()?, (0..4).find(|store| !voters.contains(store))?);
        ctl(&stores, 2, &["move-peer", "1", &from.to_string(), &to.to_string()]).ok()?;
        Some(to)
    });
    eventually("the peer has moved", || {
        let regions = stores.all[1].regions()?;
        let voters = with_role(regions.iter().find(|region| region.id == 1)?, "voter");
        (voters.contains(&to)).then_some(())
    });
    load.await_more(200);

    insist(&stores, 1, &["split", "2"]);
    let halves = eventually("region 2 is split", || {
        let regions = stores.all[3].regions()?;
        let last = regions.iter().map(|region| region.id).max()?;
        (last > 4).then_some((regions, last))
    });
    let slots = |regions: &[RegionRow], id: u64| {
        let region = regions.iter().find(|region| region.id == id).expect("it is there");
        (region.first_slot.expect("a slot"), region.last_slot.expect("a slot"))
    };
    let (left, right) = (slots(&halves.0, 2), slots(&halves.0, halves.1));
    assert_eq!((left.0, left.1 + 1, right.1), (4096, right.0, 8191));
    load.await_more(400);
    load.finish().check("growing");
}

#[test]
fn a_store_that_is_drained_goes_and_is_told_so() {
    let _alone = alone();
    let mut stores = Stores::start(&plan(4));
    await_whole(&stores, 0, &[0, 1, 2, 3]);
    let clients = [stores.all[0].client, stores.all[2].client, stores.all[3].client];
    let load = Load::start(&clients, "draining", SHAPE);
    load.await_more(200);
    insist(&stores, 3, &["store", "drain", "1"]);
    eventually("the drained store is off the list", || {
        (listed(&stores, 0)? == BTreeSet::from([0, 2, 3])).then_some(())
    });
    await_whole(&stores, 2, &[0, 2, 3]);
    let status = stores.all[1].await_end();
    assert!(status.success(), "it did what it was asked to: {status}");
    let log = stores.all[1].log_text();
    let last = log.lines().find(|line| line.contains("was removed from the cluster")).expect("it says why");
    // A busy disk may look as though it hung for a moment.
    let mut errors = log.lines().filter(|line| line.contains("ERROR") && !line.contains("device_hang"));
    assert!(last.contains("INFO") && errors.next().is_none(), "{log}");
    load.await_more(200);
    // No further store may leave, because three replicas need three stores.
    let refused = ctl(&stores, 0, &["store", "drain", "2"]).expect_err("it would lose a replica");
    assert!(refused.contains("replicas"), "{refused}");
    load.finish().check("draining");
}

#[test]
fn a_store_that_dies_is_replaced_without_help() {
    let _alone = alone();
    let mut stores = Stores::start(&plan(4));
    await_whole(&stores, 0, &[0, 1, 2, 3]);
    let clients = [stores.all[0].client, stores.all[1].client, stores.all[3].client];
    let load = Load::start(&clients, "dying", SHAPE);
    load.await_more(200);
    stores.all[2].kill();
    await_whole(&stores, 0, &[0, 1, 3]);
    load.await_more(200);
    // The store returns without data, and gets peers again when it is needed.
    stores.all[2].restart();
    eventually("it is up again", || {
        let rows = stores.all[0].admin().ask(&StoresQuery {}).ok()?;
        (rows[2].state == "up").then_some(())
    });
    load.await_more(200);
    load.finish().check("dying");
}

#[test]
fn copies_are_spread_over_zones_once_the_label_is_set() {
    let _alone = alone();
    let mut stores = Stores::prepare(&plan(4));
    for (store, zone) in stores.all.iter_mut().zip(["zone=a", "zone=a", "zone=b", "zone=c"]) {
        store.change(&[("--label", zone)]);
        store.spawn();
        store.await_ready();
    }
    await_whole(&stores, 0, &[0, 1, 2, 3]);
    assert_eq!(ctl(&stores, 1, &["config", "domain-label"]).as_deref(), Ok("none\n"));
    insist(&stores, 2, &["config", "domain-label", "zone"]);
    assert_eq!(ctl(&stores, 1, &["config", "domain-label"]).as_deref(), Ok("zone\n"));
    let settings = ctl(&stores, 3, &["config"]).expect("they are told");
    assert!(settings.contains("a (0 1), b (2), c (3)"), "{settings}");
    eventually("every region has a copy in each zone", || {
        let regions = stores.all[0].regions()?;
        let spread = |region: &RegionRow| {
            let voters = with_role(region, "voter");
            voters.len() == 3 && voters.contains(&2) && voters.contains(&3)
        };
        regions.iter().all(spread).then_some(())
    });
}

#[test]
fn a_joined_store_keeps_its_number_and_an_empty_disk_gets_another() {
    let _alone = alone();
    let mut stores = Stores::start(&plan(3));
    await_whole(&stores, 0, &[0, 1, 2]);
    let id = |stores: &Stores, i: usize| {
        stores.all[i].admin().ask(&StatusQuery {}).ok().map(|status| status.store)
    };
    stores.all[2].kill();
    stores.all[2].restart();
    assert_eq!(id(&stores, 2), Some(2));

    // The same number with another key is refused, because the data is no longer the store's.
    stores.all[2].kill();
    let identity = stores.all[2].dir.join("IDENTITY");
    let kept = std::fs::read_to_string(&identity).expect("it has one");
    let forged: String = kept
        .lines()
        .map(|line| match line.split(" = ").next() {
            Some("secret") => format!("secret = \"{}\"\n", "deadbeef".repeat(8)),
            Some("initialised") => "initialised = false\n".to_owned(),
            _ => format!("{line}\n"),
        })
        .collect();
    for part in ["log", "rows", "snapshots"] {
        std::fs::remove_dir_all(stores.all[2].dir.join(part)).expect("it is there");
    }
    std::fs::write(&identity, forged).expect("it is written");
    stores.all[2].spawn();
    let status = stores.all[2].await_end();
    assert!(!status.success());
    assert!(stores.all[2].log_text().contains("another data directory"), "{}", stores.all[2].log_text());

    // With an empty directory it is a new store, and the old store's peers are rebuilt on it.
    std::fs::remove_dir_all(&stores.all[2].dir).expect("it is there");
    stores.all[2].spawn();
    stores.all[2].await_ready();
    assert_eq!(id(&stores, 2), Some(3));
    await_whole(&stores, 0, &[0, 1, 3]);
    insist(&stores, 1, &["store", "remove", "2"]);
    eventually("the lost store is off the list", || {
        (listed(&stores, 0)? == BTreeSet::from([0, 1, 3])).then_some(())
    });
}

#[test]
fn what_cannot_be_done_is_said() {
    let _alone = alone();
    let stores = Stores::start(&plan(1));
    for (words, part) in [
        (&["store", "drain", "0"][..], "replicas"),
        (&["store", "remove", "0"], "holds a peer of region"),
        (&["store", "drain", "9"], "no store 9"),
        (&["store", "pin", "0", "--data=-1"], "above 0"),
        (&["add-peer", "1", "0"], "has a voting peer"),
        (&["add-peer", "77", "0"], "region 77"),
        (&["remove-peer", "1", "0"], "without a voter"),
        (&["merge", "1", "3"], "neighbours"),
        (&["split", "0"], "region 0"),
        (&["explain", "77"], "no region 77"),
        (&["explain", "--store", "9"], "no store 9 in this cluster"),
        (&["config", "colour", "red"], "unknown setting 'colour'"),
        (&["config", "colour"], "unknown setting 'colour'"),
        (&["config", "replicas", "ten"], "'ten' is no value of 'replicas': 1 to 9"),
        (&["config", "domain-label", "zone=a"], "a label's name without a value"),
        (&["config", "domain-label", "zone"], "no store has the label 'zone'"),
    ] {
        // At first the regions' leaders have not reported them, and the error says that instead.
        let mut error = String::new();
        let said = within(PATIENCE, || {
            error = ctl(&stores, 0, words).expect_err("it is refused");
            error.contains(part).then_some(())
        });
        assert!(said.is_some(), "{words:?}: {error}");
    }
    let pin = StoreRequest::Pin { data_weight: Some(2.0), leader_weight: None };
    stores.all[0].admin().ask_of(0, &pin).expect("it is pinned");
}

#[test]
#[ignore = "a minute of merges: make test-large"]
fn a_store_that_was_away_for_more_merges_than_descriptors_name_gives_its_old_peers_up() {
    const REGIONS: u16 = 48;
    const MERGES: u64 = 40;
    let _alone = alone();
    let mut stores = Stores::start(&Plan {
        stores: 4,
        regions: REGIONS,
        cluster_enabled: true,
        flags: &[("--replace-after", "4")],
        ..Plan::default()
    });
    let held = |stores: &Stores, at: usize| -> Option<u64> {
        stores.all[at].info("replication", "regions")?.parse().ok()
    };
    // The record of merged regions came with version 2.
    eventually("the version of the cluster has risen", || {
        let version = stores.all[0].admin().gauge("cluster_version").ok()?;
        (version == u64::from(types::NEWEST_VERSION)).then_some(())
    });
    let before = held(&stores, 3).expect("it answers");
    assert!(before > 20, "{before}");
    stores.all[3].kill();
    eventually("no region has a peer on the store", || {
        let regions = stores.all[0].regions()?;
        let is_gone = |region: &RegionRow| !with_role(region, "voter").contains(&3);
        regions.iter().filter(|region| region.id != 0).all(is_gone).then_some(())
    });
    for source in 2..2 + MERGES {
        insist(&stores, 0, &["merge", &source.to_string(), "1"]);
        eventually("the region has merged away", || {
            let regions = stores.all[0].regions()?;
            regions.iter().all(|region| region.id != source).then_some(())
        });
    }
    stores.all[3].restart();
    eventually("the store has peers of regions that exist, and of no others", || {
        let regions = stores.all[0].regions()?;
        let listed = regions.iter().filter(|region| region.peers.iter().any(|peer| peer.store == 3));
        (held(&stores, 3)? == listed.count() as u64).then_some(())
    });
    let log = stores.all[3].log_text();
    assert!(log.contains("has merged away while this store was absent"), "{log}");
}

/// Returns the region of a snapshot of which a store has received a part.
fn arriving(store: &Path) -> Option<u64> {
    let received = std::fs::read_dir(store.join("snapshots/received")).ok()?;
    received.flatten().find_map(|entry| {
        let region = entry.file_name().to_string_lossy().split('-').next()?.parse().ok()?;
        let mut files = std::fs::read_dir(entry.path()).ok()?.flatten();
        files.any(|file| file.path().extension().is_some_and(|end| end == "part")).then_some(region)
    })
}

#[test]
fn copies_arrive_although_sources_and_receivers_are_killed_and_leaders_change() {
    let _alone = alone();
    let mut stores = Stores::prepare(&Plan { flags: &[("--replace-after", "60")], regions: 2, ..plan(4) });
    // A copy takes two seconds.
    let slow_down = |store: &Store| {
        Wire::open(store.client).ok(&["CONFIG", "SET", "snapshot-rate", "3mb"]);
    };
    for store in &mut stores.all[..3] {
        store.spawn();
        store.await_ready();
        slow_down(store);
    }
    let mut wire = Wire::open(stores.all[0].forward.expect("cluster mode has one"));
    for first in (0..12_000).step_by(500) {
        // The values do not compress.
        let value = |key: u64| (0..50).map(|part| types::mix(key * 50 + part).to_string()).collect();
        let set = |key: u64| vec!["SET".to_owned(), format!("key:{key}"), value(key)];
        let replies = wire.call_all(&(first..first + 500).map(set).collect::<Vec<_>>());
        assert!(!replies.iter().any(|reply| matches!(reply, Reply::Error(_))), "{replies:?}");
    }
    let load = Load::start(&stores.clients()[..1], "copying", SHAPE);
    let count = |stores: &Stores, store: usize, part: &str| {
        let files = std::fs::read_dir(stores.all[store].dir.join("snapshots").join(part));
        files.map(Iterator::count).expect("the directory is there")
    };
    // The first copies may be from before the version that sends without storing.
    await_whole(&stores, 0, &[0, 1, 2]);
    eventually("the cluster has its newest version", || {
        stores.all[0].log_text().contains("the version of the cluster has risen").then_some(())
    });
    let made = count(&stores, 0, "made");
    stores.all[3].spawn();
    stores.all[3].await_ready();
    insist(&stores, 0, &["store", "drain", "2"]);

    let joined = stores.all[3].dir.clone();
    eventually("a copy arrives", || arriving(&joined));
    stores.all[3].kill();
    stores.all[3].restart();
    let mut changed = 0;
    while let Some(region) = within(Duration::from_secs(10), || arriving(&joined)) {
        match stores.all[0].leader_of(region) {
            Some(1) => {
                stores.all[1].kill();
                stores.all[1].restart();
                slow_down(&stores.all[1]);
                changed += 1;
                break;
            }
            // The leader leaves off, and the next one begins a copy of its own.
            Some(_) if changed < 3 => {
                let _ = ctl(&stores, 0, &["move-leader", &region.to_string(), "1"]);
                within(Duration::from_secs(2), || (stores.all[0].leader_of(region) == Some(1)).then_some(()));
                changed += 1;
            }
            Some(_) => break,
            None => {}
        }
    }
    assert!(changed > 0, "no source was changed in the middle");
    await_whole(&stores, 0, &[0, 1, 3]);
    load.await_more(200);
    load.finish().check("copying");
    assert!(count(&stores, 0, "made") <= made, "a source stores nothing");
    eventually("no part is left", || (count(&stores, 3, "received") == 0).then_some(()));
}
