//! The elements of collections: one row per field of a hash or member of a set or sorted set.
//!
//! Element rows are ordered by the hash of the element's name, as keys are. This gives `HSCAN`,
//! `SSCAN` and `ZSCAN` a stateless 64-bit cursor, and lets a random pick jump into a large
//! collection.

pub(crate) mod random;

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::packed::is_packed;
pub(crate) use storage::packed::NAME_HASH_LEN;
use storage::rows::row_behind;
use storage::{KeyRef, StorageError};

use crate::exec::{Collection, CollectionKind, CommandResult, Exec, Key, HELD_ROW};
use crate::keys::scan::{scan_reply, ScanOptions};

pub(crate) fn element_row(key: &KeyRef<'_>, generation: u64, name: &[u8]) -> Bytes {
    key.numbered_element_row(generation, types::key_hash(name), name)
}

/// A callback that receives the hash of an element's name, the name and the value. `Break` ends the
/// walk.
pub(crate) type VisitElement<'a> = dyn FnMut(u64, &[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Visits names and values in row order, starting at the name's hash `from`.
pub(crate) fn visit_elements(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
    from: u64,
    visit: &mut VisitElement<'_>,
) -> CommandResult<()> {
    visit_part(exec, key, generation, (from, u64::MAX), visit)
}

/// Same as [`visit_elements`], but ends with the hash `last`. So it reads no row behind it.
pub(crate) fn visit_part(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
    (first, last): (u64, u64),
    visit: &mut VisitElement<'_>,
) -> CommandResult<()> {
    let start = key.element_row(generation, &first.to_be_bytes());
    let end = match last.checked_add(1) {
        Some(next) => key.element_row(generation, &next.to_be_bytes()),
        None => key.element_range(generation).1,
    };
    visit_rows(exec, start.len() - NAME_HASH_LEN, (&start, &end), visit)
}

/// Visits the rows in `start..end`. A row consists of a prefix of this length, the name's hash, and
/// the name.
fn visit_rows(
    exec: &Exec<'_, '_>,
    prefix: usize,
    (start, end): (&[u8], &[u8]),
    visit: &mut VisitElement<'_>,
) -> CommandResult<()> {
    let mut corrupt = false;
    exec.txn.scan(start, end, &mut |row, value| {
        let Some((hash, name)) = row[prefix..].split_at_checked(NAME_HASH_LEN) else {
            corrupt = true;
            return ControlFlow::Break(());
        };
        visit(u64::from_be_bytes(hash.try_into().expect("eight bytes")), name, value)
    })?;
    match corrupt {
        true => Err(StorageError::Corrupt("an element's row has no hash".into()).into()),
        false => Ok(()),
    }
}

/// Maximum number of elements that are looked at to tell how Redis encodes a collection, whatever
/// the thresholds. Larger collections count as those above a threshold.
pub(crate) const LOOKED_AT_MAX: u64 = 1 << 16;

/// Number of elements that [`visit_in_batches`] reads before it visits them.
const BATCH: usize = 256;

/// Visits all names and values in row order with a callback that may look up other rows.
pub(crate) fn visit_in_batches(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
    mut visit: impl FnMut(Bytes, Bytes) -> CommandResult<ControlFlow<()>>,
) -> CommandResult<()> {
    let (mut start, end) = key.element_range(generation);
    let prefix = start.len();
    loop {
        let mut batch = Vec::new();
        visit_rows(exec, prefix, (&start, &end), &mut |_, name, value| {
            batch.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
            if batch.len() < BATCH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let is_last = batch.len() < BATCH;
        if let Some((last, _)) = batch.last() {
            start = row_behind(&element_row(key, generation, last));
        }
        for (name, value) in batch {
            if visit(name, value)?.is_break() {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Returns all names and values of a collection.
pub(crate) fn all_elements(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    let mut elements = Vec::new();
    visit_elements(exec, key, generation, 0, &mut |_, name, value| {
        elements.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
        exec.holding(1 + usize::from(!value.is_empty()), name.len() + value.len())
    })?;
    exec.check_held()?;
    Ok(elements)
}

/// A collection during a write: its state before, and its state now.
pub(crate) struct Writing {
    old: Option<Collection>,
    pub new: Collection,
    /// True if an element that existed got another value.
    has_overwritten: bool,
}

impl Writing {
    /// Begins a write. A collection that does not exist starts empty, with a new generation.
    pub fn begin(exec: &mut Exec<'_, '_>, kind: CollectionKind, old: Option<Collection>) -> Writing {
        let new = old.unwrap_or_else(|| Collection {
            kind,
            generation: exec.txn.new_collection(),
            len: 0,
            expire_at_ms: None,
        });
        Writing { old, new, has_overwritten: false }
    }

    /// Sets an element. Returns true if it is new.
    pub fn set(
        &mut self,
        exec: &mut Exec<'_, '_>,
        key: &Key<'_>,
        name: &[u8],
        value: Bytes,
    ) -> CommandResult<bool> {
        let row = element_row(key, self.new.generation, name);
        let old = self.get(exec, &row)?.map(|old| old.len());
        exec.put_element(key, row, old, value);
        self.new.len += u64::from(old.is_none());
        self.has_overwritten |= old.is_some();
        Ok(old.is_none())
    }

    /// Adds an element that has no value. Returns false and writes nothing if it exists.
    pub fn add(&mut self, exec: &mut Exec<'_, '_>, key: &Key<'_>, name: &[u8]) -> CommandResult<bool> {
        let row = element_row(key, self.new.generation, name);
        if self.get(exec, &row)?.is_some() {
            return Ok(false);
        }
        exec.put_element(key, row, None, Bytes::new());
        self.new.len += 1;
        Ok(true)
    }

    fn get(&self, exec: &Exec<'_, '_>, row: &[u8]) -> CommandResult<Option<Bytes>> {
        match self.old {
            Some(_) => Ok(exec.txn.get(row)?),
            // The generation is new.
            None => Ok(exec.txn.get_new(row)?),
        }
    }

    pub fn finish(self, exec: &mut Exec<'_, '_>, key: &Key<'_>) {
        let has_other_length = self.old.is_none_or(|old| old.len != self.new.len);
        // A longer value may exceed a threshold.
        let may_exceed = self.has_overwritten && is_packed(self.new.generation) && exec.txn.bounds_layouts();
        if has_other_length || may_exceed {
            exec.put_collection(key, self.old, self.new);
        }
    }
}

/// Deletes elements of a collection, and the key with the last one. Returns the number of elements
/// that existed.
pub(crate) fn delete_elements<'n>(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    old: Collection,
    names: impl IntoIterator<Item = &'n Bytes>,
) -> CommandResult<u64> {
    let mut new = old;
    for name in names {
        let row = element_row(key, old.generation, name);
        if let Some(value) = exec.txn.get(&row)? {
            exec.delete_element(key, row, value.len());
            new.len -= 1;
        }
    }
    put_rest(exec, key, old, new);
    Ok(old.len - new.len)
}

/// Deletes elements that were read from the collection, each once, and the key with the last one.
pub(crate) fn delete_found<'n>(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    old: Collection,
    found: impl IntoIterator<Item = &'n (Bytes, Bytes)>,
) {
    let mut new = old;
    for (name, value) in found {
        exec.delete_element(key, element_row(key, old.generation, name), value.len());
        new.len -= 1;
    }
    put_rest(exec, key, old, new);
}

/// Writes the collection's new length after a deletion, or deletes the key if no element is left.
fn put_rest(exec: &mut Exec<'_, '_>, key: &Key<'_>, old: Collection, new: Collection) {
    match (old.len - new.len, new.len) {
        (0, _) => {}
        (_, 0) => exec.remove_emptied(key, &new.meta()),
        _ => exec.put_collection(key, Some(old), new),
    }
}

/// Writes a collection in place of the key's current value.
pub(crate) fn replace(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    (kind, expire_at_ms): (CollectionKind, Option<u64>),
    elements: Vec<(Bytes, Bytes)>,
) -> CommandResult<()> {
    for (name, value) in &elements {
        exec.hold(HELD_ROW, name.len() + value.len())?;
    }
    if let Some(old) = exec.find(key)? {
        exec.remove(key, &old)?;
    }
    if elements.is_empty() {
        return Ok(());
    }
    let generation = exec.txn.new_collection();
    let len = elements.len() as u64;
    for (name, value) in elements {
        exec.put_element(key, element_row(key, generation, &name), None, value);
    }
    exec.put_collection(key, None, Collection { kind, generation, len, expire_at_ms });
    Ok(())
}

/// Answers one step of a walk over a collection. `show` adds an element to the reply.
pub(crate) fn scan(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
    (cursor, options): (u64, &ScanOptions<'_>),
    show: impl Fn(&[u8], &[u8], &mut Vec<Reply>),
) -> CommandResult {
    let mut found = Vec::new();
    let mut visited = 0;
    let mut last_hash = cursor;
    let mut next = 0;
    // A cursor cannot distinguish elements whose names have the same hash, so they are returned
    // together.
    visit_elements(exec, key, generation, cursor, &mut |hash, name, value| {
        if visited >= options.count && hash != last_hash {
            next = hash;
            return ControlFlow::Break(());
        }
        visited += 1;
        last_hash = hash;
        if options.matches(name) {
            show(name, value, &mut found);
            return exec.holding(2, name.len() + value.len());
        }
        ControlFlow::Continue(())
    })?;
    exec.check_held()?;
    Ok(scan_reply(next, found))
}
