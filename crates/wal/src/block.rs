//! Division of a batch into blocks, and the encoding of one block.

use raft::eraftpb::Entry;
use types::{LogIndex, RegionId, Term};

use crate::disk::SegmentId;
use crate::layout::{block_len, BodyChecksum, Head, Header, Kind, Position, Secret, HEADER_LEN, HEAD_LEN};
use crate::records::{self, Record, ENTRIES_HEAD_LEN};

/// Maximum bytes of a section of entries, unless it holds a single larger entry. It bounds how much
/// a reader of a few entries has to read.
const SECTION_BYTES_MAX: usize = 256 << 10;

/// The data that a batch writes for one region, or for the store. All records go into one block,
/// together with as many of the entries as fit. The remaining entries follow in later blocks.
#[derive(Debug, Default)]
pub struct Group<'a> {
    pub region: RegionId,
    pub records: Vec<Record>,
    pub entries: &'a [Entry],
    /// The content of a section of entries that is moved from another segment.
    pub carried: Option<Vec<u8>>,
}

/// The location of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub segment: SegmentId,
    /// The offset of the section's head, in bytes from the start of the segment.
    pub offset: u64,
    /// The length of its content in bytes.
    pub length: u32,
    /// The sequence of its block, which is part of the seed of the section's checksum.
    pub sequence: u64,
}

/// The change that a section makes to the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    Entries {
        region: RegionId,
        first: LogIndex,
        term: Term,
        count: u32,
        place: Place,
        is_carried: bool,
    },
    Record {
        region: RegionId,
        record: Record,
        sequence: u64,
    },
    /// The section's content is damaged. Its head is intact, so its region and its kind are known.
    Damaged {
        region: RegionId,
        kind: Kind,
        place: Place,
    },
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
    /// Starts an empty block at this position, of at most `capacity` bytes including header and
    /// padding.
    pub fn begin(position: Position, sequence: u64, capacity: u64, secret: Secret) -> Block {
        let body = vec![0; HEADER_LEN];
        let checksum = BodyChecksum::new(secret);
        Block { body, checksum, updates: Vec::new(), position, sequence, secret, capacity }
    }

    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// Returns the bytes of content that one more section may have, without regard to padding.
    fn room(&self) -> usize {
        let room = self.capacity.saturating_sub(self.body.len() as u64 + HEAD_LEN as u64);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        block_len(self.body.len() - HEADER_LEN + bytes) <= self.capacity
    }

    /// Adds a section with this content. The caller has checked that there is room.
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

    /// Adds all records of a group. If they do not all fit, adds none and returns false.
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

    /// Adds as many of the entries as fit, and returns their number.
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

    /// Adds a section read from another place. Returns false if it does not fit.
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

    /// Completes the block: encodes its header, pads it to [`crate::layout::ALIGNMENT`], and
    /// computes the checksum of its header.
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

/// Returns the number of bytes that sections with these records take.
fn sections_len(records: &[Record]) -> usize {
    records.iter().map(|record| HEAD_LEN + record.content_len()).sum()
}

impl Group<'_> {
    pub fn is_done(&self) -> bool {
        self.records.is_empty() && self.entries.is_empty() && self.carried.is_none()
    }

    /// Returns the size in bytes of the smallest block for the first part of the group: all of its
    /// records, or one entry, or the carried section.
    pub fn least_block(&self) -> u64 {
        let entry = self.entries.first().map(|entry| HEAD_LEN + ENTRIES_HEAD_LEN + records::entry_len(entry));
        let carried = self.carried.as_ref().map(|content| HEAD_LEN + content.len());
        block_len(match self.records.is_empty() {
            false => sections_len(&self.records),
            true => entry.or(carried).unwrap_or(0),
        })
    }
}
