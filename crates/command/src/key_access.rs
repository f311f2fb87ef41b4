//! The keys of a command with the access that it needs to each, as Redis's access control lists and
//! `COMMAND GETKEYSANDFLAGS` tell them.

use bytes::Bytes;

use crate::spec::{CommandSpec, KeySpec};
use crate::table::{positions, states_wrong_number};

const READ: &[&str] = &["RO", "access"];
const CHANGE: &[&str] = &["RW", "access", "update"];
const REPLACE: &[&str] = &["OW", "update"];

/// Returns each key with its position among the arguments and its flags. `spec` is the entry of the
/// command or its subcommand. If the arguments state a number of keys that they do not have, there
/// are none: the command refuses its arguments.
pub fn key_access<'a>(
    spec: &'static CommandSpec,
    args: &'a [Bytes],
) -> impl Iterator<Item = (usize, &'a Bytes, &'static [&'static str])> {
    let specs = if states_wrong_number(spec, args) { &[] } else { spec.keys };
    specs.iter().filter(|keys| keys.names_keys()).flat_map(move |keys| {
        let flags = flags_of(spec, keys, args);
        positions(keys, args).map(move |at| (at, &args[at], flags))
    })
}

/// Returns the flags of a key specification. Those of two commands depend on their arguments.
fn flags_of(spec: &CommandSpec, keys: &KeySpec, args: &[Bytes]) -> &'static [&'static str] {
    match (keys.flags.contains(&"variable_flags"), spec.name) {
        (false, _) => keys.flags,
        (true, "set") => {
            let gets = args.iter().skip(3).any(|arg| c_string(arg).eq_ignore_ascii_case(b"get"));
            if gets {
                CHANGE
            } else {
                REPLACE
            }
        }
        (true, "bitfield") => {
            if only_gets(args) {
                READ
            } else {
                CHANGE
            }
        }
        // The access that needs the most.
        (true, _) => CHANGE,
    }
}

/// Returns true if the operations of `BITFIELD` change nothing. As in Redis, what cannot be read
/// counts as a change.
fn only_gets(args: &[Bytes]) -> bool {
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        let word = c_string(&args[at]).to_ascii_lowercase();
        at += match word.as_slice() {
            b"get" if left >= 2 => 3,
            b"overflow" if left >= 1 => 2,
            _ => return false,
        };
    }
    true
}

/// Returns the part before the first NUL. Redis compares these words as C strings.
fn c_string(arg: &[u8]) -> &[u8] {
    arg.split(|&byte| byte == 0).next().unwrap_or_default()
}
