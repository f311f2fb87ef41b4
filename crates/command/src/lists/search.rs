//! `LPOS`.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;

use super::tree;
use crate::counted_tree::Direction;
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::{integer, integer_or};

const RANK_ZERO: &str =
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or \
                         use negative to start from the end of the list";

pub(crate) fn lpos(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (mut rank, mut count, mut longest) = (1, None, 0);
    for option in args[3..].chunks(2) {
        let [word, value] = option else { return fail(error_messages::SYNTAX) };
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"RANK") {
            rank = integer(value)?;
            if rank == 0 {
                return fail(RANK_ZERO);
            }
        } else if is(b"COUNT") {
            count = Some(not_negative(value, "ERR COUNT can't be negative")?);
        } else if is(b"MAXLEN") {
            longest = not_negative(value, "ERR MAXLEN can't be negative")?;
        } else {
            return fail(error_messages::SYNTAX);
        }
    }
    let direction = if rank < 0 { Direction::Backward } else { Direction::Forward };
    // The lowest number has no absolute value, and Redis takes it for -1.
    let mut matches_to_skip = rank.checked_abs().unwrap_or(1) - 1;
    let key = exec.key(&args[1]);
    let Some(list) = exec.find_list(&key)? else {
        return Ok(count.map_or(Reply::Nil, |_| Reply::Array(Vec::new())));
    };
    let most = match count {
        None => 1,
        Some(0) => u64::MAX,
        Some(count) => count,
    };
    let mut found: Vec<Reply> = Vec::new();
    let mut visited = 0;
    tree(&key, list).walk(exec, 0, direction, &mut |element| {
        let is_match = element == args[2];
        if is_match {
            if matches_to_skip > 0 {
                matches_to_skip -= 1;
            } else {
                found.push(Reply::Int(match direction {
                    Direction::Forward => visited as i64,
                    Direction::Backward => list.len.saturating_sub(visited + 1) as i64,
                }));
            }
        }
        visited += 1;
        match found.len() as u64 == most || visited == longest {
            true => ControlFlow::Break(()),
            false => exec.holding(usize::from(is_match), 0),
        }
    })?;
    exec.check_held()?;
    Ok(match count {
        Some(_) => Reply::Array(found),
        None => found.pop().unwrap_or(Reply::Nil),
    })
}

fn not_negative(text: &[u8], error: &'static str) -> CommandResult<u64> {
    match u64::try_from(integer_or(text, error)?) {
        Ok(number) => Ok(number),
        Err(_) => fail(error),
    }
}
