//! Commands that wait for elements: `BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX
//! BZMPOP`, and for entries of streams: `XREAD XREADGROUP`.
//!
//! The log knows only the attempt, which never waits: it takes elements if there are any and
//! replies nil otherwise. That is also what a transaction executes. A store lets the client wait
//! and proposes the next attempt when a key has elements again, then only for that key.
//!
//! The attempts of `XREAD` are reads. A client that waits for entries behind the last one first
//! asks for the last one's ID, so that later attempts read from there.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use resp::Reply;
use types::THIRD_VERSION;

use crate::counted_tree::Direction;
use crate::error_messages;
use crate::exec::{fail, CommandError, CommandResult, Exec};
use crate::lists::ends;
use crate::ranked::Popping;
use crate::sorted_sets::pop;
use crate::spec::{flags, CommandSpec, Handler, KeySpec};
use crate::streams::read::{self, has_block, Request};

const LARGEST_TIMEOUT_MS: f64 = i64::MAX as f64;

/// The name of an attempt to move an element, for a client that waits. No client can send it.
pub(crate) const MOVE_NAME: &[u8] = b"\0move";

/// An attempt to move an element. Unlike `BLMOVE`, it does not fail if the source is no list.
pub(crate) static MOVE: CommandSpec =
    CommandSpec::new("blmove", 5, flags::WRITE | flags::DENYOOM, Handler::Keyspace(move_if_list))
        .keys(&[KeySpec { first: 1, last: 1, step: 1, flags: &["RW", "insert"] }])
        .walks_tree()
        .since_version(THIRD_VERSION);

/// The name of an attempt of `XREADGROUP`, for a client that waits. No client can send it.
pub(crate) const READ_AGAIN_NAME: &[u8] = b"\0xreadgroup";
/// The name of the question for the last IDs of streams. No client can send it.
pub(crate) const LAST_IDS_NAME: &[u8] = b"\0xlastids";

/// An attempt to read as a consumer. Its errors differ from those of `XREADGROUP`.
pub(crate) static READ_AGAIN: CommandSpec =
    CommandSpec::new("xreadgroup", -7, flags::WRITE, Handler::Keyspace(read::xreadgroup_again))
        .keys(&[KeySpec { first: 4, last: KeySpec::STREAMS, step: 1, flags: &["RO", "access"] }])
        .group("stream")
        .since_version(THIRD_VERSION);

pub(crate) static LAST_IDS: CommandSpec =
    CommandSpec::new("xread", -2, flags::READONLY, Handler::Keyspace(read::last_ids))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO"] }])
        .since_version(THIRD_VERSION);

/// Maximum number of entries that a client gets after it has waited, unless it gives a count.
const COUNT_DEFAULT: u64 = 1000;

/// The type of values that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    List,
    SortedSet,
    Stream,
}

/// The form of a command's arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// name, keys, timeout
    Keys,
    /// name, source, destination, perhaps two ends, timeout
    Move,
    /// name, timeout, number of keys, keys, end, perhaps a count
    Counted,
    /// name, options, keys, IDs
    Streams,
}

fn form_of(name: &str) -> Option<(Form, Awaited)> {
    Some(match name {
        "blpop" | "brpop" => (Form::Keys, Awaited::List),
        "bzpopmin" | "bzpopmax" => (Form::Keys, Awaited::SortedSet),
        "blmove" | "brpoplpush" => (Form::Move, Awaited::List),
        "blmpop" => (Form::Counted, Awaited::List),
        "bzmpop" => (Form::Counted, Awaited::SortedSet),
        "xread" | "xreadgroup" => (Form::Streams, Awaited::Stream),
        _ => return None,
    })
}

/// Parses the arguments of a command that gives the number of its keys, without its timeout.
fn popping(awaited: Awaited, args: &[Bytes]) -> CommandResult<Popping<'_>> {
    match awaited {
        Awaited::List => ends::popping(args),
        Awaited::SortedSet => pop::popping(args),
        Awaited::Stream => fail(error_messages::SYNTAX),
    }
}

/// The wait of a blocking command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The keys whose elements the command takes, in its order, without repetitions.
    pub keys: Vec<Bytes>,
    pub awaited: Awaited,
    /// The group as which a client reads streams.
    pub group: Option<Bytes>,
    /// `None` stands for no limit.
    pub timeout: Option<Duration>,
}

/// Returns the arguments of `XREAD` or `XREADGROUP`.
fn request<'a>(spec: &CommandSpec, args: &'a [Bytes]) -> Option<Request<'a>> {
    Request::parse(args, spec.name == "xreadgroup").ok()
}

/// Returns false if a command of those that may wait does not, with these arguments.
pub fn may_wait(spec: &CommandSpec, args: &[Bytes]) -> bool {
    spec.blocks() && !matches!(form_of(spec.name), Some((Form::Streams, _)) if !has_block(args))
}

fn wait_for_entries(spec: &CommandSpec, args: &[Bytes]) -> Option<Wait> {
    let request = request(spec, args)?;
    let ms = request.block_ms?;
    let is_group = request.reader.is_some();
    request.ids.iter().all(|id| read::is_position(id, is_group)).then(|| Wait {
        keys: once(request.keys),
        awaited: Awaited::Stream,
        group: request.reader.map(|reader| reader.group.clone()),
        timeout: (ms > 0).then(|| Duration::from_millis(ms)),
    })
}

fn once(keys: &[Bytes]) -> Vec<Bytes> {
    let mut seen = BTreeSet::new();
    keys.iter().filter(|key| seen.insert(*key)).cloned().collect()
}

/// Returns the question for the last IDs of the streams that a command waits for behind the last
/// entry, if there are such streams.
pub fn last_ids_question(spec: &CommandSpec, args: &[Bytes]) -> Option<Vec<Bytes>> {
    let request = request(spec, args)?;
    let at_last = request.keys.iter().zip(request.ids).filter(|(_, id)| read::is_last(id));
    let keys: Vec<Bytes> = at_last.map(|(key, _)| key.clone()).collect();
    (!keys.is_empty()).then(|| [vec![Bytes::from_static(LAST_IDS_NAME)], keys].concat())
}

/// Returns a command with the last IDs in place of `$`, or `None` if the reply is no answer to the
/// question.
pub fn with_last_ids(spec: &CommandSpec, args: &[Bytes], reply: &Reply) -> Option<Vec<Bytes>> {
    let Reply::Array(last_ids) = reply else { return None };
    let mut last_ids = last_ids.iter();
    let from = args.len() - request(spec, args)?.ids.len();
    let mut with = args.to_vec();
    for id in with[from..].iter_mut().filter(|id| read::is_last(id)) {
        let Some(Reply::Bulk(last_id)) = last_ids.next() else { return None };
        *id = last_id.clone();
    }
    Some(with)
}

/// Returns the arguments of an attempt to read these keys.
fn read_attempt(spec: &CommandSpec, args: &[Bytes], keys: &[Bytes]) -> Option<Vec<Bytes>> {
    let request = request(spec, args)?;
    let word = |word: &'static str| Bytes::from_static(word.as_bytes());
    let mut attempt = match request.reader {
        None => vec![args[0].clone()],
        Some(reader) => {
            let name = Bytes::from_static(READ_AGAIN_NAME);
            vec![name, word("GROUP"), reader.group.clone(), reader.consumer.clone()]
        }
    };
    let count = if request.count == 0 { COUNT_DEFAULT } else { request.count };
    attempt.extend([word("COUNT"), count.to_string().into()]);
    if request.reader.is_some_and(|reader| !reader.acknowledges) {
        attempt.push(word("NOACK"));
    }
    attempt.push(word("STREAMS"));
    attempt.extend(keys.iter().cloned());
    for key in keys {
        let at = request.keys.iter().position(|of| of == key)?;
        attempt.push(request.ids[at].clone());
    }
    Some(attempt)
}

/// Returns how a command waits, or `None` if it does not wait or its arguments are wrong. In the
/// latter case the attempt replies with the error.
pub fn wait_of(spec: &CommandSpec, args: &[Bytes]) -> Option<Wait> {
    let (form, awaited) = form_of(spec.name)?;
    let (keys, timeout) = match form {
        Form::Streams => return wait_for_entries(spec, args),
        Form::Keys => (args.get(1..args.len() - 1)?, args.last()?),
        Form::Move => {
            if let [_, _, _, from, to, _] = args {
                ends::end(from).ok()?;
                ends::end(to).ok()?;
            }
            (args.get(1..2)?, args.last()?)
        }
        Form::Counted => (popping(awaited, &args[1..]).ok()?.0, args.get(1)?),
    };
    let ms = timeout_ms(timeout).ok()?;
    let timeout = (ms > 0).then(|| Duration::from_millis(ms));
    Some(Wait { keys: once(keys), awaited, group: None, timeout })
}

/// Returns true for the commands that move an element to another list. An attempt of these fails
/// only if that other key is no list.
pub fn moves(spec: &CommandSpec) -> bool {
    matches!(form_of(spec.name), Some((Form::Move, _)))
}

/// Returns the arguments of an attempt that takes only from these keys, for a client that waits.
pub fn attempt(spec: &CommandSpec, args: &[Bytes], keys: &[Bytes]) -> Vec<Bytes> {
    let owned = |parts: &[&[Bytes]]| parts.concat();
    match form_of(spec.name) {
        Some((Form::Keys, _)) => owned(&[&args[..1], keys, &args[args.len() - 1..]]),
        Some((Form::Counted, awaited)) => {
            let count = popping(awaited, &args[1..]).map_or(0, |(keys, ..)| keys.len());
            let number = [Bytes::from(keys.len().to_string())];
            owned(&[&args[..2], &number, keys, &args[3 + count..]])
        }
        Some((Form::Move, _)) => {
            let (from, to) = match args {
                [_, _, _, from, to, _] => (from.clone(), to.clone()),
                _ => (Bytes::from_static(b"RIGHT"), Bytes::from_static(b"LEFT")),
            };
            vec![Bytes::from_static(MOVE_NAME), args[1].clone(), args[2].clone(), from, to]
        }
        Some((Form::Streams, _)) => read_attempt(spec, args, keys).unwrap_or_else(|| args.to_vec()),
        None => args.to_vec(),
    }
}

/// Parses a timeout in seconds and returns it in milliseconds. 0 stands for no limit.
fn timeout_ms(text: &[u8]) -> CommandResult<u64> {
    let is_plain = text.first().is_some_and(|byte| !byte.is_ascii_whitespace());
    let seconds =
        std::str::from_utf8(text).ok().filter(|_| is_plain).and_then(|text| text.parse::<f64>().ok());
    let Some(seconds) = seconds.filter(|seconds| !seconds.is_nan()) else {
        return fail("ERR timeout is not a float or out of range");
    };
    let ms = (seconds * 1000.0).ceil();
    // Redis's integer overflows, too.
    if !(0.0..LARGEST_TIMEOUT_MS).contains(&ms) {
        return fail("ERR timeout is negative");
    }
    Ok(ms as u64)
}

pub(crate) fn blpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop_list(args, exec, Direction::Forward)
}

pub(crate) fn brpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop_list(args, exec, Direction::Backward)
}

fn pop_list(args: &[Bytes], exec: &mut Exec<'_, '_>, end: Direction) -> CommandResult {
    let [keys @ .., timeout] = &args[1..] else { return fail(error_messages::SYNTAX) };
    timeout_ms(timeout)?;
    for name in keys {
        let key = exec.key(name);
        let Some(list) = exec.find_list(&key)? else { continue };
        let mut reply = vec![Reply::Bulk(name.clone())];
        reply.extend(ends::take(exec, &key, list, 1, end)?.into_iter().map(Reply::Bulk));
        return Ok(Reply::Array(reply));
    }
    Ok(Reply::NilArray)
}

pub(crate) fn blmove(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (from, to) = (ends::end(&args[3])?, ends::end(&args[4])?);
    timeout_ms(&args[5])?;
    ends::move_one(args, exec, from, to)
}

fn move_if_list(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let source = exec.key(&args[1]);
    match exec.find_list(&source) {
        Err(CommandError::Error(_)) | Ok(None) => Ok(Reply::Nil),
        Err(ended) => Err(ended),
        Ok(Some(_)) => ends::move_one(args, exec, ends::end(&args[3])?, ends::end(&args[4])?),
    }
}

pub(crate) fn brpoplpush(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    timeout_ms(&args[3])?;
    ends::rpoplpush(args, exec)
}

pub(crate) fn blmpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let popping = ends::popping(&args[1..])?;
    timeout_ms(&args[1])?;
    ends::pop_first(popping, exec)
}

pub(crate) fn bzpopmin(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop_member(args, exec, Direction::Forward)
}

pub(crate) fn bzpopmax(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    pop_member(args, exec, Direction::Backward)
}

fn pop_member(args: &[Bytes], exec: &mut Exec<'_, '_>, end: Direction) -> CommandResult {
    let [keys @ .., timeout] = &args[1..] else { return fail(error_messages::SYNTAX) };
    timeout_ms(timeout)?;
    for name in keys {
        let key = exec.key(name);
        let Some(set) = exec.find_sorted_set(&key)? else { continue };
        let Some(member) = pop::take(exec, &key, set, 1, end)?.pop() else { continue };
        let reply = vec![Reply::Bulk(name.clone()), Reply::Bulk(member.name), Reply::Double(member.score)];
        return Ok(Reply::Array(reply));
    }
    Ok(Reply::NilArray)
}

pub(crate) fn bzmpop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let popping = pop::popping(&args[1..])?;
    timeout_ms(&args[1])?;
    pop::pop_first(popping, exec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::lookup;

    fn args(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    fn wait(line: &str) -> Option<(Vec<String>, Option<u64>)> {
        let args = args(line);
        let wait = wait_of(lookup(&args[0]).unwrap(), &args)?;
        let keys = wait.keys.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect();
        Some((keys, wait.timeout.map(|timeout| timeout.as_millis() as u64)))
    }

    #[test]
    fn a_wait_has_the_keys_and_the_timeout_of_its_command() {
        let of = |keys: &[&str], ms| Some((keys.iter().map(|key| (*key).to_owned()).collect(), ms));
        assert_eq!(wait("BLPOP a b a 0"), of(&["a", "b"], None));
        assert_eq!(wait("bzpopmin a 0.0011"), of(&["a"], Some(2)));
        assert_eq!(wait("BLMOVE a b left right 1"), of(&["a"], Some(1000)));
        assert_eq!(wait("BRPOPLPUSH a b 1e1"), of(&["a"], Some(10_000)));
        assert_eq!(wait("BLMPOP 2 2 a b LEFT COUNT 3"), of(&["a", "b"], Some(2000)));
        assert_eq!(wait("BZMPOP 2 1 a MIN"), of(&["a"], Some(2000)));
        for wrong in [
            "BLPOP a x",
            "BLPOP a -1",
            "BLPOP a inf",
            "BLPOP a nan",
            "BLMOVE a b up left 0",
            "BLMPOP 0 1 a MIN",
            "BZMPOP 0 0 a MIN",
            "LPOP a",
        ] {
            assert_eq!(wait(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wait_for_entries_has_the_keys_behind_the_options() {
        let of = |keys: &[&str], ms| Some((keys.iter().map(|key| (*key).to_owned()).collect(), ms));
        assert_eq!(wait("XREAD BLOCK 5 STREAMS a b a 0 $ 1-1"), of(&["a", "b"], Some(5)));
        assert_eq!(wait("xreadgroup group g c block 0 noack streams a >"), of(&["a"], None));
        for none in [
            "XREAD STREAMS a 0",
            "XREAD BLOCK x STREAMS a 0",
            "XREAD BLOCK 0 STREAMS a b 0",
            "XREAD BLOCK 0 STREAMS a >",
            "XREAD BLOCK 0 STREAMS a 1-x",
            "XREADGROUP BLOCK 0 COUNT 1 STREAMS a >",
            "XREADGROUP GROUP g c BLOCK 0 STREAMS a $",
        ] {
            assert_eq!(wait(none), None, "{none}");
        }
        let waits = |line: &str| may_wait(lookup(&args(line)[0]).unwrap(), &args(line));
        assert!(waits("XREAD COUNT 1 BLOCK 0 STREAMS a 0") && waits("BLPOP a 0"));
        assert!(
            !waits("XREAD COUNT 1 STREAMS block 0") && !waits("XREADGROUP GROUP block block STREAMS a >")
        );
    }

    #[test]
    fn an_attempt_reads_one_key_from_where_the_client_began_to_wait() {
        let given = args("xread COUNT 7 BLOCK 0 STREAMS a b c $ 5-1 $");
        let spec = lookup(&given[0]).unwrap();
        let question = last_ids_question(spec, &given).unwrap();
        assert_eq!(question, args("\0xlastids a c"));
        let reply = Reply::Array(vec![Reply::bulk("1-1"), Reply::bulk("3-3")]);
        let given = with_last_ids(spec, &given, &reply).unwrap();
        assert_eq!(given, args("xread COUNT 7 BLOCK 0 STREAMS a b c 1-1 5-1 3-3"));
        assert_eq!(last_ids_question(spec, &given), None);
        assert_eq!(with_last_ids(spec, &given, &Reply::Nil), None);
        assert_eq!(attempt(spec, &given, &args("c")), args("xread COUNT 7 STREAMS c 3-3"));
        let given = args("XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS a b > >");
        let spec = lookup(&given[0]).unwrap();
        let again = attempt(spec, &given, &args("b"));
        assert_eq!(again, args("\0xreadgroup GROUP g c COUNT 1000 NOACK STREAMS b >"));
        let spec = crate::transaction::lookup_in_log(&again[0]).unwrap();
        assert_eq!(crate::keys_of(spec, &again).map(|(key, _)| &key[..]).collect::<Vec<_>>(), [b"b"]);
    }

    #[test]
    fn an_attempt_may_take_from_some_of_the_keys_only() {
        let attempt_of = |line: &str, keys: &str| {
            let given = args(line);
            attempt(lookup(&given[0]).unwrap(), &given, &args(keys))
        };
        assert_eq!(attempt_of("BLPOP a b c 5", "b"), args("BLPOP b 5"));
        assert_eq!(attempt_of("BLMPOP 5 3 a b c LEFT COUNT 2", "c a"), args("BLMPOP 5 2 c a LEFT COUNT 2"));
        assert_eq!(attempt_of("BZMPOP 5 2 a b MAX", "b"), args("BZMPOP 5 1 b MAX"));
        assert_eq!(attempt_of("BLMOVE a b LEFT LEFT 5", "a"), args("\0move a b LEFT LEFT"));
        assert_eq!(attempt_of("BRPOPLPUSH a b 5", "a"), args("\0move a b RIGHT LEFT"));
        let moving = args("\0move a b RIGHT LEFT");
        let spec = crate::transaction::lookup_in_log(&moving[0]).unwrap();
        assert_eq!(crate::keys_of(spec, &moving).map(|(key, _)| &key[..]).collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn wrong_timeouts_are_worded_as_redis_words_them() {
        let refusal = |text: &str| match timeout_ms(text.as_bytes()) {
            Err(CommandError::Error(text)) => text.into_owned(),
            other => panic!("{other:?}"),
        };
        for text in ["x", "", " 1", "1 ", "nan", "0x"] {
            assert_eq!(refusal(text), "ERR timeout is not a float or out of range", "{text}");
        }
        assert_eq!(refusal("-0.1"), "ERR timeout is negative");
        assert_eq!(refusal("1e300"), "ERR timeout is negative");
        assert_eq!(refusal("inf"), "ERR timeout is negative");
        assert_eq!(timeout_ms(b"0").unwrap(), 0);
    }
}
