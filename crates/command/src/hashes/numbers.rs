//! Commands on numbers in hash fields.

use bytes::Bytes;
use resp::Reply;

use super::{find_field, set_field};
use crate::decimal::Number;
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::{decimal_bytes, integer, integer_or};
use crate::strings::counter::sum;

pub(crate) fn hincrby(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let increment = integer(&args[3])?;
    let key = exec.key(&args[1]);
    let (hash, value) = find_field(exec, &key, &args[2])?;
    let before = value.map_or(Ok(0), |value| integer_or(&value, "ERR hash value is not an integer"))?;
    let Some(sum) = before.checked_add(increment) else { return fail(error_messages::OVERFLOW) };
    set_field(exec, &key, hash, &args[2], decimal_bytes(sum))?;
    Ok(Reply::Int(sum))
}

pub(crate) fn hincrbyfloat(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let Some(increment) = Number::parse(&args[3]) else { return fail(error_messages::NOT_A_FLOAT) };
    if increment == Number::Infinite {
        return fail("ERR value is NaN or Infinity");
    }
    let key = exec.key(&args[1]);
    let (hash, value) = find_field(exec, &key, &args[2])?;
    let before = value.as_ref().map_or(&b"0"[..], |value| value);
    let Some(before) = Number::parse(before) else { return fail("ERR hash value is not a float") };
    let sum = Bytes::from(sum(&before, &increment)?.to_text());
    set_field(exec, &key, hash, &args[2], sum.clone())?;
    Ok(Reply::Bulk(sum))
}
