//! Streams: a meta row with the stream's numbers, rows with up to 100 entries each, and rows for
//! consumer groups, their consumers and their pending entries.
//!
//! Rows with entries are in the order of IDs. Each names the one before it, so that a walk can go
//! backward and finds the row of any ID with one seek. The meta row names the first and the last of
//! them, so that an append reads and writes one besides the meta row, and trimming finds the first
//! one without a look at deleted rows.
//!
//! The rows of a group have a generation of their own. So a group of any size is deleted by leaving
//! that generation to the sweep.

pub(crate) mod add;
pub(crate) mod claim;
pub(crate) mod delete;
pub(crate) mod entries;
pub(crate) mod group;
pub(crate) mod id;
pub(crate) mod info;
pub(crate) mod manage;
pub(crate) mod node;
pub(crate) mod payload;
pub(crate) mod pending;
pub(crate) mod range;
pub(crate) mod read;
pub(crate) mod trim;

use bytes::Bytes;
use resp::Reply;
use storage::{KeyRef, Stream, StreamId};

use crate::exec::{CommandResult, Exec, Key, StreamValue};
use group::Group;

/// Returns a stream without entries, which has a new generation.
fn create(exec: &mut Exec<'_, '_>) -> Stream {
    Stream { generation: exec.txn.state_mut().take_generation(), ..Stream::default() }
}

fn id_reply(id: StreamId) -> Reply {
    Reply::bulk(id::text(id))
}

/// Returns an entry as an array of its ID and its fields and values.
fn entry_reply(id: StreamId, parts: Vec<Bytes>) -> Reply {
    Reply::Array(vec![id_reply(id), Reply::Array(parts.into_iter().map(Reply::Bulk).collect())])
}

fn count_reply(count: u64) -> Reply {
    Reply::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

pub(crate) fn xlen(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(exec.find_stream(&key)?.map_or(Reply::Int(0), |found| count_reply(found.stream.len)))
}

/// Writes a copy of a stream in place of the current value of `to`.
pub(crate) fn duplicate(
    exec: &mut Exec<'_, '_>,
    from: &Key<'_>,
    (stream, expire_at_ms): (&Stream, Option<u64>),
    to: &Key<'_>,
) -> CommandResult<()> {
    if let Some(old) = exec.find(to)? {
        exec.remove(to, &old)?;
    }
    let generation = exec.txn.state_mut().take_generation();
    let copy = Stream { generation, ..*stream };
    copy_elements(exec, (from, stream.generation), (to, generation))?;
    for (name, value) in group::all_rows(exec, from, stream.generation)? {
        let group = Group::decode(name, &value)?;
        let mut row = group.row;
        row.generation = exec.txn.state_mut().take_generation();
        copy_elements(exec, (from, group.row.generation), (to, row.generation))?;
        exec.put_element(to, to.group_row(generation, &group.name), None, row.encode());
    }
    exec.put_stream_with_time(to, None, StreamValue { stream: copy, expire_at_ms });
    Ok(())
}

fn copy_elements(
    exec: &mut Exec<'_, '_>,
    (from, from_generation): (&KeyRef<'_>, u64),
    (to, to_generation): (&KeyRef<'_>, u64),
) -> CommandResult<()> {
    for (subkey, value) in entries::rows_of(exec, from.element_range(from_generation))? {
        exec.put_element(to, to.element_row(to_generation, &subkey), None, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
