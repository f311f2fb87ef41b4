//! Walks and random picks over keyspaces and hashes that change during the walk.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use resp::Reply;
use steelyard_command::entry::{apply, Builder};
use storage::{MemoryKeyspace, Txn};
use types::SlotRange;

const REGION: u64 = 1;

#[derive(Default)]
struct Keyspace {
    engine: MemoryKeyspace,
    seed: u64,
}

impl Keyspace {
    fn run<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.run_in(SlotRange::ALL, args)
    }

    /// Executes a command as a region with these slots does.
    fn run_in<A: AsRef<[u8]>>(&mut self, slots: SlotRange, args: &[A]) -> Reply {
        self.seed += 1;
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_ref())).collect();
        let mut builder = Builder::new();
        builder.push(0, false, &args);
        let mut txn = Txn::begin(&self.engine, REGION).unwrap();
        let reply = apply(&builder.finish(1, self.seed), &mut txn, slots).unwrap().remove(0).unwrap();
        self.engine.write(txn.finish().0);
        reply
    }
}

/// Returns the next cursor and the items of one `SCAN` reply.
fn turn(reply: Reply) -> (Bytes, Vec<Bytes>) {
    let text = |reply| if let Reply::Bulk(text) = reply { text } else { panic!("{reply:?} is no text") };
    let Reply::Array(mut parts) = reply else { panic!("{reply:?} is no turn") };
    let (Some(Reply::Array(met)), Some(cursor)) = (parts.pop(), parts.pop()) else { panic!("no turn") };
    (text(cursor), met.into_iter().map(text).collect())
}

/// A change between two steps of a walk.
#[derive(Clone, Debug)]
enum Change {
    Add(u16),
    Remove(u16),
}

fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let change = prop_oneof![(0..400u16).prop_map(Change::Add), (0..400u16).prop_map(Change::Remove)];
    proptest::collection::vec(proptest::collection::vec(change, 0..12), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A full walk returns every key that exists from its start to its end, returns no key that
    /// never existed, and ends.
    #[test]
    fn scan_misses_no_key_that_stays(
        there in proptest::collection::btree_set(0..400u16, 0..120), count in 1..20u8, changes in changes()
    ) {
        let mut keyspace = Keyspace::default();
        let name = |number: &u16| format!("key:{number}");
        let mut present: BTreeSet<u16> = there.clone();
        for number in &present {
            keyspace.run(&["SET".to_owned(), name(number), "v".to_owned()]);
        }
        let (mut stayed, mut ever) = (there.clone(), there);
        let mut met = BTreeSet::new();
        let mut cursor = Bytes::from_static(b"0");
        let mut changes = changes.into_iter();
        for turns in 0.. {
            prop_assert!(turns < 2000, "the walk does not end");
            let args = [b"SCAN", &cursor[..], b"COUNT", count.to_string().as_bytes()].map(<[u8]>::to_vec);
            let (next, keys) = turn(keyspace.run(&args));
            met.extend(keys);
            cursor = next;
            if &cursor[..] == b"0" {
                break;
            }
            for change in changes.next().unwrap_or_default() {
                match change {
                    Change::Add(number) => {
                        keyspace.run(&["SET".to_owned(), name(&number), "v".to_owned()]);
                        present.insert(number);
                        ever.insert(number);
                    }
                    Change::Remove(number) => {
                        keyspace.run(&["DEL".to_owned(), name(&number)]);
                        present.remove(&number);
                        stayed.remove(&number);
                    }
                }
            }
        }
        let names = |numbers: &BTreeSet<u16>| numbers.iter().map(|n| Bytes::from(name(n))).collect::<BTreeSet<_>>();
        prop_assert!(names(&stayed).is_subset(&met));
        prop_assert!(met.is_subset(&names(&ever)));
    }

    /// The same property for fields, in hashes of every size.
    #[test]
    fn hscan_misses_no_field_that_stays(
        there in proptest::collection::btree_set(0..400u16, 1..200), count in 1..20u8, changes in changes()
    ) {
        let mut keyspace = Keyspace::default();
        let name = |number: &u16| format!("field:{number}");
        for number in &there {
            keyspace.run(&["HSET".to_owned(), "h".to_owned(), name(number), number.to_string()]);
        }
        let (mut stayed, mut ever) = (there.clone(), there);
        let mut met: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        let mut cursor = Bytes::from_static(b"0");
        let mut changes = changes.into_iter();
        for turns in 0.. {
            prop_assert!(turns < 2000, "the walk does not end");
            let args = [b"HSCAN", &b"h"[..], &cursor, b"COUNT", count.to_string().as_bytes()].map(<[u8]>::to_vec);
            let (next, entries) = turn(keyspace.run(&args));
            met.extend(entries.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())));
            cursor = next;
            if &cursor[..] == b"0" {
                break;
            }
            for change in changes.next().unwrap_or_default() {
                match change {
                    Change::Add(number) => {
                        keyspace.run(&["HSET".to_owned(), "h".to_owned(), name(&number), number.to_string()]);
                        ever.insert(number);
                    }
                    Change::Remove(number) => {
                        keyspace.run(&["HDEL".to_owned(), "h".to_owned(), name(&number)]);
                        stayed.remove(&number);
                    }
                }
            }
        }
        for number in &stayed {
            prop_assert_eq!(met.get(name(number).as_bytes()), Some(&Bytes::from(number.to_string())));
        }
        let ever: BTreeSet<Bytes> = ever.iter().map(|number| Bytes::from(name(number))).collect();
        prop_assert!(met.keys().all(|field| ever.contains(field)));
    }

    /// A walk may continue in other regions. It returns the same keys as one region with all slots
    /// would.
    #[test]
    fn scan_over_regions_meets_what_one_region_meets(
        there in proptest::collection::btree_set(0..400u16, 0..120), regions in 1..9u16, count in 1..20u8
    ) {
        let mut keyspace = Keyspace::default();
        for number in &there {
            keyspace.run(&["SET".to_owned(), format!("key:{number}"), "v".to_owned()]);
        }
        let mut met = BTreeSet::new();
        for slots in SlotRange::split_evenly(regions) {
            // At the end of a region the cursor is the start of the next slot.
            let mut cursor = steelyard_command::cursor_at(slots.first);
            loop {
                let args = ["SCAN".to_owned(), cursor.to_string(), "COUNT".to_owned(), count.to_string()];
                let (next, keys) = turn(keyspace.run_in(slots, &args));
                for key in keys {
                    prop_assert!(met.insert(key), "a key was met twice though nothing changed");
                }
                cursor = std::str::from_utf8(&next).unwrap().parse().unwrap();
                if cursor == 0 || steelyard_command::cursor_slot(cursor) > slots.last {
                    break;
                }
            }
        }
        prop_assert_eq!(met.len(), there.len());
    }
}

fn with_fields(count: usize) -> Keyspace {
    let mut keyspace = Keyspace::default();
    let mut args = vec!["HSET".to_owned(), "h".to_owned()];
    args.extend((0..count).flat_map(|number| [format!("f{number}"), number.to_string()]));
    keyspace.run(&args);
    keyspace
}

fn picked(keyspace: &mut Keyspace, count: i64) -> Vec<Bytes> {
    let Reply::Array(items) = keyspace.run(&["HRANDFIELD", "h", &count.to_string()]) else {
        panic!("no array")
    };
    items
        .into_iter()
        .map(|item| if let Reply::Bulk(field) = item { field } else { panic!("{item:?}") })
        .collect()
}

/// The sizes are on both sides of the limit between a complete read and a random position.
#[test]
fn hrandfield_gives_as_many_different_fields_as_asked() {
    for size in [1, 2, 100, 1024, 1025, 3000] {
        let mut keyspace = with_fields(size);
        for count in [1, 2, size / 8, size / 2, size - 1, size, size + 1, 10 * size] {
            let fields = picked(&mut keyspace, count as i64);
            assert_eq!(fields.len(), count.min(size), "{count} of {size}");
            let different: BTreeSet<&Bytes> = fields.iter().collect();
            assert_eq!(different.len(), fields.len(), "{count} of {size}");
        }
    }
}

#[test]
fn hrandfield_repeats_fields_when_the_count_is_negative() {
    for size in [1, 5, 2000] {
        let mut keyspace = with_fields(size);
        assert_eq!(picked(&mut keyspace, -50).len(), 50);
    }
    let reply = with_fields(2).run(&["HRANDFIELD", "h", "-1048577"]);
    assert_eq!(reply, Reply::error("ERR value is out of range"));
}

/// Random picks depend only on the entry's seed, and every field is picked eventually.
#[test]
fn hrandfield_reaches_every_field() {
    let mut keyspace = with_fields(40);
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        seen.extend(picked(&mut keyspace, -20));
        seen.extend(picked(&mut keyspace, 3));
    }
    assert_eq!(seen.len(), 40);
    let mut twin = with_fields(40);
    let mut other = with_fields(40);
    assert_eq!(picked(&mut twin, -20), picked(&mut other, -20));
}

#[test]
fn randomkey_reaches_every_key() {
    let mut keyspace = Keyspace::default();
    for number in 0..20 {
        keyspace.run(&["SET", &format!("key:{number}"), "v"]);
    }
    let mut seen = BTreeSet::new();
    for _ in 0..2000 {
        let Reply::Bulk(key) = keyspace.run(&["RANDOMKEY"]) else { panic!("no key") };
        seen.insert(key);
    }
    assert_eq!(seen.len(), 20);
}
