//! Patterns of keys and of channels.

use command::glob_matches;

/// The access that a key pattern permits, or that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
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
pub(crate) struct KeyPattern {
    pub glob: Vec<u8>,
    pub access: Access,
}

impl KeyPattern {
    pub fn permits(&self, key: &[u8], needed: Access) -> bool {
        // In Redis only an empty pattern matches an empty key, not even `*` does.
        let matches = if key.is_empty() { self.glob.is_empty() } else { glob_matches(&self.glob, key) };
        self.access.covers(needed) && matches
    }

    pub fn describe(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.access {
            Access { read: true, write: false } => b"%R~",
            Access { read: false, write: true } => b"%W~",
            Access { .. } => b"~",
        });
        out.extend_from_slice(&self.glob);
    }
}
