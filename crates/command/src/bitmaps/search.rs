//! `BITCOUNT` and `BITPOS`.

use bytes::Bytes;
use resp::Reply;

use super::{bit, find_bytes};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::integer;

/// The unit of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

fn unit(word: &[u8]) -> CommandResult<Unit> {
    match word {
        word if word.eq_ignore_ascii_case(b"BIT") => Ok(Unit::Bit),
        word if word.eq_ignore_ascii_case(b"BYTE") => Ok(Unit::Byte),
        _ => fail(error_messages::SYNTAX),
    }
}

/// Returns the first bit of a range and the first behind it, or `None` for an empty range. Negative
/// bounds count from the end.
fn interval(start: i64, end: i64, unit: Unit, bytes: usize) -> Option<(u64, u64)> {
    let bits_per_unit = if unit == Unit::Bit { 1 } else { 8 };
    let total = bytes as i64 * 8 / bits_per_unit;
    let position = |index: i64| if index < 0 { total.saturating_add(index).max(0) } else { index };
    let (start, end) = (position(start), position(end).min(total - 1));
    (start <= end).then(|| ((start * bits_per_unit) as u64, ((end + 1) * bits_per_unit) as u64))
}

/// Returns the number of bits that are set in this interval, which is not empty.
fn count_set(bytes: &[u8], first: u64, behind: u64) -> u64 {
    let (first_byte, last_byte) = ((first / 8) as usize, ((behind - 1) / 8) as usize);
    let all: u64 = bytes[first_byte..=last_byte].iter().map(|byte| u64::from(byte.count_ones())).sum();
    let outside = |from: u64, to: u64| (from..to).filter(|offset| bit(bytes, *offset)).count() as u64;
    all - outside(first / 8 * 8, first) - outside(behind, behind.div_ceil(8) * 8)
}

pub(crate) fn bitcount(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(bytes) = find_bytes(exec, &key)? else { return Ok(Reply::Int(0)) };
    let interval = match &args[2..] {
        [] => interval(0, -1, Unit::Byte, bytes.len()),
        [start, end, rest @ ..] if rest.len() <= 1 => {
            let (start, end) = (integer(start)?, integer(end)?);
            if start < 0 && end < 0 && start > end {
                return Ok(Reply::Int(0));
            }
            interval(start, end, rest.first().map_or(Ok(Unit::Byte), |word| unit(word))?, bytes.len())
        }
        _ => return fail(error_messages::SYNTAX),
    };
    Ok(Reply::Int(interval.map_or(0, |(first, behind)| count_set(&bytes, first, behind) as i64)))
}

/// Returns the offset of the first bit with this value in an interval.
fn first_bit(bytes: &[u8], is_set: bool, (first, behind): (u64, u64)) -> Option<u64> {
    let skipped = if is_set { 0x00 } else { 0xff };
    let mut offset = first;
    while offset < behind {
        if offset % 8 == 0 && bytes[(offset / 8) as usize] == skipped {
            offset += 8;
        } else if bit(bytes, offset) == is_set {
            return Some(offset);
        } else {
            offset += 1;
        }
    }
    None
}

pub(crate) fn bitpos(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let is_set = match integer(&args[2])? {
        0 => false,
        1 => true,
        _ => return fail("ERR The bit argument must be 1 or 0."),
    };
    let key = exec.key(&args[1]);
    let Some(bytes) = find_bytes(exec, &key)? else { return Ok(Reply::Int(if is_set { -1 } else { 0 })) };
    let (interval, has_end) = match &args[3..] {
        [] => (interval(0, -1, Unit::Byte, bytes.len()), false),
        [start] => (interval(integer(start)?, -1, Unit::Byte, bytes.len()), false),
        [start, end, rest @ ..] if rest.len() <= 1 => {
            let start = integer(start)?;
            let unit = rest.first().map_or(Ok(Unit::Byte), |word| unit(word))?;
            (interval(start, integer(end)?, unit, bytes.len()), true)
        }
        _ => return fail(error_messages::SYNTAX),
    };
    let Some(interval) = interval else { return Ok(Reply::Int(-1)) };
    Ok(Reply::Int(match first_bit(&bytes, is_set, interval) {
        Some(offset) => offset as i64,
        // Zeros follow the string, unless the range has an end.
        None if !is_set && !has_end => interval.1 as i64,
        None => -1,
    }))
}
