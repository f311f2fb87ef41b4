//! A store whose data is many times its memory: contents and order of reads from flash, what it
//! tells about them, and the options of RocksDB while it runs.

mod stores;

use std::collections::BTreeMap;

use resp::Reply;
use stores::wire::Wire;
use stores::{alone, ctl, eventually, Plan, Stores};
use types::Draw;

const KEYS: u64 = 100_000;

fn start(flags: &[(&str, &str)]) -> Stores {
    let all = [&[("--maxmemory", "64mb"), ("--probe", "no")], flags].concat();
    Stores::start(&Plan { flags: &all, ..Plan::default() })
}

fn value(key: u64) -> String {
    format!("{key:01000}")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Writes every key once, 100 MB in all.
fn load(wire: &mut Wire) {
    for first in (0..KEYS).step_by(500) {
        let keys = first..first + 500;
        let requests: Vec<_> = keys.map(|key| words(&["SET", &format!("key:{key}"), &value(key)])).collect();
        assert!(wire.call_all(&requests).iter().all(|reply| *reply == Reply::Simple("OK".into())));
    }
}

fn info(wire: &mut Wire) -> BTreeMap<String, String> {
    let text = wire.text(&["INFO", "flash"]).expect("text");
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn pipelines_of_cold_reads_are_answered_in_order_and_completely() {
    let _alone = alone();
    let stores = start(&[("--rocksdb-profile", "redis-on-flash")]);
    let address = stores.all[0].client;
    let mut wire = Wire::open(address);
    load(&mut wire);
    // A new key is known to be absent from RAM as soon as the filter of rows has been learnt.
    let before = info(&mut wire);
    std::thread::scope(|scope| {
        for client in 0..6u64 {
            scope.spawn(move || {
                let (mut wire, mut draw) = (Wire::open(address), Draw::new(client));
                for _ in 0..40 {
                    // Every fifth key does not exist.
                    let keys: Vec<u64> = (0..100).map(|_| draw.below(KEYS * 5 / 4)).collect();
                    let mut requests: Vec<_> =
                        keys.iter().map(|key| words(&["GET", &format!("key:{key}")])).collect();
                    let several: Vec<String> = keys[..10].iter().map(|key| format!("key:{key}")).collect();
                    requests.push([words(&["MGET"]), several].concat());
                    let wanted = |key: &u64| match *key < KEYS {
                        true => Reply::bulk(value(*key)),
                        false => Reply::Nil,
                    };
                    let mut replies: Vec<Reply> = keys.iter().map(wanted).collect();
                    replies.push(Reply::Array(keys[..10].iter().map(wanted).collect()));
                    assert!(wire.call_all(&requests) == replies, "client {client}");
                }
            });
        }
    });
    let told = info(&mut wire);
    let number = |name: &str| told[name].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {told:?}"));
    assert!(number("cold_reads") >= 200.0 && number("cold_read_usec_p99") >= number("cold_read_usec_p50"));
    assert_eq!((number("cold_reads_in_flight"), number("cold_rows_waiting")), (0.0, 0.0));
    let of_reads = |name: &str| number(name) - before[name].parse::<f64>().unwrap();
    let (hits, misses) = (of_reads("ram_hits"), of_reads("ram_misses"));
    assert!(hits < 1.5 * misses && number("rows_clean_bytes") > 1e6, "{before:?} {told:?}");
    let ratio = number("ram_hits") / (number("ram_hits") + number("ram_misses"));
    assert!((number("ram_hit_ratio") - ratio).abs() < 1e-3, "{told:?}");
    // The log and a flush write each row once.
    assert!(number("write_amplification") > 1.9 && number("device_bytes_flush") > 5e7, "{told:?}");
    let table = ctl(&stores, 0, &["stores", "--flash"]).unwrap();
    assert!(table.contains("w-amp") && table.lines().count() == 2, "{table}");
    let why = ctl(&stores, 0, &["explain", "--store", "0"]).unwrap();
    assert!(why.contains("profile redis-on-flash") && why.contains("use_direct_reads"), "{why}");
    assert!(stores.all[0].log_text().contains("options of the rows"));
}

#[test]
fn a_scan_of_all_keys_displaces_no_rows_in_use() {
    let _alone = alone();
    let stores = start(&[]);
    let mut wire = Wire::open(stores.all[0].client);
    load(&mut wire);
    let hot: Vec<_> = (0..2000).map(|key| words(&["GET", &format!("key:{}", key * 7)])).collect();
    let misses_of_hot = |wire: &mut Wire| {
        let before = info(wire)["ram_misses"].parse::<u64>().unwrap();
        assert!(wire.call_all(&hot).iter().all(|reply| *reply != Reply::Nil));
        info(wire)["ram_misses"].parse::<u64>().unwrap() - before
    };
    for _ in 0..4 {
        misses_of_hot(&mut wire);
    }
    for first in (1..KEYS).step_by(500) {
        let keys = (first..first + 500).filter(|key| *key < KEYS && key % 7 != 0);
        let requests: Vec<_> = keys.map(|key| words(&["GET", &format!("key:{key}")])).collect();
        wire.call_all(&requests);
    }
    let misses = misses_of_hot(&mut wire);
    assert!(misses <= 100, "{misses} of 2000 rows in use were displaced");
}

#[test]
fn options_of_rocksdb_are_shown_and_changed_by_their_names() {
    let _alone = alone();
    let flags = [("--rocksdb", "level0_stop_writes_trigger=48"), ("--reader-threads", "5")];
    let stores = start(&flags);
    let mut wire = Wire::open(stores.all[0].client);
    let get = |wire: &mut Wire, name: &str| match wire.call(&["CONFIG", "GET", name]) {
        Reply::Array(pairs) => {
            pairs.into_iter().filter_map(|reply| client::connection::text(&reply)).collect::<Vec<_>>()
        }
        reply => panic!("{reply:?}"),
    };
    assert_eq!(get(&mut wire, "rocksdb.level0_stop_writes_trigger")[1], "48");
    assert_eq!(get(&mut wire, "reader-threads")[1], "5");
    assert!(get(&mut wire, "rocksdb.*").len() >= 2 * 30);
    wire.ok(&[
        "CONFIG",
        "SET",
        "rocksdb.Level0_Stop_Writes_Trigger",
        "60",
        "rocksdb.block_size",
        "16kb",
        "maxclients",
        "500",
    ]);
    assert_eq!(get(&mut wire, "rocksdb.level0_stop_writes_trigger")[1], "60");
    assert_eq!(get(&mut wire, "maxclients")[1], "500");
    for (pairs, wanted) in [
        (
            &["rocksdb.max_background_jobs", "2"][..],
            "(possibly related to argument 'rocksdb.max_background_jobs') - can't set immutable config",
        ),
        (&["rocksdb.none", "2"], "Unknown option or number of arguments for CONFIG SET - 'rocksdb.none'"),
        (
            &["rocksdb.level0_stop_writes_trigger", "x"],
            "'rocksdb.level0_stop_writes_trigger') - RocksDB option",
        ),
        (&["rocksdb.level0_stop_writes_trigger", "3"], "level0_slowdown_writes_trigger 20 exceeds"),
        (&["rocksdb.block_size", "8kb", "rocksdb.block_size", "4kb"], "duplicate parameter"),
        (&["rocksdb.block_size", "4kb", "maxclients", "many"], "'maxclients') - argument couldn't be parsed"),
        (&["maxclients", "7", "rocksdb.block_size", "1"], "not in 1024..="),
    ] {
        let error = wire.error(&[&["CONFIG", "SET"], pairs].concat());
        assert!(error.starts_with("ERR ") && error.contains(wanted), "{error}");
    }
    assert_eq!(get(&mut wire, "rocksdb.block_size")[1], "16384", "a refused command changes nothing");
    assert_eq!(get(&mut wire, "maxclients")[1], "500");
    wire.ok(&["SET", "key", "value"]);
    assert_eq!(wire.text(&["GET", "key"]).as_deref(), Some("value"));
}

#[test]
fn an_option_that_contradicts_another_one_ends_the_start_with_a_reason() {
    let flags = [("--rocksdb", "level0_stop_writes_trigger=2"), ("--maxmemory", "64mb")];
    let mut stores = Stores::prepare(&Plan { flags: &flags, ..Plan::default() });
    stores.all[0].spawn();
    let ended = eventually("the start fails", || stores.all[0].ended());
    assert_eq!(ended.code(), Some(1));
    let log = stores.all[0].log_text();
    assert!(log.contains("level0_slowdown_writes_trigger 20 exceeds level0_stop_writes_trigger 2"), "{log}");
}
