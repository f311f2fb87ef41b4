//! `SPOP` and `SRANDMEMBER`.

use bytes::Bytes;
use resp::Reply;

use super::{all_members, bulks, names};
use crate::elements::delete_found;
use crate::elements::random::{pick_distinct, pick_repeatedly, remove_random, Picker};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandResult, Exec, Key, HELD_ROW};
use crate::number::{popped_number, random_count};
use crate::ranked::leave_if_long;

pub(crate) fn spop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let count = popped_number(&args[2..])?;
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_set(&key)? else {
        return Ok(count.map_or(Reply::Nil, |_| Reply::Set(Vec::new())));
    };
    let Some(count) = count else {
        return Ok(remove_random(exec, &key, set)?.map_or(Reply::Nil, Reply::Bulk));
    };
    let members = match count >= set.len {
        true => {
            let members = all_members(exec, &key, set)?;
            exec.remove(&key, &set.meta())?;
            members
        }
        false => {
            leave_if_long(exec, count)?;
            exec.hold(HELD_ROW.saturating_mul(usize::try_from(count).unwrap_or(usize::MAX)), 0)?;
            let picked = pick_distinct(exec, &key, set, count)?;
            delete_found(exec, &key, set, &picked);
            names(picked)
        }
    };
    Ok(Reply::Set(bulks(members)))
}

/// Returns the set of an `SPOP` with a number, and how many members it removes; `None` without
/// one, and if there is no set. The look-up is not counted.
pub(crate) fn popped<'k>(
    args: &'k [Bytes],
    exec: &mut Exec<'_, '_>,
) -> CommandResult<Option<(Key<'k>, Collection, u64)>> {
    let Some(count) = popped_number(&args[2..])? else { return Ok(None) };
    let from = exec.key(&args[1]);
    let set = exec.look_up_collection(&from, CollectionKind::Set)?;
    Ok(set.map(|set| (from, set, count.min(set.len))))
}

pub(crate) fn srandmember(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let count = match &args[2..] {
        [] => {
            let Some(set) = exec.find_set(&key)? else { return Ok(Reply::Nil) };
            let picked = Picker::new(exec, &key, set, 1)?.pick()?;
            return Ok(picked.map_or(Reply::Nil, |(member, _)| Reply::Bulk(member)));
        }
        [count] => random_count(count)?,
        _ => return fail(error_messages::SYNTAX),
    };
    let Some(set) = exec.find_set(&key)? else { return Ok(Reply::Array(Vec::new())) };
    let members = match u64::try_from(count) {
        Ok(distinct) if distinct >= set.len => all_members(exec, &key, set)?,
        Ok(distinct) => names(pick_distinct(exec, &key, set, distinct)?),
        Err(_) if count.unsigned_abs() > exec.limits.max_reply_elements => {
            return fail(error_messages::OUT_OF_RANGE);
        }
        Err(_) => names(pick_repeatedly(exec, &key, set, count.unsigned_abs())?),
    };
    Ok(Reply::Array(bulks(members)))
}
