//! Random picks of elements.
//!
//! Every element of a collection is picked with almost the same probability. A small collection is
//! read from its beginning. A large one is divided into parts of the hashes' range that hold about
//! [`PART_ROWS`] elements each: a random part is read and accepted with a probability proportional
//! to the number of its elements, and one of them is picked. So a pick costs about two seeks and 14
//! rows, whatever the size.
//!
//! A part with [`PART_ROWS_SURE`] elements or more is always accepted. Its elements are picked less
//! often than others: 3% of all elements, by about a tenth.
//!
//! A removal leaves another element of its part for the next removal of the same entry, which then
//! need not read a part. More are left of a part that is always accepted, in proportion to its
//! elements, so entries with several removals prefer no part. But elements that are removed
//! together are neighbours, so those that remain become less even: after three quarters of a set
//! were removed in this way, a tenth of the elements is picked less often, by about a sixth.
//!
//! Only names that were chosen for their hashes can make it less fair: of a part with more than
//! [`PART_ROWS_MAX`] elements, the first element at or after a random hash is picked.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use storage::KeyRef;
use types::Draw;

use super::{all_elements, delete_elements, delete_found, visit_elements, visit_part};
use crate::exec::{Collection, CommandResult, Exec, Key};

/// Maximum number of elements of a collection that is never divided into parts.
const READ_WHOLE: u64 = 128;
/// Maximum number of elements that are read completely because there are many picks.
const READ_WHOLE_MAX: u64 = 1 << 16;
/// Average number of elements in a part of a large collection.
const PART_ROWS: u64 = 8;
/// Number of elements from which a part is always accepted.
const PART_ROWS_SURE: u64 = 14;
/// Maximum number of elements of a part that are read. A part of evenly spread hashes has more with
/// a probability below 10^-14.
const PART_ROWS_MAX: u64 = 40;
/// A pick from a large collection costs about as much as reading this number of rows in order.
const ROWS_PER_PICK: u64 = 32;
/// Maximum number of parts that one pick reads. More are needed with a probability below 10^-10.
const PARTS_PER_PICK: u32 = 32;
/// Number of elements that removals take from a part with at most [`PART_ROWS_SURE`] elements, if
/// the entry has as many removals. More of them would leave the elements far less even.
const REMOVED_PER_PART: u64 = 2;

/// Picks random elements with repetition.
pub(crate) struct Picker<'a, 't, 'r> {
    exec: &'a Exec<'t, 'r>,
    key: &'a KeyRef<'a>,
    collection: Collection,
    random: Draw,
    /// All elements, if they are few for that many picks.
    whole: Option<Vec<(Bytes, Bytes)>>,
}

impl<'a, 't, 'r> Picker<'a, 't, 'r> {
    /// Prepares about this number of picks.
    pub fn new(
        exec: &'a Exec<'t, 'r>,
        key: &'a KeyRef<'a>,
        collection: Collection,
        picks: u64,
    ) -> CommandResult<Picker<'a, 't, 'r>> {
        let affordable = picks.saturating_mul(ROWS_PER_PICK).min(READ_WHOLE_MAX);
        let whole = match picks > 1 && collection.len <= READ_WHOLE.max(affordable) {
            true => Some(all_elements(exec, key, collection.generation)?),
            false => None,
        };
        Ok(Picker { exec, key, collection, random: Draw::new(exec.seed), whole })
    }

    /// Returns `None` only for a collection without elements.
    pub fn pick(&mut self) -> CommandResult<Option<(Bytes, Bytes)>> {
        self.pick_with(None)
    }

    /// Same as [`pick`](Self::pick), but adds the names of other elements of the same part to
    /// `spares`. Adds none if the collection or the part is read in another way.
    fn pick_with(&mut self, spares: Option<&mut Vec<Bytes>>) -> CommandResult<Option<(Bytes, Bytes)>> {
        if let Some(whole) = &self.whole {
            if whole.is_empty() {
                return Ok(None);
            }
            let at = self.random.below(whole.len() as u64) as usize;
            return Ok(whole.get(at).cloned());
        }
        if self.collection.len <= READ_WHOLE {
            let at = self.random.below(self.collection.len.max(1));
            return match self.nth(at)? {
                // There are fewer elements than the collection's length, which is damage.
                Err(count) if count > 0 => Ok(self.nth(at % count)?.ok()),
                found => Ok(found.ok()),
            };
        }
        let parts = (self.collection.len / PART_ROWS).max(1);
        let width = u64::MAX / parts;
        for _ in 0..PARTS_PER_PICK {
            let part = self.random.below(parts);
            let first = part * width;
            // The last part also has what the division leaves over.
            let last = if part + 1 == parts { u64::MAX } else { first + (width - 1) };
            let mut found = self.first_of(first, last, PART_ROWS_MAX + 1)?;
            let count = found.len() as u64;
            if count > PART_ROWS_MAX {
                let from = first + self.random.below(width);
                found = self.first_of(from, last, 1)?;
                return match found.first() {
                    Some(picked) => Ok(Some(picked)),
                    None => self.at_or_after(first),
                };
            }
            if self.random.below(PART_ROWS_SURE) < count {
                let picked = found.take(&mut self.random);
                if let Some(spares) = spares {
                    // The remainder counts in proportion.
                    let wanted = REMOVED_PER_PART * count.max(PART_ROWS_SURE);
                    let removed = (wanted + self.random.below(PART_ROWS_SURE)) / PART_ROWS_SURE;
                    spares.extend(
                        (1..removed).filter_map(|_| found.take(&mut self.random)).map(|(name, _)| name),
                    );
                }
                return Ok(picked);
            }
        }
        let from = self.random.number();
        self.at_or_after(from)
    }

    /// Returns the element with this number in the order of rows. If there are fewer, the error is
    /// their number.
    fn nth(&self, at: u64) -> CommandResult<Result<(Bytes, Bytes), u64>> {
        let (mut passed, mut found) = (0, None);
        visit_elements(self.exec, self.key, self.collection.generation, 0, &mut |_, name, value| {
            if passed < at {
                passed += 1;
                return ControlFlow::Continue(());
            }
            found = Some((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
            ControlFlow::Break(())
        })?;
        Ok(found.ok_or(passed))
    }

    /// Returns up to `max` elements with these hashes.
    fn first_of(&self, first: u64, last: u64, max: u64) -> CommandResult<Found> {
        let mut found = Found::with_room();
        let generation = self.collection.generation;
        visit_part(self.exec, self.key, generation, (first, last), &mut |_, name, value| {
            found.push(name, value);
            if found.len() as u64 == max {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(found)
    }

    /// Returns the first element at or after a hash, wrapping around at the end.
    fn at_or_after(&self, hash: u64) -> CommandResult<Option<(Bytes, Bytes)>> {
        match self.first_of(hash, u64::MAX, 1)?.first() {
            None => Ok(self.first_of(0, u64::MAX, 1)?.first()),
            found => Ok(found),
        }
    }
}

/// Names and values in one buffer, because few of them are picked.
struct Found {
    bytes: Vec<u8>,
    elements: Vec<FoundElement>,
}

/// The place of an element in the buffer.
#[derive(Clone, Copy)]
struct FoundElement {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Found {
    /// Creates a buffer with room for most parts with short elements.
    fn with_room() -> Found {
        let rows = 2 * PART_ROWS as usize;
        Found { bytes: Vec::with_capacity(32 * rows), elements: Vec::with_capacity(rows) }
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.elements.push(FoundElement { start, name_end, end: self.bytes.len() });
    }

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn get(&self, element: FoundElement) -> (Bytes, Bytes) {
        let copy = |range| Bytes::copy_from_slice(&self.bytes[range]);
        (copy(element.start..element.name_end), copy(element.name_end..element.end))
    }

    fn first(&self) -> Option<(Bytes, Bytes)> {
        self.elements.first().map(|first| self.get(*first))
    }

    /// Takes a random one out.
    fn take(&mut self, random: &mut Draw) -> Option<(Bytes, Bytes)> {
        if self.elements.is_empty() {
            return None;
        }
        let at = random.below(self.len() as u64) as usize;
        let taken = self.elements.swap_remove(at);
        Some(self.get(taken))
    }
}

/// Removes a random element and returns its name, or `None` only for a collection without elements.
pub(crate) fn remove_random(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    collection: Collection,
) -> CommandResult<Option<Bytes>> {
    let generation = collection.generation;
    while let Some(name) = exec.txn.take_spare(&key.meta_row, generation) {
        if delete_elements(exec, key, collection, [&name])? == 1 {
            return Ok(Some(name));
        }
    }
    let mut spares = Vec::new();
    let picked = Picker::new(exec, key, collection, 1)?.pick_with(Some(&mut spares))?;
    let Some(picked) = picked else { return Ok(None) };
    exec.txn.leave_spares(&key.meta_row, generation, spares);
    delete_found(exec, key, collection, [&picked]);
    Ok(Some(picked.0))
}

/// Picks `count` different elements, or all if there are fewer. Many elements are picked in one
/// pass over the collection.
pub(crate) fn pick_distinct(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    collection: Collection,
    count: u64,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    if collection.len > READ_WHOLE && count <= collection.len / ROWS_PER_PICK {
        let mut picker = Picker::new(exec, key, collection, 1)?;
        let mut picked = BTreeMap::new();
        for _ in 0..count.saturating_mul(4) {
            let Some((name, value)) = picker.pick()? else { continue };
            exec.hold(2, name.len() + value.len())?;
            picked.insert(name, value);
            if picked.len() as u64 == count {
                return Ok(picked.into_iter().collect());
            }
        }
    }
    let mut random = Draw::new(exec.seed);
    let (mut left, mut wanted) = (collection.len, count.min(collection.len));
    let mut picked = Vec::new();
    if wanted == 0 {
        return Ok(picked);
    }
    visit_elements(exec, key, collection.generation, 0, &mut |_, name, value| {
        if random.below(left.max(1)) < wanted {
            picked.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
            wanted -= 1;
            exec.holding(2, name.len() + value.len())?;
        }
        left = left.saturating_sub(1);
        match wanted {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    exec.check_held()?;
    Ok(picked)
}

/// Picks `count` elements. The same one may be picked more than once.
pub(crate) fn pick_repeatedly(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    collection: Collection,
    count: u64,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    let mut picker = Picker::new(exec, key, collection, count)?;
    let mut picked = Vec::new();
    for _ in 0..count {
        let Some((name, value)) = picker.pick()? else { continue };
        exec.hold(2, name.len() + value.len())?;
        picked.push((name, value));
    }
    Ok(picked)
}
