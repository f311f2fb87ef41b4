//! The functions that a library registers.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::shebang::Flags;

/// Maximum memory of the functions of a library, in bytes.
const BYTES_MAX: usize = 8 << 20;
/// Memory of a function in addition to its texts, in bytes.
const FUNCTION_BYTES: usize = 200;

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub description: Option<Bytes>,
    pub flags: Flags,
}

/// The functions that a library has registered so far.
#[derive(Default)]
pub(crate) struct Registered {
    names: BTreeSet<String>,
    /// The memory of the functions, which is outside of Lua's.
    bytes: usize,
    pub functions: Vec<Function>,
}

impl Registered {
    /// Takes a name for the next function. Returns false if another one has it.
    pub fn begin(&mut self, name: &str) -> bool {
        self.names.insert(name.to_owned())
    }

    /// Adds a function. Returns false if the functions take too much memory.
    pub fn add(&mut self, function: Function) -> bool {
        let description = function.description.as_ref().map_or(0, Bytes::len);
        self.bytes += 2 * function.name.len() + description + FUNCTION_BYTES;
        if self.bytes <= BYTES_MAX {
            self.functions.push(function);
        }
        self.bytes <= BYTES_MAX
    }
}
