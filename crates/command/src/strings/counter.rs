//! Commands on numbers in strings.

use bytes::Bytes;
use resp::Reply;

use crate::decimal::{Decimal, Number};
use crate::exec::{fail, Exec, Step};
use crate::number::{decimal_bytes, integer};
use crate::wording;

pub(crate) fn incr(args: &[Bytes], exec: &mut Exec<'_, '_>) -> Step {
    add(args, exec, 1)
}

pub(crate) fn decr(args: &[Bytes], exec: &mut Exec<'_, '_>) -> Step {
    add(args, exec, -1)
}

pub(crate) fn incrby(args: &[Bytes], exec: &mut Exec<'_, '_>) -> Step {
    add(args, exec, integer(&args[2])?)
}

pub(crate) fn decrby(args: &[Bytes], exec: &mut Exec<'_, '_>) -> Step {
    match integer(&args[2])?.checked_neg() {
        Some(increment) => add(args, exec, increment),
        None => fail(wording::DECREMENT_OVERFLOW),
    }
}

fn add(args: &[Bytes], exec: &mut Exec<'_, '_>, increment: i64) -> Step {
    let key = exec.key(&args[1]);
    let old = exec.find_string(&key)?;
    let before = old.as_ref().map_or(Ok(0), |old| integer(&old.bytes))?;
    let Some(sum) = before.checked_add(increment) else { return fail(wording::OVERFLOW) };
    exec.update_string(&key, old.as_ref(), &decimal_bytes(sum));
    Ok(Reply::Int(sum))
}

pub(crate) fn incrbyfloat(args: &[Bytes], exec: &mut Exec<'_, '_>) -> Step {
    let key = exec.key(&args[1]);
    let old = exec.find_string(&key)?;
    let before = old.as_ref().map_or(&b"0"[..], |old| &old.bytes);
    let (Some(before), Some(increment)) = (Number::parse(before), Number::parse(&args[2])) else {
        return fail(wording::NOT_A_FLOAT);
    };
    let sum = Bytes::from(sum(&before, &increment)?.to_text());
    exec.update_string(&key, old.as_ref(), &sum);
    Ok(Reply::Bulk(sum))
}

pub(crate) fn sum(a: &Number, b: &Number) -> Step<Decimal> {
    match (a, b) {
        (Number::Finite(a), Number::Finite(b)) => match a.add(b) {
            Some(sum) => Ok(sum),
            None => fail(wording::NAN_OR_INFINITY),
        },
        _ => fail(wording::NAN_OR_INFINITY),
    }
}
