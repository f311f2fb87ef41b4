//! A thread that must not take long leaves the removal of very many elements to another one.

use bytes::Bytes;
use steelyard_command::entry::{self, Builder};
use storage::{MemoryKeyspace, Reader, StorageError, Txn, Visit};
use types::SlotRange;

/// Rows for a thread that must not take long.
struct Hasty<'a>(&'a MemoryKeyspace);

impl Reader for Hasty<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        self.0.get(row)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> storage::Result<()> {
        self.0.scan(from, to, visit)
    }

    fn is_hasty(&self) -> bool {
        true
    }
}

fn payload(lines: impl IntoIterator<Item = String>) -> Bytes {
    let mut builder = Builder::new();
    for line in lines {
        let words: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        builder.push(0, false, &words);
    }
    builder.finish(1, 1)
}

#[test]
fn removals_of_very_many_elements_are_left_to_a_thread_that_may_take_its_time() {
    let mut rows = MemoryKeyspace::default();
    let filled = (0..12_000).flat_map(|at| {
        [format!("SADD set m{at}"), format!("ZADD zset {at} m{at}"), format!("RPUSH list {}", at % 2)]
    });
    let mut txn = Txn::begin(&rows, 1).expect("rows are read");
    let replies = entry::apply(&payload(filled), &mut txn, SlotRange::ALL).expect("it is executed");
    assert!(replies.iter().flatten().all(|reply| !reply.is_error()));
    let written = txn.finish().0;
    rows.write(written);
    for (few, many) in [
        ("LTRIM list 4000 -1", "LTRIM list 5000 -1"),
        ("LREM list 4000 1", "LREM list 5000 1"),
        ("LPOP list 4000", "LPOP list 5000"),
        ("ZREMRANGEBYRANK zset 0 3999", "ZREMRANGEBYRANK zset 0 4999"),
        ("ZREMRANGEBYSCORE zset 0 3999", "ZREMRANGEBYSCORE zset 0 10000"),
        ("ZPOPMAX zset 4000", "ZPOPMAX zset 5000"),
        ("SPOP set 4000", "SPOP set 5000"),
    ] {
        let hasty = Hasty(&rows);
        let state = Txn::begin(&rows, 1).expect("rows are read").state().clone();
        for (line, is_left) in [(few, false), (many, true)] {
            let entry = payload([line.to_owned()]);
            let mut txn = Txn::new(&hasty, 1, state.clone());
            let outcome = entry::apply(&entry, &mut txn, SlotRange::ALL);
            assert_eq!(matches!(outcome, Err(StorageError::NotInRam)), is_left, "{line}");
            assert_eq!(outcome.is_ok(), !is_left, "{line}");
            let mut txn = Txn::begin(&rows, 1).expect("rows are read");
            let replies = entry::apply(&entry, &mut txn, SlotRange::ALL).expect("it is executed");
            assert!(replies.iter().flatten().all(|reply| !reply.is_error()), "{line}");
        }
    }
}
