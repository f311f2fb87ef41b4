//! The Lua state of a script, and the execution.
//!
//! Creating a state takes much longer than a small script. So each thread keeps one, and uses it
//! again as long as nothing shows that it was used. A script cannot leave anything in it: every
//! table that is there before the script is read-only, functions do not change, nothing is weak,
//! objects are numbered from the same number on, and the parts that the host keeps are reset. What
//! remains is garbage that no script can reach, and compiled scripts, which no script can tell from
//! new ones (`compiled`).
//!
//! Garbage has an effect on two things only, the steps and the memory that a script needs: a text
//! that is already in the state is not allocated again. So a state that was used executes only
//! scripts that are far from the limits: it ends a script after a hundredth of the steps
//! ([`QUICK_STEPS_MAX`]) or an eighth of the memory ([`QUICK_BYTES_MAX`], which counts everything
//! that is allocated). Garbage saves at most a few steps for each step taken, and at most as much
//! memory as it takes, which is bounded by the size at which a state is dropped. So a script that
//! ends below these bounds in a used state ends below the limits in a new one, with the same
//! result. A script that does not is executed again, in a new state with the limits: the limits are
//! always reached in the same place, and the caller has undone what the first attempt did
//! ([`Outcome::Again`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use mlua::{ChunkMode, Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use resp::Reply;

use crate::arguments::{give, type_name, Arguments, Failure, Result};
use crate::builder::{Builder, Control, Kept};
use crate::compiled::{self, Compiled};
use crate::library::{library_name, Sandbox};
use crate::random::Random;
use crate::redis::{self, Shared};
use crate::registered::{Function as Registration, Registered};
use crate::settings::Settings;
use crate::{bit, digest, flags_of, json, math, msgpack, reply, structs};
use crate::{Called, Host, Outcome, Script, LOAD_STEPS_MAX, MEMORY_BYTES_MAX, STEPS_MAX};

/// The name of a script in its errors.
const CHUNK_NAME: &str = "@user_script";
/// The name of a library in its errors.
const LIBRARY_NAME: &str = "@user_function";
/// Globals of Lua that scripts do not get.
const REMOVED: [&str; 7] = ["control", "dofile", "loadfile", "print", "getfenv", "setfenv", "newproxy"];
/// The steps after which a script is executed again in a new state: about 10 ms.
const QUICK_STEPS_MAX: u64 = STEPS_MAX / 100;
/// The allocated bytes after which a script is executed again in a new state.
const QUICK_BYTES_MAX: usize = MEMORY_BYTES_MAX / 8;
/// The memory of a state in bytes beyond which it is not used again.
const KEPT_BYTES_MAX: usize = 2 * compiled::BYTES_MAX;
const _: () = assert!(KEPT_BYTES_MAX + QUICK_BYTES_MAX < MEMORY_BYTES_MAX / 4);

/// The text of Lua's error if no memory is left.
const NO_MEMORY: &[u8] = b"not enough memory";
const NO_MEMORY_FOR_LIBRARY: &str = "Error registering functions: ERR not enough memory";

thread_local! {
    /// The state that this thread uses again.
    static KEPT: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Refuses a global that is not there.
fn missing(args: &Arguments<'_>) -> Result {
    let name = args.bytes(2)?.to_string_lossy();
    Err(Failure::Error(format!("Script attempted to access nonexistent global variable '{name}'")))
}

fn list(lua: &Lua, items: &[Bytes]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(items.len(), 0)?;
    for (at, item) in items.iter().enumerate() {
        table.raw_set(at + 1, lua.create_string(item)?)?;
    }
    Ok(table)
}

struct State {
    lua: Lua,
    control: Control,
    kept: Rc<Kept>,
    /// Holds the function that calls the host, while a script runs.
    holder: Table,
    /// The globals of libraries.
    sandbox: Sandbox,
    compiled: Compiled,
}

impl State {
    fn new() -> mlua::Result<State> {
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::new())?;
        let globals = lua.globals();
        let control = Control(globals.raw_get("control")?);
        lua.set_app_data(control.clone());
        let kept = Rc::new(Kept::default());
        let builder = Builder { lua: &lua, control: control.clone(), kept: kept.clone() };
        let holder = lua.create_table_with_capacity(1, 0)?;
        for name in REMOVED {
            globals.raw_set(name, Value::Nil)?;
        }
        math::replace(&globals.raw_get("math")?, &builder)?;
        for (name, library) in [
            ("redis", redis::create(&builder, &holder)?),
            ("cjson", json::create(&builder)?),
            ("cmsgpack", msgpack::create(&builder)?),
            ("struct", structs::create(&builder)?),
            ("bit", bit::create(&builder)?),
        ] {
            globals.raw_set(name, library)?;
        }
        for name in ["string", "table", "coroutine", "math", "redis", "cjson", "cmsgpack", "struct", "bit"] {
            control.protect(&globals.raw_get(name)?)?;
        }
        control.protect(&control.0.call::<Table>("strings")?)?;
        let metatable = lua.create_table_with_capacity(0, 1)?;
        builder.add(&metatable, "__index", |args| missing(&args))?;
        control.protect(&metatable)?;
        globals.set_metatable(Some(metatable.clone()))?;
        control.protect(&globals)?;
        let sandbox = Sandbox::new(&builder, &metatable)?;
        let state = State { lua, control, kept, holder, sandbox, compiled: Compiled::default() };
        state.warm_up()?;
        Ok(state)
    }

    /// Executes a script once, so that everything that `mlua` creates when it is first needed is
    /// there before the first script.
    fn warm_up(&self) -> mlua::Result<()> {
        struct Nothing;
        impl Host for Nothing {
            fn call(&mut self, _: Vec<Bytes>, _: bool) -> Called {
                Called::Reply(Reply::Array(vec![Reply::OK]))
            }
            fn may_call(&mut self, _: &[Bytes]) -> Option<bool> {
                None
            }
        }
        let mut host = Nothing;
        let shared =
            Shared { host: RefCell::new(&mut host), resp3: Cell::new(false), has_ended: Cell::new(false) };
        let execute = |body: &[u8], function| {
            let script = Script { body, function, keys: &[], args: &[], seed: 0 };
            self.execute(&script, body, &shared, (QUICK_STEPS_MAX, QUICK_BYTES_MAX)).map(|_| ())
        };
        execute(b"return redis.call('x', cjson.encode({}))", None)?;
        execute(b"redis.register_function('f', function() return 1 end)", Some("f"))
    }

    fn execute(
        &self,
        script: &Script<'_>,
        part: &[u8],
        shared: &Shared<'_>,
        (steps, bytes): (u64, usize),
    ) -> mlua::Result<Outcome> {
        let lua = &self.lua;
        self.begin(script.seed, steps, bytes)?;
        let (keys, args) = (list(lua, script.keys)?, list(lua, script.args)?);
        if script.function.is_none() {
            self.control.0.call::<()>(("arguments", &keys, &args))?;
        }
        let is_library = script.function.is_some();
        let function = match self.compiled.get(part, is_library) {
            Some(function) => function,
            None => match self.load(part, is_library) {
                Ok(function) => {
                    self.compiled.keep(part, is_library, &function);
                    function
                }
                Err(error) if is_memory(&error) => return Err(error),
                Err(error) => return Ok(Outcome::Reply(not_compiled(&error))),
            },
        };
        lua.scope(|scope| {
            let control = &self.control;
            let call = scope.create_function(move |lua, (operation, values): (u8, MultiValue)| {
                give(lua, redis::call_host(operation, &Arguments { lua, values }, shared, control))
            })?;
            self.holder.raw_set(1, call)?;
            let (is_done, value): (bool, Value) = match script.function {
                None => self.control.0.call(("run", function))?,
                Some(name) => match self.register(function, name)? {
                    Ok(Some(function)) => self.control.0.call(("continue", function, keys, args))?,
                    Ok(None) => return Ok(Outcome::Reply(Reply::error("ERR Function not found"))),
                    Err(outcome) => return Ok(outcome),
                },
            };
            if !self.control.has_steps_left()? {
                return Ok(Outcome::OutOfSteps);
            }
            Ok(match is_done {
                true => Outcome::Reply(reply::from_lua(&value, shared.resp3.get())?),
                false => failed(script, &value)?,
            })
        })
    }

    /// Begins a script.
    fn begin(&self, seed: u64, steps: u64, bytes: usize) -> mlua::Result<()> {
        *self.kept.random.borrow_mut() = Random::of_seed(seed);
        *self.kept.json.borrow_mut() = Settings::default();
        *self.kept.registered.borrow_mut() = Registered::default();
        self.control.0.call::<()>(("begin", steps as f64, bytes as f64))
    }

    /// Executes the code of a library. Returns the function with this name, if there is one.
    fn register(
        &self,
        code: Function,
        name: &str,
    ) -> mlua::Result<std::result::Result<Option<Function>, Outcome>> {
        self.sandbox.begin(&self.lua)?;
        let (is_done, value): (bool, Value) = self.control.0.call(("run", code))?;
        let function = self.sandbox.function(name)?;
        Ok(match is_done {
            _ if !self.control.has_steps_left()? => Err(Outcome::OutOfSteps),
            true => Ok(function),
            false => match text_of_failure(&value)? {
                Some(text) => {
                    let text = format!("ERR Error registering functions: {text}");
                    Err(Outcome::Reply(Reply::error(text)))
                }
                None => Err(Outcome::OutOfMemory),
            },
        })
    }

    /// Compiles a script or the code of a library.
    fn load(&self, part: &[u8], is_library: bool) -> mlua::Result<Function> {
        match is_library {
            true => {
                let globals = self.sandbox.globals();
                let chunk = self.lua.load(part).set_name(LIBRARY_NAME).set_environment(globals);
                chunk.set_mode(ChunkMode::Text).into_function()
            }
            false => load(&self.lua, part),
        }
    }

    /// Keeps the state for the thread's next script.
    fn keep(self) {
        let is_clean = self.holder.raw_set(1, Value::Nil).and_then(|()| self.sandbox.end());
        let is_clean = is_clean.and_then(|()| self.control.0.call::<()>("end"));
        if is_clean.is_ok() && self.lua.used_memory() <= KEPT_BYTES_MAX {
            KEPT.with_borrow_mut(|kept| *kept = Some(self));
        }
    }
}

fn load(lua: &Lua, body: &[u8]) -> mlua::Result<Function> {
    lua.load(body).set_name(CHUNK_NAME).set_mode(ChunkMode::Text).into_function()
}

/// Returns the text of the error of code that cannot be compiled.
fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Returns the reply for a script that cannot be compiled.
fn not_compiled(error: &mlua::Error) -> Reply {
    Reply::error(format!("ERR Error compiling script (new function): {}", text_of(error)))
}

/// Returns the part of a script that is Lua: without a first line of flags.
///
/// # Errors
/// The reply for a first line that cannot be read.
fn lua_part(body: &[u8]) -> std::result::Result<&[u8], Reply> {
    match flags_of(body) {
        Ok((_, length)) => Ok(&body[length..]),
        Err(text) => Err(Reply::error(format!("ERR {text}"))),
    }
}

pub(crate) fn compile(body: &[u8]) -> std::result::Result<(), Reply> {
    let part = lua_part(body)?;
    let state = take().map_err(|error| not_compiled(&error))?;
    let loaded = load(&state.lua, part).map(|_| ());
    state.keep();
    loaded.map_err(|error| not_compiled(&error))
}

/// Returns the part of a script or a library's code that is Lua.
///
/// # Errors
/// The reply for a first line that cannot be read.
fn part_of<'a>(script: &Script<'a>) -> std::result::Result<&'a [u8], Reply> {
    match script.function {
        None => lua_part(script.body),
        Some(_) => match library_name(script.body) {
            Ok((_, length)) => Ok(&script.body[length..]),
            Err(text) => Err(Reply::error(format!("ERR {text}"))),
        },
    }
}

pub(crate) fn load_library(code: &[u8]) -> std::result::Result<Vec<Registration>, String> {
    let (_, length) = library_name(code)?;
    let state = State::new().map_err(|error| error.to_string())?;
    let registered = state.lua.set_memory_limit(MEMORY_BYTES_MAX).and_then(|_| {
        state.begin(0, LOAD_STEPS_MAX, usize::MAX / 4)?;
        let function = match state.load(&code[length..], true) {
            Ok(function) => function,
            Err(error) if is_memory(&error) => return Err(error),
            Err(error) => return Ok(Err(format!("Error compiling function: {}", text_of(&error)))),
        };
        Ok(match state.register(function, "")? {
            Ok(_) => Ok(std::mem::take(&mut state.kept.registered.borrow_mut().functions)),
            Err(Outcome::Reply(Reply::Error(text))) => {
                Err(text.strip_prefix("ERR ").unwrap_or(&text).to_owned())
            }
            Err(Outcome::OutOfSteps) => {
                Err("Error registering functions: ERR FUNCTION LOAD timeout".to_owned())
            }
            Err(_) => Err(NO_MEMORY_FOR_LIBRARY.to_owned()),
        })
    });
    match registered {
        Ok(Ok(functions)) if functions.is_empty() => Err("No functions registered".to_owned()),
        Ok(functions) => functions,
        Err(error) if is_memory(&error) => Err(NO_MEMORY_FOR_LIBRARY.to_owned()),
        Err(error) => Err(format!("Error registering functions: {error}")),
    }
}

/// Takes the thread's state, or creates one.
fn take() -> mlua::Result<State> {
    KEPT.with_borrow_mut(Option::take).map_or_else(State::new, Ok)
}

/// Returns whether an error means that no memory is left.
fn is_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => is_memory(cause),
        _ => false,
    }
}

/// Executes a script in the thread's state, or exactly: in a new one, up to the limits.
pub(crate) fn run(script: &Script<'_>, is_exact: bool, host: &mut dyn Host) -> Outcome {
    let part = match part_of(script) {
        Ok(part) => part,
        Err(error) => return Outcome::Reply(error),
    };
    let given: usize = script.keys.iter().chain(script.args).map(Bytes::len).sum();
    if !is_exact && given + part.len() > QUICK_BYTES_MAX {
        return Outcome::Again;
    }
    let shared = Shared { host: RefCell::new(host), resp3: Cell::new(false), has_ended: Cell::new(false) };
    let outcome = match is_exact {
        true => State::new().and_then(|state| {
            state.lua.set_memory_limit(MEMORY_BYTES_MAX)?;
            state.execute(script, part, &shared, (STEPS_MAX, usize::MAX / 4))
        }),
        false => take().and_then(|state| {
            let outcome = state.execute(script, part, &shared, (QUICK_STEPS_MAX, QUICK_BYTES_MAX))?;
            state.keep();
            Ok(outcome)
        }),
    };
    match outcome {
        _ if shared.has_ended.get() => Outcome::Ended,
        Ok(Outcome::OutOfSteps) if !is_exact => Outcome::Again,
        Ok(outcome) => outcome,
        Err(_) if !is_exact => Outcome::Again,
        Err(error) if is_memory(&error) => Outcome::OutOfMemory,
        Err(error) => Outcome::Reply(Reply::error(format!("ERR Error running script: {error}"))),
    }
}

/// Returns the text of the error with which a library's code has ended, or `None` if no memory was
/// left.
fn text_of_failure(value: &Value) -> mlua::Result<Option<String>> {
    Ok(Some(match value {
        Value::Table(error) => reply::error_text(error)?.unwrap_or_else(|| "ERR unknown error".to_owned()),
        Value::Error(error) if is_memory(error) => return Ok(None),
        Value::String(text) if *text.as_bytes() == *NO_MEMORY => return Ok(None),
        Value::String(text) => text.to_string_lossy(),
        other => type_name(other).to_owned(),
    }))
}

/// Returns the outcome of a script that ended with an error.
fn failed(script: &Script<'_>, value: &Value) -> mlua::Result<Outcome> {
    let name = || script.function.map_or_else(|| digest(script.body), str::to_owned);
    let Some(text) = text_of_failure(value)? else { return Ok(Outcome::OutOfMemory) };
    let Value::Table(error) = value else {
        let text = format!("ERR Error running script {}, {text}", name());
        return Ok(Outcome::Reply(Reply::error(text)));
    };
    let (source, line): (Value, Value) = (error.raw_get("source")?, error.raw_get("line")?);
    let place = match (&source, &line) {
        (Value::String(source), Value::Integer(line)) => {
            format!(" script: {}, on {}:{line}.", name(), source.to_string_lossy())
        }
        _ => String::new(),
    };
    Ok(Outcome::Reply(Reply::error(text + &place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_freed_when_it_is_no_longer_used() {
        let state = State::new().unwrap();
        let lua = state.lua.weak();
        drop(state);
        assert!(lua.try_upgrade().is_none(), "a function of the state owns the state");
    }
}
