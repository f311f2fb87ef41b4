use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::rows::KeyRef;
use crate::{MemoryKeyspace, Reader};

const EVERYTHING: (&[u8], &[u8]) = (&[], &[0xff; 32]);

fn row(number: u32) -> Bytes {
    match number % 8 {
        7 => crate::rows::region_state_row(u64::from(number)),
        _ => KeyRef::new(0, format!("key:{number}").as_bytes()).meta_row(),
    }
}

fn value(number: u32) -> Bytes {
    Bytes::from(vec![number as u8; 1 + number as usize % 90])
}

fn put(number: u32, value: Option<Bytes>) -> WriteSet {
    WriteSet { ranges_deleted: vec![], rows: vec![(row(number), value)] }
}

/// A tier over a flash tier in memory, with a model of what reads must return.
struct Store {
    tier: RamTier,
    flash: MemoryKeyspace,
    model: BTreeMap<Bytes, Bytes>,
    /// Reads of flash in progress, with the values they found.
    fetches: Vec<(Bytes, Option<Bytes>, u64)>,
}

impl Store {
    fn new(cache_bytes: u64) -> Store {
        let tier = RamTier::new(cache_bytes, 1 << 30, 7);
        Store { tier, flash: MemoryKeyspace::default(), model: BTreeMap::new(), fetches: Vec::new() }
    }

    fn write(&mut self, writes: WriteSet) {
        self.tier.write(writes.clone());
        for (from, to) in &writes.ranges_deleted {
            self.model.retain(|row, _| row < from || to <= row);
        }
        for (row, value) in writes.rows {
            match value {
                Some(value) => drop(self.model.insert(row, value)),
                None => drop(self.model.remove(&row)),
            }
        }
    }

    fn fetch(&mut self, row: Bytes) {
        if let Found::OnFlash { epoch } = self.tier.get(&row) {
            let value = self.flash.get(&row).unwrap();
            self.fetches.push((row, value, epoch));
        }
    }

    fn flush_oldest(&mut self) {
        let Some(oldest) = self.tier.frozen().next().cloned() else { return };
        let rows = oldest.rows().map(|(row, value)| (row.clone(), value.clone())).collect();
        self.flash.write(WriteSet { ranges_deleted: oldest.ranges().to_vec(), rows });
        self.flash.flush();
    }

    fn check(&mut self) -> std::result::Result<(), TestCaseError> {
        let scan = |(from, to): (&[u8], &[u8])| {
            let mut found = BTreeMap::new();
            let flash = |visit: &mut Visit<'_>| self.flash.scan(from, to, visit);
            let mut order = Vec::new();
            let mut note = |row: &[u8], value: &[u8]| {
                found.insert(Bytes::copy_from_slice(row), Bytes::copy_from_slice(value));
                order.push(row.to_vec());
                ControlFlow::Continue(())
            };
            self.tier.scan(from, to, flash, &mut note).unwrap();
            assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "ascending, each row once");
            found
        };
        prop_assert_eq!(&scan(EVERYTHING), &self.model);
        let (from, to) = (row(3).min(row(5)), row(3).max(row(5)));
        let part: BTreeMap<_, _> =
            self.model.range(from.clone()..to.clone()).map(|(r, v)| (r.clone(), v.clone())).collect();
        prop_assert_eq!(scan((&from, &to)), part);
        for number in 0..40 {
            let row = row(number);
            if let Found::Row(found) = self.tier.get(&row) {
                prop_assert_eq!(found.as_ref(), self.model.get(&row));
            }
        }
        Ok(())
    }

    fn seen_by(&self, view: &MemtableView) -> BTreeMap<Bytes, Bytes> {
        let mut found = BTreeMap::new();
        let flash = |visit: &mut Visit<'_>| self.flash.scan(EVERYTHING.0, EVERYTHING.1, visit);
        let mut note = |row: &[u8], value: &[u8]| {
            found.insert(Bytes::copy_from_slice(row), Bytes::copy_from_slice(value));
            ControlFlow::Continue(())
        };
        view.scan(EVERYTHING.0, EVERYTHING.1, flash, &mut note).unwrap();
        found
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u32, u32),
    Delete(u32),
    DeleteRange(u32, u32),
    Freeze,
    Flush,
    Settle(usize),
    Fetch(u32),
    Fill,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0..40u32, any::<u32>()).prop_map(|(row, value)| Op::Put(row, value)),
        3 => (0..40u32).prop_map(Op::Delete),
        1 => (0..40u32, 0..40u32).prop_map(|(from, to)| Op::DeleteRange(from, to)),
        2 => Just(Op::Freeze),
        2 => Just(Op::Flush),
        4 => (1..9usize).prop_map(Op::Settle),
        4 => (0..40u32).prop_map(Op::Fetch),
        3 => Just(Op::Fill),
    ];
    proptest::collection::vec(op, 0..200)
}

proptest! {
    /// Rows are frozen, flushed, settled, fetched and filled in any order, with a cache that may
    /// hold only a few of them. A read always returns the last write.
    #[test]
    fn reads_see_what_was_written_last(ops in ops(), cache_bytes in prop_oneof![Just(0u64), Just(20_000), Just(1 << 20)]) {
        let mut store = Store::new(cache_bytes);
        let mut flushed = false;
        for op in ops {
            match op {
                Op::Put(number, seed) => store.write(put(number, Some(value(seed)))),
                Op::Delete(number) => store.write(put(number, None)),
                Op::DeleteRange(a, b) => {
                    let ranges_deleted = vec![(row(a), row(b))];
                    store.write(WriteSet { ranges_deleted, rows: vec![(row(a), Some(value(b)))] });
                }
                Op::Freeze => store.tier.freeze(),
                // A memtable that is being settled is already on flash.
                Op::Flush if !flushed && store.tier.frozen().next().is_some() => {
                    store.flush_oldest();
                    flushed = true;
                }
                Op::Settle(rows) if flushed => flushed = !store.tier.settle(rows),
                Op::Flush | Op::Settle(_) => {}
                Op::Fetch(number) => store.fetch(row(number)),
                Op::Fill => if let Some((row, value, epoch)) = store.fetches.pop() {
                    store.tier.fill(&row, &value, epoch);
                }
            }
            store.check()?;
        }
    }

    /// A view keeps seeing its moment while rows are written.
    #[test]
    fn a_view_is_of_one_moment(before in ops(), after in ops(), rows_max in 0..60usize) {
        let mut store = Store::new(1 << 20);
        for op in before {
            match op {
                Op::Put(number, seed) => store.write(put(number, Some(value(seed)))),
                Op::Delete(number) => store.write(put(number, None)),
                Op::DeleteRange(a, b) => {
                    store.write(WriteSet { ranges_deleted: vec![(row(a), row(b))], rows: vec![] });
                }
                Op::Freeze => store.tier.freeze(),
                _ => {}
            }
        }
        let view = store.tier.view(rows_max);
        let seen = store.model.clone();
        for op in after {
            match op {
                Op::Put(number, seed) => store.write(put(number, Some(value(seed)))),
                Op::Delete(number) => store.write(put(number, None)),
                Op::Freeze => store.tier.freeze(),
                _ => {}
            }
            prop_assert_eq!(&store.seen_by(&view), &seen);
        }
    }

    /// Consecutive bounded views see every row once.
    #[test]
    fn parts_of_a_range_make_the_whole(numbers in proptest::collection::vec(0..400u32, 0..200), rows_max in 1..50usize) {
        let mut store = Store::new(0);
        for number in numbers {
            store.write(put(number, Some(value(number))));
        }
        let (mut from, mut seen) = (Bytes::new(), Vec::new());
        loop {
            let (view, end) = store.tier.view_of(&from, EVERYTHING.1, rows_max);
            let to = end.clone().unwrap_or_else(|| Bytes::from_static(EVERYTHING.1));
            view.scan(&from, &to, |_| Ok(()), &mut |row, _| {
                seen.push(Bytes::copy_from_slice(row));
                ControlFlow::Continue(())
            }).unwrap();
            match end {
                Some(end) => from = end,
                None => break,
            }
        }
        prop_assert_eq!(seen, store.model.keys().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn overwrites_of_a_row_collapse() {
    let mut store = Store::new(0);
    store.write(put(1, Some(Bytes::from(vec![1; 100]))));
    let once = store.tier.dirty_bytes();
    for _ in 0..1000 {
        store.write(put(1, Some(Bytes::from(vec![2; 100]))));
    }
    assert_eq!(store.tier.dirty_bytes(), once);
    store.tier.freeze();
    assert_eq!(store.tier.frozen().map(|table| table.len()).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_fetch_that_began_before_a_memtable_was_dropped_fills_nothing() {
    let mut store = Store::new(1 << 20);
    let row = row(1);
    store.fetch(row.clone());
    store.write(put(1, Some(value(1))));
    store.tier.freeze();
    store.flush_oldest();
    while !store.tier.settle(8) {}
    // The written row is evicted, and nothing in RAM contradicts the fetch.
    store.tier.cache.remove_range((&[], &[0xff; 32]), 0, usize::MAX);
    let (row, value, epoch) = store.fetches.pop().unwrap();
    assert_eq!(value, None);
    assert!(!store.tier.fill(&row, &value, epoch));
    assert!(matches!(store.tier.get(&row), Found::OnFlash { .. }));
}

#[test]
fn rows_that_are_in_use_outlive_a_scan() {
    let mut tier = RamTier::new(100 * 400, 1 << 30, 7);
    let (hot, value) = (row(0), Some(Bytes::from(vec![0; 100])));
    tier.fill(&hot, &value, 0);
    for number in 1..1000 {
        tier.fill(&row(number), &value, 0);
        assert!(matches!(tier.get(&hot), Found::Row(Some(_))), "after {number} others");
    }
    assert!(tier.clean_bytes() <= 100 * 400);
}

#[test]
fn a_row_that_takes_a_large_part_of_the_cache_is_not_kept() {
    let mut tier = RamTier::new(64_000, 1 << 30, 7);
    let (small, large) = (Some(Bytes::from(vec![0; 10])), Some(Bytes::from(vec![0; 2000])));
    tier.fill(&row(1), &small, 0);
    tier.fill(&row(1), &large, 0);
    tier.fill(&row(2), &small, 0);
    assert!(matches!(tier.get(&row(1)), Found::OnFlash { .. }));
    assert_eq!(tier.get(&row(2)), Found::Row(small));
}

#[test]
fn the_row_cache_has_what_memtables_leave() {
    let bytes_max = 200_000;
    let mut tier = RamTier::new(1 << 30, bytes_max, 7);
    let value = Some(Bytes::from(vec![0; 100]));
    (0..2000).for_each(|number| assert!(tier.fill(&row(number), &value, 0)));
    assert!(tier.clean_bytes() > bytes_max * 9 / 10 && tier.clean_bytes() <= bytes_max);
    for number in 2000..2170 {
        tier.write(put(number, value.clone()));
    }
    assert!(tier.dirty_bytes() > bytes_max / 4);
    assert!(tier.dirty_bytes() + tier.clean_bytes() <= bytes_max);
    tier.freeze();
    (0..20).for_each(|_| tier.write(put(2000, value.clone())));
    assert!(tier.dirty_bytes() + tier.clean_bytes() <= bytes_max);
    while !tier.settle(8) {}
    for number in 0..2000 {
        let epoch = tier.epoch();
        assert!(tier.fill(&row(number), &value, epoch));
    }
    assert!(tier.clean_bytes() > bytes_max * 9 / 10 && tier.clean_bytes() <= bytes_max);
}

#[test]
fn a_row_that_is_read_once_from_flash_is_used_once() {
    let mut tier = RamTier::new(100 * 400, 1 << 30, 7);
    let value = Some(Bytes::from(vec![0; 100]));
    let hot = 0..40;
    for _ in 0..3 {
        for number in hot.clone() {
            if let Found::OnFlash { epoch } = tier.get(&row(number)) {
                tier.fill(&row(number), &value, epoch);
            }
        }
    }
    for number in 100..5000 {
        let Found::OnFlash { epoch } = tier.get(&row(number)) else { panic!("{number} was never read") };
        tier.fill(&row(number), &value, epoch);
        assert_eq!(tier.get_fetched(&row(number), epoch), None, "the fetched value is the present one");
    }
    assert!(hot.clone().all(|number| matches!(tier.get(&row(number)), Found::Row(Some(_)))));
    let epoch = tier.epoch();
    tier.write(WriteSet { ranges_deleted: vec![], rows: vec![(row(1), None)] });
    assert_eq!(tier.get_fetched(&row(1), epoch), Some(Found::Row(None)), "it was deleted since");
    tier.freeze();
    while !tier.settle(8) {}
    assert_eq!(tier.get_fetched(&row(1), epoch), Some(Found::Row(None)), "the cache is newer");
    assert!(matches!(tier.get_fetched(&row(9999), epoch), Some(Found::OnFlash { .. })));
}
