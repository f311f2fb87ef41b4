//! `XINFO`.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::{Stream, StreamId};

use super::group::{self, Consumer, Group, Rows, UNKNOWN};
use super::manage::no_group;
use super::pending::{visit_of_consumer, Names, HELD_PENDING};
use super::read::lag;
use super::{count_reply, entries, entry_reply, id_reply};
use crate::counted_tree::Direction;
use crate::error_messages;
use crate::exec::{fail, CommandError, CommandResult, Exec, Key};
use crate::number::integer;

const COUNT_DEFAULT: u64 = 10;
const ALL: (StreamId, StreamId) = (StreamId::MIN, StreamId::MAX);

fn text(text: &'static str) -> Reply {
    Reply::bulk(text)
}

fn find(exec: &mut Exec<'_, '_>, key: &Key<'_>) -> CommandResult<Stream> {
    match exec.find_stream(key)? {
        Some(found) => Ok(found.stream),
        None => fail(error_messages::NO_SUCH_KEY),
    }
}

/// Parses the options of `XINFO STREAM`. Returns the count of its long form, in which 0 stands for
/// no limit.
fn count_of(args: &[Bytes]) -> CommandResult<Option<u64>> {
    match &args[3..] {
        [] => Ok(None),
        [full] if full.eq_ignore_ascii_case(b"FULL") => Ok(Some(COUNT_DEFAULT)),
        [full, word, count] if full.eq_ignore_ascii_case(b"FULL") && word.eq_ignore_ascii_case(b"COUNT") => {
            Ok(Some(u64::try_from(integer(count)?).unwrap_or(COUNT_DEFAULT)))
        }
        _ => Err(CommandError::Error(error_messages::unknown_syntax("XINFO", &args[1]))),
    }
}

pub(crate) fn xinfo_stream(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let stream = find(exec, &key)?;
    let count = count_of(args)?;
    let mut map = vec![
        (text("length"), count_reply(stream.len)),
        (text("radix-tree-keys"), count_reply(stream.nodes)),
        (text("radix-tree-nodes"), count_reply(stream.nodes + 1)),
        (text("last-generated-id"), id_reply(stream.last_id)),
        (text("max-deleted-entry-id"), id_reply(stream.max_deleted_id)),
        (text("entries-added"), Reply::Int(stream.entries_added as i64)),
        (text("recorded-first-entry-id"), id_reply(stream.first_id)),
    ];
    match count {
        None => {
            let one = |direction| -> CommandResult {
                let mut found = entries::range(exec, &key, &stream, ALL, (1, direction))?;
                Ok(found.pop().map_or(Reply::Nil, |(id, parts)| entry_reply(id, parts)))
            };
            map.push((text("groups"), count_reply(stream.groups)));
            map.push((text("first-entry"), one(Direction::Forward)?));
            map.push((text("last-entry"), one(Direction::Backward)?));
        }
        Some(count) => {
            let limit = if count == 0 { u64::MAX } else { count };
            let found = entries::range(exec, &key, &stream, ALL, (limit, Direction::Forward))?;
            let shown = found.into_iter().map(|(id, parts)| entry_reply(id, parts)).collect();
            map.push((text("entries"), Reply::Array(shown)));
            let groups = group::all(exec, &key, &stream)?;
            let shown = groups.iter().map(|group| full_group(exec, &key, &stream, group, limit));
            map.push((text("groups"), Reply::Array(shown.collect::<CommandResult<Vec<_>>>()?)));
        }
    }
    Ok(Reply::Map(map))
}

fn read_replies(stream: &Stream, group: &Group) -> [(Reply, Reply); 2] {
    let number = |number: Option<i64>| number.map_or(Reply::Nil, Reply::Int);
    let read = Some(group.row.entries_read).filter(|read| *read != UNKNOWN);
    [(text("entries-read"), number(read)), (text("lag"), number(lag(stream, &group.row)))]
}

fn full_group(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    stream: &Stream,
    group: &Group,
    limit: u64,
) -> CommandResult {
    let rows = Rows::new(key, group);
    let mut found = Vec::new();
    rows.visit_pending(exec, ALL, &mut |id, pending| {
        found.push((id, pending));
        match (found.len() as u64) < limit {
            true => exec.holding(HELD_PENDING, 0),
            false => ControlFlow::Break(()),
        }
    })?;
    exec.check_held()?;
    let mut names = Names::default();
    let pending = found.into_iter().map(|(id, pending)| {
        Ok(Reply::Array(vec![
            id_reply(id),
            Reply::Bulk(names.get(exec, &rows, pending.consumer)?),
            count_reply(pending.delivered_ms),
            Reply::Int(pending.deliveries as i64),
        ]))
    });
    let pending = pending.collect::<CommandResult<Vec<_>>>()?;
    let consumers = rows.all_consumers(exec)?;
    let consumers = consumers.iter().map(|consumer| full_consumer(exec, &rows, consumer, limit));
    let consumers = consumers.collect::<CommandResult<Vec<_>>>()?;
    let mut map = vec![
        (text("name"), Reply::Bulk(group.name.clone())),
        (text("last-delivered-id"), id_reply(group.row.last_id)),
    ];
    map.extend(read_replies(stream, group));
    map.push((text("pel-count"), count_reply(group.row.pending)));
    map.push((text("pending"), Reply::Array(pending)));
    map.push((text("consumers"), Reply::Array(consumers)));
    Ok(Reply::Map(map))
}

fn full_consumer(exec: &Exec<'_, '_>, rows: &Rows<'_>, consumer: &Consumer, limit: u64) -> CommandResult {
    let mut pending = Vec::new();
    visit_of_consumer(exec, rows, consumer.number, ALL, |id| {
        if let Some(of) = rows.pending(exec, id)? {
            let (at, times) = (count_reply(of.delivered_ms), Reply::Int(of.deliveries as i64));
            exec.hold(HELD_PENDING, 0)?;
            pending.push(Reply::Array(vec![id_reply(id), at, times]));
        }
        Ok(match (pending.len() as u64) < limit {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    Ok(Reply::Map(vec![
        (text("name"), Reply::Bulk(consumer.name.clone())),
        (text("seen-time"), count_reply(consumer.seen_ms)),
        (text("pel-count"), count_reply(consumer.pending)),
        (text("pending"), Reply::Array(pending)),
    ]))
}

pub(crate) fn xinfo_groups(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let stream = find(exec, &key)?;
    let groups = group::all(exec, &key, &stream)?.into_iter().map(|group| {
        let mut map = vec![
            (text("name"), Reply::Bulk(group.name.clone())),
            (text("consumers"), count_reply(group.row.consumers)),
            (text("pending"), count_reply(group.row.pending)),
            (text("last-delivered-id"), id_reply(group.row.last_id)),
        ];
        map.extend(read_replies(&stream, &group));
        Reply::Map(map)
    });
    Ok(Reply::Array(groups.collect()))
}

pub(crate) fn xinfo_consumers(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let stream = find(exec, &key)?;
    let Some(group) = group::find(exec, &key, &stream, &args[3])? else {
        return Err(no_group(&args[3], &args[2]));
    };
    let now_ms = exec.now_ms;
    let consumers = Rows::new(&key, &group).all_consumers(exec)?.into_iter().map(|consumer| {
        Reply::Map(vec![
            (text("name"), Reply::Bulk(consumer.name)),
            (text("pending"), count_reply(consumer.pending)),
            (text("idle"), count_reply(now_ms.saturating_sub(consumer.seen_ms))),
        ])
    });
    Ok(Reply::Array(consumers.collect()))
}
