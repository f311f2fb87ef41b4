//! The results that `SUNIONSTORE`, `ZUNIONSTORE`, their kind and `ZRANGESTORE` store, a part at a
//! time.
//!
//! Rows of elements have the same order in all sets, that of the hashes of their names. So a part
//! takes the next elements of each source in this order, and its result depends on no other
//! elements. Members of a sorted set also get into its tree, which has another order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::{packed, KeyRef, StorageError};

use super::{PART_BYTES, SOURCES_MAX};
use crate::elements::{element_row, replace, visit_elements, NAME_HASH_LEN};
use crate::exec::{held_bytes, Collection, CollectionKind, CommandResult, Exec, Key, HELD_ROW};
use crate::sets;
use crate::sorted_sets::algebra::{self, Operation, Request};
use crate::sorted_sets::{self, range, Member};

/// Bytes for which a member's place in a tree counts: those of a node, which it changes.
const TREE_BYTES: usize = 2048;

/// A result to store under the first key of the command.
pub(super) struct Stored<'k> {
    pub to: Key<'k>,
    kind: CollectionKind,
    of: Of<'k>,
}

enum Of<'k> {
    Combination(Operation, Request<'k>),
    /// Members of a sorted set with consecutive ranks: the first one's, and their number.
    Range(Key<'k>, Collection, (u64, u64)),
}

/// The place where a part begins, and the number of elements that the parts before have stored.
#[derive(Clone, Copy)]
pub(super) struct Begun<'p> {
    pub place: &'p [u8],
    pub len: u64,
}

impl<'k> Stored<'k> {
    /// Returns the result of a command; `None` for other commands and for wrong arguments.
    pub fn of(name: &str, args: &'k [Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Option<Stored<'k>>> {
        let to = exec.key(&args[1]);
        let of = match name {
            "zrangestore" => range::stored(args, exec)?.map(|(from, set, part)| Of::Range(from, set, part)),
            _ => match sets::algebra::stored(name, args, exec)? {
                Some((operation, request)) => Some(Of::Combination(operation, request)),
                None => algebra::stored(name, args, exec)?
                    .map(|(operation, request)| Of::Combination(operation, request)),
            },
        };
        let kind = match name.as_bytes() {
            [b's', ..] => CollectionKind::Set,
            _ => CollectionKind::SortedSet,
        };
        Ok(of.map(|of| Stored { to, kind, of }))
    }

    /// Returns the sources that exist.
    pub fn sources(&self) -> Vec<KeyRef<'k>> {
        match &self.of {
            Of::Combination(_, request) => {
                let existing = request.sources.iter().filter(|source| source.set.is_some());
                existing.map(|source| *source.key).collect()
            }
            Of::Range(from, ..) => vec![**from],
        }
    }

    /// Returns true if the command has to read at least as many elements.
    pub fn is_large(&self, elements: u32) -> bool {
        let elements = u64::from(elements);
        match &self.of {
            Of::Combination(_, request) if request.sources.len() > SOURCES_MAX => false,
            Of::Combination(Operation::Union, request) => {
                request.sources.iter().fold(0u64, |sum, source| sum.saturating_add(source.len())) >= elements
            }
            Of::Combination(Operation::Intersection, request) => {
                request.sources.iter().all(|source| source.len() >= elements)
            }
            Of::Combination(Operation::Difference, request) => {
                request.sources.first().is_some_and(|source| source.len() >= elements)
            }
            Of::Range(_, _, (_, count)) => *count >= elements,
        }
    }

    /// Stores the next elements under a generation that no meta row names. Returns the place where
    /// the next part begins, if any are left, and the number of elements stored so far.
    pub fn part(
        &self,
        exec: &mut Exec<'_, '_>,
        (generation, rows): (u64, u32),
        begun: Begun<'_>,
    ) -> CommandResult<(Option<Bytes>, u64)> {
        match &self.of {
            Of::Combination(operation, request) => {
                let (found, next) = combine(exec, request, *operation, (begun.place, rows))?;
                self.store_combined(exec, generation, begun.len, (found, next))
            }
            Of::Range(from, set, (first, count)) => {
                let (mut part, mut bytes) = (Vec::new(), 0);
                let left = count.saturating_sub(begun.len).min(u64::from(rows));
                let mut is_short = true;
                sorted_sets::visit_members(exec, from, *set, first + begun.len, &mut |member| {
                    is_short = false;
                    let is_full = part.len() as u64 == left || bytes >= PART_BYTES;
                    if is_full || !exec.find_room(stored_bytes(&member.name, TREE_BYTES)) {
                        return ControlFlow::Break(());
                    }
                    bytes += member.name.len();
                    part.push(member);
                    ControlFlow::Continue(())
                })?;
                if is_short && left > 0 {
                    return Err(StorageError::Corrupt("a sorted set has too few members".into()).into());
                }
                let len = begun.len + part.len() as u64;
                sorted_sets::add_unseen(exec, &self.to, (generation, begun.len), &part)?;
                Ok(((len < *count).then(|| Bytes::copy_from_slice(&len.to_be_bytes())), len))
            }
        }
    }

    fn store_combined(
        &self,
        exec: &mut Exec<'_, '_>,
        generation: u64,
        len: u64,
        (found, mut next): (Vec<(Bytes, f64)>, Option<Bytes>),
    ) -> CommandResult<(Option<Bytes>, u64)> {
        let tree = if self.kind == CollectionKind::SortedSet { TREE_BYTES } else { 0 };
        let mut members = Vec::with_capacity(found.len());
        for (subkey, score) in found {
            if !exec.find_room(stored_bytes(&subkey[NAME_HASH_LEN..], tree)) {
                next = Some(subkey);
                break;
            }
            members.push(Member { score, name: subkey.slice(NAME_HASH_LEN..) });
        }
        let stored = len + members.len() as u64;
        if self.kind == CollectionKind::Set {
            for member in &members {
                let row = element_row(&self.to, generation, &member.name);
                exec.put_unseen(&self.to, row, None, Bytes::new());
            }
        } else {
            members.sort_by(Member::order);
            sorted_sets::add_unseen(exec, &self.to, (generation, len), &members)?;
        }
        Ok((next, stored))
    }

    /// Stores the result in place of the destination's value. Returns the reply, and true if the
    /// elements that the parts have stored are no garbage.
    pub fn end(&self, exec: &mut Exec<'_, '_>, generation: u64, len: u64) -> CommandResult<(Reply, bool)> {
        let (to, kind) = (&self.to, self.kind);
        // Only here the look-ups of the sources count.
        for source in self.keys() {
            exec.reading(|exec| exec.find(source))?;
        }
        let small = self.small_elements(exec, generation)?;
        let takes = small.is_none();
        match small {
            None => {
                if let Some(old) = exec.find(to)? {
                    exec.remove(to, &old)?;
                }
                exec.put_collection(to, None, Collection { kind, generation, len, expire_at_ms: None });
            }
            // It is written again, as one row.
            Some(elements) if kind == CollectionKind::SortedSet => {
                let mut members = elements
                    .into_iter()
                    .map(|(name, score)| Ok(Member { score: sorted_sets::decode_score(&score)?, name }))
                    .collect::<CommandResult<Vec<_>>>()?;
                members.sort_by(Member::order);
                sorted_sets::replace(exec, to, None, &members)?;
            }
            Some(elements) => replace(exec, to, (kind, None), elements)?,
        }
        Ok((Reply::Int(len as i64), takes))
    }

    fn keys(&self) -> Vec<&Key<'k>> {
        match &self.of {
            Of::Combination(_, request) => request.sources.iter().map(|source| &source.key).collect(),
            Of::Range(from, ..) => vec![from],
        }
    }

    /// Returns the elements that the parts have stored, if they may fit a packed collection.
    fn small_elements(
        &self,
        exec: &Exec<'_, '_>,
        generation: u64,
    ) -> CommandResult<Option<Vec<(Bytes, Bytes)>>> {
        let (mut elements, mut bytes) = (Vec::new(), 0);
        visit_elements(exec, &self.to, generation, 0, &mut |_, name, value| {
            bytes += name.len() + value.len() + NAME_HASH_LEN;
            if bytes > packed::BYTES_MAX {
                return ControlFlow::Break(());
            }
            elements.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
            ControlFlow::Continue(())
        })?;
        Ok((bytes <= packed::BYTES_MAX).then_some(elements))
    }
}

/// Returns the bytes for which a member counts that is stored.
fn stored_bytes(name: &[u8], tree: usize) -> u64 {
    held_bytes(HELD_ROW, 2 * name.len() + tree)
}

/// The sub-keys of the elements of a part, with their scores, and the next sub-key, if there is
/// one.
type Combined = (Vec<(Bytes, f64)>, Option<Bytes>);

fn combine(
    exec: &Exec<'_, '_>,
    request: &Request<'_>,
    operation: Operation,
    (first, rows): (&[u8], u32),
) -> CommandResult<Combined> {
    let sources = &request.sources;
    // A part looks at this many elements of all sources together.
    let rows = (rows as usize / sources.len().max(1)).max(1);
    let mut next = None;
    let Some((driver, others)) = sources.split_first() else { return Ok((Vec::new(), next)) };
    if operation != Operation::Union {
        let read = driver.read(exec, (first, rows), &mut next)?;
        let mut found = Vec::with_capacity(read.len());
        for (subkey, score) in read {
            if let Some(score) = request.score(exec, operation, others, (&subkey[NAME_HASH_LEN..], score))? {
                found.push((subkey, score));
            }
        }
        return Ok((found, next));
    }
    let mut scores: BTreeMap<Bytes, f64> = BTreeMap::new();
    for source in sources {
        for (subkey, score) in source.read(exec, (first, rows), &mut next)? {
            request.add(source, scores.entry(subkey), score);
        }
    }
    // Of what follows, not all sources have been read.
    if let Some(next) = &next {
        scores.split_off(next);
    }
    Ok((scores.into_iter().collect(), next))
}
