//! Blocks and sections, byte by byte. Drawn in docs/FORMAT-LOG.md.
//!
//! A block lies at a multiple of [`ALIGNMENT`] in a segment: a header of [`HEADER_LEN`] bytes, then sections one after
//! the other. Integers are big-endian.

use types::RegionId;
use xxhash_rust::xxh3::{xxh3_64_with_seed, Xxh3};

use crate::disk::SegmentId;

/// Blocks begin at multiples of this, so that no two of them share a sector of a device.
pub const ALIGNMENT: u64 = 512;
pub const HEADER_LEN: usize = 64;
/// What precedes the content of a section.
pub const HEAD_LEN: usize = 24;

const MAGIC: u32 = 0x5359_4C31;

/// The secret of one log, drawn when it is made. All checksums are keyed by it, so that a value which a client wrote
/// can not pass for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret(pub u64);

/// Where a block lies, in bytes from the start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub segment: SegmentId,
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of sections that follow.
    pub length: u32,
    /// Counts the starts of this log, so that the same batch written by two of them has two checksums.
    pub incarnation: u64,
    /// From 1, without gaps, over all restarts.
    pub sequence: u64,
    /// All blocks through this sequence were on the device before this one was written.
    pub synced: u64,
    /// The checksum of the header of the block before: blocks form a chain, which no leftover of another one joins.
    pub previous: u64,
    /// Where this block lies. A block that is found elsewhere is none.
    pub position: Position,
    /// Over the heads of all sections, which hold the checksums of their contents.
    pub body: u64,
}

impl Header {
    /// Returns the bytes, the last eight of which are the header's checksum.
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

    /// Reads the header of a block at this position, and its checksum. `None` where no block of this log begins.
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

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Entries of one term. They replace whatever the log has of the region from the first one's index on.
    Entries = 1,
    /// Entries that were moved out of a segment. They replace only themselves.
    Carried = 2,
    HardState = 3,
    /// Where the region's log begins.
    Truncated = 4,
    /// The region's log begins anew, without entries.
    Begun = 5,
    /// All that the log has of the region goes, but its peer's life.
    Forgotten = 6,
    Life = 7,
    /// A value of the store as a whole.
    Value = 8,
}

impl Kind {
    fn decode(byte: u8) -> Option<Kind> {
        const ALL: [Kind; 8] = [
            Kind::Entries,
            Kind::Carried,
            Kind::HardState,
            Kind::Truncated,
            Kind::Begun,
            Kind::Forgotten,
            Kind::Life,
            Kind::Value,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What precedes the content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    /// Bytes of content.
    pub length: u32,
    /// 0 for what belongs to the store.
    pub region: RegionId,
    pub checksum: u64,
}

impl Head {
    /// The head of a section of the block with this sequence.
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

    /// Whether this is the content, and that of a block with this sequence: not of one that lay here before, or lies
    /// here since.
    pub fn matches(&self, content: &[u8], sequence: u64, secret: Secret) -> bool {
        self.length as usize == content.len()
            && self.checksum == checksum_of(self.kind, self.region, content, sequence, secret)
    }
}

fn checksum_of(kind: Kind, region: RegionId, content: &[u8], sequence: u64, secret: Secret) -> u64 {
    // Odd factors: two of the three may change without cancelling each other out by chance alone.
    let seed = secret
        .0
        .wrapping_add(sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(region.wrapping_mul(0xC2B2_AE3D_27D4_EB4F))
        .wrapping_add(u64::from(kind as u8));
    xxh3_64_with_seed(content, seed)
}

/// The checksum of a body: over its heads, in order.
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

/// The bytes that a block takes with so many bytes of sections.
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
        unknown[0] = 9;
        assert_eq!(Head::decode(&unknown), None);
    }
}
