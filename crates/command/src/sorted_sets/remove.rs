//! `ZREM` and the removal of ranges.

use bytes::Bytes;
use resp::Reply;

use super::range::{interval, By, Range};
use super::{remove_ranks, tree, Changing};
use crate::exec::{CommandResult, Exec};

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
