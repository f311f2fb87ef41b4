//! The functions that a library registers.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::shebang::Flags;

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
    pub functions: Vec<Function>,
}

impl Registered {
    /// Takes a name for the next function. Returns false if another one has it.
    pub fn begin(&mut self, name: &str) -> bool {
        self.names.insert(name.to_owned())
    }
}
