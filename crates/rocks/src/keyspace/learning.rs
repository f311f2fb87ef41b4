//! Ranges that are read from flash, so that scans find them in RAM.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rocksdb::ReadOptions;
use storage::rows::{table_range, SPACE_DATA};
use storage::tier::MemtableView;
use storage::Result;
use types::Slot;

use super::Keyspace;
use crate::view::View;

/// Maximum number of deleted rows that are skipped at once to learn rows that no scan asked for.
const SKIPPED_ROWS_MAX: u64 = 256;

impl Keyspace {
    /// Reads rows of flash from the first place in `from..to` on at which they are not known in
    /// RAM, up to a short range, so that scans find them there. A range that is shorter than usual
    /// goes on behind `to`, because neighbours are likely to be scanned as well. Returns true if a
    /// range was learnt. Returns false if nothing is missing, if the next row cannot be learnt, or
    /// if a memtable was settled meanwhile.
    pub fn learn_range(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        let (first, end, reach, version, snapshot, room) = {
            let tier = self.tier.read();
            let Some((first, end)) = tier.unknown_range(from, to) else { return Ok(false) };
            let reach = table_end(&first).filter(|reach| *reach > end);
            let reach = reach.and_then(|reach| tier.unknown_range(&first, &reach));
            let reach = reach.map_or(end.clone(), |(_, reach)| reach.max(end.clone()));
            // The snapshot is taken under the tier's lock, so it belongs to the version.
            (first, end, reach, tier.flash_version(), self.db.snapshot(), tier.room_for_ranges())
        };
        self.misses.fetch_add(1, Ordering::Relaxed);
        let (rows_max, bytes_max) = self.read_ahead.lock().next(table_end(&first).as_ref(), room);
        let view = View::new(MemtableView::default(), None, snapshot, &self.reads);
        let (mut rows, mut bytes) = (Vec::new(), 0usize);
        // Returns the row that ends the range, or the end of the part if all of its rows fit.
        let mut read = |from: &[u8], to: &[u8], options: ReadOptions| {
            let (mut rest, mut last) = (None, None);
            let outcome = view.scan_part(from, to, usize::MAX, options, &mut |row, value| {
                bytes = bytes.saturating_add(row.len() + value.len());
                let row = Bytes::copy_from_slice(row);
                if rows.len() == rows_max || bytes > bytes_max {
                    rest = Some(row);
                    return ControlFlow::Break(());
                }
                last = Some(row.clone());
                rows.push((row, Bytes::copy_from_slice(value)));
                ControlFlow::Continue(())
            });
            (outcome, rest, last)
        };
        let reading = self.reads.begin();
        let (outcome, rest, _) = read(&first, &end, ReadOptions::default());
        outcome?;
        let learnt_to = match rest {
            Some(rest) => rest,
            None if end < reach => {
                let mut options = ReadOptions::default();
                options.set_max_skippable_internal_keys(SKIPPED_ROWS_MAX);
                match read(&end, &reach, options) {
                    (_, Some(rest), _) => rest,
                    (Ok(_), None, _) => reach,
                    // Many deleted rows are not worth a wait, and an error returns when the rows
                    // behind `to` are needed.
                    (Err(_), None, last) => last.map_or(end, |last| storage::rows::row_behind(&last)),
                }
            }
            None => end,
        };
        drop(reading);
        Ok(first < learnt_to && self.tier.write().learn_range(first, learnt_to, rows, version))
    }
}

/// Returns the end of the table of a slot that the row belongs to; `None` for other rows.
fn table_end(row: &[u8]) -> Option<Bytes> {
    match row {
        [SPACE_DATA, high, low, table, ..] => Some(table_range(Slot::from_be_bytes([*high, *low]), *table).1),
        _ => None,
    }
}
