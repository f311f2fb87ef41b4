//! The names of the events that commands cause, as Redis's keyspace notifications tell them.
//!
//! Nearly every event has the name of its command, and the class of its group. This module has the
//! exceptions. It sees the command and which keys it has touched (`storage::record`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use storage::record::{Event, Record, Touched};

use crate::exec::Exec;
use crate::spec::CommandSpec;

/// The classes of events, as `notify-keyspace-events` names them.
const GENERIC: u8 = b'g';
const STRING: u8 = b'$';
const LIST: u8 = b'l';
const SET: u8 = b's';
const HASH: u8 = b'h';
const SORTED_SET: u8 = b'z';
const EXPIRED: u8 = b'x';
const STREAM: u8 = b't';
const NEW: u8 = b'n';

/// The record to which the events of a command are added.
struct Told<'a> {
    record: &'a mut Record,
}

impl Told<'_> {
    fn push(&mut self, of: &Touched, class: u8, name: &'static str) {
        self.record.events.push(Event { class, name, db: of.db, key: of.key.clone() });
    }

    /// Tells that a key has come into being.
    fn begin(&mut self, of: &Touched) {
        if !of.existed && of.exists && of.is_changed {
            self.push(of, NEW, "new");
        }
    }

    /// Tells that a key has lost its last element.
    fn end(&mut self, of: &Touched) {
        if of.existed && !of.exists {
            self.push(of, GENERIC, "del");
        }
    }
}

/// Returns the class of a command's events.
fn class_of(spec: &CommandSpec) -> u8 {
    match spec.group {
        "string" | "bitmap" | "hyperloglog" => STRING,
        "list" => LIST,
        "set" => SET,
        "hash" => HASH,
        "sorted-set" | "geo" => SORTED_SET,
        "stream" => STREAM,
        _ => GENERIC,
    }
}

fn is(arg: &Bytes, word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

fn has(args: &[Bytes], word: &str) -> bool {
    args.iter().any(|arg| is(arg, word))
}

/// Returns true if `ZADD` has the option `INCR`, which precedes the scores.
fn increments(args: &[Bytes]) -> bool {
    const OPTIONS: [&str; 6] = ["nx", "xx", "gt", "lt", "ch", "incr"];
    let options = args.iter().skip(2).take_while(|arg| OPTIONS.iter().any(|option| is(arg, option)));
    options.into_iter().any(|arg| is(arg, "incr"))
}

/// Returns the event of a command that changes each of its keys in the same way.
fn plain_event(spec: &CommandSpec, args: &[Bytes]) -> (u8, &'static str) {
    // The side from which is popped follows the keys.
    let popped = |keys_at: usize, first: (&str, &'static str), second: &'static str| {
        let count = args.get(keys_at - 1).and_then(|count| resp::parse_integer(count)).unwrap_or(0);
        let side = usize::try_from(count).ok().and_then(|count| args.get(keys_at.saturating_add(count)));
        if side.is_some_and(|side| is(side, first.0)) {
            first.1
        } else {
            second
        }
    };
    let name = match spec.name {
        "setnx" | "getset" | "mset" | "msetnx" | "setex" | "psetex" | "bitop" => "set",
        "incr" | "decr" | "incrby" | "decrby" => "incrby",
        "bitfield" => "setbit",
        "pfmerge" => "pfadd",
        "hmset" | "hsetnx" => "hset",
        "geoadd" => "zadd",
        "georadius" | "georadiusbymember" => "georadiusstore",
        "sort" => "sortstore",
        "lpushx" => "lpush",
        "rpushx" => "rpush",
        "blpop" => "lpop",
        "brpop" => "rpop",
        "lmpop" => popped(2, ("left", "lpop"), "rpop"),
        "blmpop" => popped(3, ("left", "lpop"), "rpop"),
        "bzpopmin" => "zpopmin",
        "bzpopmax" => "zpopmax",
        "zmpop" => popped(2, ("min", "zpopmin"), "zpopmax"),
        "bzmpop" => popped(3, ("min", "zpopmin"), "zpopmax"),
        "zincrby" => "zincr",
        "zadd" if increments(args) => "zincr",
        "pexpire" | "expireat" | "pexpireat" => "expire",
        "unlink" => "del",
        name => name,
    };
    let class = if spec.name == "sort" { LIST } else { class_of(spec) };
    (class, name)
}

/// Records the events of a command that has ended. `spec` is `None` for a step of maintenance.
pub(crate) fn conclude(spec: Option<&'static CommandSpec>, args: &[Bytes], exec: &mut Exec<'_, '_>) {
    let Some(record) = exec.txn.record_mut() else { return };
    let touched = record.end_command();
    let mut told = Told { record };
    for of in touched.iter().filter(|of| of.has_expired) {
        told.push(of, EXPIRED, "expired");
    }
    let changed: Vec<&Touched> = touched.iter().filter(|of| of.is_changed).collect();
    let Some(spec) = spec.filter(|_| !changed.is_empty()) else { return };
    let of_key = |name: Option<&Bytes>| changed.iter().copied().find(|of| Some(&of.key) == name);
    match spec.name {
        // It stores the estimate that it has computed.
        "pfcount" | "flushdb" | "flushall" => {}
        // A key that is replaced is deleted without an event, and comes into being again.
        "restore" => changed.iter().for_each(|of| match of.exists {
            true => {
                told.push(of, NEW, "new");
                told.push(of, GENERIC, "restore");
            }
            false => told.end(of),
        }),
        "rename" | "renamenx" | "move" | "copy" => tell_moved(&mut told, spec, args, &changed),
        "lmove" | "rpoplpush" | "blmove" | "brpoplpush" => {
            let (from, to) = match spec.name {
                "lmove" | "blmove" => (args.get(3), args.get(4)),
                _ => (None, None),
            };
            let is_left = |word: Option<&Bytes>, otherwise| word.map_or(otherwise, |word| is(word, "left"));
            if let Some(to_key) = of_key(args.get(2)) {
                told.begin(to_key);
                told.push(to_key, LIST, if is_left(to, true) { "lpush" } else { "rpush" });
            }
            if let Some(from_key) = of_key(args.get(1)) {
                told.push(from_key, LIST, if is_left(from, false) { "lpop" } else { "rpop" });
                told.end(from_key);
            }
        }
        "smove" => {
            if let Some(from) = of_key(args.get(1)) {
                told.push(from, SET, "srem");
                told.end(from);
            }
            if let Some(to) = of_key(args.get(2)) {
                told.begin(to);
                told.push(to, SET, "sadd");
            }
        }
        _ if spec.group == "stream" => {
            for of in &changed {
                told.begin(of);
                of.told.iter().for_each(|name| told.push(of, STREAM, name));
            }
        }
        // A key that is named twice is set twice.
        "mset" | "msetnx" => {
            let by_key: BTreeMap<&Bytes, &Touched> = changed.iter().map(|of| (&of.key, *of)).collect();
            let mut known = BTreeSet::new();
            for key in args.iter().skip(1).step_by(2) {
                match by_key.get(key) {
                    Some(of) if known.insert(key) => tell_plain(&mut told, spec, args, of),
                    Some(of) => told.push(of, STRING, "set"),
                    None => {}
                }
            }
        }
        _ => changed.iter().for_each(|of| tell_plain(&mut told, spec, args, of)),
    }
}

fn tell_plain(told: &mut Told<'_>, spec: &'static CommandSpec, args: &[Bytes], of: &Touched) {
    let (class, name) = plain_event(spec, args);
    told.begin(of);
    let is_gone = of.existed && !of.exists;
    match spec.name {
        "getdel" => told.end(of),
        "getex" if of.exists => {
            told.push(of, GENERIC, if has(&args[2..], "persist") { "persist" } else { "expire" });
        }
        // The time has passed already, or the result is empty.
        "set" | "setex" | "psetex" | "getex" | "expire" | "pexpire" | "expireat" | "pexpireat" | "bitop"
            if is_gone =>
        {
            told.end(of);
        }
        "sort" | "georadius" | "georadiusbymember" if is_gone => told.end(of),
        name if is_gone && name.ends_with("store") => told.end(of),
        "set" | "setex" | "psetex" => {
            told.push(of, class, name);
            let options = args.get(3..).unwrap_or_default();
            let sets_time = ["ex", "px", "exat", "pxat"].iter().any(|word| has(options, word));
            if spec.name != "set" || sets_time {
                told.push(of, GENERIC, "expire");
            }
        }
        "del" | "unlink" => told.end(of),
        _ => {
            told.push(of, class, name);
            told.end(of);
        }
    }
}

fn tell_moved(told: &mut Told<'_>, spec: &'static CommandSpec, args: &[Bytes], changed: &[&Touched]) {
    // The destination of a move has the same name in another database.
    let to = changed.iter().copied().find(|of| match spec.name {
        "move" => of.exists,
        _ => args.get(2) == Some(&of.key) && of.exists,
    });
    let from = changed.iter().copied().find(|of| args.get(1) == Some(&of.key) && !of.exists);
    let (from_name, to_name) = match spec.name {
        "move" => ("move_from", "move_to"),
        "copy" => ("copy_from", "copy_to"),
        _ => ("rename_from", "rename_to"),
    };
    if let Some(to) = to {
        // Redis deletes a key that is replaced, without an event.
        told.push(to, NEW, "new");
    }
    if let Some(from) = from {
        told.push(from, GENERIC, from_name);
    }
    if let Some(to) = to {
        told.push(to, GENERIC, to_name);
    }
}
