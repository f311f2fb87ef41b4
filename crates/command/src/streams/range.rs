//! `XRANGE` and `XREVRANGE`.

use bytes::Bytes;
use resp::Reply;

use super::{entries, entry_reply, id};
use crate::counted_tree::Direction;
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::integer;

pub(crate) fn xrange(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, (&args[2], &args[3]), Direction::Forward)
}

pub(crate) fn xrevrange(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, (&args[3], &args[2]), Direction::Backward)
}

fn range(
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
    (start, end): (&Bytes, &Bytes),
    direction: Direction,
) -> CommandResult {
    let ids = (id::start(start)?, id::end(end)?);
    let mut count = u64::MAX;
    let mut options = args[4..].iter();
    while let Some(option) = options.next() {
        match options.next() {
            Some(value) if option.eq_ignore_ascii_case(b"COUNT") => {
                count = u64::try_from(integer(value)?).unwrap_or(0);
            }
            _ => return fail(error_messages::SYNTAX),
        }
    }
    let key = exec.key(&args[1]);
    let Some(found) = exec.find_stream(&key)? else { return Ok(Reply::Array(Vec::new())) };
    if count == 0 {
        return Ok(Reply::NilArray);
    }
    let found = entries::range(exec, &key, &found.stream, ids, (count, direction))?;
    Ok(Reply::Array(found.into_iter().map(|(id, parts)| entry_reply(id, parts)).collect()))
}
