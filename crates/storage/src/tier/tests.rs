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
    /// A pass over flash in progress, with the rows that it found.
    pass: Option<(Unlearnt, Vec<RowHash>)>,
    /// A range that is being read from flash.
    range: Option<ReadRange>,
}

struct ReadRange {
    from: Bytes,
    to: Bytes,
    rows: Vec<(Bytes, Bytes)>,
    /// The version before the read.
    version: u64,
}

impl Store {
    fn new(cache_bytes: u64) -> Store {
        Store::with_range_rows_max(cache_bytes, RANGE_ROWS_MAX)
    }

    fn with_range_rows_max(cache_bytes: u64, rows_max: usize) -> Store {
        let tier = RamTier::new(cache_bytes, 1 << 30, 7).with_row_filter(1 << 20, 0);
        let tier = tier.with_range_rows_max(rows_max);
        let (flash, model) = (MemoryKeyspace::default(), BTreeMap::new());
        Store { tier, flash, model, fetches: Vec::new(), pass: None, range: None }
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

    fn begin_pass(&mut self) {
        let Some(part) = self.tier.unlearnt() else { return };
        let (from, to) = crate::rows::slots_range(part.slots());
        let mut rows = Vec::new();
        let mut note = |row: &[u8], _: &[u8]| {
            rows.extend(part.hash(row));
            ControlFlow::Continue(())
        };
        self.flash.scan(&from, &to, &mut note).unwrap();
        self.pass = Some((part, rows));
    }

    fn end_pass(&mut self) {
        if let Some((part, rows)) = self.pass.take() {
            self.tier.learn(rows);
            self.tier.complete(&part);
        }
    }

    /// Reads up to five rows of flash from the first place in `from..to` on that is not known.
    fn begin_range(&mut self, from: &[u8], to: &[u8]) {
        let Some((first, mut end)) = self.tier.unknown_range(from, to) else { return };
        let mut rows = Vec::new();
        let mut behind = None;
        let mut note = |row: &[u8], value: &[u8]| {
            if rows.len() == 5 {
                behind = Some(Bytes::copy_from_slice(row));
                return ControlFlow::Break(());
            }
            rows.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
            ControlFlow::Continue(())
        };
        self.flash.scan(&first, &end, &mut note).unwrap();
        end = behind.unwrap_or(end);
        self.range = Some(ReadRange { from: first, to: end, rows, version: self.tier.flash_version() });
    }

    fn end_range(&mut self) {
        if let Some(ReadRange { from, to, rows, version }) = self.range.take() {
            self.tier.learn_range(from, to, rows, version);
        }
    }

    /// Replaces the rows in `from..to` on flash by one row.
    fn ingest(&mut self, from: Bytes, to: Bytes, value: Bytes) {
        self.tier.freeze();
        while self.tier.frozen().next().is_some() {
            self.flush_oldest();
            while !self.tier.settle(8) {}
        }
        self.tier.begin_replacing(&[(from.clone(), to.clone())]);
        // Rows are read meanwhile, from before and from after.
        let read = |store: &mut Store| {
            store.begin_range(&from, &to);
            store.end_range();
            store.fetch(from.clone());
            if let Some((row, value, epoch)) = store.fetches.pop() {
                store.tier.fill(&row, &value, epoch);
            }
            store.fetch(from.clone());
        };
        read(self);
        while !self.tier.replace_step() {
            read(self);
        }
        read(self);
        self.flash.ingest(&from, &to, [(from.clone(), value.clone())]);
        self.model.retain(|row, _| *row < from || to <= *row);
        self.model.insert(from.clone(), value);
        read(self);
        self.tier.end_replacing();
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
        for (from, to) in [EVERYTHING, (&from[..], &to[..])] {
            let mut found = Vec::new();
            let scanned = self.tier.scan_known(from, to, &Cell::new(1000), &mut |row, value| {
                found.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
                ControlFlow::Continue(())
            });
            let all = self.model.iter().filter(|(row, _)| *from <= row[..] && row[..] < *to);
            let all: Vec<_> = all.map(|(row, value)| (row.clone(), value.clone())).collect();
            match scanned {
                Ok(()) => prop_assert_eq!(&found, &all),
                Err(_) => prop_assert_eq!(&found[..], &all[..found.len()]),
            }
            // However few rows are examined, none is wrong.
            for rows_left in [0, 3, 9] {
                let mut found = Vec::new();
                let _ = self.tier.scan_known(from, to, &Cell::new(rows_left), &mut |row, _| {
                    found.push(Bytes::copy_from_slice(row));
                    ControlFlow::Continue(())
                });
                prop_assert!(found.iter().eq(all.iter().map(|(row, _)| row).take(found.len())));
            }
        }
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
    BeginRange(u32),
    EndRange,
    KnowAll,
    BeginPass,
    EndPass,
    LearnAll,
    Ingest(u32, u32),
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
        3 => (0..40u32).prop_map(Op::BeginRange),
        3 => Just(Op::EndRange),
        1 => Just(Op::KnowAll),
        3 => Just(Op::BeginPass),
        3 => Just(Op::EndPass),
        2 => Just(Op::LearnAll),
        1 => (0..40u32, 0..40u32).prop_map(|(from, to)| Op::Ingest(from, to)),
    ];
    proptest::collection::vec(op, 0..200)
}

proptest! {
    /// Rows are frozen, flushed, settled, fetched, filled, learnt and replaced in any order, with a
    /// cache that may hold only a few of them. A read always returns the last write.
    #[test]
    fn reads_see_what_was_written_last(
        ops in ops(),
        cache_bytes in prop_oneof![Just(0u64), Just(20_000), Just(1 << 20)],
        rows_max in prop_oneof![1..8usize, Just(RANGE_ROWS_MAX)],
    ) {
        let mut store = Store::with_range_rows_max(cache_bytes, rows_max);
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
                Op::BeginRange(number) => store.begin_range(&row(number), EVERYTHING.1),
                Op::EndRange => store.end_range(),
                Op::KnowAll => for _ in 0..20 {
                    store.begin_range(EVERYTHING.0, EVERYTHING.1);
                    store.end_range();
                }
                Op::BeginPass => store.begin_pass(),
                Op::EndPass => store.end_pass(),
                Op::LearnAll => while store.tier.unlearnt().is_some() {
                    store.begin_pass();
                    store.end_pass();
                }
                // A memtable that is flushed is settled before rows are replaced.
                Op::Ingest(a, b) if a != b => {
                    while flushed {
                        flushed = !store.tier.settle(8);
                    }
                    store.ingest(row(a).min(row(b)), row(a).max(row(b)), value(a ^ b));
                }
                Op::Ingest(..) => {}
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
    store.tier.forget_clean();
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

fn learn_all(store: &mut Store) {
    store.end_pass();
    while store.tier.unlearnt().is_some() {
        store.begin_pass();
        store.end_pass();
    }
}

fn key_row(number: u32) -> Bytes {
    KeyRef::new(0, format!("key:{number}").as_bytes()).meta_row()
}

fn write_keys(store: &mut Store, numbers: std::ops::Range<u32>) {
    let rows = numbers.map(|number| (key_row(number), Some(Bytes::from_static(b"value")))).collect();
    store.write(WriteSet { ranges_deleted: vec![], rows });
}

fn flush_all(store: &mut Store) {
    store.tier.freeze();
    while store.tier.frozen().next().is_some() {
        store.flush_oldest();
        while !store.tier.settle(1000) {}
    }
}

fn excluded(store: &Store, numbers: std::ops::Range<u32>) -> usize {
    numbers.filter(|number| store.tier.get(&key_row(*number)) == Found::Row(None)).count()
}

/// Scans all rows without flash. Returns the outcome, the number of rows visited, and the number of
/// rows that it may still examine.
fn scan_known(store: &Store, rows_left: usize) -> (Result<()>, usize, usize) {
    let (mut visited, rows_left) = (0, Cell::new(rows_left));
    let scanned = store.tier.scan_known(EVERYTHING.0, EVERYTHING.1, &rows_left, &mut |_, _| {
        visited += 1;
        ControlFlow::Continue(())
    });
    (scanned, visited, rows_left.get())
}

#[test]
fn a_row_that_is_deleted_before_a_flush_leaves_no_trace() {
    let mut store = Store::new(1 << 26);
    let delete = |store: &mut Store, numbers: std::ops::Range<u32>| {
        let rows = numbers.map(|number| (key_row(number), None)).collect();
        store.write(WriteSet { ranges_deleted: vec![], rows });
    };
    let active = |store: &Store| (store.tier.active.len(), store.tier.active.bytes());
    // The filter has not learnt what flash has.
    write_keys(&mut store, 0..10);
    delete(&mut store, 0..10);
    assert_eq!(active(&store).0, 10);
    flush_all(&mut store);
    learn_all(&mut store);
    assert_eq!(active(&store), (0, 0));
    write_keys(&mut store, 0..30);
    assert_eq!(active(&store).0, 30);
    delete(&mut store, 10..40);
    assert_eq!(active(&store).0, 10);
    assert_eq!(excluded(&store, 10..40), 30);
    delete(&mut store, 0..10);
    assert_eq!(active(&store), (0, 0));
    // A frozen memtable has the rows, and then flash.
    write_keys(&mut store, 0..10);
    store.tier.freeze();
    delete(&mut store, 0..10);
    assert_eq!(active(&store).0, 10);
    flush_all(&mut store);
    write_keys(&mut store, 0..10);
    flush_all(&mut store);
    delete(&mut store, 0..10);
    assert_eq!((active(&store).0, excluded(&store, 0..10)), (10, 10));
}

#[test]
fn a_scan_over_many_deleted_rows_ends() {
    for (count, is_short) in [(400, true), (1200, false)] {
        let mut store = Store::new(1 << 26);
        store.begin_range(EVERYTHING.0, EVERYTHING.1);
        store.end_range();
        write_keys(&mut store, 0..count);
        flush_all(&mut store);
        let rows = (0..count).map(|number| (key_row(number), None)).collect();
        store.write(WriteSet { ranges_deleted: vec![], rows });
        let (scanned, visited, left) = scan_known(&store, 1000);
        assert_eq!((scanned.is_ok(), visited), (is_short, 0), "{count} deleted rows");
        assert_eq!(left == 0, !is_short);
        // Known ranges that are deleted as a whole are not examined.
        let ranges_deleted = vec![(Bytes::from_static(&[0]), Bytes::from_static(&[0xff]))];
        store.write(WriteSet { ranges_deleted, rows: vec![] });
        let (scanned, visited, _) = scan_known(&store, 1000);
        assert_eq!((scanned.is_ok(), visited), (true, 0), "{count} rows");
    }
}

/// Elements that come after a `FLUSHALL` may be flushed together with it.
#[test]
fn a_range_in_use_stays_known_when_its_deletion_is_flushed_with_new_rows() {
    let mut store = Store::new(1 << 26);
    store.begin_range(EVERYTHING.0, EVERYTHING.1);
    store.end_range();
    write_keys(&mut store, 0..300);
    flush_all(&mut store);
    let ranges_deleted = vec![(Bytes::from_static(&[0]), Bytes::from_static(&[0xff]))];
    store.write(WriteSet { ranges_deleted, rows: vec![] });
    write_keys(&mut store, 200..350);
    assert_eq!(scan_known(&store, 1000).0, Ok(()));
    flush_all(&mut store);
    let (scanned, visited, _) = scan_known(&store, 1000);
    assert_eq!((scanned, visited), (Ok(()), 150));
}

/// Settling takes seconds under load, and scans of the flushed rows begin at once.
#[test]
fn a_range_that_is_read_while_a_memtable_is_settled_is_learnt() {
    let mut store = Store::new(1 << 20);
    write_keys(&mut store, 0..100);
    flush_all(&mut store);
    write_keys(&mut store, 50..150);
    store.tier.freeze();
    store.flush_oldest();
    // A step of settling comes between each read and its end.
    let read = |store: &mut Store| {
        let first = store.tier.unknown_range(EVERYTHING.0, EVERYTHING.1);
        store.begin_range(EVERYTHING.0, EVERYTHING.1);
        assert!(!store.tier.settle(1));
        store.end_range();
        first != store.tier.unknown_range(EVERYTHING.0, EVERYTHING.1)
    };
    assert!(!read(&mut store), "it may have been read before the flush");
    let mut learnt = 0;
    while store.tier.unknown_range(EVERYTHING.0, EVERYTHING.1).is_some() {
        assert!(read(&mut store), "range {learnt}");
        learnt += 1;
    }
    assert_eq!(learnt, 150 / 5);
    while !store.tier.settle(1) {
        assert_eq!(scan_known(&store, 1000).1, 150);
    }
    let (outcome, rows, _) = scan_known(&store, 1000);
    assert_eq!((outcome, rows), (Ok(()), 150));
}

#[test]
fn a_scan_over_many_short_ranges_ends() {
    let mut store = Store::with_range_rows_max(1 << 26, 1);
    store.begin_range(EVERYTHING.0, EVERYTHING.1);
    store.end_range();
    write_keys(&mut store, 0..300);
    flush_all(&mut store);
    let (scanned, visited, _) = scan_known(&store, usize::MAX);
    assert_eq!((scanned, visited), (Err(StorageError::NotInRam), KNOWN_SCAN_RANGES_MAX));
    assert_eq!(store.tier.unknown_range(EVERYTHING.0, EVERYTHING.1), None, "and it searches no further");
}

/// All ranges are learnt, in any order, while rows are written, deleted and flushed. Whatever is
/// known is within an eighth of the cache's budget, and the clean rows within all of it.
#[test]
fn known_ranges_stay_within_their_part_of_the_budget() {
    let cache_bytes = 400_000;
    let mut store = Store::new(cache_bytes);
    let (mut most, mut draw) = (0, types::Draw::new(7));
    for round in 0..60u64 {
        for _ in 0..100 {
            let number = draw.below(4000) as u32;
            let written = draw.below(4).checked_sub(1).map(|_| value(number));
            store.write(WriteSet { ranges_deleted: vec![], rows: vec![(key_row(number), written)] });
            let from = key_row(draw.below(4000) as u32);
            store.begin_range(&from, EVERYTHING.1);
            store.end_range();
            let mut visited = 0;
            let _ = store.tier.scan_known(&from, EVERYTHING.1, &Cell::new(100), &mut |_, _| {
                visited += 1;
                if visited == 10 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            let bytes = store.tier.known.bytes();
            assert!(bytes <= cache_bytes / KNOWN_PART, "{bytes} bytes in round {round}");
            most = most.max(bytes);
        }
        flush_all(&mut store);
        assert!(store.tier.known.bytes() <= cache_bytes / KNOWN_PART);
        assert!(store.tier.clean_bytes() <= cache_bytes, "{} bytes", store.tier.clean_bytes());
    }
    assert!(most > cache_bytes / KNOWN_PART * 9 / 10, "the bound was reached: {most} bytes");
    store.tier.set_bytes_max(0, 1 << 30);
    for number in 0..2000 {
        store.write(WriteSet { ranges_deleted: vec![], rows: vec![(key_row(number), None)] });
    }
    assert_eq!(store.tier.known.bytes(), 0, "a smaller budget is reached step by step");
    assert_eq!(store.tier.unknown_range(EVERYTHING.0, EVERYTHING.1), None, "and nothing is learnt");
}

#[test]
fn absent_rows_are_known_once_all_rows_are_learnt() {
    let mut store = Store::new(0);
    write_keys(&mut store, 0..1000);
    flush_all(&mut store);
    assert_eq!(excluded(&store, 1000..3000), 0, "nothing is known of rows that were there before");
    store.begin_pass();
    write_keys(&mut store, 1000..2000);
    flush_all(&mut store);
    learn_all(&mut store);
    assert_eq!(excluded(&store, 0..2000), 0);
    assert!(excluded(&store, 2000..10_000) >= 7990);
    // Rows of other kinds are never excluded.
    assert!(matches!(store.tier.get(&crate::rows::region_state_row(3)), Found::OnFlash { .. }));
    // A replaced range is unknown until it is learnt again, and so is the rest of its parts.
    store.ingest(key_row(1).min(key_row(2)), key_row(1).max(key_row(2)), value(1));
    assert!(excluded(&store, 2000..10_000) < 7990);
    learn_all(&mut store);
    assert!(excluded(&store, 2000..10_000) >= 7990);
}

#[test]
fn a_filter_grows_within_its_budget_and_then_errs_more_often() {
    let mut store = Store::new(0);
    store.tier = RamTier::new(0, 1 << 30, 7).with_row_filter(400_000, 0);
    learn_all(&mut store);
    let (mut bytes, mut errors) = (0, 0);
    for thousand in 0..500 {
        write_keys(&mut store, thousand * 1000..(thousand + 1) * 1000);
        flush_all(&mut store);
        let used = store.tier.filter_use();
        assert!(used.bytes >= bytes && used.bytes <= 400_000, "{used:?}");
        bytes = used.bytes;
        errors = 10_000 - excluded(&store, 1_000_000..1_010_000);
        if used.rows <= used.rows_max {
            assert!(errors < 20, "{errors} of 10,000 with {used:?}");
        }
    }
    assert!(bytes > 390_000 && errors > 100, "{bytes} bytes, {errors} errors");
    assert_eq!(excluded(&store, 0..500_000), 0);
    // Most of the rows are deleted.
    assert!(!store.tier.renew_filter(400_000), "the rows are there");
    store.write(WriteSet {
        ranges_deleted: vec![(Bytes::from_static(b"d"), Bytes::from_static(b"e"))],
        rows: vec![],
    });
    write_keys(&mut store, 0..1000);
    flush_all(&mut store);
    assert!(store.tier.renew_filter(1000));
    assert_eq!(excluded(&store, 2000..3000), 0, "nothing is learnt");
    learn_all(&mut store);
    assert_eq!(store.tier.filter_use().rows, 1000);
    assert!(excluded(&store, 1000..11_000) >= 9990);
}

#[test]
fn a_tier_without_a_filter_learns_nothing() {
    let tier = RamTier::new(1 << 20, 1 << 30, 7);
    assert!(tier.unlearnt().is_none());
    assert_eq!(tier.filter_use(), RowFilterUse::default());
}

/// Rows keep their last use from the memtable to the row cache. Only uses end an idle time.
#[test]
fn rows_have_idle_times() {
    let mut store = Store::new(1 << 20);
    let idle = |store: &Store, number| store.tier.idle_time(&row(number));
    store.tier.set_now(10);
    store.write(put(1, Some(value(1))));
    store.write(put(2, Some(value(2))));
    store.tier.set_now(15);
    store.tier.get(&row(2));
    store.tier.peek(&row(1));
    store.tier.set_now(20);
    assert_eq!((idle(&store, 1), idle(&store, 2), idle(&store, 3)), (Some(10), Some(5), None));
    store.tier.freeze();
    assert_eq!((idle(&store, 1), idle(&store, 2)), (Some(10), Some(5)));
    store.flush_oldest();
    while !store.tier.settle(1) {}
    assert_eq!((idle(&store, 1), idle(&store, 2)), (Some(10), Some(5)));
    store.tier.set_now(30);
    store.tier.peek(&row(2));
    store.tier.get(&row(1));
    assert_eq!((idle(&store, 1), idle(&store, 2)), (Some(0), Some(15)));
    // An overwrite is a use.
    store.write(put(2, Some(value(3))));
    assert_eq!(idle(&store, 2), Some(0));
    // What is fetched from flash was not used, until it is looked up.
    store.tier.forget_clean();
    store.fetch(row(1));
    let (fetched, found, epoch) = store.fetches.pop().unwrap();
    assert!(store.tier.fill(&fetched, &found, epoch));
    assert_eq!(store.tier.peek_fetched(&row(1), epoch), None);
    assert_eq!(idle(&store, 1), Some(30));
    assert_eq!(store.tier.get_fetched(&row(1), epoch), None);
    assert_eq!(idle(&store, 1), Some(0));
}

/// A lower limit is reached in steps, and the index shrinks with it. The rows that stay are right.
#[test]
fn a_row_cache_gives_its_memory_back() {
    let mut store = Store::new(64 << 20);
    write_keys(&mut store, 0..80_000);
    flush_all(&mut store);
    let before = store.tier.clean_bytes();
    store.tier.set_bytes_max(1 << 20, 1 << 30);
    assert!(before > 16 << 20 && store.tier.clean_bytes() > before / 2, "one step does little");
    while store.tier.evict() {}
    assert!(store.tier.clean_bytes() <= 1 << 20);
    let kept = |store: &Store| (0..80_000).filter(|n| store.tier.look(&key_row(*n)).is_some()).count();
    let rows = kept(&store);
    assert!(rows > 1000);
    assert!(store.tier.cache.shrink().is_some());
    assert!(store.tier.cache.shrink().is_none());
    assert_eq!(kept(&store), rows);
    store.check().unwrap();
    // Nothing is given back twice, and more can be cached again.
    store.tier.set_bytes_max(64 << 20, 1 << 30);
    write_keys(&mut store, 0..80_000);
    flush_all(&mut store);
    assert_eq!(kept(&store), 80_000);
}

/// A deletion is removed from the cache in steps, between which its rows may get other places.
#[test]
fn an_index_that_shrinks_keeps_no_deleted_row() {
    let mut store = Store::new(64 << 20);
    write_keys(&mut store, 0..80_000);
    flush_all(&mut store);
    store.tier.set_bytes_max(1 << 20, 1 << 30);
    while store.tier.evict() {}
    let ranges_deleted = vec![
        (Bytes::new(), Bytes::from_static(&[2])),
        (Bytes::from_static(&[2]), Bytes::from_static(&[0xff; 32])),
    ];
    store.write(WriteSet { ranges_deleted, rows: vec![] });
    store.tier.freeze();
    store.flush_oldest();
    (0..12).for_each(|_| assert!(!store.tier.settle(8)));
    let places = store.tier.cache.places();
    drop(store.tier.shrink());
    assert!(store.tier.cache.places() < places);
    while !store.tier.settle(8) {}
    let left = (0..80_000).filter(|n| store.tier.look(&key_row(*n)).is_some()).count();
    assert_eq!(left, 0);
    assert_eq!(store.tier.cache.bytes(), 0);
}

#[test]
fn a_filter_follows_its_limit() {
    let mut store = Store::new(1 << 20);
    write_keys(&mut store, 0..20_000);
    flush_all(&mut store);
    learn_all(&mut store);
    let (before, rows) = (store.tier.filter_use(), 20_000);
    store.tier.set_filter_bytes_max(before.bytes / 16, rows);
    let small = store.tier.filter_use();
    assert!(small.bytes <= before.bytes / 16, "{small:?} of {before:?}");
    learn_all(&mut store);
    assert!(store.tier.is_filter_crowded());
    let err = excluded(&store, 20_000..40_000);
    store.tier.set_filter_bytes_max(1 << 20, rows);
    learn_all(&mut store);
    assert!(!store.tier.is_filter_crowded());
    assert!(excluded(&store, 20_000..40_000) > err);
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
