//! `XREAD` and `XREADGROUP`. `blocking` has the clients that wait.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::{Stream, StreamId};

use super::group::{self, Changing, Group, GroupRow, Pending, UNKNOWN};
use super::pending::visit_of_consumer;
use super::{entries, entry_reply, id, id_reply};
use crate::counted_tree::Direction;
use crate::error_messages;
use crate::exec::{fail, CommandError, CommandResult, Exec, Key};
use crate::number::integer;

const UNBALANCED: &str =
    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.";
const ONLY_GROUP: &str = "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.";
const ONLY_NOACK: &str = "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.";
const LAST_IN_GROUP: &str = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                             history of this consumer by specifying a proper ID, or use the > ID to get new \
                             messages. The $ ID would just return an empty result set.";
const NEW_WITHOUT_GROUP: &str =
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.";
/// The error for a client that waits, when the key is deleted or gets another type.
const KEY_IS_GONE: &str = "UNBLOCKED the stream key no longer exists";
/// The error for a client that waits, when its group is deleted.
const GROUP_IS_GONE: &str = "NOGROUP the consumer group this client was blocked on no longer exists";

/// A group, and the consumer that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader<'a> {
    pub group: &'a Bytes,
    pub consumer: &'a Bytes,
    pub acknowledges: bool,
}

/// The arguments of `XREAD` or `XREADGROUP`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// The time to wait in milliseconds. 0 stands for no limit.
    pub block_ms: Option<u64>,
    /// Maximum number of entries of each stream. 0 stands for no limit.
    pub count: u64,
    pub reader: Option<Reader<'a>>,
    pub keys: &'a [Bytes],
    pub ids: &'a [Bytes],
}

fn timeout_ms(text: &[u8]) -> CommandResult<u64> {
    match resp::parse_integer(text).map(u64::try_from) {
        None => fail("ERR timeout is not an integer or out of range"),
        Some(Err(_)) => fail("ERR timeout is negative"),
        Some(Ok(ms)) => Ok(ms),
    }
}

impl<'a> Request<'a> {
    pub fn parse(args: &'a [Bytes], is_group: bool) -> CommandResult<Request<'a>> {
        let mut request = Request { block_ms: None, count: 0, reader: None, keys: &[], ids: &[] };
        let (mut names, mut acknowledges) = (None, true);
        let mut at = 1;
        loop {
            let Some(arg) = args.get(at) else { return fail(error_messages::SYNTAX) };
            let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
            let left = args.len() - at - 1;
            if is("BLOCK") && left > 0 {
                request.block_ms = Some(timeout_ms(&args[at + 1])?);
                at += 2;
            } else if is("COUNT") && left > 0 {
                request.count = u64::try_from(integer(&args[at + 1])?).unwrap_or(0);
                at += 2;
            } else if is("STREAMS") && left > 0 {
                if left % 2 != 0 {
                    return fail(UNBALANCED);
                }
                (request.keys, request.ids) = args[at + 1..].split_at(left / 2);
                break;
            } else if is("GROUP") && left >= 2 {
                if !is_group {
                    return fail(ONLY_GROUP);
                }
                names = Some((&args[at + 1], &args[at + 2]));
                at += 3;
            } else if is("NOACK") {
                if !is_group {
                    return fail(ONLY_NOACK);
                }
                acknowledges = false;
                at += 1;
            } else {
                return fail(error_messages::SYNTAX);
            }
        }
        request.reader = names.map(|(group, consumer)| Reader { group, consumer, acknowledges });
        match is_group && names.is_none() {
            true => fail("ERR Missing GROUP option for XREADGROUP"),
            false => Ok(request),
        }
    }
}

/// Returns true if the options, as far as they can be read, have `BLOCK`.
pub(crate) fn has_block(args: &[Bytes]) -> bool {
    let mut at = 1;
    while let Some(arg) = args.get(at) {
        let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        at += match () {
            () if is("BLOCK") => return at + 1 < args.len(),
            () if is("COUNT") => 2,
            () if is("GROUP") => 3,
            () if is("NOACK") => 1,
            () => return false,
        };
    }
    false
}

/// Returns the positions of the keys, from the first to the one behind the last.
pub(crate) fn key_positions(args: &[Bytes]) -> std::ops::Range<usize> {
    let mut at = 1;
    while let Some(arg) = args.get(at) {
        let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        at += match () {
            () if is("STREAMS") => {
                let first = at + 1;
                return first..first + (args.len() - first) / 2;
            }
            () if is("BLOCK") || is("COUNT") => 2,
            () if is("GROUP") => 3,
            () if is("NOACK") => 1,
            () => break,
        };
    }
    0..0
}

/// The place in a stream behind which entries are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Id(StreamId),
    /// The entries that were not delivered to the group yet.
    New,
}

fn position(text: &Bytes, stream: Option<&Stream>, is_group: bool) -> CommandResult<From> {
    match &text[..] {
        b"$" if is_group => fail(LAST_IN_GROUP),
        b"$" => Ok(From::Id(stream.map_or(StreamId::MIN, |stream| stream.last_id))),
        b">" if !is_group => fail(NEW_WITHOUT_GROUP),
        b">" => Ok(From::New),
        text => match id::strict(text, 0)? {
            // Redis uses this ID for new entries.
            StreamId::MAX if is_group => Ok(From::New),
            id => Ok(From::Id(id)),
        },
    }
}

/// Returns true if the position in a stream can be read without the stream.
pub(crate) fn is_position(text: &Bytes, is_group: bool) -> bool {
    position(text, None, is_group).is_ok()
}

/// Returns true if the position is that of the last entry.
pub(crate) fn is_last(text: &Bytes) -> bool {
    text == "$"
}

pub(crate) fn xread(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let request = Request::parse(args, false)?;
    let mut found = Vec::with_capacity(request.keys.len());
    let mut exist = 0;
    for (name, id) in request.keys.iter().zip(request.ids) {
        let key = exec.key(name);
        let stream = exec.find_stream(&key)?.map(|found| found.stream);
        exist += usize::from(stream.is_some());
        let from = match position(id, stream.as_ref(), false)? {
            From::Id(id) => id,
            From::New => continue,
        };
        found.extend(stream.map(|stream| (key, stream, from)));
    }
    // Redis looks each key up twice, and counts both.
    (0..request.keys.len()).for_each(|at| exec.txn.looked_up(at < exist));
    let count = limit(request.count);
    let mut replies = Vec::new();
    for (key, stream, from) in found {
        let Some(start) = from.next().filter(|start| *start <= stream.last_id) else { continue };
        let ids = (start, StreamId::MAX);
        let read = entries::range(exec, &key, &stream, ids, (count, Direction::Forward))?;
        if !read.is_empty() {
            replies.push((key.key, read.into_iter().map(|(id, parts)| entry_reply(id, parts)).collect()));
        }
    }
    Ok(streams_reply(exec, replies))
}

fn limit(count: u64) -> u64 {
    match count {
        0 => u64::MAX,
        count => count,
    }
}

/// Returns the entries of each stream: a map in RESP3, and pairs in RESP2.
fn streams_reply(exec: &Exec<'_, '_>, streams: Vec<(&[u8], Vec<Reply>)>) -> Reply {
    if streams.is_empty() {
        return Reply::NilArray;
    }
    let named = |name: &[u8]| Reply::bulk(Bytes::copy_from_slice(name));
    let streams = streams.into_iter().map(|(name, entries)| (named(name), Reply::Array(entries)));
    match exec.resp3 {
        true => Reply::Map(streams.collect()),
        false => Reply::Array(streams.map(|(name, entries)| Reply::Array(vec![name, entries])).collect()),
    }
}

pub(crate) fn xreadgroup(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    read_as_group(args, exec, false)
}

/// An attempt of a client that waits. Its errors differ from those of the command.
pub(crate) fn xreadgroup_again(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    read_as_group(args, exec, true)
}

/// A stream that a consumer reads.
struct Source<'k> {
    name: &'k [u8],
    stream: Stream,
    group: Group,
    from: From,
}

fn read_as_group(args: &[Bytes], exec: &mut Exec<'_, '_>, has_waited: bool) -> CommandResult {
    let request = Request::parse(args, true)?;
    let Some(reader) = request.reader else { return fail(error_messages::SYNTAX) };
    let mut sources = Vec::with_capacity(request.keys.len());
    for (name, id) in request.keys.iter().zip(request.ids) {
        let key = exec.key(name);
        let stream = match exec.counting(!has_waited, |exec| exec.find_stream(&key)) {
            Ok(found) => found.map(|found| found.stream),
            Err(CommandError::Error(_)) if has_waited => None,
            Err(error) => return Err(error),
        };
        let group = match &stream {
            Some(stream) => group::find(exec, &key, stream, reader.group)?,
            None => None,
        };
        let (Some(stream), Some(group)) = (stream, group) else {
            return match has_waited {
                true => fail(if stream.is_none() { KEY_IS_GONE } else { GROUP_IS_GONE }),
                false => fail(error_messages::shown(format!(
                    "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                    error_messages::c_text(name),
                    error_messages::c_text(reader.group)
                ))),
            };
        };
        let from = position(id, Some(&stream), true)?;
        sources.push(Source { name, stream, group, from });
    }
    if !has_waited {
        // Redis looks each key up twice, and counts both.
        exec.reading(|exec| sources.iter().for_each(|_| exec.txn.looked_up(true)));
    }
    let mut replies = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources {
        let key = exec.key(source.name);
        let group = match seen.insert(source.name) {
            true => Some(source.group),
            // The group has changed since.
            false => group::find(exec, &key, &source.stream, reader.group)?,
        };
        let Some(group) = group else { continue };
        let before = exec.txn.held();
        let read = match source.from {
            From::Id(id) => {
                read_history(exec, &key, &source.stream, group, reader, (id, request.count)).map(Some)
            }
            From::New => read_new(exec, &key, &source.stream, group, reader, request.count),
        };
        let read = match read {
            // The entries of this stream and those behind it are left to another read, because the
            // others are delivered.
            Err(CommandError::Error(_)) if !replies.is_empty() && exec.check_held().is_err() => {
                exec.txn.hold_only(before);
                break;
            }
            read => read?,
        };
        replies.extend(read.map(|entries| (source.name, entries)));
    }
    Ok(streams_reply(exec, replies))
}

/// Delivers entries that no consumer of the group has got. Returns `None` if there are none.
fn read_new(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    stream: &Stream,
    group: Group,
    reader: Reader<'_>,
    count: u64,
) -> CommandResult<Option<Vec<Reply>>> {
    let Some(start) = group.row.last_id.next().filter(|start| *start <= stream.last_id) else {
        return Ok(None);
    };
    let ids = (start, StreamId::MAX);
    let read = entries::range(exec, key, stream, ids, (limit(count), Direction::Forward))?;
    if read.is_empty() {
        return Ok(None);
    }
    let mut changing = Changing::begin(key, stream, group);
    let consumer = changing.see(exec, reader.consumer)?;
    let mut replies = Vec::with_capacity(read.len());
    for (id, parts) in read {
        advance(&mut changing.group.row, stream, id);
        if reader.acknowledges {
            // Another consumer may have it, if the group's last ID was set back.
            let old = changing.pending(exec, id)?;
            let new = Pending { delivered_ms: exec.now_ms, deliveries: 1, consumer };
            changing.put_pending(exec, id, old, new)?;
        }
        replies.push(entry_reply(id, parts));
    }
    changing.finish(exec);
    Ok(Some(replies))
}

/// Delivers the consumer's own pending entries once more.
fn read_history(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    stream: &Stream,
    group: Group,
    reader: Reader<'_>,
    (after, count): (StreamId, u64),
) -> CommandResult<Vec<Reply>> {
    let mut changing = Changing::begin(key, stream, group);
    let consumer = changing.see(exec, reader.consumer)?;
    let mut replies = Vec::new();
    let mut delivered = Vec::new();
    if let Some(start) = after.next() {
        let rows = changing.rows();
        let mut finder = entries::Finder::default();
        visit_of_consumer(exec, &rows, consumer, (start, StreamId::MAX), |id| {
            replies.push(match finder.find(exec, key, stream, id)? {
                Some(parts) => {
                    exec.hold(2 + parts.len(), parts.iter().map(Bytes::len).sum())?;
                    delivered.push(id);
                    entry_reply(id, parts)
                }
                None => Reply::Array(vec![id_reply(id), Reply::NilArray]),
            });
            Ok(match replies.len() as u64 >= limit(count) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
    }
    for id in delivered {
        if let Some(old) = changing.pending(exec, id)? {
            let deliveries = old.deliveries.wrapping_add(1);
            let new = Pending { delivered_ms: exec.now_ms, deliveries, ..old };
            changing.put_pending(exec, id, Some(old), new)?;
        }
    }
    changing.finish(exec);
    Ok(replies)
}

/// Moves the last delivered ID of a group, and the number of entries read.
fn advance(group: &mut GroupRow, stream: &Stream, id: StreamId) {
    if id <= group.last_id {
        return;
    }
    if group.entries_read != UNKNOWN && !has_deleted_from(stream, id) {
        group.entries_read = group.entries_read.wrapping_add(1);
    } else if stream.entries_added > 0 {
        group.entries_read = entries_up_to(stream, id).unwrap_or(UNKNOWN);
    }
    group.last_id = id;
}

/// Returns true if an entry at or behind an ID was deleted from the middle of the stream.
fn has_deleted_from(stream: &Stream, id: StreamId) -> bool {
    let deleted = stream.max_deleted_id;
    stream.len > 0 && deleted != StreamId::MIN && stream.first_id <= deleted && id <= deleted
}

/// Returns the number of entries that were ever added up to an ID, if the stream's numbers tell it.
fn entries_up_to(stream: &Stream, id: StreamId) -> Option<i64> {
    let Stream { len, entries_added, last_id, first_id, max_deleted_id, .. } = *stream;
    if entries_added == 0 {
        return Some(0);
    }
    if len == 0 && id <= last_id || id == last_id {
        return Some(entries_added as i64);
    }
    if id > last_id {
        return None;
    }
    let is_whole = max_deleted_id == StreamId::MIN || max_deleted_id < first_id;
    match id.cmp(&first_id) {
        std::cmp::Ordering::Less if is_whole => Some(entries_added.wrapping_sub(len) as i64),
        std::cmp::Ordering::Equal if is_whole => Some(entries_added.wrapping_sub(len).wrapping_add(1) as i64),
        _ => None,
    }
}

/// Returns the number of entries that were not delivered to a group, if it is known.
pub(super) fn lag(stream: &Stream, group: &GroupRow) -> Option<i64> {
    let read = match group.entries_read {
        _ if stream.entries_added == 0 => return Some(0),
        count if count != UNKNOWN && !has_deleted_from(stream, group.last_id) => count,
        _ => entries_up_to(stream, group.last_id)?,
    };
    Some((stream.entries_added as i64).wrapping_sub(read))
}

/// Replies with the last ID of each stream among the keys, for a client that is going to wait.
pub(crate) fn last_ids(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let last_id = |name: &Bytes| {
        let key = exec.key(name);
        let found = exec.uncounted(|exec| exec.find_stream(&key))?;
        Ok(id_reply(found.map_or(StreamId::MIN, |found| found.stream.last_id)))
    };
    Ok(Reply::Array(args[1..].iter().map(last_id).collect::<CommandResult<Vec<_>>>()?))
}
