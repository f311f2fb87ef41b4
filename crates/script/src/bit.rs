//! The library `bit`: operations on 32 bits.

use mlua::{Table, Value};

use crate::arguments::{one, Arguments, Result};
use crate::builder::Builder;

/// Adding it leaves the integer part, modulo 2^32, in the low bits of the sum.
const MAGIC: f64 = 6_755_399_441_055_744.0;

fn bits(args: &Arguments<'_>, number: usize) -> Result<u32> {
    Ok((args.number(number)? + MAGIC).to_bits() as u32)
}

fn signed(bits: u32) -> Result {
    one(Value::Integer(i64::from(bits as i32)))
}

fn fold(args: &Arguments<'_>, join: fn(u32, u32) -> u32) -> Result {
    let mut result = bits(args, 1)?;
    for number in 2..=args.len() {
        result = join(result, bits(args, number)?);
    }
    signed(result)
}

fn shift(args: &Arguments<'_>, by: fn(u32, u32) -> u32) -> Result {
    signed(by(bits(args, 1)?, bits(args, 2)? & 31))
}

fn to_hex(args: &Arguments<'_>) -> Result {
    let value = bits(args, 1)?;
    let digits = match args.len() {
        1 => 8,
        _ => bits(args, 2)? as i32,
    };
    let count = (digits.unsigned_abs() as usize).min(8);
    let text = match digits < 0 {
        true => format!("{value:08X}"),
        false => format!("{value:08x}"),
    };
    one(Value::String(args.lua.create_string(&text[8 - count..])?))
}

pub(crate) fn create(builder: &Builder<'_>) -> mlua::Result<Table> {
    let table = builder.lua.create_table()?;
    builder.add(&table, "tobit", |args| signed(bits(&args, 1)?))?;
    builder.add(&table, "bnot", |args| signed(!bits(&args, 1)?))?;
    builder.add(&table, "band", |args| fold(&args, |a, b| a & b))?;
    builder.add(&table, "bor", |args| fold(&args, |a, b| a | b))?;
    builder.add(&table, "bxor", |args| fold(&args, |a, b| a ^ b))?;
    builder.add(&table, "lshift", |args| shift(&args, |a, n| a << n))?;
    builder.add(&table, "rshift", |args| shift(&args, |a, n| a >> n))?;
    builder.add(&table, "arshift", |args| shift(&args, |a, n| ((a as i32) >> n) as u32))?;
    builder.add(&table, "rol", |args| shift(&args, u32::rotate_left))?;
    builder.add(&table, "ror", |args| shift(&args, u32::rotate_right))?;
    builder.add(&table, "bswap", |args| signed(bits(&args, 1)?.swap_bytes()))?;
    builder.add(&table, "tohex", |args| to_hex(&args))?;
    Ok(table)
}
