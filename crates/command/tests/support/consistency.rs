//! The rules between the rows of a region, whatever its commands were.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use resp::Reply;
use steelyard_command::{execute, resolve, Exec, Limits, Mode, Outcome};
use storage::rows::{self, Part};
use storage::{load_state, packed, DbCounts, MemoryKeyspace, Meta, Stream, Txn, Value};
use types::SlotRange;

pub const REGION: u64 = 1;

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
fn check_stream(engine: &MemoryKeyspace, db: u16, key: &[u8], stream: &Stream) {
    let forward = reply_of(engine, db, &[b"XRANGE", key, b"-", b"+"]);
    let backward = reply_of(engine, db, &[b"XREVRANGE", key, b"+", b"-"]);
    assert_eq!(items(&forward).len() as u64, stream.len);
    assert!(items(&forward).iter().eq(items(&backward).iter().rev()));
    let info = reply_of(engine, db, &[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]);
    assert_eq!(items(field(&info, "groups")).len() as u64, stream.groups);
    for group in items(field(&info, "groups")) {
        let pending = items(field(group, "pending"));
        assert_eq!(field(group, "pel-count"), &Reply::Int(pending.len() as i64));
        let mut of_consumers = Vec::new();
        for consumer in items(field(group, "consumers")) {
            let owned = items(field(consumer, "pending"));
            assert_eq!(field(consumer, "pel-count"), &Reply::Int(owned.len() as i64));
            of_consumers.extend(owned.iter().map(|entry| format!("{:?}", items(entry)[0])));
        }
        let mut ids: Vec<String> = pending.iter().map(|entry| format!("{:?}", items(entry)[0])).collect();
        let Reply::Bulk(name) = field(group, "name") else { panic!("{group:?}") };
        let summary = reply_of(engine, db, &[b"XPENDING", key, name]);
        let bounds = |at: usize| format!("{:?}", items(&summary)[at]);
        if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
            assert_eq!((first, last), (&bounds(1), &bounds(2)));
        }
        ids.sort();
        of_consumers.sort();
        assert_eq!(ids, of_consumers);
    }
}

/// Checks that a tree has what the meta row and the members' rows tell.
fn check_tree(engine: &MemoryKeyspace, db: u16, key: &[u8], value: &Value) {
    match value {
        Value::List { len, .. } => {
            assert_eq!(read(engine, db, &[b"LRANGE", key, b"0", b"-1"]).len() as u64, *len);
        }
        Value::SortedSet { len, .. } => {
            let ranked = read(engine, db, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]);
            assert_eq!(ranked.len() as u64, 2 * len);
            let mut walked = read_walk(engine, db, key);
            walked.sort_by(|a, b| {
                let score = |text: &Bytes| std::str::from_utf8(text).unwrap().parse::<f64>().unwrap();
                score(&a.1).total_cmp(&score(&b.1)).then_with(|| a.0.cmp(&b.0))
            });
            let ranked: Vec<(Bytes, Bytes)> =
                ranked.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            assert_eq!(ranked, walked);
        }
        _ => {}
    }
}

/// Returns the members and scores of the members' rows.
fn read_walk(engine: &MemoryKeyspace, db: u16, key: &[u8]) -> Vec<(Bytes, Bytes)> {
    let (from, to) = storage::KeyRef::new(db, key).element_range(generation_of(engine, db, key));
    let mut members = Vec::new();
    let prefix = from.len() + 8;
    let txn = Txn::read_only(engine, REGION);
    txn.scan(&from, &to, &mut |row, value| {
        let score = f64::from_be_bytes(value.try_into().unwrap());
        members.push((Bytes::copy_from_slice(&row[prefix..]), resp::double_text(score)));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    members
}

fn generation_of(engine: &MemoryKeyspace, db: u16, key: &[u8]) -> u64 {
    let row = storage::Reader::get(engine, &storage::KeyRef::new(db, key).meta_row()).unwrap().unwrap();
    generation_in(&Meta::decode(&row).unwrap().value)
}

fn generation_in(value: &Value) -> u64 {
    match value {
        Value::Hash { generation, .. }
        | Value::Set { generation, .. }
        | Value::SortedSet { generation, .. }
        | Value::List { generation, .. } => *generation,
        other => panic!("{other:?}"),
    }
}

/// Checks that counts, expiry index, elements, trees, streams and garbage agree with each other.
///
/// # Panics
/// If they do not.
pub fn check(engine: &MemoryKeyspace) {
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
                assert_eq!(key, storage::KeyRef::new(key.db, key.key));
                let name = Bytes::copy_from_slice(key.key);
                match part {
                    Part::Meta => {
                        let meta = Meta::decode(value).unwrap();
                        bytes += key.key.len() + meta.value.string_len();
                        for row in packed::rows_in(value) {
                            let row = row.unwrap();
                            assert!(value.len() <= packed::BYTES_MAX);
                            bytes += row.subkey.len() + row.value.len();
                            // They would have this generation as rows of their own.
                            let generation = generation_in(&meta.value);
                            match row.part(generation).unwrap() {
                                Part::Node { .. } => {
                                    nodes.insert((key.db, name.clone(), generation));
                                }
                                _ => {
                                    *elements.entry((key.db, name.clone(), generation)).or_default() += 1;
                                }
                            }
                        }
                        let count = counts.entry(key.db).or_default();
                        count.keys += 1;
                        if let Some(at) = meta.expire_at_ms {
                            count.with_expiry += 1;
                            expected_expiry.insert(key.expiry_row(at));
                        }
                        check_tree(engine, key.db, key.key, &meta.value);
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
                                check_stream(engine, key.db, key.key, &stream);
                                streams.insert((key.db, name, stream.generation), *stream);
                            }
                            Value::List { generation, len } => {
                                assert!(len > 0);
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
    assert_eq!(expiry, expected_expiry);
    let state = load_state(engine, REGION).unwrap();
    assert_eq!(state.databases().collect::<BTreeMap<u16, DbCounts>>(), counts);
    assert_eq!(state.bytes(), bytes as u64);
    for (owner, len) in &collections {
        assert!(*len > 0);
        assert_eq!(elements.get(owner), Some(len));
    }
    for (owner, stream) in &streams {
        assert_eq!(elements.get(owner).copied().unwrap_or(0), stream.nodes);
        assert_eq!(groups.get(owner).copied().unwrap_or(0), stream.groups);
    }
    for owner in groups.keys() {
        assert!(streams.contains_key(owner) || garbage.contains(owner), "{:?} is an orphan", owner);
    }
    assert!(trees.is_subset(&nodes));
    for owner in nodes {
        assert!(trees.contains(&owner) || garbage.contains(&owner), "{:?} is an orphan", owner);
    }
    for owner in elements.keys() {
        let is_owned = collections.contains_key(owner)
            || streams.contains_key(owner)
            || of_groups.contains(owner)
            || garbage.contains(owner);
        assert!(is_owned, "{:?} is an orphan", owner);
    }
}
