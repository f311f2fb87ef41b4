//! The byte layout of blocks and sections, drawn in docs/FORMAT-LOG.md.
//!
//! A block starts at a multiple of [`ALIGNMENT`] in a segment. It is a header of [`HEADER_LEN`]
//! bytes, followed by its sections. Integers are big-endian.

use types::RegionId;
use xxhash_rust::xxh3::{xxh3_64_with_seed, Xxh3};

use crate::disk::SegmentId;

/// Alignment of blocks in bytes, so that no two blocks share a sector of a device.
pub const ALIGNMENT: u64 = 512;
pub const HEADER_LEN: usize = 64;
/// Bytes of the head that precedes the content of a section.
pub const HEAD_LEN: usize = 24;

const MAGIC: u32 = 0x5359_4C31;

/// A random number that is drawn when a log is created. It seeds all checksums of the log, so that
/// a value written by a client cannot be mistaken for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret(pub u64);

/// The location of a block: a segment, and the offset in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub segment: SegmentId,
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of bytes of sections that follow.
    pub length: u32,
    /// The number of this start of the log. It makes the checksums of the same batch differ if two
    /// starts write it.
    pub incarnation: u64,
    /// The position of the block in the log, counted from 1 without gaps, across restarts.
    pub sequence: u64,
    /// All blocks through this sequence were durable before this block was written.
    pub synced: u64,
    /// The checksum of the header of the previous block. It links the blocks into a chain, which no
    /// leftover block can join.
    pub previous: u64,
    /// The position of this block. A header found at another position is not valid.
    pub position: Position,
    /// The checksum of the heads of all sections. The heads hold the checksums of their contents.
    pub body: u64,
}

impl Header {
    /// Returns the encoded header. Its last eight bytes are its checksum.
    pub fn encode(&self, secret: Secret) -> [u8; HEADER_LEN] {
        let offset = u32::try_from(self.position.offset / ALIGNMENT).expect("segments have fewer than 2 TiB");
        let mut out = [0; HEADER_LEN];
        out[0..4].copy_from_slice(&MAGIC.to_be_bytes());
        out[4..8].copy_from_slice(&self.length.to_be_bytes());
        let numbers = [self.incarnation, self.sequence, self.synced, self.previous];
        for (number, place) in numbers.into_iter().zip(out[8..40].chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        out[40..44].copy_from_slice(&self.position.segment.to_be_bytes());
        out[44..48].copy_from_slice(&offset.to_be_bytes());
        out[48..56].copy_from_slice(&self.body.to_be_bytes());
        let checksum = xxh3_64_with_seed(&out[..56], secret.0);
        out[56..].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Decodes the header of a block at this position and returns it with its checksum. Returns
    /// `None` if no block of this log starts here.
    pub fn decode(bytes: &[u8], position: Position, secret: Secret) -> Option<(Header, u64)> {
        let bytes = bytes.get(..HEADER_LEN)?;
        if u32_at(bytes, 0) != MAGIC {
            return None;
        }
        let checksum = u64_at(bytes, 56);
        if checksum != xxh3_64_with_seed(&bytes[..56], secret.0) {
            return None;
        }
        let found = Position { segment: u32_at(bytes, 40), offset: u64::from(u32_at(bytes, 44)) * ALIGNMENT };
        if found != position {
            return None;
        }
        let header = Header {
            length: u32_at(bytes, 4),
            incarnation: u64_at(bytes, 8),
            sequence: u64_at(bytes, 16),
            synced: u64_at(bytes, 24),
            previous: u64_at(bytes, 32),
            position,
            body: u64_at(bytes, 48),
        };
        Some((header, checksum))
    }
}

/// The kind of content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Entries of one term. They replace all entries of the region from the index of the first one
    /// on.
    Entries = 1,
    /// Entries that were moved out of an old segment. They replace only the same entries.
    Carried = 2,
    HardState = 3,
    /// The last truncated entry of the region's log.
    Truncated = 4,
    /// The region's log restarts after an entry, without entries or hard state.
    Begun = 5,
    /// All log data of the region is dropped, except for the lifecycle of its peer.
    Forgotten = 6,
    Life = 7,
    /// A named value of the store as a whole.
    Value = 8,
    /// The region's entries after an index are dropped, because some of them are damaged.
    Cut = 9,
}

impl Kind {
    fn decode(byte: u8) -> Option<Kind> {
        const ALL: [Kind; 9] = [
            Kind::Entries,
            Kind::Carried,
            Kind::HardState,
            Kind::Truncated,
            Kind::Begun,
            Kind::Forgotten,
            Kind::Life,
            Kind::Value,
            Kind::Cut,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The head of a section, which precedes its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    /// The length of the content in bytes.
    pub length: u32,
    /// The region; 0 for a record of the store.
    pub region: RegionId,
    pub checksum: u64,
}

impl Head {
    /// Returns the head of a section that belongs to the block with this sequence.
    pub fn of(kind: Kind, region: RegionId, content: &[u8], sequence: u64, secret: Secret) -> Head {
        let length = u32::try_from(content.len()).expect("sections have fewer than 4 GiB");
        let checksum = checksum_of(kind, region, content, sequence, secret);
        Head { kind, length, region, checksum }
    }

    pub fn encode(&self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        out[0] = self.kind as u8;
        out[4..8].copy_from_slice(&self.length.to_be_bytes());
        out[8..16].copy_from_slice(&self.region.to_be_bytes());
        out[16..].copy_from_slice(&self.checksum.to_be_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let bytes = bytes.get(..HEAD_LEN)?;
        let kind = Kind::decode(bytes[0]).filter(|_| bytes[1..4] == [0; 3])?;
        let (length, region, checksum) = (u32_at(bytes, 4), u64_at(bytes, 8), u64_at(bytes, 16));
        Some(Head { kind, length, region, checksum })
    }

    /// Returns true if `content` is the content of this section, written in the block with this
    /// sequence. An older or newer section at the same place does not match.
    pub fn matches(&self, content: &[u8], sequence: u64, secret: Secret) -> bool {
        self.length as usize == content.len()
            && self.checksum == checksum_of(self.kind, self.region, content, sequence, secret)
    }
}

fn checksum_of(kind: Kind, region: RegionId, content: &[u8], sequence: u64, secret: Secret) -> u64 {
    // Odd multipliers keep changes of two of the inputs from simply cancelling each other out.
    let seed = secret
        .0
        .wrapping_add(sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(region.wrapping_mul(0xC2B2_AE3D_27D4_EB4F))
        .wrapping_add(u64::from(kind as u8));
    xxh3_64_with_seed(content, seed)
}

/// The checksum of a body, computed over the heads of its sections in order.
pub struct BodyChecksum(Xxh3);

impl BodyChecksum {
    pub fn new(secret: Secret) -> BodyChecksum {
        BodyChecksum(Xxh3::with_seed(secret.0))
    }

    pub fn add(&mut self, head: &[u8]) {
        self.0.update(head);
    }

    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

/// Returns the bytes that a block with `body` bytes of sections takes, padding included.
pub fn block_len(body: usize) -> u64 {
    (HEADER_LEN as u64 + body as u64).next_multiple_of(ALIGNMENT)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret(77);

    #[test]
    fn a_header_is_one_only_where_it_was_written_and_as_it_was_written() {
        let position = Position { segment: 3, offset: 5 * ALIGNMENT };
        let header = Header {
            length: 700,
            incarnation: 2,
            sequence: 9,
            synced: 8,
            previous: 1 << 60,
            position,
            body: 5,
        };
        let bytes = header.encode(SECRET);
        let read = Header::decode(&bytes, position, SECRET).expect("a header");
        assert_eq!(read, (header, u64_at(&bytes, 56)));
        assert_eq!(Header::decode(&bytes, Position { segment: 4, ..position }, SECRET), None);
        assert_eq!(Header::decode(&bytes, Position { offset: 4 * ALIGNMENT, ..position }, SECRET), None);
        assert_eq!(Header::decode(&bytes, position, Secret(78)), None);
        for byte in 0..HEADER_LEN {
            let mut damaged = bytes;
            damaged[byte] ^= 0x10;
            assert_eq!(Header::decode(&damaged, position, SECRET), None, "byte {byte}");
            assert_eq!(Header::decode(&bytes[..byte], position, SECRET), None, "{byte} bytes");
        }
    }

    #[test]
    fn a_section_belongs_to_its_region_its_kind_and_its_block() {
        let head = Head::of(Kind::Life, 7, b"content", 40, SECRET);
        assert_eq!(Head::decode(&head.encode()), Some(head));
        assert!(head.matches(b"content", 40, SECRET));
        assert!(!head.matches(b"content", 41, SECRET) && !head.matches(b"contenu", 40, SECRET));
        assert!(!Head { region: 8, ..head }.matches(b"content", 40, SECRET));
        assert!(!Head { kind: Kind::Value, ..head }.matches(b"content", 40, SECRET));
        let mut unknown = head.encode();
        unknown[0] = 10;
        assert_eq!(Head::decode(&unknown), None);
    }
}
