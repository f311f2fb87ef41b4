//! The members that are left after a removal of many others.
//!
//! A command that also returns the members that it removes gets them from its parts: each one
//! replies with those that it has found. The end removes them.
//!
//! ```text
//! place of a part   empty, or
//!                   0u8 | number u64           the members that are left, without this many
//!                   1u8 | number u64           those that ZPOPMIN removes, without this many
//!                   number u64 | sub-key       the next member of an SPOP, and how many are before
//! ```
//!
//! An `SPOP` decides for one member after the other. The next one is removed with the probability
//! "members still to remove / members still to see", so every choice of members is equally
//! probable, and exactly as many as wanted are removed (Knuth, *The Art of Computer Programming*,
//! volume 2, §3.4.2, algorithm S).

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::StorageError;
use types::Draw;

use super::{place, read_members, stored_bytes, Begun, Done, Stored};
use crate::copying::{Ticket, PART_BYTES};
use crate::counted_tree::Direction;
use crate::elements::NAME_HASH_LEN;
use crate::exec::{Collection, CollectionKind, CommandResult, Exec, Key};
use crate::number::popped_number;
use crate::sets::random;
use crate::sorted_sets::range::Ranks;
use crate::sorted_sets::{pop, remove};

/// A removal goes in parts from this many times the elements of a copy on. Below, it takes as long
/// as a few parts.
const REMOVED_MIN: u64 = 4;
/// Maximum number of members that a removal in parts copies for each one that it removes.
const KEPT_MAX: u64 = 4;
/// The first byte of a place among the members that are left, and among those removed.
const LEFT: u8 = 0;
const REMOVED: u8 = 1;

/// The members that are left of the command's set.
pub(super) enum Rest<'k> {
    /// All but these.
    Range(Ranks<'k>),
    /// All but these, which the reply names in the order from this end.
    Popped(Ranks<'k>, Direction),
    /// All but this number of random ones, which the reply names.
    Random(Key<'k>, Collection, u64),
}

/// Returns true if a command with this name removes members, and may go in parts.
pub(crate) fn removes(name: &str) -> bool {
    remove::is_of(name) || pops(name)
}

/// Returns true if a command with this name returns the members that it removes.
pub(crate) fn pops(name: &str) -> bool {
    name == "spop" || pop::end_of(name).is_some()
}

/// Returns true if a command with this name pops, and these arguments show that it removes few
/// members.
pub(crate) fn pops_few(name: &str, args: &[Bytes], elements: u32) -> bool {
    let most = || args.get(2..).map(popped_number).and_then(Result::ok).flatten().unwrap_or(1);
    pops(name) && most() < REMOVED_MIN * u64::from(elements)
}

/// Returns the number of members of a set from which on a removal may go in parts.
pub(crate) fn removed_from(name: &str, elements: u32) -> u64 {
    // A pop may leave none.
    let least = if pops(name) { REMOVED_MIN } else { 2 * REMOVED_MIN };
    least * u64::from(elements)
}

fn damaged(what: &'static str) -> StorageError {
    StorageError::Corrupt(what.into())
}

impl<'k> Rest<'k> {
    /// Returns what a command leaves; `None` for other commands, and if there is no set.
    pub fn of(name: &str, args: &'k [Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Option<Rest<'k>>> {
        if name == "spop" {
            let popped = random::popped(args, exec)?;
            return Ok(popped.map(|(key, set, count)| Rest::Random(key, set, count)));
        }
        Ok(match pop::end_of(name) {
            Some(end) => pop::popped(end, args, exec)?.map(|ranks| Rest::Popped(ranks, end)),
            None => remove::removed(name, args, exec)?.map(Rest::Range),
        })
    }

    fn set(&self) -> Collection {
        match self {
            Rest::Range(ranks) | Rest::Popped(ranks, _) => ranks.set,
            Rest::Random(_, set, _) => *set,
        }
    }

    pub fn kind(&self) -> CollectionKind {
        self.set().kind
    }

    pub fn expire_at_ms(&self) -> Option<u64> {
        self.set().expire_at_ms
    }

    /// Returns the command's reply without the members that the parts have returned.
    pub fn reply(&self) -> Reply {
        match self {
            Rest::Range(ranks) => Reply::Int(ranks.count as i64),
            Rest::Popped(..) => Reply::Array(Vec::new()),
            Rest::Random(..) => Reply::Set(Vec::new()),
        }
    }

    pub fn is_large(&self, elements: u64) -> bool {
        let least = elements.saturating_mul(REMOVED_MIN);
        let (removed, is_read) = match self {
            Rest::Range(ranks) => (ranks.count, false),
            Rest::Popped(ranks, _) => (ranks.count, true),
            Rest::Random(_, _, count) => (*count, true),
        };
        let left = self.set().len.saturating_sub(removed);
        // If few members are left and the others are not read, those are written again at once, and
        // the sweep deletes the others.
        removed >= least && (left >= least || is_read) && left / KEPT_MAX <= removed
    }

    pub fn part(
        &self,
        stored: &Stored<'k>,
        exec: &mut Exec<'_, '_>,
        ticket: &Ticket,
        begun: Begun<'_>,
    ) -> CommandResult<Done> {
        match self {
            Rest::Popped(removed, end) if begun.place.first() != Some(&LEFT) => {
                pop_members(exec, ticket, (removed, *end), begun)
            }
            Rest::Range(removed) | Rest::Popped(removed, _) => {
                store_others(stored, exec, ticket, removed, begun.len)
            }
            Rest::Random(key, set, count) => store_random(exec, ticket, (key, *set, *count), begun),
        }
    }
}

/// Stores the next members but those that are removed. `len` are stored so far.
fn store_others(
    stored: &Stored<'_>,
    exec: &mut Exec<'_, '_>,
    ticket: &Ticket,
    removed: &Ranks<'_>,
    len: u64,
) -> CommandResult<Done> {
    let next = match removed.first.checked_sub(len) {
        Some(left) if left > 0 => (len, left),
        _ => (len + removed.count, removed.rest().saturating_sub(len)),
    };
    let len = len + stored.store_members(exec, ticket, removed, next)?;
    Ok(Done {
        next: (len < removed.rest()).then(|| place(LEFT, &len.to_be_bytes())),
        len,
        removed: Vec::new(),
    })
}

/// Returns the next members that are removed.
fn pop_members(
    exec: &Exec<'_, '_>,
    ticket: &Ticket,
    (removed, end): (&Ranks<'_>, Direction),
    begun: Begun<'_>,
) -> CommandResult<Done> {
    let found = match begun.place.get(1..).and_then(<[u8]>::first_chunk) {
        Some(found) => u64::from_be_bytes(*found),
        None => 0,
    };
    let left = removed.count.saturating_sub(found).min(u64::from(ticket.rows));
    let skipped = match end {
        Direction::Forward => removed.first + found,
        Direction::Backward => found,
    };
    let members = read_members(exec, removed, (skipped, left), end)?;
    let found = found + members.len() as u64;
    let next = match found < removed.count {
        true => Some(place(REMOVED, &found.to_be_bytes())),
        false => (removed.rest() > 0).then(|| place(LEFT, &0u64.to_be_bytes())),
    };
    let mut replies = Vec::new();
    pop::push_popped(&mut replies, members, exec.resp3);
    Ok(Done { next, len: begun.len, removed: replies })
}

/// Decides for the next members whether they are removed, and stores the others.
fn store_random(
    exec: &mut Exec<'_, '_>,
    ticket: &Ticket,
    (key, set, count): (&Key<'_>, Collection, u64),
    begun: Begun<'_>,
) -> CommandResult<Done> {
    let (mut seen, first) = match begun.place.split_first_chunk() {
        Some((seen, subkey)) => (u64::from_be_bytes(*seen), subkey),
        None => (0, &[][..]),
    };
    let removed_before = seen.checked_sub(begun.len).ok_or_else(|| damaged("the place of a removal"))?;
    let mut left = count.saturating_sub(removed_before);
    let mut draw = Draw::new(exec.seed);
    let (mut kept, mut removed, mut bytes, mut next) = (Vec::new(), Vec::new(), 0, None);
    let (begin, end) = key.element_range(set.generation);
    let start = key.element_row(set.generation, first);
    exec.txn.scan(&start, &end, &mut |row, _| {
        let subkey = &row[begin.len()..];
        let name = subkey.get(NAME_HASH_LEN..).unwrap_or_default();
        let is_full = kept.len() + removed.len() >= ticket.rows as usize || bytes >= PART_BYTES;
        if is_full || !exec.find_room(stored_bytes(name)) {
            next = Some(Bytes::copy_from_slice(subkey));
            return ControlFlow::Break(());
        }
        bytes += name.len();
        if draw.below(set.len.saturating_sub(seen)) < left {
            left -= 1;
            removed.push(Reply::Bulk(Bytes::copy_from_slice(name)));
        } else {
            kept.push(Bytes::copy_from_slice(subkey));
        }
        seen += 1;
        ControlFlow::Continue(())
    })?;
    if next.is_none() && left > 0 {
        return Err(damaged("a set has too few members").into());
    }
    let len = begun.len + kept.len() as u64;
    for subkey in kept {
        let row = key.element_row(ticket.generation, &subkey);
        exec.put_unseen(key, row, None, Bytes::new());
    }
    let place = |subkey: Bytes| Bytes::from([&seen.to_be_bytes()[..], &subkey].concat());
    Ok(Done { next: next.map(place), len, removed })
}
