//! `XADD` and `XSETID`.

use bytes::Bytes;
use resp::Reply;
use storage::{Stream, StreamId};

use super::entries::{append, last_entry_id};
use super::id::{self, NewId};
use super::trim::{trim, Options};
use super::{create, id_reply};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::integer;

const NOT_LARGER: &str = "ERR The ID specified in XADD is equal or smaller than the target stream top item";

pub(crate) fn xadd(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let options = Options::parse(args, true)?;
    let pairs = args.get(options.rest..).unwrap_or_default();
    if pairs.is_empty() || pairs.len() % 2 != 0 {
        return fail(error_messages::wrong_arity_text("xadd"));
    }
    if options.id == NewId::Given(StreamId::MIN) {
        return fail("ERR The ID specified in XADD must be greater than 0-0");
    }
    let key = exec.key(&args[1]);
    let found = exec.find_stream(&key)?;
    if found.is_none() && options.no_stream {
        return Ok(Reply::Nil);
    }
    let last_id = found.map_or(StreamId::MIN, |found| found.stream.last_id);
    let id = new_id(options.id, last_id, exec.now_ms)?;
    let mut stream = match &found {
        Some(found) => found.stream,
        None => create(exec),
    };
    append(exec, &key, &mut stream, id, pairs)?;
    let trimmed = match &options.trim {
        Some(of) => trim(exec, &key, &mut stream, of)?,
        None => 0,
    };
    exec.put_stream(&key, found.as_ref(), stream);
    exec.tell(&key, "xadd");
    if trimmed > 0 {
        exec.tell(&key, "xtrim");
    }
    Ok(id_reply(id))
}

fn new_id(id: NewId, last: StreamId, now_ms: u64) -> CommandResult<StreamId> {
    if last == StreamId::MAX {
        return fail("ERR The stream has exhausted the last possible ID, unable to add more items");
    }
    let new = match id {
        NewId::Automatic if now_ms > last.ms => Some(StreamId { ms: now_ms, seq: 0 }),
        NewId::Automatic => last.next(),
        NewId::At(ms) if ms == last.ms => last.seq.checked_add(1).map(|seq| StreamId { ms, seq }),
        NewId::At(ms) => Some(StreamId { ms, seq: 0 }),
        NewId::Given(id) => Some(id),
    };
    match new.filter(|new| *new > last) {
        Some(new) => Ok(new),
        None => fail(NOT_LARGER),
    }
}

pub(crate) fn xsetid(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let last_id = id::strict(&args[2], 0)?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::MIN);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        let Some(value) = options.next() else { return fail(error_messages::SYNTAX) };
        if option.eq_ignore_ascii_case(b"ENTRIESADDED") {
            entries_added = match u64::try_from(integer(value)?) {
                Ok(count) => Some(count),
                Err(_) => return fail("ERR entries_added must be positive"),
            };
        } else if option.eq_ignore_ascii_case(b"MAXDELETEDID") {
            max_deleted_id = id::strict(value, 0)?;
            if last_id < max_deleted_id {
                return fail(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                );
            }
        } else {
            return fail(error_messages::SYNTAX);
        }
    }
    let key = exec.key(&args[1]);
    let Some(found) = exec.find_stream(&key)? else { return fail(error_messages::NO_SUCH_KEY) };
    let mut stream = found.stream;
    if let Some(last_entry) = last_entry_id(exec, &key, &stream)? {
        if last_id < last_entry {
            return fail("ERR The ID specified in XSETID is smaller than the target stream top item");
        }
        if entries_added.is_some_and(|added| stream.len > added) {
            return fail(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            );
        }
    }
    let (added, deleted) = (stream.entries_added, stream.max_deleted_id);
    stream = Stream {
        last_id,
        entries_added: entries_added.unwrap_or(added),
        max_deleted_id: if max_deleted_id == StreamId::MIN { deleted } else { max_deleted_id },
        ..stream
    };
    exec.put_stream(&key, Some(&found), stream);
    exec.tell(&key, "xsetid");
    Ok(Reply::OK)
}
