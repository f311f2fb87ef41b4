//! Bits flip in the contents of Raft logs at rest. The damage affects the regions that it is in,
//! not the whole store.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::stores::ledger::{Load, Shape};
use crate::stores::wire::Wire;
use crate::stores::{ctl, eventually, say, within, Store, Stores};
use crate::tails::segments;
use crate::{pause, three, Plan, REGION};

/// Time in which a region's peer is removed, and another one is added, filled and promoted.
pub const REPLACED: Duration = Duration::from_secs(90);

/// The content of a section of the log.
#[derive(Clone, Debug)]
pub struct Section {
    path: PathBuf,
    at: u64,
    length: u64,
    region: u64,
    kind: u8,
    /// The sequence of its block.
    sequence: u64,
}

const ENTRIES: u8 = 1;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the sections of a store's log, oldest first, as docs/FORMAT-LOG.md draws them.
fn sections(store: &Store) -> Vec<Section> {
    let mut found = Vec::new();
    for (path, bytes) in segments(store) {
        let mut at = 0;
        while at + 64 <= bytes.len() {
            let header = &bytes[at..at + 64];
            let length = number(&header[4..8]) as usize;
            if header[..4] != *b"SYL1" || at + 64 + length > bytes.len() {
                at += 512;
                continue;
            }
            let sequence = number(&header[16..24]);
            let (mut next, end) = (at + 64, at + 64 + length);
            while next < end {
                let head = &bytes[next..next + 24];
                let (kind, length, region) = (head[0], number(&head[4..8]), number(&head[8..16]));
                found.push(Section {
                    path: path.clone(),
                    at: next as u64 + 24,
                    length,
                    region,
                    kind,
                    sequence,
                });
                next += 24 + length as usize;
            }
            at = end.next_multiple_of(512);
        }
    }
    found.sort_by_key(|section| section.sequence);
    found
}

/// Flips a bit in the middle of a section.
pub fn flip(section: &Section) {
    let file = OpenOptions::new().read(true).write(true).open(&section.path).expect("a segment");
    let at = section.at + section.length / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("within the segment");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("written");
}

/// Returns the region's entries in a store's log.
pub fn entries(store: &Store, region: u64) -> Vec<Section> {
    let is_of = |section: &Section| section.region == region && section.kind == ENTRIES;
    sections(store).into_iter().filter(is_of).collect()
}

/// Returns the number of the region's peer on a store, if it is a voter, as `asked` knows it.
pub fn voter_on(asked: &Store, store: usize, region: u64) -> Option<u64> {
    let rows = asked.regions()?;
    let row = rows.iter().find(|row| row.id == region)?;
    let peer = row.peers.iter().find(|peer| peer.store == store as u64 && peer.role == "voter")?;
    Some(peer.id)
}

/// Waits until every store, including the peer's own, knows the store's peer as a voter with a
/// number above `before`. Returns the time that it took.
pub fn await_replaced(stores: &Stores, store: usize, region: u64, before: u64) -> Duration {
    let begun = std::time::Instant::now();
    let is_replaced = || {
        let known = stores.all.iter().map(|asked| voter_on(asked, store, region));
        known.map(|number| number.filter(|number| *number > before)).collect::<Option<Vec<u64>>>()
    };
    assert!(within(REPLACED, is_replaced).is_some(), "store {store} keeps peer {before} of region {region}");
    begun.elapsed()
}

/// Returns a field of INFO.
pub fn info(store: &Store, name: &str) -> String {
    store.info("persistence", name).unwrap_or_else(|| panic!("INFO has no {name}"))
}

/// Waits until all replicas are equal.
fn await_equal(stores: &Stores) {
    eventually("all replicas are equal", || ctl(stores, 0, &["check"]).ok());
}

/// Waits until the store has no unclean peer.
fn await_clean(store: &Store) {
    eventually("no peer is unclean", || (info(store, "unclean_peers") == "0").then_some(()));
}

#[test]
fn damage_in_a_minoritys_log_costs_the_regions_that_it_touches_and_no_acknowledged_write() {
    let _place = crate::place();
    let plan = Plan { stores: 3, regions: 4, cluster_enabled: true, in_ram: true, ..Plan::default() };
    let mut stores = Stores::start(&plan);
    let write_all = |stores: &Stores, name: &str| {
        let mut wire = Wire::open(stores.all[0].forward.expect("a forward port"));
        (0..64).for_each(|key| wire.ok(&["SET", &format!("{name}:{key}"), &format!("{name:x<500}")]));
    };
    write_all(&stores, "before");
    let load = Load::start(&stores.clients(), "{busy}:damage", Shape::MIXED);
    load.await_more(2000);
    write_all(&stores, "amid");
    load.await_more(1000);
    let victim = stores.leader(1);
    let numbers =
        |stores: &Stores| (1..=4).map(|of| voter_on(&stores.all[0], victim, of)).collect::<Vec<_>>();
    let before: Vec<u64> = numbers(&stores).into_iter().map(|number| number.expect("a voter")).collect();
    stores.all[victim].kill();
    // The damage is in the middle of the entries of regions 1 and 3, at several places.
    for region in [1, 3] {
        let all = entries(&stores.all[victim], region);
        assert!(all.len() >= 8, "region {region} has {} sections", all.len());
        (1..4).for_each(|part| flip(&all[all.len() * part / 4]));
    }
    stores.all[victim].restart();
    let took = [1, 3].map(|of| await_replaced(&stores, victim, of, before[of as usize - 1]).as_millis());
    await_clean(&stores.all[victim]);
    load.await_more(1000);
    let log = stores.all[victim].log_text();
    let said = log.matches("what this peer acknowledged from this index on may be missing").count();
    assert_eq!(said, 2, "{log}");
    say(&format!("replaced after {took:?} ms"));
    let after = numbers(&stores);
    assert_eq!((after[1], after[3]), (Some(before[1]), Some(before[3])), "the others are untouched");
    load.finish().check("{busy}:damage");
    let mut wire = Wire::open(stores.all[victim].forward.expect("a forward port"));
    for name in ["before", "amid"] {
        for key in 0..64 {
            let value = wire.text(&["GET", &format!("{name}:{key}")]);
            assert_eq!(value.as_deref(), Some(&*format!("{name:x<500}")));
        }
    }
    await_equal(&stores);
    // The next start finds no damage.
    stores.all[victim].kill();
    stores.all[victim].restart();
    assert_eq!(info(&stores.all[victim], "unclean_peers"), "0");
}

#[test]
fn damage_to_the_meta_regions_entries_costs_its_peer_and_another_takes_its_place() {
    let _place = crate::place();
    let mut stores = Stores::start(&three());
    let mut wire = Wire::open(stores.all[0].client);
    (0..50).for_each(|key| wire.ok(&["SET", &format!("key:{key}"), "written"]));
    let victim = stores.leader(0);
    let before = voter_on(&stores.all[0], victim, 0).expect("a voter");
    stores.all[victim].kill();
    let all = entries(&stores.all[victim], 0);
    flip(&all[all.len() / 2]);
    stores.all[victim].restart();
    let took = await_replaced(&stores, victim, 0, before);
    say(&format!("replaced after {} ms", took.as_millis()));
    await_clean(&stores.all[victim]);
    let number = voter_on(&stores.all[0], victim, REGION);
    assert_eq!(number, voter_on(&stores.all[victim], victim, REGION));
    await_equal(&stores);
}

#[test]
fn a_restart_before_the_peer_is_replaced_forgets_nothing() {
    let _place = crate::place();
    let mut stores = Stores::start(&three());
    let mut wire = Wire::open(stores.all[stores.leader(REGION)].client);
    (0..200).for_each(|key| wire.ok(&["SET", &format!("key:{key}"), "written"]));
    let leader = stores.leader(REGION);
    let victim = (leader + 1) % 3;
    stores.kill_all();
    let all = entries(&stores.all[victim], REGION);
    flip(&all[all.len() / 2]);
    // Without the third store there is no majority, so nothing can be replaced.
    for _ in 0..2 {
        stores.all[victim].spawn();
        stores.all[leader].spawn();
        eventually("the damage is known", || {
            stores.all[victim].log_text().contains("the log was found damaged").then_some(())
        });
        pause(4000);
        assert_eq!(info(&stores.all[victim], "damaged_peers"), "1");
        let replies = Wire::ask(stores.all[leader].client, &[&["SET", "alone", "x"]]).expect("an answer");
        assert!(matches!(&replies[0], resp::Reply::Error(_)), "a damaged peer helped to elect: {replies:?}");
        stores.all[victim].kill();
        stores.all[leader].kill();
    }
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    await_clean(&stores.all[victim]);
    let mut wire = Wire::open(stores.all[victim].client);
    (0..200).for_each(|key| {
        assert_eq!(wire.text(&["GET", &format!("key:{key}")]).as_deref(), Some("written"));
    });
    await_equal(&stores);
}

#[test]
fn a_leader_that_reads_a_damaged_entry_for_a_lagging_follower_goes_on() {
    let _place = crate::place();
    // The cache of entries is far smaller than the entries that the follower lacks.
    let flags = &[("--maxmemory", "64mb"), ("--raft-log-size", "256mb")];
    let mut stores = Stores::start(&Plan { flags, ..three() });
    let leader = stores.leader(REGION);
    let lagging = (leader + 1) % 3;
    let mut wire = Wire::open(stores.all[leader].client);
    (0..50).for_each(|key| wire.ok(&["SET", &format!("key:{key}"), "written"]));
    stores.all[lagging].kill();
    let value = "y".repeat(32 << 10);
    (0..600).for_each(|key| wire.ok(&["SET", &format!("late:{key}"), &value]));
    let all = entries(&stores.all[leader], REGION);
    let large: Vec<&Section> = all.iter().filter(|section| section.length > 30 << 10).collect();
    assert!(large.len() > 60, "{} sections", large.len());
    // The damaged entry is not one of the first, so that the follower gets some entries before it.
    flip(large[large.len() / 4]);
    flip(large[large.len() / 3]);
    stores.all[lagging].restart();
    let found = within(Duration::from_secs(30), || {
        stores.all[leader].log_text().contains("entries in the log are damaged").then_some(())
    });
    assert!(found.is_some(), "the damage was not met: {}", stores.all[leader].log_text());
    let mut wire = Wire::open(stores.all[lagging].client);
    wire.ok(&["SET", "goes on", "x"]);
    await_equal(&stores);
    assert_eq!(stores.all[leader].ended(), None, "the store goes on");
    assert!(stores.all[leader].admin().counter("log_damages").is_ok_and(|count| count > 0));
    assert_eq!(wire.text(&["GET", "late:599"]).map(|value| value.len()), Some(value.len()));
    await_clean(&stores.all[leader]);
}

#[test]
fn a_store_that_is_alone_serves_what_is_left_and_writes_when_an_operator_says_so() {
    let _place = crate::place();
    let mut stores = Stores::start(&Plan { stores: 1, in_ram: true, ..Plan::default() });
    let mut wire = Wire::open(stores.all[0].client);
    (0..200).for_each(|key| wire.ok(&["SET", &format!("key:{key}"), "written"]));
    let store = &mut stores.all[0];
    store.kill();
    let all = entries(store, REGION);
    flip(&all[all.len() / 2]);
    for _ in 0..2 {
        store.spawn();
        eventually("it serves", || Wire::ask(store.client, &[&["PING"]]).map(drop));
        eventually("it says so", || store.log_text().contains("no other store has them").then_some(()));
        assert_eq!(
            (info(store, "incomplete_regions"), info(store, "unclean_peers")),
            ("1".into(), "1".into())
        );
        let end = info(store, "incomplete_region_1");
        assert!(end.starts_with("index=") && !end.ends_with("time_ms=0"), "{end}");
        let weak = |key: &str| {
            let mut replies = Wire::ask(store.client, &[&["READONLY"], &["GET", key]])?;
            client::connection::text(&replies.pop()?).map(|text| text.to_vec())
        };
        eventually("what is left is read", || weak("key:0").filter(|value| value == b"written"));
        assert_eq!(weak("key:199"), None, "it is behind the damage");
        let replies = Wire::ask(store.client, &[&["SET", "key:0", "x"]]).expect("an answer");
        assert!(matches!(&replies[0], resp::Reply::Error(_)), "{replies:?}");
        store.kill();
    }
    store.spawn();
    eventually("it serves", || Wire::ask(store.client, &[&["PING"]]).map(drop));
    let taken = eventually("the order is taken", || store.host().ctl(&["accept-loss"]).ok());
    assert_eq!(taken.as_array().map(Vec::len), Some(1), "{taken}");
    store.await_ready();
    Wire::open(store.client).ok(&["SET", "goes on", "x"]);
    store.kill();
    store.restart();
    let mut wire = Wire::open(store.client);
    assert_eq!(wire.text(&["GET", "goes on"]).as_deref(), Some("x"));
    assert_eq!(wire.text(&["GET", "key:0"]).as_deref(), Some("written"));
    assert_eq!((info(store, "unclean_peers"), info(store, "accepted_losses")), ("0".into(), "1".into()));
}
