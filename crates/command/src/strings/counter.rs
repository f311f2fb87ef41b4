//! Commands on numbers in strings.

use bytes::Bytes;
use resp::Reply;

use crate::decimal::{Decimal, Number};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::{decimal_bytes, integer};

pub(crate) fn incr(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    add(args, exec, 1)
}

pub(crate) fn decr(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    add(args, exec, -1)
}

pub(crate) fn incrby(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    add(args, exec, integer(&args[2])?)
}

pub(crate) fn decrby(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    match integer(&args[2])?.checked_neg() {
        Some(increment) => add(args, exec, increment),
        None => fail(error_messages::DECREMENT_OVERFLOW),
    }
}

fn add(args: &[Bytes], exec: &mut Exec<'_, '_>, increment: i64) -> CommandResult {
    let key = exec.key(&args[1]);
    let old = exec.find_string(&key)?;
    let before = old.as_ref().map_or(Ok(0), |old| integer(&old.bytes))?;
    let Some(sum) = before.checked_add(increment) else { return fail(error_messages::OVERFLOW) };
    exec.update_string(&key, old.as_ref(), &decimal_bytes(sum));
    Ok(Reply::Int(sum))
}

pub(crate) fn incrbyfloat(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let old = exec.find_string(&key)?;
    let before = old.as_ref().map_or(&b"0"[..], |old| &old.bytes);
    let (Some(before), Some(increment)) = (Number::parse(before), Number::parse(&args[2])) else {
        return fail(error_messages::NOT_A_FLOAT);
    };
    let sum = Bytes::from(sum(&before, &increment)?.to_text());
    exec.update_string(&key, old.as_ref(), &sum);
    Ok(Reply::Bulk(sum))
}

pub(crate) fn sum(a: &Number, b: &Number) -> CommandResult<Decimal> {
    match (a, b) {
        (Number::Finite(a), Number::Finite(b)) => match a.add(b) {
            Some(sum) => Ok(sum),
            None => fail(error_messages::NAN_OR_INFINITY),
        },
        _ => fail(error_messages::NAN_OR_INFINITY),
    }
}
