//! Changes within lists: `LSET`, `LINSERT`, `LREM` and `LTRIM`.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use resp::Reply;

use super::{rank_at, replace, tree, TREE};
use crate::counted_tree::{count_of, Direction, Place, Writing, ENTRIES_MAX, NODE_BYTES_MAX};
use crate::error_messages;
use crate::exec::{fail, Collection, CommandResult, Exec, Key, HELD_ROW};
use crate::number::integer;
use crate::ranked::{is_rewritten, leave_if_long, rank_interval};

/// Number of removed elements for one that remains from which a list is written again. The removal
/// of whole leaves costs less than writing as many elements.
const REMOVED_PER_REWRITTEN: u64 = 16;

pub(crate) fn lset(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else { return fail(error_messages::NO_SUCH_KEY) };
    let Some(rank) = rank_at(integer(&args[2])?, list.len) else { return fail("ERR index out of range") };
    let mut writing = Writing::begin(exec, &key, TREE, Some(list));
    writing.tree.replace(exec, rank, args[3].clone())?;
    writing.finish(exec);
    Ok(Reply::OK)
}

pub(crate) fn linsert(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let behind = match &args[2] {
        word if word.eq_ignore_ascii_case(b"BEFORE") => 0,
        word if word.eq_ignore_ascii_case(b"AFTER") => 1,
        _ => return fail(error_messages::SYNTAX),
    };
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else { return Ok(Reply::Int(0)) };
    let pivots = matches(exec, &key, list, &args[3], (1, Direction::Forward))?;
    let Some(pivot) = pivots.first() else { return Ok(Reply::Int(-1)) };
    let mut writing = Writing::begin(exec, &key, TREE, Some(list));
    writing.insert(exec, Place::Rank(pivot + behind), args[4].clone())?;
    let len = writing.new.len;
    writing.finish(exec);
    Ok(Reply::Int(len as i64))
}

/// Returns up to `count` ranks of elements that equal `element`, in the order of the walk. The
/// command holds the ranks and the leaves with these elements.
fn matches(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    list: Collection,
    element: &Bytes,
    (count, direction): (u64, Direction),
) -> CommandResult<Vec<u64>> {
    let mut ranks = Vec::new();
    let mut visited = 0;
    // The number of items, and their bytes, since the last match that was counted with a leaf. A
    // match less than half a full leaf behind it counts as one in the same leaf.
    let (mut items, mut bytes) = (ENTRIES_MAX, 0);
    tree(key, list).walk(exec, 0, direction, &mut |found| {
        let is_match = found == *element;
        (items, bytes) = (items + 1, bytes + found.len());
        let mut held = (usize::from(is_match), 0);
        if is_match && (items > ENTRIES_MAX / 2 || bytes > NODE_BYTES_MAX / 2) {
            held = (1 + HELD_ROW, NODE_BYTES_MAX);
            (items, bytes) = (0, 0);
        }
        if is_match {
            ranks.push(match direction {
                Direction::Forward => visited,
                Direction::Backward => list.len.saturating_sub(visited + 1),
            });
        }
        visited += 1;
        match ranks.len() as u64 == count {
            true => ControlFlow::Break(()),
            false => exec.holding(held.0, held.1),
        }
    })?;
    exec.check_held()?;
    Ok(ranks)
}

pub(crate) fn lrem(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let count = integer(&args[2])?;
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else { return Ok(Reply::Int(0)) };
    let direction = if count < 0 { Direction::Backward } else { Direction::Forward };
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut ranks = matches(exec, &key, list, &args[3], (most, direction))?;
    ranks.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some(last) if last.end == rank => last.end += 1,
            _ => ranges.push(rank..rank + 1),
        }
    }
    remove_ranges(exec, &key, list, &ranges)?;
    Ok(Reply::Int(count_of(&ranges) as i64))
}

pub(crate) fn ltrim(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (first, last) = (integer(&args[2])?, integer(&args[3])?);
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else { return Ok(Reply::OK) };
    let (first, behind) = rank_interval(first, last, list.len);
    if behind - first == list.len {
        // As in Redis, this counts as a change.
        exec.touch(&key);
    } else {
        remove_ranges(exec, &key, list, &[0..first, behind..list.len])?;
    }
    Ok(Reply::OK)
}

/// Removes the elements with these ranks. The ranges ascend and do not overlap. If very few of many
/// remain, they are written again, and the sweep deletes the others.
pub(super) fn remove_ranges(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    list: Collection,
    ranges: &[Range<u64>],
) -> CommandResult<()> {
    let removed = count_of(ranges);
    if removed == 0 {
        return Ok(());
    }
    if removed >= list.len {
        return exec.remove(key, &list.meta());
    }
    leave_if_long(exec, removed)?;
    if is_rewritten(removed, list.len, REMOVED_PER_REWRITTEN) {
        let rewritten = exec.unless_too_much(|exec| {
            let kept = elements_besides(exec, key, list, ranges)?;
            replace(exec, key, list.expire_at_ms, kept)
        })?;
        if rewritten.is_some() {
            return Ok(());
        }
    }
    let mut writing = Writing::begin(exec, key, TREE, Some(list));
    writing.remove_ranges(exec, ranges, &mut |_, _| Ok(()))?;
    writing.finish(exec);
    Ok(())
}

/// Returns the elements with other ranks.
fn elements_besides(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    list: Collection,
    ranges: &[Range<u64>],
) -> CommandResult<Vec<Bytes>> {
    let tree = tree(key, list);
    let mut elements = Vec::new();
    let mut first = 0;
    for range in ranges.iter().chain([&(list.len..list.len)]) {
        elements.extend(tree.items(exec, first, range.start.saturating_sub(first), Direction::Forward)?);
        first = range.end;
    }
    Ok(elements)
}
