use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Returns a row that has its head in common with up to 80 others.
fn row(head: u8, tail: u8) -> Vec<u8> {
    let mut row = vec![head; 15];
    row.extend([head & 1, tail]);
    row
}

/// Rows of a few heads, so that a block has many entries with the same head, or of many.
fn rows() -> impl Strategy<Value = (u8, u8)> {
    prop_oneof![(0..3u8, 0..80u8), (any::<u8>(), 0..2u8)]
}

#[derive(Clone, Debug)]
enum Op {
    Insert((u8, u8)),
    Remove((u8, u8)),
    /// Inserts rows in ascending order, and then removes all but every nth.
    InsertAll(u8),
    RemoveMost(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        40 => rows().prop_map(Op::Insert),
        20 => rows().prop_map(Op::Remove),
        1 => any::<u8>().prop_map(Op::InsertAll),
        1 => (2..9u8).prop_map(Op::RemoveMost),
    ];
    proptest::collection::vec(op, 0..400)
}

/// Blocks beside a model of them. An entry is the index of its row.
#[derive(Default)]
struct Compared {
    blocks: Blocks<u32>,
    rows: Vec<Vec<u8>>,
    model: BTreeMap<Vec<u8>, u32>,
}

impl Compared {
    fn row_of<'a>(&'a self) -> impl Fn(u32) -> &'a [u8] {
        |entry| &self.rows[entry as usize]
    }

    fn insert(&mut self, row: Vec<u8>) {
        if !self.model.contains_key(&row) {
            let entry = self.rows.len() as u32;
            self.rows.push(row.clone());
            self.blocks.insert(Probe::new(&row), entry, |entry| &self.rows[entry as usize]);
            self.model.insert(row, entry);
        }
    }

    fn remove(&mut self, row: &[u8]) {
        let removed = self.blocks.remove(Probe::new(row), |entry| &self.rows[entry as usize]);
        assert_eq!(removed, self.model.remove(row).is_some());
    }
}

proptest! {
    #[test]
    fn blocks_are_an_ordered_map(ops in ops(), bounds in proptest::collection::vec((rows(), rows()), 1..8)) {
        let mut compared = Compared::default();
        for op in ops {
            match op {
                Op::Insert((head, tail)) => compared.insert(row(head, tail)),
                Op::Remove((head, tail)) => compared.remove(&row(head, tail)),
                Op::InsertAll(tail) => (0..=u8::MAX).for_each(|head| compared.insert(row(head, tail))),
                Op::RemoveMost(nth) => {
                    let all: Vec<_> = compared.model.keys().cloned().collect();
                    let most = all.iter().enumerate().filter(|(at, _)| at % usize::from(nth) != 0);
                    most.for_each(|(_, row)| compared.remove(row));
                }
            }
        }
        let Compared { blocks, model, .. } = &compared;
        let row_of = compared.row_of();
        prop_assert_eq!(blocks.is_empty(), model.is_empty());
        let all: Vec<u32> = blocks.range(Bound::Unbounded, None, &row_of).collect();
        prop_assert_eq!(all, model.values().copied().collect::<Vec<_>>());
        for ((head, tail), (to_head, to_tail)) in bounds {
            let (from, to) = (row(head, tail), row(to_head, to_tail));
            prop_assert_eq!(blocks.get(Probe::new(&from), &row_of), model.get(&from).copied());
            for bound in [Bound::Included(&from[..]), Bound::Excluded(&from), Bound::Unbounded] {
                let found: Vec<u32> = blocks.range(bound.map(Probe::new), None, &row_of).collect();
                let expected = model.range::<[u8], _>((bound, Bound::Unbounded)).map(|(_, entry)| *entry);
                prop_assert_eq!(found, expected.collect::<Vec<_>>());
                let found: Vec<u32> =
                    blocks.range(bound.map(Probe::new), Some(Probe::new(&to)), &row_of).collect();
                let is_in = |row: &&[u8]| match bound {
                    Bound::Included(from) => *row >= from,
                    Bound::Excluded(from) => *row > from,
                    Bound::Unbounded => true,
                };
                let expected = model.iter().filter(|(row, _)| is_in(&&row[..]) && **row < to);
                prop_assert_eq!(found, expected.map(|(_, entry)| *entry).collect::<Vec<_>>());
            }
        }
        // Blocks that have become short were joined.
        let count = blocks.more.len() + 1;
        prop_assert!(count <= 2 + 2 * model.len() / BLOCK_MIN, "{} blocks of {} rows", count, model.len());
    }
}
