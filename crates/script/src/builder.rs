//! The parts of a script's state that the libraries need: Lua's own function for the host, and the
//! addition of functions to tables.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table};

use crate::arguments::{give, Arguments, Result};
use crate::random::Random;
use crate::registered::Registered;
use crate::settings::Settings;
use crate::STEPS_MAX;

/// The number of steps of a library function, besides those for its arguments.
const LIBRARY_STEPS: u64 = 10;

/// Lua's own function for the host: see `lbaselib.c`.
#[derive(Clone)]
pub(crate) struct Control(pub Function);

impl Control {
    /// Ends the script at its next instruction.
    pub fn end(&self) -> mlua::Result<()> {
        self.burn(2 * STEPS_MAX as usize)
    }

    pub fn burn(&self, steps: usize) -> mlua::Result<()> {
        self.0.call(("burn", steps))
    }

    pub fn has_steps_left(&self) -> mlua::Result<bool> {
        Ok(self.0.call::<f64>("left")? >= 0.0)
    }

    pub fn wrap(&self, function: &Function, steps: u64) -> mlua::Result<Function> {
        self.0.call(("wrap", function, steps))
    }

    /// Returns a function that calls the one in a table, with a first argument.
    pub fn wrap_held(&self, holder: &Table, steps: u64, first: u8) -> mlua::Result<Function> {
        self.0.call(("wrap", holder, steps, first))
    }

    pub fn unprotect(&self, table: &Table) -> mlua::Result<()> {
        self.0.call(("writable", table))
    }

    pub fn protect(&self, table: &Table) -> mlua::Result<()> {
        self.0.call(("readonly", table))
    }
}

impl Arguments<'_> {
    /// Takes steps for the time that an argument costs.
    pub(crate) fn burn(&self, steps: usize) -> Result<()> {
        if steps > LIBRARY_STEPS as usize {
            if let Some(control) = self.lua.app_data_ref::<Control>() {
                control.burn(steps)?;
            }
        }
        Ok(())
    }
}

/// The parts of a script's state that the host keeps. They are reset before each script.
#[derive(Default)]
pub(crate) struct Kept {
    pub random: RefCell<Random>,
    pub json: RefCell<Settings>,
    pub registered: RefCell<Registered>,
}

/// Adds functions of the host to tables. It borrows the state: a function that owned it would keep
/// the state from ever being freed, because the state owns the function.
pub(crate) struct Builder<'l> {
    pub lua: &'l Lua,
    pub control: Control,
    pub kept: Rc<Kept>,
}

impl Builder<'_> {
    /// Adds a library function.
    pub fn add(
        &self,
        table: &Table,
        name: &str,
        function: impl Fn(Arguments<'_>) -> Result + 'static,
    ) -> mlua::Result<()> {
        let function = self
            .lua
            .create_function(move |lua, values: MultiValue| give(lua, function(Arguments { lua, values })))?;
        table.raw_set(name, self.control.wrap(&function, LIBRARY_STEPS)?)
    }
}
