//! Streams: nodes of entries, numbers, and consumer groups.
//!
//! ```text
//! number of nodes | node *: ID of 16 bytes, big endian (string) | listpack (string)
//! number of entries | last ID | since type 19: first ID | largest ID deleted | entries ever added
//! number of groups | group *:
//!     name | last delivered ID | since type 19: entries read
//!     number of pending entries | pending entry *: ID of 16 bytes | time u64 | deliveries
//!     number of consumers | consumer *:
//!         name | time seen u64 | since type 21: time active u64
//!         number of the consumer's pending entries | ID of 16 bytes *
//!
//! the listpack of a node:
//! entries | deleted entries | number of fields | field * | 0 | entry *
//! entry: flags (1: deleted, 2: the node's fields) | ms and seq after the node's ID
//!     | value *, or number of fields | (field | value) * | number of the entry's parts before
//! ```
//!
//! Numbers are lengths, and an ID is two of them, unless the drawing says more. Redis writes nodes,
//! groups, consumers and pending entries in ascending order, which is required here.

use std::fmt;
use std::io::Read;

use bytes::Bytes;

use crate::listpack::Listpack;
use crate::{Error, Result, Source};

/// The numbers of the types: those of Redis 5.0, 7.0 and 7.2.
pub(crate) const STREAM: u8 = 15;
pub(crate) const STREAM_2: u8 = 19;
pub(crate) const STREAM_3: u8 = 21;

const FLAG_DELETED: i64 = 1;
pub(crate) const FLAG_SAME_FIELDS: i64 = 2;

/// Maximum number of fields of an entry.
const FIELDS_MAX: usize = 1 << 19;

const NODE: Error = Error::Damaged("a node of a stream");
const GROUP: Error = Error::Damaged("a consumer group");

/// The ID of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    pub ms: u64,
    pub seq: u64,
}

impl EntryId {
    pub const MIN: EntryId = EntryId { ms: 0, seq: 0 };
    pub const LEN: usize = 16;

    pub fn to_bytes(self) -> [u8; EntryId::LEN] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; EntryId::LEN]) -> EntryId {
        let number = u128::from_be_bytes(bytes);
        EntryId { ms: (number >> 64) as u64, seq: number as u64 }
    }

    /// Returns the smallest larger ID.
    pub fn next(self) -> Option<EntryId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(EntryId { seq, ..self }),
            None => Some(EntryId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// A part of a stream. They come in this order: nodes, each before its entries; the numbers;
/// groups, each with its consumers; each consumer with its pending entries.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamPart {
    /// The beginning of a node. A stream that is read by commands has none.
    Node {
        id: EntryId,
        /// The fields of the entry that was its first one.
        fields: Vec<Bytes>,
        /// Number of entries that were ever in it.
        entries: u64,
        /// Bytes of its listpack.
        bytes: u64,
    },
    /// An entry, with its fields and values in alternation. IDs ascend.
    Entry {
        id: EntryId,
        pairs: Vec<Bytes>,
    },
    Numbers {
        last_id: EntryId,
        max_deleted_id: EntryId,
        entries_added: u64,
    },
    /// A group. `entries_read` is -1 if it is not known.
    Group {
        name: Bytes,
        last_id: EntryId,
        entries_read: i64,
    },
    Consumer {
        name: Bytes,
        seen_ms: u64,
    },
    Pending {
        id: EntryId,
        delivered_ms: u64,
        deliveries: u64,
    },
}

impl StreamPart {
    /// Returns the bytes of the part, without any overhead.
    pub fn bytes(&self) -> usize {
        const NUMBER: usize = size_of::<u64>();
        match self {
            StreamPart::Node { fields, .. } => fields.iter().map(Bytes::len).sum(),
            StreamPart::Entry { pairs, .. } => EntryId::LEN + pairs.iter().map(Bytes::len).sum::<usize>(),
            StreamPart::Numbers { .. } => 2 * EntryId::LEN + NUMBER,
            StreamPart::Group { name, .. } => name.len() + EntryId::LEN + NUMBER,
            StreamPart::Consumer { name, .. } => name.len() + NUMBER,
            StreamPart::Pending { .. } => EntryId::LEN + 2 * NUMBER,
        }
    }
}

type Visit<'a> = dyn FnMut(StreamPart) -> Result<()> + 'a;

/// The entries that were read.
#[derive(Default)]
struct Entries {
    count: u64,
    first_id: Option<EntryId>,
    last_id: EntryId,
}

pub(crate) fn read_stream<R: Read>(number: u8, source: &mut Source<R>, visit: &mut Visit<'_>) -> Result<()> {
    let mut entries = Entries::default();
    for _ in 0..source.length()? {
        let id = source.string()?[..].try_into().map_err(|_| NODE)?;
        read_node(EntryId::from_bytes(id), source.string()?, &mut entries, visit)?;
    }
    let (count, last_id) = (source.length()?, id(source)?);
    let (max_deleted_id, entries_added) = match number {
        STREAM => (EntryId::MIN, count),
        _ => {
            // The ID of the first entry follows from the entries.
            id(source)?;
            (id(source)?, source.length()?)
        }
    };
    if count != entries.count || entries.last_id > last_id {
        return Err(Error::Damaged("the numbers of a stream"));
    }
    visit(StreamPart::Numbers { last_id, max_deleted_id, entries_added })?;
    let mut before = None;
    let mut too_many = None;
    for _ in 0..source.length()? {
        let name = source.string()?;
        if before.is_some_and(|before| before >= name) {
            return Err(GROUP);
        }
        before = Some(name.clone());
        let delivered = id(source)?;
        let entries_read = match number {
            STREAM => estimated_entries_read((entries.count, entries.first_id), last_id, delivered),
            // Redis keeps -1 as the largest number.
            _ => source.length()? as i64,
        };
        visit(StreamPart::Group { name, last_id: delivered, entries_read })?;
        match read_consumers(number, source, visit) {
            Err(error @ Error::TooManyPending(_)) => too_many = Some(error),
            result => result?,
        }
    }
    too_many.map_or(Ok(()), Err)
}

fn id<R: Read>(source: &mut Source<R>) -> Result<EntryId> {
    Ok(EntryId { ms: source.length()?, seq: source.length()? })
}

/// Returns the number of entries that a group has read, as Redis 7.0 estimates it for a stream of
/// an earlier version: from the number of entries, the IDs of the first one and of the last one
/// that was ever there, and the last one that was delivered. It is -1 if it is not known.
pub fn estimated_entries_read(
    (count, first_id): (u64, Option<EntryId>),
    last_id: EntryId,
    delivered: EntryId,
) -> i64 {
    const UNKNOWN: i64 = -1;
    match first_id {
        None => 0,
        _ if delivered == last_id => count as i64,
        _ if delivered > last_id => UNKNOWN,
        Some(first) if delivered < first => 0,
        Some(first) if delivered == first => 1,
        Some(_) => UNKNOWN,
    }
}

fn read_node(node: EntryId, bytes: Bytes, entries: &mut Entries, visit: &mut Visit<'_>) -> Result<()> {
    if entries.first_id.is_some() && node <= entries.last_id {
        return Err(NODE);
    }
    let length = bytes.len() as u64;
    let mut list = Listpack::open(bytes)?;
    let (live, deleted) = (number(&mut list)?, number(&mut list)?);
    let count = field_count(&mut list)?;
    let mut fields = Vec::new();
    for _ in 0..count {
        fields.push(text(&mut list)?);
    }
    if number(&mut list)? != 0 {
        return Err(NODE);
    }
    let ever = live.checked_add(deleted).and_then(|ever| u64::try_from(ever).ok()).ok_or(NODE)?;
    visit(StreamPart::Node { id: node, fields: fields.clone(), entries: ever, bytes: length })?;
    let (mut live_seen, mut deleted_seen) = (0, 0);
    while let Some(flags) = list.packed()? {
        let flags = flags.number().ok_or(NODE)?;
        let (ms, seq) = (number(&mut list)?, number(&mut list)?);
        // Differences are written as signed numbers, and wrap.
        let id = EntryId { ms: node.ms.wrapping_add(ms as u64), seq: node.seq.wrapping_add(seq as u64) };
        let has_same_fields = flags & FLAG_SAME_FIELDS != 0;
        let mut pairs = Vec::new();
        let parts = if has_same_fields {
            for field in &fields {
                pairs.extend([field.clone(), text(&mut list)?]);
            }
            fields.len() + 3
        } else {
            let count = field_count(&mut list)?;
            for _ in 0..count {
                pairs.extend([text(&mut list)?, text(&mut list)?]);
            }
            2 * count + 4
        };
        if number(&mut list)? != parts as i64 {
            return Err(NODE);
        }
        if flags & FLAG_DELETED != 0 {
            deleted_seen += 1;
            continue;
        }
        live_seen += 1;
        let follows = entries.first_id.is_none() || id > entries.last_id;
        if pairs.is_empty() || id < node || id == EntryId::MIN || !follows {
            return Err(NODE);
        }
        entries.count += 1;
        entries.first_id.get_or_insert(id);
        entries.last_id = id;
        visit(StreamPart::Entry { id, pairs })?;
    }
    match (live, deleted) == (live_seen, deleted_seen) {
        true => Ok(()),
        false => Err(NODE),
    }
}

fn number(list: &mut Listpack) -> Result<i64> {
    list.packed()?.and_then(|packed| packed.number()).ok_or(NODE)
}

fn text(list: &mut Listpack) -> Result<Bytes> {
    Ok(list.packed()?.ok_or(NODE)?.into_text())
}

fn field_count(list: &mut Listpack) -> Result<usize> {
    match usize::try_from(number(list)?) {
        Ok(count) if count <= FIELDS_MAX => Ok(count),
        Ok(_) => Err(Error::TooLarge("an entry of a stream has too many fields")),
        Err(_) => Err(NODE),
    }
}

/// The pending entries of a group, in the order of their IDs.
struct PendingEntries {
    all: Vec<(EntryId, u64, u64)>,
    /// True for those whose consumer was read.
    taken: Vec<bool>,
    /// True if there are more than may be kept.
    is_incomplete: bool,
}

impl PendingEntries {
    fn read<R: Read>(source: &mut Source<R>) -> Result<PendingEntries> {
        let mut pending = PendingEntries { all: Vec::new(), taken: Vec::new(), is_incomplete: false };
        let mut before = None;
        for _ in 0..source.length()? {
            let id = EntryId::from_bytes(source.array()?);
            let (delivered_ms, deliveries) = (time(source)?, source.length()?);
            if before.is_some_and(|before| before >= id) {
                return Err(GROUP);
            }
            before = Some(id);
            match pending.all.len() < source.pending_max() {
                true => pending.all.push((id, delivered_ms, deliveries)),
                false => pending.is_incomplete = true,
            }
        }
        pending.taken = vec![false; pending.all.len()];
        Ok(pending)
    }

    /// Returns a consumer's pending entry, which no other consumer has.
    fn take(&mut self, id: EntryId) -> Result<StreamPart> {
        let at = self.all.binary_search_by_key(&id, |(id, ..)| *id).map_err(|_| GROUP)?;
        match std::mem::replace(&mut self.taken[at], true) {
            true => Err(GROUP),
            false => {
                let (id, delivered_ms, deliveries) = self.all[at];
                Ok(StreamPart::Pending { id, delivered_ms, deliveries })
            }
        }
    }
}

/// Reads a time in milliseconds, which Redis keeps as a signed number.
fn time<R: Read>(source: &mut Source<R>) -> Result<u64> {
    match source.u64_le()? {
        at if i64::try_from(at).is_ok() => Ok(at),
        _ => Err(GROUP),
    }
}

fn read_consumers<R: Read>(type_number: u8, source: &mut Source<R>, visit: &mut Visit<'_>) -> Result<()> {
    let mut pending = PendingEntries::read(source)?;
    let mut before = None;
    for _ in 0..source.length()? {
        let name = source.string()?;
        if before.is_some_and(|before| before >= name) {
            return Err(GROUP);
        }
        before = Some(name.clone());
        let seen_ms = time(source)?;
        if type_number == STREAM_3 {
            // The time of the last delivery, which may be -1.
            source.u64_le()?;
        }
        visit(StreamPart::Consumer { name, seen_ms })?;
        for _ in 0..source.length()? {
            let id = EntryId::from_bytes(source.array()?);
            if !pending.is_incomplete {
                visit(pending.take(id)?)?;
            }
        }
    }
    match pending.taken.iter().all(|taken| *taken) {
        _ if pending.is_incomplete => Err(Error::TooManyPending(source.pending_max())),
        true => Ok(()),
        false => Err(GROUP),
    }
}
