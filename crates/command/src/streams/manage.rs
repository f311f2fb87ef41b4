//! `XGROUP`.

use bytes::Bytes;
use resp::Reply;
use storage::StreamId;

use super::group::{self, Changing, Group, UNKNOWN};
use super::{count_reply, create, id};
use crate::error_messages;
use crate::exec::{fail, CommandError, CommandResult, Exec, Key, StreamValue};
use crate::number::integer;

fn no_key<T>() -> CommandResult<T> {
    fail(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
         the MKSTREAM option to create an empty stream automatically.",
    )
}

pub(super) fn no_group(name: &[u8], key: &[u8]) -> CommandError {
    CommandError::Error(error_messages::shown(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        error_messages::c_text(name),
        error_messages::c_text(key)
    )))
}

fn wrong_syntax<T>(subcommand: &[u8]) -> CommandResult<T> {
    Err(CommandError::Error(error_messages::unknown_syntax("XGROUP", subcommand)))
}

/// Parses the value of `ENTRIESREAD`.
fn entries_read(text: &[u8]) -> CommandResult<i64> {
    match integer(text)? {
        count if count >= 0 || count == UNKNOWN => Ok(count),
        _ => fail("ERR value for ENTRIESREAD must be positive or -1"),
    }
}

struct Options {
    makes_stream: bool,
    entries_read: i64,
}

fn options(args: &[Bytes], creates: bool) -> CommandResult<Options> {
    let mut options = Options { makes_stream: false, entries_read: UNKNOWN };
    let mut at = 5;
    while at < args.len() {
        if creates && args[at].eq_ignore_ascii_case(b"MKSTREAM") {
            options.makes_stream = true;
            at += 1;
        } else if args[at].eq_ignore_ascii_case(b"ENTRIESREAD") && at + 1 < args.len() {
            options.entries_read = entries_read(&args[at + 1])?;
            at += 2;
        } else {
            return wrong_syntax(&args[1]);
        }
    }
    Ok(options)
}

pub(crate) fn xgroup_create(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    const ARGUMENTS_MAX: usize = 8;
    let options = options(args, true)?;
    let key = exec.key(&args[2]);
    let found = exec.find_stream(&key)?;
    if found.is_none() && !options.makes_stream {
        return no_key();
    }
    if args.len() > ARGUMENTS_MAX {
        return wrong_syntax(&args[1]);
    }
    let last_id = match &args[4] {
        word if *word == "$" => found.map_or(StreamId::MIN, |found| found.stream.last_id),
        text => id::strict(text, 0)?,
    };
    let mut stream = match &found {
        Some(found) => found.stream,
        None => create(exec),
    };
    if group::find(exec, &key, &stream, &args[3])?.is_some() {
        return fail("BUSYGROUP Consumer Group name already exists");
    }
    group::create(exec, &key, &mut stream, &args[3], (last_id, options.entries_read));
    exec.put_stream(&key, found.as_ref(), stream);
    exec.tell(&key, "xgroup-create");
    Ok(Reply::OK)
}

/// Finds a stream and its group, which must exist.
fn find(exec: &mut Exec<'_, '_>, key: &Key<'_>, name: &Bytes) -> CommandResult<(StreamValue, Option<Group>)> {
    let Some(found) = exec.find_stream(key)? else { return no_key() };
    let group = group::find(exec, key, &found.stream, name)?;
    Ok((found, group))
}

pub(crate) fn xgroup_setid(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let options = options(args, false)?;
    let key = exec.key(&args[2]);
    let (found, group) = find(exec, &key, &args[3])?;
    let Some(group) = group else { return Err(no_group(&args[3], &args[2])) };
    if args.len() != 5 && args.len() != 7 {
        return wrong_syntax(&args[1]);
    }
    let last_id = match &args[4] {
        word if *word == "$" => found.stream.last_id,
        text => id::relaxed(text, 0)?,
    };
    let mut changing = Changing::begin(&key, &found.stream, group);
    (changing.group.row.last_id, changing.group.row.entries_read) = (last_id, options.entries_read);
    changing.finish(exec);
    exec.touch(&key);
    exec.tell(&key, "xgroup-setid");
    Ok(Reply::OK)
}

pub(crate) fn xgroup_destroy(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let (found, group) = find(exec, &key, &args[3])?;
    let Some(group) = group else { return Ok(Reply::Int(0)) };
    let mut stream = found.stream;
    group::destroy(exec, &key, &mut stream, &group)?;
    exec.put_stream(&key, Some(&found), stream);
    exec.tell(&key, "xgroup-destroy");
    Ok(Reply::Int(1))
}

pub(crate) fn xgroup_createconsumer(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let (found, group) = find(exec, &key, &args[3])?;
    let Some(group) = group else { return Err(no_group(&args[3], &args[2])) };
    let mut changing = Changing::begin(&key, &found.stream, group);
    if changing.find_consumer(exec, &args[4])?.is_some() {
        return Ok(Reply::Int(0));
    }
    changing.create_consumer(exec, &args[4]);
    changing.finish(exec);
    Ok(Reply::Int(1))
}

pub(crate) fn xgroup_delconsumer(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let (found, group) = find(exec, &key, &args[3])?;
    let Some(group) = group else { return Err(no_group(&args[3], &args[2])) };
    let mut changing = Changing::begin(&key, &found.stream, group);
    let Some(number) = changing.find_consumer(exec, &args[4])? else { return Ok(Reply::Int(0)) };
    let count = changing.delete_consumer(exec, number)?;
    changing.finish(exec);
    exec.tell(&key, "xgroup-delconsumer");
    Ok(count_reply(count))
}
