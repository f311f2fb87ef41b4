//! Writes streams as Redis 7.0 does.

use bytes::Bytes;

use crate::listpack::ListpackWriter;
use crate::source::PENDING_MAX;
use crate::stream::FLAG_SAME_FIELDS;
use crate::write::{length, string};
use crate::{EntryId, Error, Result, StreamPart};

/// Bounds of nodes, as Redis's `stream-node-max-entries` and `stream-node-max-bytes`.
const NODE_ENTRIES_MAX: u64 = 100;
const NODE_BYTES_MAX: usize = 4096;

/// Encodes the parts of a stream in their order. Parts of nodes may be missing: then nodes have
/// Redis's default bounds.
///
/// The value consists of the number of nodes, the nodes, and the tail. Only one node and the tail
/// are kept here.
#[derive(Default)]
pub struct StreamWriter {
    node: Option<NodeWriter>,
    nodes: u64,
    entries: u64,
    first_id: EntryId,
    /// The numbers of the stream.
    numbers: Vec<u8>,
    /// The groups that are complete.
    groups: Vec<u8>,
    group_count: u64,
    group: Option<GroupWriter>,
}

impl StreamWriter {
    /// Adds a part. Appends nodes that are complete to `nodes`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::TooManyPending`].
    pub fn push(&mut self, nodes: &mut Vec<u8>, part: &StreamPart) -> Result<()> {
        match part {
            StreamPart::Node { id, fields, .. } => {
                self.close_node(nodes)?;
                self.node = Some(NodeWriter::begin(*id, fields, true)?);
            }
            StreamPart::Entry { id, pairs } => {
                if self.node.as_ref().is_some_and(|node| node.is_full(pairs)) {
                    self.close_node(nodes)?;
                }
                let node = match &mut self.node {
                    Some(node) => node,
                    closed => {
                        let fields: Vec<Bytes> = pairs.iter().step_by(2).cloned().collect();
                        closed.insert(NodeWriter::begin(*id, &fields, false)?)
                    }
                };
                node.push(*id, pairs)?;
                if self.entries == 0 {
                    self.first_id = *id;
                }
                self.entries += 1;
            }
            StreamPart::Numbers { last_id, max_deleted_id, entries_added } => {
                self.close_node(nodes)?;
                length(&mut self.numbers, self.entries);
                for id in [last_id, &self.first_id, max_deleted_id] {
                    put_id(&mut self.numbers, *id);
                }
                length(&mut self.numbers, *entries_added);
            }
            StreamPart::Group { name, last_id, entries_read } => {
                self.close_group();
                let mut group = GroupWriter::default();
                string(&mut group.head, name);
                put_id(&mut group.head, *last_id);
                length(&mut group.head, *entries_read as u64);
                self.group = Some(group);
            }
            StreamPart::Consumer { name, seen_ms } => {
                if let Some(group) = &mut self.group {
                    group.close_consumer();
                    string(&mut group.consumer, name);
                    group.consumer.extend(seen_ms.to_le_bytes());
                }
            }
            StreamPart::Pending { id, delivered_ms, deliveries } => {
                if let Some(group) = &mut self.group {
                    if group.pending.len() == PENDING_MAX {
                        return Err(Error::TooManyPending(PENDING_MAX));
                    }
                    group.pending.push((*id, *delivered_ms, *deliveries));
                    group.owned += 1;
                }
            }
        }
        Ok(())
    }

    /// Appends the last node to `nodes`. Returns the number of nodes, and the tail.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn finish(mut self, nodes: &mut Vec<u8>) -> Result<(u64, Vec<u8>)> {
        self.close_node(nodes)?;
        self.close_group();
        let mut tail = self.numbers;
        length(&mut tail, self.group_count);
        tail.append(&mut self.groups);
        Ok((self.nodes, tail))
    }

    /// Returns the encoding of a whole stream.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::TooManyPending`].
    pub fn encode<'p>(parts: impl IntoIterator<Item = &'p StreamPart>) -> Result<Vec<u8>> {
        let (mut writer, mut nodes) = (StreamWriter::default(), Vec::new());
        for part in parts {
            writer.push(&mut nodes, part)?;
        }
        let (count, tail) = writer.finish(&mut nodes)?;
        let mut value = Vec::with_capacity(nodes.len() + tail.len() + size_of::<u64>() + 1);
        length(&mut value, count);
        value.append(&mut nodes);
        value.extend(tail);
        Ok(value)
    }

    fn close_node(&mut self, nodes: &mut Vec<u8>) -> Result<()> {
        if let Some(node) = self.node.take().filter(|node| node.entries > 0) {
            node.finish(nodes)?;
            self.nodes += 1;
        }
        Ok(())
    }

    fn close_group(&mut self) {
        if let Some(group) = self.group.take() {
            group.finish(&mut self.groups);
            self.group_count += 1;
        }
    }
}

fn put_id(output: &mut Vec<u8>, id: EntryId) {
    length(output, id.ms);
    length(output, id.seq);
}

/// The listpack of a node.
struct NodeWriter {
    id: EntryId,
    fields: Vec<Bytes>,
    /// The part behind the numbers of entries.
    list: ListpackWriter,
    entries: u64,
    /// True if the node has no bounds: another node begins with its own part.
    has_part: bool,
}

impl NodeWriter {
    fn begin(id: EntryId, fields: &[Bytes], has_part: bool) -> Result<NodeWriter> {
        let mut list = ListpackWriter::default();
        list.number(fields.len() as i64);
        for field in fields {
            list.text(field)?;
        }
        list.number(0);
        Ok(NodeWriter { id, fields: fields.to_vec(), list, entries: 0, has_part })
    }

    fn is_full(&self, pairs: &[Bytes]) -> bool {
        let added: usize = pairs.iter().map(Bytes::len).sum();
        // The numbers of entries take two bytes each.
        let bytes = self.list.len() + 4 + added;
        !self.has_part && (self.entries >= NODE_ENTRIES_MAX || bytes >= NODE_BYTES_MAX)
    }

    fn push(&mut self, id: EntryId, pairs: &[Bytes]) -> Result<()> {
        let count = pairs.len() / 2;
        let has_same_fields = self.fields.iter().eq(pairs.iter().step_by(2));
        self.list.number(if has_same_fields { FLAG_SAME_FIELDS } else { 0 });
        self.list.number(id.ms.wrapping_sub(self.id.ms) as i64);
        self.list.number(id.seq.wrapping_sub(self.id.seq) as i64);
        if !has_same_fields {
            self.list.number(count as i64);
        }
        for pair in pairs.chunks_exact(2) {
            if !has_same_fields {
                self.list.text(&pair[0])?;
            }
            self.list.text(&pair[1])?;
        }
        self.list.number((if has_same_fields { count + 3 } else { 2 * count + 4 }) as i64);
        self.entries += 1;
        Ok(())
    }

    fn finish(self, output: &mut Vec<u8>) -> Result<()> {
        let mut list = ListpackWriter::default();
        list.number(self.entries as i64);
        list.number(0);
        list.append(&self.list);
        string(output, &self.id.to_bytes());
        string(output, &list.finish()?);
        Ok(())
    }
}

#[derive(Default)]
struct GroupWriter {
    head: Vec<u8>,
    /// The pending entries of all consumers.
    pending: Vec<(EntryId, u64, u64)>,
    consumers: Vec<u8>,
    consumer_count: u64,
    /// The name and time of the last consumer.
    consumer: Vec<u8>,
    /// Number of the last consumer's pending entries, which are the last ones.
    owned: usize,
}

impl GroupWriter {
    fn close_consumer(&mut self) {
        if self.consumer.is_empty() {
            return;
        }
        self.consumers.append(&mut self.consumer);
        length(&mut self.consumers, self.owned as u64);
        for (id, ..) in &self.pending[self.pending.len() - self.owned..] {
            self.consumers.extend(id.to_bytes());
        }
        self.owned = 0;
        self.consumer_count += 1;
    }

    fn finish(mut self, output: &mut Vec<u8>) {
        self.close_consumer();
        self.pending.sort_unstable_by_key(|(id, ..)| *id);
        output.append(&mut self.head);
        length(output, self.pending.len() as u64);
        for (id, delivered_ms, deliveries) in &self.pending {
            output.extend(id.to_bytes());
            output.extend(delivered_ms.to_le_bytes());
            length(output, *deliveries);
        }
        length(output, self.consumer_count);
        output.append(&mut self.consumers);
    }
}
