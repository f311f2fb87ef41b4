//! Bitmaps: strings as arrays of bits, the most significant bit of each byte first.

pub(crate) mod field;
pub(crate) mod operation;
pub(crate) mod search;

use bytes::{Bytes, BytesMut};
use resp::{parse_integer, Reply};

use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec, Key, StringValue};

const NOT_AN_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NOT_A_BIT: &str = "ERR bit is not an integer or out of range";
/// Number of bits of the longest string that Redis permits.
const OFFSET_MAX: u64 = 512 << 23;

/// Parses the offset of a bit. For a field, `#n` is the offset of its n-th neighbour of `bits`
/// bits.
fn offset(text: &[u8], bits: Option<u64>) -> CommandResult<u64> {
    let (number, factor) = match (text, bits) {
        ([b'#', number @ ..], Some(bits)) => (number, bits),
        (number, _) => (number, 1),
    };
    let offset = parse_integer(number).and_then(|offset| u64::try_from(offset).ok());
    match offset.and_then(|offset| offset.checked_mul(factor)) {
        Some(offset) if offset < OFFSET_MAX => Ok(offset),
        _ => fail(NOT_AN_OFFSET),
    }
}

/// Returns a bit; those behind the end are 0.
fn bit(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at)).copied().unwrap_or(0);
    byte >> (7 - offset % 8) & 1 == 1
}

/// Returns a copy of the string that also has the bit at an offset.
fn grown(exec: &Exec<'_, '_>, old: Option<&StringValue>, last_bit: u64) -> CommandResult<BytesMut> {
    let before = old.map_or(&b""[..], |old| &old.bytes);
    let len = last_bit / 8 + 1;
    if len > exec.limits.max_value_bytes {
        return fail(error_messages::STRING_TOO_LONG);
    }
    let len = before.len().max(len as usize);
    let mut value = BytesMut::with_capacity(len);
    value.extend_from_slice(before);
    value.resize(len, 0);
    Ok(value)
}

fn find_bytes(exec: &mut Exec<'_, '_>, key: &Key<'_>) -> CommandResult<Option<Bytes>> {
    Ok(exec.find_string(key)?.map(|string| string.bytes))
}

pub(crate) fn setbit(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let offset = offset(&args[2], None)?;
    let is_set = match parse_integer(&args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return fail(NOT_A_BIT),
    };
    let key = exec.key(&args[1]);
    let old = exec.find_string(&key)?;
    let mut value = grown(exec, old.as_ref(), offset)?;
    let before = bit(&value, offset);
    let mask = 1 << (7 - offset % 8);
    let byte = &mut value[(offset / 8) as usize];
    if is_set {
        *byte |= mask;
    } else {
        *byte &= !mask;
    }
    // The same bit in a string of the same length is no change.
    if old.as_ref().is_none_or(|old| old.bytes[..] != value[..]) {
        exec.update_string(&key, old.as_ref(), &value);
    }
    Ok(Reply::Int(before.into()))
}

pub(crate) fn getbit(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let offset = offset(&args[2], None)?;
    let key = exec.key(&args[1]);
    let Some(bytes) = find_bytes(exec, &key)? else { return Ok(Reply::Int(0)) };
    Ok(Reply::Int(bit(&bytes, offset).into()))
}
