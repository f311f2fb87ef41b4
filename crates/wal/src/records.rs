//! The contents of sections and their encodings, drawn in docs/FORMAT-LOG.md.

use bytes::{Buf, BufMut, Bytes};
use raft::eraftpb::{Entry, EntryType};
use replica::HardState;
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term};

use crate::layout::Kind;

/// The last truncated entry of a region's log; zeros if none was truncated. The log begins after
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    pub truncated_index: LogIndex,
    pub truncated_term: Term,
}

/// The lifecycle of a store's peer of a region. It is written and synced before the side effects of
/// a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerLifecycle {
    Exists {
        /// The descriptor with which the peer was created. The engine's rows hold a newer one.
        descriptor: RegionDescriptor,
        /// The parent region and the index of the split entry, if a split created the peer.
        parent: Option<(RegionId, LogIndex)>,
    },
    /// A snapshot as of this entry replaces the region's rows. If a crash interrupts that, the next
    /// start finishes it.
    Applying { descriptor: RegionDescriptor, index: LogIndex, term: Term },
    /// The region's peers on this store were removed. `peer` is the largest number that one of them
    /// had.
    Tombstone { peer: PeerId },
}

/// A small record. Entries have sections of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    HardState(HardState),
    Truncated(LogState),
    Begun(LogState),
    Forgotten,
    Life(PeerLifecycle),
    Value {
        name: Vec<u8>,
        value: Bytes,
    },
    /// The entries after this index are dropped, because some of them are damaged.
    Cut(LogIndex),
}

/// The head of a section of entries: all that the index needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntriesHead {
    pub first: LogIndex,
    pub term: Term,
    pub count: u32,
}

pub const ENTRIES_HEAD_LEN: usize = 20;
const ENTRY_HEAD_LEN: usize = 9;

/// Returns the bytes that an entry takes in a section.
pub fn entry_len(entry: &Entry) -> usize {
    ENTRY_HEAD_LEN + entry.context.len() + entry.data.len()
}

/// Appends the content of a section of entries. The entries must be contiguous and of one term.
pub fn encode_entries(entries: &[Entry], out: &mut Vec<u8>) {
    let first = entries.first().expect("a section has entries");
    out.put_u64(first.index);
    out.put_u64(first.term);
    out.put_u32(u32::try_from(entries.len()).expect("a section has fewer entries than bytes"));
    for entry in entries {
        out.put_u8(entry_type(entry.get_entry_type()));
        out.put_u32(length(&entry.context));
        out.put_u32(length(&entry.data));
        out.put_slice(&entry.context);
        out.put_slice(&entry.data);
    }
}

fn length(bytes: &Bytes) -> u32 {
    u32::try_from(bytes.len()).expect("entries are far smaller than 4 GiB")
}

fn entry_type(of: EntryType) -> u8 {
    match of {
        EntryType::EntryNormal => 0,
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
    }
}

pub fn decode_entries_head(mut content: &[u8]) -> Option<EntriesHead> {
    if content.len() < ENTRIES_HEAD_LEN {
        return None;
    }
    let head = EntriesHead { first: content.get_u64(), term: content.get_u64(), count: content.get_u32() };
    (head.count > 0 && head.first.checked_add(u64::from(head.count)).is_some()).then_some(head)
}

/// Decodes the entries of `low..high` from a section. Their bytes are copied, so that a small entry
/// does not keep a whole section in memory.
pub fn decode_entries(content: &[u8], low: LogIndex, high: LogIndex) -> Option<Vec<Entry>> {
    let head = decode_entries_head(content)?;
    let mut rest = &content[ENTRIES_HEAD_LEN..];
    let mut entries = Vec::new();
    for index in head.first..head.first + u64::from(head.count) {
        if rest.len() < ENTRY_HEAD_LEN {
            return None;
        }
        let of = match rest.get_u8() {
            0 => EntryType::EntryNormal,
            1 => EntryType::EntryConfChange,
            2 => EntryType::EntryConfChangeV2,
            _ => return None,
        };
        let (context, data) = (rest.get_u32() as usize, rest.get_u32() as usize);
        let (context_bytes, after) = rest.split_at_checked(context)?;
        let (data_bytes, after) = after.split_at_checked(data)?;
        rest = after;
        if (low..high).contains(&index) {
            let mut entry = Entry { term: head.term, index, ..Entry::default() };
            entry.set_entry_type(of);
            entry.context = Bytes::copy_from_slice(context_bytes);
            entry.data = Bytes::copy_from_slice(data_bytes);
            entries.push(entry);
        }
    }
    rest.is_empty().then_some(entries)
}

impl Record {
    pub fn kind(&self) -> Kind {
        match self {
            Record::HardState(_) => Kind::HardState,
            Record::Truncated(_) => Kind::Truncated,
            Record::Begun(_) => Kind::Begun,
            Record::Forgotten => Kind::Forgotten,
            Record::Life(_) => Kind::Life,
            Record::Value { .. } => Kind::Value,
            Record::Cut(_) => Kind::Cut,
        }
    }

    /// Returns the length in bytes of the content of its section.
    pub fn content_len(&self) -> usize {
        match self {
            Record::HardState(state) => 16 + state.vote.map_or(0, |_| 8),
            Record::Truncated(_) | Record::Begun(_) => 16,
            Record::Forgotten => 0,
            Record::Cut(_) => 8,
            Record::Value { name, value } => 4 + name.len() + value.len(),
            Record::Life(life) => {
                let mut content = Vec::new();
                encode_life(life, &mut content);
                content.len()
            }
        }
    }

    /// Appends the content of its section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::HardState(state) => {
                out.put_u64(state.term);
                out.put_u64(state.commit);
                if let Some(vote) = state.vote {
                    out.put_u64(vote);
                }
            }
            Record::Truncated(state) | Record::Begun(state) => {
                out.put_u64(state.truncated_index);
                out.put_u64(state.truncated_term);
            }
            Record::Forgotten => {}
            Record::Cut(index) => out.put_u64(*index),
            Record::Life(life) => encode_life(life, out),
            Record::Value { name, value } => {
                out.put_u32(u32::try_from(name.len()).expect("a value's name is short"));
                out.put_slice(name);
                out.put_slice(value);
            }
        }
    }

    /// Decodes the content of a section that holds no entries. Returns `None` if it is not valid
    /// for this kind.
    pub fn decode(kind: Kind, mut content: &[u8]) -> Option<Record> {
        let record = match kind {
            Kind::Entries | Kind::Carried => return None,
            Kind::HardState => {
                let (term, commit) = (take_u64(&mut content)?, take_u64(&mut content)?);
                let vote = if content.is_empty() { None } else { Some(take_u64(&mut content)?) };
                Record::HardState(HardState { term, vote, commit })
            }
            Kind::Truncated => Record::Truncated(take_log_state(&mut content)?),
            Kind::Begun => Record::Begun(take_log_state(&mut content)?),
            Kind::Forgotten => Record::Forgotten,
            Kind::Cut => Record::Cut(take_index(&mut content)?),
            Kind::Life => return decode_life(content).map(Record::Life),
            Kind::Value => {
                if content.len() < 4 {
                    return None;
                }
                let len = content.get_u32() as usize;
                let (name, value) = content.split_at_checked(len)?;
                return Some(Record::Value { name: name.to_vec(), value: Bytes::copy_from_slice(value) });
            }
        };
        content.is_empty().then_some(record)
    }
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    (bytes.len() >= 8).then(|| bytes.get_u64())
}

/// Reads an index that has a successor.
fn take_index(bytes: &mut &[u8]) -> Option<LogIndex> {
    take_u64(bytes).filter(|index| *index < LogIndex::MAX)
}

fn take_log_state(bytes: &mut &[u8]) -> Option<LogState> {
    Some(LogState { truncated_index: take_index(bytes)?, truncated_term: take_u64(bytes)? })
}

fn encode_life(life: &PeerLifecycle, out: &mut Vec<u8>) {
    match life {
        PeerLifecycle::Exists { descriptor, parent: None } => {
            out.put_u8(0);
            out.put_slice(&descriptor.encode());
        }
        PeerLifecycle::Exists { descriptor, parent: Some((parent, at)) } => {
            out.put_u8(1);
            out.put_u64(*parent);
            out.put_u64(*at);
            out.put_slice(&descriptor.encode());
        }
        PeerLifecycle::Applying { descriptor, index, term } => {
            out.put_u8(2);
            out.put_u64(*index);
            out.put_u64(*term);
            out.put_slice(&descriptor.encode());
        }
        PeerLifecycle::Tombstone { peer } => {
            out.put_u8(3);
            out.put_u64(*peer);
        }
    }
}

fn decode_life(bytes: &[u8]) -> Option<PeerLifecycle> {
    let (kind, mut rest) = bytes.split_first()?;
    let descriptor = |bytes| RegionDescriptor::decode(bytes).ok();
    match kind {
        0 => Some(PeerLifecycle::Exists { descriptor: descriptor(rest)?, parent: None }),
        1 => {
            let parent = Some((take_u64(&mut rest)?, take_u64(&mut rest)?));
            Some(PeerLifecycle::Exists { descriptor: descriptor(rest)?, parent })
        }
        2 => {
            let (index, term) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
            Some(PeerLifecycle::Applying { descriptor: descriptor(rest)?, index, term })
        }
        3 => {
            let peer = take_u64(&mut rest)?;
            rest.is_empty().then_some(PeerLifecycle::Tombstone { peer })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_cut_ones_are_none() {
        let state = LogState { truncated_index: 5, truncated_term: 2 };
        let descriptor = RegionDescriptor::founded(2, None, &[0, 1]);
        let records = [
            Record::HardState(HardState { term: 3, vote: None, commit: 9 }),
            Record::HardState(HardState { term: 3, vote: Some(0), commit: 9 }),
            Record::Truncated(state),
            Record::Begun(state),
            Record::Forgotten,
            Record::Life(PeerLifecycle::Exists { descriptor: descriptor.clone(), parent: None }),
            Record::Life(PeerLifecycle::Exists { descriptor: descriptor.clone(), parent: Some((3, 9)) }),
            Record::Life(PeerLifecycle::Applying { descriptor, index: 40, term: 6 }),
            Record::Life(PeerLifecycle::Tombstone { peer: 7 }),
            Record::Value { name: b"store".to_vec(), value: Bytes::new() },
            Record::Cut(12),
        ];
        for record in records {
            let mut content = Vec::new();
            record.encode(&mut content);
            assert_eq!(Record::decode(record.kind(), &content).as_ref(), Some(&record));
            assert_eq!(record.content_len(), content.len());
            for cut in 0..content.len() {
                // The last eight bytes of a hard state are its optional vote.
                let is_whole = matches!(record, Record::HardState(_)) && cut == 16;
                let decoded = Record::decode(record.kind(), &content[..cut]);
                assert_eq!(decoded.is_some(), is_whole, "{record:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn entries_round_trip_in_part_and_cut_ones_are_none() {
        let entry = |index| {
            let mut entry = Entry { index, term: 4, ..Entry::default() };
            entry.data = Bytes::from(vec![index as u8; index as usize]);
            entry.context = Bytes::from(vec![7; (index % 3) as usize]);
            if index == 6 {
                entry.set_entry_type(EntryType::EntryConfChangeV2);
            }
            entry
        };
        let entries: Vec<Entry> = (5..=9).map(entry).collect();
        let mut content = Vec::new();
        encode_entries(&entries, &mut content);
        assert_eq!(content.len(), ENTRIES_HEAD_LEN + entries.iter().map(entry_len).sum::<usize>());
        assert_eq!(decode_entries_head(&content), Some(EntriesHead { first: 5, term: 4, count: 5 }));
        assert_eq!(decode_entries(&content, 0, 100).as_deref(), Some(&entries[..]));
        assert_eq!(decode_entries(&content, 6, 8).as_deref(), Some(&entries[1..3]));
        for cut in 0..content.len() {
            assert_eq!(decode_entries(&content[..cut], 0, 100), None, "cut at {cut}");
        }
    }
}
