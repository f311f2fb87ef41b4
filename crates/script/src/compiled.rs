//! The compiled scripts that a state keeps, so that a script that is executed often is compiled
//! once.
//!
//! A script cannot notice this. The function of a compiled script has no variables of its own, its
//! code does not change, and no script gets hold of it: the globals are found in the same tables,
//! and everything that an execution creates is new. What is saved are the steps and the memory of
//! the parser, which are far below the limits for a text of [`LENGTH_MAX`] bytes (`state`).

use std::cell::RefCell;
use std::collections::BTreeMap;

use mlua::Function;

/// Maximum length of a script that is kept, in bytes.
const LENGTH_MAX: usize = 64 << 10;
/// Estimated memory of a compiled script for each of its bytes, and in addition to them.
const BYTES_PER_BYTE: usize = 16;
const SCRIPT_BYTES: usize = 512;
/// Maximum memory of all compiled scripts of a state, in bytes. Beyond it, those that were not used
/// for the longest time are forgotten.
pub(crate) const BYTES_MAX: usize = 4 << 20;
const _: () = assert!(LENGTH_MAX * BYTES_PER_BYTE + SCRIPT_BYTES < BYTES_MAX);

struct Entry {
    function: Function,
    /// The number of the last use.
    used: u64,
}

#[derive(Default)]
struct State {
    scripts: BTreeMap<Box<[u8]>, Entry>,
    libraries: BTreeMap<Box<[u8]>, Entry>,
    bytes: usize,
    uses: u64,
}

impl State {
    fn of(&mut self, is_library: bool) -> &mut BTreeMap<Box<[u8]>, Entry> {
        match is_library {
            true => &mut self.libraries,
            false => &mut self.scripts,
        }
    }

    /// Forgets the script that was not used for the longest time.
    fn forget(&mut self) {
        let oldest = |all: &BTreeMap<Box<[u8]>, Entry>| {
            let oldest = all.iter().min_by_key(|(_, entry)| entry.used);
            oldest.map(|(text, entry)| (entry.used, text.clone()))
        };
        let (script, library) = (oldest(&self.scripts), oldest(&self.libraries));
        let is_library = match (&script, &library) {
            (Some((script, _)), Some((library, _))) => library < script,
            (script, _) => script.is_none(),
        };
        if let Some((_, text)) = if is_library { library } else { script } {
            self.of(is_library).remove(&text);
            self.bytes -= bytes_of(&text);
        }
    }
}

fn bytes_of(text: &[u8]) -> usize {
    text.len() * BYTES_PER_BYTE + SCRIPT_BYTES
}

/// The compiled scripts and libraries of one state.
#[derive(Default)]
pub(crate) struct Compiled(RefCell<State>);

impl Compiled {
    pub fn get(&self, text: &[u8], is_library: bool) -> Option<Function> {
        let mut state = self.0.borrow_mut();
        state.uses += 1;
        let used = state.uses;
        let entry = state.of(is_library).get_mut(text)?;
        entry.used = used;
        Some(entry.function.clone())
    }

    pub fn keep(&self, text: &[u8], is_library: bool, function: &Function) {
        if text.len() > LENGTH_MAX {
            return;
        }
        let mut state = self.0.borrow_mut();
        let entry = Entry { function: function.clone(), used: state.uses };
        if state.of(is_library).insert(text.into(), entry).is_none() {
            state.bytes += bytes_of(text);
        }
        while state.bytes > BYTES_MAX {
            state.forget();
        }
    }
}
