//! The library `redis`.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use mlua::{Lua, MultiValue, Table, Value};
use resp::Reply;

use crate::arguments::{as_number, number_text, one, Arguments, Failure, Result};
use crate::builder::{Builder, Control};
use crate::reply::{error, to_lua};
use crate::{digest, Called, Host, CALL_STEPS};

/// The version of Redis whose behaviour scripts see.
const REDIS_VERSION: &str = "7.0.15";
const REDIS_VERSION_NUM: u32 = 0x0007_000f;
const REPL_ALL: i64 = 3;
/// Bytes of a command's arguments and reply that cost one step.
const BYTES_PER_STEP: usize = 16;
/// Larger costs are accounted for at once.
const UNACCOUNTED_STEPS: usize = 256;

/// The state that the functions of one script share.
pub(crate) struct Shared<'h> {
    pub host: RefCell<&'h mut dyn Host>,
    /// True after `redis.setresp(3)`.
    pub resp3: Cell<bool>,
    /// True once the host has ended the script.
    pub has_ended: Cell<bool>,
}

/// Returns an error with this text, as a table.
pub(crate) fn raise<T>(lua: &Lua, text: &str) -> Result<T> {
    Err(Failure::Value(Value::Table(error(lua, &format!("ERR {text}"))?)))
}

/// Returns the arguments of a command. Only strings and numbers can be.
fn command_of(args: &Arguments<'_>) -> Result<Vec<Bytes>> {
    if args.len() == 0 {
        return raise(args.lua, "Please specify at least one argument for this redis lib call");
    }
    args.values
        .iter()
        .map(|value| match value {
            Value::String(text) => Ok(Bytes::copy_from_slice(&text.as_bytes())),
            _ => match as_number(value) {
                Some(number) => Ok(argument_text(number).into()),
                None => raise(args.lua, "Lua redis lib command arguments must be strings or integers"),
            },
        })
        .collect()
}

/// Returns a number as a command's argument: `%.17g`.
fn argument_text(number: f64) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.abs() < EXACT
        && libm::trunc(number) == number
        && (number != 0.0 || number.is_sign_positive())
    {
        true => (number as i64).to_string(),
        false => number_text(number, 17),
    }
}

/// Calls a command. Returns its reply, and whether it is an error.
fn call(args: &Arguments<'_>, shared: &Shared<'_>, control: &Control) -> Result<(Value, bool)> {
    let command = command_of(args)?;
    let sent: usize = command.iter().map(Bytes::len).sum();
    let called = shared.host.borrow_mut().call(command, shared.resp3.get());
    let reply = match called {
        Called::Reply(reply) => reply,
        Called::Refused(text) => Reply::error(format!("ERR {text}")),
        Called::Ended => {
            shared.has_ended.set(true);
            control.end()?;
            return Err(Failure::Error(String::new()));
        }
    };
    let steps = (sent + reply.bytes()) / BYTES_PER_STEP;
    if steps > UNACCOUNTED_STEPS {
        control.burn(steps)?;
    }
    Ok((to_lua(args.lua, &reply, shared.resp3.get())?, reply.is_error()))
}

fn log(args: &Arguments<'_>) -> Result {
    if args.len() < 2 {
        return raise(args.lua, "redis.log() requires two arguments or more.");
    }
    let Some(level) = args.get(1).and_then(as_number) else {
        return raise(args.lua, "First argument must be a number (log level).");
    };
    if !(0.0..=3.0).contains(&level) {
        return raise(args.lua, "Invalid debug level.");
    }
    // Every replica would write it.
    Ok(MultiValue::new())
}

fn reply_table(args: &Arguments<'_>, make: impl FnOnce(&str) -> mlua::Result<Table>) -> Result {
    let table = match (args.len(), args.get(1)) {
        (1, Some(Value::String(text))) => make(&text.to_string_lossy())?,
        _ => error(args.lua, "ERR wrong number or type of arguments")?,
    };
    one(Value::Table(table))
}

/// Returns the error of `redis.error_reply`: the first word is its code, if there are several.
fn error_reply(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.contains(' ') {
        true => error(lua, text),
        false => error(lua, &format!("ERR {text}")),
    }
}

fn set_repl(args: &Arguments<'_>) -> Result {
    if args.len() != 1 {
        return raise(args.lua, "redis.set_repl() requires two arguments.");
    }
    let flags = args.get(1).and_then(as_number).unwrap_or(0.0) as i64;
    if flags & !REPL_ALL != 0 {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return raise(args.lua, text);
    }
    Ok(MultiValue::new())
}

/// The functions that need the host of the present script.
const CALL: u8 = 0;
const PCALL: u8 = 1;
const ACL_CHECK: u8 = 2;
const SET_RESP: u8 = 3;

/// Executes a function that needs the host.
pub(crate) fn call_host(
    operation: u8,
    args: &Arguments<'_>,
    shared: &Shared<'_>,
    control: &Control,
) -> Result {
    let lua = args.lua;
    match operation {
        CALL => match call(args, shared, control)? {
            (value, true) => Err(Failure::Value(value)),
            (value, false) => one(value),
        },
        PCALL => match call(args, shared, control) {
            Ok((value, _)) => one(value),
            Err(Failure::Value(value)) => one(value),
            Err(failure) => Err(failure),
        },
        ACL_CHECK => match shared.host.borrow_mut().may_call(&command_of(args)?) {
            Some(allowed) => one(Value::Boolean(allowed)),
            None => raise(lua, "Invalid command passed to redis.acl_check_cmd()"),
        },
        _ => match (args.len(), args.number(1).map(|number| number as i64).ok()) {
            (1, Some(version @ (2 | 3))) => {
                shared.resp3.set(version == 3);
                Ok(MultiValue::new())
            }
            (1, _) => raise(lua, "RESP version must be 2 or 3."),
            _ => raise(lua, "redis.setresp() requires one argument."),
        },
    }
}

/// Creates the library. `holder` holds the function that calls the host.
pub(crate) fn create(builder: &Builder<'_>, holder: &Table) -> mlua::Result<Table> {
    let table = builder.lua.create_table_with_capacity(0, 24)?;
    for (name, operation, steps) in [
        ("call", CALL, CALL_STEPS),
        ("pcall", PCALL, CALL_STEPS),
        ("acl_check_cmd", ACL_CHECK, CALL_STEPS),
        ("setresp", SET_RESP, 1),
    ] {
        table.raw_set(name, builder.control.wrap_held(holder, steps, operation)?)?;
    }
    add_log(builder, &table)?;
    builder.add(&table, "sha1hex", |args| match args.len() {
        1 => {
            let text = match args.get(1) {
                Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => args.bytes(1)?,
                _ => args.lua.create_string("")?,
            };
            args.burn(text.as_bytes().len() / 4)?;
            one(Value::String(args.lua.create_string(digest(&text.as_bytes()))?))
        }
        _ => raise(args.lua, "wrong number of arguments"),
    })?;
    builder.add(&table, "error_reply", |args| reply_table(&args, |text| error_reply(args.lua, text)))?;
    builder.add(&table, "status_reply", |args| {
        reply_table(&args, |text| {
            let table = args.lua.create_table_with_capacity(0, 1)?;
            table.raw_set("ok", text)?;
            Ok(table)
        })
    })?;
    builder.add(&table, "set_repl", |args| set_repl(&args))?;
    builder.add(&table, "replicate_commands", |_| one(Value::Boolean(true)))?;
    builder.add(&table, "breakpoint", |_| one(Value::Boolean(false)))?;
    builder.add(&table, "debug", |_| Ok(MultiValue::new()))?;
    for (name, value) in
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", REPL_ALL)]
    {
        table.raw_set(name, value)?;
    }
    add_versions(&table)?;
    Ok(table)
}

/// Adds `log` and its levels.
pub(crate) fn add_log(builder: &Builder<'_>, table: &Table) -> mlua::Result<()> {
    builder.add(table, "log", |args| log(&args))?;
    for (name, value) in [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)] {
        table.raw_set(name, value)?;
    }
    Ok(())
}

/// Adds the version of Redis.
pub(crate) fn add_versions(table: &Table) -> mlua::Result<()> {
    table.raw_set("REDIS_VERSION_NUM", REDIS_VERSION_NUM)?;
    table.raw_set("REDIS_VERSION", REDIS_VERSION)
}
