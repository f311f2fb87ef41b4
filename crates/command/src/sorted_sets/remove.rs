//! `ZREM` and the removal of ranges.

use bytes::Bytes;
use resp::Reply;

use super::range::{interval, By, Range, Ranks};
use super::{remove_ranks, tree, Changing};
use crate::exec::{CollectionKind, CommandResult, Exec};

pub(crate) fn zrem(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Int(0)) };
    let mut changing = Changing::begin(exec, &key, Some(set));
    let mut removed = 0;
    for name in &args[2..] {
        if let Some(score) = changing.score(exec, name)? {
            changing.remove(exec, (score, name))?;
            removed += 1;
        }
    }
    changing.finish(exec);
    Ok(Reply::Int(removed))
}

pub(crate) fn zremrangebyrank(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    remove_range(args, exec, By::Rank)
}

pub(crate) fn zremrangebyscore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    remove_range(args, exec, By::Score)
}

pub(crate) fn zremrangebylex(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    remove_range(args, exec, By::Name)
}

fn remove_range(args: &[Bytes], exec: &mut Exec<'_, '_>, by: By) -> CommandResult {
    let range = Range::parse(by, &args[2], &args[3])?;
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Int(0)) };
    let (first, behind) = interval(exec, &tree(&key, set), set, &range)?;
    let count = behind - first;
    if count > 0 {
        remove_ranks(exec, &key, set, (first, count))?;
    }
    Ok(Reply::Int(count as i64))
}

/// Returns the unit of the bounds of a command that removes a range; `None` for other commands.
fn unit(name: &str) -> Option<By> {
    match name {
        "zremrangebyrank" => Some(By::Rank),
        "zremrangebyscore" => Some(By::Score),
        "zremrangebylex" => Some(By::Name),
        _ => None,
    }
}

/// Returns true if a command with this name removes a range.
pub(crate) fn is_of(name: &str) -> bool {
    unit(name).is_some()
}

/// Returns the members that a command removes; `None` for other commands, and if there is no set.
/// The look-up is not counted.
pub(crate) fn removed<'k>(
    name: &str,
    args: &'k [Bytes],
    exec: &mut Exec<'_, '_>,
) -> CommandResult<Option<Ranks<'k>>> {
    let Some(by) = unit(name) else { return Ok(None) };
    let range = Range::parse(by, &args[2], &args[3])?;
    let from = exec.key(&args[1]);
    let Some(set) = exec.look_up_collection(&from, CollectionKind::SortedSet)? else { return Ok(None) };
    let (first, behind) = interval(exec, &tree(&from, set), set, &range)?;
    Ok(Some(Ranks { from, set, first, count: behind - first }))
}
