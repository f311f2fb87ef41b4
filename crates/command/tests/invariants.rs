//! Random sequences of commands keep the rows consistent: counts, expiry index, elements and
//! garbage.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use steelyard_command::entry::{apply, Builder};
use storage::rows::{self, Part};
use storage::{load_state, DbCounts, MemoryKeyspace, Meta, Txn, Value};
use types::{SlotRange, SLOT_COUNT};

const REGION: u64 = 1;

/// Generates commands on few keys and databases, so that they interact. `BIG` and `MANY` make a
/// hash and a set that only the sweep deletes.
fn command() -> impl Strategy<Value = String> {
    let key = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("{a}1")];
    prop_oneof![
        4 => (key(), 0..4u8).prop_map(|(k, v)| format!("SET {k} {v}")),
        2 => (key(), 1..50u8).prop_map(|(k, ms)| format!("SET {k} v PX {ms}")),
        1 => key().prop_map(|k| format!("SET {k} v KEEPTTL")),
        4 => (key(), 0..9u8).prop_map(|(k, f)| format!("HSET {k} f{f} 1 g 2")),
        2 => key().prop_map(|k| format!("BIG {k}")),
        2 => (key(), 0..9u8).prop_map(|(k, f)| format!("HDEL {k} f{f} g")),
        2 => (key(), 0..9u8).prop_map(|(k, f)| format!("HINCRBY {k} f{f} 3")),
        4 => (key(), 0..9u8).prop_map(|(k, m)| format!("SADD {k} m{m} g m1")),
        2 => key().prop_map(|k| format!("MANY {k}")),
        2 => (key(), 0..9u8).prop_map(|(k, m)| format!("SREM {k} m{m} g")),
        2 => key().prop_map(|k| format!("SPOP {k}")),
        2 => (key(), 0..200u8).prop_map(|(k, count)| format!("SPOP {k} {count}")),
        2 => (key(), key(), 0..9u8).prop_map(|(a, b, m)| format!("SMOVE {a} {b} m{m}")),
        1 => (key(), key(), key()).prop_map(|(a, b, c)| format!("SINTERSTORE {a} {b} {c}")),
        1 => (key(), key(), key()).prop_map(|(a, b, c)| format!("SUNIONSTORE {a} {b} {c}")),
        1 => (key(), key(), key()).prop_map(|(a, b, c)| format!("SDIFFSTORE {a} {b} {c}")),
        2 => (key(), key()).prop_map(|(a, b)| format!("RENAME {a} {b}")),
        1 => (key(), key()).prop_map(|(a, b)| format!("RENAMENX {a} {b}")),
        2 => (key(), key(), 0..3u8).prop_map(|(a, b, db)| format!("COPY {a} {b} DB {db} REPLACE")),
        1 => (key(), 0..3u8).prop_map(|(k, db)| format!("MOVE {k} {db}")),
        2 => (key(), -5..50i8).prop_map(|(k, ms)| format!("PEXPIRE {k} {ms}")),
        1 => key().prop_map(|k| format!("PERSIST {k}")),
        1 => (key(), 1..50u8).prop_map(|(k, ms)| format!("GETEX {k} PX {ms}")),
        1 => key().prop_map(|k| format!("GETDEL {k}")),
        2 => (key(), key()).prop_map(|(a, b)| format!("DEL {a} {b}")),
        1 => key().prop_map(|k| format!("APPEND {k} x")),
        1 => Just("KEYS *".to_string()),
        1 => Just("FLUSHDB".to_string()),
        1 => Just("FLUSHALL".to_string()),
        2 => Just("EXPIRE_DUE".to_string()),
        1 => Just("SWEEP".to_string()),
    ]
}

fn push(builder: &mut Builder, db: u16, line: &str) {
    let slots = ["a", "b", "c"].map(|key| types::slot_of_key(key.as_bytes()));
    let words: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    match &words[0][..] {
        b"EXPIRE_DUE" => slots.iter().for_each(|slot| builder.push_expire_due(*slot, 2)),
        b"SWEEP" => slots.iter().for_each(|slot| builder.push_sweep(*slot, 50)),
        b"BIG" => {
            let mut args = vec![Bytes::from("HSET"), words[1].clone()];
            args.extend((0..200).flat_map(|n| [Bytes::from(format!("big{n}")), Bytes::from("v")]));
            builder.push(db, false, &args);
        }
        b"MANY" => {
            let mut args = vec![Bytes::from("SADD"), words[1].clone()];
            args.extend((0..200).map(|n| Bytes::from(format!("big{n}"))));
            builder.push(db, false, &args);
        }
        _ => builder.push(db, false, &words),
    }
}

fn check(engine: &MemoryKeyspace) -> Result<(), TestCaseError> {
    let mut counts: BTreeMap<u16, DbCounts> = BTreeMap::new();
    let mut expected_expiry = BTreeSet::new();
    let mut collections = BTreeMap::new();
    let mut expiry = BTreeSet::new();
    let mut elements: BTreeMap<(u16, Bytes, u64), u64> = BTreeMap::new();
    let mut garbage = BTreeSet::new();
    let mut bytes = 0;
    for (row, value) in engine.iter().filter(|(row, _)| row[0] == rows::SPACE_DATA) {
        match rows::table_of(row).unwrap().1 {
            rows::TABLE_KEYS => {
                let (key, part) = rows::decode_key_row(row).unwrap();
                prop_assert_eq!(key, storage::KeyRef::new(key.db, key.key));
                let name = Bytes::copy_from_slice(key.key);
                match part {
                    Part::Meta => {
                        let meta = Meta::decode(value).unwrap();
                        bytes += key.key.len() + meta.value.string_len();
                        let count = counts.entry(key.db).or_default();
                        count.keys += 1;
                        if let Some(at) = meta.expire_at_ms {
                            count.with_expiry += 1;
                            expected_expiry.insert(key.expiry_row(at));
                        }
                        if let Value::Hash { generation, len } | Value::Set { generation, len } = meta.value {
                            collections.insert((key.db, name, generation), len);
                        }
                    }
                    Part::Element { generation, subkey } => {
                        bytes += subkey.len() + value.len();
                        *elements.entry((key.db, name, generation)).or_default() += 1;
                    }
                }
            }
            rows::TABLE_EXPIRY => {
                expiry.insert(row.clone());
            }
            _ => {
                let (key, generation) = rows::decode_garbage_row(row).unwrap();
                garbage.insert((key.db, Bytes::copy_from_slice(key.key), generation));
            }
        }
    }
    prop_assert_eq!(expiry, expected_expiry);
    let state = load_state(engine, REGION).unwrap();
    prop_assert_eq!(state.databases().collect::<BTreeMap<u16, DbCounts>>(), counts);
    prop_assert_eq!(state.bytes(), bytes as u64);
    for (owner, len) in &collections {
        prop_assert!(*len > 0);
        prop_assert_eq!(elements.get(owner), Some(len));
    }
    for owner in elements.keys() {
        prop_assert!(collections.contains_key(owner) || garbage.contains(owner), "{:?} is an orphan", owner);
    }
    Ok(())
}

proptest! {
    #[test]
    fn rows_stay_consistent_and_the_sweep_leaves_no_orphans(
        entries in proptest::collection::vec(
            (0..20u64, proptest::collection::vec((0..3u16, command()), 1..6)), 1..20)
    ) {
        let mut engine = MemoryKeyspace::default();
        let mut replica = MemoryKeyspace::default();
        let mut now = 1;
        for (step, commands) in entries {
            now += step;
            let mut builder = Builder::new();
            for (db, line) in &commands {
                push(&mut builder, *db, line);
            }
            let payload = builder.finish(now, now);
            let mut replies = Vec::new();
            for engine in [&mut engine, &mut replica] {
                let mut txn = Txn::begin(engine, REGION).unwrap();
                replies.push(apply(&payload, &mut txn, SlotRange::ALL).unwrap());
                let (writes, _) = txn.finish();
                engine.write(writes);
            }
            prop_assert_eq!(&replies[0], &replies[1]);
            prop_assert!(engine.iter().eq(replica.iter()));
            check(&engine)?;
        }
        // Once all keys have expired and garbage is swept, deleting the remaining keys leaves only
        // the region's state row.
        let due = steelyard_command::find_due(&engine, SlotRange::ALL, now + 1000).unwrap();
        let is_due = |slot: &u16| {
            steelyard_command::earliest_due(&engine, *slot).unwrap().is_some_and(|at| at <= now + 1000)
        };
        prop_assert!(due.iter().copied().eq((0..SLOT_COUNT).filter(is_due)));
        let mut builder = Builder::new();
        for slot in due {
            builder.push_expire_due(slot, 1000);
        }
        for db in 0..3 {
            push(&mut builder, db, "DEL a b c {a}1");
        }
        let mut txn = Txn::begin(&engine, REGION).unwrap();
        apply(&builder.finish(now + 1000, 0), &mut txn, SlotRange::ALL).unwrap();
        let writes = txn.finish().0;
        engine.write(writes);
        check(&engine)?;
        let mut builder = Builder::new();
        for slot in (0..SLOT_COUNT).filter(|slot| steelyard_command::has_garbage(&engine, *slot).unwrap()) {
            builder.push_sweep(slot, 1_000_000);
        }
        let mut txn = Txn::begin(&engine, REGION).unwrap();
        apply(&builder.finish(now + 1000, 0), &mut txn, SlotRange::ALL).unwrap();
        let writes = txn.finish().0;
        engine.write(writes);
        prop_assert_eq!(engine.len(), 1, "only the region's state is left");
    }
}
