//! An unreadable row file affects the regions whose rows were in it, not the whole store.

mod stores;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use client::admin::{CheckRequest, QuarantineQuery, RegionRow};
use resp::Reply;
use stores::wire::Wire;
use stores::{alone, ctl, eventually, say, Plan, Store, Stores};

const REGIONS: u16 = 8;
const KEYS: usize = 3000;
/// Flags with which rows reach flash early, and one file holds rows of many regions.
const FLAGS: &[(&str, &str)] = &[("--rocksdb", "write_buffer_size=2mb")];

fn key(number: usize) -> String {
    format!("key:{number}")
}

/// Returns a value that does not compress.
fn value(number: usize) -> String {
    let word = |at: usize| format!("{:016x}", types::mix((number << 16 | at) as u64));
    (0..64).map(word).collect()
}

fn plan(stores: u16) -> Plan<'static> {
    Plan { stores, regions: REGIONS, cluster_enabled: true, flags: FLAGS, ..Plan::default() }
}

fn fill(stores: &Stores) {
    let mut wire = Wire::open(stores.any().forward.expect("a forward port"));
    let set = |number| vec!["SET".to_owned(), key(number), value(number)];
    let requests: Vec<Vec<String>> = (0..KEYS).map(set).collect();
    for part in requests.chunks(100) {
        assert!(wire.call_all(part).iter().all(|reply| !reply.is_error()), "a write failed");
    }
}

/// Returns the peer's number in each region on the store, as store `asked` says.
fn numbers(stores: &Stores, asked: usize, on: u64) -> Option<BTreeMap<u64, u64>> {
    let rows = stores.all[asked].regions()?;
    let number = |row: &RegionRow| {
        let peer = row.peers.iter().find(|peer| peer.store == on && peer.role == "voter")?;
        Some((row.id, peer.id))
    };
    Some(rows.iter().filter_map(number).collect())
}

fn check(store: &Store, region: u64) -> Option<String> {
    Some(store.admin().ask_of(region, &CheckRequest {}).ok()?.verdict)
}

#[test]
fn a_damaged_row_file_costs_a_store_the_regions_that_it_touches() {
    let _alone = alone();
    let mut stores = Stores::start(&plan(3));
    fill(&stores);
    let victim = 1;
    eventually("rows are flushed", || {
        let tables = fs::read_dir(stores.all[victim].dir.join("rows")).ok()?;
        let large = |entry: fs::DirEntry| entry.metadata().is_ok_and(|file| file.len() > 500_000);
        tables.filter_map(Result::ok).any(large).then_some(())
    });
    let before = numbers(&stores, 0, victim as u64).expect("the regions are told");
    assert_eq!(before.len(), usize::from(REGIONS) + 1, "with the meta region");
    stores.all[victim].kill();
    let file = stores.all[victim].damage_rows(0).expect("rows were flushed");
    stores.all[victim].restart();
    let pid = stores.all[victim].pid();
    // A check reads all rows of a region.
    let mut wire = Wire::open(stores.all[0].forward.expect("a forward port"));
    let log = |stores: &Stores| stores.all[victim].log_text();
    let mut written = 0;
    eventually("the damage is met and cut out", || {
        (1..=u64::from(REGIONS)).for_each(|region| drop(check(&stores.all[0], region)));
        wire.ok(&["SET", &format!("meanwhile:{written}"), "x"]);
        written += 1;
        log(&stores).contains("the damaged files are cut out").then_some(())
    });
    // The process continues under its number, and the affected peers are replaced automatically.
    let after = eventually("the touched peers are replaced, and all replicas are equal", || {
        let after = numbers(&stores, 0, victim as u64).filter(|after| after.len() == before.len())?;
        let all =
            (1..=u64::from(REGIONS)).all(|region| check(&stores.all[0], region).as_deref() == Some("equal"));
        let rows = stores.all[0].admin().ask(&QuarantineQuery {}).ok()?;
        (all && rows.is_empty() && after != before).then_some(after)
    });
    assert!(stores.all[victim].ended().is_none() && stores.all[victim].pid() == pid);
    let replaced: Vec<u64> =
        before.keys().filter(|region| after[region] != before[region]).copied().collect();
    say(&format!("a damaged block cost regions {replaced:?} of {REGIONS}"));
    assert!(!replaced.is_empty() && replaced.len() < usize::from(REGIONS), "{replaced:?}");
    assert!(replaced.iter().all(|region| after[region] > before[region]), "{before:?} {after:?}");
    assert!(!file.exists(), "the damaged file is gone");
    assert!(log(&stores).contains("starting again"));
    // No data is lost, and this store's copy is complete.
    for number in 0..KEYS {
        assert_eq!(wire.text(&["GET", &key(number)]).as_deref(), Some(&*value(number)), "{number}");
    }
    for number in 0..written {
        assert_eq!(wire.text(&["GET", &format!("meanwhile:{number}")]).as_deref(), Some("x"), "{number}");
    }
    let mut own = Wire::open(stores.all[victim].client);
    own.ok(&["READONLY"]);
    for number in 0..KEYS {
        assert_eq!(own.text(&["GET", &key(number)]).as_deref(), Some(&*value(number)), "{number}");
    }
}

#[test]
fn a_store_without_others_says_what_a_damaged_row_file_took_and_serves_the_rest() {
    let _alone = alone();
    let mut stores = Stores::start(&plan(1));
    fill(&stores);
    assert!(stores.all[0].terminate().success());
    stores.all[0].damage_rows(0).expect("rows were flushed");
    stores.all[0].restart();
    let client = stores.all[0].client;
    let is_cut_out = |stores: &Stores| stores.all[0].log_text().contains("the damaged files are cut out");
    eventually("the damage is met and cut out", || {
        for number in 0..KEYS {
            if is_cut_out(&stores) {
                return Some(());
            }
            Wire::ask(client, &[&["GET", &key(number)]])?;
        }
        None
    });
    stores.all[0].await_ready();
    let rows = stores.all[0].admin().ask(&QuarantineQuery {}).expect("it is told");
    let held: BTreeSet<u64> = rows.iter().map(|row| row.region).collect();
    assert!(!held.is_empty() && held.len() < usize::from(REGIONS), "{rows:?}");
    assert!(rows.iter().all(|row| row.cause == "damage" && row.read_only), "{rows:?}");
    assert!(rows[0].what.starts_with("the keys of slots "), "{rows:?}");
    let list = ctl(&stores, 0, &["quarantine", "list"]).expect("they are listed");
    assert!(list.contains("the keys of slots"), "{list}");
    // The other data is served: all of the other regions, and the remaining rows of these to
    // READONLY connections.
    let (mut strong, mut weak) = (Wire::open(client), Wire::open(client));
    weak.ok(&["READONLY"]);
    let (mut lost, mut refused) = (0, 0);
    for number in 0..KEYS {
        match strong.call(&["GET", &key(number)]) {
            Reply::Error(_) => refused += 1,
            reply => assert_eq!(client::connection::text(&reply).as_deref(), Some(value(number).as_bytes())),
        }
        match weak.text(&["GET", &key(number)]) {
            Some(text) => assert_eq!(text, value(number)),
            None => lost += 1,
        }
    }
    say(&format!(
        "a damaged block cost {lost} of {KEYS} keys, of regions {held:?}; {refused} reads were refused"
    ));
    assert!(lost > 0 && lost < 200 && refused >= lost, "{lost} {refused}");
    let refusal = ctl(&stores, 0, &["quarantine", "retry", &held.iter().next().expect("one").to_string()]);
    assert!(refusal.is_err(), "{refusal:?}");
    for region in &held {
        let text =
            ctl(&stores, 0, &["accept-loss", "--region", &region.to_string()]).expect("it is accepted");
        assert!(text.contains("takes part again"), "{text}");
    }
    eventually("the peers have gone on", || {
        let rows = stores.all[0].admin().ask(&QuarantineQuery {}).ok()?;
        rows.is_empty().then_some(())
    });
    for round in 0..2 {
        let mut wire = Wire::open(client);
        eventually("all regions are served", || {
            (0..KEYS).all(|number| !wire.call(&["EXISTS", &key(number)]).is_error()).then_some(())
        });
        let found = (0..KEYS).filter(|number| wire.int(&["EXISTS", &key(*number)]) == 1).count();
        assert_eq!(found, KEYS - lost);
        assert_eq!(wire.int(&["DBSIZE"]), (KEYS - lost) as i64, "the keys that are left are counted");
        if round == 0 {
            stores.all[0].kill();
            stores.all[0].restart();
        }
    }
    let mut wire = Wire::open(client);
    (0..KEYS).for_each(|number| wire.ok(&["SET", &key(number), "new"]));
    assert_eq!(wire.int(&["DBSIZE"]), KEYS as i64);
}
