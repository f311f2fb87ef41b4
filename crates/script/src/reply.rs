//! Conversions between replies and Lua's values, as Redis defines them for RESP2 and RESP3.

use std::borrow::Cow;

use bytes::Bytes;
use mlua::{Lua, Table, Value};
use resp::{double_text, Reply};

use crate::arguments::{as_number, c_integer};
use crate::REPLY_DEPTH_MAX;

/// Converts a command's reply for a script that uses RESP2 or RESP3 (`redis.setresp`).
pub(crate) fn to_lua(lua: &Lua, reply: &Reply, resp3: bool) -> mlua::Result<Value> {
    let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    let field = |name: &str, value: Value| -> mlua::Result<Value> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    Ok(match reply {
        Reply::Simple(text) => field("ok", string(text.as_bytes())?)?,
        Reply::Error(text) => Value::Table(error_of_command(lua, text)?),
        Reply::Int(value) => number(*value as f64),
        Reply::Bulk(bytes) => string(bytes)?,
        Reply::Nil | Reply::NilArray => match resp3 {
            true => Value::Nil,
            false => Value::Boolean(false),
        },
        Reply::Array(items) | Reply::Push(items) => array(lua, items.iter(), resp3)?,
        Reply::Set(items) if !resp3 => array(lua, items.iter(), resp3)?,
        Reply::Set(items) => {
            let set = lua.create_table()?;
            for item in items {
                let key = to_lua(lua, item, resp3)?;
                if !key.is_nil() {
                    set.raw_set(key, true)?;
                }
            }
            field("set", Value::Table(set))?
        }
        Reply::Map(pairs) if !resp3 => {
            array(lua, pairs.iter().flat_map(|(name, value)| [name, value]), resp3)?
        }
        Reply::Map(pairs) => {
            let map = lua.create_table()?;
            for (name, value) in pairs {
                let key = to_lua(lua, name, resp3)?;
                if !key.is_nil() {
                    map.raw_set(key, to_lua(lua, value, resp3)?)?;
                }
            }
            field("map", Value::Table(map))?
        }
        Reply::Double(value) if resp3 => field("double", Value::Number(*value))?,
        Reply::Double(value) => string(&double_text(*value))?,
        Reply::Bool(value) if resp3 => Value::Boolean(*value),
        Reply::Bool(value) => Value::Integer(i64::from(*value)),
        Reply::BigNumber(text) if resp3 => field("big_number", string(text.as_bytes())?)?,
        Reply::BigNumber(text) => string(text.as_bytes())?,
        Reply::Verbatim(format, text) if resp3 => {
            let parts = lua.create_table_with_capacity(0, 2)?;
            parts.raw_set("string", string(text)?)?;
            parts.raw_set("format", string(format.as_bytes())?)?;
            field("verbatim_string", Value::Table(parts))?
        }
        Reply::Verbatim(_, text) => string(text)?,
    })
}

fn number(value: f64) -> Value {
    Value::Number(value)
}

fn array<'a>(lua: &Lua, items: impl Iterator<Item = &'a Reply>, resp3: bool) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(items.size_hint().0, 0)?;
    for (at, item) in items.enumerate() {
        table.raw_set(at + 1, to_lua(lua, item, resp3)?)?;
    }
    Ok(Value::Table(table))
}

/// Returns the table of an error that a command replied.
fn error_of_command(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = error(lua, text)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}

/// Returns the table of an error whose text begins with a code.
pub(crate) fn error(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", text.trim_matches(['\r', '\n']))?;
    Ok(table)
}

fn text_of(text: &mlua::String) -> String {
    // Redis's strings of this kind end at a NUL.
    let bytes = text.as_bytes();
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the text of an error table: its `err`, without line breaks.
pub(crate) fn error_text(table: &Table) -> mlua::Result<Option<String>> {
    Ok(match table.raw_get("err")? {
        Value::String(text) => Some(text_of(&text)),
        _ => None,
    })
}

fn bulk(text: &mlua::String) -> Reply {
    Reply::Bulk(Bytes::copy_from_slice(&text.as_bytes()))
}

/// Converts the result of a script. `resp3` says what the script uses.
pub(crate) fn from_lua(value: &Value, resp3: bool) -> mlua::Result<Reply> {
    convert(value, resp3, 0)
}

fn convert(value: &Value, resp3: bool, depth: usize) -> mlua::Result<Reply> {
    if depth > REPLY_DEPTH_MAX {
        return Ok(Reply::error("ERR reached lua stack limit"));
    }
    Ok(match value {
        Value::String(text) => bulk(text),
        Value::Boolean(value) if resp3 => Reply::Bool(*value),
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(value) => Reply::Int(*value),
        Value::Number(value) => Reply::Int(c_integer(*value)),
        Value::Table(table) => of_table(table, resp3, depth)?,
        _ => Reply::Nil,
    })
}

fn of_table(table: &Table, resp3: bool, depth: usize) -> mlua::Result<Reply> {
    if let Some(text) = error_text(table)? {
        return Ok(Reply::Error(Cow::Owned(text)));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Simple(Cow::Owned(text_of(&text))));
    }
    let double: Value = table.raw_get("double")?;
    if as_number(&double).is_some() {
        return Ok(Reply::Double(table.raw_get("double")?));
    }
    if let Value::Table(map) = table.raw_get("map")? {
        let mut pairs = Vec::new();
        for pair in map.pairs::<Value, Value>() {
            let (name, value) = pair?;
            pairs.push((convert(&name, resp3, depth + 1)?, convert(&value, resp3, depth + 1)?));
        }
        return Ok(Reply::Map(pairs));
    }
    if let Value::Table(set) = table.raw_get("set")? {
        let mut items = Vec::new();
        for pair in set.pairs::<Value, Value>() {
            items.push(convert(&pair?.0, resp3, depth + 1)?);
        }
        return Ok(Reply::Set(items));
    }
    if let Value::String(text) = table.raw_get("big_number")? {
        return Ok(Reply::BigNumber(text_of(&text).replace(['\r', '\n'], " ").into()));
    }
    if let Value::Table(parts) = table.raw_get("verbatim_string")? {
        if let (Value::String(format), Value::String(text)) =
            (parts.raw_get("format")?, parts.raw_get("string")?)
        {
            let format = if &*format.as_bytes() == b"mkd" { "mkd" } else { "txt" };
            return Ok(Reply::Verbatim(format, Bytes::copy_from_slice(&text.as_bytes())));
        }
    }
    let mut items = Vec::new();
    loop {
        let item: Value = table.raw_get(items.len() + 1)?;
        if item.is_nil() {
            return Ok(Reply::Array(items));
        }
        items.push(convert(&item, resp3, depth + 1)?);
    }
}
