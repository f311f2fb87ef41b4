//! Tests of the ways in which runs reach flash, over a real RocksDB.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use steelyard_rocks::freeze::{CompactionPriority, Freezer, MutexWait, Row, Step, Way};
use steelyard_rocks::Options;

const FILE: Way = Way::SortedFile { level0_files_max: 4, rest: None, stays_in_page_cache: true };
const WAYS: [Way; 4] = [
    Way::Memtable,
    Way::Vector,
    FILE,
    Way::SortedFile { level0_files_max: 6, rest: Some(Duration::from_micros(1)), stays_in_page_cache: false },
];

/// Opens a database with small memtables and levels, so that a run needs several memtables and
/// compaction runs.
fn open(dir: &Path, way: Way) -> Freezer {
    let options = Options { write_buffer_size: 256 << 10, ..Options::default().scaled(1.0 / 256.0) };
    Freezer::open(dir, way, &options, CompactionPriority::Normal).expect("it opens")
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("row:{number:05}"))
}

/// Returns a run. Runs overlap each other, and a fifth of their rows are deletions.
fn run(number: u64) -> Vec<Row> {
    let value = |row: u64| match (row + number) % 5 {
        0 => None,
        _ => Some(Bytes::from(vec![b'a' + (number % 26) as u8; 300 + (row % 100) as usize])),
    };
    let rows = (0..2000u64).filter(|row| (row * 7 + number * 13) % 3 != 0);
    rows.map(|row| (key(row), value(row))).collect()
}

fn freeze(freezer: &Freezer, run: &[Row]) -> Vec<Step> {
    let mut steps = Vec::new();
    freezer.freeze(run, &mut |step| steps.push(step)).expect("it is frozen");
    steps
}

#[test]
fn every_way_leaves_the_rows_of_a_model_and_a_reopened_database_has_them() {
    for way in WAYS {
        let dir = tempfile::tempdir().expect("a directory");
        let mut model: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
        let freezer = open(dir.path(), way);
        for number in 0..12 {
            let run = run(number);
            freeze(&freezer, &run);
            model.extend(run);
            for (key, value) in model.iter().step_by(97) {
                assert_eq!(freezer.get(key).expect("it is read"), *value, "{way:?}, run {number}, {key:?}");
            }
        }
        drop(freezer);
        let again = open(dir.path(), way);
        for (key, value) in &model {
            assert_eq!(again.get(key).expect("it is read"), *value, "{way:?}, {key:?}");
        }
        assert_eq!(again.get(&key(2000)).expect("it is read"), None);
    }
}

#[test]
fn the_steps_of_a_freeze_are_told_in_order() {
    for way in WAYS {
        let dir = tempfile::tempdir().expect("a directory");
        let steps = freeze(&open(dir.path(), way), &run(0));
        match way {
            Way::SortedFile { .. } => assert_eq!(steps, [Step::Waits, Step::Writes, Step::Publishes]),
            _ => assert_eq!(steps, [Step::Writes, Step::Publishes]),
        }
    }
}

#[test]
fn an_ingest_waits_for_room_in_level_0() {
    let dir = tempfile::tempdir().expect("a directory");
    let freezer = open(dir.path(), FILE);
    for number in 0..20 {
        freeze(&freezer, &run(number));
        assert!(freezer.level0_files().expect("it is counted") <= 4, "after run {number}");
    }
}

#[test]
fn a_bound_that_no_compaction_would_keep_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let never = Options { disable_auto_compactions: true, ..Options::default() };
    let below = Way::SortedFile { level0_files_max: 3, rest: None, stays_in_page_cache: true };
    for (way, options) in [(below, Options::default()), (FILE, never)] {
        assert!(Freezer::open(dir.path(), way, &options, CompactionPriority::Normal).is_err(), "{way:?}");
    }
}

#[test]
fn a_filled_database_is_written_over_in_every_way() {
    for way in WAYS {
        let dir = tempfile::tempdir().expect("a directory");
        let freezer = open(dir.path(), way);
        let old: Vec<Row> = (0..2000).map(|row| (key(row), Some(Bytes::from_static(b"old")))).collect();
        old.chunks(500).for_each(|run| freezer.fill(run).expect("it is filled"));
        assert_eq!(freezer.level0_files().expect("it is counted"), 0, "nothing overlaps");
        let newer = run(1);
        freeze(&freezer, &newer);
        let model: BTreeMap<Bytes, Option<Bytes>> = old.into_iter().chain(newer).collect();
        for (key, value) in &model {
            assert_eq!(freezer.get(key).expect("it is read"), *value, "{way:?}, {key:?}");
        }
    }
}

#[test]
fn rows_out_of_order_are_refused_by_a_sorted_file_which_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let freezer = open(dir.path(), FILE);
    let value = Some(Bytes::from_static(b"value"));
    assert!(freezer.freeze(&[(key(2), value.clone()), (key(1), value.clone())], &mut |_| ()).is_err());
    assert_eq!(std::fs::read_dir(dir.path().join("runs")).expect("it is there").count(), 0);
    assert_eq!(freezer.get(&key(2)).expect("it is read"), None);
    freeze(&freezer, &[(key(1), value.clone())]);
    assert_eq!(freezer.get(&key(1)).expect("it is read"), value);
}

#[test]
fn a_file_that_a_crash_left_is_removed_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(dir.path(), FILE));
    let left = dir.path().join("runs").join("0.sst");
    std::fs::write(&left, b"half a file").expect("it is written");
    let freezer = open(dir.path(), FILE);
    assert!(!left.exists());
    freeze(&freezer, &run(0));
}

#[test]
fn a_thread_that_has_read_nothing_has_waited_for_no_mutex() {
    assert_eq!(MutexWait::measure().take(), Duration::ZERO);
}
