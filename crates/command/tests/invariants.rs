//! Random sequences of commands keep the rows consistent: counts, expiry index, elements, trees and
//! garbage.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use resp::Reply;
use steelyard_command::entry::{apply, Builder};
use steelyard_command::{execute, resolve, Exec, Limits, Mode, Outcome};
use storage::rows::{self, Part};
use storage::{load_state, DbCounts, MemoryKeyspace, Meta, Stream, Txn, Value};
use types::{SlotRange, NEWEST_VERSION, SLOT_COUNT};

const REGION: u64 = 1;

/// Generates commands on few keys and databases, so that they interact. `BIG`, `MANY`, `RANKED` and
/// `LONG` make a hash, a set, a sorted set and a list that only the sweep deletes. `LOG` trims a
/// stream, and fills it again.
fn command() -> impl Strategy<Value = String> {
    let key = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("{a}1")];
    let group = || prop_oneof![Just("g"), Just("h")];
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
        4 => (key(), 0..9u8, 0..4u8).prop_map(|(k, m, s)| format!("ZADD {k} {s} m{m} 2 g")),
        2 => key().prop_map(|k| format!("RANKED {k}")),
        2 => (key(), 0..9u8).prop_map(|(k, m)| format!("ZREM {k} m{m} g")),
        2 => (key(), 0..300u16, -3..3i8).prop_map(|(k, m, by)| format!("ZINCRBY {k} {by} big{m}")),
        2 => (key(), 0..300u16).prop_map(|(k, count)| format!("ZPOPMIN {k} {count}")),
        2 => (key(), -9..300i16, -300..9i16).prop_map(|(k, a, b)| format!("ZREMRANGEBYRANK {k} {a} {b}")),
        1 => (key(), key(), key()).prop_map(|(a, b, c)| format!("ZUNIONSTORE {a} 2 {b} {c}")),
        1 => (key(), key(), key()).prop_map(|(a, b, c)| format!("ZINTERSTORE {a} 2 {b} {c}")),
        1 => (key(), key(), 0..300u16).prop_map(|(a, b, c)| format!("ZRANGESTORE {a} {b} 0 {c}")),
        4 => (key(), 0..9u8).prop_map(|(k, e)| format!("RPUSH {k} e{e} g e1")),
        2 => (key(), 0..9u8).prop_map(|(k, e)| format!("LPUSH {k} e{e} g")),
        2 => key().prop_map(|k| format!("LONG {k}")),
        2 => (key(), 0..300u16).prop_map(|(k, count)| format!("LPOP {k} {count}")),
        2 => key().prop_map(|k| format!("RPOP {k}")),
        2 => (key(), -9..300i16, -300..9i16).prop_map(|(k, a, b)| format!("LTRIM {k} {a} {b}")),
        2 => (key(), -3..3i8).prop_map(|(k, count)| format!("LREM {k} {count} g")),
        2 => key().prop_map(|k| format!("LINSERT {k} BEFORE g new")),
        2 => (key(), -9..300i16).prop_map(|(k, at)| format!("LSET {k} {at} {}", "long".repeat(800))),
        2 => (key(), key()).prop_map(|(a, b)| format!("LMOVE {a} {b} LEFT RIGHT")),
        4 => (key(), 1..40u8).prop_map(|(k, ms)| format!("XADD {k} {ms}-* f v")),
        2 => (key(), 1..40u8).prop_map(|(k, ms)| format!("XADD {k} MAXLEN 5 {ms} f v g w")),
        3 => key().prop_map(|k| format!("LOG {k}")),
        2 => (key(), 1..250u16).prop_map(|(k, ms)| format!("XDEL {k} {ms}-0 7-0 101-0")),
        2 => (key(), 0..250u16).prop_map(|(k, count)| format!("XTRIM {k} MAXLEN ~ {count}")),
        2 => (key(), 0..250u16).prop_map(|(k, ms)| format!("XTRIM {k} MINID {ms}")),
        3 => (key(), group()).prop_map(|(k, g)| format!("XGROUP CREATE {k} {g} 0 MKSTREAM")),
        1 => (key(), group()).prop_map(|(k, g)| format!("XGROUP DESTROY {k} {g}")),
        1 => (key(), group(), 0..250u16).prop_map(|(k, g, id)| format!("XGROUP SETID {k} {g} {id}")),
        1 => (key(), group(), 0..3u8).prop_map(|(k, g, c)| format!("XGROUP DELCONSUMER {k} {g} c{c}")),
        4 => (key(), group(), 0..3u8, 1..150u8).prop_map(|(k, g, c, count)| {
            format!("XREADGROUP GROUP {g} c{c} COUNT {count} STREAMS {k} >")
        }),
        2 => (key(), group(), 1..250u16).prop_map(|(k, g, id)| format!("XACK {k} {g} {id}-0 1-0 250-0")),
        2 => (key(), group(), 0..3u8, 1..250u16).prop_map(|(k, g, c, id)| {
            format!("XCLAIM {k} {g} c{c} 0 {id} 2-0 FORCE")
        }),
        1 => (key(), group(), 0..3u8).prop_map(|(k, g, c)| format!("XAUTOCLAIM {k} {g} c{c} 0 0 COUNT 9")),
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
        b"RANKED" => {
            let mut args = vec![Bytes::from("ZADD"), words[1].clone()];
            args.extend((0..300).flat_map(|n| [(n % 7).to_string().into(), Bytes::from(format!("big{n}"))]));
            builder.push(db, false, &args);
        }
        b"LOG" => {
            builder.push(db, false, &[Bytes::from("XTRIM"), words[1].clone(), "MAXLEN".into(), "0".into()]);
            builder.push(db, false, &[Bytes::from("XSETID"), words[1].clone(), "0-0".into()]);
            for ms in 1..=250 {
                let id = Bytes::from(format!("{ms}-0"));
                builder.push(db, false, &[Bytes::from("XADD"), words[1].clone(), id, "f".into(), "v".into()]);
            }
        }
        b"LONG" => {
            let mut args = vec![Bytes::from("RPUSH"), words[1].clone()];
            args.extend((0..300).map(|n| Bytes::from(format!("big{n}"))));
            builder.push(db, false, &args);
        }
        _ => builder.push(db, false, &words),
    }
}

/// Returns the texts of an array that a read of the rows answers.
fn read(engine: &MemoryKeyspace, db: u16, line: &[&[u8]]) -> Vec<Bytes> {
    let args: Vec<Bytes> = line.iter().map(|arg| Bytes::copy_from_slice(arg)).collect();
    let mut txn = Txn::read_only(engine, REGION);
    let mut exec = Exec {
        txn: &mut txn,
        now_ms: 0,
        seed: 0,
        db,
        mode: Mode::Read,
        slots: SlotRange::ALL,
        limits: Limits::default(),
        resp3: false,
    };
    match execute(resolve(&args).unwrap(), &args, &mut exec).unwrap() {
        Outcome::Reply(Reply::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Reply::Bulk(text) => text,
                Reply::Double(score) => resp::double_text(score),
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// Returns the reply of a read.
fn reply_of(engine: &MemoryKeyspace, db: u16, line: &[&[u8]]) -> Reply {
    let args: Vec<Bytes> = line.iter().map(|arg| Bytes::copy_from_slice(arg)).collect();
    let mut txn = Txn::read_only(engine, REGION);
    let mut exec = Exec {
        txn: &mut txn,
        now_ms: 0,
        seed: 0,
        db,
        mode: Mode::Read,
        slots: SlotRange::ALL,
        limits: Limits::default(),
        resp3: true,
    };
    match execute(resolve(&args).unwrap(), &args, &mut exec).unwrap() {
        Outcome::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn field<'r>(map: &'r Reply, name: &'static str) -> &'r Reply {
    let Reply::Map(pairs) = map else { panic!("{map:?}") };
    &pairs.iter().find(|(field, _)| *field == Reply::bulk(name)).unwrap().1
}

fn items(reply: &Reply) -> &[Reply] {
    let Reply::Array(items) = reply else { panic!("{reply:?}") };
    items
}

/// Checks the numbers of a stream and of its groups against what walks find.
fn check_stream(engine: &MemoryKeyspace, db: u16, key: &[u8], stream: &Stream) -> Result<(), TestCaseError> {
    let forward = reply_of(engine, db, &[b"XRANGE", key, b"-", b"+"]);
    let backward = reply_of(engine, db, &[b"XREVRANGE", key, b"+", b"-"]);
    prop_assert_eq!(items(&forward).len() as u64, stream.len);
    prop_assert!(items(&forward).iter().eq(items(&backward).iter().rev()));
    let info = reply_of(engine, db, &[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]);
    prop_assert_eq!(items(field(&info, "groups")).len() as u64, stream.groups);
    for group in items(field(&info, "groups")) {
        let pending = items(field(group, "pending"));
        prop_assert_eq!(field(group, "pel-count"), &Reply::Int(pending.len() as i64));
        let mut of_consumers = Vec::new();
        for consumer in items(field(group, "consumers")) {
            let owned = items(field(consumer, "pending"));
            prop_assert_eq!(field(consumer, "pel-count"), &Reply::Int(owned.len() as i64));
            of_consumers.extend(owned.iter().map(|entry| format!("{:?}", items(entry)[0])));
        }
        let mut ids: Vec<String> = pending.iter().map(|entry| format!("{:?}", items(entry)[0])).collect();
        let Reply::Bulk(name) = field(group, "name") else { panic!("{group:?}") };
        let summary = reply_of(engine, db, &[b"XPENDING", key, name]);
        let bounds = |at: usize| format!("{:?}", items(&summary)[at]);
        if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
            prop_assert_eq!((first, last), (&bounds(1), &bounds(2)));
        }
        ids.sort();
        of_consumers.sort();
        prop_assert_eq!(ids, of_consumers);
    }
    Ok(())
}

/// Checks that a tree has what the meta row and the members' rows tell.
fn check_tree(engine: &MemoryKeyspace, db: u16, key: &[u8], value: &Value) -> Result<(), TestCaseError> {
    match value {
        Value::List { len, .. } => {
            prop_assert_eq!(read(engine, db, &[b"LRANGE", key, b"0", b"-1"]).len() as u64, *len);
        }
        Value::SortedSet { len, .. } => {
            let ranked = read(engine, db, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]);
            prop_assert_eq!(ranked.len() as u64, 2 * len);
            let mut walked = read_walk(engine, db, key);
            walked.sort_by(|a, b| {
                let score = |text: &Bytes| std::str::from_utf8(text).unwrap().parse::<f64>().unwrap();
                score(&a.1).total_cmp(&score(&b.1)).then_with(|| a.0.cmp(&b.0))
            });
            let ranked: Vec<(Bytes, Bytes)> =
                ranked.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            prop_assert_eq!(ranked, walked);
        }
        _ => {}
    }
    Ok(())
}

/// Returns the members and scores of the members' rows.
fn read_walk(engine: &MemoryKeyspace, db: u16, key: &[u8]) -> Vec<(Bytes, Bytes)> {
    let (from, to) = storage::KeyRef::new(db, key).element_range(generation_of(engine, db, key));
    let mut members = Vec::new();
    let prefix = from.len() + 8;
    storage::Reader::scan(engine, &from, &to, &mut |row, value| {
        let score = f64::from_be_bytes(value.try_into().unwrap());
        members.push((Bytes::copy_from_slice(&row[prefix..]), resp::double_text(score)));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    members
}

fn generation_of(engine: &MemoryKeyspace, db: u16, key: &[u8]) -> u64 {
    let row = storage::Reader::get(engine, &storage::KeyRef::new(db, key).meta_row()).unwrap().unwrap();
    match Meta::decode(&row).unwrap().value {
        Value::SortedSet { generation, .. } => generation,
        other => panic!("{other:?}"),
    }
}

fn check(engine: &MemoryKeyspace) -> Result<(), TestCaseError> {
    let mut counts: BTreeMap<u16, DbCounts> = BTreeMap::new();
    let mut expected_expiry = BTreeSet::new();
    let mut collections = BTreeMap::new();
    let mut expiry = BTreeSet::new();
    let mut elements: BTreeMap<(u16, Bytes, u64), u64> = BTreeMap::new();
    let mut trees = BTreeSet::new();
    let mut streams = BTreeMap::new();
    let mut groups: BTreeMap<(u16, Bytes, u64), u64> = BTreeMap::new();
    let mut of_groups = BTreeSet::new();
    let mut nodes = BTreeSet::new();
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
                        check_tree(engine, key.db, key.key, &meta.value)?;
                        match meta.value {
                            Value::String(_) => {}
                            Value::Hash { generation, len } | Value::Set { generation, len } => {
                                collections.insert((key.db, name, generation), len);
                            }
                            Value::SortedSet { generation, len } => {
                                collections.insert((key.db, name.clone(), generation), len);
                                trees.insert((key.db, name, generation));
                            }
                            Value::Stream(stream) => {
                                check_stream(engine, key.db, key.key, &stream)?;
                                streams.insert((key.db, name, stream.generation), *stream);
                            }
                            Value::List { generation, len } => {
                                prop_assert!(len > 0);
                                trees.insert((key.db, name, generation));
                            }
                        }
                    }
                    Part::Group { generation, name: group } => {
                        bytes += group.len() + value.len();
                        *groups.entry((key.db, name.clone(), generation)).or_default() += 1;
                        let of_group = u64::from_be_bytes(value[1..9].try_into().unwrap());
                        of_groups.insert((key.db, name, of_group));
                    }
                    Part::Node { generation, number: _ } => {
                        bytes += 8 + value.len();
                        nodes.insert((key.db, name, generation));
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
    for (owner, stream) in &streams {
        prop_assert_eq!(elements.get(owner).copied().unwrap_or(0), stream.nodes);
        prop_assert_eq!(groups.get(owner).copied().unwrap_or(0), stream.groups);
    }
    for owner in groups.keys() {
        prop_assert!(streams.contains_key(owner) || garbage.contains(owner), "{:?} is an orphan", owner);
    }
    prop_assert!(trees.is_subset(&nodes));
    for owner in nodes {
        prop_assert!(trees.contains(&owner) || garbage.contains(&owner), "{:?} is an orphan", owner);
    }
    for owner in elements.keys() {
        let is_owned = collections.contains_key(owner)
            || streams.contains_key(owner)
            || of_groups.contains(owner)
            || garbage.contains(owner);
        prop_assert!(is_owned, "{:?} is an orphan", owner);
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
            let payload = builder.finish_as(NEWEST_VERSION, now, now);
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
        apply(&builder.finish_as(NEWEST_VERSION, now + 1000, 0), &mut txn, SlotRange::ALL).unwrap();
        let writes = txn.finish().0;
        engine.write(writes);
        check(&engine)?;
        let mut builder = Builder::new();
        for slot in (0..SLOT_COUNT).filter(|slot| steelyard_command::has_garbage(&engine, *slot).unwrap()) {
            builder.push_sweep(slot, 1_000_000);
        }
        let mut txn = Txn::begin(&engine, REGION).unwrap();
        apply(&builder.finish_as(NEWEST_VERSION, now + 1000, 0), &mut txn, SlotRange::ALL).unwrap();
        let writes = txn.finish().0;
        engine.write(writes);
        prop_assert_eq!(engine.len(), 1, "only the region's state is left");
    }
}
