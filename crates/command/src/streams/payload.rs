//! Streams in payloads of `DUMP` and `RESTORE`. A node here is a node there.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use rdb::{write, Element, EntryId, Error, Kind, Source, StreamPart, StreamWriter};
use storage::{StorageError, Stream, StreamId};

use super::entries::{from_first_node, node_row};
use super::group::{self, Restoring, Rows};
use super::node::{Builder, Built, Node};
use crate::exec::{CommandError, CommandResult, Exec, Key, StreamValue};

fn entry_id(id: StreamId) -> EntryId {
    EntryId { ms: id.ms, seq: id.seq }
}

fn stream_id(id: EntryId) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

/// Returns a stream's type and value, or `None` if it has more than `elements_max` entries, pending
/// entries, groups and consumers in all, or more than `bytes_max` bytes.
pub(crate) fn dump(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    stream: &Stream,
    (elements_max, bytes_max): (u64, u64),
) -> CommandResult<Option<Vec<u8>>> {
    let mut elements = stream.len.saturating_add(stream.groups);
    if elements > elements_max {
        return Ok(None);
    }
    let (mut writer, mut nodes) = (StreamWriter::default(), Vec::new());
    let (mut entries, mut is_too_large) = (0, false);
    from_first_node(exec, key, stream, &mut |id, value| {
        let node = Node::decode(id, Bytes::copy_from_slice(value))?;
        let fields = node.fields().collect();
        let part = StreamPart::Node { id: entry_id(id), fields, entries: 0, bytes: 0 };
        let mut pushed = writer.push(&mut nodes, &part);
        for entry in node.entries()? {
            let part = StreamPart::Entry { id: entry_id(entry.id), pairs: node.parts(&entry) };
            pushed = pushed.and_then(|()| writer.push(&mut nodes, &part));
            entries += 1;
        }
        is_too_large = pushed.is_err() || nodes.len() as u64 > bytes_max;
        Ok(if is_too_large { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if is_too_large {
        return Ok(None);
    }
    if entries != stream.len {
        return Err(StorageError::Corrupt("the number of a stream's entries".into()).into());
    }
    let mut push = |part: StreamPart| writer.push(&mut nodes, &part).is_ok();
    let mut is_complete = push(StreamPart::Numbers {
        last_id: entry_id(stream.last_id),
        max_deleted_id: entry_id(stream.max_deleted_id),
        entries_added: stream.entries_added,
    });
    for group in group::all(exec, key, stream)? {
        elements = elements.saturating_add(group.row.pending).saturating_add(group.row.consumers);
        if elements > elements_max {
            return Ok(None);
        }
        is_complete &= push(StreamPart::Group {
            name: group.name.clone(),
            last_id: entry_id(group.row.last_id),
            entries_read: group.row.entries_read,
        });
        let rows = Rows::new(key, &group);
        let mut pending: BTreeMap<u64, Vec<StreamPart>> = BTreeMap::new();
        rows.visit_pending(exec, (StreamId::MIN, StreamId::MAX), &mut |id, of| {
            let (id, delivered_ms, deliveries) = (entry_id(id), of.delivered_ms, of.deliveries);
            let part = StreamPart::Pending { id, delivered_ms, deliveries };
            pending.entry(of.consumer).or_default().push(part);
            ControlFlow::Continue(())
        })?;
        for consumer in rows.all_consumers(exec)? {
            is_complete &= push(StreamPart::Consumer { name: consumer.name, seen_ms: consumer.seen_ms });
            for part in pending.remove(&consumer.number).unwrap_or_default() {
                is_complete &= push(part);
            }
        }
        if !pending.is_empty() {
            return Err(StorageError::Corrupt("a pending entry without its consumer".into()).into());
        }
    }
    let Ok((count, tail)) = writer.finish(&mut nodes) else { return Ok(None) };
    let mut payload = vec![write::type_number(Kind::Stream)];
    write::header(&mut payload, Kind::Stream, count);
    payload.append(&mut nodes);
    payload.extend(tail);
    Ok(is_complete.then_some(payload))
}

/// Visits the parts of a stream's value.
fn visit_parts(
    number: u8,
    value: &[u8],
    (elements_max, bytes_max): (u64, u64),
    visit: &mut dyn FnMut(StreamPart) -> rdb::Result<()>,
) -> rdb::Result<()> {
    let pending_max = usize::try_from(elements_max).unwrap_or(usize::MAX);
    let mut source = Source::new(value).with_string_bytes_max(bytes_max).with_pending_max(pending_max);
    rdb::read_value(number, &mut source, &mut |element| match element {
        Element::Stream(part) => visit(part),
        _ => Err(Error::Damaged("an element of another type")),
    })?;
    match source.position() == value.len() as u64 {
        true => Ok(()),
        false => Err(Error::Damaged("bytes behind the value")),
    }
}

/// Adds a part to the nodes. Returns a node that is complete.
fn built(nodes: &mut Builder, part: &StreamPart) -> Option<Built> {
    match part {
        StreamPart::Node { id, fields, entries, bytes } => {
            nodes.begin(stream_id(*id), fields.clone(), (*entries, *bytes))
        }
        StreamPart::Entry { id, pairs } => nodes.push(stream_id(*id), pairs),
        StreamPart::Numbers { .. } => nodes.finish(),
        _ => None,
    }
}

/// Checks a stream's value completely. It is not kept: nothing is written before all of it is known
/// to be right, and [`restore`] reads it again.
///
/// # Errors
/// Errors of the value; [`Error::TooLarge`] and [`Error::TooManyPending`] also if the rows would be
/// larger than the limits.
pub(crate) fn check(number: u8, value: &[u8], (elements_max, bytes_max): (u64, u64)) -> rdb::Result<()> {
    let mut nodes = Builder::default();
    let (mut elements, mut bytes, mut listpacks) = (0, 0, 0u64);
    visit_parts(number, value, (elements_max, bytes_max), &mut |part| {
        bytes += built(&mut nodes, &part).map_or(0, |(_, value)| value.len() as u64);
        match &part {
            // A node may have deleted entries only, and be compressed.
            StreamPart::Node { bytes, .. } => listpacks += bytes,
            StreamPart::Numbers { .. } => {}
            StreamPart::Entry { .. } => elements += 1,
            part => {
                elements += 1;
                bytes += part.bytes() as u64;
            }
        }
        match elements > elements_max || bytes > bytes_max || listpacks > bytes_max {
            true => Err(Error::TooLarge("the stream is too large")),
            false => Ok(()),
        }
    })
}

/// Writes a stream whose value was [checked](check) in place of the key's current value.
pub(crate) fn restore(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    expire_at_ms: Option<u64>,
    (number, value): (u8, &[u8]),
) -> CommandResult<()> {
    if let Some(old) = exec.find(key)? {
        exec.remove(key, &old)?;
    }
    let mut stream = super::create(exec);
    let (mut nodes, mut group) = (Builder::default(), None::<Restoring<'_>>);
    let mut failed: Option<CommandError> = None;
    let read = visit_parts(number, value, (u64::MAX, u64::MAX), &mut |part| {
        if let Some((id, value)) = built(&mut nodes, &part) {
            exec.put_element(key, node_row(key, &stream, id), None, value);
            stream.nodes += 1;
            stream.last_node = id;
            if stream.nodes == 1 {
                stream.first_node = id;
            }
        }
        match part {
            StreamPart::Node { .. } => {}
            StreamPart::Entry { id, .. } => {
                stream.len += 1;
                if stream.len == 1 {
                    stream.first_id = stream_id(id);
                }
            }
            StreamPart::Numbers { last_id, max_deleted_id, entries_added } => {
                stream.last_id = stream_id(last_id);
                stream.max_deleted_id = stream_id(max_deleted_id);
                stream.entries_added = entries_added;
            }
            StreamPart::Group { name, last_id, entries_read } => {
                if let Some(group) = group.take() {
                    group.finish(exec, &mut stream);
                }
                group = Some(Restoring::begin(exec, key, name, (stream_id(last_id), entries_read)));
            }
            StreamPart::Consumer { name, seen_ms } => {
                if let Some(group) = &mut group {
                    group.consumer(exec, name, seen_ms);
                }
            }
            StreamPart::Pending { id, delivered_ms, deliveries } => {
                if let Some(group) = &mut group {
                    let added = group.pending(exec, stream_id(id), (delivered_ms, deliveries));
                    failed = failed.take().or(added.err());
                }
            }
        }
        Ok(())
    });
    if let Some(error) = failed {
        return Err(error);
    }
    read.map_err(|_| StorageError::Corrupt("a payload that was checked cannot be read".into()))?;
    if let Some(group) = group {
        group.finish(exec, &mut stream);
    }
    exec.put_stream_with_time(key, None, StreamValue { stream, expire_at_ms });
    Ok(())
}
