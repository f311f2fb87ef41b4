//! The compiled scripts that a state keeps, so that a script that is executed often is compiled
//! once.
//!
//! A script cannot notice this. The function of a compiled script keeps no variables, its code does
//! not change, and no script can refer to it. Each execution looks its globals up and creates its
//! own values. What an execution saves are the parser's steps and memory, which are far below the
//! limits (`state`) for a text of [`LENGTH_MAX`] bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;

use mlua::Function;

/// Maximum length of a script that is kept, in bytes.
const LENGTH_MAX: usize = 64 << 10;
/// Estimated memory of a compiled script for each of its bytes, and in addition to them.
const BYTES_PER_BYTE: usize = 16;
const SCRIPT_BYTES: usize = 512;
/// Maximum memory of all compiled scripts of a state, in bytes. Beyond it, all are forgotten.
pub(crate) const BYTES_MAX: usize = 4 << 20;
const _: () = assert!(LENGTH_MAX * BYTES_PER_BYTE + SCRIPT_BYTES < BYTES_MAX);

#[derive(Default)]
struct State {
    scripts: BTreeMap<Box<[u8]>, Function>,
    libraries: BTreeMap<Box<[u8]>, Function>,
    bytes: usize,
}

impl State {
    fn of(&mut self, is_library: bool) -> &mut BTreeMap<Box<[u8]>, Function> {
        match is_library {
            true => &mut self.libraries,
            false => &mut self.scripts,
        }
    }
}

/// The compiled scripts and libraries of one state.
#[derive(Default)]
pub(crate) struct Compiled(RefCell<State>);

impl Compiled {
    pub fn get(&self, text: &[u8], is_library: bool) -> Option<Function> {
        self.0.borrow_mut().of(is_library).get(text).cloned()
    }

    pub fn keep(&self, text: &[u8], is_library: bool, function: &Function) {
        if text.len() > LENGTH_MAX {
            return;
        }
        let mut state = self.0.borrow_mut();
        let bytes = text.len() * BYTES_PER_BYTE + SCRIPT_BYTES;
        if state.bytes + bytes > BYTES_MAX {
            *state = State::default();
        }
        if state.of(is_library).insert(text.into(), function.clone()).is_none() {
            state.bytes += bytes;
        }
    }
}
