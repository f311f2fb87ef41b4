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

use crate::exec::{CommandResult, Exec, Key, StreamValue, HELD_ROW};
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
    // All rows are read before the first one is written.
    let nodes = elements(exec, from, stream.generation)?;
    let mut groups = Vec::new();
    for (name, value) in group::all_rows(exec, from, stream.generation)? {
        let group = Group::decode(name, &value)?;
        let pending = elements(exec, from, group.row.generation)?;
        groups.push((group, pending));
    }
    if let Some(old) = exec.find(to)? {
        exec.remove(to, &old)?;
    }
    let generation = exec.txn.state_mut().take_generation();
    let copy = Stream { generation, ..*stream };
    put_elements(exec, (to, generation), nodes);
    for (group, pending) in groups {
        let mut row = group.row;
        row.generation = exec.txn.state_mut().take_generation();
        put_elements(exec, (to, row.generation), pending);
        exec.put_element(to, to.group_row(generation, &group.name), None, row.encode());
    }
    exec.put_stream_with_time(to, None, StreamValue { stream: copy, expire_at_ms });
    Ok(())
}

/// Returns the sub-keys and values of a generation, which are about to be written again.
fn elements(exec: &Exec<'_, '_>, key: &KeyRef<'_>, generation: u64) -> CommandResult<Vec<(Bytes, Bytes)>> {
    let rows = entries::rows_of(exec, key.element_range(generation))?;
    for (subkey, value) in &rows {
        exec.hold(HELD_ROW, subkey.len() + value.len())?;
    }
    Ok(rows)
}

fn put_elements(exec: &mut Exec<'_, '_>, (key, generation): (&KeyRef<'_>, u64), rows: Vec<(Bytes, Bytes)>) {
    for (subkey, value) in rows {
        exec.put_element(key, key.element_row(generation, &subkey), None, value);
    }
}

#[cfg(test)]
mod tests;
