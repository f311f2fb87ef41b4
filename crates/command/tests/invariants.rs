//! Random sequences of commands keep the rows consistent: counts, expiry index, elements, trees and
//! garbage.

#[path = "support/consistency.rs"]
mod consistency;

use std::collections::BTreeSet;

use bytes::Bytes;
use consistency::{check, REGION};
use proptest::prelude::*;
use steelyard_command::entry::{apply, Builder};
use storage::{MemoryKeyspace, Txn};
use types::{SlotRange, NEWEST_VERSION, OLDEST_VERSION, SLOT_COUNT};

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

proptest! {
    #[test]
    fn rows_stay_consistent_and_the_sweep_leaves_no_orphans(
        entries in proptest::collection::vec(
            (0..20u64, proptest::collection::vec((0..3u16, command()), 1..6)), 1..20),
        raised_at in 0..25usize
    ) {
        let mut engine = MemoryKeyspace::default();
        // A replica that executes several entries in one batch.
        let mut replica = MemoryKeyspace::default();
        let (mut behind, last) = (Vec::new(), entries.len() - 1);
        // A cluster whose version rises later, so its collections are packed from then on.
        let mut older = MemoryKeyspace::default();
        let mut now = 1;
        for (number, (step, commands)) in entries.into_iter().enumerate() {
            now += step;
            let mut builder = Builder::new();
            // A packed collection leaves nothing to the sweep.
            let mut sweeps = BTreeSet::new();
            for (db, line) in &commands {
                let before = builder.len();
                push(&mut builder, *db, line);
                if line == "SWEEP" {
                    sweeps.extend(before..builder.len());
                }
            }
            let version = if number < raised_at { OLDEST_VERSION } else { NEWEST_VERSION };
            let mut txn = Txn::begin(&older, REGION).unwrap();
            let of_older = builder.clone().finish_as(version, now, now);
            let of_older = apply(&of_older, &mut txn, SlotRange::ALL).unwrap();
            older.write(txn.finish().0);
            check(&older);
            let payload = builder.finish_as(NEWEST_VERSION, now, now);
            let mut txn = Txn::begin(&engine, REGION).unwrap();
            let replies = apply(&payload, &mut txn, SlotRange::ALL).unwrap();
            let (writes, _) = txn.finish();
            engine.write(writes);
            for (at, (reply, of_older)) in replies.iter().zip(&of_older).enumerate() {
                prop_assert!(reply == of_older || sweeps.contains(&at), "{reply:?} {of_older:?}");
            }
            check(&engine);
            behind.push((payload, replies));
            if number % 4 == 3 || number == last {
                let mut txn = Txn::begin(&replica, REGION).unwrap();
                for (payload, replies) in behind.drain(..) {
                    prop_assert_eq!(apply(&payload, &mut txn, SlotRange::ALL).unwrap(), replies);
                }
                let (writes, _) = txn.finish();
                replica.write(writes);
                prop_assert!(engine.iter().eq(replica.iter()));
            }
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
        check(&engine);
        let mut builder = Builder::new();
        for slot in (0..SLOT_COUNT).filter(|slot| steelyard_command::garbage_since(&engine, *slot).unwrap() == Some(0)) {
            builder.push_sweep(slot, 1_000_000);
        }
        let mut txn = Txn::begin(&engine, REGION).unwrap();
        apply(&builder.finish_as(NEWEST_VERSION, now + 1000, 0), &mut txn, SlotRange::ALL).unwrap();
        let writes = txn.finish().0;
        engine.write(writes);
        prop_assert_eq!(engine.len(), 1, "only the region's state is left");
    }
}
