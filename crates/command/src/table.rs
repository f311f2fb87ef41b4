//! The command table and the look-up of names in it.

mod acl;
mod administration;
mod bitmaps;
mod connection;
mod geo;
mod hashes;
mod hyperloglogs;
mod keys;
mod lists;
mod pubsub;
mod scripting;
mod server;
mod sets;
mod sorted_sets;
mod streams;
mod strings;
mod transactions;

use std::iter::StepBy;
use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;
use resp::{parse_integer, Reply};
use storage::{KeyRef, Reader};

use crate::error_messages;
use crate::sort;
use crate::spec::{CommandSpec, KeySpec};
use crate::streams::read::key_positions;
use crate::transaction;

/// Size of the hash index, which uses open addressing. Its load is below one half, so a look-up
/// usually compares one name. It is no `HashMap`: every command is looked up here, names match in
/// any case without a copy in lower case, and this crate has no ambient randomness to seed one.
const SLOTS: usize = 512;
const LONGEST_NAME: usize = 24;

struct Index {
    /// Positions in `all` plus one; 0 marks a free slot.
    slots: [u8; SLOTS],
    all: Vec<&'static CommandSpec>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let groups: [&'static [CommandSpec]; 17] = [
        &keys::COMMANDS,
        &strings::COMMANDS,
        &hashes::COMMANDS,
        &sets::COMMANDS,
        &sorted_sets::COMMANDS,
        &lists::COMMANDS,
        &streams::COMMANDS,
        &bitmaps::COMMANDS,
        &hyperloglogs::COMMANDS,
        &geo::COMMANDS,
        &transactions::COMMANDS,
        &scripting::COMMANDS,
        &connection::COMMANDS,
        &server::COMMANDS,
        &administration::COMMANDS,
        &acl::COMMANDS,
        &pubsub::COMMANDS,
    ];
    let all: Vec<&'static CommandSpec> = groups.into_iter().flatten().collect();
    assert!(all.len() < SLOTS / 2 && all.len() < usize::from(u8::MAX), "the index has outgrown its table");
    let mut slots = [0; SLOTS];
    for (position, spec) in all.iter().enumerate() {
        assert!(spec.name.len() <= LONGEST_NAME);
        let mut slot = name_hash(spec.name.as_bytes());
        while slots[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = position as u8 + 1;
    }
    Index { slots, all }
});

/// Returns the index slot of a name: FNV-1a of the name in lower case.
fn name_hash(name: &[u8]) -> usize {
    let hash = name.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    });
    (hash ^ (hash >> 16)) as usize % SLOTS
}

/// Returns all commands, without subcommands.
pub fn commands() -> &'static [&'static CommandSpec] {
    &INDEX.all
}

/// Finds a command by its name in any case.
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let index = &*INDEX;
    let mut slot = name_hash(name);
    loop {
        let spec = index.all[usize::from(index.slots[slot].checked_sub(1)?)];
        if spec.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(spec);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Returns the subcommand that the arguments name, or `spec` itself if it has no subcommands or the
/// arguments name none.
pub fn leaf(spec: &'static CommandSpec, args: &[Bytes]) -> &'static CommandSpec {
    args.get(1).and_then(|name| subcommand(spec, name)).unwrap_or(spec)
}

pub(crate) fn subcommand(spec: &'static CommandSpec, name: &[u8]) -> Option<&'static CommandSpec> {
    spec.subcommands.iter().find(|sub| subname(sub).as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the part of the name that follows the container's name.
pub(crate) fn subname(sub: &CommandSpec) -> &'static str {
    sub.name.split_once('|').map_or(sub.name, |(_, name)| name)
}

/// Checks the argument count of a command, or of the subcommand that the arguments name.
///
/// # Errors
/// The error reply for an unknown subcommand or a wrong count.
pub fn check_arity(spec: &'static CommandSpec, args: &[Bytes]) -> Result<(), Reply> {
    let mut checked = spec;
    if let (false, Some(name)) = (spec.subcommands.is_empty(), args.get(1)) {
        checked = subcommand(spec, name).ok_or_else(|| error_messages::unknown_subcommand(spec, name))?;
    }
    match checked.accepts(args.len()) {
        true => Ok(()),
        false => Err(error_messages::wrong_arity(checked.name)),
    }
}

/// Returns the command or subcommand that a client's arguments name, with the argument count
/// checked.
///
/// # Errors
/// The error reply for the client.
pub fn resolve(args: &[Bytes]) -> Result<&'static CommandSpec, Reply> {
    let spec =
        args.first().and_then(|name| lookup(name)).ok_or_else(|| error_messages::unknown_command(args))?;
    check_arity(spec, args)?;
    Ok(leaf(spec, args))
}

/// Returns the keys among the arguments in order, each with the flags of its specification. The
/// keys of a transaction are those of its commands.
pub fn keys_of<'a>(
    spec: &'static CommandSpec,
    args: &'a [Bytes],
) -> impl Iterator<Item = (&'a Bytes, &'static [&'static str])> {
    let held = spec.holds_commands.then(|| transaction::keys(args));
    fixed_keys_of(leaf(spec, args), args).chain(held.into_iter().flatten())
}

/// Returns true if the arguments state a number of keys that they do not have. The command then
/// refuses them.
pub(crate) fn states_wrong_number(spec: &CommandSpec, args: &[Bytes]) -> bool {
    spec.keys.iter().any(|keys| states_wrong_number_of(keys, args))
}

fn states_wrong_number_of(keys: &KeySpec, args: &[Bytes]) -> bool {
    keys.last == KeySpec::COUNTED && counted_keys(keys, args).is_none()
}

/// Returns the keys at the positions that the table states.
pub(crate) fn fixed_keys_of<'a>(
    spec: &'static CommandSpec,
    args: &'a [Bytes],
) -> impl Iterator<Item = (&'a Bytes, &'static [&'static str])> {
    // With a wrong number of keys the command belongs to its first key: the destination, if it has
    // one.
    let is_unknown = |keys: &&KeySpec| spec.keys.len() > 1 && states_wrong_number_of(keys, args);
    let known = spec.keys.iter().filter(move |keys| !is_unknown(keys));
    known.flat_map(move |keys| positions(keys, args).map(|at| (&args[at], keys.flags)))
}

/// Returns true if the command [needs its keys](CommandSpec::needs_its_keys), and none of them
/// exists. So its outcome is that of a read.
pub fn finds_nothing(
    spec: &CommandSpec,
    args: &[Bytes],
    db: u16,
    reader: &dyn Reader,
) -> storage::Result<bool> {
    let Some(keys) = spec.keys.first().filter(|_| spec.needs_its_keys()) else { return Ok(false) };
    for at in positions(keys, args) {
        // An expired key still has a row. Its deletion is a change.
        if reader.get(&KeyRef::new(db, &args[at]).meta_row())?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the positions of the keys of a specification.
pub(crate) fn positions(keys: &KeySpec, args: &[Bytes]) -> StepBy<Range<usize>> {
    let behind = |at: usize| at..at + 1;
    let range = match keys.last {
        KeySpec::COUNTED => keys.first..keys.first + counted_keys(keys, args).unwrap_or(1),
        KeySpec::COUNTED_OR_NONE => keys.first..keys.first + counted_keys(keys, args).unwrap_or(0),
        KeySpec::BEHIND_STORE => stored_at(args, keys.first, b"STORE").map_or(0..0, behind),
        KeySpec::BEHIND_STOREDIST => stored_at(args, keys.first, b"STOREDIST").map_or(0..0, behind),
        KeySpec::STORE_OF_SORT => sort::destination_at(args).map_or(0..0, behind),
        KeySpec::STREAMS => key_positions(args),
        KeySpec::UNKNOWN => 0..0,
        last if last >= 0 => keys.first..keys.first + last as usize + 1,
        last => keys.first..(args.len() + 1).saturating_sub(last.unsigned_abs()),
    };
    (range.start..range.end.min(args.len())).step_by(keys.step)
}

/// Returns the position of the destination of `GEORADIUS`, if this word precedes it. The last one
/// of several destinations counts.
fn stored_at(args: &[Bytes], from: usize, wanted: &[u8]) -> Option<usize> {
    const WORDS: [&[u8]; 2] = [b"STORE", b"STOREDIST"];
    let (mut at, mut found) = (from, None);
    while at + 1 < args.len() {
        if let Some(word) = WORDS.into_iter().find(|word| args[at].eq_ignore_ascii_case(word)) {
            at += 1;
            found = Some((word, at));
        }
        at += 1;
    }
    found.filter(|(word, _)| *word == wanted).map(|(_, at)| at)
}

/// Returns the number of keys that an argument states, or `None` if there are not as many. The
/// command, which then refuses its arguments, is routed by the first one.
pub(crate) fn counted_keys(keys: &KeySpec, args: &[Bytes]) -> Option<usize> {
    let count = usize::try_from(parse_integer(args.get(keys.first - 1)?)?).ok()?;
    (1..=args.len() - keys.first).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{flags, Handler};

    fn args(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    fn keys(line: &str) -> Vec<String> {
        let args = args(line);
        let spec = lookup(&args[0]).unwrap();
        keys_of(spec, &args).map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect()
    }

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for spec in commands() {
            assert_eq!(lookup(spec.name.as_bytes()).unwrap().name, spec.name);
            assert_eq!(lookup(spec.name.to_uppercase().as_bytes()).unwrap().name, spec.name);
            assert!(lookup(format!("{}~", spec.name).as_bytes()).is_none());
        }
        for unknown in [&b""[..], b"geodrop", b"\0expire", &[b'x'; 1000]] {
            assert!(lookup(unknown).is_none());
        }
    }

    #[test]
    fn the_table_is_consistent() {
        let subcommands = commands().iter().flat_map(|spec| spec.subcommands);
        for spec in commands().iter().copied().chain(subcommands) {
            assert_eq!(spec.name, spec.name.to_lowercase());
            assert!(!spec.summary.is_empty() && !spec.group.is_empty() && !spec.since.is_empty());
            assert!(spec.arity != 0);
            assert!(!(spec.is_write() && spec.is_readonly()), "{} reads or writes", spec.name);
            assert!(!spec.denies_oom() || spec.is_write());
            match spec.handler {
                Handler::Keyspace(_) => assert!(!spec.keys.is_empty(), "{} has keys", spec.name),
                Handler::Spanning(..) => assert!(spec.keys.is_empty(), "{} has no keys", spec.name),
                Handler::Table(_) | Handler::Server(_) | Handler::Session(_) => {}
                Handler::Container => {
                    assert!(!spec.subcommands.is_empty() && !spec.accepts(1), "{} has parts", spec.name);
                }
            }
            if matches!(spec.handler, Handler::Keyspace(_) | Handler::Spanning(..)) {
                assert!(spec.has(flags::WRITE | flags::READONLY), "{} reads or writes", spec.name);
            }
            let is_bounded = spec.reads_few_rows || spec.reads_ranks;
            assert!(!is_bounded || spec.is_readonly() && !spec.keys.is_empty());
        }
    }

    #[test]
    fn keys_are_found_by_position() {
        assert_eq!(keys("get a"), ["a"]);
        assert_eq!(keys("mset a 1 b 2"), ["a", "b"]);
        assert_eq!(keys("del a b c"), ["a", "b", "c"]);
        assert_eq!(keys("rename a b"), ["a", "b"]);
        assert_eq!(keys("lcs a b LEN"), ["a", "b"]);
        assert_eq!(keys("copy a b DB 3"), ["a", "b"]);
        assert_eq!(keys("object encoding a"), ["a"]);
        assert_eq!(keys("memory usage a"), ["a"]);
        assert_eq!(keys("smove a b member"), ["a", "b"]);
        assert_eq!(keys("sunionstore d a b"), ["d", "a", "b"]);
        assert_eq!(keys("sintercard 2 a b LIMIT 3"), ["a", "b"]);
        for refused in ["x", "0", "-1", "3", "9223372036854775807", "9223372036854775808"] {
            assert_eq!(keys(&format!("sintercard {refused} a b")), ["a"], "{refused}");
        }
        assert_eq!(keys("sintercard 2"), [""; 0]);
        assert_eq!(keys("zinterstore to 2 a b"), ["to", "a", "b"]);
        for refused in ["3", "0", "x"] {
            assert_eq!(keys(&format!("zinterstore to {refused} a b")), ["to"], "{refused}");
        }
        assert_eq!(keys("zunionstore d 2 a b WEIGHTS 1 2"), ["d", "a", "b"]);
        assert_eq!(keys("zunionstore d x a"), ["d"]);
        assert_eq!(keys("lmpop 2 a b LEFT"), ["a", "b"]);
        assert_eq!(keys("xread COUNT 2 STREAMS a b 1 2"), ["a", "b"]);
        assert_eq!(keys("xread block 5 streams streams a 0-1 $"), ["streams", "a"]);
        assert_eq!(keys("xreadgroup COUNT 1 GROUP STREAMS c STREAMS a >"), ["a"]);
        assert_eq!(keys("xreadgroup GROUP g c NOACK STREAMS a b c"), ["a"]);
        assert_eq!(keys("xread FOO STREAMS a 1"), [""; 0]);
        assert_eq!(keys("xgroup create a g $"), ["a"]);
        assert_eq!(keys("ping"), [""; 0]);
        assert_eq!(keys("get"), [""; 0]);
        assert_eq!(lookup(b"mset").unwrap().key_positions(), (1, -1, 2));
        assert_eq!(lookup(b"rename").unwrap().key_positions(), (1, 2, 1));
        assert_eq!(lookup(b"lcs").unwrap().key_positions(), (1, 2, 1));
        assert_eq!(lookup(b"sdiffstore").unwrap().key_positions(), (1, -1, 1));
        assert_eq!(lookup(b"sintercard").unwrap().key_positions(), (0, 0, 0));
        assert_eq!(lookup(b"ping").unwrap().key_positions(), (0, 0, 0));
    }

    #[test]
    fn refusals_are_worded_as_redis_words_them() {
        let refusal = |line: &str| match resolve(&args(line)) {
            Err(Reply::Error(text)) => text.into_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(refusal("foo a b"), "ERR unknown command 'foo', with args beginning with: 'a' 'b' ");
        assert_eq!(refusal("get"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(refusal("get a b"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(refusal("client"), "ERR wrong number of arguments for 'client' command");
        assert_eq!(refusal("client foo"), "ERR unknown subcommand 'foo'. Try CLIENT HELP.");
        assert_eq!(refusal("client setname"), "ERR wrong number of arguments for 'client|setname' command");
        assert_eq!(resolve(&args("OBJECT Encoding k")).unwrap().name, "object|encoding");
        assert_eq!(resolve(&args("command")).unwrap().name, "command");
    }
}
