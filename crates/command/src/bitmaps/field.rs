//! `BITFIELD` and `BITFIELD_RO`: integers of any width at any offset.

use bytes::Bytes;
use resp::{parse_integer, Reply};

use super::{bit, find_bytes, grown, offset};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::integer;

const NOT_A_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported \
                          but i64 is.";

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    is_signed: bool,
    /// 1 to 64, or to 63 for unsigned fields.
    bits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Increment(i64),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    width: Width,
    offset: u64,
    action: Action,
    overflow: Overflow,
}

impl Width {
    fn parse(text: &[u8]) -> CommandResult<Width> {
        let (is_signed, bits) = match text {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return fail(NOT_A_TYPE),
        };
        let max = if is_signed { 64 } else { 63 };
        match parse_integer(bits) {
            Some(bits) if (1..=max).contains(&bits) => Ok(Width { is_signed, bits: bits as u32 }),
            _ => fail(NOT_A_TYPE),
        }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Returns the value of the lowest bits, with the sign of a signed field.
    fn wrapped(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        match self.is_signed {
            true => ((bits << unused) as i64) >> unused,
            false => (bits & self.mask()) as i64,
        }
    }

    fn read(self, bytes: &[u8], offset: u64) -> i64 {
        let bits = (0..u64::from(self.bits))
            .fold(0, |value, at| value << 1 | u64::from(bit(bytes, offset.saturating_add(at))));
        self.wrapped(bits)
    }

    fn write(self, bytes: &mut [u8], offset: u64, value: i64) {
        for at in 0..u64::from(self.bits) {
            let is_set = value as u64 >> (u64::from(self.bits) - 1 - at) & 1 == 1;
            let mask = 1 << (7 - (offset + at) % 8);
            let byte = &mut bytes[((offset + at) / 8) as usize];
            *byte = if is_set { *byte | mask } else { *byte & !mask };
        }
    }

    /// Adds to a value and returns the result as the field holds it; `None` if it does not fit and
    /// must not be changed. The arithmetic is Redis's, which wraps at 64 bits.
    fn add(self, value: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        let saturated = if self.is_signed {
            self.signed_limit(value, increment)
        } else {
            self.unsigned_limit(value as u64, increment)
        };
        match (saturated, overflow) {
            (None, _) => Some(value.wrapping_add(increment)),
            (Some(limit), Overflow::Saturate) => Some(limit),
            (Some(_), Overflow::Wrap) => Some(self.wrapped(value.wrapping_add(increment) as u64)),
            (Some(_), Overflow::Fail) => None,
        }
    }

    /// Returns the limit that a signed sum goes beyond.
    fn signed_limit(self, value: i64, increment: i64) -> Option<i64> {
        let max = (self.mask() >> 1) as i64;
        let min = -max - 1;
        let (up, down) = (max.wrapping_sub(value), min.wrapping_sub(value));
        let is_narrow = self.bits != 64;
        if value > max || (is_narrow || value >= 0 && increment > 0) && increment > up {
            Some(max)
        } else if value < min || (is_narrow || value < 0 && increment < 0) && increment < down {
            Some(min)
        } else {
            None
        }
    }

    /// Returns the limit that an unsigned sum goes beyond.
    fn unsigned_limit(self, value: u64, increment: i64) -> Option<i64> {
        let max = self.mask();
        let (up, down) = (max.wrapping_sub(value) as i64, value.wrapping_neg() as i64);
        if value > max || increment > 0 && increment > up {
            Some(max as i64)
        } else if increment < 0 && increment < down {
            Some(0)
        } else {
            None
        }
    }
}

fn parse(args: &[Bytes]) -> CommandResult<Vec<Step>> {
    let mut overflow = Overflow::Wrap;
    let mut steps = Vec::new();
    let mut rest = args;
    while let [word, operands @ ..] = rest {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        rest = match operands {
            [width, at, operands @ ..] if is(b"GET") => {
                let width = Width::parse(width)?;
                let offset = offset(at, Some(width.bits.into()))?;
                steps.push(Step { width, offset, action: Action::Get, overflow });
                operands
            }
            [width, at, value, operands @ ..] if is(b"SET") || is(b"INCRBY") => {
                let width = Width::parse(width)?;
                let offset = offset(at, Some(width.bits.into()))?;
                let value = integer(value)?;
                let action = if is(b"SET") { Action::Set(value) } else { Action::Increment(value) };
                steps.push(Step { width, offset, action, overflow });
                operands
            }
            [kind, operands @ ..] if is(b"OVERFLOW") => {
                overflow = match kind {
                    word if word.eq_ignore_ascii_case(b"WRAP") => Overflow::Wrap,
                    word if word.eq_ignore_ascii_case(b"SAT") => Overflow::Saturate,
                    word if word.eq_ignore_ascii_case(b"FAIL") => Overflow::Fail,
                    _ => return fail("ERR Invalid OVERFLOW type specified"),
                };
                operands
            }
            _ => return fail(error_messages::SYNTAX),
        };
    }
    Ok(steps)
}

pub(crate) fn bitfield(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    run(args, exec, false)
}

pub(crate) fn bitfield_ro(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    run(args, exec, true)
}

fn run(args: &[Bytes], exec: &mut Exec<'_, '_>, only_reads: bool) -> CommandResult {
    let steps = parse(&args[2..])?;
    let writes = steps.iter().filter(|step| step.action != Action::Get);
    let last_bit = writes.map(|step| step.offset + u64::from(step.width.bits) - 1).max();
    let key = exec.key(&args[1]);
    let Some(last_bit) = last_bit else {
        let bytes = exec.reading(|exec| find_bytes(exec, &key))?.unwrap_or_default();
        let values = steps.iter().map(|step| Reply::Int(step.width.read(&bytes, step.offset)));
        return Ok(Reply::Array(values.collect()));
    };
    if only_reads {
        return fail("ERR BITFIELD_RO only supports the GET subcommand");
    }
    let old = exec.find_string(&key)?;
    let mut value = grown(exec, old.as_ref(), last_bit)?;
    let mut replies = Vec::with_capacity(steps.len());
    for Step { width, offset, action, overflow } in steps {
        let before = width.read(&value, offset);
        let after = match action {
            Action::Get => Some(before),
            Action::Set(new) => width.add(new, 0, overflow),
            Action::Increment(by) => width.add(before, by, overflow),
        };
        let Some(after) = after else {
            replies.push(Reply::Nil);
            continue;
        };
        if action != Action::Get {
            width.write(&mut value, offset, after);
        }
        replies.push(Reply::Int(if matches!(action, Action::Increment(_)) { after } else { before }));
    }
    // As in Redis, the string grows even if every change has failed. The same value is no change.
    if old.as_ref().is_none_or(|old| old.bytes[..] != value[..]) {
        exec.update_string(&key, old.as_ref(), &value);
    }
    Ok(Reply::Array(replies))
}
