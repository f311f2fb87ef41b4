//! The library `cmsgpack`, as Redis's version of lua-cmsgpack 0.4.0.

use mlua::{Lua, MultiValue, Table, Value};

use crate::arguments::{as_number, fail, one, Arguments, Failure, Result};
use crate::builder::Builder;
use crate::nested::DEPTH_MAX;
use crate::ENCODED_BYTES_MAX;

/// Nesting of tables beyond which `pack` writes nil.
const NESTING_MAX: usize = 16;

fn put_length(out: &mut Vec<u8>, length: usize, (small, fix): (usize, u8), wide: [Option<u8>; 3]) {
    let [of_1, of_2, of_4] = wide;
    match (length, of_1, of_2, of_4) {
        (length, ..) if length <= small => out.push(fix | length as u8),
        (0..=0xff, Some(tag), ..) => out.extend_from_slice(&[tag, length as u8]),
        (0..=0xffff, _, Some(tag), _) => {
            out.push(tag);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        (_, _, _, tag) => {
            out.push(tag.unwrap_or(0xc0));
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

fn put_integer(out: &mut Vec<u8>, value: i64) {
    match value {
        -32..=127 => out.push(value as u8),
        128..=0xff => out.extend_from_slice(&[0xcc, value as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&value.to_be_bytes());
        }
        -128..=-33 => out.extend_from_slice(&[0xd0, value as u8]),
        -0x8000..=-129 => {
            out.push(0xd1);
            out.extend_from_slice(&(value as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            out.push(0xd2);
            out.extend_from_slice(&(value as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn put_number(out: &mut Vec<u8>, value: f64) {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if libm::trunc(value) == value && (-LIMIT..LIMIT).contains(&value) {
        return put_integer(out, value as i64);
    }
    let single = value as f32;
    if f64::from(single) == value {
        out.push(0xca);
        out.extend_from_slice(&single.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Returns the number of elements of a table that is an array.
fn array_length(table: &Table) -> Result<Option<usize>> {
    let (mut max, mut count) = (0_i64, 0_i64);
    for pair in table.pairs::<Value, Value>() {
        match as_number(&pair?.0) {
            Some(key) if key > 0.0 && libm::trunc(key) == key && key <= f64::from(i32::MAX) => {
                max = max.max(key as i64);
                count += 1;
            }
            _ => return Ok(None),
        }
    }
    Ok((max == count).then_some(max as usize))
}

fn pack(out: &mut Vec<u8>, value: &Value, nesting: usize) -> Result<()> {
    if out.len() > ENCODED_BYTES_MAX {
        return fail("not enough memory");
    }
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            put_length(out, text.len(), (31, 0xa0), [Some(0xd9), Some(0xda), Some(0xdb)]);
            out.extend_from_slice(&text);
        }
        Value::Boolean(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(_) | Value::Number(_) => put_number(out, as_number(value).unwrap_or_default()),
        Value::Table(table) if nesting < NESTING_MAX => match array_length(table)? {
            Some(length) => {
                put_length(out, length, (15, 0x90), [None, Some(0xdc), Some(0xdd)]);
                for at in 1..=length {
                    pack(out, &table.raw_get(at)?, nesting + 1)?;
                }
            }
            None => {
                let mut count = 0;
                for pair in table.pairs::<Value, Value>() {
                    pair?;
                    count += 1;
                }
                put_length(out, count, (15, 0x80), [None, Some(0xde), Some(0xdf)]);
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    pack(out, &key, nesting + 1)?;
                    pack(out, &value, nesting + 1)?;
                }
            }
        },
        _ => out.push(0xc0),
    }
    Ok(())
}

struct Input<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl Input<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8]> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => fail("Missing bytes in input."),
        }
    }

    fn unsigned(&mut self, bytes: usize) -> Result<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn signed(&mut self, bytes: usize) -> Result<Value> {
        let unused = 64 - 8 * bytes as u32;
        Ok(Value::Number((((self.unsigned(bytes)? << unused) as i64) >> unused) as f64))
    }

    fn string(&mut self, length: usize) -> Result<Value> {
        let lua = self.lua;
        Ok(Value::String(lua.create_string(self.take(length)?)?))
    }

    fn array(&mut self, length: u64, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for at in 1..=length {
            table.raw_set(at, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: u64, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            match &key {
                Value::Nil => return Err(Failure::Plain("table index is nil")),
                Value::Number(number) if number.is_nan() => return Err(Failure::Plain("table index is NaN")),
                _ => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX {
            return fail("stack overflow (in function mp_decode_to_lua_array)");
        }
        let tag = self.take(1)?[0];
        Ok(match tag {
            0x00..=0x7f => Value::Number(f64::from(tag)),
            0xe0..=0xff => Value::Number(f64::from(tag as i8)),
            0x80..=0x8f => self.map(u64::from(tag & 15), depth)?,
            0x90..=0x9f => self.array(u64::from(tag & 15), depth)?,
            0xa0..=0xbf => self.string(usize::from(tag & 31))?,
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xca => Value::Number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (tag - 0xcc))? as f64),
            0xd0..=0xd3 => self.signed(1 << (tag - 0xd0))?,
            0xd9..=0xdb => {
                let length = self.unsigned(1 << (tag - 0xd9))?;
                self.string(length as usize)?
            }
            0xdc | 0xdd => {
                let length = self.unsigned(2 << (tag - 0xdc))?;
                self.array(length, depth)?
            }
            0xde | 0xdf => {
                let length = self.unsigned(2 << (tag - 0xde))?;
                self.map(length, depth)?
            }
            _ => return fail("Bad data format in input."),
        })
    }
}

/// Unpacks at most `limit` values from `offset` on. Without a limit, all of them. With one, the
/// first result is the offset behind them, or -1 at the end.
fn unpack(args: &Arguments<'_>, limit: i64, offset: i64) -> Result {
    let text = args.bytes(1)?;
    let text = text.as_bytes();
    if offset < 0 || limit < 0 {
        let length = text.len();
        return fail(format!("Invalid request to unpack with offset of {offset} and limit of {length}."));
    }
    if offset as u64 > text.len() as u64 {
        let length = text.len();
        return fail(format!("Start offset {offset} greater than input length {length}."));
    }
    args.burn(text.len() / 4)?;
    let mut input = Input { lua: args.lua, rest: &text[offset as usize..] };
    let mut values = Vec::new();
    while !input.rest.is_empty() && (limit == 0 || (values.len() as i64) < limit) {
        if values.len() >= RESULTS_MAX {
            return fail("stack overflow (too many results)");
        }
        values.push(input.value(0)?);
    }
    if limit > 0 {
        let next = match input.rest.is_empty() {
            true => -1,
            false => (text.len() - input.rest.len()) as i64,
        };
        values.insert(0, Value::Integer(next));
    }
    Ok(MultiValue::from_vec(values))
}

/// Maximum number of results of a function.
const RESULTS_MAX: usize = 7900;

/// Creates the library.
pub(crate) fn create(builder: &Builder<'_>) -> mlua::Result<Table> {
    let table = builder.lua.create_table_with_capacity(0, 8)?;
    builder.add(&table, "pack", |args| {
        if args.len() == 0 {
            return Err(Failure::Argument(0, "MessagePack pack needs input.".into()));
        }
        let mut out = Vec::new();
        let result = args.values.iter().try_for_each(|value| pack(&mut out, value, 0));
        args.burn(out.len() / 4)?;
        result?;
        one(Value::String(args.lua.create_string(out)?))
    })?;
    builder.add(&table, "unpack", |args| unpack(&args, 0, 0))?;
    builder.add(&table, "unpack_one", |args| {
        let offset = if args.is_none_or_nil(2) { 0 } else { args.integer(2)? };
        unpack(&args, 1, offset)
    })?;
    builder.add(&table, "unpack_limit", |args| {
        let limit = args.integer(2)?;
        let offset = if args.is_none_or_nil(3) { 0 } else { args.integer(3)? };
        unpack(&args, limit, offset)
    })?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        table.raw_set(name, text)?;
    }
    Ok(table)
}
