//! Background steps that a region's leader proposes on its own: deletion of expired keys, and the
//! sweep of elements of deleted collections.
//!
//! The leader examines a view of the rows, slot by slot, and proposes bounded steps. Every replica
//! executes them using only the entry's stamp and the rows.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::rows::{self, decode_expiry_row, decode_garbage_row, table_range, TABLE_EXPIRY, TABLE_GARBAGE};
use storage::{KeyRef, Meta, Reader, StorageError};
use types::{Slot, SlotRange, UnixMillis};

use crate::copying::Spared;
use crate::events;
use crate::exec::{CommandResult, Exec};
use crate::keys::scan::visit_keys;
use crate::streams::group::generation_of;

/// Deletes up to `limit` expired keys of a slot. Replies with the number of index rows handled. If
/// that is `limit`, there may be more.
pub(crate) fn expire_due(exec: &mut Exec<'_, '_>, slot: Slot, limit: u32) -> CommandResult {
    let (from, to) = rows::due_range(slot, exec.now_ms);
    let due = first_rows(exec, &from, &to, limit)?;
    for (row, _) in &due {
        let (at, key) = decode_expiry_row(row)?;
        let meta = match exec.txn.get(&key.meta_row())? {
            Some(meta) => Some(Meta::decode(&meta)?),
            None => None,
        };
        match meta {
            Some(meta) if meta.expire_at_ms == Some(at) => exec.expire(&key.into(), &meta)?,
            _ => return Err(StorageError::Corrupt("an expiry row that no key's time matches".into()).into()),
        }
    }
    events::conclude(None, &[], exec);
    Ok(Reply::Int(due.len() as i64))
}

/// Deletes up to `limit` rows of dead generations in a slot, garbage rows included. Replies with
/// the number of rows handled. If that is `limit`, there may be more.
///
/// The value of a garbage row is the row at which the next step continues. Without it each step
/// would read over the rows that earlier steps have deleted. `keeps_place` is false in clusters
/// whose version has no such values.
pub(crate) fn sweep(exec: &mut Exec<'_, '_>, slot: Slot, limit: u32, keeps_place: bool) -> CommandResult {
    let (from, to) = table_range(slot, TABLE_GARBAGE);
    let mut left = limit;
    let mut found: VecDeque<(Bytes, Bytes)> = first_unspared(exec, &from, &to, limit)?.into();
    while let Some((garbage, place)) = found.pop_front().filter(|_| left > 0) {
        let (key, generation) = decode_garbage_row(&garbage)?;
        // A copy whose time has passed is not ended any more, even if this step keeps no place.
        let spared = Spared::decode(&place);
        let was_spared = spared.is_some();
        let mut next = match spared {
            Some(spared) => {
                spared.release(&mut exec.txn.state_mut().watches);
                Bytes::new()
            }
            None => place,
        };
        let [elements, nodes, groups] = key.generation_ranges(generation);
        for (from, to) in [elements, nodes] {
            let rows = first_rows(exec, from.max(next.clone()).as_ref(), &to, left)?;
            left -= rows.len() as u32;
            if let Some((last, _)) = rows.last() {
                next = last.clone();
            }
            rows.into_iter().for_each(|(row, value)| exec.delete_garbage(&key, row, value));
        }
        // A group has a generation of its own, which is garbage from now on.
        let (from, to) = groups;
        for (row, value) in first_values(exec, from.max(next.clone()).as_ref(), &to, left)? {
            left -= 1;
            next = row.clone();
            let of_group = generation_of(&value)?;
            exec.leave_generation(&key, of_group);
            found.push_back((key.garbage_row(of_group), Bytes::new()));
            exec.delete_garbage(&key, row, value.len());
        }
        if left > 0 {
            exec.txn.delete(garbage);
            left -= 1;
        } else if keeps_place || was_spared {
            exec.txn.put(garbage, next);
        }
    }
    Ok(Reply::Int(i64::from(limit - left)))
}

/// Returns the first garbage rows of a range that the sweep does not spare, with their values.
fn first_unspared(
    exec: &Exec<'_, '_>,
    from: &[u8],
    to: &[u8],
    limit: u32,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    let is_spared = |value: &[u8]| Spared::decode(value).is_some_and(|of| of.until_ms > exec.now_ms);
    first(exec, from, to, limit, |value| (!is_spared(value)).then(|| Bytes::copy_from_slice(value)))
}

/// Returns the first rows of a range, with the lengths of their values.
fn first_rows(exec: &Exec<'_, '_>, from: &[u8], to: &[u8], limit: u32) -> CommandResult<Vec<(Bytes, usize)>> {
    first(exec, from, to, limit, |value| Some(value.len()))
}

/// Returns the first rows of a range, with their values.
fn first_values(
    exec: &Exec<'_, '_>,
    from: &[u8],
    to: &[u8],
    limit: u32,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    first(exec, from, to, limit, |value| Some(Bytes::copy_from_slice(value)))
}

/// Returns the first rows of a range for which `part` returns something of their values.
fn first<T>(
    exec: &Exec<'_, '_>,
    from: &[u8],
    to: &[u8],
    limit: u32,
    part: impl Fn(&[u8]) -> Option<T>,
) -> CommandResult<Vec<(Bytes, T)>> {
    let mut found = Vec::new();
    if limit > 0 && from < to {
        exec.txn.scan(from, to, &mut |row, value| {
            found.extend(part(value).map(|part| (Bytes::copy_from_slice(row), part)));
            if found.len() < limit as usize {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
    }
    Ok(found)
}

/// Returns the slots that have expired keys.
///
/// # Errors
/// Those of the reader.
pub fn find_due(reader: &dyn Reader, slots: SlotRange, now_ms: UnixMillis) -> storage::Result<Vec<Slot>> {
    let end = rows::slots_range(slots).1;
    let mut found = Vec::new();
    let mut slot = slots.first;
    while slot <= slots.last {
        let Some(row) = first_row(reader, &table_range(slot, TABLE_EXPIRY).0, &end)? else { break };
        let (met, its_table) = rows::table_of(&row)?;
        // A row before the expiry table of its slot means that no earlier slot has an expired key.
        slot = match its_table.cmp(&TABLE_EXPIRY) {
            std::cmp::Ordering::Less => met,
            std::cmp::Ordering::Greater => met + 1,
            std::cmp::Ordering::Equal => {
                if decode_expiry_row(&row)?.0 <= now_ms {
                    found.push(met);
                }
                met + 1
            }
        };
    }
    Ok(found)
}

/// Returns the earliest expiry time of a slot's keys.
///
/// # Errors
/// Those of the reader.
pub fn earliest_due(reader: &dyn Reader, slot: Slot) -> storage::Result<Option<UnixMillis>> {
    let (from, to) = table_range(slot, TABLE_EXPIRY);
    let row = first_row(reader, &from, &to)?;
    row.map(|row| Ok(decode_expiry_row(&row)?.0)).transpose()
}

/// Returns the time from which on the sweep has work in a slot; 0 if it has elements of a deleted
/// collection.
///
/// # Errors
/// Those of the reader.
pub fn garbage_since(reader: &dyn Reader, slot: Slot) -> storage::Result<Option<UnixMillis>> {
    let (from, to) = table_range(slot, TABLE_GARBAGE);
    let mut since: Option<UnixMillis> = None;
    reader.scan(&from, &to, &mut |_, value| {
        let at = Spared::decode(value).map_or(0, |spared| spared.until_ms);
        since = Some(since.map_or(at, |earliest| earliest.min(at)));
        match at {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    Ok(since)
}

fn first_row(reader: &dyn Reader, from: &[u8], to: &[u8]) -> storage::Result<Option<Bytes>> {
    let mut first = None;
    reader.scan(from, to, &mut |row, _| {
        first = Some(Bytes::copy_from_slice(row));
        ControlFlow::Break(())
    })?;
    Ok(first)
}

/// Returns up to `limit` unexpired keys of a slot, for `CLUSTER COUNTKEYSINSLOT` and
/// `GETKEYSINSLOT`.
///
/// # Errors
/// Those of the reader.
pub fn keys_in_slot(
    reader: &dyn Reader,
    slot: Slot,
    db: u16,
    now_ms: UnixMillis,
    limit: usize,
) -> storage::Result<Vec<Bytes>> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    let mut corrupt = None;
    visit_keys(reader, SlotRange { first: slot, last: slot }, db, 0, &mut |key: KeyRef<'_>, value| {
        match Meta::decode(&Bytes::copy_from_slice(value)) {
            Ok(meta) if meta.is_due(now_ms) => return ControlFlow::Continue(()),
            Ok(_) => found.push(Bytes::copy_from_slice(key.key)),
            Err(error) => corrupt = Some(error),
        }
        if found.len() < limit && corrupt.is_none() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    corrupt.map_or(Ok(found), Err)
}
