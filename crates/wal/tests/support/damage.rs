//! Damage to a log, and what must hold when it is recovered.

use std::sync::OnceLock;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, RegionWrite};
use types::RegionDescriptor;
use wal::layout::{block_len, BodyChecksum, Head, Header, Kind, Position};
use wal::{read_entries, recover, Appender, LogError, LogState, PeerLifecycle, Record, SharedIndex, Sizes};

use super::{Cell, MemoryDisk, SECRET};

const SIZES: Sizes = Sizes { segment_bytes: 4 << 10, log_bytes: 16 << 10 };
const SEGMENT_BYTES: usize = 4 << 10;
const KINDS: [Kind; 9] = [
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

/// Returns the segments of a log of three regions.
fn segments() -> &'static [(u32, Vec<u8>)] {
    static SEGMENTS: OnceLock<Vec<(u32, Vec<u8>)>> = OnceLock::new();
    SEGMENTS.get_or_init(|| {
        let disk = MemoryDisk::new();
        let found = recover(&disk, SECRET).expect("an empty log");
        let index = Cell::default();
        let (mut appender, _) =
            Appender::new(disk.clone(), SECRET, SIZES, index, found).expect("an empty log");
        let begun = LogState { truncated_index: 5, truncated_term: 5 };
        let begin = |region| {
            let descriptor = RegionDescriptor::founded(region, None, &[0, 1, 2]);
            (
                region,
                vec![Record::Begun(begun), Record::Life(PeerLifecycle::Exists { descriptor, parent: None })],
            )
        };
        appender.record([0, 1, 2].map(begin).to_vec(), true).expect("memory");
        for number in 6..30u64 {
            let write = |region| {
                let data = Bytes::from(vec![number as u8; 20 + 7 * (number as usize % 9)]);
                let entry = Entry { index: number, term: 5, data, ..Entry::default() };
                let hard_state =
                    (number % 5 == region).then_some(HardState { term: 5, vote: Some(2), commit: number });
                RegionWrite { region, restart: None, entries: vec![entry], hard_state }
            };
            let writes = [0, 1, 2].map(write).to_vec();
            appender.append(&LogBatch { number, writes, must_sync: true }, true).expect("memory");
        }
        disk.ids().into_iter().map(|segment| (segment, disk.segment(segment))).collect()
    })
}

/// Recovers a log that is damaged, or whose contents are those of the input. It is refused, or
/// what it holds can be read.
pub fn recovery(input: &[u8]) {
    let Some((&kind, input)) = input.split_first() else { return };
    let disk = MemoryDisk::new();
    match kind {
        0 => {
            for (segment, bytes) in segments() {
                wal::Disk::create(&disk, *segment, bytes.len() as u64).expect("memory");
                disk.change(*segment, |new| new.copy_from_slice(bytes));
            }
            damage(&disk, input);
        }
        1 => sections(&disk, input),
        _ => {
            for (number, bytes) in input.chunks(SEGMENT_BYTES).enumerate() {
                wal::Disk::create(&disk, number as u32 + 1, bytes.len() as u64).expect("memory");
                disk.change(number as u32 + 1, |new| new.copy_from_slice(bytes));
            }
        }
    }
    let Ok(found) = recover(&disk, SECRET) else { return };
    let index = Cell::default();
    let Ok((mut appender, _)) = Appender::new(disk.clone(), SECRET, SIZES, index.clone(), found) else {
        return;
    };
    for region in index.with(|index| index.regions()) {
        let bounds = index.with(|index| index.bounds(region));
        let Some(end) = bounds.last.checked_add(1) else { continue };
        match read_entries(&disk, &index, SECRET, region, (bounds.first, end), 1 << 20) {
            Ok(_) | Err(LogError::Corrupt(_) | LogError::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let value = Record::Value { name: b"name".to_vec(), value: Bytes::new() };
    let _ = appender.record(vec![(0, vec![value])], true);
}

/// Changes bytes of a log: five input bytes name the segment, the place and the change.
fn damage(disk: &MemoryDisk, input: &[u8]) {
    let ids = disk.ids();
    for change in input.chunks_exact(5) {
        let segment = ids[usize::from(change[0] & 0x7f) % ids.len()];
        let place = usize::from(u16::from_be_bytes([change[1], change[2]]));
        let is_cut = change[0] > 0xf0;
        disk.change(segment, |bytes| {
            let at = place % bytes.len().max(1);
            match bytes.get_mut(at) {
                Some(_) if is_cut => bytes.truncate(at),
                // All bytes of a sector, or one.
                Some(_) if change[3] == 0 => {
                    let end = bytes.len().min(at + 512);
                    bytes[at..end].fill(change[4]);
                }
                Some(byte) => *byte ^= change[4],
                None => {}
            }
        });
    }
}

/// Writes blocks whose checksums are right, one for each section: a kind, a region, a length and
/// the content.
fn sections(disk: &MemoryDisk, mut input: &[u8]) {
    let (mut bytes, mut previous, mut sequence) = (Vec::new(), 0, 0);
    while let [kind, region, length, rest @ ..] = input {
        let (content, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        input = rest;
        sequence += 1;
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        let head = Head::of(kind, (*region).into(), content, sequence, SECRET).encode();
        let mut checksum = BodyChecksum::new(SECRET);
        checksum.add(&head);
        let header = Header {
            length: (head.len() + content.len()) as u32,
            incarnation: 1,
            sequence,
            synced: 0,
            previous,
            position: Position { segment: 1, offset: bytes.len() as u64 },
            body: checksum.finish(),
        };
        let header = header.encode(SECRET);
        previous = u64::from_be_bytes(*header.last_chunk().expect("a checksum"));
        let end = bytes.len() + block_len(head.len() + content.len()) as usize;
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(content);
        bytes.resize(end, 0);
    }
    wal::Disk::create(disk, 1, bytes.len() as u64).expect("memory");
    disk.change(1, |new| new.copy_from_slice(&bytes));
}
