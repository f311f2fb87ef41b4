//! `ZRANDMEMBER`.

use bytes::Bytes;
use resp::Reply;

use super::{decode_score, reply, Member};
use crate::elements::all_elements;
use crate::elements::random::{pick_distinct, pick_repeatedly, Picker};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::random_count;

pub(crate) fn zrandmember(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(count) = args.get(2) else {
        let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Nil) };
        let picked = Picker::new(exec, &key, set, 1)?.pick()?;
        return Ok(picked.map_or(Reply::Nil, |(name, _)| Reply::Bulk(name)));
    };
    let count = random_count(count)?;
    let with_scores = match &args[3..] {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"WITHSCORES") => true,
        _ => return fail(error_messages::SYNTAX),
    };
    if with_scores && !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&count) {
        return fail(error_messages::OUT_OF_RANGE);
    }
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Array(Vec::new())) };
    let picked = match u64::try_from(count) {
        Ok(distinct) if distinct >= set.len => all_elements(exec, &key, set.generation)?,
        Ok(distinct) => pick_distinct(exec, &key, set, distinct)?,
        Err(_) if count.unsigned_abs() > exec.limits.max_reply_elements => {
            return fail(error_messages::OUT_OF_RANGE);
        }
        Err(_) => pick_repeatedly(exec, &key, set, count.unsigned_abs())?,
    };
    let member = |(name, score): (Bytes, Bytes)| Ok(Member { score: decode_score(&score)?, name });
    let members = picked.into_iter().map(member).collect::<CommandResult<Vec<_>>>()?;
    Ok(reply(exec, members, with_scores))
}
