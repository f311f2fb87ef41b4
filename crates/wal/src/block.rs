//! What is to be written, cut into blocks.

use raft::eraftpb::Entry;
use types::{LogIndex, RegionId, Term};

use crate::disk::SegmentId;
use crate::layout::{block_len, BodyChecksum, Head, Header, Kind, Position, Secret, HEADER_LEN, HEAD_LEN};
use crate::records::{self, Record, ENTRIES_HEAD_LEN};

/// Sections of entries end here, so that a reader of few entries reads few others.
const SECTION_BYTES_MAX: usize = 256 << 10;

/// What one region, or the store, has to write. Its records come to lie in one block, with as many of the entries as
/// have room; the other entries follow in later ones.
#[derive(Debug, Default)]
pub struct Group<'a> {
    pub region: RegionId,
    pub records: Vec<Record>,
    pub entries: &'a [Entry],
    /// The content of a section of entries that is moved.
    pub carried: Option<Vec<u8>>,
}

/// Where a section lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub segment: SegmentId,
    /// Of its head, from the start of the segment.
    pub offset: u64,
    /// Bytes of its content.
    pub length: u32,
    /// The block's, by which its checksum is keyed.
    pub sequence: u64,
}

/// What a section means to the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    Entries { region: RegionId, first: LogIndex, term: Term, count: u32, place: Place, is_carried: bool },
    Record { region: RegionId, record: Record, sequence: u64 },
}

/// A block that is being filled.
pub struct Block {
    body: Vec<u8>,
    checksum: BodyChecksum,
    pub updates: Vec<Update>,
    position: Position,
    sequence: u64,
    secret: Secret,
    capacity: u64,
}

impl Block {
    /// A block for this place, of at most `capacity` bytes with all that belongs to it.
    pub fn begin(position: Position, sequence: u64, capacity: u64, secret: Secret) -> Block {
        let body = vec![0; HEADER_LEN];
        let checksum = BodyChecksum::new(secret);
        Block { body, checksum, updates: Vec::new(), position, sequence, secret, capacity }
    }

    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// Bytes of content that a further section may have.
    fn room(&self) -> usize {
        let room = self.capacity.saturating_sub(self.body.len() as u64 + HEAD_LEN as u64);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        block_len(self.body.len() - HEADER_LEN + bytes) <= self.capacity
    }

    /// Adds a section with this content. The caller has made sure of the room.
    fn push(&mut self, kind: Kind, region: RegionId, encode: impl FnOnce(&mut Vec<u8>)) -> Place {
        let at = self.body.len();
        self.body.resize(at + HEAD_LEN, 0);
        encode(&mut self.body);
        let head = Head::of(kind, region, &self.body[at + HEAD_LEN..], self.sequence, self.secret);
        let bytes = head.encode();
        self.checksum.add(&bytes);
        self.body[at..at + HEAD_LEN].copy_from_slice(&bytes);
        let Position { segment, offset } = self.position;
        Place { segment, offset: offset + at as u64, length: head.length, sequence: self.sequence }
    }

    /// Adds all of a group's records, or none if they have no room together.
    pub fn push_records(&mut self, region: RegionId, records: &[Record]) -> bool {
        if !self.has_room_for(sections_len(records)) {
            return false;
        }
        for record in records {
            let place = self.push(record.kind(), region, |out| record.encode(out));
            let (record, sequence) = (record.clone(), place.sequence);
            self.updates.push(Update::Record { region, record, sequence });
        }
        true
    }

    /// Adds as many of the entries as have room, and returns their number.
    pub fn push_entries(&mut self, region: RegionId, entries: &[Entry]) -> usize {
        let mut done = 0;
        while done < entries.len() {
            let rest = &entries[done..];
            let term = rest[0].term;
            let room = self.room();
            let (mut count, mut bytes) = (0, ENTRIES_HEAD_LEN);
            for entry in rest.iter().take_while(|entry| entry.term == term) {
                let with_it = bytes + records::entry_len(entry);
                let is_full = with_it > SECTION_BYTES_MAX && count > 0;
                if is_full || with_it > room || !self.has_room_for(HEAD_LEN + with_it) {
                    break;
                }
                (count, bytes) = (count + 1, with_it);
            }
            if count == 0 {
                break;
            }
            let part = &rest[..count];
            let place = self.push(Kind::Entries, region, |out| records::encode_entries(part, out));
            let (first, count_of) = (part[0].index, count as u32);
            let update = Update::Entries { region, first, term, count: count_of, place, is_carried: false };
            self.updates.push(update);
            done += count;
        }
        done
    }

    /// Adds a section that was read from another place, unless it has no room.
    pub fn push_carried(&mut self, region: RegionId, content: &[u8]) -> bool {
        if !self.has_room_for(HEAD_LEN + content.len()) {
            return false;
        }
        let head = records::decode_entries_head(content).expect("a section of entries was read");
        let place = self.push(Kind::Carried, region, |out| out.extend_from_slice(content));
        let (first, term, count) = (head.first, head.term, head.count);
        self.updates.push(Update::Entries { region, first, term, count, place, is_carried: true });
        true
    }

    /// The block as it is written, padded, and the checksum of its header.
    pub fn finish(mut self, incarnation: u64, synced: u64, previous: u64) -> Finished {
        let length = self.body.len() - HEADER_LEN;
        let header = Header {
            length: u32::try_from(length).expect("segments have fewer than 4 GiB"),
            incarnation,
            sequence: self.sequence,
            synced,
            previous,
            position: self.position,
            body: self.checksum.finish(),
        };
        let bytes = header.encode(self.secret);
        let checksum = crate::layout::u64_at(&bytes, HEADER_LEN - 8);
        self.body[..HEADER_LEN].copy_from_slice(&bytes);
        self.body.resize(block_len(length) as usize, 0);
        Finished { position: self.position, bytes: self.body, updates: self.updates, checksum }
    }
}

/// A block that is ready to be written.
pub struct Finished {
    pub position: Position,
    pub bytes: Vec<u8>,
    pub updates: Vec<Update>,
    pub checksum: u64,
}

/// The bytes of sections with these records.
fn sections_len(records: &[Record]) -> usize {
    records.iter().map(|record| HEAD_LEN + record.content_len()).sum()
}

impl Group<'_> {
    pub fn is_done(&self) -> bool {
        self.records.is_empty() && self.entries.is_empty() && self.carried.is_none()
    }

    /// The least bytes of a block for what comes first in the group: all of its records, or one entry, or what is carried.
    pub fn least_block(&self) -> u64 {
        let entry = self.entries.first().map(|entry| HEAD_LEN + ENTRIES_HEAD_LEN + records::entry_len(entry));
        let carried = self.carried.as_ref().map(|content| HEAD_LEN + content.len());
        block_len(match self.records.is_empty() {
            false => sections_len(&self.records),
            true => entry.or(carried).unwrap_or(0),
        })
    }
}
