//! Tests of the RAM tier with several threads over a real RocksDB: no read returns a value older
//! than a completed write, a reader's values never go backwards, and rows read at one moment belong
//! together.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use steelyard_rocks::{Keyspace, Options};
use storage::rows::KeyRef;
use storage::{Reader, WriteSet};

const ROWS: usize = 128;
const WRITES: u64 = 60_000;

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn row(at: usize) -> Bytes {
    Bytes::from(format!("row{at:02}"))
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

fn put(n: u64) -> Option<Bytes> {
    Some(Bytes::from([&n.to_be_bytes()[..], &[0; 200]].concat()))
}

/// Returns options whose row cache has room for some of the rows only, so that rows are evicted and
/// read again.
fn options() -> Options {
    Options { row_cache_bytes: 26_000, ..Options::default().scaled(1.0 / 1024.0) }
}

fn flush_all_along(db: &Keyspace, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        db.flush().unwrap();
    }
}

#[test]
fn no_read_is_older_than_a_completed_write() {
    let dir = tempfile::tempdir().unwrap();
    let db = Keyspace::open(dir.path(), &options()).unwrap();
    // The newest completed write of each row.
    let completed: Vec<AtomicU64> = (0..ROWS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    db.write(WriteSet { ranges_deleted: vec![], rows: (0..ROWS).map(|at| (row(at), put(0))).collect() });
    std::thread::scope(|scope| {
        let (db, completed, done) = (&db, &completed, &done);
        scope.spawn(|| flush_all_along(db, done));
        for reader in 0..3 {
            scope.spawn(move || {
                let mut seen = [0; ROWS];
                let mut at = reader;
                while !done.load(Ordering::Relaxed) {
                    at = (at * 5 + 1 + reader) % ROWS;
                    let least = completed[at].load(Ordering::SeqCst).max(seen[at]);
                    let value = match reader {
                        2 => db.view_of(&row(at), b"s").get(&row(at)),
                        _ => db.get(&row(at)),
                    };
                    let value = number(&value.unwrap().expect("every set writes the row again"));
                    assert!(value >= least, "row {at}: {value} after {least}");
                    seen[at] = value;
                }
            });
        }
        let _stop = SetOnDrop(done);
        for n in 1..=WRITES {
            let at = (n as usize * 7) % ROWS;
            // Sometimes the row is deleted with a range and written again in the same set.
            let ranges_deleted = match n % 50 {
                0 => vec![(row(at), Bytes::from([&row(at)[..], &[0]].concat()))],
                _ => vec![],
            };
            db.write(WriteSet { ranges_deleted, rows: vec![(row(at), put(n))] });
            completed[at].store(n, Ordering::SeqCst);
            // Waits until a reader has read a row from flash, whichever thread has the CPU.
            if n % 4000 == 0 {
                db.flush().unwrap();
                let misses = || db.stats().unwrap().row_cache_misses;
                let before = misses();
                while misses() == before {
                    std::thread::yield_now();
                }
            }
        }
    });
    let stats = db.stats().unwrap();
    assert!(stats.row_cache_hits > 0 && stats.row_cache_misses > 0, "{stats:?}");
}

#[test]
fn what_is_seen_at_one_moment_was_written_at_one() {
    let dir = tempfile::tempdir().unwrap();
    let db = Keyspace::open(dir.path(), &options()).unwrap();
    let all =
        |n: u64| WriteSet { ranges_deleted: vec![], rows: (0..ROWS).map(|at| (row(at), put(n))).collect() };
    db.write(all(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, done) = (&db, &done);
        scope.spawn(|| flush_all_along(db, done));
        scope.spawn(move || {
            let _stop = SetOnDrop(done);
            (1..5000).for_each(|n| db.write(all(n)));
        });
        let mut in_ram = 0;
        let mut last = 0;
        while !done.load(Ordering::Relaxed) {
            let mut seen = Vec::new();
            let visit = &mut |_: &[u8], value: &[u8]| {
                seen.push(number(value));
                ControlFlow::Continue(())
            };
            db.view().scan(b"row", b"s", visit).unwrap();
            assert_eq!(seen, vec![seen[0]; ROWS]);
            assert!(seen[0] >= last);
            last = seen[0];
            let ram = db.in_ram();
            let rows: Option<Vec<_>> = (0..ROWS).map(|at| ram.get(&row(at))).collect();
            drop(ram);
            if let Some(rows) = rows {
                in_ram += 1;
                let rows: Vec<u64> = rows.into_iter().map(|value| number(&value.unwrap())).collect();
                assert_eq!(rows, vec![rows[0]; ROWS]);
            }
        }
        assert!(in_ram > 0, "all rows were in RAM at some moment");
    });
}

/// Ranges are learnt by two threads while rows are written, deleted by range, and flushed. The
/// visitor of a scan looks at rows, although writers wait for the lock that the scan holds.
#[test]
fn a_scan_in_ram_sees_the_rows_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { row_cache_bytes: 1 << 20, ram_bytes: 8 << 20, ..options() };
    let db = Keyspace::open(dir.path(), &options).unwrap();
    // Every third set deletes the range and writes only some of the rows.
    let is_written = |at: usize, n: u64| n % 3 != 0 || at % 4 == 1;
    let all = |n: u64| WriteSet {
        ranges_deleted: if n % 3 == 0 { vec![(row(0), Bytes::from_static(b"s"))] } else { vec![] },
        rows: (0..ROWS).filter(|at| is_written(*at, n)).map(|at| (row(at), put(n))).collect(),
    };
    db.write(all(1));
    let (done, in_ram) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (db, done, in_ram) = (&db, &done, &in_ram);
        scope.spawn(|| flush_all_along(db, done));
        for _ in 0..2 {
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let mut seen = Vec::new();
                    let scanned = db.in_ram().scan(b"row", b"s", &Cell::new(1000), &mut |row, value| {
                        let again = db.in_ram_again().get(row);
                        assert!(again.is_none_or(|again| again.as_deref() == Some(value)));
                        seen.push(number(value));
                        ControlFlow::Continue(())
                    });
                    if scanned.is_err() {
                        db.learn_range(b"row", b"s").unwrap();
                        continue;
                    }
                    in_ram.fetch_add(1, Ordering::Relaxed);
                    let n = *seen.iter().max().unwrap();
                    assert!(n >= last, "{n} after {last}");
                    last = n;
                    let written = (0..ROWS).filter(|at| is_written(*at, n)).count();
                    assert_eq!(seen, vec![n; written]);
                }
            });
        }
        let _stop = SetOnDrop(done);
        (2..3000).for_each(|n| db.write(all(n)));
        let scanned = || in_ram.load(Ordering::Relaxed);
        // Until a scan has found all rows, whichever thread has the CPU.
        let before = scanned();
        while scanned() < before + 10 {
            std::thread::yield_now();
        }
    });
    assert!(db.stats().unwrap().row_cache_misses > 0, "ranges were read from flash");
}

#[test]
fn a_hit_does_not_touch_rocksdb() {
    let dir = tempfile::tempdir().unwrap();
    let db = Keyspace::open(dir.path(), &Options::default()).unwrap();
    db.write(WriteSet { ranges_deleted: vec![], rows: vec![(row(1), Some("v".into()))] });
    db.flush().unwrap();
    let before = db.stats().unwrap();
    for _ in 0..1000 {
        assert_eq!(db.get(&row(1)).unwrap().unwrap(), "v");
    }
    let after = db.stats().unwrap();
    let touched = |s: &steelyard_rocks::Stats| s.block_cache_hits + s.block_cache_misses;
    assert_eq!(touched(&after), touched(&before));
    assert_eq!(after.row_cache_hits, before.row_cache_hits + 1000);
    // Without the row cache the same reads reach the block cache, which proves that the count above
    // is meaningful.
    drop(db);
    let db = Keyspace::open(dir.path(), &Options { row_cache_bytes: 0, ..Options::default() }).unwrap();
    for _ in 0..10 {
        db.get(&row(1)).unwrap();
    }
    assert!(touched(&db.stats().unwrap()) >= 10);
}

#[test]
fn absent_rows_are_known_after_one_look() {
    let dir = tempfile::tempdir().unwrap();
    let db = Keyspace::open(dir.path(), &Options::default()).unwrap();
    assert_eq!(db.get_if_in_ram(&row(1)), None);
    assert_eq!(db.get(&row(1)).unwrap(), None);
    assert_eq!(db.get_if_in_ram(&row(1)), Some(None));
}

#[test]
fn absent_rows_are_known_without_a_look_once_all_rows_are_learnt() {
    let dir = tempfile::tempdir().unwrap();
    let key = |number: u32| KeyRef::new(0, format!("{{one slot}}{number}").as_bytes()).meta_row();
    let write = |db: &Keyspace, numbers: std::ops::Range<u32>| {
        let rows = numbers.map(|number| (key(number), Some(Bytes::from_static(&[7; 300])))).collect();
        db.write(WriteSet { ranges_deleted: vec![], rows });
    };
    let options = Options { row_cache_bytes: 0, ..Options::default() };
    {
        let db = Keyspace::open(dir.path(), &options).unwrap();
        write(&db, 0..20_000);
        db.flush().unwrap();
    }
    let db = Keyspace::open(dir.path(), &options).unwrap();
    let known = |numbers: std::ops::Range<u32>| {
        numbers.filter(|number| db.get_if_in_ram(&key(*number)).is_some()).count()
    };
    assert_eq!(known(0..30_000), 0, "nothing is learnt yet");
    // A pass that is ended does not complete its part.
    for _ in 0..300 {
        assert!(db.learn_rows(&mut || false).unwrap());
    }
    assert!(db.filter_use().slots < 16384 && known(0..130_000) == 0);
    let mut slices = 0;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for thousand in 20..30 {
                write(&db, thousand * 1000..(thousand + 1) * 1000);
                db.flush().unwrap();
            }
        });
        let mut after_slice = || {
            slices += 1;
            true
        };
        while db.learn_rows(&mut after_slice).unwrap() {}
        writing.join().unwrap();
    });
    assert!((6..=9).contains(&slices), "a slice has about a MiB: {slices}");
    assert_eq!(known(0..30_000), 0);
    assert!(known(30_000..130_000) > 99_800);
    let used = db.filter_use();
    assert!(used.slots == 16384 && (29_900..=30_000).contains(&used.rows), "{used:?}");
    for number in 0..30_000 {
        assert!(db.get(&key(number)).unwrap().is_some(), "{number}");
    }
}

/// Learns all ranges of a set's members as random picks do, and returns the number of readings.
fn readings_of(members: usize, row_cache_bytes: u64) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let db = Keyspace::open(dir.path(), &Options { row_cache_bytes, ..Options::default() }).unwrap();
    let key = KeyRef::new(0, b"set");
    let member = |at: usize| key.element_row(7, format!("member:{at:05}").as_bytes());
    let rows = (0..members).map(|at| (member(at), Some(Bytes::new()))).collect();
    db.write(WriteSet { ranges_deleted: vec![], rows });
    db.flush().unwrap();
    let (from, to) = (member(0), member(members));
    let mut readings = 0;
    for pick in 0..members {
        let first = member(pick * 7_919 % members);
        let mut seen = 0;
        let mut scan = || {
            db.in_ram().scan(&first, &to, &Cell::new(usize::MAX), &mut |row, _| {
                assert_eq!(row, &first[..]);
                seen += 1;
                ControlFlow::Break(())
            })
        };
        let mut is_known = scan().is_ok();
        if !is_known {
            readings += 1;
            // In a small budget the clock may need another turn.
            is_known = db.learn_range(&first, &to).unwrap();
            assert_eq!(scan().is_ok(), is_known);
        }
        assert_eq!(seen, usize::from(is_known));
    }
    let mut left = Vec::new();
    let rows_left = Cell::new(usize::MAX);
    let whole = db.in_ram().scan(&from, &to, &rows_left, &mut |row, _| {
        left.push(Bytes::copy_from_slice(row));
        ControlFlow::Continue(())
    });
    assert!(left.iter().enumerate().all(|(at, row)| *row == member(at)), "no row is missing or foreign");
    assert_eq!(whole.is_ok(), left.len() == members);
    readings
}

#[test]
fn few_readings_make_the_ranges_of_a_large_set_known_if_there_is_room() {
    let members = 30_000;
    let readings = readings_of(members, 512 << 20);
    assert!((30..150).contains(&readings), "{readings}");
    let readings = readings_of(members, 2 << 20);
    assert!(readings > 2_000, "without room each reading is short: {readings}");
}
