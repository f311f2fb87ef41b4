//! The rows of a stream's entries: look-ups, walks, appends and deletions.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use storage::rows::row_behind;
use storage::{KeyRef, StorageError, Stream, StreamId};

use super::node::{self, corrupt, Entry, Node};
use crate::counted_tree::Direction;
use crate::exec::{CommandError, CommandResult, Exec};

pub(crate) fn node_row(key: &KeyRef<'_>, stream: &Stream, id: StreamId) -> Bytes {
    key.element_row(stream.generation, &id.to_bytes())
}

/// Returns all rows of a range, each with what its key has behind the beginning of the range, and
/// its value.
pub(super) fn rows_of(exec: &Exec<'_, '_>, (from, to): (Bytes, Bytes)) -> CommandResult<Vec<(Bytes, Bytes)>> {
    let mut found = Vec::new();
    exec.txn.scan(&from, &to, &mut |row, value| {
        found.push((Bytes::copy_from_slice(&row[from.len()..]), Bytes::copy_from_slice(value)));
        exec.holding(2, row.len() + value.len())
    })?;
    exec.check_held()?;
    Ok(found)
}

fn get(exec: &Exec<'_, '_>, key: &KeyRef<'_>, stream: &Stream, id: StreamId) -> CommandResult<Node> {
    match exec.txn.get(&node_row(key, stream, id))? {
        Some(value) => Ok(Node::decode(id, value)?),
        None => Err(StorageError::Corrupt("a node of a stream is missing".into()).into()),
    }
}

/// Returns the ID of the node in a row, whose key up to the ID has `prefix` bytes.
fn id_of(row: &[u8], prefix: usize) -> storage::Result<StreamId> {
    let id = row.get(prefix..).and_then(|id| id.try_into().ok()).ok_or_else(corrupt)?;
    Ok(StreamId::from_bytes(id))
}

/// A callback that receives the ID of a node and its value. `Break` ends the walk.
pub(super) type VisitNode<'a> = dyn FnMut(StreamId, &[u8]) -> CommandResult<ControlFlow<()>> + 'a;

/// Visits the nodes from a row on, up to the one that could have `to`.
fn visit_nodes(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
    (from, to): (&[u8], StreamId),
    visit: &mut VisitNode<'_>,
) -> CommandResult<()> {
    let prefix = key.element_range(stream.generation).0.len();
    let mut failed: Option<CommandError> = None;
    let end = row_behind(&node_row(key, stream, to));
    exec.txn.scan(from, &end, &mut |row, value| {
        let visited = id_of(row, prefix).map_err(CommandError::from).and_then(|id| visit(id, value));
        visited.unwrap_or_else(|error| {
            failed = Some(error);
            ControlFlow::Break(())
        })
    })?;
    failed.map_or(Ok(()), Err)
}

/// Returns the first node behind a node.
fn next_node(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
    id: StreamId,
) -> CommandResult<Option<Node>> {
    let from = row_behind(&node_row(key, stream, id));
    let mut next = None;
    visit_nodes(exec, key, stream, (&from, StreamId::MAX), &mut |id, value| {
        next = Some(Node::decode(id, Bytes::copy_from_slice(value))?);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(next)
}

/// Returns the node in which an entry with this ID would be: the last one whose ID is not larger.
/// `None` if all are larger.
fn node_of(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
    id: StreamId,
) -> CommandResult<Option<Node>> {
    if stream.nodes == 0 || id < stream.first_node {
        return Ok(None);
    }
    if id >= stream.last_node {
        return get(exec, key, stream, stream.last_node).map(Some);
    }
    let from = node_row(key, stream, id);
    let mut met = None;
    visit_nodes(exec, key, stream, (&from, stream.last_node), &mut |id, value| {
        met = Some(Node::decode(id, Bytes::copy_from_slice(value))?);
        Ok(ControlFlow::Break(()))
    })?;
    let met = met.ok_or_else(corrupt)?;
    match met.id == id {
        true => Ok(Some(met)),
        false => get(exec, key, stream, met.previous()).map(Some),
    }
}

/// A callback that receives a node and one of its entries. `Break` ends the walk.
pub(super) type VisitEntry<'a> = dyn FnMut(&Node, &Entry) -> ControlFlow<()> + 'a;

/// Visits the entries of a node that are in the range.
fn visit_entries(
    node: &Node,
    (from, to): (StreamId, StreamId),
    direction: Direction,
    visit: &mut VisitEntry<'_>,
) -> CommandResult<ControlFlow<()>> {
    let entries = node.entries()?;
    let mut in_range = entries.iter().filter(|entry| (from..=to).contains(&entry.id));
    Ok(match direction {
        Direction::Forward => in_range.try_for_each(|entry| visit(node, entry)),
        Direction::Backward => in_range.rev().try_for_each(|entry| visit(node, entry)),
    })
}

/// Visits the entries of a range in order, or in reverse.
pub(super) fn walk(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
    (from, to): (StreamId, StreamId),
    direction: Direction,
    visit: &mut VisitEntry<'_>,
) -> CommandResult<()> {
    if from > to || stream.len == 0 {
        return Ok(());
    }
    match direction {
        Direction::Forward => {
            let start = match node_of(exec, key, stream, from)? {
                Some(node) => {
                    if visit_entries(&node, (from, to), direction, visit)?.is_break()
                        || node.id == stream.last_node
                    {
                        return Ok(());
                    }
                    row_behind(&node_row(key, stream, node.id))
                }
                None => node_row(key, stream, stream.first_node),
            };
            visit_nodes(exec, key, stream, (&start, to), &mut |id, value| {
                let node = Node::decode(id, Bytes::copy_from_slice(value))?;
                visit_entries(&node, (from, to), direction, visit)
            })
        }
        Direction::Backward => {
            let mut next = node_of(exec, key, stream, to)?;
            while let Some(node) = next {
                if visit_entries(&node, (from, to), direction, visit)?.is_break() {
                    break;
                }
                next = match node.id <= from.max(stream.first_node) {
                    true => None,
                    // Each step goes to a smaller ID, so a damaged row cannot make it endless.
                    false if node.previous() < node.id => Some(get(exec, key, stream, node.previous())?),
                    false => return Err(corrupt().into()),
                };
            }
            Ok(())
        }
    }
}

/// Returns up to `count` entries of a range, each with its fields and values.
pub(super) fn range(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
    ids: (StreamId, StreamId),
    (count, direction): (u64, Direction),
) -> CommandResult<Vec<(StreamId, Vec<Bytes>)>> {
    let mut found = Vec::new();
    if count > 0 {
        walk(exec, key, stream, ids, direction, &mut |node, entry| {
            let parts = node.parts(entry);
            let (items, bytes) = (2 + parts.len(), parts.iter().map(Bytes::len).sum());
            found.push((entry.id, parts));
            match found.len() as u64 >= count {
                true => ControlFlow::Break(()),
                false => exec.holding(items, bytes),
            }
        })?;
        exec.check_held()?;
    }
    Ok(found)
}

/// Finds entries by their IDs. The node of the last one is kept, so it is read and decoded once for
/// all entries that are looked up one after the other. The stream must not change meanwhile.
#[derive(Default)]
pub(super) struct Finder {
    node: Option<(Node, Vec<Entry>)>,
}

impl Finder {
    /// Returns the fields and values of an entry.
    pub fn find(
        &mut self,
        exec: &Exec<'_, '_>,
        key: &KeyRef<'_>,
        stream: &Stream,
        id: StreamId,
    ) -> CommandResult<Option<Vec<Bytes>>> {
        if !self.node.as_ref().is_some_and(|(node, _)| node.covers(id)) {
            self.node = match node_of(exec, key, stream, id)? {
                Some(node) => {
                    let entries = node.entries()?;
                    Some((node, entries))
                }
                None => None,
            };
        }
        let Some((node, entries)) = &self.node else { return Ok(None) };
        let found = entries.binary_search_by_key(&id, |entry| entry.id).ok();
        Ok(found.map(|at| node.parts(&entries[at])))
    }
}

/// Returns the ID of the last entry.
pub(super) fn last_entry_id(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
) -> CommandResult<Option<StreamId>> {
    if stream.len == 0 {
        return Ok(None);
    }
    let node = get(exec, key, stream, stream.last_node)?;
    Ok(node.entries()?.last().map(|entry| entry.id))
}

/// Appends an entry, whose ID is larger than the last one. The caller writes the meta row.
pub(super) fn append(
    exec: &mut Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &mut Stream,
    id: StreamId,
    pairs: &[Bytes],
) -> CommandResult<()> {
    let last = match stream.nodes {
        0 => None,
        _ => Some(get(exec, key, stream, stream.last_node)?),
    };
    match last.filter(|last| !last.is_full(pairs)) {
        Some(last) => {
            let row = node_row(key, stream, last.id);
            exec.put_element(key, row, Some(last.bytes()), last.appended(id, pairs));
        }
        None => {
            exec.put_element(
                key,
                node_row(key, stream, id),
                None,
                node::new_value(stream.last_node, id, pairs),
            );
            stream.nodes += 1;
            stream.last_node = id;
            if stream.nodes == 1 {
                stream.first_node = id;
            }
        }
    }
    stream.len += 1;
    stream.entries_added = stream.entries_added.wrapping_add(1);
    stream.last_id = id;
    if stream.len == 1 {
        stream.first_id = id;
    }
    Ok(())
}

/// Deletes the entries with some of the first of these IDs: those that are in one node. Returns the
/// number of IDs that were looked up, and the IDs of the entries that were deleted. The caller
/// updates the first entry's ID and writes the meta row.
pub(super) fn delete_first(
    exec: &mut Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &mut Stream,
    ids: &[StreamId],
) -> CommandResult<(usize, Vec<StreamId>)> {
    let Some(first) = ids.first() else { return Ok((0, Vec::new())) };
    let Some(node) = node_of(exec, key, stream, *first)? else { return Ok((1, Vec::new())) };
    let entries = node.entries()?;
    let looked_up = ids.iter().take_while(|id| node.covers(**id)).count().max(1);
    let found = |id: &StreamId| entries.binary_search_by_key(id, |entry| entry.id).ok();
    let places: BTreeSet<usize> = ids[..looked_up].iter().filter_map(found).collect();
    let doomed: Vec<Entry> = places.into_iter().map(|at| entries[at].clone()).collect();
    if !doomed.is_empty() {
        delete_from(exec, key, stream, &node, &doomed)?;
    }
    Ok((looked_up, doomed.into_iter().map(|entry| entry.id).collect()))
}

/// Deletes entries of a node, which are in the order of their IDs.
pub(super) fn delete_from(
    exec: &mut Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &mut Stream,
    node: &Node,
    entries: &[Entry],
) -> CommandResult<()> {
    let count = entries.len() as u64;
    stream.len = stream.len.checked_sub(count).ok_or_else(corrupt)?;
    if count < node.live() {
        let row = node_row(key, stream, node.id);
        exec.put_element(key, row, Some(node.bytes()), node.without(entries));
        return Ok(());
    }
    exec.delete_element(key, node_row(key, stream, node.id), node.bytes());
    stream.nodes = stream.nodes.checked_sub(1).ok_or_else(corrupt)?;
    if stream.nodes == 0 {
        (stream.first_node, stream.last_node) = Default::default();
    } else if node.id == stream.last_node {
        stream.last_node = node.previous();
    } else {
        let next = next_node(exec, key, stream, node.id)?.ok_or_else(corrupt)?;
        if node.id == stream.first_node {
            // Nothing reads which node is before the first one.
            stream.first_node = next.id;
        } else {
            let row = node_row(key, stream, next.id);
            exec.put_element(key, row, Some(next.bytes()), next.behind(node.previous()));
        }
    }
    Ok(())
}

/// Deletes whole nodes from the first one on, which are in order, with the bytes of their values.
pub(super) fn delete_nodes(
    exec: &mut Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &mut Stream,
    nodes: &[(StreamId, usize)],
) -> CommandResult<()> {
    for (id, bytes) in nodes {
        exec.delete_element(key, node_row(key, stream, *id), *bytes);
    }
    let Some((last, _)) = nodes.last() else { return Ok(()) };
    stream.nodes = stream.nodes.checked_sub(nodes.len() as u64).ok_or_else(corrupt)?;
    if stream.nodes == 0 {
        (stream.first_node, stream.last_node) = Default::default();
    } else {
        stream.first_node = next_node(exec, key, stream, *last)?.ok_or_else(corrupt)?.id;
    }
    Ok(())
}

/// Reads the first entry's ID again, after entries were deleted.
pub(super) fn find_first(exec: &Exec<'_, '_>, key: &KeyRef<'_>, stream: &mut Stream) -> CommandResult<()> {
    stream.first_id = match stream.len {
        0 => StreamId::MIN,
        _ => {
            let first = get(exec, key, stream, stream.first_node)?;
            first.entries()?.first().ok_or_else(corrupt)?.id
        }
    };
    Ok(())
}

/// Visits the nodes from the first one on.
pub(crate) fn from_first_node(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
    visit: &mut VisitNode<'_>,
) -> CommandResult<()> {
    if stream.nodes == 0 {
        return Ok(());
    }
    let from = node_row(key, stream, stream.first_node);
    visit_nodes(exec, key, stream, (&from, stream.last_node), visit)
}
