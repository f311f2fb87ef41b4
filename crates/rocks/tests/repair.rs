//! Tests of the removal of damaged row files from a real RocksDB.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use steelyard_rocks::repair::Damage;
use steelyard_rocks::{Keyspace, Options};
use storage::rows::slots_range;
use storage::{KeyRef, Reader, StorageError, WriteSet};
use types::{Slot, SlotRange};

const KEYS: usize = 12_000;
const STATE: &[u8] = b"r\0\0\0\0\0\0\0\x01";

/// Returns the options of small files, so that the tree has several levels.
fn options() -> Options {
    Options { max_open_files: 64, ..Options::default().scaled(1.0 / 256.0) }
}

fn row(number: usize) -> (Slot, Bytes) {
    let name = format!("key:{number}");
    let key = KeyRef::new(0, name.as_bytes());
    (key.slot, key.meta_row())
}

/// Returns a value that does not compress.
fn value(number: usize, round: usize) -> Bytes {
    let word = |at: u64| types::mix((number as u64) << 32 | (round as u64) << 16 | at).to_le_bytes();
    (0..12).flat_map(word).collect()
}

fn write(db: &Keyspace, rows: Vec<(Bytes, Option<Bytes>)>) {
    db.write(WriteSet { ranges_deleted: vec![], rows });
    db.flush().unwrap();
}

/// Fills a keyspace through several levels: writes every key three times, and then deletes every
/// seventh key. Returns the final rows.
fn fill(dir: &Path, compacted: bool) -> BTreeMap<Bytes, Bytes> {
    let db = Keyspace::open(dir, &Options { disable_auto_compactions: !compacted, ..options() }).unwrap();
    let mut rows = BTreeMap::new();
    for round in 0..3 {
        for part in 0..4 {
            let numbers = (part..KEYS).step_by(4);
            write(&db, numbers.map(|number| (row(number).1, Some(value(number, round)))).collect());
        }
        if compacted && round == 1 {
            db.reclaim(SlotRange::ALL);
        }
    }
    write(&db, (0..KEYS).step_by(7).map(|number| (row(number).1, None)).collect());
    write(&db, vec![(STATE.into(), Some("state".into()))]);
    for number in (0..KEYS).filter(|number| number % 7 != 0) {
        rows.insert(row(number).1, value(number, 2));
    }
    rows
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut tables: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|of| of == "sst")).collect();
    tables.sort();
    tables
}

fn all_rows(db: &Keyspace) -> Result<BTreeMap<Bytes, Bytes>, StorageError> {
    let mut rows = BTreeMap::new();
    let (from, to) = slots_range(SlotRange::ALL);
    db.view().scan(&from, &to, &mut |row, value| {
        rows.insert(Bytes::copy_from_slice(row), Bytes::copy_from_slice(value));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// Returns the error that a reader of all rows gets, if any.
fn error_of(dir: &Path) -> Option<String> {
    let read = Keyspace::open(dir, &options()).and_then(|db| all_rows(&db).map(drop));
    match read {
        Ok(()) => None,
        Err(StorageError::Damaged(error)) => Some(error),
        Err(other) => panic!("{other}"),
    }
}

/// Removes the damage, and checks that only rows of the reported slots are lost. Leaves the
/// remaining rows in `rows`, and returns the number of these slots.
fn cut_out(dir: &Path, told: &str, rows: &mut BTreeMap<Bytes, Bytes>) -> usize {
    let damage = Damage::look(dir, &options(), told).unwrap().expect("there is damage");
    let lost = damage.lost_slots();
    assert!(!damage.loses_others());
    damage.cut_out(vec![(STATE.into(), Some("changed".into()))]).unwrap();
    let db = Keyspace::open(dir, &options()).unwrap();
    rows.retain(|row, _| {
        let slot = Slot::from_be_bytes([row[1], row[2]]);
        !lost.iter().any(|slots| slots.contains(slot))
    });
    assert_eq!(db.get(STATE).unwrap().unwrap(), "changed");
    lost.iter().map(SlotRange::len).sum()
}

/// Does the same, and checks that no damage is left.
fn mend(dir: &Path, told: &str, mut rows: BTreeMap<Bytes, Bytes>) -> usize {
    let lost = cut_out(dir, told, &mut rows);
    check(dir, &rows);
    lost
}

/// Checks that these rows are there, before and after a compaction of everything.
fn check(dir: &Path, rows: &BTreeMap<Bytes, Bytes>) {
    let db = Keyspace::open(dir, &options()).unwrap();
    assert!(all_rows(&db).unwrap() == *rows, "rows that could be read changed");
    db.reclaim(SlotRange::ALL);
    write(&db, vec![(Bytes::from_static(b"d\0\0late"), Some("1".into()))]);
    assert_eq!(all_rows(&db).unwrap().len(), rows.len() + 1);
}

fn flip(table: &Path, at: usize) {
    let mut bytes = std::fs::read(table).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(table, bytes).unwrap();
}

fn size(table: &Path) -> usize {
    std::fs::metadata(table).unwrap().len() as usize
}

#[test]
fn a_damaged_block_costs_the_slots_of_its_rows() {
    for compacted in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let rows = fill(dir.path(), compacted);
        let largest = tables(dir.path()).into_iter().max_by_key(|table| size(table)).unwrap();
        flip(&largest, size(&largest) / 2);
        let error = error_of(dir.path()).expect("the damage is detected");
        let name = largest.file_name().unwrap().to_str().unwrap();
        assert!(error.contains(name), "{error}");
        let lost = mend(dir.path(), &error, rows);
        // A block of 8 KiB has some dozen rows, each in a slot of its own.
        assert!((1..400).contains(&lost), "{lost} slots, compacted: {compacted}");
        assert!(!largest.exists(), "the damaged file is gone");
    }
}

#[test]
fn damage_that_nobody_has_told_of_is_found_by_reading() {
    let dir = tempfile::tempdir().unwrap();
    let rows = fill(dir.path(), true);
    assert!(Damage::look(dir.path(), &options(), "no file is named").unwrap().is_none());
    let largest = tables(dir.path()).into_iter().max_by_key(|table| size(table)).unwrap();
    flip(&largest, size(&largest) / 3);
    assert!(mend(dir.path(), "no file is named", rows) > 0);
}

#[test]
fn a_file_of_which_nothing_can_be_read_costs_no_more_than_its_range() {
    for harm in [cut_in_half, without_footer, without_file] {
        let dir = tempfile::tempdir().unwrap();
        let rows = fill(dir.path(), true);
        let tables = tables(dir.path());
        let smallest = tables.iter().filter(|table| size(table) > 20_000).min_by_key(|table| size(table));
        harm(smallest.unwrap());
        let error = error_of(dir.path()).expect("the damage is detected");
        let lost = mend(dir.path(), &error, rows);
        assert!(lost > 0 && lost < 16_384, "{lost} slots");
    }
}

fn cut_in_half(table: &Path) {
    let bytes = std::fs::read(table).unwrap();
    std::fs::write(table, &bytes[..bytes.len() / 2]).unwrap();
}

fn without_footer(table: &Path) {
    flip(table, size(table) - 3);
}

fn without_file(table: &Path) {
    std::fs::remove_file(table).unwrap();
}

#[test]
fn a_file_that_is_named_goes_although_all_its_rows_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let rows = fill(dir.path(), true);
    let table = tables(dir.path()).into_iter().max_by_key(|table| size(table)).unwrap();
    let told = format!("a filter in {} cannot be read", table.display());
    assert_eq!(mend(dir.path(), &told, rows), 0);
    assert!(!table.exists());
}

#[test]
fn two_damaged_files_are_cut_out_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = fill(dir.path(), true);
    let mut tables = tables(dir.path());
    tables.sort_by_key(|table| std::cmp::Reverse(size(table)));
    flip(&tables[0], size(&tables[0]) / 2);
    flip(&tables[1], size(&tables[1]) / 2);
    cut_out(dir.path(), "no file is named", &mut rows);
    // If both damaged files had rows of one slot, the second file is found later.
    while let Some(error) = error_of(dir.path()) {
        cut_out(dir.path(), &error, &mut rows);
    }
    assert!(!tables[0].exists() && !tables[1].exists());
    check(dir.path(), &rows);
}

#[test]
fn rows_of_no_slot_that_are_lost_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let db = Keyspace::open(dir.path(), &options()).unwrap();
    write(&db, vec![(STATE.into(), Some("state".repeat(100).into()))]);
    drop(db);
    flip(&tables(dir.path())[0], 50);
    let damage = Damage::look(dir.path(), &options(), "").unwrap().expect("there is damage");
    assert!(damage.loses_others());
    assert!(damage.lost_slots().is_empty());
}
