//! Trees against vectors.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::ControlFlow;

use proptest::prelude::*;
use storage::{MemoryKeyspace, Reader, Txn};
use types::SlotRange;

use super::*;
use crate::exec::{Limits, Mode};

const GENERATION: u64 = 7;

fn key() -> KeyRef<'static> {
    KeyRef::new(0, b"k")
}

fn exec_over<'t, 'r>(txn: &'t mut Txn<'r>) -> Exec<'t, 'r> {
    Exec {
        txn,
        now_ms: 1,
        seed: 0,
        db: 0,
        mode: Mode::Apply,
        slots: SlotRange::ALL,
        limits: Limits::default(),
        resp3: false,
    }
}

/// Runs a function over the rows, and keeps what it writes.
fn with_rows<T>(engine: &mut MemoryKeyspace, run: impl FnOnce(&mut Exec<'_, '_>) -> T) -> T {
    let mut txn = Txn::begin(engine, 1).unwrap();
    let mut exec = exec_over(&mut txn);
    let result = run(&mut exec);
    let writes = txn.finish().0;
    engine.write(writes);
    result
}

/// The order of a tree's items.
type Compare = fn(&[u8], &[u8]) -> Ordering;

/// Checks the counts, bounds and sizes of all nodes, and that no other rows exist. Returns the
/// number of levels.
fn check(engine: &MemoryKeyspace, expected: &[Bytes], compare: Option<Compare>) -> u32 {
    let [_, (from, to), _] = key().generation_ranges(GENERATION);
    let (mut rows, mut bytes) = (0, 0);
    engine
        .scan(&from, &to, &mut |_, value| {
            rows += 1;
            bytes += 8 + value.len() as u64;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(storage::load_state(engine, 1).unwrap().bytes(), bytes);
    let mut met = Vec::new();
    let mut visited = 0;
    let levels = if rows == 0 { 0 } else { check_node(engine, ROOT, &mut met, &mut visited, compare) };
    assert_eq!(visited, rows, "rows that are no node of the tree");
    assert_eq!(met, expected);
    levels
}

fn check_node(
    engine: &MemoryKeyspace,
    number: u64,
    met: &mut Vec<Bytes>,
    visited: &mut usize,
    compare: Option<Compare>,
) -> u32 {
    *visited += 1;
    let row = engine.get(&key().node_row(GENERATION, number)).unwrap().expect("the child has a row");
    let node = Node::decode(&row).unwrap().0;
    assert!(node.len() <= ENTRIES_MAX && !node.is_empty());
    if node.is_leaf() {
        met.extend((0..node.len()).map(|at| node.shared_item(at)));
        return 1;
    }
    let mut levels = None;
    for at in 0..node.len() {
        let child = node.child(at);
        let first = met.len();
        let below = check_node(engine, child.number, met, visited, compare);
        assert_eq!(*levels.get_or_insert(below), below, "all leaves are at one level");
        assert_eq!((met.len() - first) as u64, child.count);
        if let (Some(compare), true) = (compare, at > 0) {
            assert_eq!(compare(&met[first - 1], &child.least), Ordering::Less);
            assert_ne!(compare(&child.least, &met[first]), Ordering::Greater);
        }
    }
    levels.expect("an inner node has children") + 1
}

#[derive(Clone, Debug)]
enum Op {
    /// Inserts this many items of this length at a place, one behind the other or all at the place.
    Insert {
        at: usize,
        count: usize,
        length: usize,
        is_sequence: bool,
    },
    Remove {
        at: usize,
        count: usize,
    },
    /// Removes runs of these lengths, each with a distance from the run before it.
    RemoveRanges(Vec<(usize, usize)>),
    Replace {
        at: usize,
        length: usize,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = || prop_oneof![Just(0usize), Just(usize::MAX), any::<usize>()];
    let length = || prop_oneof![6 => 0..12usize, 2 => 0..200usize, 1 => 1500..6000usize];
    let op = prop_oneof![
        4 => (at(), 1..400usize, length(), any::<bool>())
            .prop_map(|(at, count, length, is_sequence)| Op::Insert { at, count, length, is_sequence }),
        3 => (at(), 1..400usize).prop_map(|(at, count)| Op::Remove { at, count }),
        1 => proptest::collection::vec((0..3usize, 1..3usize), 1..300).prop_map(Op::RemoveRanges),
        2 => proptest::collection::vec((0..1000usize, 0..600usize), 1..4).prop_map(Op::RemoveRanges),
        2 => (at(), length()).prop_map(|(at, length)| Op::Replace { at, length }),
    ];
    proptest::collection::vec(op, 1..30)
}

/// Returns a rank in `0..=len` or, for an item, in `0..len`.
fn rank_of(at: usize, len: usize) -> usize {
    if at == usize::MAX {
        len
    } else {
        at % (len + 1)
    }
}

fn item(number: &mut u64, length: usize) -> Bytes {
    *number += 1;
    let mut item = number.to_string().into_bytes();
    item.resize(length.max(1), b'.');
    item.into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_tree_is_a_vector(ops in ops()) {
        let mut engine = MemoryKeyspace::default();
        let mut model: Vec<Bytes> = Vec::new();
        let mut number = 0;
        for op in ops {
            with_rows(&mut engine, |exec| {
                let separator = |_: &[u8], _: &[u8]| Bytes::new();
                let mut tree = match model.is_empty() {
                    true => Tree::create(&key(), GENERATION, separator),
                    false => Tree::open(&key(), GENERATION, separator),
                };
                match op {
                    Op::Insert { at, count, length, is_sequence } => {
                        let at = rank_of(at, model.len());
                        for step in 0..count {
                            if step > 0 && step % 100 == 0 {
                                // Another command of the same batch goes on.
                                tree.flush(exec);
                                tree = Tree::open(&key(), GENERATION, separator);
                            }
                            let at = if is_sequence { at + step } else { at };
                            let item = item(&mut number, length);
                            let place =
                                if at == model.len() { Place::Last } else { Place::Rank(at as u64) };
                            tree.insert(exec, place, item.clone()).unwrap();
                            model.insert(at, item);
                        }
                    }
                    Op::Remove { at, count } => {
                        let at = rank_of(at, model.len());
                        for _ in 0..count {
                            let Some(at) = model.len().checked_sub(1).map(|last| at.min(last)) else { break };
                            let sought =
                                if at + 1 == model.len() { Sought::Last } else { Sought::Rank(at as u64) };
                            assert_eq!(tree.remove(exec, sought).unwrap(), model.remove(at));
                        }
                    }
                    Op::RemoveRanges(runs) => {
                        let mut ranges = Vec::new();
                        let mut end = 0;
                        for (distance, length) in runs {
                            let start = (end + distance).min(model.len());
                            end = (start + length).min(model.len());
                            ranges.push(start as u64..end as u64);
                        }
                        let mut removed = Vec::new();
                        let visit = &mut |_: &mut Exec<'_, '_>, item| {
                            removed.push(item);
                            Ok(())
                        };
                        tree.remove_ranges(exec, &ranges, visit).unwrap();
                        let is_gone = |at: usize| ranges.iter().any(|range| range.contains(&(at as u64)));
                        let (gone, kept): (Vec<_>, Vec<_>) =
                            model.drain(..).enumerate().partition(|(at, _)| is_gone(*at));
                        assert!(removed.iter().eq(gone.iter().map(|(_, item)| item)));
                        model = kept.into_iter().map(|(_, item)| item).collect();
                    }
                    Op::Replace { at, length } if !model.is_empty() => {
                        let at = rank_of(at, model.len() - 1);
                        model[at] = item(&mut number, length);
                        tree.replace(exec, at as u64, model[at].clone()).unwrap();
                    }
                    Op::Replace { .. } => {}
                }
                if !model.is_empty() {
                    // A tree that is not written yet reads its own changes.
                    let middle = model.len() as u64 / 2;
                    assert_eq!(tree.get(exec, middle).unwrap().as_ref(), model.get(middle as usize));
                }
                tree.flush(exec);
            });
            check(&engine, &model, None);
        }
        if !model.is_empty() {
            with_rows(&mut engine, |exec| {
                let tree = Tree::open(&key(), GENERATION, |_, _| Bytes::new());
                let (skipped, count) = (model.len() as u64 / 3, model.len() as u64 / 2);
                let forward = tree.items(exec, skipped, count, Direction::Forward).unwrap();
                let backward = tree.items(exec, skipped, count, Direction::Backward).unwrap();
                let part = |items: &mut dyn Iterator<Item = &Bytes>| {
                    items.skip(skipped as usize).take(count as usize).cloned().collect::<Vec<_>>()
                };
                assert_eq!(forward, part(&mut model.iter()));
                assert_eq!(backward, part(&mut model.iter().rev()));
                assert_eq!(tree.get(exec, model.len() as u64).unwrap(), None);
            });
        }
    }

    #[test]
    fn a_tree_in_order_finds_ranks(
        batches in proptest::collection::vec((proptest::collection::btree_set((0..4u8, 0..3000u32), 0..300), any::<bool>()), 1..20)
    ) {
        let mut engine = MemoryKeyspace::default();
        let mut model = std::collections::BTreeSet::new();
        // Items with long common beginnings make long bounds.
        let item = |(group, number): &(u8, u32)| {
            let padding = "x".repeat(usize::from(*group) * 60);
            Bytes::from(format!("{group}{padding}{number:05}"))
        };
        let separator = |left: &[u8], right: &[u8]| {
            let common = left.iter().zip(right).take_while(|(left, right)| left == right).count();
            Bytes::copy_from_slice(&right[..=common])
        };
        for (batch, is_removed) in batches {
            with_rows(&mut engine, |exec| {
                let mut tree = match model.is_empty() {
                    true => Tree::create(&key(), GENERATION, separator),
                    false => Tree::open(&key(), GENERATION, separator),
                };
                for number in batch {
                    let item = item(&number);
                    if is_removed && model.remove(&item) {
                        let rank = tree.rank(exec, &|other| other < &item[..]).unwrap();
                        let order = |other: &[u8]| other.cmp(&item[..]);
                        let sought = if number.1 % 2 == 0 { Sought::Rank(rank) } else { Sought::Order(&order) };
                        assert_eq!(tree.remove(exec, sought).unwrap(), item);
                    } else if !is_removed && model.insert(item.clone()) {
                        tree.insert(exec, Place::Behind(&|other| other <= &item[..]), item.clone()).unwrap();
                    }
                }
                tree.flush(exec);
            });
            let expected: Vec<Bytes> = model.iter().cloned().collect();
            check(&engine, &expected, Some(|a, b| a.cmp(b)));
            if !expected.is_empty() {
                with_rows(&mut engine, |exec| {
                    let tree = Tree::open(&key(), GENERATION, separator);
                    for (rank, item) in expected.iter().enumerate().step_by(37) {
                        assert_eq!(tree.rank(exec, &|other| other < &item[..]).unwrap(), rank as u64);
                        assert_eq!(tree.rank(exec, &|other| other <= &item[..]).unwrap(), rank as u64 + 1);
                        assert_eq!(tree.get(exec, rank as u64).unwrap().as_ref(), Some(item));
                    }
                });
            }
        }
    }
}

fn insert_last(exec: &mut Exec<'_, '_>, mut tree: Tree<'_>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        tree.insert(exec, Place::Last, Bytes::from(number.to_string())).unwrap();
    }
    tree.flush(exec);
}

fn open() -> Tree<'static> {
    static KEY: std::sync::LazyLock<KeyRef<'static>> = std::sync::LazyLock::new(key);
    Tree::open(&KEY, GENERATION, |_, _| Bytes::new())
}

#[test]
fn changes_of_a_batch_that_are_undone_leave_the_nodes_as_they_were() {
    let mut engine = MemoryKeyspace::default();
    with_rows(&mut engine, |exec| {
        insert_last(exec, Tree::create(&key(), GENERATION, |_, _| Bytes::new()), 0..500);
        for undoes in [true, false, true] {
            exec.txn.begin_undo();
            for _ in 0..2 {
                let mut tree = open();
                tree.remove_ranges(exec, &[0..10, 20..30], &mut |_, _| Ok(())).unwrap();
                tree.flush(exec);
            }
            exec.txn.end_undo(undoes);
        }
        assert_eq!(exec.txn.take_failure(), None);
    });
    let mut left: Vec<u64> = (0..500).collect();
    for _ in 0..2 {
        left.drain(20..30);
        left.drain(0..10);
    }
    let expected: Vec<Bytes> = left.iter().map(|number| Bytes::from(number.to_string())).collect();
    check(&engine, &expected, None);
}

#[test]
fn a_command_that_does_not_write_a_node_that_it_took_fails() {
    let engine = MemoryKeyspace::default();
    let mut txn = Txn::begin(&engine, 1).unwrap();
    let mut exec = exec_over(&mut txn);
    insert_last(&mut exec, Tree::create(&key(), GENERATION, |_, _| Bytes::new()), 0..5);
    open().remove(&mut exec, Sought::Last).unwrap();
    assert!(matches!(exec.txn.take_failure(), Some(StorageError::Corrupt(_))));
}

/// A reader that counts the rows that are requested.
struct Counting<'a> {
    engine: &'a MemoryKeyspace,
    rows: Cell<usize>,
}

impl Reader for Counting<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        self.rows.set(self.rows.get() + 1);
        self.engine.get(row)
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut storage::Visit<'_>) -> storage::Result<()> {
        panic!("a tree is read by rows")
    }
}

#[test]
fn one_item_of_many_costs_a_node_of_each_level() {
    let mut engine = MemoryKeyspace::default();
    let count = 300_000u64;
    with_rows(&mut engine, |exec| {
        let mut tree = Tree::create(&key(), GENERATION, |_, _| Bytes::new());
        for number in 0..count {
            tree.insert(exec, Place::Rank(number), Bytes::from(number.to_string())).unwrap();
        }
        tree.flush(exec);
    });
    let expected: Vec<Bytes> = (0..count).map(|number| Bytes::from(number.to_string())).collect();
    let levels = check(&engine, &expected, None);
    assert_eq!(levels, 3);
    let [_, (from, to), _] = key().generation_ranges(GENERATION);
    let mut rows = 0;
    engine.scan(&from, &to, &mut |_, _| (rows += 1, ControlFlow::Continue(())).1).unwrap();
    assert!(rows < count / 120, "{rows} rows: nodes are full after insertions in order");
    for rank in [0, count / 2, count - 1] {
        let counting = Counting { engine: &engine, rows: Cell::new(0) };
        let mut txn = Txn::new(&counting, 1, storage::load_state(&engine, 1).unwrap());
        let mut exec = exec_over(&mut txn);
        let mut tree = Tree::open(&key(), GENERATION, |_, _| Bytes::new());
        assert_eq!(tree.get(&exec, rank).unwrap(), Some(Bytes::from(rank.to_string())));
        assert_eq!(counting.rows.take(), 3);
        tree.remove(&mut exec, Sought::Rank(rank)).unwrap();
        tree.flush(&mut exec);
        assert_eq!(counting.rows.take(), 3);
        let writes = txn.finish().0.rows;
        assert_eq!(writes.len(), 3 + 1, "the changed nodes and the region's state");
        assert!(writes.iter().all(|(_, value)| value.as_ref().is_none_or(|row| row.len() < 3000)));
    }
}
