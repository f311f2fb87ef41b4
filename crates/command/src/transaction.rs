//! Transactions in the log: the commands that a session writes there for `WATCH`, `UNWATCH` and
//! `EXEC`.
//!
//! A transaction is one command of an entry and holds the queued commands. So it is executed as
//! one, at one time, with the entries' usual ways to fetch missing rows, to reach another store,
//! and to be refused when its slot has moved. An error of one of its commands does not end it, as
//! in Redis.
//!
//! ```text
//! watch      name | key ...                           replies with the number of each watch
//! unwatch    name | (key | stamp) ...
//! exec       name | number of watches u32 | (key | stamp) ... | (head | arguments ...) ...
//! stamp      database u16 | number of the watch u64
//! head       database u16 | number of arguments u32
//! ```
//!
//! Each `|` separates two arguments, except within a stamp and a head. Integers are big-endian. No
//! client can send these names: they begin with a zero byte, and clients' commands are looked up in
//! another table.

use bytes::{BufMut, Bytes, BytesMut};
use resp::Reply;
use storage::watches::WatchedKey;
use storage::StorageError;
use types::{mix, THIRD_VERSION};

use crate::blocking;
use crate::copying;
use crate::exec::{call, CommandError, CommandResult, Exec};
use crate::scripting::{self, lookup_script};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};
use crate::table::{check_arity, fixed_keys_of, leaf, lookup, states_wrong_number};

/// Maximum bytes of a transaction's replies. Beyond it, commands that only read get an error. Every
/// replica executes the transaction and holds the replies.
const REPLIES_BYTES_MAX: usize = 64 << 20;

const EXEC_NAME: &[u8] = b"\0exec";
const WATCH_NAME: &[u8] = b"\0watch";
const UNWATCH_NAME: &[u8] = b"\0unwatch";

static EXEC: CommandSpec = CommandSpec::new("exec", -2, flags::WRITE, Handler::Keyspace(exec))
    .holds_commands()
    .since_version(THIRD_VERSION);
static WATCH: CommandSpec = CommandSpec::new("watch", -2, flags::WRITE, Handler::Keyspace(watch))
    .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO"] }])
    .since_version(THIRD_VERSION);
static UNWATCH: CommandSpec = CommandSpec::new("unwatch", -3, flags::WRITE, Handler::Keyspace(unwatch))
    .keys(&[KeySpec { first: 1, last: -1, step: 2, flags: &["RO"] }])
    .since_version(THIRD_VERSION);

/// Finds a command of a log entry: one of clients, or one that no client can send.
pub fn lookup_in_log(name: &[u8]) -> Option<&'static CommandSpec> {
    match name {
        EXEC_NAME => Some(&EXEC),
        WATCH_NAME => Some(&WATCH),
        UNWATCH_NAME => Some(&UNWATCH),
        blocking::MOVE_NAME => Some(&blocking::MOVE),
        blocking::READ_AGAIN_NAME => Some(&blocking::READ_AGAIN),
        blocking::LAST_IDS_NAME => Some(&blocking::LAST_IDS),
        copying::BEGIN_NAME => Some(&copying::BEGIN),
        copying::BEGIN_RESULT_NAME => Some(&copying::BEGIN_RESULT),
        copying::PART_NAME => Some(&copying::PART),
        copying::END_NAME => Some(&copying::END),
        copying::DROP_NAME => Some(&copying::DROP),
        _ => lookup_script(name).or_else(|| lookup(name)),
    }
}

/// A key that a client watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    pub db: u16,
    pub key: Bytes,
    /// The number of the watch, as replied by the log's `watch`.
    pub number: u64,
}

/// A command of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub db: u16,
    pub args: Vec<Bytes>,
}

fn stamp(watched: &Watched) -> Bytes {
    let mut out = BytesMut::with_capacity(10);
    out.put_u16(watched.db);
    out.put_u64(watched.number);
    out.freeze()
}

fn push_watched(args: &mut Vec<Bytes>, watched: &[Watched]) {
    args.extend(watched.iter().flat_map(|watched| [watched.key.clone(), stamp(watched)]));
}

/// Returns the arguments of the log's `watch`.
pub fn watch_args(keys: &[Bytes]) -> Vec<Bytes> {
    std::iter::once(Bytes::from_static(WATCH_NAME)).chain(keys.iter().cloned()).collect()
}

/// Returns the arguments of the log's `unwatch`, which releases these watches.
pub fn unwatch_args(watched: &[Watched]) -> Vec<Bytes> {
    let mut args = vec![Bytes::from_static(UNWATCH_NAME)];
    push_watched(&mut args, watched);
    args
}

/// Returns the arguments of the log's `exec`.
pub fn exec_args(watched: &[Watched], commands: &[Queued]) -> Vec<Bytes> {
    let count = u32::try_from(watched.len()).expect("watches are bounded");
    let mut args = vec![Bytes::from_static(EXEC_NAME), Bytes::copy_from_slice(&count.to_be_bytes())];
    push_watched(&mut args, watched);
    for command in commands {
        let mut head = BytesMut::with_capacity(6);
        head.put_u16(command.db);
        head.put_u32(u32::try_from(command.args.len()).expect("fewer than 2^32 arguments"));
        args.push(head.freeze());
        args.extend(command.args.iter().cloned());
    }
    args
}

/// Returns the numbers in a reply of the log's `watch` for `keys` keys, or `None` for other
/// replies.
pub fn watch_numbers(reply: &Reply, keys: usize) -> Option<Vec<u64>> {
    let Reply::Array(numbers) = reply else { return None };
    let number = |reply: &Reply| if let Reply::Int(number) = reply { Some(*number as u64) } else { None };
    let numbers: Vec<u64> = numbers.iter().map(number).collect::<Option<_>>()?;
    (numbers.len() == keys).then_some(numbers)
}

/// A watched key among arguments.
struct WatchedArg<'a> {
    db: u16,
    key: &'a Bytes,
    number: u64,
}

/// A queued command among arguments.
struct QueuedArgs<'a> {
    db: u16,
    args: &'a [Bytes],
}

fn decode_watched(args: &[Bytes]) -> Option<Vec<WatchedArg<'_>>> {
    let watched = |pair: &'_ [Bytes]| -> Option<(u16, u64)> {
        let (db, number) = pair.get(1)?.split_first_chunk::<2>()?;
        Some((u16::from_be_bytes(*db), u64::from_be_bytes(number.try_into().ok()?)))
    };
    args.chunks(2)
        .map(|pair| watched(pair).map(|(db, number)| WatchedArg { db, key: &pair[0], number }))
        .collect()
}

/// Decodes the arguments of the log's `exec`. Returns `None` if they are damaged.
fn decode(args: &[Bytes]) -> Option<(Vec<WatchedArg<'_>>, Vec<QueuedArgs<'_>>)> {
    let count = u32::from_be_bytes(args.get(1)?[..].try_into().ok()?);
    let of_watches = usize::try_from(count).ok()?.checked_mul(2)?;
    let rest = &args[2..];
    if of_watches > rest.len() {
        return None;
    }
    let (watched, mut rest) = rest.split_at(of_watches);
    let mut queued = Vec::new();
    while let [head, more @ ..] = rest {
        let (db, count) = head.split_first_chunk::<2>()?;
        let count = usize::try_from(u32::from_be_bytes(count.try_into().ok()?)).ok()?;
        if count == 0 || count > more.len() {
            return None;
        }
        let (args, after) = more.split_at(count);
        queued.push(QueuedArgs { db: u16::from_be_bytes(*db), args });
        rest = after;
    }
    Some((decode_watched(watched)?, queued))
}

fn queued_spec(args: &[Bytes]) -> Option<&'static CommandSpec> {
    let spec = lookup_script(&args[0]).or_else(|| lookup(&args[0]));
    spec.filter(|spec| check_arity(spec, args).is_ok())
}

/// Visits the queued commands in the arguments of the log's `exec`, with their databases.
pub(crate) fn visit(args: &[Bytes], visit: &mut dyn FnMut(&'static CommandSpec, u16, &[Bytes])) {
    for command in decode(args).into_iter().flat_map(|(_, queued)| queued) {
        if let Some(spec) = queued_spec(command.args) {
            visit(spec, command.db, command.args);
        }
    }
}

/// Returns the commands of a log entry's command as clients sent them: the queued ones of a
/// transaction, a script by its first form, and otherwise the command itself.
pub fn sent_commands(spec: &'static CommandSpec, args: &[Bytes]) -> Vec<(&'static CommandSpec, Vec<Bytes>)> {
    if std::ptr::eq(spec, &EXEC) {
        let mut sent = Vec::new();
        visit(args, &mut |spec, _, args| sent.extend(sent_commands(leaf(spec, args), args)));
        return sent;
    }
    if let Some(sent) = scripting::sent_args(spec, args) {
        return vec![sent];
    }
    let mut args = args.to_vec();
    // Names of commands that only the log has begin with a zero.
    if let Some(name) = args.first_mut().filter(|name| name.first() == Some(&0)) {
        *name = Bytes::from_static(spec.name.as_bytes());
    }
    vec![(spec, args)]
}

/// Visits the watched keys in the arguments of the log's `exec`, with their databases.
pub(crate) fn visit_watched(args: &[Bytes], visit: &mut dyn FnMut(u16, &Bytes)) {
    for watched in decode(args).into_iter().flat_map(|(watched, _)| watched) {
        visit(watched.db, watched.key);
    }
}

/// Returns true if a queued command may make the data grow.
pub fn grows(args: &[Bytes]) -> bool {
    let mut grows = false;
    visit(args, &mut |spec, _, args| {
        grows |= leaf(spec, args).denies_oom() || scripting::grows(spec, args);
    });
    grows
}

/// Returns the keys that a transaction watches and uses, with the flags of their specifications.
pub(crate) fn keys(args: &[Bytes]) -> Vec<(&Bytes, &'static [&'static str])> {
    let Some((watched, queued)) = decode(args) else { return Vec::new() };
    let mut keys: Vec<(&Bytes, &'static [&'static str])> =
        watched.iter().map(|watched| (watched.key, &["RO"][..])).collect();
    let commands = || {
        let specs = queued.iter().map(|command| (queued_spec(command.args), command.args));
        specs.filter_map(|(spec, args)| spec.map(|spec| (leaf(spec, args), args)))
    };
    for (spec, args) in commands().filter(|(spec, args)| !states_wrong_number(spec, args)) {
        keys.extend(fixed_keys_of(spec, args));
    }
    // Commands that state a wrong number of keys use none, but one of theirs decides where a
    // transaction without other keys is executed.
    if keys.is_empty() {
        keys.extend(commands().find_map(|(spec, args)| fixed_keys_of(spec, args).next()));
    }
    keys
}

fn corrupt() -> CommandError {
    StorageError::Corrupt("a transaction in a log entry cannot be read".into()).into()
}

/// Watches keys. An expired key is deleted first, so that only its next creation is a change.
fn watch(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let mut numbers = Vec::with_capacity(args.len() - 1);
    for key in &args[1..] {
        let key = exec.key(key);
        exec.peek(&key)?;
        let (number, now_ms) = (exec.seed, exec.now_ms);
        let number = exec.txn.state_mut().watches.add(WatchedKey::from(&*key), number, now_ms);
        numbers.push(Reply::Int(number as i64));
    }
    Ok(Reply::Array(numbers))
}

fn release(watched: &[WatchedArg<'_>], exec: &mut Exec<'_, '_>) {
    for WatchedArg { db, key, number } in watched {
        let key = storage::KeyRef::new(*db, key);
        exec.txn.state_mut().watches.release(WatchedKey::from(&key), *number);
    }
}

fn unwatch(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let watched = decode_watched(&args[1..]).ok_or_else(corrupt)?;
    release(&watched, exec);
    Ok(Reply::OK)
}

/// Executes the queued commands if no watched key has changed. Replies nil otherwise.
fn exec(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (watched, queued) = decode(args).ok_or_else(corrupt)?;
    let spec = |command: &QueuedArgs<'_>| {
        let spec = leaf(queued_spec(command.args)?, command.args);
        matches!(spec.handler, Handler::Keyspace(_) | Handler::Spanning(..)).then_some(spec)
    };
    let specs: Vec<_> = queued.iter().map(spec).collect::<Option<_>>().ok_or_else(corrupt)?;
    // A watched key that has expired is deleted here, which ends its watch.
    for &WatchedArg { db, key, .. } in &watched {
        exec.db = db;
        let key = exec.key(key);
        exec.peek(&key)?;
    }
    let is_unchanged = watched.iter().all(|WatchedArg { db, key, number }| {
        let key = storage::KeyRef::new(*db, key);
        exec.txn.state().watches.has(WatchedKey::from(&key), *number)
    });
    release(&watched, exec);
    if !is_unchanged {
        return Ok(Reply::NilArray);
    }
    let seed = exec.seed;
    let (mut replies, mut bytes) = (Vec::with_capacity(queued.len()), 0_usize);
    for (nth, (command, spec)) in queued.iter().zip(specs).enumerate() {
        let (Handler::Keyspace(handler) | Handler::Spanning(_, handler)) = spec.handler else {
            return Err(corrupt());
        };
        exec.db = command.db;
        exec.seed = mix(seed.wrapping_add(nth as u64 + 1));
        let reply = match bytes > REPLIES_BYTES_MAX && spec.is_readonly() {
            true => Reply::error(format!(
                "ERR the transaction's replies have more than {REPLIES_BYTES_MAX} bytes already"
            )),
            false => match call((spec, handler), command.args, exec) {
                Ok(reply) => held_reply(reply, spec, exec),
                Err(CommandError::Error(text)) => Reply::Error(text),
                Err(ended) => return Err(ended),
            },
        };
        bytes = bytes.saturating_add(reply.bytes());
        replies.push(reply);
    }
    Ok(Reply::Array(replies))
}

/// Counts a reply that the transaction holds. That of a read is refused if it is too much. That of
/// a write stays, and the commands behind it are refused.
fn held_reply(reply: Reply, spec: &CommandSpec, exec: &Exec<'_, '_>) -> Reply {
    let before = exec.txn.held();
    match exec.hold(1, reply.bytes()) {
        Err(CommandError::Error(text)) if spec.is_readonly() => {
            exec.txn.hold_only(before);
            Reply::Error(text)
        }
        _ => reply,
    }
}

#[cfg(test)]
mod tests;
