//! Changes within lists: `LSET`, `LINSERT`, `LREM` and `LTRIM`.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;

use super::{rank_at, replace, tree, TREE};
use crate::counted_tree::{Direction, Place, Sought, Writing};
use crate::error_messages;
use crate::exec::{fail, Collection, CommandResult, Exec, Key};
use crate::number::integer;
use crate::ranked::{is_rewritten, rank_interval};

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

/// Returns up to `count` ranks of elements that equal `element`, in the order of the walk.
fn matches(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    list: Collection,
    element: &Bytes,
    (count, direction): (u64, Direction),
) -> CommandResult<Vec<u64>> {
    let mut ranks = Vec::new();
    let mut visited = 0;
    tree(key, list).walk(exec, 0, direction, &mut |found| {
        let is_match = found == *element;
        if is_match {
            ranks.push(match direction {
                Direction::Forward => visited,
                Direction::Backward => list.len.saturating_sub(visited + 1),
            });
        }
        visited += 1;
        match ranks.len() as u64 == count {
            true => ControlFlow::Break(()),
            false => exec.holding(usize::from(is_match), 0),
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
    // Ranks stay valid if the last ones are removed first.
    ranks.sort_unstable();
    let mut writing = Writing::begin(exec, &key, TREE, Some(list));
    for rank in ranks.iter().rev() {
        writing.remove(exec, Sought::Rank(*rank))?;
    }
    writing.finish(exec);
    Ok(Reply::Int(ranks.len() as i64))
}

pub(crate) fn ltrim(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (first, last) = (integer(&args[2])?, integer(&args[3])?);
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else { return Ok(Reply::OK) };
    let (first, behind) = rank_interval(first, last, list.len);
    let removed = list.len - (behind - first);
    if removed == list.len {
        exec.remove(&key, &list.meta())?;
    } else if rewrite(exec, &key, list, &[(first, behind)])? {
        return Ok(Reply::OK);
    } else if removed > 0 {
        let mut writing = Writing::begin(exec, &key, TREE, Some(list));
        for _ in behind..list.len {
            writing.remove(exec, Sought::Rank(behind))?;
        }
        for _ in 0..first {
            writing.remove(exec, Sought::Rank(0))?;
        }
        writing.finish(exec);
    } else {
        // As in Redis, this counts as a change.
        exec.touch(&key);
    }
    Ok(Reply::OK)
}

/// Writes a list again with the elements of these ranks only, if few of many remain and they do not
/// take too much memory. The sweep deletes the others. Returns false if it has done nothing.
fn rewrite(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    list: Collection,
    kept: &[(u64, u64)],
) -> CommandResult<bool> {
    let left: u64 = kept.iter().map(|(first, behind)| behind - first).sum();
    if !is_rewritten(list.len - left, list.len) {
        return Ok(false);
    }
    let rewritten = exec.unless_too_much(|exec| {
        let mut elements = Vec::new();
        for (first, behind) in kept {
            elements.extend(tree(key, list).items(exec, *first, behind - first, Direction::Forward)?);
        }
        replace(exec, key, list.expire_at_ms, elements)
    })?;
    Ok(rewritten.is_some())
}

/// Removes the elements with these ranks. If few remain of many, they are written again, and the
/// sweep deletes the others.
pub(super) fn remove_ranks(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    list: Collection,
    (first, count): (u64, u64),
) -> CommandResult<()> {
    if count >= list.len {
        return exec.remove(key, &list.meta());
    }
    if rewrite(exec, key, list, &[(0, first), (first.saturating_add(count), list.len)])? {
        return Ok(());
    }
    let mut writing = Writing::begin(exec, key, TREE, Some(list));
    for _ in 0..count {
        writing.remove(exec, Sought::Rank(first))?;
    }
    writing.finish(exec);
    Ok(())
}
