//! The library `cjson`, as Redis's version of lua-cjson 2.1.0.

mod decode;
mod encode;

use mlua::{LightUserData, MultiValue, Table, Value};

use crate::arguments::{c_integer, fail, one, type_name, Arguments, Failure, Result};
use crate::builder::Builder;
use crate::settings::{Invalid, Settings, PRECISION_MAX};

/// The value of JSON's null in Lua.
fn null() -> Value {
    Value::LightUserData(LightUserData(std::ptr::null_mut()))
}

fn is_null(value: &Value) -> bool {
    matches!(value, Value::LightUserData(pointer) if pointer.0.is_null())
}

fn limit_arguments(args: &Arguments<'_>, max: usize) -> Result<()> {
    match args.len() > max {
        true => Err(Failure::Argument(max + 1, "found too many arguments".into())),
        false => Ok(()),
    }
}

/// Reads an integer option, if it is given, and returns the setting.
fn integer(args: &Arguments<'_>, number: usize, setting: &mut i64, range: (i64, i64)) -> Result<Value> {
    if !args.is_none_or_nil(number) {
        let value = c_integer(args.number(number)?);
        if !(range.0..=range.1).contains(&value) {
            let text = format!("expected integer between {} and {}", range.0, range.1);
            return Err(Failure::Argument(number, text));
        }
        *setting = value;
    }
    Ok(Value::Integer(*setting))
}

/// Reads an option that is a boolean, `"on"`, `"off"` or another word. Returns its position among
/// the words.
fn word(args: &Arguments<'_>, number: usize, words: &[&str], default: usize) -> Result<usize> {
    match args.get(number) {
        None | Some(Value::Nil) => Ok(default),
        Some(Value::Boolean(value)) => Ok(usize::from(*value)),
        Some(Value::String(text)) => {
            let text = text.to_string_lossy();
            match words.iter().position(|known| *known == text) {
                Some(at) => Ok(at),
                None => Err(Failure::Argument(number, format!("invalid option '{text}'"))),
            }
        }
        Some(other) => {
            let text = format!("string expected, got {}", type_name(other));
            Err(Failure::Argument(number, text))
        }
    }
}

const OFF_ON: [&str; 2] = ["off", "on"];

fn sparse(args: &Arguments<'_>, settings: &mut Settings) -> Result {
    limit_arguments(args, 3)?;
    let at = word(args, 1, &OFF_ON, usize::from(settings.converts_sparse))?;
    settings.converts_sparse = at == 1;
    let range = (0, i64::from(i32::MAX));
    let ratio = integer(args, 2, &mut settings.sparse_ratio, range)?;
    let safe = integer(args, 3, &mut settings.sparse_safe, range)?;
    Ok(MultiValue::from_vec(vec![Value::Boolean(settings.converts_sparse), ratio, safe]))
}

fn encode_invalid(args: &Arguments<'_>, settings: &mut Settings) -> Result {
    limit_arguments(args, 1)?;
    let words = ["off", "on", "null"];
    let at = match settings.encode_invalid {
        Invalid::Refuse => 0,
        Invalid::Write => 1,
        Invalid::Null => 2,
    };
    let at = word(args, 1, &words, at)?;
    settings.encode_invalid = [Invalid::Refuse, Invalid::Write, Invalid::Null][at];
    match at {
        2 => one(Value::String(args.lua.create_string("null")?)),
        _ => one(Value::Boolean(at == 1)),
    }
}

fn flag(args: &Arguments<'_>, setting: &mut bool) -> Result {
    limit_arguments(args, 1)?;
    *setting = word(args, 1, &OFF_ON, usize::from(*setting))? == 1;
    one(Value::Boolean(*setting))
}

fn depth(args: &Arguments<'_>, setting: &mut i64) -> Result {
    limit_arguments(args, 1)?;
    one(integer(args, 1, setting, (1, i64::from(i32::MAX)))?)
}

fn only_argument(args: &Arguments<'_>) -> Result<Value> {
    match (args.len(), args.get(1)) {
        (1, Some(value)) => Ok(value.clone()),
        _ => Err(Failure::Argument(1, "expected 1 argument".into())),
    }
}

/// Creates the library.
pub(crate) fn create(builder: &Builder<'_>) -> mlua::Result<Table> {
    let lua = builder.lua;
    let table = lua.create_table_with_capacity(0, 16)?;
    let kept = builder.kept.clone();
    builder.add(&table, "encode", move |args| {
        let value = only_argument(&args)?;
        let (result, text) = encode::encode(&value, &kept.json.borrow());
        args.burn(text.len() / 4)?;
        result?;
        one(Value::String(args.lua.create_string(text)?))
    })?;
    let kept = builder.kept.clone();
    builder.add(&table, "decode", move |args| {
        only_argument(&args)?;
        let text = args.bytes(1)?;
        let text = text.as_bytes();
        args.burn(text.len() / 2)?;
        one(decode::decode(args.lua, &text, &kept.json.borrow())?)
    })?;
    type Set = fn(&Arguments<'_>, &mut Settings) -> Result;
    let settings: [(&str, Set); 7] = [
        ("encode_sparse_array", sparse),
        ("encode_invalid_numbers", encode_invalid),
        ("decode_invalid_numbers", |args, settings| flag(args, &mut settings.decodes_invalid)),
        ("encode_keep_buffer", |args, settings| flag(args, &mut settings.keeps_buffer)),
        ("encode_max_depth", |args, settings| depth(args, &mut settings.encode_depth_max)),
        ("decode_max_depth", |args, settings| depth(args, &mut settings.decode_depth_max)),
        ("encode_number_precision", |args, settings| {
            limit_arguments(args, 1)?;
            one(integer(args, 1, &mut settings.precision, (1, PRECISION_MAX))?)
        }),
    ];
    for (name, set) in settings {
        let kept = builder.kept.clone();
        builder.add(&table, name, move |args| set(&args, &mut kept.json.borrow_mut()))?;
    }
    // Redis's `new` gives settings of their own; here a script has one set of them.
    let (control, kept) = (builder.control.clone(), builder.kept.clone());
    builder.add(&table, "new", move |args| match args.len() {
        0 => {
            let builder = Builder { lua: args.lua, control: control.clone(), kept: kept.clone() };
            one(Value::Table(create(&builder)?))
        }
        _ => fail("wrong number of arguments"),
    })?;
    table.raw_set("null", null())?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}
