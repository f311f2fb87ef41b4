//! Comparison of replicas: a store whose rows were damaged while it was stopped is found, and no
//! other store is reported.

mod stores;

use std::path::Path;

use bytes::Bytes;
use client::admin::{CheckRequest, CheckRow, QuarantineQuery, QuarantineRow, RegionRow};
use storage::{meta, KeyRef, WriteSet};
use stores::wire::Wire;
use stores::{alone, eventually, steelyard, Plan, Stores};
use types::{slot_of_key, RegionId};

const KEYS: usize = 200;

fn three(flags: &'static [(&'static str, &'static str)]) -> Stores {
    Stores::start(&Plan { stores: 3, regions: 4, cluster_enabled: true, flags, ..Plan::default() })
}

fn key(number: usize) -> String {
    format!("key:{number}")
}

fn fill(stores: &Stores) {
    let mut wire = Wire::open(stores.all[0].forward.expect("a forward port"));
    for number in 0..KEYS {
        wire.ok(&["SET", &key(number), "a value"]);
    }
}

/// The region that has a key's slot.
fn region_of(stores: &Stores, key: &str) -> RegionId {
    let slot = slot_of_key(key.as_bytes());
    let rows = stores.any().regions().expect("regions are told");
    let has = |row: &&RegionRow| {
        let bounds = (row.first_slot, row.last_slot);
        matches!(bounds, (Some(first), Some(last)) if (first..=last).contains(&slot))
    };
    rows.iter().find(has).expect("every slot has a region").id
}

/// Writes a string over a key's row in the files of a store that does not run.
fn damage(dir: &Path, key: &str, value: Option<&str>) {
    let options = rocks::Options::profile("default").expect("a known profile");
    let rows = rocks::Keyspace::open(&dir.join("rows"), &options).expect("the store does not run");
    let row = KeyRef::new(0, key.as_bytes()).meta_row();
    assert!(rows.get(&row).expect("it can be read").is_some(), "the row was flushed when the store stopped");
    let value: Option<Bytes> = value.map(|value| meta::encode_string(None, value.as_bytes()));
    rows.write(WriteSet { ranges_deleted: Vec::new(), rows: vec![(row, value)] });
    rows.flush().expect("it can be written");
}

/// Runs `ctl check`. Returns whether it succeeds, its table and notes, and its error.
fn ctl_check(stores: &Stores, asked: usize, words: &[&str]) -> (bool, String, String) {
    let admin = stores.all[asked].admin().address().to_string();
    let output =
        steelyard().args(["ctl", "--admin", &admin, "check"]).args(words).output().expect("ctl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn check(stores: &Stores, asked: usize, region: RegionId) -> CheckRow {
    stores.all[asked].admin().ask_of(region, &CheckRequest {}).expect("the region is checked")
}

#[test]
fn equal_replicas_are_equal_in_every_region_and_after_restarts() {
    let _alone = alone();
    let mut stores = three(&[]);
    fill(&stores);
    let (is_well, table, error) = ctl_check(&stores, 1, &[]);
    assert!(is_well, "{table}{error}");
    // The meta region and four others, on three stores each.
    assert_eq!(table.matches("equal").count(), 15, "{table}");
    assert_eq!(stores.all[2].terminate().code(), Some(0));
    fill(&stores);
    let (is_well, table, error) = ctl_check(&stores, 0, &["--region", "1"]);
    assert!(!is_well && table.contains("incomplete") && table.contains("none"), "{table}{error}");
    stores.all[2].restart();
    eventually("all replicas are equal again", || ctl_check(&stores, 0, &[]).0.then_some(()));
}

#[test]
fn a_damaged_replica_is_found_and_named_and_no_other_is_accused() {
    let _alone = alone();
    let mut stores = three(&[]);
    fill(&stores);
    let (changed, lost) = (key(7), key(8));
    let regions = [region_of(&stores, &changed), region_of(&stores, &lost)];
    assert_eq!(stores.all[2].terminate().code(), Some(0));
    damage(&stores.all[2].dir, &changed, Some("a valuf"));
    damage(&stores.all[2].dir, &lost, None);
    stores.all[2].restart();
    let region = regions[0].to_string();
    let (is_well, table, error) = ctl_check(&stores, 1, &["--region", &region]);
    assert!(!is_well && error.contains(&format!("region {region}")), "{table}{error}");
    assert_eq!(table.matches("differs from the majority").count(), 1, "{table}");
    for region in (0..=4).filter(|region| *region != regions[0]) {
        let found = check(&stores, 0, region);
        match regions.contains(&region) {
            true => {
                assert_eq!((found.verdict.as_str(), found.differing), ("minority", vec![2]));
            }
            false => assert_eq!(found.verdict, "equal", "{found:?}"),
        }
    }
    let log = stores.all[2].log_text();
    assert!(log.contains("are not those of the majority"), "{log}");
    let different = |store: usize| stores.all[store].admin().gauge("checks_different_total");
    assert!(different(2).expect("it is counted") > 0);
    // The peers are quarantined, also after a restart. They lead and serve nothing until new peers
    // replace them.
    let held = |stores: &Stores, asked: usize| -> Vec<u64> {
        let rows = stores.all[asked].admin().ask(&QuarantineQuery {}).expect("it is told");
        let is_meant = |row: &&QuarantineRow| row.store == 2 && row.cause == "rows";
        rows.iter().filter(is_meant).map(|row| row.region).collect()
    };
    let mut expected = regions.to_vec();
    expected.sort_unstable();
    expected.dedup();
    eventually("the peers are quarantined", || (held(&stores, 0) == expected).then_some(()));
    stores.all[2].kill();
    stores.all[2].restart();
    eventually("they are still quarantined", || (held(&stores, 0) == expected).then_some(()));
    let mut weak = Wire::open(stores.all[2].client);
    weak.ok(&["READONLY"]);
    assert!(weak.error(&["GET", &changed]).starts_with("MOVED"), "a damaged row is not served");
    for region in &expected {
        assert_ne!(stores.all[0].leader_of(*region), Some(2));
        let admin = stores.all[0].admin().address().to_string();
        let words = ["ctl", "--admin", &admin, "quarantine", "refill", &region.to_string(), "2"];
        // Placement may be changing the region at this moment.
        eventually("the refill is accepted", || {
            steelyard().args(words).output().expect("ctl runs").status.success().then_some(())
        });
    }
    eventually("all replicas are equal again", || {
        (held(&stores, 0).is_empty() && ctl_check(&stores, 0, &[]).0).then_some(())
    });
    let mut wire = Wire::open(stores.all[2].forward.expect("a forward port"));
    assert_eq!(wire.text(&["GET", &changed]).as_deref(), Some("a value"));
}

#[test]
fn checks_come_by_themselves() {
    let _alone = alone();
    let mut stores = three(&[("--consistency-check-interval", "2")]);
    fill(&stores);
    let changed = key(7);
    assert_eq!(stores.all[1].terminate().code(), Some(0));
    damage(&stores.all[1].dir, &changed, Some("other"));
    stores.all[1].restart();
    eventually("the damage is found without being asked for", || {
        stores.all[1].log_text().contains("are not those of the majority").then_some(())
    });
    let region = region_of(&stores, &changed);
    assert!(stores.all[1].log_text().contains(&format!("region {region} ")));
}
