//! The library `struct`: packing and unpacking of C structures.

use mlua::{MultiValue, Table, Value};

use crate::arguments::{c_integer, fail, one, Arguments, Failure, Result};
use crate::builder::Builder;
use crate::ENCODED_BYTES_MAX;

/// The largest size of an integer in bytes.
const INTEGER_BYTES_MAX: usize = 32;
/// The largest alignment that the machine has.
const ALIGNMENT_MAX: usize = 8;
/// Maximum number of results of a function.
const RESULTS_MAX: usize = 7900;

/// A format that is read option by option.
struct Format<'a> {
    rest: &'a [u8],
    is_big_endian: bool,
    alignment: usize,
}

struct Field {
    option: u8,
    size: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Format<'a> {
        Format { rest: text, is_big_endian: false, alignment: 1 }
    }

    fn number(&mut self, default: usize) -> Result<usize> {
        let mut value: Option<usize> = None;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
            let next = value.unwrap_or(0) * 10 + usize::from(digit - b'0');
            if next > i32::MAX as usize {
                return fail("integral size overflow");
            }
            value = Some(next);
        }
        Ok(value.unwrap_or(default))
    }

    fn next(&mut self) -> Result<Option<Field>> {
        let [option, rest @ ..] = self.rest else { return Ok(None) };
        self.rest = rest;
        let option = *option;
        // C's formats end at a NUL.
        if option == 0 {
            return Ok(None);
        }
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INTEGER_BYTES_MAX {
                    return fail(format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}"));
                }
                size
            }
            _ => 0,
        };
        Ok(Some(Field { option, size }))
    }

    /// Returns the bytes before a field at `length` that align it.
    fn padding(&self, length: usize, field: &Field) -> usize {
        if field.size == 0 || field.option == b'c' {
            return 0;
        }
        let size = field.size.min(self.alignment);
        match size > 1 {
            true => size.wrapping_sub(length & (size - 1)) & (size - 1),
            false => 0,
        }
    }

    /// Executes an option that is no field.
    fn control(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT_MAX)?;
                if !alignment.is_power_of_two() {
                    return fail(format!("alignment {alignment} is not a power of 2"));
                }
                self.alignment = alignment;
            }
            other => {
                let text = format!("invalid format option '{}'", char::from(other));
                return Err(Failure::Argument(1, text));
            }
        }
        Ok(())
    }

    fn put_integer(&self, out: &mut Vec<u8>, number: f64, size: usize) {
        let value = match number < 0.0 {
            true => c_integer(number) as u64,
            false => c_unsigned(number),
        };
        let byte = |at: usize| if at < 8 { (value >> (8 * at)) as u8 } else { 0 };
        match self.is_big_endian {
            true => out.extend((0..size).rev().map(byte)),
            false => out.extend((0..size).map(byte)),
        }
    }

    fn integer(&self, bytes: &[u8], is_signed: bool) -> f64 {
        let join = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        let value = match self.is_big_endian {
            true => bytes.iter().fold(0, join),
            false => bytes.iter().rev().fold(0, join),
        };
        if !is_signed {
            return value as f64;
        }
        let unused = 64_u32.saturating_sub(8 * bytes.len() as u32);
        match bytes.is_empty() {
            true => 0.0,
            false => (((value << unused) as i64) >> unused) as f64,
        }
    }
}

fn c_unsigned(number: f64) -> u64 {
    match number < 18_446_744_073_709_551_616.0 {
        true => number as u64,
        false => 0,
    }
}

/// Returns an argument of `pack`. Redis's missing one is a nil.
fn number(args: &Arguments<'_>, at: usize) -> Result<f64> {
    match at == args.len() + 1 {
        true => Err(Failure::Argument(at, "number expected, got nil".into())),
        false => args.number(at),
    }
}

fn pack(args: &Arguments<'_>) -> Result {
    let format = args.bytes(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let (mut out, mut at, mut total) = (Vec::new(), 2, 0_usize);
    while let Some(field) = format.next()? {
        let Field { option, mut size } = field;
        let padding = format.padding(total, &Field { option, size });
        total += padding;
        out.extend(std::iter::repeat_n(0, padding));
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                format.put_integer(&mut out, number(args, at)?, size);
                at += 1;
            }
            b'x' => out.push(0),
            b'f' => {
                let value = number(args, at)? as f32;
                out.extend_from_slice(&if format.is_big_endian {
                    value.to_be_bytes()
                } else {
                    value.to_le_bytes()
                });
                at += 1;
            }
            b'd' => {
                let value = number(args, at)?;
                out.extend_from_slice(&if format.is_big_endian {
                    value.to_be_bytes()
                } else {
                    value.to_le_bytes()
                });
                at += 1;
            }
            b'c' | b's' => {
                if at == args.len() + 1 {
                    return Err(Failure::Argument(at, "string expected, got nil".into()));
                }
                let text = args.bytes(at)?;
                let text = text.as_bytes();
                at += 1;
                if size == 0 {
                    size = text.len();
                }
                if text.len() < size {
                    return Err(Failure::Argument(at, "string too short".into()));
                }
                out.extend_from_slice(&text[..size]);
                if option == b's' {
                    out.push(0);
                    size += 1;
                }
            }
            other => format.control(other)?,
        }
        total += size;
        if out.len() > ENCODED_BYTES_MAX {
            return fail("not enough memory");
        }
    }
    args.burn(out.len() / 4)?;
    one(Value::String(args.lua.create_string(out)?))
}

fn unpack(args: &Arguments<'_>) -> Result {
    let format = args.bytes(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let data = args.bytes(2)?;
    let data = data.as_bytes();
    let begin = if args.is_none_or_nil(3) { 1 } else { args.integer(3)? };
    if begin <= 0 {
        return Err(Failure::Argument(3, "offset must be 1 or greater".into()));
    }
    let mut at = usize::try_from(begin - 1).unwrap_or(usize::MAX);
    let too_short = || Failure::Argument(2, "data string too short".into());
    let mut values: Vec<Value> = Vec::new();
    while let Some(field) = format.next()? {
        at = at.saturating_add(format.padding(at, &field));
        let Field { option, mut size } = field;
        if size > data.len() || at > data.len() - size {
            return Err(too_short());
        }
        if values.len() >= RESULTS_MAX {
            return fail("stack overflow (too many results)");
        }
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let value = format.integer(&data[at..at + size], option.is_ascii_lowercase());
                values.push(Value::Number(value));
            }
            b'x' => {}
            b'f' => {
                let bytes: [u8; 4] = data[at..at + 4].try_into().unwrap_or_default();
                let value =
                    if format.is_big_endian { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) };
                values.push(Value::Number(f64::from(value)));
            }
            b'd' => {
                let bytes: [u8; 8] = data[at..at + 8].try_into().unwrap_or_default();
                let value =
                    if format.is_big_endian { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) };
                values.push(Value::Number(value));
            }
            b'c' => {
                if size == 0 {
                    let Some(Value::Number(length)) = values.pop() else {
                        return fail("format 'c0' needs a previous size");
                    };
                    size = c_unsigned(length.max(0.0)) as usize;
                    if length < 0.0 || size > data.len() || at > data.len() - size {
                        return Err(too_short());
                    }
                }
                values.push(Value::String(args.lua.create_string(&data[at..at + size])?));
            }
            b's' => {
                let Some(length) = data[at..].iter().position(|&byte| byte == 0) else {
                    return fail("unfinished string in data");
                };
                values.push(Value::String(args.lua.create_string(&data[at..at + length])?));
                size = length + 1;
            }
            other => format.control(other)?,
        }
        at += size;
    }
    args.burn(at / 4)?;
    values.push(Value::Integer(at as i64 + 1));
    Ok(MultiValue::from_vec(values))
}

fn size(args: &Arguments<'_>) -> Result {
    let format = args.bytes(1)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let mut total = 0_usize;
    while let Some(field) = format.next()? {
        total = total.saturating_add(format.padding(total, &field));
        let Field { option, size } = field;
        match (option, size) {
            (b's', _) => return Err(Failure::Argument(1, "option 's' has no fixed size".into())),
            (b'c', 0) => return Err(Failure::Argument(1, "option 'c0' has no fixed size".into())),
            (option, _) if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        total = total.saturating_add(size);
    }
    one(Value::Number(total as f64))
}

/// Creates the library.
pub(crate) fn create(builder: &Builder<'_>) -> mlua::Result<Table> {
    let table = builder.lua.create_table_with_capacity(0, 4)?;
    builder.add(&table, "pack", |args| pack(&args))?;
    builder.add(&table, "unpack", |args| unpack(&args))?;
    builder.add(&table, "size", |args| size(&args))?;
    Ok(table)
}
