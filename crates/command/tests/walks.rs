//! Walks and random picks over keyspaces, hashes and sets that change during the walk.

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

    /// The same property for members.
    #[test]
    fn sscan_misses_no_member_that_stays(
        there in proptest::collection::btree_set(0..400u16, 1..200), count in 1..20u8, changes in changes()
    ) {
        let mut keyspace = Keyspace::default();
        let name = |number: &u16| format!("member:{number}");
        let names = |numbers: &BTreeSet<u16>| numbers.iter().map(|n| Bytes::from(name(n))).collect::<BTreeSet<_>>();
        for number in &there {
            keyspace.run(&["SADD".to_owned(), "s".to_owned(), name(number)]);
        }
        let (mut stayed, mut ever) = (there.clone(), there);
        let mut met = BTreeSet::new();
        let mut cursor = Bytes::from_static(b"0");
        let mut changes = changes.into_iter();
        for turns in 0.. {
            prop_assert!(turns < 2000, "the walk does not end");
            let args = [b"SSCAN", &b"s"[..], &cursor, b"COUNT", count.to_string().as_bytes()].map(<[u8]>::to_vec);
            let (next, members) = turn(keyspace.run(&args));
            met.extend(members);
            cursor = next;
            if &cursor[..] == b"0" {
                break;
            }
            for change in changes.next().unwrap_or_default() {
                match change {
                    Change::Add(number) => {
                        keyspace.run(&["SADD".to_owned(), "s".to_owned(), name(&number)]);
                        ever.insert(number);
                    }
                    Change::Remove(number) => {
                        keyspace.run(&["SREM".to_owned(), "s".to_owned(), name(&number)]);
                        stayed.remove(&number);
                    }
                }
            }
        }
        prop_assert!(names(&stayed).is_subset(&met));
        prop_assert!(met.is_subset(&names(&ever)));
    }

    /// The commands on several sets give what the sets of the standard library give. Batches are
    /// smaller than the sets.
    #[test]
    fn sets_are_combined_as_sets_are(
        sets in proptest::collection::vec(proptest::collection::btree_set(0..900u16, 0..700), 1..4),
        limit in 0..600usize,
    ) {
        let mut keyspace = Keyspace::default();
        let names: Vec<String> = (0..sets.len()).map(|at| format!("s{at}")).collect();
        for (name, set) in names.iter().zip(&sets).filter(|(_, set)| !set.is_empty()) {
            let mut args = vec!["SADD".to_owned(), name.clone()];
            args.extend(set.iter().map(u16::to_string));
            prop_assert_eq!(keyspace.run(&args), Reply::Int(set.len() as i64));
        }
        let others = || sets[1..].iter();
        let all = others().fold(sets[0].clone(), |all, set| all.intersection(set).copied().collect());
        let any = others().fold(sets[0].clone(), |any, set| any.union(set).copied().collect());
        let only = others().fold(sets[0].clone(), |only, set| only.difference(set).copied().collect());
        for (command, expected) in [("SINTER", &all), ("SUNION", &any), ("SDIFF", &only)] {
            let expected: BTreeSet<Bytes> = expected.iter().map(|n| Bytes::from(n.to_string())).collect();
            let args = [vec![command.to_owned()], names.clone()].concat();
            let found = members(keyspace.run(&args));
            prop_assert_eq!(found.len(), expected.len());
            prop_assert_eq!(&found.into_iter().collect::<BTreeSet<_>>(), &expected);
            let args = [vec![format!("{command}STORE"), "d".to_owned()], names.clone()].concat();
            prop_assert_eq!(keyspace.run(&args), Reply::Int(expected.len() as i64));
            prop_assert_eq!(members(keyspace.run(&["SMEMBERS", "d"])).len(), expected.len());
        }
        let mut args = vec!["SINTERCARD".to_owned(), names.len().to_string()];
        args.extend(names);
        args.extend(["LIMIT".to_owned(), limit.to_string()]);
        let expected = if limit == 0 { all.len() } else { all.len().min(limit) };
        prop_assert_eq!(keyspace.run(&args), Reply::Int(expected as i64));
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

fn members(reply: Reply) -> Vec<Bytes> {
    let (Reply::Array(items) | Reply::Set(items)) = reply else { panic!("{reply:?} has no members") };
    let text = |item| if let Reply::Bulk(member) = item { member } else { panic!("{item:?}") };
    items.into_iter().map(text).collect()
}

fn with_members(count: usize) -> Keyspace {
    let mut keyspace = Keyspace::default();
    let mut args = vec!["SADD".to_owned(), "s".to_owned()];
    args.extend((0..count).map(|number| format!("m{number}")));
    keyspace.run(&args);
    keyspace
}

/// The sizes are on both sides of the limit between a complete read and random parts.
#[test]
fn spop_removes_the_different_members_that_it_returns() {
    for size in [1, 2, 100, 128, 129, 3000] {
        for count in [0, 1, 2, size / 100, size / 2, size - 1, size, size + 1] {
            let mut keyspace = with_members(size);
            let picked = members(keyspace.run(&["SRANDMEMBER", "s", &count.to_string()]));
            assert_eq!(picked.iter().collect::<BTreeSet<_>>().len(), count.min(size), "{count} of {size}");
            let popped = members(keyspace.run(&["SPOP", "s", &count.to_string()]));
            let different: BTreeSet<Bytes> = popped.iter().cloned().collect();
            assert_eq!(
                (popped.len(), different.len()),
                (count.min(size), count.min(size)),
                "{count} of {size}"
            );
            let left = members(keyspace.run(&["SMEMBERS", "s"]));
            assert_eq!(left.len(), size - popped.len());
            assert!(left.iter().all(|member| !different.contains(member)));
            assert_eq!(keyspace.run(&["SCARD", "s"]), Reply::Int(left.len() as i64));
        }
    }
}

#[test]
fn spop_empties_a_set_one_by_one() {
    for size in [5, 300] {
        let mut keyspace = with_members(size);
        let mut popped = BTreeSet::new();
        while let Reply::Bulk(member) = keyspace.run(&["SPOP", "s"]) {
            assert!(popped.insert(member));
        }
        assert_eq!(popped.len(), size);
        assert_eq!(keyspace.run(&["EXISTS", "s"]), Reply::Int(0));
    }
}

/// Every member of a large set has almost the same chance: among many picks, the counts of the
/// members vary as they do by chance alone. The statistic is chi-squared, whose standard deviation
/// is the square root of twice the number of members. A pick of the first member after a random
/// hash, for comparison, has a value twice as large as the mean already at one pick per member.
#[test]
fn random_picks_from_a_large_set_are_almost_uniform() {
    const SIZE: usize = 2000;
    const PICKS: usize = 40_000;
    let mut keyspace = with_members(SIZE);
    let mut counts: BTreeMap<Bytes, u64> = BTreeMap::new();
    for _ in 0..PICKS / 20 {
        for _ in 0..2 {
            let Reply::Bulk(member) = keyspace.run(&["SRANDMEMBER", "s"]) else { panic!("no member") };
            *counts.entry(member).or_default() += 1;
        }
        for member in members(keyspace.run(&["SRANDMEMBER", "s", "-9"]))
            .into_iter()
            .chain(members(keyspace.run(&["SRANDMEMBER", "s", "9"])))
        {
            *counts.entry(member).or_default() += 1;
        }
    }
    let expected = PICKS as f64 / SIZE as f64;
    let square = |count: u64| (count as f64 - expected).powi(2) / expected;
    let missed = (SIZE - counts.len()) as f64 * expected;
    let statistic = counts.values().map(|count| square(*count)).sum::<f64>() + missed;
    let deviation = (2.0 * SIZE as f64).sqrt();
    assert!((statistic - SIZE as f64).abs() < 5.0 * deviation, "chi-squared is {statistic}");
}

#[test]
fn srandmember_depends_only_on_the_seed_and_may_repeat() {
    for size in [2, 2000] {
        let picked = || members(with_members(size).run(&["SRANDMEMBER", "s", "-50"]));
        assert_eq!(picked().len(), 50);
        assert_eq!(picked(), picked());
    }
    let reply = with_members(2).run(&["SRANDMEMBER", "s", "-1048577"]);
    assert_eq!(reply, Reply::error("ERR value is out of range"));
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
