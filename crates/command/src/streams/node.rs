//! A node of a stream: a row with up to 100 consecutive entries, and its value.
//!
//! ```text
//! version u8 = 1 | previous node's ID, 16 bytes | ID of the last appended entry, 16 bytes
//! | entries that were ever in it u16 | entries u16 | weight u32
//! | number of fields varint | field * | entry *
//! entry: milliseconds after the node's ID varint | sequence varint | shape varint | ...
//! shape 0:                    value *               the entry has the node's fields
//! shape n: number of fields:  (field | value) *
//! ```
//!
//! Fields and values are byte strings (`varint`). The node's fields are those of its first entry.
//! The node's ID is that of the first entry that was ever in it.
//!
//! The weight is the number of bytes that Redis's listpack of the node would have. A node is full
//! when Redis's would be, so that approximate trimming removes what Redis would remove.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use storage::{StorageError, StreamId};

use crate::varint::{put_bytes, put_varint, Rest, VARINT_BYTES_MAX};

const VERSION: u8 = 1;
const HEADER_LEN: usize = 1 + 2 * StreamId::LEN + 2 + 2 + 4;
/// Redis's `stream-node-max-entries`: maximum number of entries that a node ever gets.
pub(super) const ENTRIES_MAX: u16 = 100;
/// Redis's `stream-node-max-bytes`.
const WEIGHT_MAX: u64 = 4096;

#[derive(Clone, Copy)]
struct Header {
    previous: StreamId,
    last: StreamId,
    appended: u16,
    live: u16,
    weight: u32,
}

impl Header {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(VERSION);
        out.put_slice(&self.previous.to_bytes());
        out.put_slice(&self.last.to_bytes());
        out.put_u16(self.appended);
        out.put_u16(self.live);
        out.put_u32(self.weight);
    }

    fn decode(row: &[u8]) -> Option<Header> {
        let (&[VERSION], rest) = row.split_first_chunk::<1>()? else { return None };
        let (previous, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let (appended, rest) = rest.split_first_chunk()?;
        let (live, rest) = rest.split_first_chunk()?;
        let (weight, _) = rest.split_first_chunk()?;
        Some(Header {
            previous: StreamId::from_bytes(*previous),
            last: StreamId::from_bytes(*last),
            appended: u16::from_be_bytes(*appended),
            live: u16::from_be_bytes(*live),
            weight: u32::from_be_bytes(*weight),
        })
    }
}

pub(super) fn corrupt() -> StorageError {
    StorageError::Corrupt("a node of a stream cannot be read".into())
}

/// A node. Its entries stay in the encoding of the row.
pub(super) struct Node {
    pub id: StreamId,
    header: Header,
    value: Bytes,
    /// The ranges of the fields' names.
    fields: Vec<Range<usize>>,
    /// The offset of the first entry.
    first: usize,
}

/// An entry within a node's value.
#[derive(Clone)]
pub(super) struct Entry {
    pub id: StreamId,
    range: Range<usize>,
    /// The offset of the part behind the shape.
    parts: usize,
    shape: usize,
}

fn is_full(weight: u64, appended: u16, pairs: &[Bytes]) -> bool {
    let added: u64 = pairs.iter().map(|part| part.len() as u64).sum();
    weight + added >= WEIGHT_MAX || appended >= ENTRIES_MAX
}

impl Node {
    /// # Errors
    /// [`StorageError::Corrupt`] if the value cannot be decoded.
    pub fn decode(id: StreamId, value: Bytes) -> storage::Result<Node> {
        let header = Header::decode(&value).ok_or_else(corrupt)?;
        let mut rest = Rest { row: &value, at: HEADER_LEN };
        let count = rest.varint().ok_or_else(corrupt)?;
        let mut fields = Vec::new();
        for _ in 0..count {
            fields.push(rest.bytes().ok_or_else(corrupt)?);
        }
        let first = rest.at;
        Ok(Node { id, header, value, fields, first })
    }

    /// Returns the number of entries in a value, and the ID of the last one that was appended.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if the value cannot be decoded.
    pub fn count_and_last(value: &[u8]) -> storage::Result<(u64, StreamId)> {
        let header = Header::decode(value).ok_or_else(corrupt)?;
        Ok((header.live.into(), header.last))
    }

    pub fn previous(&self) -> StreamId {
        self.header.previous
    }

    /// Returns true if an entry with this ID is in this node or does not exist.
    pub fn covers(&self, id: StreamId) -> bool {
        (self.id..=self.header.last).contains(&id)
    }

    pub fn live(&self) -> u64 {
        self.header.live.into()
    }

    /// Returns the bytes of the value.
    pub fn bytes(&self) -> usize {
        self.value.len()
    }

    /// Returns true if Redis would begin a new node for an entry of these fields and values.
    pub fn is_full(&self, pairs: &[Bytes]) -> bool {
        is_full(self.header.weight.into(), self.header.appended, pairs)
    }

    /// Returns the node's fields.
    pub fn fields(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.fields.iter().map(|field| self.value.slice(field.clone()))
    }

    fn entry(&self, rest: &mut Rest<'_>) -> Option<Entry> {
        let start = rest.at;
        let (ms, seq, shape) = (rest.varint()?, rest.varint()?, usize::try_from(rest.varint()?).ok()?);
        let id = StreamId { ms: self.id.ms.checked_add(ms)?, seq };
        let parts = rest.at;
        let count = if shape == 0 { self.fields.len() } else { shape.checked_mul(2)? };
        for _ in 0..count {
            rest.bytes()?;
        }
        Some(Entry { id, range: start..rest.at, parts, shape })
    }

    /// Returns the entries in the order of their IDs.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if an entry cannot be decoded.
    pub fn entries(&self) -> storage::Result<Vec<Entry>> {
        let mut rest = Rest { row: &self.value, at: self.first };
        let mut entries = Vec::with_capacity(usize::from(self.header.live.min(ENTRIES_MAX)));
        while rest.at < self.value.len() {
            entries.push(self.entry(&mut rest).ok_or_else(corrupt)?);
        }
        match entries.len() as u64 == self.live() {
            true => Ok(entries),
            false => Err(corrupt()),
        }
    }

    /// Returns the fields and values of an entry in alternation. They share the node's memory.
    pub fn parts(&self, entry: &Entry) -> Vec<Bytes> {
        let mut rest = Rest { row: &self.value, at: entry.parts };
        let mut next = || self.value.slice(rest.bytes().expect("the entry is decoded"));
        match entry.shape {
            0 => self.fields.iter().flat_map(|field| [self.value.slice(field.clone()), next()]).collect(),
            count => (0..2 * count).map(|_| next()).collect(),
        }
    }

    fn has_fields(&self, pairs: &[Bytes]) -> bool {
        let fields = pairs.chunks_exact(2).map(|pair| &pair[0][..]);
        self.fields.iter().map(|field| &self.value[field.clone()]).eq(fields)
    }

    /// Returns the value with an entry appended, whose ID is larger than all others.
    pub fn appended(&self, id: StreamId, pairs: &[Bytes]) -> Bytes {
        let shape = if self.has_fields(pairs) { 0 } else { pairs.len() / 2 };
        let weight = u64::from(self.header.weight) + entry_weight(self.id, id, shape, pairs);
        let header = Header {
            last: id,
            appended: self.header.appended.saturating_add(1),
            live: self.header.live.saturating_add(1),
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            ..self.header
        };
        let entry = encode_entry(self.id, id, shape, pairs);
        let mut out = BytesMut::with_capacity(self.value.len() + entry.len());
        header.encode(&mut out);
        out.put_slice(&self.value[HEADER_LEN..]);
        out.put_slice(&entry);
        out.freeze()
    }

    /// Returns the value without some entries, but at least one.
    pub fn without(&self, entries: &[Entry]) -> Bytes {
        let live = self.header.live.saturating_sub(entries.len() as u16);
        let mut out = BytesMut::with_capacity(self.value.len());
        Header { live, ..self.header }.encode(&mut out);
        let mut at = HEADER_LEN;
        for entry in entries {
            out.put_slice(&self.value[at..entry.range.start]);
            at = entry.range.end;
        }
        out.put_slice(&self.value[at..]);
        out.freeze()
    }

    /// Returns the value with another previous node.
    pub fn behind(&self, previous: StreamId) -> Bytes {
        let mut out = BytesMut::with_capacity(self.value.len());
        Header { previous, ..self.header }.encode(&mut out);
        out.put_slice(&self.value[HEADER_LEN..]);
        out.freeze()
    }
}

/// Returns the value of a new node with one entry.
pub(super) fn new_value(previous: StreamId, id: StreamId, pairs: &[Bytes]) -> Bytes {
    let mut node = Open::begin(id, pairs.iter().step_by(2).cloned().collect());
    node.push(id, pairs);
    node.value(previous)
}

/// A node that is being built.
struct Open {
    id: StreamId,
    fields: Vec<Bytes>,
    /// The bytes of the entries.
    entries: Vec<u8>,
    last: StreamId,
    count: u16,
    weight: u64,
}

impl Open {
    fn begin(id: StreamId, fields: Vec<Bytes>) -> Open {
        // The listpack's header and end, the counts of entries and of deleted ones, the fields, and
        // a terminator.
        let weight = 7
            + number_weight(1)
            + number_weight(0)
            + number_weight(fields.len() as i64)
            + fields.iter().map(|field| text_weight(field)).sum::<u64>()
            + number_weight(0);
        Open { id, fields, entries: Vec::new(), last: id, count: 0, weight }
    }

    /// Returns true if the entry has the node's fields.
    fn has_fields(&self, pairs: &[Bytes]) -> bool {
        // Entries of a payload share the memory of equal names.
        let is_same = |a: &Bytes, b: &Bytes| (a.as_ptr(), a.len()) == (b.as_ptr(), b.len()) || a == b;
        2 * self.fields.len() == pairs.len()
            && self.fields.iter().zip(pairs.iter().step_by(2)).all(|(a, b)| is_same(a, b))
    }

    fn is_full(&self, pairs: &[Bytes]) -> bool {
        is_full(self.weight, self.count, pairs)
    }

    fn push(&mut self, id: StreamId, pairs: &[Bytes]) {
        let shape = if self.has_fields(pairs) { 0 } else { pairs.len() / 2 };
        self.weight += entry_weight(self.id, id, shape, pairs);
        self.entries.extend(encode_entry(self.id, id, shape, pairs));
        self.count = self.count.saturating_add(1);
        self.last = id;
    }

    fn value(&self, previous: StreamId) -> Bytes {
        let mut names = Vec::new();
        put_varint(self.fields.len() as u64, &mut names);
        self.fields.iter().for_each(|field| put_bytes(field, &mut names));
        let mut out = BytesMut::with_capacity(HEADER_LEN + names.len() + self.entries.len());
        let weight = u32::try_from(self.weight).unwrap_or(u32::MAX);
        let header = Header { previous, last: self.last, appended: self.count, live: self.count, weight };
        header.encode(&mut out);
        out.put_slice(&names);
        out.put_slice(&self.entries);
        out.freeze()
    }
}

/// Builds the nodes of a stream from its entries in order.
#[derive(Default)]
pub(super) struct Builder {
    open: Option<Open>,
    /// The entries that were ever in the open node, and its bytes, in Redis. `None` if an earlier
    /// node has a part of Redis's.
    redis: Option<(u64, u64)>,
    previous: StreamId,
}

/// The ID and the value of a node.
pub(super) type Built = (StreamId, Bytes);

impl Builder {
    /// Begins a node as Redis has it: with the entries that were ever in it, and its bytes. Returns
    /// the one before.
    pub fn begin(&mut self, id: StreamId, fields: Vec<Bytes>, redis: (u64, u64)) -> Option<Built> {
        let built = self.finish();
        self.open = Some(Open::begin(id, fields));
        self.redis = Some(redis);
        built
    }

    /// Adds an entry. Returns a node that has become full before.
    pub fn push(&mut self, id: StreamId, pairs: &[Bytes]) -> Option<Built> {
        let is_full = self.open.as_ref().is_none_or(|node| node.count > 0 && node.is_full(pairs));
        let built = if is_full { self.finish() } else { None };
        let fields = || pairs.iter().step_by(2).cloned().collect();
        self.open.get_or_insert_with(|| Open::begin(id, fields())).push(id, pairs);
        built
    }

    /// Returns the last node, unless it has no entries.
    pub fn finish(&mut self) -> Option<Built> {
        let redis = self.redis.take();
        let node = self.open.take().filter(|node| node.count > 0)?;
        let value = node.value(self.previous);
        self.previous = node.id;
        let Some((entries, bytes)) = redis else { return Some((node.id, value)) };
        // The deleted entries count, so that Redis and this node are full at the same time.
        let mut header = Header::decode(&value)?;
        header.appended = header.appended.max(u16::try_from(entries).unwrap_or(u16::MAX));
        header.weight = header.weight.max(u32::try_from(bytes).unwrap_or(u32::MAX));
        let mut out = BytesMut::with_capacity(value.len());
        header.encode(&mut out);
        out.put_slice(&value[HEADER_LEN..]);
        Some((node.id, out.freeze()))
    }
}

fn encode_entry(node: StreamId, id: StreamId, shape: usize, pairs: &[Bytes]) -> Vec<u8> {
    let length: usize = pairs.iter().map(|part| part.len() + VARINT_BYTES_MAX).sum();
    let mut out = Vec::with_capacity(3 * VARINT_BYTES_MAX + length);
    put_varint(id.ms.wrapping_sub(node.ms), &mut out);
    put_varint(id.seq, &mut out);
    put_varint(shape as u64, &mut out);
    for pair in pairs.chunks_exact(2) {
        if shape != 0 {
            put_bytes(&pair[0], &mut out);
        }
        put_bytes(&pair[1], &mut out);
    }
    out
}

/// Returns the bytes that an entry adds to Redis's listpack.
fn entry_weight(node: StreamId, id: StreamId, shape: usize, pairs: &[Bytes]) -> u64 {
    let count = pairs.len() as i64 / 2;
    let own_fields = shape != 0;
    let mut weight = number_weight(0)
        + number_weight(id.ms.wrapping_sub(node.ms) as i64)
        + number_weight(id.seq.wrapping_sub(node.seq) as i64)
        + number_weight(if own_fields { 2 * count + 4 } else { count + 3 });
    if own_fields {
        weight += number_weight(count);
    }
    for pair in pairs.chunks_exact(2) {
        weight += text_weight(&pair[1]) + if own_fields { text_weight(&pair[0]) } else { 0 };
    }
    weight
}

/// Returns the bytes of an integer in a listpack, with the length that follows it.
fn number_weight(number: i64) -> u64 {
    1 + match number {
        0..=127 => 1,
        -4096..=4095 => 2,
        -32_768..=32_767 => 3,
        -8_388_608..=8_388_607 => 4,
        -2_147_483_648..=2_147_483_647 => 5,
        _ => 9,
    }
}

/// Returns the bytes of a string in a listpack, with the length that follows it.
fn text_weight(text: &[u8]) -> u64 {
    if let Some(number) = resp::parse_integer(text) {
        return number_weight(number);
    }
    let length = text.len() as u64;
    let encoded = length
        + match length {
            0..=63 => 1,
            64..=4095 => 2,
            _ => 5,
        };
    encoded
        + match encoded {
            0..=127 => 1,
            128..=16_382 => 2,
            16_383..=2_097_150 => 3,
            2_097_151..=268_435_454 => 4,
            _ => 5,
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(texts: &[&str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
    }

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn node(id: StreamId, value: &Bytes) -> Node {
        Node::decode(id, value.clone()).unwrap()
    }

    #[test]
    fn entries_are_appended_and_removed() {
        let first = id(5, 7);
        let mut value = new_value(id(1, 1), first, &pairs(&["a", "1", "b", "2"]));
        let added = [
            (id(5, 8), pairs(&["a", "3", "b", "4"])),
            (id(6, 0), pairs(&["b", "3"])),
            (id(u64::MAX, u64::MAX), pairs(&["a", "", "b", "", "a", "x"])),
        ];
        for (id, pairs) in &added {
            value = node(first, &value).appended(*id, pairs);
        }
        let of = |node: &Node| -> Vec<(StreamId, Vec<Bytes>)> {
            node.entries().unwrap().iter().map(|entry| (entry.id, node.parts(entry))).collect()
        };
        let full = node(first, &value);
        let mut all = vec![(first, pairs(&["a", "1", "b", "2"]))];
        all.extend(added);
        assert_eq!(of(&full), all);
        let entries = full.entries().unwrap();
        let less = node(first, &full.without(&[entries[0].clone(), entries[2].clone()]));
        assert_eq!(of(&less), [all[1].clone(), all[3].clone()]);
        assert_eq!((less.previous(), less.live()), (id(1, 1), 2));
        assert_eq!(Node::count_and_last(&less.value).unwrap(), (2, id(u64::MAX, u64::MAX)));
        let behind = node(first, &less.behind(id(2, 2)));
        assert_eq!((behind.previous(), of(&behind)), (id(2, 2), of(&less)));
        for cut in 0..full.value.len() {
            if let Ok(node) = Node::decode(first, full.value.slice(..cut)) {
                assert!(node.entries().is_err(), "{cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_value_makes_the_decoder_panic(value in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut whole = vec![VERSION];
            whole.extend(&value);
            if let Ok(node) = Node::decode(id(1, 2), whole.into()) {
                if let Ok(entries) = node.entries() {
                    entries.iter().for_each(|entry| drop(node.parts(entry)));
                }
            }
        }
    }
}
