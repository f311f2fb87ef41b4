//! The parts of a user's permissions that are checked in two places: when a client sends a command
//! (crate `acl`), and when a script calls one ([`crate::scripting::rules`]).

use bytes::Bytes;

use crate::glob;
use crate::spec::CommandSpec;

/// The access that a key pattern permits, or that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub read: bool,
    pub write: bool,
}

impl Access {
    pub const ALL: Access = Access { read: true, write: true };

    /// Returns the access to a key that the flags of its specification need.
    pub fn of(flags: &[&str]) -> Access {
        Access {
            read: flags.contains(&"access"),
            write: ["insert", "delete", "update"].iter().any(|flag| flags.contains(flag)),
        }
    }

    fn covers(self, needed: Access) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    pub glob: Vec<u8>,
    pub access: Access,
}

impl KeyPattern {
    pub fn permits(&self, key: &[u8], needed: Access) -> bool {
        self.access.covers(needed) && glob::matches(&self.glob, key)
    }
}

/// Returns true if the command's first argument is one of `known`. `spec` is the entry of the
/// command or its subcommand.
pub fn has_first_argument<'a>(
    spec: &CommandSpec,
    args: &[Bytes],
    mut known: impl Iterator<Item = &'a String>,
) -> bool {
    let at = if spec.name.contains('|') { 2 } else { 1 };
    args.get(at).is_some_and(|given| {
        // Redis compares C strings.
        let given = given.split(|&byte| byte == 0).next().unwrap_or_default();
        known.any(|known| known.as_bytes().eq_ignore_ascii_case(given))
    })
}
