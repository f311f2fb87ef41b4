//! The search for blocks in one segment, used at start and by `steelyard log dump`.

use types::RegionId;

use crate::block::{Place, Update};
use crate::disk::{Disk, DiskError, SegmentId};
use crate::failpoints::Failpoint;
use crate::layout::{
    block_len, BodyChecksum, Head, Header, Kind, Position, Secret, ALIGNMENT, HEADER_LEN, HEAD_LEN,
};
use crate::records::{decode_entries_head, Record};

/// Number of bytes of a segment read at once.
const WINDOW_BYTES: u64 = 1 << 20;

/// A block whose header is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub header: Header,
    /// The checksum of the header, which the next block stores as `previous`.
    pub checksum: u64,
    /// The index updates of its sections. `None` if the head of a section is damaged, so that the
    /// regions of the block are unknown.
    pub updates: Option<Vec<Update>>,
}

impl Found {
    /// Returns true if nothing in the block is damaged.
    pub fn is_whole(&self) -> bool {
        let is_damaged = |update: &Update| matches!(update, Update::Damaged { .. });
        self.updates.as_ref().is_some_and(|updates| !updates.iter().any(is_damaged))
    }
}

/// Finds the blocks of a segment of `len` bytes, in order of their offsets. Blocks with a sequence
/// below `first` are not needed, so only their headers are read and checked.
pub fn scan(
    disk: &impl Disk,
    segment: SegmentId,
    len: u64,
    first: u64,
    secret: Secret,
) -> Result<Vec<Found>, DiskError> {
    let mut found = Vec::new();
    let mut window = Window { disk, segment, len, begin: 0, bytes: Vec::new() };
    let mut offset = 0;
    while offset < len {
        let position = Position { segment, offset };
        let mut step = ALIGNMENT;
        if let Some((header, checksum)) = Header::decode(window.at(offset, HEADER_LEN)?, position, secret) {
            let updates = match header.sequence >= first {
                true => {
                    let block = window.at(offset, HEADER_LEN.saturating_add(header.length as usize))?;
                    read_body(&header, &block[HEADER_LEN..], secret)
                }
                false => Some(Vec::new()),
            };
            let block = Found { header, checksum, updates };
            // Bytes inside a whole block that look like a block are part of a value, so skip them.
            if block.is_whole() && block.header.sequence >= first {
                step = block_len(block.header.length as usize);
            }
            found.push(block);
        }
        offset += step;
    }
    Ok(found)
}

/// The part of a segment that is in memory: a window, or the current block if that is larger.
struct Window<'a, D> {
    disk: &'a D,
    segment: SegmentId,
    len: u64,
    begin: u64,
    bytes: Vec<u8>,
}

impl<D: Disk> Window<'_, D> {
    /// Returns the bytes of the segment from `offset` on: at least `count`, or fewer if the segment
    /// ends before.
    fn at(&mut self, offset: u64, count: usize) -> Result<&[u8], DiskError> {
        let wanted = offset.saturating_add(count as u64).min(self.len);
        let is_here = self.begin <= offset && wanted <= self.begin + self.bytes.len() as u64;
        if !is_here {
            let end = wanted.max(offset.saturating_add(WINDOW_BYTES)).min(self.len);
            self.bytes.clear();
            self.bytes.shrink_to(WINDOW_BYTES as usize);
            self.bytes.resize((end - offset) as usize, 0);
            self.disk.read(self.segment, offset, &mut self.bytes)?;
            self.begin = offset;
        }
        Ok(&self.bytes[(offset - self.begin) as usize..])
    }
}

fn read_body(header: &Header, rest: &[u8], secret: Secret) -> Option<Vec<Update>> {
    let body = rest.get(..header.length as usize)?;
    let mut checksum = BodyChecksum::new(secret);
    let mut updates = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let head = Head::decode(&body[at..])?;
        checksum.add(&body[at..at + HEAD_LEN]);
        let content_at = at + HEAD_LEN;
        let content = body.get(content_at..content_at.checked_add(head.length as usize)?)?;
        let Position { segment, offset } = header.position;
        let place = Place {
            segment,
            offset: offset + (HEADER_LEN + at) as u64,
            length: head.length,
            sequence: header.sequence,
        };
        let is_whole = head.matches(content, header.sequence, secret) || Failpoint::TornBlockTaken.is_on();
        updates.push(match is_whole {
            true => update_of(head.kind, head.region, content, place)?,
            false => Update::Damaged { region: head.region, kind: head.kind, place },
        });
        at = content_at + content.len();
    }
    (checksum.finish() == header.body).then_some(updates)
}

fn update_of(kind: Kind, region: RegionId, content: &[u8], place: Place) -> Option<Update> {
    if matches!(kind, Kind::Entries | Kind::Carried) {
        let head = decode_entries_head(content)?;
        let (first, term, count) = (head.first, head.term, head.count);
        let is_carried = kind == Kind::Carried;
        return Some(Update::Entries { region, first, term, count, place, is_carried });
    }
    let record = Record::decode(kind, content)?;
    Some(Update::Record { region, record, sequence: place.sequence })
}
