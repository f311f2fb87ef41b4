//! Lists: a counted tree of elements.

pub(crate) mod change;
pub(crate) mod ends;
pub(crate) mod search;

use bytes::Bytes;
use resp::Reply;
use storage::KeyRef;

use crate::counted_tree::{Direction, Place, SeparatorFn, Tree, Writing};
use crate::exec::{Collection, CollectionKind, CommandResult, Exec, Key};
use crate::number::integer;
use crate::ranked::rank_interval;

const TREE: (CollectionKind, SeparatorFn) = (CollectionKind::List, no_separator);

/// Elements are found by rank only.
fn no_separator(_: &[u8], _: &[u8]) -> Bytes {
    Bytes::new()
}

pub(crate) fn tree<'k>(key: &KeyRef<'k>, list: Collection) -> Tree<'k> {
    Tree::open(key, list.generation, no_separator)
}

/// Returns all elements.
pub(crate) fn all_elements(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    list: Collection,
) -> CommandResult<Vec<Bytes>> {
    tree(key, list).items(exec, 0, u64::MAX, Direction::Forward)
}

/// Writes a list in place of the key's current value.
pub(crate) fn replace(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    expire_at_ms: Option<u64>,
    elements: Vec<Bytes>,
) -> CommandResult<()> {
    exec.hold(0, elements.iter().map(Bytes::len).sum())?;
    if let Some(old) = exec.find(key)? {
        exec.remove(key, &old)?;
    }
    let mut writing = Writing::begin(exec, key, TREE, None);
    writing.new.expire_at_ms = expire_at_ms;
    for element in elements {
        push(exec, &mut writing, Direction::Backward, element)?;
    }
    writing.finish(exec);
    Ok(())
}

/// Adds an element at the end where a walk in this direction begins.
fn push(
    exec: &mut Exec<'_, '_>,
    writing: &mut Writing<'_>,
    end: Direction,
    element: Bytes,
) -> CommandResult<()> {
    let place = match end {
        Direction::Forward => Place::Rank(0),
        Direction::Backward => Place::Last,
    };
    writing.insert(exec, place, element)
}

/// Returns the rank that an index names, which counts from the end if it is negative.
fn rank_at(index: i64, len: u64) -> Option<u64> {
    let rank = match u64::try_from(index) {
        Ok(rank) => rank,
        Err(_) => len.checked_sub(index.unsigned_abs())?,
    };
    (rank < len).then_some(rank)
}

fn bulks(elements: Vec<Bytes>) -> Reply {
    Reply::Array(elements.into_iter().map(Reply::Bulk).collect())
}

pub(crate) fn llen(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Int(exec.find_list(&key)?.map_or(0, |list| list.len as i64)))
}

pub(crate) fn lrange(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (first, last) = (integer(&args[2])?, integer(&args[3])?);
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else { return Ok(Reply::Array(Vec::new())) };
    let (first, behind) = rank_interval(first, last, list.len);
    Ok(bulks(tree(&key, list).items(exec, first, behind - first, Direction::Forward)?))
}

pub(crate) fn lindex(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else { return Ok(Reply::Nil) };
    let Some(rank) = rank_at(integer(&args[2])?, list.len) else { return Ok(Reply::Nil) };
    Ok(tree(&key, list).get(exec, rank)?.map_or(Reply::Nil, Reply::Bulk))
}
