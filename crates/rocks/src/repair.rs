//! Removal of row files that cannot be read, with the loss of as few rows as possible.
//!
//! If a row of a slot cannot be read, all rows of that slot are lost. All other rows in the range
//! of the damaged file are read through all levels and written again. Then the file is removed from
//! RocksDB's manifest:
//!
//! ```text
//!  look      the damaged files, and the slots that are lost
//!  cut out   lost slots are deleted, other rows of the files' ranges are written again (flushed)
//!            ─▶ RocksDB is closed ─▶ the files are dropped from the manifest
//! ```
//!
//! Until the last step, every readable row keeps its value. So the steps may be repeated after a
//! crash. The last step changes no row, because newer files cover the whole range of the removed
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rocksdb::{LiveFile, WriteBatch};
use storage::rows::{slots_range, SPACE_DATA};
use storage::{Result, StorageError};
use types::{Slot, SlotRange, SLOT_COUNT};

use crate::error::classify;
use crate::flush::{self, flush_memtables};
use crate::keyspace::Keyspace;
use crate::manifest_edit;
use crate::options::Options;

/// Size of a batch of rewritten rows, in bytes. A single larger row is one batch.
const BATCH_BYTES: usize = 8 << 20;

/// The damaged files of a keyspace, and the rows that are lost with them.
pub struct Damage {
    dir: PathBuf,
    rows: Keyspace,
    files: BTreeMap<u64, LiveFile>,
    lost: BTreeSet<Slot>,
    loses_others: bool,
    /// RocksDB's first error of each file.
    errors: BTreeMap<u64, String>,
}

/// A range `from..to` of rows.
type Range = (Bytes, Bytes);

impl Damage {
    /// Finds the damaged files of the keyspace in `dir`, which must not be open. `told` is the text
    /// of the error that reported the damage. If it names no file, all rows are read. Returns
    /// `None` if no damage is found.
    ///
    /// # Errors
    /// Those of a keyspace that cannot be opened at all, those of the device, and damage whose
    /// location RocksDB does not report.
    pub fn look(dir: &Path, options: &Options, told: &str) -> Result<Option<Damage>> {
        let rows = Keyspace::open_damaged(dir, options)?;
        let live = rows.db.live_files().map_err(classify)?;
        let by_number = |file: &LiveFile| Some((numbers_in(&file.name).next()?, file.clone()));
        let live: BTreeMap<u64, LiveFile> = live.iter().filter_map(by_number).collect();
        let mut files: BTreeMap<u64, LiveFile> = BTreeMap::new();
        let mut named: Vec<u64> = numbers_in(told).collect();
        loop {
            let known = files.len();
            files.extend(named.iter().filter_map(|number| Some((*number, live.get(number)?.clone()))));
            if known > 0 && files.len() == known {
                return Err(StorageError::Engine("RocksDB does not say which file is damaged".to_owned()));
            }
            let ranges = match files.is_empty() {
                true => ranges_of(live.values()),
                false => ranges_of(files.values()),
            };
            let mut found =
                Found { rows: &rows, lost: BTreeSet::new(), loses_others: false, errors: BTreeMap::new() };
            ranges.iter().try_for_each(|range| found.look_at(range))?;
            let Found { lost, loses_others, errors, .. } = found;
            named = errors.keys().copied().collect();
            if files.is_empty() && errors.is_empty() {
                return Ok(None);
            }
            if named.iter().all(|number| files.contains_key(number)) {
                let dir = dir.to_owned();
                return Ok(Some(Damage { dir, rows, files, lost, loses_others, errors }));
            }
        }
    }

    /// Returns the rows. Rows of lost slots cannot be read.
    pub fn rows(&self) -> &Keyspace {
        &self.rows
    }

    /// Returns the slots that lose their rows, ascending.
    pub fn lost_slots(&self) -> Vec<SlotRange> {
        let mut ranges: Vec<SlotRange> = Vec::new();
        for &slot in &self.lost {
            match ranges.last_mut() {
                Some(range) if range.last + 1 == slot => range.last = slot,
                _ => ranges.push(SlotRange { first: slot, last: slot }),
            }
        }
        ranges
    }

    /// Returns true if rows outside of slots cannot be read: the rows about the local regions, or
    /// the cluster's state. In that case the files cannot be removed.
    pub fn loses_others(&self) -> bool {
        self.loses_others
    }

    /// Returns the paths of the damaged files.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.files.values().map(|file| self.dir.join(file.name.trim_start_matches('/')))
    }

    /// Returns RocksDB's first error of each file that it could not read.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        self.errors.values().map(String::as_str)
    }

    /// Deletes the lost slots, writes `changed` rows in the same set, and drops the damaged files.
    /// Everything is durable on return.
    ///
    /// # Errors
    /// Those of the device, including a lack of space: the rows of the files' ranges are rewritten.
    /// The call may be repeated.
    ///
    /// # Panics
    /// If rows outside of slots are lost.
    pub fn cut_out(self, changed: Vec<(Bytes, Option<Bytes>)>) -> Result<()> {
        assert!(!self.loses_others, "rows outside of slots have no copy to be made from");
        // All of it goes through RocksDB's own memtable. An ingest would read the damaged files.
        let mut batch = WriteBatch::default();
        let lost: Vec<Range> = self.lost_slots().into_iter().map(slots_range).collect();
        flush::delete_ranges(&mut batch, &lost);
        for (row, value) in &changed {
            match value {
                Some(value) => batch.put(row, value),
                None => batch.delete(row),
            }
        }
        flush::write(&self.rows.db, batch)?;
        flush_memtables(&self.rows.db)?;
        for range in ranges_of(self.files.values()) {
            for (from, to) in without_slots(range, &self.lost) {
                self.write_anew(from, &to)?;
            }
        }
        flush_memtables(&self.rows.db)?;
        let Damage { dir, rows, files, .. } = self;
        drop(rows);
        let files: Vec<(u64, u64)> =
            files.iter().map(|(number, file)| (file.level as u64, *number)).collect();
        manifest_edit::delete_files(&dir, &files)
            .map_err(|error| StorageError::Engine(format!("{}: {error}", dir.display())))
    }

    /// Rewrites the rows of a range, so that no older copy of them is needed.
    fn write_anew(&self, mut from: Bytes, to: &Bytes) -> Result<()> {
        while from < *to {
            let mut batch = WriteBatch::default();
            let mut rows = Vec::new();
            let (mut bytes, mut end) = (0, None);
            self.rows.scan_flash(&from, to, &mut |row, value| {
                if bytes >= BATCH_BYTES {
                    end = Some(Bytes::copy_from_slice(row));
                    return ControlFlow::Break(());
                }
                bytes += row.len() + value.len();
                rows.push((row.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })?;
            let end = end.unwrap_or_else(|| to.clone());
            batch.delete_range(&from[..], &end[..]);
            rows.iter().for_each(|(row, value)| batch.put(row, value));
            flush::write(&self.rows.db, batch)?;
            from = end;
        }
        Ok(())
    }
}

/// The rows that cannot be read.
struct Found<'a> {
    rows: &'a Keyspace,
    lost: BTreeSet<Slot>,
    loses_others: bool,
    errors: BTreeMap<u64, String>,
}

impl Found<'_> {
    fn look_at(&mut self, (from, to): &Range) -> Result<()> {
        let (data, end) = slots_range(SlotRange::ALL);
        for (from, to) in [(from, to.min(&data)), (from.max(&end), to)] {
            self.loses_others |= !self.is_whole(from, to)?;
        }
        let (from, to) = (from.max(&data).clone(), to.min(&end).clone());
        let (Some(first), Some(last)) = (slot_in(&from), last_slot_before(&to)) else { return Ok(()) };
        self.look_at_slots((&from, &to), SlotRange { first, last })
    }

    /// Divides slots that have an unreadable row, down to single slots.
    fn look_at_slots(&mut self, bounds: (&Bytes, &Bytes), slots: SlotRange) -> Result<()> {
        let (from, to) = slots_range(slots);
        if slots.is_empty() || self.is_whole(bounds.0.max(&from), bounds.1.min(&to))? {
            return Ok(());
        }
        if slots.len() == 1 {
            self.lost.insert(slots.first);
            return Ok(());
        }
        let middle = slots.first + (slots.len() / 2) as Slot;
        self.look_at_slots(bounds, SlotRange { last: middle - 1, ..slots })?;
        self.look_at_slots(bounds, SlotRange { first: middle, ..slots })
    }

    /// Returns true if all rows of a range can be read.
    fn is_whole(&mut self, from: &[u8], to: &[u8]) -> Result<bool> {
        if from >= to {
            return Ok(true);
        }
        match self.rows.scan_flash(from, to, &mut |_, _| ControlFlow::Continue(())) {
            Ok(()) => Ok(true),
            // A file that is missing is an error of another kind.
            Err(StorageError::Damaged(error)) | Err(StorageError::Engine(error))
                if numbers_in(&error).next().is_some() =>
            {
                for number in numbers_in(&error) {
                    self.errors.entry(number).or_insert_with(|| error.clone());
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the slot of the first data row at or after `from`, a row of the data space.
fn slot_in(from: &[u8]) -> Option<Slot> {
    let number = |at: usize| from.get(at).copied().unwrap_or(0);
    let slot = Slot::from_be_bytes([number(1), number(2)]);
    (from.first() == Some(&SPACE_DATA) && slot < SLOT_COUNT).then_some(slot)
}

/// Returns the slot of the last data row before `to`, at most the end of the data space.
fn last_slot_before(to: &[u8]) -> Option<Slot> {
    match slot_in(to) {
        Some(slot) if to.len() > 3 => Some(slot),
        Some(slot) => slot.checked_sub(1),
        None => Some(SLOT_COUNT - 1).filter(|_| to.first() == Some(&SPACE_DATA)),
    }
}

/// Returns the numbers of the table files that a text names. RocksDB looks for a missing file under
/// LevelDB's extension, too.
fn numbers_in(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.match_indices(".sst").chain(text.match_indices(".ldb")).filter_map(|(end, _)| {
        let name = &text[..end];
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        name[end - digits..].parse().ok()
    })
}

/// Returns the ranges that the files span, ascending and apart from each other.
fn ranges_of<'a>(files: impl Iterator<Item = &'a LiveFile>) -> Vec<Range> {
    let mut ranges: Vec<Range> = files
        .filter_map(|file| {
            let (first, last) = (file.start_key.clone()?, file.end_key.as_deref()?);
            Some((first.into(), [last, &[0]].concat().into()))
        })
        .collect();
    ranges.sort();
    let mut apart: Vec<Range> = Vec::new();
    for (from, to) in ranges {
        match apart.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(end.clone()),
            _ => apart.push((from, to)),
        }
    }
    apart
}

/// Returns the parts of a range between these slots.
fn without_slots((from, to): Range, slots: &BTreeSet<Slot>) -> Vec<Range> {
    let mut parts = Vec::new();
    let mut begin = from;
    for &slot in slots {
        let (first, end) = slots_range(SlotRange { first: slot, last: slot });
        if begin < first.clone().min(to.clone()) {
            parts.push((begin.clone(), first.min(to.clone())));
        }
        begin = begin.max(end);
    }
    if begin < to {
        parts.push((begin, to));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_numbers_are_read_from_errors() {
        let text =
            "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 1 in /d/rows/000123.sst \
                    offset 0 size 7; /x/9.sst and .sst";
        assert_eq!(numbers_in(text).collect::<Vec<_>>(), [123, 9]);
    }

    #[test]
    fn the_slots_of_a_range_are_those_that_it_touches() {
        let row = |slot: Slot, rest: &[u8]| [&[SPACE_DATA][..], &slot.to_be_bytes(), rest].concat();
        assert_eq!(slot_in(&row(7, b"x")), Some(7));
        assert_eq!(last_slot_before(&row(7, b"x")), Some(7));
        assert_eq!(last_slot_before(&row(7, b"")), Some(6));
        assert_eq!(last_slot_before(&row(0, b"")), None);
        assert_eq!(last_slot_before(&row(SLOT_COUNT, b"")), Some(SLOT_COUNT - 1));
    }

    #[test]
    fn parts_leave_out_slots_as_a_whole() {
        let at = |slot: Slot| slots_range(SlotRange { first: slot, last: slot }).0;
        let parts = without_slots((at(3), at(9)), &BTreeSet::from([1, 3, 5, 6, 12]));
        assert_eq!(parts, [(at(4), at(5)), (at(7), at(9))]);
    }
}
