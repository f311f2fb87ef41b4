//! `DUMP` and `RESTORE`: a value as Redis serialises it (`rdb`).
//!
//! A payload has at most [`ELEMENTS_MAX`] elements and the bytes of the largest value. So its
//! elements are in memory at once: `RESTORE` must know that no element is named twice before it
//! writes the first one. Those of a stream are in order, and it is read twice instead
//! (`streams/payload`).

use std::ops::ControlFlow;

use bytes::Bytes;
use rdb::{write, Element, Error, Kind, Source};
use resp::Reply;
use storage::{StorageError, Value};

use crate::counted_tree::Direction;
use crate::elements::{self, visit_elements};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandError, CommandResult, Exec, Key};
use crate::lists;
use crate::number::integer;
use crate::sorted_sets::{self, decode_score, Member};
use crate::streams;

/// Maximum number of elements of a payload, as many as one request may name.
const ELEMENTS_MAX: u64 = 1 << 20;

const TOO_LARGE_TO_DUMP: &str =
    "ERR the value is too large for one payload: at most 1048576 elements and 64 MiB can be dumped";
const TOO_LARGE_TO_RESTORE: &str =
    "ERR the value of the payload is too large: at most 1048576 elements and 64 MiB can be restored";
const BUSY_KEY: &str = "BUSYKEY Target key name already exists.";
const BAD_TTL: &str = "ERR Invalid TTL value, must be >= 0";
const BAD_IDLE_TIME: &str = "ERR Invalid IDLETIME value, must be >= 0";
const BAD_FREQUENCY: &str = "ERR Invalid FREQ value, must be >= 0 and <= 255";
const BAD_FOOTER: &str = "ERR DUMP payload version or checksum are wrong";
const BAD_DATA: &str = "ERR Bad data format";

pub(crate) fn dump(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(meta) = exec.find(&key)? else { return Ok(Reply::Nil) };
    let mut payload = Payload { bytes: Vec::new(), elements: 0, bytes_max: exec.limits.max_value_bytes };
    if let Value::String(bytes) = meta.value {
        payload.begin(Kind::String, 1)?;
        // The bytes are checked when the payload is complete.
        let _ = payload.push(&Element::String(bytes));
    } else if let Some(collection) = Collection::of(&meta) {
        dump_collection(exec, &key, collection, &mut payload)?;
    } else if let Value::Stream(stream) = meta.value {
        match streams::payload::dump(exec, &key, &stream, (ELEMENTS_MAX, payload.bytes_max))? {
            Some(bytes) => payload.bytes = bytes,
            None => return fail(TOO_LARGE_TO_DUMP),
        }
    }
    let Payload { mut bytes, bytes_max, .. } = payload;
    rdb::seal_payload(&mut bytes);
    match bytes.len() as u64 <= bytes_max {
        true => Ok(Reply::bulk(bytes)),
        false => fail(TOO_LARGE_TO_DUMP),
    }
}

/// A payload that is being written.
struct Payload {
    bytes: Vec<u8>,
    elements: u64,
    bytes_max: u64,
}

impl Payload {
    fn begin(&mut self, kind: Kind, elements: u64) -> CommandResult<()> {
        if elements > ELEMENTS_MAX {
            return fail(TOO_LARGE_TO_DUMP);
        }
        self.bytes.push(write::type_number(kind));
        write::header(&mut self.bytes, kind, elements);
        Ok(())
    }

    /// Adds an element, unless there are too many bytes already.
    fn push(&mut self, element: &Element) -> ControlFlow<()> {
        if self.bytes.len() as u64 > self.bytes_max {
            return ControlFlow::Break(());
        }
        write::element(&mut self.bytes, element);
        self.elements += 1;
        ControlFlow::Continue(())
    }
}

fn dump_collection(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    collection: Collection,
    payload: &mut Payload,
) -> CommandResult<()> {
    payload.begin(kind_of(collection.kind), collection.len)?;
    let mut damage = None;
    if collection.kind == CollectionKind::List {
        lists::tree(key, collection)
            .walk(exec, 0, Direction::Forward, &mut |item| payload.push(&Element::Item(item)))?;
    } else {
        visit_elements(exec, key, collection.generation, 0, &mut |_, name, value| {
            let name = Bytes::copy_from_slice(name);
            payload.push(&match collection.kind {
                CollectionKind::Hash => Element::Field(name, Bytes::copy_from_slice(value)),
                CollectionKind::SortedSet => match decode_score(value) {
                    Ok(score) => Element::Scored(name, score),
                    Err(error) => {
                        damage = Some(error);
                        return ControlFlow::Break(());
                    }
                },
                CollectionKind::Set | CollectionKind::List => Element::Member(name),
            })
        })?;
    }
    match damage {
        Some(error) => Err(error),
        // Its bytes are checked when it is complete.
        None if payload.bytes.len() as u64 > payload.bytes_max => Ok(()),
        None if payload.elements == collection.len => Ok(()),
        None => Err(StorageError::Corrupt("a collection's number of elements".into()).into()),
    }
}

fn kind_of(kind: CollectionKind) -> Kind {
    match kind {
        CollectionKind::Hash => Kind::Hash,
        CollectionKind::Set => Kind::Set,
        CollectionKind::SortedSet => Kind::SortedSet,
        CollectionKind::List => Kind::List,
    }
}

/// The options of `RESTORE`.
#[derive(Default)]
struct Options {
    replace: bool,
    is_instant: bool,
}

impl Options {
    /// Idle times and frequencies are checked, and have no effect: neither is tracked.
    fn parse(mut args: &[Bytes]) -> CommandResult<Options> {
        let mut options = Options::default();
        let (mut idle, mut frequency) = (false, false);
        while let [word, rest @ ..] = args {
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            args = match rest {
                _ if is(b"REPLACE") => {
                    options.replace = true;
                    rest
                }
                _ if is(b"ABSTTL") => {
                    options.is_instant = true;
                    rest
                }
                [seconds, rest @ ..] if is(b"IDLETIME") && !frequency => {
                    if integer(seconds)? < 0 {
                        return fail(BAD_IDLE_TIME);
                    }
                    idle = true;
                    rest
                }
                [number, rest @ ..] if is(b"FREQ") && !idle => {
                    if !(0..=255).contains(&integer(number)?) {
                        return fail(BAD_FREQUENCY);
                    }
                    frequency = true;
                    rest
                }
                _ => return fail(error_messages::SYNTAX),
            };
        }
        Ok(options)
    }
}

pub(crate) fn restore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let options = Options::parse(&args[4..])?;
    let key = exec.key(&args[1]);
    let old = exec.find(&key)?;
    if old.is_some() && !options.replace {
        return fail(BUSY_KEY);
    }
    let Ok(ttl) = u64::try_from(integer(&args[2])?) else { return fail(BAD_TTL) };
    let Ok((number, value)) = rdb::open_payload(&args[3]) else { return fail(BAD_FOOTER) };
    let value = Read::of(number, value, exec.limits.max_value_bytes)?;
    let expire_at_ms = match ttl {
        0 => None,
        at if options.is_instant => Some(at),
        span => match exec.now_ms.checked_add(span).filter(|at| i64::try_from(*at).is_ok()) {
            Some(at) => Some(at),
            None => return fail(error_messages::invalid_expire("restore")),
        },
    };
    if expire_at_ms.is_some_and(|at| at <= exec.now_ms) {
        if let Some(old) = old {
            exec.remove(&key, &old)?;
        }
        return Ok(Reply::OK);
    }
    match value {
        Read::Elements(kind, elements) => write_value(exec, &key, (kind, expire_at_ms), elements)?,
        Read::Stream(number, value) => {
            streams::payload::restore(exec, &key, expire_at_ms, (number, &value))?;
        }
    }
    Ok(Reply::OK)
}

/// The contents of a payload, which are right.
enum Read {
    Elements(Kind, Vec<Element>),
    /// The number of the type, and the value.
    Stream(u8, Bytes),
}

impl Read {
    fn of(number: u8, value: Bytes, bytes_max: u64) -> CommandResult<Read> {
        match rdb::kind_of(number).map_err(refusal)? {
            Kind::Stream => {
                streams::payload::check(number, &value, (ELEMENTS_MAX, bytes_max)).map_err(refusal)?;
                Ok(Read::Stream(number, value))
            }
            kind => Ok(Read::Elements(kind, read(number, &value, bytes_max)?)),
        }
    }
}

/// Reads all elements of a value. Two elements with the same name are an error.
fn read(number: u8, value: &[u8], bytes_max: u64) -> CommandResult<Vec<Element>> {
    let mut source = Source::new(value).with_string_bytes_max(bytes_max);
    let (mut elements, mut bytes) = (Vec::new(), 0);
    rdb::read_value(number, &mut source, &mut |element| {
        bytes += element.len() as u64;
        if bytes > bytes_max || elements.len() as u64 == ELEMENTS_MAX {
            return Err(Error::TooLarge(TOO_LARGE_TO_RESTORE));
        }
        elements.push(element);
        Ok(())
    })
    .map_err(refusal)?;
    let mut names: Vec<&Bytes> = elements
        .iter()
        .filter_map(|element| match element {
            Element::Member(name) | Element::Field(name, _) | Element::Scored(name, _) => Some(name),
            Element::String(_) | Element::Item(_) | Element::Stream(_) => None,
        })
        .collect();
    names.sort_unstable();
    match names.windows(2).any(|pair| pair[0] == pair[1]) || source.position() != value.len() as u64 {
        true => fail(BAD_DATA),
        false => Ok(elements),
    }
}

fn refusal(error: Error) -> CommandError {
    CommandError::Error(match error {
        Error::Unsupported(_) => format!("ERR {error}").into(),
        Error::TooLarge(_) | Error::TooManyPending(_) => TOO_LARGE_TO_RESTORE.into(),
        _ => BAD_DATA.into(),
    })
}

/// Writes a value in place of the key's current one.
fn write_value(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    (kind, expire_at_ms): (Kind, Option<u64>),
    elements: Vec<Element>,
) -> CommandResult<()> {
    let parts = |element| match element {
        Element::String(name) | Element::Item(name) | Element::Member(name) => (name, Bytes::new()),
        Element::Field(name, value) => (name, value),
        Element::Scored(name, score) => (name, Bytes::copy_from_slice(&score.to_be_bytes())),
        Element::Stream(_) => unreachable!("the parts of a stream are not kept"),
    };
    match kind {
        Kind::String => {
            let old = exec.find(key)?;
            let value = elements.into_iter().next().map(|element| parts(element).0).unwrap_or_default();
            exec.put_string(key, old.as_ref(), &value, expire_at_ms)
        }
        Kind::List => {
            let items = elements.into_iter().map(|element| parts(element).0).collect();
            lists::replace(exec, key, expire_at_ms, items)
        }
        Kind::Set | Kind::Hash => {
            let kind = if kind == Kind::Set { CollectionKind::Set } else { CollectionKind::Hash };
            elements::replace(exec, key, (kind, expire_at_ms), elements.into_iter().map(parts).collect())
        }
        Kind::SortedSet => {
            let mut members: Vec<Member> = elements
                .into_iter()
                .filter_map(|element| match element {
                    Element::Scored(name, score) => Some(Member { score: score + 0.0, name }),
                    _ => None,
                })
                .collect();
            members.sort_by(Member::order);
            sorted_sets::replace(exec, key, expire_at_ms, &members)
        }
        Kind::Stream => unreachable!("a stream is restored from its payload"),
    }
}
