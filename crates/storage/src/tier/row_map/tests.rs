use std::collections::BTreeMap;

use proptest::prelude::*;

use super::blocks::BLOCK_MAX;
use super::*;
use crate::rows::KeyRef;

/// Returns one of a few rows of every kind, whose keys, generations and sub-keys begin alike.
fn row(key: usize, kind: usize, generation: u64, subkey: &[u8]) -> Bytes {
    let keys: [&[u8]; 4] = [b"a", b"a\x01", b"{a}b", b"{a}b\xff"];
    let key = KeyRef::new(0, keys[key % keys.len()]);
    match kind % 8 {
        0 => key.meta_row(),
        1 | 2 => key.element_row(generation, subkey),
        3 => key.node_row(generation, subkey.len() as u64),
        4 => key.group_row(generation, subkey),
        5 => key.garbage_row(generation),
        6 => key.end_row(),
        // A bound in the middle of a part's common bytes.
        _ => key.element_row(generation, b"").slice(..key.meta_row().len() + generation as usize % 8),
    }
}

fn rows() -> impl Strategy<Value = Bytes> {
    let subkeys = proptest::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..20);
    (0..4usize, 0..8usize, prop_oneof![Just(0u64), Just(1), Just(u64::MAX)], subkeys)
        .prop_map(|(key, kind, generation, subkey)| row(key, kind, generation, &subkey))
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Bytes, Option<Bytes>),
    Remove(Bytes),
    RemoveRange(Bytes, Bytes),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (rows(), any::<Option<u8>>())
            .prop_map(|(row, value)| Op::Insert(row, value.map(|value| Bytes::from(vec![value])))),
        3 => rows().prop_map(Op::Remove),
        1 => (rows(), rows()).prop_map(|(from, to)| Op::RemoveRange(from, to)),
    ];
    proptest::collection::vec(op, 0..200)
}

fn collected<'a>(rows: impl Iterator<Item = Written<'a>>) -> Vec<(Bytes, Option<Bytes>)> {
    rows.map(|(row, value)| (row.clone(), value.clone())).collect()
}

#[test]
fn a_part_grows_into_blocks_and_ends() {
    let key = KeyRef::new(0, b"k");
    let rows: Vec<Bytes> = (0..200u64).map(|n| key.node_row(7, n)).collect();
    let mut map = RowMap::with_seed(7, 0);
    for count in [1, BLOCK_MAX, BLOCK_MAX + 1, rows.len()] {
        // In an order that is not that of the rows.
        for at in (0..count).rev().filter(|at| at % 2 == 0).chain((0..count).filter(|at| at % 2 == 1)) {
            map.insert(rows[at].clone(), None, 0);
        }
        let common = rows[0].len() - 8;
        assert_eq!(map.part_bytes(), PART_BYTES + common);
        for (from, to) in [(0, count), (1, count), (0, count / 2), (count / 2, count - 1)] {
            let found = collected(map.range(&rows[from], &key.node_row(7, to as u64)));
            assert!(found.iter().map(|(row, _)| row).eq(&rows[from..to]), "{from}..{to} of {count}");
        }
        let behind = collected(map.behind(Some(&rows[0])));
        assert!(behind.iter().map(|(row, _)| row).eq(&rows[1..count]));
        assert!(rows[..count].iter().all(|row| map.remove(row).is_some()));
        assert_eq!((map.len(), map.part_bytes()), (0, 0));
    }
}

proptest! {
    #[test]
    fn a_map_is_an_ordered_map(ops in ops(), bounds in proptest::collection::vec((rows(), rows()), 1..8)) {
        let (mut map, mut model) = (RowMap::with_seed(7, 0), BTreeMap::<Bytes, Option<Bytes>>::new());
        for op in ops {
            match op {
                Op::Insert(row, value) => {
                    prop_assert_eq!(map.insert(row.clone(), value.clone(), 0), model.insert(row, value));
                }
                Op::Remove(row) => prop_assert_eq!(map.remove(&row), model.remove(&row)),
                Op::RemoveRange(from, to) => {
                    let mut gone = Vec::new();
                    map.remove_range(&from, &to, |row, value| gone.push((row.clone(), value.clone())));
                    let is_in = |row: &Bytes| from <= *row && *row < to;
                    let expected: Vec<_> = model.extract_if(.., |row, _| is_in(row)).collect();
                    prop_assert_eq!(gone, expected);
                }
            }
        }
        prop_assert_eq!(map.len(), model.len());
        let mut all: Vec<_> = model.clone().into_iter().collect();
        prop_assert_eq!(collected(map.behind(None)), all.clone());
        prop_assert_eq!(collected(map.uses_behind(None).map(|(row, _)| row)), all.clone());
        let parts = all.iter().filter_map(|(row, _)| subkey_at(row).map(|at| row.slice(..at)));
        let parts = parts.collect::<std::collections::BTreeSet<_>>();
        let bytes = parts.iter().map(|common| PART_BYTES + common.len()).sum::<usize>();
        prop_assert_eq!(map.part_bytes(), bytes);
        for (from, to) in bounds {
            let expected = if from < to { collected(model.range(from.clone()..to.clone())) } else { vec![] };
            prop_assert_eq!(collected(map.range(&from, &to)), expected);
            let after = (Bound::Excluded(from.clone()), Bound::Unbounded);
            prop_assert_eq!(collected(map.behind(Some(&from))), collected(model.range(after)));
            map.touch([&from[..], &to].into_iter());
            prop_assert_eq!(map.get(&from), model.get(&from));
        }
        // A map without rows has no parts.
        all.drain(..).for_each(|(row, _)| drop(map.remove(&row)));
        prop_assert_eq!((map.len(), map.part_bytes()), (0, 0));
    }
}
