//! A user's permissions in a log entry. The replicas check by them the commands that the user's
//! script calls, so they must be the ones that the user had when the script was proposed.
//!
//! ```text
//! rules      selector ...
//! selector   flags u8   1: the commands named are those that are forbidden   2: all keys
//!                       4: all channels
//!            | count u32 | command ...          command: length u8 | name
//!            | count u32 | first argument ...   first argument: command | length u32 | text
//!            | count u32 | key pattern ...      key pattern: access u8 (1 reads, 2 writes)
//!                                                            | length u32 | glob
//!            | count u32 | channel pattern ...  channel pattern: length u32 | glob
//! ```
//!
//! Integers are big-endian; the bars are not there.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::glob;
use crate::key_access::key_access;
use crate::permission::{has_first_argument, Access, KeyPattern};
use crate::sort;
use crate::spec::{flags, CommandSpec};

const FORBIDS: u8 = 1;
const ALL_KEYS: u8 = 2;
const ALL_CHANNELS: u8 = 4;
const READS: u8 = 1;
const WRITES: u8 = 2;

const NO_COMMAND: &str = "The user executing the script can't run this command or subcommand";
const NO_KEY: &str = "The user executing the script can't access at least one of the keys mentioned in \
     the command arguments";
const NO_CHANNEL: &str =
    "The user executing the script can't access at least one of the channels mentioned in \
     the command arguments";

/// Permissions. A command is permitted if one selector permits all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorRules {
    /// True if `commands` are those that are forbidden.
    pub forbids: bool,
    pub commands: Vec<String>,
    /// First arguments that are permitted for commands that are not.
    pub first_arguments: Vec<(String, String)>,
    pub all_keys: bool,
    pub keys: Vec<KeyPattern>,
    pub all_channels: bool,
    /// Globs of the permitted channels.
    pub channels: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<SelectorRules>);

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u32(u32::try_from(count).expect("rules are far below 2^32 bytes"));
}

fn put_name(out: &mut BytesMut, name: &str) {
    out.put_u8(u8::try_from(name.len()).expect("names of commands are short"));
    out.put_slice(name.as_bytes());
}

fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}

fn take_u8(rest: &mut Bytes) -> Option<u8> {
    take(rest, 1).map(|mut byte| byte.get_u8())
}

fn take_count(rest: &mut Bytes) -> Option<usize> {
    take(rest, 4).map(|mut bytes| bytes.get_u32() as usize)
}

fn take_text(rest: &mut Bytes, length: usize) -> Option<String> {
    String::from_utf8(take(rest, length)?.to_vec()).ok()
}

fn take_name(rest: &mut Bytes) -> Option<String> {
    let length = usize::from(take_u8(rest)?);
    take_text(rest, length)
}

impl Rules {
    /// Returns the rules as an argument.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        for selector in &self.0 {
            let mut flags = if selector.forbids { FORBIDS } else { 0 };
            flags |= if selector.all_keys { ALL_KEYS } else { 0 };
            flags |= if selector.all_channels { ALL_CHANNELS } else { 0 };
            out.put_u8(flags);
            put_count(&mut out, selector.commands.len());
            selector.commands.iter().for_each(|name| put_name(&mut out, name));
            put_count(&mut out, selector.first_arguments.len());
            for (name, argument) in &selector.first_arguments {
                put_name(&mut out, name);
                put_count(&mut out, argument.len());
                out.put_slice(argument.as_bytes());
            }
            put_count(&mut out, selector.keys.len());
            for KeyPattern { glob, access } in &selector.keys {
                out.put_u8(if access.read { READS } else { 0 } | if access.write { WRITES } else { 0 });
                put_count(&mut out, glob.len());
                out.put_slice(glob);
            }
            put_count(&mut out, selector.channels.len());
            for glob in &selector.channels {
                put_count(&mut out, glob.len());
                out.put_slice(glob);
            }
        }
        out.freeze()
    }

    /// Returns `None` if the bytes are damaged.
    pub fn decode(bytes: &Bytes) -> Option<Rules> {
        let mut rest = bytes.clone();
        let mut selectors = Vec::new();
        while !rest.is_empty() {
            let flags = take_u8(&mut rest)?;
            let mut selector = SelectorRules {
                forbids: flags & FORBIDS != 0,
                all_keys: flags & ALL_KEYS != 0,
                all_channels: flags & ALL_CHANNELS != 0,
                ..SelectorRules::default()
            };
            for _ in 0..take_count(&mut rest)? {
                selector.commands.push(take_name(&mut rest)?);
            }
            for _ in 0..take_count(&mut rest)? {
                let name = take_name(&mut rest)?;
                let length = take_count(&mut rest)?;
                selector.first_arguments.push((name, take_text(&mut rest, length)?));
            }
            for _ in 0..take_count(&mut rest)? {
                let access = take_u8(&mut rest)?;
                let length = take_count(&mut rest)?;
                let glob = take(&mut rest, length)?.to_vec();
                let access = Access { read: access & READS != 0, write: access & WRITES != 0 };
                selector.keys.push(KeyPattern { glob, access });
            }
            for _ in 0..take_count(&mut rest)? {
                let length = take_count(&mut rest)?;
                selector.channels.push(take(&mut rest, length)?.to_vec());
            }
            selectors.push(selector);
        }
        Some(Rules(selectors))
    }

    /// Returns the error for a command that the user may not execute: that of the selector that
    /// permits the most.
    pub fn denial(&self, spec: &'static CommandSpec, args: &[Bytes]) -> Option<&'static str> {
        let mut denial = (0, NO_COMMAND);
        for selector in &self.0 {
            if !selector.permits(spec, args) {
                continue;
            }
            if !selector.permits_keys(spec, args) {
                denial = denial.max((1, NO_KEY));
            } else if !selector.permits_channels(spec, args) {
                denial = denial.max((2, NO_CHANNEL));
            } else {
                return None;
            }
        }
        Some(denial.1)
    }
}

impl SelectorRules {
    fn permits(&self, spec: &'static CommandSpec, args: &[Bytes]) -> bool {
        if spec.has(flags::NO_AUTH) || self.commands.iter().any(|name| name == spec.name) != self.forbids {
            return true;
        }
        let named = self.first_arguments.iter().filter(|(name, _)| name == spec.name);
        has_first_argument(spec, args, named.map(|(_, argument)| argument))
    }

    fn permits_keys(&self, spec: &'static CommandSpec, args: &[Bytes]) -> bool {
        let permits_all = || self.keys.iter().any(|pattern| pattern.glob == b"*" && pattern.access.read);
        self.all_keys
            || key_access(spec, args).all(|(_, key, flags)| {
                let needed = Access::of(flags);
                self.keys.iter().any(|pattern| pattern.permits(key, needed))
            })
            // The keys that a pattern of SORT names are not known here.
            && (sort::pattern_of(spec.name, args).is_none() || permits_all())
    }

    fn permits_channels(&self, spec: &'static CommandSpec, args: &[Bytes]) -> bool {
        let Some((mut positions, _)) = spec.channels(args.len()).filter(|_| !self.all_channels) else {
            return true;
        };
        let permits = |channel: &Bytes| self.channels.iter().any(|pattern| glob::matches(pattern, channel));
        positions.all(|at| permits(&args[at]))
    }
}
