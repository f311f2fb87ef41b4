use storage::{MemoryKeyspace, Txn};
use types::{slot_of_key, SlotRange};

use super::*;
use crate::entry::{self, Builder};

/// A region, and the time and seed of its next entry.
struct Region {
    rows: MemoryKeyspace,
    now_ms: u64,
    seed: u64,
}

fn args(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn queued(lines: &[&str]) -> Vec<Queued> {
    lines.iter().map(|line| Queued { db: 0, args: args(line) }).collect()
}

impl Region {
    fn new() -> Region {
        Region { rows: MemoryKeyspace::default(), now_ms: 1000, seed: 0 }
    }

    fn apply(&mut self, args: &[Bytes]) -> storage::Result<Option<Reply>> {
        self.seed += 1;
        let mut builder = Builder::new();
        builder.push(0, false, args);
        let mut txn = Txn::begin(&self.rows, 1).unwrap();
        let replies = entry::apply(&builder.finish(self.now_ms, self.seed), &mut txn, SlotRange::ALL);
        let (writes, _) = txn.finish();
        let mut replies = replies?;
        self.rows.write(writes);
        Ok(replies.remove(0))
    }

    fn run(&mut self, line: &str) -> Reply {
        self.apply(&args(line)).unwrap().unwrap()
    }

    fn watch(&mut self, keys: &[&str]) -> Vec<Watched> {
        let keys: Vec<Bytes> = keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect();
        let reply = self.apply(&watch_args(&keys)).unwrap().unwrap();
        let numbers = watch_numbers(&reply, keys.len()).unwrap();
        keys.into_iter().zip(numbers).map(|(key, number)| Watched { db: 0, key, number }).collect()
    }

    fn exec(&mut self, watched: &[Watched], lines: &[&str]) -> Reply {
        self.apply(&exec_args(watched, &queued(lines))).unwrap().unwrap()
    }

    fn watches(&self) -> usize {
        storage::load_state(&self.rows, 1).unwrap().watches.len()
    }
}

#[test]
fn commands_see_the_ones_before_them_and_an_error_ends_none_of_them() {
    let mut region = Region::new();
    let reply = region.exec(&[], &["SET k 1", "INCR k", "LPUSH k x", "INCR k", "GET k"]);
    let wrong = Reply::error(crate::error_messages::WRONG_TYPE);
    let expected = vec![Reply::OK, Reply::Int(2), wrong, Reply::Int(3), Reply::bulk("3")];
    assert_eq!(reply, Reply::Array(expected));
    assert_eq!(region.exec(&[], &[]), Reply::Array(Vec::new()));
}

#[test]
fn a_change_of_a_watched_key_stops_the_transaction_and_nothing_else_does() {
    let changes = [
        ("SET k 2", true),
        ("SET other 2", false),
        ("GET k", false),
        ("DEL k", true),
        ("EXPIRE k 100", true),
        ("PERSIST k", false),
        ("RENAME k other", true),
        ("APPEND k x", true),
        ("LPUSH k x", false),
        ("FLUSHALL", true),
        ("FLUSHDB", true),
    ];
    for (line, is_change) in changes {
        let mut region = Region::new();
        region.run("SET k 1");
        let watched = region.watch(&["k"]);
        region.run(line);
        let expected = if is_change { Reply::NilArray } else { Reply::Array(vec![Reply::OK]) };
        assert_eq!(region.exec(&watched, &["SET done 1"]), expected, "{line}");
        assert_eq!(region.watches(), 0, "{line}");
    }
    for (before, change) in [
        ("HSET k f 1", "HSET k f 2"),
        ("SADD k a", "SREM k a"),
        ("ZADD k 1 a", "ZADD k 2 a"),
        ("RPUSH k a b", "LSET k 1 c"),
    ] {
        let mut region = Region::new();
        region.run(before);
        let watched = region.watch(&["k"]);
        region.run(change);
        assert_eq!(region.exec(&watched, &[]), Reply::NilArray, "{change}");
    }
}

#[test]
fn an_absent_key_changes_when_it_is_created_and_not_when_nothing_is_deleted() {
    let mut region = Region::new();
    let watched = region.watch(&["k"]);
    region.run("DEL k");
    region.run("FLUSHALL");
    assert_eq!(region.exec(&watched, &[]), Reply::Array(Vec::new()));
    let watched = region.watch(&["k"]);
    region.run("SET k 1");
    region.run("DEL k");
    assert_eq!(region.exec(&watched, &[]), Reply::NilArray);
}

#[test]
fn a_key_that_expires_while_it_is_watched_changes_and_an_expired_one_is_absent() {
    let mut region = Region::new();
    region.run("SET k 1 PX 10");
    let watched = region.watch(&["k"]);
    assert_eq!(region.exec(&watched, &[]), Reply::Array(Vec::new()));
    let watched = region.watch(&["k"]);
    region.now_ms += 10;
    assert_eq!(region.exec(&watched, &["SET x 1"]), Reply::NilArray);
    region.run("SET k 1 PX 10");
    region.now_ms += 10;
    // The key has expired and its rows are still here.
    let watched = region.watch(&["k"]);
    region.run("GET k");
    assert_eq!(region.exec(&watched, &[]), Reply::Array(Vec::new()));
}

#[test]
fn clients_share_watches_and_each_releases_its_own() {
    let mut region = Region::new();
    let (first, second) = (region.watch(&["k"]), region.watch(&["k"]));
    assert_eq!(region.exec(&first, &[]), Reply::Array(Vec::new()));
    assert_eq!(region.watches(), 1);
    assert_eq!(region.exec(&second, &["SET k 1"]), Reply::Array(vec![Reply::OK]));
    let both = region.watch(&["k", "l"]);
    assert_eq!(region.watches(), 2);
    region.apply(&unwatch_args(&both)).unwrap();
    assert_eq!(region.watches(), 0);
    assert_eq!(region.exec(&both, &[]), Reply::NilArray, "a released watch is over");
}

#[test]
fn the_sweep_of_a_deleted_collection_changes_no_key() {
    let mut region = Region::new();
    for number in 0..200 {
        region.run(&format!("SADD k {number}"));
    }
    region.run("DEL k");
    let watched = region.watch(&["k"]);
    let mut builder = Builder::new();
    builder.push_sweep(slot_of_key(b"k"), 100);
    let mut txn = Txn::begin(&region.rows, 1).unwrap();
    let replies = entry::apply(&builder.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
    assert_eq!(replies, [Some(Reply::Int(100))]);
    let (writes, _) = txn.finish();
    region.rows.write(writes);
    assert_eq!(region.exec(&watched, &[]), Reply::Array(Vec::new()));
}

#[test]
fn databases_of_commands_and_watches_are_their_own() {
    let mut region = Region::new();
    region.run("SET k 1");
    let commands = [Queued { db: 3, args: args("SET k 3") }, Queued { db: 0, args: args("GET k") }];
    let watched = region.watch(&["k"]);
    let reply = region.apply(&exec_args(&watched, &commands)).unwrap().unwrap();
    assert_eq!(reply, Reply::Array(vec![Reply::OK, Reply::bulk("1")]));
    let elsewhere = [Watched { db: 3, ..region.watch(&["k"]).remove(0) }];
    let reply = region.apply(&exec_args(&elsewhere, &[])).unwrap().unwrap();
    assert_eq!(reply, Reply::NilArray);
}

#[test]
fn damaged_transactions_are_corrupt_not_a_panic() {
    let watched = [Watched { db: 0, key: "k".into(), number: 7 }];
    let good = exec_args(&watched, &queued(&["SET k 1", "GET k"]));
    assert!(decode(&good).is_some());
    let mut region = Region::new();
    for cut in 2..good.len() {
        let entry = &good[..cut];
        let is_whole = [4, 8].contains(&cut);
        assert_eq!(decode(entry).is_some(), is_whole, "{cut}");
        assert_eq!(region.apply(entry).is_ok(), is_whole, "{cut}");
    }
    for (at, bad) in [(1, ""), (1, "~~~~"), (3, "short"), (4, "x"), (5, "nosuch"), (5, "get"), (5, "ping")] {
        let mut args = good.clone();
        args[at] = Bytes::copy_from_slice(bad.as_bytes());
        assert!(region.apply(&args).is_err(), "{at} {bad}");
    }
}

#[test]
fn keys_and_growth_are_those_of_the_queued_commands() {
    let watched = [Watched { db: 0, key: "w".into(), number: 7 }];
    let spec = lookup_in_log(EXEC_NAME).unwrap();
    let all = |lines: &[&str]| {
        let args = exec_args(&watched, &queued(lines));
        let keys: Vec<_> = crate::keys_of(spec, &args).map(|(key, _)| key.clone()).collect();
        (keys, grows(&args))
    };
    assert_eq!(all(&["GET a", "RENAME b c"]), (["w", "a", "b", "c"].map(Bytes::from).to_vec(), false));
    assert_eq!(all(&["SET a 1"]), (["w", "a"].map(Bytes::from).to_vec(), true));
    assert!(lookup(EXEC_NAME).is_none(), "no client can send it");
    // What states a wrong number of keys has none.
    assert_eq!(all(&["ZUNION x a b", "ZUNIONSTORE d 7 c", "GET e"]).0, ["w", "e"].map(Bytes::from).to_vec());
    let args = exec_args(&[], &queued(&["ZUNIONSTORE d 7 c", "ZUNION 9 a"]));
    assert_eq!(crate::keys_of(spec, &args).map(|(key, _)| &key[..]).collect::<Vec<_>>(), [b"d"]);
}
