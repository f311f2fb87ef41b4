//! The row cache under threads: once a write has returned nobody reads an older value, and nobody's reads
//! go back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use steelyard_rocks::{FlashKeyspace, Options};
use storage::WriteSet;

const ROWS: usize = 16;
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
    u64::from_be_bytes(value.try_into().unwrap())
}

#[test]
fn no_read_is_older_than_a_completed_write() {
    let dir = tempfile::tempdir().unwrap();
    let db = FlashKeyspace::open(dir.path(), &Options::default()).unwrap();
    // By row, the newest write that has returned.
    let completed: Vec<AtomicU64> = (0..ROWS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let put = |n: u64| Some(Bytes::copy_from_slice(&n.to_be_bytes()));
    let all = (0..ROWS).map(|at| (row(at), put(0))).collect();
    db.write(&WriteSet { ranges_deleted: vec![], rows: all }).unwrap();
    std::thread::scope(|scope| {
        let (db, completed, done) = (&db, &completed, &done);
        for reader in 0..3 {
            scope.spawn(move || {
                let mut seen = [0; ROWS];
                let mut at = reader;
                while !done.load(Ordering::Relaxed) {
                    at = (at * 5 + 1 + reader) % ROWS;
                    let least = completed[at].load(Ordering::SeqCst).max(seen[at]);
                    let value = db.get_cached(&row(at)).unwrap().expect("every set writes the row again");
                    let value = number(&value);
                    assert!(value >= least, "row {at}: {value} after {least}");
                    seen[at] = value;
                }
            });
        }
        let _stop = SetOnDrop(done);
        for n in 1..=WRITES {
            let at = (n as usize * 7) % ROWS;
            // Every so often the row goes with a range and comes back in the same set; so do its neighbours.
            let set = if n % 50 == 0 {
                let mut end = row(at).to_vec();
                end.push(0);
                WriteSet { ranges_deleted: vec![(row(at), end.into())], rows: vec![(row(at), put(n))] }
            } else {
                WriteSet { ranges_deleted: vec![], rows: vec![(row(at), put(n))] }
            };
            db.write(&set).unwrap();
            completed[at].store(n, Ordering::SeqCst);
        }
    });
    let stats = db.stats().unwrap();
    assert!(stats.row_cache_hits > 0 && stats.row_cache_misses > 0, "{stats:?}");
}

#[test]
fn a_hit_does_not_touch_rocksdb() {
    let dir = tempfile::tempdir().unwrap();
    let db = FlashKeyspace::open(dir.path(), &Options::default()).unwrap();
    let set = WriteSet { ranges_deleted: vec![], rows: vec![(row(1), Some("v".into()))] };
    db.write(&set).unwrap();
    db.flush().unwrap();
    db.get_cached(&row(1)).unwrap();
    let before = db.stats().unwrap();
    for _ in 0..1000 {
        assert_eq!(db.get_cached(&row(1)).unwrap().unwrap(), "v");
    }
    let after = db.stats().unwrap();
    let touched = |s: &steelyard_rocks::Stats| s.block_cache_hits + s.block_cache_misses;
    assert_eq!(touched(&after), touched(&before));
    assert_eq!(after.row_cache_hits, before.row_cache_hits + 1000);
    // Without the row cache the same reads are seen, so the count above means something.
    drop(db);
    let db = FlashKeyspace::open(dir.path(), &Options { row_cache_bytes: 0, ..Options::default() }).unwrap();
    for _ in 0..10 {
        db.get_cached(&row(1)).unwrap();
    }
    assert!(touched(&db.stats().unwrap()) >= 10);
}
