//! A view of the rows of one moment: memtables over a snapshot of flash.

use std::ops::ControlFlow;

use bytes::Bytes;
use rocksdb::ReadOptions;
use storage::tier::MemtableView;
use storage::{Reader, Result, Visit};

use crate::error::classify;
use crate::under_way::ReadsUnderWay;

/// Bytes of rows after which a scan counts as large. From there on it reads ahead and does not fill
/// the block cache, which is kept for rows that are read repeatedly.
const LARGE_SCAN_BYTES: usize = 256 << 10;
const LARGE_SCAN_READAHEAD_BYTES: usize = 2 << 20;

/// A view of the keyspace at one moment.
pub struct View<'a> {
    memtables: MemtableView,
    /// The range `from..to` that the view covers; `None` if it covers all rows.
    bounds: Option<(Bytes, Bytes)>,
    snapshot: rocksdb::Snapshot<'a>,
    reads: &'a ReadsUnderWay,
}

/// # Panics
/// If a row outside of the view's bounds is read.
impl Reader for View<'_> {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let is_in = self.bounds.as_ref().is_none_or(|(from, to)| from[..] <= *row && *row < to[..]);
        assert!(is_in, "a row outside of the view's bounds");
        if let Some(value) = self.memtables.get(row) {
            return Ok(value);
        }
        let _read = self.reads.begin();
        let value = self.snapshot.get_pinned(row).map_err(classify)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let is_in = self.bounds.as_ref().is_none_or(|(f, t)| f[..] <= *from && *to <= t[..] || from >= to);
        assert!(is_in, "a scan beyond the view's bounds");
        let flash = |visit: &mut Visit<'_>| match self.scan_part(
            from,
            to,
            LARGE_SCAN_BYTES,
            ReadOptions::default(),
            visit,
        )? {
            None => Ok(()),
            Some(resume) => self.scan_flash_ahead(&resume, to, visit),
        };
        self.memtables.scan(from, to, flash, visit)
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(
        memtables: MemtableView,
        bounds: Option<(Bytes, Bytes)>,
        snapshot: rocksdb::Snapshot<'a>,
        reads: &'a ReadsUnderWay,
    ) -> View<'a> {
        View { memtables, bounds, snapshot, reads }
    }

    /// Scans as a large scan does from its first row on.
    pub(crate) fn scan_ahead(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.memtables.scan(from, to, |visit| self.scan_flash_ahead(from, to, visit), visit)
    }

    fn scan_flash_ahead(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(LARGE_SCAN_READAHEAD_BYTES);
        self.scan_part(from, to, usize::MAX, options, visit).map(|_| ())
    }

    /// Scans flash until the end of the range, a break, or until `limit_bytes` bytes were visited.
    /// In the last case returns the row to continue from.
    pub(crate) fn scan_part(
        &self,
        from: &[u8],
        to: &[u8],
        limit_bytes: usize,
        mut options: ReadOptions,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        options.set_iterate_upper_bound(to);
        let mut rows = self.snapshot.raw_iterator_opt(options);
        let mut visited_bytes = 0usize;
        rows.seek(from);
        while let Some((row, value)) = rows.item() {
            if visited_bytes >= limit_bytes {
                return Ok(Some(row.to_vec()));
            }
            visited_bytes = visited_bytes.saturating_add(row.len() + value.len());
            if let ControlFlow::Break(()) = visit(row, value) {
                return Ok(None);
            }
            rows.next();
        }
        // An iterator also ends at an error.
        rows.status().map_err(classify)?;
        Ok(None)
    }
}
