//! Libraries of functions: the first line of their code, and the registration of functions.
//!
//! The code of a library is executed as a whole before each call of one of its functions, in the
//! same state. So a function finds what the code has computed, and nothing that earlier calls have
//! left. While the code is executed, it sees a few globals only
//! (`loading_globals`).

use std::cell::RefCell;

use bytes::Bytes;
use mlua::{Lua, MultiValue, Table, Value};

use crate::arguments::{Arguments, Result};
use crate::builder::{Builder, Control};
use crate::redis::{add_log, add_versions, raise};
use crate::registered::{Function, Registered};
use crate::shebang::Flags;

/// The text of the error for a name that a library or function cannot have.
pub const BAD_NAME: &str =
    "Library names can only contain letters, numbers, or underscores(_) and must be at \
                            least one character long";

/// Returns the name that the first line of a library's code gives it, and the length of that line.
///
/// # Errors
/// The text of the error, without its code.
pub fn library_name(code: &[u8]) -> std::result::Result<(String, usize), String> {
    if !code.starts_with(b"#!") {
        return Err("Missing library metadata".into());
    }
    // Redis ends a string at a NUL.
    let end = code.iter().position(|&byte| byte == b'\n' || byte == 0).filter(|end| code[*end] != 0);
    let words = end.and_then(|end| resp::split_words(&code[..end]).ok().map(|words| (end, words)));
    let Some((end, words)) = words else { return Err("Invalid library metadata".into()) };
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let engine = words.first().map_or(&b""[..], |word| word.get(2..).unwrap_or_default());
    let mut name = None;
    for word in words.iter().skip(1) {
        match word.split_at_checked(5) {
            Some((option, given)) if option.eq_ignore_ascii_case(b"name=") => {
                if name.replace(given).is_some() {
                    return Err("Invalid metadata value, name argument was given multiple times".into());
                }
            }
            _ => return Err(format!("Invalid metadata value given: {}", shown(word))),
        }
    }
    let Some(name) = name else { return Err("Library name was not given".into()) };
    let Some(name) = as_name(name) else { return Err(BAD_NAME.into()) };
    match engine.eq_ignore_ascii_case(b"lua") {
        true => Ok((name, end)),
        false => Err(format!("Engine '{}' not found", shown(engine))),
    }
}

/// Returns the name of a library or function, if it can be one.
fn as_name(text: &[u8]) -> Option<String> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match !text.is_empty() && text.iter().all(is_allowed) {
        true => String::from_utf8(text.to_vec()).ok(),
        false => None,
    }
}

/// Returns the bytes of a string or a number.
fn text_of(lua: &Lua, value: &Value) -> Result<Option<Bytes>> {
    Ok(match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            lua.coerce_string(value.clone())?.map(|text| Bytes::copy_from_slice(&text.as_bytes()))
        }
        _ => None,
    })
}

/// The arguments of `redis.register_function`.
#[derive(Default)]
struct Given {
    name: Option<Bytes>,
    description: Option<Bytes>,
    flags: Flags,
    callback: Option<mlua::Function>,
}

fn named_arguments(args: &Arguments<'_>, table: &Table) -> Result<Given> {
    let lua = args.lua;
    let mut given = Given { flags: Flags { are_stated: true, ..Flags::default() }, ..Given::default() };
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair?;
        args.burn(20)?;
        let Some(name) = text_of(lua, &name)? else {
            return raise(lua, "named argument key given to redis.register_function is not a string");
        };
        match name.to_ascii_lowercase().as_slice() {
            b"function_name" => match text_of(lua, &value)? {
                Some(name) => given.name = Some(name),
                None => {
                    let text = "function_name argument given to redis.register_function must be a string";
                    return raise(lua, text);
                }
            },
            b"description" => match text_of(lua, &value)? {
                Some(text) => given.description = Some(text),
                None => {
                    let text = "description argument given to redis.register_function must be a string";
                    return raise(lua, text);
                }
            },
            b"callback" => match value {
                Value::Function(callback) => given.callback = Some(callback),
                _ => {
                    let text = "callback argument given to redis.register_function must be a function";
                    return raise(lua, text);
                }
            },
            b"flags" => match value {
                Value::Table(table) => given.flags = flags_in(args, &table)?,
                _ => {
                    let text = "flags argument to redis.register_function must be a table representing \
                                function flags";
                    return raise(lua, text);
                }
            },
            _ => return raise(lua, "unknown argument given to redis.register_function"),
        }
    }
    if given.name.is_none() {
        return raise(lua, "redis.register_function must get a function name argument");
    }
    if given.callback.is_none() {
        return raise(lua, "redis.register_function must get a callback argument");
    }
    Ok(given)
}

fn flags_in(args: &Arguments<'_>, table: &Table) -> Result<Flags> {
    let mut flags = Flags { are_stated: true, ..Flags::default() };
    for at in 1.. {
        args.burn(20)?;
        let value: Value = table.raw_get(at)?;
        if value.is_nil() {
            break;
        }
        let name = text_of(args.lua, &value)?.unwrap_or_default().to_ascii_lowercase();
        if !std::str::from_utf8(&name).is_ok_and(|name| flags.set(name)) {
            return raise(args.lua, "unknown flag given");
        }
    }
    Ok(flags)
}

fn register(args: &Arguments<'_>, callbacks: &Table, registered: &RefCell<Registered>) -> Result {
    let lua = args.lua;
    let given = match (args.len(), args.get(1), args.get(2)) {
        (1, Some(Value::Table(table)), _) => named_arguments(args, table)?,
        (1, ..) => {
            let text = "calling redis.register_function with a single argument is only applicable to Lua \
                        table (representing named arguments).";
            return raise(lua, text);
        }
        (2, Some(name), Some(callback)) => {
            let Some(name) = text_of(lua, name)? else {
                return raise(lua, "first argument to redis.register_function must be a string");
            };
            let Value::Function(callback) = callback else {
                return raise(lua, "second argument to redis.register_function must be a function");
            };
            let flags = Flags { are_stated: true, ..Flags::default() };
            Given { name: Some(name), description: None, flags, callback: Some(callback.clone()) }
        }
        _ => return raise(lua, "wrong number of arguments to redis.register_function"),
    };
    let Some(name) = as_name(given.name.as_deref().unwrap_or_default()) else {
        return raise(lua, BAD_NAME);
    };
    let mut registered = registered.borrow_mut();
    if !registered.begin(&name) {
        return raise(lua, "Function already exists in the library");
    }
    callbacks.raw_set(name.as_str(), given.callback)?;
    if !registered.add(Function { name, description: given.description, flags: given.flags }) {
        return raise(lua, "the functions of the library take too much memory");
    }
    Ok(MultiValue::new())
}

/// The globals of a library. `missing` is the metatable that refuses those that are not there.
pub(crate) struct Sandbox {
    /// The table in which the library's code looks up its globals. It is empty.
    globals: Table,
    /// The metatables of `globals`, with the globals while the code is executed and afterwards.
    loading: Table,
    running: Table,
    control: Control,
    /// Holds the table of the registered functions, while a script runs.
    holder: Table,
}

impl Sandbox {
    pub fn new(builder: &Builder<'_>, missing: &Table) -> mlua::Result<Sandbox> {
        let (lua, control) = (builder.lua, &builder.control);
        let holder = lua.create_table_with_capacity(1, 0)?;
        let metatable_of = |globals: Table| {
            let metatable = lua.create_table_with_capacity(0, 1)?;
            metatable.raw_set("__index", globals)?;
            control.protect(&metatable)?;
            Ok::<_, mlua::Error>(metatable)
        };
        let loading = metatable_of(loading_globals(builder, missing, &holder)?)?;
        let running = metatable_of(running_globals(builder, missing)?)?;
        let globals = lua.create_table()?;
        globals.set_metatable(Some(loading.clone()))?;
        control.protect(&globals)?;
        Ok(Sandbox { globals, loading, running, control: control.clone(), holder })
    }

    pub fn globals(&self) -> Table {
        self.globals.clone()
    }

    /// Begins the execution of a library's code.
    pub fn begin(&self, lua: &Lua) -> mlua::Result<()> {
        self.holder.raw_set(1, lua.create_table()?)?;
        self.show(&self.loading)
    }

    /// Changes the globals.
    fn show(&self, metatable: &Table) -> mlua::Result<()> {
        self.control.unprotect(&self.globals)?;
        self.globals.set_metatable(Some(metatable.clone()))?;
        self.control.protect(&self.globals)
    }

    /// Ends the execution of the code, so that functions can be called. Returns one of them.
    pub fn function(&self, name: &str) -> mlua::Result<Option<mlua::Function>> {
        self.show(&self.running)?;
        let callbacks: Table = self.holder.raw_get(1)?;
        self.holder.raw_set(1, Value::Nil)?;
        callbacks.raw_get(name)
    }

    /// Forgets what belongs to a script.
    pub fn end(&self) -> mlua::Result<()> {
        self.holder.raw_set(1, Value::Nil)
    }
}

/// Creates the globals that a library's code sees while it is executed.
fn loading_globals(builder: &Builder<'_>, missing: &Table, holder: &Table) -> mlua::Result<Table> {
    let (lua, control) = (builder.lua, &builder.control);
    let redis = lua.create_table()?;
    let (holder, kept) = (holder.clone(), builder.kept.clone());
    builder.add(&redis, "register_function", move |args| {
        match holder.raw_get::<Value>(1)? {
            Value::Table(callbacks) => register(&args, &callbacks, &kept.registered),
            // The library has kept the function in a variable.
            _ => raise(args.lua, "redis.register_function can only be called on FUNCTION LOAD command"),
        }
    })?;
    add_log(builder, &redis)?;
    add_versions(&redis)?;
    redis.set_metatable(Some(missing.clone()))?;
    control.protect(&redis)?;
    let globals = lua.create_table_with_capacity(0, 1)?;
    globals.raw_set("redis", redis)?;
    globals.set_metatable(Some(missing.clone()))?;
    control.protect(&globals)?;
    Ok(globals)
}

/// Creates the globals that functions see: those of scripts, but for a few functions of `redis`.
fn running_globals(builder: &Builder<'_>, missing: &Table) -> mlua::Result<Table> {
    const ONLY_IN_SCRIPTS: [&str; 3] = ["replicate_commands", "breakpoint", "debug"];
    let (lua, control) = (builder.lua, &builder.control);
    let copy_of = |table: &Table| {
        let copy = lua.create_table()?;
        for pair in table.pairs::<Value, Value>() {
            let (name, value) = pair?;
            copy.raw_set(name, value)?;
        }
        Ok::<_, mlua::Error>(copy)
    };
    let globals = copy_of(&lua.globals())?;
    let redis = copy_of(&globals.raw_get("redis")?)?;
    for name in ONLY_IN_SCRIPTS {
        redis.raw_set(name, Value::Nil)?;
    }
    control.protect(&redis)?;
    globals.raw_set("redis", redis)?;
    globals.raw_set("_G", globals.clone())?;
    globals.set_metatable(Some(missing.clone()))?;
    control.protect(&globals)?;
    Ok(globals)
}
