//! The engine for tests and the simulator: a sorted map that loses unflushed writes at a crash.
//!
//! It behaves like RocksDB with one column family and no WAL. A flush covers whole write sets in
//! order, so a crash always leaves a prefix of the write sets. Ingested rows are durable
//! immediately.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;

use crate::{Reader, Result, Visit, WriteSet};

#[derive(Clone, Debug, Default)]
pub struct MemoryKeyspace {
    /// The flushed rows with the write sets of `memtable` applied.
    rows: BTreeMap<Bytes, Bytes>,
    flushed: BTreeMap<Bytes, Bytes>,
    /// The write sets since the last flush, oldest first.
    memtable: VecDeque<WriteSet>,
}

impl MemoryKeyspace {
    /// Applies a write set atomically. It is visible at once and durable after the next flush.
    pub fn write(&mut self, writes: WriteSet) {
        apply(&mut self.rows, &writes);
        self.memtable.push_back(writes);
    }

    /// Makes all writes so far durable.
    pub fn flush(&mut self) {
        self.flush_oldest(self.memtable.len());
    }

    /// Makes the `count` oldest unflushed write sets durable. Models a loss of power after only the
    /// immutable memtables were written.
    pub fn flush_oldest(&mut self, count: usize) {
        for writes in self.memtable.drain(..count.min(self.memtable.len())) {
            apply(&mut self.flushed, &writes);
        }
    }

    /// Returns the number of write sets that a crash would lose.
    pub fn unflushed(&self) -> usize {
        self.memtable.len()
    }

    /// Discards all unflushed writes.
    pub fn crash(&mut self) {
        self.memtable.clear();
        self.rows = self.flushed.clone();
    }

    /// Replaces the rows of `from..to` with `rows`, durable at once. If unflushed writes overlap
    /// the range, all write sets are flushed first, as in RocksDB, because a flush keeps their
    /// order.
    pub fn ingest(&mut self, from: &[u8], to: &[u8], rows: impl IntoIterator<Item = (Bytes, Bytes)>) {
        let overlaps = self.memtable.iter().any(|writes| {
            writes.rows.iter().any(|(row, _)| *from <= row[..] && row[..] < *to)
                || writes.ranges_deleted.iter().any(|(f, t)| f[..] < *to && *from < t[..])
        });
        if overlaps {
            self.flush();
        }
        let range = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        let rows = rows.into_iter().map(|(row, value)| (row, Some(value))).collect();
        let writes = WriteSet { ranges_deleted: vec![range], rows };
        apply(&mut self.rows, &writes);
        apply(&mut self.flushed, &writes);
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns all rows, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.rows.iter()
    }
}

impl Reader for MemoryKeyspace {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.rows.get(row).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if from < to {
            for (row, value) in self.rows.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))) {
                if visit(row, value).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn apply(rows: &mut BTreeMap<Bytes, Bytes>, writes: &WriteSet) {
    for (from, to) in &writes.ranges_deleted {
        if from >= to {
            continue;
        }
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let doomed: Vec<Bytes> = rows.range::<[u8], _>(bounds).map(|(row, _)| row.clone()).collect();
        for row in doomed {
            rows.remove(&row);
        }
    }
    for (row, value) in &writes.rows {
        match value {
            Some(value) => drop(rows.insert(row.clone(), value.clone())),
            None => drop(rows.remove(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(row: &'static str, value: &'static str) -> WriteSet {
        WriteSet { ranges_deleted: vec![], rows: vec![(row.into(), Some(value.into()))] }
    }

    fn value(engine: &MemoryKeyspace, row: &str) -> Option<Bytes> {
        engine.get(row.as_bytes()).unwrap()
    }

    #[test]
    fn a_crash_keeps_a_prefix_of_whole_write_sets() {
        let mut engine = MemoryKeyspace::default();
        engine.write(put("a", "1"));
        engine.write(put("b", "2"));
        engine.write(put("a", "3"));
        engine.flush_oldest(2);
        assert_eq!(value(&engine, "a"), Some("3".into()));
        engine.crash();
        assert_eq!((value(&engine, "a"), value(&engine, "b")), (Some("1".into()), Some("2".into())));
        engine.crash();
        assert_eq!(engine.len(), 2);
    }

    #[test]
    fn ranges_go_before_rows() {
        let mut engine = MemoryKeyspace::default();
        engine.write(put("a", "1"));
        engine.write(WriteSet {
            ranges_deleted: vec![("a".into(), "z".into())],
            rows: vec![("b".into(), Some("2".into()))],
        });
        assert_eq!((value(&engine, "a"), value(&engine, "b")), (None, Some("2".into())));
    }

    #[test]
    fn ingested_rows_are_durable_and_flush_what_they_overlap() {
        let mut engine = MemoryKeyspace::default();
        engine.write(put("x", "1"));
        engine.ingest(b"a", b"c", [("b".into(), "2".into())]);
        assert_eq!(engine.unflushed(), 1);
        engine.crash();
        assert_eq!((value(&engine, "x"), value(&engine, "b")), (None, Some("2".into())));
        engine.write(put("b", "3"));
        engine.ingest(b"a", b"c", []);
        assert_eq!(engine.unflushed(), 0);
        engine.crash();
        assert_eq!(value(&engine, "b"), None);
    }
}
