//! Commands at the ends of lists: pushes, pops and moves.

use bytes::Bytes;
use resp::Reply;

use super::{bulks, push, tree, TREE};
use crate::counted_tree::{Direction, Sought, Writing};
use crate::error_messages;
use crate::exec::{fail, Collection, CommandResult, Exec, Key};
use crate::number::popped_number;
use crate::ranked::{many_keys, Popping};

const LEFT: Direction = Direction::Forward;
const RIGHT: Direction = Direction::Backward;

pub(crate) fn lpush(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    push_all(args, exec, LEFT, false)
}

pub(crate) fn rpush(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    push_all(args, exec, RIGHT, false)
}

pub(crate) fn lpushx(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    push_all(args, exec, LEFT, true)
}

pub(crate) fn rpushx(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    push_all(args, exec, RIGHT, true)
}

fn push_all(args: &[Bytes], exec: &mut Exec<'_, '_>, end: Direction, only_existing: bool) -> CommandResult {
    let key = exec.key(&args[1]);
    let old = exec.find_list(&key)?;
    if old.is_none() && only_existing {
        return Ok(Reply::Int(0));
    }
    let mut writing = Writing::begin(exec, &key, TREE, old);
    for element in &args[2..] {
        push(exec, &mut writing, end, element.clone())?;
    }
    let len = writing.new.len;
    writing.finish(exec);
    Ok(Reply::Int(len as i64))
}

pub(crate) fn lpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop(args, exec, LEFT, "lpop")
}

pub(crate) fn rpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop(args, exec, RIGHT, "rpop")
}

fn pop(args: &[Bytes], exec: &mut Exec<'_, '_>, end: Direction, command: &str) -> CommandResult {
    if args.len() > 3 {
        return fail(error_messages::wrong_arity_text(command));
    }
    let count = popped_number(&args[2..])?;
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else {
        return Ok(count.map_or(Reply::Nil, |_| Reply::NilArray));
    };
    let mut taken = take(exec, &key, list, count.unwrap_or(1), end)?;
    Ok(match count {
        Some(_) => bulks(taken),
        None => taken.pop().map_or(Reply::Nil, Reply::Bulk),
    })
}

/// Removes elements at an end and returns them, the outermost first.
pub(crate) fn take(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    list: Collection,
    count: u64,
    end: Direction,
) -> CommandResult<Vec<Bytes>> {
    let count = count.min(list.len);
    if count == 1 {
        let mut writing = Writing::begin(exec, key, TREE, Some(list));
        let element = take_one(exec, &mut writing, end)?;
        writing.finish(exec);
        return Ok(vec![element]);
    }
    let taken = tree(key, list).items(exec, 0, count, end)?;
    let first = match end {
        Direction::Forward => 0,
        Direction::Backward => list.len - count,
    };
    let ranks = first..first + count;
    super::change::remove_ranges(exec, key, list, &[ranks])?;
    Ok(taken)
}

/// Returns the element at an end.
fn outermost(end: Direction) -> Sought<'static> {
    match end {
        Direction::Forward => Sought::Rank(0),
        Direction::Backward => Sought::Last,
    }
}

fn take_one(exec: &mut Exec<'_, '_>, writing: &mut Writing<'_>, end: Direction) -> CommandResult<Bytes> {
    writing.remove(exec, outermost(end))
}

pub(crate) fn lmpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop_first(popping(args)?, exec)
}

/// Parses the arguments of `LMPOP`.
pub(crate) fn popping(args: &[Bytes]) -> CommandResult<Popping<'_>> {
    many_keys(args, (b"LEFT", b"RIGHT"))
}

/// Removes elements of the first list that exists.
pub(crate) fn pop_first((keys, end, count): Popping<'_>, exec: &mut Exec<'_, '_>) -> CommandResult {
    for name in keys {
        let key = exec.key(name);
        let Some(list) = exec.find_list(&key)? else { continue };
        let taken = take(exec, &key, list, count, end)?;
        return Ok(Reply::Array(vec![Reply::Bulk(name.clone()), bulks(taken)]));
    }
    Ok(Reply::NilArray)
}

pub(crate) fn end(word: &[u8]) -> CommandResult<Direction> {
    match word {
        word if word.eq_ignore_ascii_case(b"LEFT") => Ok(LEFT),
        word if word.eq_ignore_ascii_case(b"RIGHT") => Ok(RIGHT),
        _ => fail(error_messages::SYNTAX),
    }
}

pub(crate) fn lmove(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    move_one(args, exec, end(&args[3])?, end(&args[4])?)
}

pub(crate) fn rpoplpush(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    move_one(args, exec, RIGHT, LEFT)
}

pub(crate) fn move_one(
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
    from_end: Direction,
    to_end: Direction,
) -> CommandResult {
    let (from, to) = (exec.key(&args[1]), exec.key(&args[2]));
    let Some(source) = exec.find_list(&from)? else { return Ok(Reply::Nil) };
    let destination = exec.find_list(&to)?;
    let mut taking = Writing::begin(exec, &from, TREE, Some(source));
    let element = take_one(exec, &mut taking, from_end)?;
    if from == to {
        push(exec, &mut taking, to_end, element.clone())?;
        taking.finish(exec);
    } else {
        taking.finish(exec);
        let mut giving = Writing::begin(exec, &to, TREE, destination);
        push(exec, &mut giving, to_end, element.clone())?;
        giving.finish(exec);
    }
    Ok(Reply::Bulk(element))
}
