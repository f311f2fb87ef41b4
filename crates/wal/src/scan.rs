//! The blocks of a segment.

use types::RegionId;

use crate::block::{Place, Update};
use crate::disk::SegmentId;
use crate::layout::{
    block_len, BodyChecksum, Head, Header, Kind, Position, Secret, ALIGNMENT, HEADER_LEN, HEAD_LEN,
};
use crate::planted::{self, Bug};
use crate::records::{decode_entries_head, Record};

/// A block whose header is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub header: Header,
    /// The header's checksum, by which the next block names this one.
    pub checksum: u64,
    /// What its sections hold. `None` if the body is not what was written.
    pub updates: Option<Vec<Update>>,
}

/// Finds the blocks of a segment, in the order in which they lie. Of those before the sequence `first` only the
/// headers are looked at.
pub fn scan(segment: SegmentId, bytes: &[u8], first: u64, secret: Secret) -> Vec<Found> {
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() as u64 {
        let position = Position { segment, offset };
        let rest = &bytes[offset as usize..];
        let mut step = ALIGNMENT;
        if let Some((header, checksum)) = Header::decode(rest, position, secret) {
            let updates = match header.sequence >= first {
                true => read_body(&header, &rest[HEADER_LEN..], secret),
                false => Some(Vec::new()),
            };
            // Whatever looks like a block inside a whole one is a value of it.
            if updates.is_some() && header.sequence >= first {
                step = block_len(header.length as usize);
            }
            found.push(Found { header, checksum, updates });
        }
        offset += step;
    }
    found
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
        if !head.matches(content, header.sequence, secret) && !planted::is(Bug::TornBlockTaken) {
            return None;
        }
        let Position { segment, offset } = header.position;
        let place = Place {
            segment,
            offset: offset + (HEADER_LEN + at) as u64,
            length: head.length,
            sequence: header.sequence,
        };
        updates.push(update_of(head.kind, head.region, content, place)?);
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
