//! `ZPOPMIN`, `ZPOPMAX` and `ZMPOP`.

use bytes::Bytes;
use resp::Reply;

use super::range::Ranks;
use super::{members, push, remove_ranks, tree, Changing, Member};
use crate::counted_tree::{Direction, Sought};
use crate::exec::{Collection, CollectionKind, CommandResult, Exec, Key};
use crate::number::popped_number;
use crate::ranked::{many_keys, Popping};

pub(crate) fn zpopmin(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop(args, exec, Direction::Forward)
}

pub(crate) fn zpopmax(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop(args, exec, Direction::Backward)
}

fn pop(args: &[Bytes], exec: &mut Exec<'_, '_>, end: Direction) -> CommandResult {
    let count = popped_number(&args[2..])?;
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Array(Vec::new())) };
    let as_pairs = exec.resp3 && count.is_some();
    let mut reply = Vec::new();
    push_popped(&mut reply, take(exec, &key, set, count.unwrap_or(1), end)?, as_pairs);
    Ok(Reply::Array(reply))
}

/// Returns the end at which a command with this name pops; `None` for other commands.
pub(crate) fn end_of(name: &str) -> Option<Direction> {
    match name {
        "zpopmin" => Some(Direction::Forward),
        "zpopmax" => Some(Direction::Backward),
        _ => None,
    }
}

/// Returns the members that a command with a number removes at an end; `None` without one, and if
/// there is no set. The look-up is not counted.
pub(crate) fn popped<'k>(
    end: Direction,
    args: &'k [Bytes],
    exec: &mut Exec<'_, '_>,
) -> CommandResult<Option<Ranks<'k>>> {
    let Some(count) = popped_number(&args[2..])? else { return Ok(None) };
    let from = exec.key(&args[1]);
    let Some(set) = exec.look_up_collection(&from, CollectionKind::SortedSet)? else { return Ok(None) };
    let count = count.min(set.len);
    let first = match end {
        Direction::Forward => 0,
        Direction::Backward => set.len - count,
    };
    Ok(Some(Ranks { from, set, first, count }))
}

/// Appends members to the reply of a pop, as pairs if it is in RESP3 and has a number.
pub(crate) fn push_popped(reply: &mut Vec<Reply>, members: Vec<Member>, as_pairs: bool) {
    members.into_iter().for_each(|member| push(reply, member, true, as_pairs));
}

/// Removes members at an end and returns them.
pub(crate) fn take(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    set: Collection,
    count: u64,
    end: Direction,
) -> CommandResult<Vec<Member>> {
    let count = count.min(set.len);
    if count == 0 {
        return Ok(Vec::new());
    }
    let (first, outermost) = match end {
        Direction::Forward => (0, Sought::Rank(0)),
        Direction::Backward => (set.len - count, Sought::Last),
    };
    if count == 1 && set.len > 1 {
        let mut changing = Changing::begin(exec, key, Some(set));
        let member = changing.take(exec, outermost)?;
        changing.finish(exec);
        return Ok(vec![member]);
    }
    let taken = members(exec, &tree(key, set), (0, count), end)?;
    remove_ranks(exec, key, set, (first, count))?;
    Ok(taken)
}

pub(crate) fn zmpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop_first(popping(args)?, exec)
}

/// Parses the arguments of `ZMPOP`.
pub(crate) fn popping(args: &[Bytes]) -> CommandResult<Popping<'_>> {
    many_keys(args, (b"MIN", b"MAX"))
}

/// Removes members of the first sorted set that exists.
pub(crate) fn pop_first((keys, end, count): Popping<'_>, exec: &mut Exec<'_, '_>) -> CommandResult {
    for name in keys {
        let key = exec.key(name);
        let Some(set) = exec.find_sorted_set(&key)? else { continue };
        let taken = take(exec, &key, set, count, end)?;
        let pair = |member: Member| Reply::Array(vec![Reply::Bulk(member.name), Reply::Double(member.score)]);
        let taken = taken.into_iter().map(pair).collect();
        return Ok(Reply::Array(vec![Reply::Bulk(name.clone()), Reply::Array(taken)]));
    }
    Ok(Reply::NilArray)
}
