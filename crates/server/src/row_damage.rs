//! Row files of this store that cannot be read.
//!
//! A store that finds damage records it in `DIR/DAMAGED`, transfers its leaders and restarts. The
//! start removes the damaged files ([`rocks::repair`]). It quarantines the peers that lose rows,
//! and the cluster replaces these peers. Other peers keep their rows.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use bytes::Bytes;
use cluster::{Cause, Mark, Quarantine};
use raftlog::RaftLog;
use rocks::repair::Damage;
use rocks::{Keyspace, Options};
use storage::rows::{prefix_end, region_descriptor_row, region_state_row, SPACE_REGION_STATE};
use storage::watches::Watches;
use storage::{Counted, DbCounts, Reader, RegionState, StorageError, Txn};
use types::{RegionDescriptor, RegionId, SlotRange, StoreId};

use crate::datadir;
use crate::recovery;

const FILE: &str = datadir::DAMAGED;
/// Maximum number of slot ranges that a quarantine names.
const RANGES_SHOWN: usize = 8;

/// Notes durably that rows cannot be read, so that the next start looks for the damage.
pub fn note(dir: &Path, error: &str) -> io::Result<()> {
    atrest::write(&dir.join(FILE), error)
}

/// Opens the rows in `path`. If a damage note exists or the rows cannot be opened, first removes
/// the damaged files. `dir` is the data directory.
pub fn open_rows(
    (dir, path): (&Path, &Path),
    options: &Options,
    log: &RaftLog,
    store: StoreId,
) -> Result<Keyspace, String> {
    if let Some(error) = noted(dir).map_err(text)? {
        cut_out((dir, path), options, log, store, &error)?;
    }
    match Keyspace::open(path, options).and_then(|rows| read_own_rows(&rows).map(|()| rows)) {
        Err(StorageError::Damaged(error)) => {
            tracing::error!(error, "rows are damaged");
            // A crash during the removal may leave damage that the next start would not detect
            // without the note.
            note(dir, &error).map_err(text)?;
            cut_out((dir, path), options, log, store, &error)?;
            Keyspace::open(path, options).map_err(text)
        }
        opened => opened.map_err(text),
    }
}

fn noted(dir: &Path) -> io::Result<Option<String>> {
    match atrest::read_to_string(&dir.join(FILE)) {
        Ok(error) => Ok(Some(error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn forget(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => durable::sync_dir(dir),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Reads the rows that a start needs to determine the region of a damaged row.
fn read_own_rows(rows: &Keyspace) -> storage::Result<()> {
    for (region, _) in regions(rows)? {
        rows.get(&region_state_row(region))?;
        rows.get(&region_descriptor_row(region))?;
    }
    Ok(())
}

/// Returns the regions that have rows, with their descriptors.
fn regions(rows: &Keyspace) -> storage::Result<BTreeMap<RegionId, Option<RegionDescriptor>>> {
    let from = [SPACE_REGION_STATE];
    let mut found = BTreeMap::new();
    let mut unreadable = None;
    rows.scan(&from, &prefix_end(&from), &mut |row, value| {
        if let Some(id) = row.get(1..9).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes) {
            let descriptor = found.entry(id).or_default();
            if row.len() > region_state_row(id).len() {
                match RegionDescriptor::decode(value) {
                    Ok(decoded) => *descriptor = Some(decoded),
                    Err(error) => unreadable = Some(StorageError::Corrupt(format!("region {id}: {error}"))),
                }
            }
        }
        std::ops::ControlFlow::Continue(())
    })?;
    unreadable.map_or(Ok(found), Err)
}

/// Removes the damaged files from the rows. May be repeated after a crash at any step.
fn cut_out(
    (dir, path): (&Path, &Path),
    options: &Options,
    log: &RaftLog,
    store: StoreId,
    error: &str,
) -> Result<(), String> {
    tracing::warn!(error, "looking for damaged files of rows");
    let Some(damage) = Damage::look(path, options, error).map_err(text)? else {
        // The note is deleted. Otherwise the next start would look for damage that does not exist.
        forget(dir).map_err(text)?;
        return Err(format!("rows could not be read, and no damaged file is found: {error}"));
    };
    for file in damage.files() {
        tracing::error!(file = %file.display(), "a file of rows is damaged");
    }
    damage.errors().for_each(|error| tracing::error!(error, "rows cannot be read"));
    if damage.loses_others() {
        return Err("the damage took rows that say which regions this store has. If other stores have its \
                    regions, remove it from the cluster (steelyard ctl store remove), empty its directory and let \
                    it join again; if not, restore the file"
            .to_owned());
    }
    let lost = damage.lost_slots();
    let error = damage.errors().next().unwrap_or(error).to_owned();
    let mut changed = Vec::new();
    let mut touched = 0;
    for (region, descriptor) in regions(damage.rows()).map_err(text)? {
        let Some(descriptor) = descriptor else { continue };
        let Some(slots) = descriptor.slots else { continue };
        let within = within(&lost, slots);
        if within.is_empty() {
            continue;
        }
        touched += 1;
        let state = storage::load_state(damage.rows(), region).map_err(text)?;
        quarantine(log, store, &descriptor, &state, &within, &error)?;
        changed.push(recounted(damage.rows(), region, state, &parts_without(slots, &lost)).map_err(text)?);
    }
    damage.cut_out(changed).map_err(text)?;
    forget(dir).map_err(text)?;
    tracing::warn!(regions = touched, "the damaged files are cut out; other regions have all of their rows");
    Ok(())
}

/// Quarantines the region's peer on this store, durably.
fn quarantine(
    log: &RaftLog,
    store: StoreId,
    descriptor: &RegionDescriptor,
    state: &RegionState,
    lost: &[SlotRange],
    error: &str,
) -> Result<(), String> {
    let name = recovery::mark_name(descriptor.id);
    let mut mark = match log.store_value(&name).filter(|value| !value.is_empty()) {
        Some(value) => Mark::decode(&value).map_err(text)?,
        None => Mark::default(),
    };
    let index = mark.held.as_ref().map_or(state.applied_index + 1, |held| held.index);
    let mut held = Quarantine::new(index, Cause::Damage, &named(lost), error);
    held.read_only = descriptor.is_alone_on(store);
    mark.held = Some(held);
    log.set_store_value(&name, &mark.encode()).map_err(text)
}

/// Returns the region's state row with the counts of the remaining rows.
fn recounted(
    rows: &Keyspace,
    region: RegionId,
    mut state: RegionState,
    left: &[SlotRange],
) -> storage::Result<(Bytes, Option<Bytes>)> {
    let mut sum = Counted::default();
    let mut keys: BTreeMap<u16, DbCounts> = BTreeMap::new();
    let txn = Txn::read_only(rows, region);
    for slots in left {
        let counted = storage::count_keys(&txn, *slots)?;
        sum.bytes += counted.bytes;
        for (db, counts) in counted.keys {
            let of_db = keys.entry(db).or_default();
            of_db.keys += counts.keys;
            of_db.with_expiry += counts.with_expiry;
        }
    }
    sum.keys = keys.into_iter().collect();
    state.recount(&sum);
    // The peer is filled again before it leads, and its watches then come with the rows.
    state.watches = Watches::default();
    Ok((region_state_row(region), Some(state.encode())))
}

fn within(lost: &[SlotRange], slots: SlotRange) -> Vec<SlotRange> {
    let clip = |range: &SlotRange| SlotRange {
        first: range.first.max(slots.first),
        last: range.last.min(slots.last),
    };
    lost.iter().map(clip).filter(|range| !range.is_empty()).collect()
}

fn parts_without(slots: SlotRange, lost: &[SlotRange]) -> Vec<SlotRange> {
    let without = |parts: Vec<SlotRange>, lost: &SlotRange| {
        parts.into_iter().flat_map(|part| part.without(Some(*lost))).collect()
    };
    lost.iter().fold(vec![slots], without)
}

fn named(lost: &[SlotRange]) -> String {
    let range = |slots: &SlotRange| match slots.len() {
        1 => slots.first.to_string(),
        _ => format!("{}-{}", slots.first, slots.last),
    };
    let mut ranges: Vec<String> = lost.iter().take(RANGES_SHOWN).map(range).collect();
    if lost.len() > ranges.len() {
        ranges.push(format!("and {} more ranges", lost.len() - ranges.len()));
    }
    format!("the keys of slots {}", ranges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn slots(first: u16, last: u16) -> SlotRange {
        SlotRange { first, last }
    }

    #[test]
    fn a_region_loses_what_lies_in_its_slots_and_keeps_the_rest() {
        let lost = [slots(3, 7), slots(10, 10), slots(90, 120)];
        assert_eq!(within(&lost, slots(5, 99)), [slots(5, 7), slots(10, 10), slots(90, 99)]);
        assert_eq!(parts_without(slots(5, 99), &lost), [slots(8, 9), slots(11, 89)]);
        assert_eq!(parts_without(slots(4, 6), &lost), []);
        assert_eq!(named(&lost), "the keys of slots 3-7, 10, 90-120");
    }
}
