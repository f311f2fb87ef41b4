//! Tests of the keyspace over a real RocksDB: atomic sets, views, flushes and the state after a
//! crash.

use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use steelyard_rocks::{Compression, Keyspace, Options};
use storage::{Reader, StorageError, WriteSet};
use types::Draw;

fn small() -> Options {
    Options::default().scaled(1.0 / 256.0)
}

fn open(dir: &Path) -> Keyspace {
    Keyspace::open(dir, &small()).unwrap()
}

fn put(rows: impl IntoIterator<Item = (String, String)>) -> WriteSet {
    let rows = rows.into_iter().map(|(row, value)| (row.into(), Some(value.into()))).collect();
    WriteSet { ranges_deleted: vec![], rows }
}

fn one(row: &str, value: &str) -> WriteSet {
    put([(row.to_owned(), value.to_owned())])
}

fn get(reader: &dyn Reader, row: &str) -> Option<Bytes> {
    reader.get(row.as_bytes()).unwrap()
}

fn scan(reader: &dyn Reader, from: &str, to: &str) -> Vec<String> {
    let mut rows = Vec::new();
    let visit = &mut |row: &[u8], value: &[u8]| {
        rows.push(format!("{}={}", String::from_utf8_lossy(row), String::from_utf8_lossy(value)));
        ControlFlow::Continue(())
    };
    reader.scan(from.as_bytes(), to.as_bytes(), visit).unwrap();
    rows
}

/// Opens a keyspace without compaction, so that no file disappears while it is copied.
fn open_uncompacted(dir: &Path) -> Keyspace {
    Keyspace::open(dir, &Options { disable_auto_compactions: true, ..small() }).unwrap()
}

/// Copies the files that a loss of power would leave now, without the memtables. The manifest is
/// copied first, so that every table that it lists exists when the tables are copied, even if
/// RocksDB flushes in the meantime.
fn crash_copy(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for tables in [false, true] {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            // The directory of unfinished flushes is not RocksDB's.
            if path.is_file() && path.extension().is_some_and(|extension| extension == "sst") == tables {
                std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    copy
}

#[test]
fn a_set_deletes_its_ranges_first_and_then_writes_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.write(put([("a".into(), "1".into()), ("b".into(), "1".into()), ("z".into(), "1".into())]));
    assert_eq!(get(&db, "a").unwrap(), "1");
    let set = WriteSet {
        // An inverted and an empty range delete nothing.
        ranges_deleted: vec![("a".into(), "c".into()), ("z".into(), "a".into()), ("z".into(), "z".into())],
        rows: vec![("b".into(), Some("2".into())), ("y".into(), None)],
    };
    db.write(set);
    assert_eq!(scan(&db, "a", "zz"), ["b=2", "z=1"]);
    assert_eq!(get(&db, "a"), None);
}

#[test]
fn a_view_stays_at_its_moment() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.write(one("a", "1"));
    assert_eq!(get(&db, "a").unwrap(), "1");
    let view = db.view();
    db.write(one("a", "2"));
    db.write(one("b", "2"));
    db.flush().unwrap();
    assert_eq!(get(&view, "a").unwrap(), "1");
    assert_eq!(scan(&view, "", "z"), ["a=1"]);
    assert_eq!(scan(&db, "", "z"), ["a=2", "b=2"]);
}

#[test]
fn a_scan_keeps_its_bounds_its_break_and_its_order_when_it_grows_large() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let value = "v".repeat(4096);
    for part in 0..10 {
        db.write(put((0..100).map(|i| (format!("r{:04}", part * 100 + i), value.clone()))));
    }
    let mut seen = Vec::new();
    let visit = &mut |row: &[u8], _: &[u8]| {
        seen.push(String::from_utf8(row.to_vec()).unwrap());
        ControlFlow::Continue(())
    };
    db.scan(b"r0001", b"r0900", visit).unwrap();
    assert_eq!(seen, (1..900).map(|i| format!("r{i:04}")).collect::<Vec<_>>());
    let mut count = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        count += 1;
        if count == 700 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    db.scan(b"r", b"s", visit).unwrap();
    assert_eq!(count, 700);
    assert!(scan(&db, "r5", "r1").is_empty());
}

#[test]
fn a_flush_makes_everything_written_before_it_durable_and_nothing_less() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_uncompacted(dir.path());
    // This is more than the intended size of a memtable.
    for i in 0..3000 {
        db.write(one(&format!("r{i:05}"), &"v".repeat(1000)));
    }
    assert!(db.unflushed_bytes() > 3_000_000);
    assert!(db.is_flush_due() && !db.has_room());
    db.flush().unwrap();
    assert!(!db.is_flush_due() && db.has_room());
    assert_eq!(db.unflushed_bytes(), 0);
    db.write(one("late", "1"));
    let copy = crash_copy(dir.path());
    let survived = open(copy.path());
    assert_eq!(scan(&survived, "r", "s").len(), 3000);
    assert_eq!(get(&survived, "late"), None, "no WAL: unflushed rows are lost");
    drop(survived);
    db.flush().unwrap();
    assert_eq!(get(&open(crash_copy(dir.path()).path()), "late").unwrap(), "1");
}

#[test]
fn what_a_crash_leaves_is_a_prefix_of_the_write_sets() {
    let dir = tempfile::tempdir().unwrap();
    let db = &open_uncompacted(dir.path());
    const ROUNDS: usize = 10;
    const SETS: usize = 600;
    std::thread::scope(|scope| {
        // One round may wait while another is being written, so that each crash happens during
        // writes. A failed assertion below drops `begin`, which ends the writer.
        let (begin, rounds) = std::sync::mpsc::sync_channel::<()>(1);
        scope.spawn(move || {
            for (round, ()) in rounds.iter().enumerate() {
                for i in round * SETS..(round + 1) * SETS {
                    let rows = [(format!("r{i:05}"), "v".repeat(1000)), ("state".to_owned(), i.to_string())];
                    db.write(put(rows));
                }
                // Views freeze memtables, too.
                drop(db.view());
            }
        });
        let mut survivors = 0;
        for _ in 0..ROUNDS {
            begin.send(()).unwrap();
            db.flush().unwrap();
            let survived = open(crash_copy(dir.path()).path());
            let rows = scan(&survived, "r", "s").len();
            let state = get(&survived, "state").map(|text| String::from_utf8(text.to_vec()).unwrap());
            assert_eq!(state.map_or(0, |text| text.parse::<usize>().unwrap() + 1), rows);
            assert!(rows >= survivors, "{rows} rows after {survivors}");
            survivors = rows;
        }
        // All rounds except the two that may be in progress were written before the last flush.
        assert!(survivors >= (ROUNDS - 2) * SETS, "{survivors}");
    });
}

#[test]
fn the_logs_of_earlier_opens_do_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let keyspace = open(dir.path());
        keyspace.write(one(&format!("row{round}"), "x"));
        keyspace.flush().unwrap();
        drop(keyspace);
        let paths = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        assert_eq!(logs.count(), 1, "round {round}");
    }
    // One with content is not ours to delete. RocksDB reads it.
    let foreign = dir.path().join("999999.log");
    std::fs::write(&foreign, [0; 100]).unwrap();
    drop(Keyspace::open(dir.path(), &small()));
    assert!(foreign.exists());
    let keyspace = open(dir.path());
    assert!((0..4).all(|round| get(&keyspace.view(), &format!("row{round}")).is_some()));
}

#[test]
fn tables_without_the_file_that_names_their_manifest_are_not_taken_for_a_new_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = open(dir.path());
    keyspace.write(one("row", "x"));
    keyspace.flush().unwrap();
    drop(keyspace);
    let current = dir.path().join("CURRENT");
    let kept = std::fs::read(&current).unwrap();
    std::fs::remove_file(&current).unwrap();
    for _ in 0..2 {
        let refused = Keyspace::open(dir.path(), &small()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("CURRENT is missing"), "{refused}");
    }
    std::fs::write(&current, kept).unwrap();
    assert_eq!(get(&open(dir.path()).view(), "row").as_deref(), Some(&b"x"[..]));
}

#[test]
fn a_second_opener_is_refused_and_damage_is_told_from_other_errors() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    assert!(matches!(Keyspace::open(dir.path(), &small()), Err(StorageError::Engine(_))));
    db.write(put((0..1000).map(|i| (format!("r{i:05}"), "v".repeat(100)))));
    db.flush().unwrap();
    drop(db);
    let table = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|ext| ext == "sst"))
        .unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let db = open(dir.path());
    let visit = &mut |_: &[u8], _: &[u8]| ControlFlow::Continue(());
    assert!(matches!(db.scan(b"r", b"s", visit), Err(StorageError::Damaged(_))));
    assert!(matches!(db.get(b"r00000"), Err(StorageError::Damaged(_))));
}

#[test]
fn stats_and_sizes_say_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    // The bytes are incompressible, so that file sizes correspond to row sizes.
    let mut draw = Draw::new(1);
    for i in 0..2000u32 {
        let value: Vec<u8> = (0..1000).map(|_| draw.number() as u8).collect();
        let row = Bytes::from([&b"d"[..], &i.to_be_bytes()].concat());
        db.write(WriteSet { ranges_deleted: vec![], rows: vec![(row, Some(value.into()))] });
    }
    db.flush().unwrap();
    let bound = |i: u32| Bytes::from([&b"d"[..], &i.to_be_bytes()].concat());
    let ranges = [(bound(0), bound(2000)), (bound(0), bound(500)), (bound(5000), bound(6000))];
    let sizes = db.approximate_sizes(&ranges).unwrap();
    let stats = db.stats().unwrap();
    assert!(stats.live_sst_bytes > 2_000_000, "{stats:?}");
    assert!(sizes[0] > 1_900_000 && sizes[0] <= stats.live_sst_bytes, "{sizes:?}");
    assert!(sizes[1] > 350_000 && sizes[1] < 650_000, "{sizes:?}");
    assert_eq!(sizes[2], 0);
    assert_eq!(stats.files_per_level.len(), 7);
    assert!(stats.files_per_level.iter().sum::<u64>() > 0);
    assert!(stats.row_cache_bytes > 1000, "rows that were just written are in RAM");
    drop(db);
    let db = open(dir.path());
    db.get(&bound(7)).unwrap().unwrap();
    db.get(&bound(7)).unwrap().unwrap();
    let stats = db.stats().unwrap();
    assert!(stats.block_cache_hits + stats.block_cache_misses > 0);
    assert_eq!((stats.row_cache_hits, stats.row_cache_misses), (1, 1));
}

#[test]
fn flushed_rows_are_in_files_alone_and_nothing_is_left_of_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let unfinished = dir.path().join("flushing");
    std::fs::create_dir_all(&unfinished).unwrap();
    std::fs::write(unfinished.join("0.sst"), b"what a crash left").unwrap();
    let db = open_uncompacted(dir.path());
    let left = || std::fs::read_dir(&unfinished).unwrap().count();
    assert_eq!(left(), 0);
    db.write(put((0..1000).map(|i| (format!("r{i:04}"), "old".repeat(10)))));
    db.flush().unwrap();
    // A range deletion reaches flash, and spares the rows that were written after it.
    let ranges_deleted = vec![("r0100".into(), "r0900".into()), ("r0950".into(), "r0940".into())];
    db.write(WriteSet { ranges_deleted, rows: vec![("r0500".into(), Some("new".into()))] });
    db.write(WriteSet { ranges_deleted: vec![], rows: vec![("r0001".into(), None)] });
    db.flush().unwrap();
    // A memtable of nothing but a range deletion is flushed, too.
    db.write(WriteSet { ranges_deleted: vec![("r0990".into(), "r1".into())], rows: vec![] });
    db.flush().unwrap();
    assert_eq!((left(), db.unflushed_bytes()), (0, 0));
    drop(db);
    let again = open_uncompacted(dir.path());
    let rows = scan(&again, "r", "s");
    assert_eq!(rows.len(), 99 + 1 + 90);
    assert!(rows.contains(&"r0500=new".to_owned()));
    assert_eq!(again.stats().unwrap().files_per_level.iter().sum::<u64>(), 3);
}

#[test]
fn a_flush_waits_for_compaction_as_a_writer_of_rocksdb_does() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        level0_file_num_compaction_trigger: 2,
        level0_slowdown_writes_trigger: 3,
        level0_stop_writes_trigger: 4,
        compression_per_level: vec![Compression::Zstd; 7],
        max_bytes_for_level_base: 1 << 30,
        ..small()
    };
    let db = Keyspace::open(dir.path(), &options).unwrap();
    // Each compaction of level 0 reads and compresses these rows again, which takes longer than a
    // flush of a few rows.
    for round in 0..3 {
        let filling = (0..20_000).map(|row| (format!("r{row:05}"), format!("{row:05}{round}").repeat(100)));
        db.write(put(filling));
        db.flush().unwrap();
    }
    for i in 0..40 {
        db.write(put((0..50).map(|row| (format!("r{:05}", row * 400), format!("{i}").repeat(100)))));
        db.flush().unwrap();
        let stats = db.stats().unwrap();
        assert!(stats.files_per_level[0] <= 4, "after flush {i}: {:?}", stats.files_per_level);
    }
    drop(db);
    let again = open_uncompacted(dir.path());
    assert_eq!(scan(&again, "r", "s").len(), 20_000);
    assert_eq!(get(&again, "r19600").unwrap(), "39".repeat(100));
}

#[test]
fn a_flush_that_meets_a_damaged_file_fails_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_uncompacted(dir.path());
    db.write(put((0..1000).map(|i| (format!("r{i:04}"), "old".repeat(10)))));
    db.flush().unwrap();
    drop(db);
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let table = files.filter(|path| path.extension().is_some_and(|of| of == "sst")).last().unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[..100].fill(0);
    std::fs::write(&table, bytes).unwrap();
    let db = open_uncompacted(dir.path());
    // An ingest looks for the place of its first row in the files that may overlap it.
    db.write(one("r0000", "new"));
    assert!(matches!(db.flush(), Err(StorageError::Damaged(_))));
    assert_eq!(get(&db, "r0000").unwrap(), "new");
    assert!(db.unflushed_bytes() > 0);
    assert_eq!(std::fs::read_dir(dir.path().join("flushing")).unwrap().count(), 0);
}

#[test]
fn a_batched_look_up_finds_what_single_ones_find_and_fills_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let db = Keyspace::open(dir.path(), &small()).unwrap();
    for round in 0..3 {
        let rows = (0..300).filter(|row| row % (round + 2) == 0);
        db.write(put(rows.map(|row| (format!("r{row:05}"), format!("v{row}.{round}")))));
        db.flush().unwrap();
    }
    db.write(one("r00004", "in a memtable"));
    db.forget_clean_rows();
    let asked: Vec<Bytes> =
        (0..300).rev().chain([4, 4]).map(|row| Bytes::from(format!("r{row:05}"))).collect();
    let before = db.ram_use();
    let fetched = db.fetch(&asked);
    assert_eq!(fetched.len(), asked.len());
    assert_eq!(db.ram_use().misses - before.misses, 299);
    for (row, found) in asked.iter().zip(fetched) {
        let found = found.unwrap();
        let name = std::str::from_utf8(row).unwrap();
        assert_eq!(found.value, get(&db, name), "{name}");
        assert_eq!(db.in_ram().get_or(row, Some(&found)), Some(found.value.clone()));
    }
    assert_eq!(db.ram_use().misses - before.misses, 299, "the rows are in RAM by now");
    // A fetched value counts no longer once a memtable was dropped, unless RAM has the row.
    let row = Bytes::from_static(b"r00001");
    let old = db.fetch(std::slice::from_ref(&row)).remove(0).unwrap();
    db.write(one("r00001", "new"));
    db.flush().unwrap();
    db.forget_clean_rows();
    assert_eq!(db.in_ram().get_or(&row, Some(&old)), None);
}

/// Returns an option of the newest OPTIONS file, as RocksDB wrote it.
fn in_options_file(dir: &Path, name: &str) -> String {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let newest =
        files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("OPTIONS-")).max();
    let text = std::fs::read_to_string(newest.unwrap()).unwrap();
    let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
    values.next_back().unwrap_or_else(|| panic!("no {name}")).to_owned()
}

#[test]
fn options_reach_rocksdb_at_the_start_and_those_that_can_change_reach_it_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small();
    for (name, value) in [
        ("max_background_jobs", "3"),
        ("compaction_readahead_size", "1mb"),
        ("max_file_opening_threads", "5"),
        ("writable_file_max_buffer_size", "2mb"),
        ("skip_stats_update_on_db_open", "yes"),
        ("target_file_size_multiplier", "2"),
    ] {
        options.set(name, value).unwrap();
    }
    let db = Keyspace::open(dir.path(), &options).unwrap();
    let at = |name| in_options_file(dir.path(), name);
    assert_eq!((at("max_background_jobs"), at("compaction_readahead_size")), ("3".into(), "1048576".into()));
    assert_eq!((at("max_file_opening_threads"), at("target_file_size_multiplier")), ("5".into(), "2".into()));
    assert_eq!(at("writable_file_max_buffer_size"), "2097152");
    assert_eq!(at("skip_stats_update_on_db_open"), "true");
    let change = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        db.set_options(&pairs)
    };
    // Every option that can change is accepted with another value than before.
    for name in Options::names().filter(|name| Options::can_change(name)) {
        let now = db.options().get(name).unwrap();
        let other = match now.as_str() {
            "no" => "yes".to_owned(),
            "yes" => "no".to_owned(),
            "0" => "1048576".to_owned(),
            number => (number.parse::<u64>().unwrap() + if name.starts_with("level0_file") { 0 } else { 1 })
                .to_string(),
        };
        change(&[(name, &other)]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(db.options().get(name).unwrap(), other);
        if !["block_cache_size", "row_cache_bytes"].contains(&name) {
            let told = at(name).replace("true", "yes").replace("false", "no");
            // RocksDB shows a factor as a number with decimals.
            assert_eq!(told.strip_suffix(".000000").unwrap_or(&told), other, "{name}");
        }
    }
    change(&[("disable_auto_compactions", "no")]).unwrap();
    let refused = change(&[("level0_stop_writes_trigger", "70"), ("max_open_files", "100")]);
    assert!(refused.is_err_and(|error| error.to_string().contains("max_open_files")));
    assert_ne!(at("level0_stop_writes_trigger"), "70", "nothing of a refused change is done");
    db.write(one("r1", "after the changes"));
    db.flush().unwrap();
    assert_eq!(get(&db, "r1").unwrap(), "after the changes");
}

#[test]
fn the_bytes_that_flushes_and_compactions_write_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { level0_file_num_compaction_trigger: 2, ..small() };
    let db = Keyspace::open(dir.path(), &options).unwrap();
    let write = |round: usize| {
        db.write(put((0..2000).map(|row| (format!("r{row:05}"), format!("{round}{row:05}").repeat(30)))));
        db.flush().unwrap();
    };
    write(0);
    let first = db.stats().unwrap();
    let payload = 2000 * (6 + 180);
    assert!(first.flush_bytes > payload && first.flush_bytes < 2 * payload, "{first:?}");
    (1..8).for_each(write);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while db.stats().unwrap().compaction_write_bytes == 0 {
        assert!(std::time::Instant::now() < until, "{:?}", db.stats());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let last = db.stats().unwrap();
    assert!(last.flush_bytes > 8 * payload && last.compaction_read_bytes > 0, "{last:?}");
}

/// The rows of the first files have the sequence number 0 in RocksDB.
#[test]
fn the_first_rows_outlive_a_compaction_that_an_early_view_sees() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |numbers: std::ops::Range<u32>| put(numbers.map(|n| (format!("d{n:04}"), "v".to_owned())));
    for is_opened_again in [false, true] {
        let dir = dir.path().join(is_opened_again.to_string());
        let mut keyspace = open(&dir);
        keyspace.write(rows(0..1000));
        keyspace.flush().unwrap();
        if is_opened_again {
            drop(keyspace);
            keyspace = open(&dir);
        }
        let view = keyspace.view();
        for _ in 0..3 {
            keyspace.write(rows(500..1500));
            keyspace.flush().unwrap();
        }
        keyspace.reclaim(types::SlotRange::ALL);
        assert_eq!(scan(&keyspace, "d", "e").len(), 1500);
        assert_eq!(scan(&view, "d", "e").len(), 1000);
    }
}
