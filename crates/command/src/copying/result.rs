//! The results that `SUNIONSTORE`, `ZUNIONSTORE`, their kind and `ZRANGESTORE` store, a part at a
//! time, and the members that are left after `ZREMRANGEBYRANK`, `ZPOPMIN`, `SPOP` and their kind
//! ([`rest`]).
//!
//! Rows of elements have the same order in all sets, that of the hashes of their names. So a part
//! takes the next elements of each source in this order, and its result depends on no other
//! elements.
//!
//! The tree of a sorted set has another order, and insertions all over it would write most of its
//! nodes in each part. So the first parts also write the members with their scores as rows of a
//! second generation, whose order is that of the tree, and later parts append them to it:
//!
//! ```text
//! place of a part   empty, or 0u8 | sub-key of the next element     of the sources
//!                   1u8 | sub-key of the next row                   of the second generation
//! its sub-keys      score u64, whose bytes have the order of scores | name
//! ```

mod rest;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::{packed, KeyRef, StorageError};

use super::{Ticket, PART_BYTES, SOURCES_MAX};
use crate::counted_tree::Direction;
use crate::elements::{element_row, replace, visit_elements, NAME_HASH_LEN};
use crate::exec::{held_bytes, Collection, CollectionKind, CommandResult, Exec, Key, HELD_ROW};
use crate::sets;
use crate::sorted_sets::algebra::{self, Operation, Request};
use crate::sorted_sets::range::{self, Ranks};
use crate::sorted_sets::{self, Member};

use self::rest::Rest;
pub(super) use self::rest::{pops, pops_few, removed_from, removes};

/// The first byte of a place in the sources, and of one in the second generation.
const COMBINED: u8 = 0;
const SORTED: u8 = 1;
const SIGN: u64 = 1 << 63;

/// A result to store under the first key of the command.
pub(super) struct Stored<'k> {
    pub to: Key<'k>,
    kind: CollectionKind,
    of: Of<'k>,
}

enum Of<'k> {
    Combination(Operation, Request<'k>),
    Range(Ranks<'k>),
    Rest(Rest<'k>),
}

/// The place where a part begins, and the number of elements that the parts before have stored.
#[derive(Clone, Copy)]
pub(super) struct Begun<'p> {
    pub place: &'p [u8],
    pub len: u64,
}

/// The outcome of a part.
pub(super) struct Done {
    /// The place where the next part begins, if anything is left.
    pub next: Option<Bytes>,
    /// The number of elements stored so far.
    pub len: u64,
    /// The members found that the end removes, for the reply.
    pub removed: Vec<Reply>,
}

impl<'k> Stored<'k> {
    /// Returns the result of a command; `None` for other commands and for wrong arguments.
    pub fn of(name: &str, args: &'k [Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Option<Stored<'k>>> {
        let to = exec.key(&args[1]);
        let (kind, operation) = match name {
            "sunionstore" => (CollectionKind::Set, Operation::Union),
            "sinterstore" => (CollectionKind::Set, Operation::Intersection),
            "sdiffstore" => (CollectionKind::Set, Operation::Difference),
            "zunionstore" => (CollectionKind::SortedSet, Operation::Union),
            "zinterstore" => (CollectionKind::SortedSet, Operation::Intersection),
            "zdiffstore" => (CollectionKind::SortedSet, Operation::Difference),
            "zrangestore" => {
                let ranks = range::stored(args, exec)?;
                return Ok(ranks.map(|ranks| Stored {
                    to,
                    kind: CollectionKind::SortedSet,
                    of: Of::Range(ranks),
                }));
            }
            name => {
                let rest = Rest::of(name, args, exec)?;
                return Ok(rest.map(|rest| Stored { to, kind: rest.kind(), of: Of::Rest(rest) }));
            }
        };
        let request = match kind {
            CollectionKind::Set => sets::algebra::stored(operation, args, exec)?,
            _ => algebra::stored(name, operation, args, exec)?,
        };
        Ok(Some(Stored { to, kind, of: Of::Combination(operation, request) }))
    }

    /// Returns the sources that exist.
    pub fn sources(&self) -> Vec<KeyRef<'k>> {
        match &self.of {
            Of::Combination(_, request) => {
                let existing = request.sources.iter().filter(|source| source.set.is_some());
                existing.map(|source| *source.key).collect()
            }
            Of::Range(ranks) => vec![*ranks.from],
            Of::Rest(_) => vec![*self.to],
        }
    }

    /// Returns true if the command has to read at least as many elements, or a multiple of them if
    /// it removes members.
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
            Of::Range(ranks) => ranks.count >= elements,
            Of::Rest(rest) => rest.is_large(elements),
        }
    }

    /// Returns true if members are put in order of their scores.
    pub fn sorts(&self) -> bool {
        matches!(self.of, Of::Combination(..)) && self.kind == CollectionKind::SortedSet
    }

    /// Stores the next elements under a generation that no meta row names.
    pub(super) fn part(
        &self,
        exec: &mut Exec<'_, '_>,
        ticket: &Ticket,
        begun: Begun<'_>,
    ) -> CommandResult<Done> {
        let (next, len) = match &self.of {
            Of::Combination(operation, request) => match begun.place.split_first() {
                Some((&SORTED, first)) => {
                    let next = self.append_sorted(exec, ticket, first)?;
                    (next.map(|next| place(SORTED, &next)), begun.len)
                }
                first => {
                    let first = first.map_or(&[][..], |(_, first)| first);
                    let (found, next) = combine(exec, request, *operation, (first, ticket.rows))?;
                    let (next, len) = self.store_combined(exec, ticket, begun.len, (found, next))?;
                    let next = match next {
                        None if self.sorts() && len > 0 => Some(place(SORTED, &[])),
                        next => next.map(|next| place(COMBINED, &next)),
                    };
                    (next, len)
                }
            },
            Of::Range(ranks) => {
                let next = (ranks.first + begun.len, ranks.count.saturating_sub(begun.len));
                let len = begun.len + self.store_members(exec, ticket, ranks, next)?;
                ((len < ranks.count).then(|| Bytes::copy_from_slice(&len.to_be_bytes())), len)
            }
            Of::Rest(rest) => return rest.part(self, exec, ticket, begun),
        };
        Ok(Done { next, len, removed: Vec::new() })
    }

    /// Stores the next of `left` members with consecutive ranks from `first` on, and returns their
    /// number.
    fn store_members(
        &self,
        exec: &mut Exec<'_, '_>,
        ticket: &Ticket,
        of: &Ranks<'_>,
        (first, left): (u64, u64),
    ) -> CommandResult<u64> {
        let part = read_members(exec, of, (first, left.min(u64::from(ticket.rows))), Direction::Forward)?;
        sorted_sets::append_unseen(exec, &self.to, ticket.generation, &part)?;
        sorted_sets::put_unseen(exec, &self.to, ticket.generation, &part);
        Ok(part.len() as u64)
    }

    fn store_combined(
        &self,
        exec: &mut Exec<'_, '_>,
        ticket: &Ticket,
        mut len: u64,
        (found, mut next): Combined,
    ) -> CommandResult<(Option<Bytes>, u64)> {
        for (subkey, score) in found {
            let name = &subkey[NAME_HASH_LEN..];
            if !exec.find_room(stored_bytes(name)) {
                next = Some(subkey);
                break;
            }
            let row = element_row(&self.to, ticket.generation, name);
            len += 1;
            if self.kind == CollectionKind::Set {
                exec.put_unseen(&self.to, row, None, Bytes::new());
                continue;
            }
            let score = sorted_sets::stored(score);
            exec.put_unseen(&self.to, row, None, sorted_sets::score_value(score));
            let sorted = self.to.numbered_element_row(ticket.sorted(), ordered(score), name);
            exec.put_unseen(&self.to, sorted, None, Bytes::new());
        }
        Ok((next, len))
    }

    /// Appends the next members to the tree. Returns the next sub-key, if there is one.
    fn append_sorted(
        &self,
        exec: &mut Exec<'_, '_>,
        ticket: &Ticket,
        first: &[u8],
    ) -> CommandResult<Option<Bytes>> {
        let (to, mut members, mut bytes, mut next) = (&self.to, Vec::new(), 0, None);
        let (begin, end) = to.element_range(ticket.sorted());
        let start = to.element_row(ticket.sorted(), first);
        exec.txn.scan(&start, &end, &mut |row, _| {
            let subkey = &row[begin.len()..];
            let Some((score, name)) = subkey.split_first_chunk() else { return ControlFlow::Break(()) };
            let is_full = members.len() as u64 == u64::from(ticket.rows) || bytes >= PART_BYTES;
            if is_full || !exec.find_room(stored_bytes(name)) {
                next = Some(Bytes::copy_from_slice(subkey));
                return ControlFlow::Break(());
            }
            bytes += name.len();
            let score = score_of(u64::from_be_bytes(*score));
            members.push(Member { score, name: Bytes::copy_from_slice(name) });
            ControlFlow::Continue(())
        })?;
        sorted_sets::append_unseen(exec, to, ticket.generation, &members)?;
        Ok(next)
    }

    /// Stores the result in place of the destination's value. Returns the reply, and true if the
    /// elements that the parts have stored are no garbage.
    pub fn end(&self, exec: &mut Exec<'_, '_>, generation: u64, len: u64) -> CommandResult<(Reply, bool)> {
        let (to, kind) = (&self.to, self.kind);
        // Only here the look-ups of the sources count.
        for source in self.keys() {
            exec.reading(|exec| exec.find(source))?;
        }
        let (reply, expire_at_ms) = match &self.of {
            Of::Rest(rest) => (rest.reply(), rest.expire_at_ms()),
            _ => (Reply::Int(len as i64), None),
        };
        let small = self.small_elements(exec, generation)?;
        let takes = small.is_none();
        match small {
            None => {
                if let Some(old) = exec.find(to)? {
                    exec.remove(to, &old)?;
                }
                exec.put_collection(to, None, Collection { kind, generation, len, expire_at_ms });
            }
            // It is written again, as one row.
            Some(elements) if kind == CollectionKind::SortedSet => {
                let mut members = elements
                    .into_iter()
                    .map(|(name, score)| Ok(Member { score: sorted_sets::decode_score(&score)?, name }))
                    .collect::<CommandResult<Vec<_>>>()?;
                members.sort_by(Member::order);
                sorted_sets::replace(exec, to, expire_at_ms, &members)?;
            }
            Some(elements) => replace(exec, to, (kind, expire_at_ms), elements)?,
        }
        Ok((reply, takes))
    }

    /// Returns the keys whose look-ups count.
    fn keys(&self) -> Vec<&Key<'k>> {
        match &self.of {
            Of::Combination(_, request) => request.sources.iter().map(|source| &source.key).collect(),
            Of::Range(ranks) => vec![&ranks.from],
            Of::Rest(_) => Vec::new(),
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

/// Reads at most `left` members of a sorted set from either end, without the first `skipped` ones,
/// until a part is full.
fn read_members(
    exec: &Exec<'_, '_>,
    of: &Ranks<'_>,
    (skipped, left): (u64, u64),
    direction: Direction,
) -> CommandResult<Vec<Member>> {
    let (mut part, mut bytes, mut is_short) = (Vec::new(), 0, left > 0);
    sorted_sets::visit_members(exec, &of.from, of.set, (skipped, direction), &mut |member| {
        is_short = false;
        let is_full = part.len() as u64 == left || bytes >= PART_BYTES;
        if is_full || !exec.find_room(stored_bytes(&member.name)) {
            return ControlFlow::Break(());
        }
        bytes += member.name.len();
        part.push(member);
        ControlFlow::Continue(())
    })?;
    match is_short {
        true => Err(StorageError::Corrupt("a sorted set has too few members".into()).into()),
        false => Ok(part),
    }
}

/// Returns the bytes for which a member counts that is stored.
fn stored_bytes(name: &[u8]) -> u64 {
    held_bytes(2 * HELD_ROW, 2 * name.len())
}

fn place(kind: u8, subkey: &[u8]) -> Bytes {
    [&[kind], subkey].concat().into()
}

/// Returns a number that has the place of a score in the order of scores.
fn ordered(score: f64) -> u64 {
    let bits = score.to_bits();
    match bits & SIGN {
        0 => bits | SIGN,
        _ => !bits,
    }
}

fn score_of(ordered: u64) -> f64 {
    f64::from_bits(match ordered & SIGN {
        0 => !ordered,
        _ => ordered & !SIGN,
    })
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
    let limits = ((rows as usize / sources.len().max(1)).max(1), PART_BYTES);
    let mut next = None;
    let Some((driver, others)) = sources.split_first() else { return Ok((Vec::new(), next)) };
    if operation != Operation::Union {
        let read = driver.read(exec, first, limits, &mut next)?;
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
        for (subkey, score) in source.read(exec, first, limits, &mut next)? {
            request.add(source, scores.entry(subkey), score);
        }
    }
    // Of what follows, not all sources have been read.
    if let Some(next) = &next {
        scores.split_off(next);
    }
    Ok((scores.into_iter().collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_scores_is_that_of_their_numbers() {
        let scores = [
            f64::NEG_INFINITY,
            -1e300,
            -1.5,
            -1.0,
            -f64::MIN_POSITIVE,
            0.0,
            5e-324,
            1.0,
            1.5,
            1e300,
            f64::INFINITY,
        ];
        assert!(scores.map(ordered).is_sorted());
        assert!(scores.iter().all(|score| score_of(ordered(*score)).to_bits() == score.to_bits()));
    }
}
