//! Damage to a log at rest: the log is refused, or it holds exactly what was written.

mod support;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{LogBatch, RegionWrite};
use support::{Cell, MemoryDisk, SECRET};
use types::{Draw, RegionId};
use wal::layout::{block_len, ALIGNMENT, HEADER_LEN};
use wal::{
    read_entries, recover, scan, settle, Appender, Found, LogError, LogState, PeerLifecycle, Record, Release,
    SharedIndex, Sizes,
};

const SIZES: Sizes = Sizes { segment_bytes: 8 << 10, log_bytes: 64 << 10 };

struct Log {
    disk: MemoryDisk,
    index: Cell,
    appender: Appender<MemoryDisk, Cell>,
    first: wal::mark::Mark,
}

impl Log {
    fn open(disk: &MemoryDisk) -> Result<Log, LogError> {
        let found = recover(disk, SECRET)?;
        let index = Cell::default();
        let (appender, first) = Appender::new(disk.clone(), SECRET, SIZES, index.clone(), found)?;
        Ok(Log { disk: disk.clone(), index, appender, first })
    }

    fn append(&mut self, region: RegionId, index: u64, data: Bytes, synced: bool) {
        let entry = Entry { index, term: 1, data, ..Entry::default() };
        let write = RegionWrite { region, restart: None, entries: vec![entry], hard_state: None };
        self.appender
            .append(&LogBatch { number: 1, writes: vec![write], must_sync: synced }, synced)
            .unwrap();
    }

    fn held(&self, region: RegionId) -> Vec<Entry> {
        let bounds = self.index.with(|index| index.bounds(region));
        let range = (bounds.first, bounds.last + 1);
        read_entries(&self.disk, &self.index, SECRET, region, range, u64::MAX).unwrap()
    }

    fn keep(&mut self) {
        while let Release::Released { first } = self.appender.release_oldest().unwrap() {
            settle(&self.disk, &mut self.first, first).unwrap();
            self.appender.reuse_below(first);
        }
    }
}

fn data(region: RegionId, index: u64) -> Bytes {
    let mut draw = Draw::new(region << 32 | index);
    let length = 50 + draw.below(1500) as usize;
    Bytes::from((0..length).map(|_| draw.number() as u8).collect::<Vec<_>>())
}

/// Returns a fully synced log whose segments were overwritten several times.
fn overwritten() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut log = Log::open(&disk).unwrap();
    log.append(2, 1, data(2, 1), true);
    for index in 1..200 {
        log.append(1, index, data(1, index), true);
        if index % 10 == 0 {
            let truncated = LogState { truncated_index: index - 6, truncated_term: 1 };
            log.index.with(|of| of.truncate(1, truncated));
            log.keep();
        }
    }
    disk
}

fn blocks_of(disk: &MemoryDisk, segment: u32) -> Vec<Found> {
    scan(disk, segment, disk.segment(segment).len() as u64, 1, SECRET).unwrap()
}

#[test]
fn a_bit_that_is_flipped_anywhere_is_noticed_or_does_not_matter() {
    let disk = overwritten();
    let whole = Log::open(&disk.copy()).unwrap();
    let (one, two) = (whole.held(1), whole.held(2));
    assert!(one.len() > 6 && two.len() == 1);
    let (mut refused, mut harmless) = (0, 0);
    for segment in disk.ids() {
        for at in 0..disk.segment(segment).len() {
            let damaged = disk.copy();
            damaged.change(segment, |bytes| bytes[at] ^= 1 << (at % 8));
            match Log::open(&damaged) {
                Ok(log) => {
                    assert_eq!((log.held(1), log.held(2)), (one.clone(), two.clone()), "{segment}, {at}");
                    harmless += 1;
                }
                Err(LogError::Corrupt(_) | LogError::LostTail { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(refused > 5_000 && harmless > 5_000, "{refused} refused, {harmless} without harm");
}

/// A start reads a segment in windows of one mebibyte.
#[test]
fn blocks_are_found_wherever_they_lie_in_what_is_read_at_once() {
    const LARGE: Sizes = Sizes { segment_bytes: 8 << 20, log_bytes: 64 << 20 };
    let disk = MemoryDisk::new();
    let index = Cell::default();
    let found = recover(&disk, SECRET).unwrap();
    let (appender, first) = Appender::new(disk.clone(), SECRET, LARGE, index.clone(), found).unwrap();
    let mut log = Log { disk: disk.clone(), index, appender, first };
    // Smaller and larger than a window, and such that blocks begin and end at, before and behind
    // its end.
    let lengths = [100, 400 << 10, 1_100_000, 2_500_000, 700, (1 << 20) - 2048, 3000, 512, 1 << 20];
    let value = |at: usize, length: usize| Bytes::from(vec![at as u8; length]);
    for (at, length) in lengths.iter().cycle().take(40).enumerate() {
        log.append(1, at as u64 + 1, value(at, *length), true);
    }
    drop(log);
    let log = Log::open(&disk).unwrap();
    let held = log.held(1);
    assert_eq!(held.len(), 40);
    for (at, (entry, length)) in held.iter().zip(lengths.iter().cycle()).enumerate() {
        assert_eq!(entry.data, value(at, *length), "entry {at}");
    }
    let found: usize = disk.ids().into_iter().map(|segment| blocks_of(&disk, segment).len()).sum();
    assert!(found >= 40, "{found} blocks");
}

#[test]
fn what_is_beyond_a_lost_block_of_another_start_is_never_taken_in() {
    let disk = MemoryDisk::new();
    let mut log = Log::open(&disk).unwrap();
    log.append(1, 1, data(1, 1), true);
    for index in 2..6 {
        log.append(1, index, data(1, index), false);
    }
    drop(log);
    let blocks = blocks_of(&disk, 0);
    assert_eq!(blocks.len(), 5);
    // The power loss takes the third block and leaves those after it.
    let third = blocks[2].header.position.offset as usize;
    disk.change(0, |bytes| bytes[third..third + 512].fill(0));
    // After a loss of power the mark is as old as its last sync.
    let found = recover(&disk, SECRET).unwrap();
    assert_eq!((found.sequence, found.cut.map(|cut| (cut.blocks, cut.first))), (2, Some((2, 4))));
    let mut log = Log::open(&disk).unwrap();
    assert_eq!(log.held(1).len(), 2);
    // A block of the same length replaces the third. The old fourth block follows it intact.
    log.append(1, 3, data(1, 3), true);
    drop(log);
    let blocks = blocks_of(&disk, 0);
    assert_eq!(blocks.iter().map(|block| block.header.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let log = Log::open(&disk).unwrap();
    assert_eq!(log.held(1).len(), 3);
}

#[test]
fn a_value_that_looks_like_a_block_is_a_value() {
    // A client that can read the store's files sends the bytes of this log's own blocks.
    let disk = overwritten();
    let segment = disk.ids()[0];
    let stolen = Bytes::from(disk.segment(segment));
    let mut log = Log::open(&disk).unwrap();
    let last = log.index.with(|index| index.bounds(2).last);
    log.append(2, last + 1, stolen.clone(), true);
    log.append(2, last + 2, data(2, last + 2), true);
    // They do not become a block if the block around them is torn.
    let torn = disk.copy();
    let blocks: Vec<_> = disk.ids().into_iter().flat_map(|id| blocks_of(&disk, id)).collect();
    let around = blocks.iter().find(|block| u64::from(block.header.length) > stolen.len() as u64).unwrap();
    let position = around.header.position;
    torn.change(position.segment, |bytes| bytes[position.offset as usize + HEADER_LEN] ^= 1);
    assert!(matches!(Log::open(&torn), Err(LogError::Corrupt(_) | LogError::LostTail { .. })));
    let log = Log::open(&disk).unwrap();
    assert_eq!(log.held(2)[1].data, stolen);
    assert_eq!(block_len(1), ALIGNMENT);
}

#[test]
fn a_segment_that_is_missing_is_missed_if_anything_in_it_is_needed() {
    let disk = overwritten();
    let whole = Log::open(&disk.copy()).unwrap();
    let needed: Vec<_> = recover(&disk, SECRET).unwrap().in_use.iter().map(|segment| segment.id).collect();
    assert!(needed.len() > 1 && needed.len() < disk.ids().len(), "{needed:?} of {:?}", disk.ids());
    for segment in disk.ids() {
        let without = disk.copy();
        without.lose_segment(segment);
        match Log::open(&without) {
            Ok(log) => {
                assert!(!needed.contains(&segment));
                assert_eq!((log.held(1), log.held(2)), (whole.held(1), whole.held(2)));
            }
            Err(error) => assert!(needed.contains(&segment), "{segment}: {error}"),
        }
    }
}

#[test]
fn a_full_disk_refuses_a_batch_and_takes_it_when_there_is_room() {
    let disk = MemoryDisk::new();
    let mut log = Log::open(&disk).unwrap();
    log.append(1, 1, data(1, 1), true);
    disk.set_full(true);
    let entries = |from: u64| {
        let data = |index: u64| Bytes::from(vec![index as u8; 1500]);
        let entry = |index| Entry { index, term: 1, data: data(index), ..Entry::default() };
        (from..from + 30).map(entry).collect::<Vec<_>>()
    };
    let batch = |entries| {
        let write = RegionWrite { region: 1, restart: None, entries, hard_state: None };
        LogBatch { number: 1, writes: vec![write], must_sync: true }
    };
    // More than a segment, so that the first blocks still have room.
    for _ in 0..3 {
        assert!(matches!(log.appender.append(&batch(entries(2)), true), Err(LogError::NoSpace(_))));
        assert!(Log::open(&disk.copy()).unwrap().held(1).len() < 31);
    }
    disk.set_full(false);
    log.appender.append(&batch(entries(2)), true).unwrap();
    let again = Log::open(&disk).unwrap();
    assert_eq!(again.held(1).len(), 31);
    assert_eq!(again.held(1)[1..], entries(2));
}

#[test]
fn on_a_full_disk_a_segment_that_holds_only_records_is_let_go_of() {
    let disk = MemoryDisk::new();
    let mut log = Log::open(&disk).unwrap();
    let tombstone = PeerLifecycle::Tombstone { peer: 4 };
    log.appender.record(vec![(9, vec![Record::Life(tombstone.clone())])], true).unwrap();
    let write = |index| {
        let entry = Entry { index, term: 1, data: Bytes::from(vec![1; 1000]), ..Entry::default() };
        RegionWrite { region: 1, restart: None, entries: vec![entry], hard_state: None }
    };
    let batch = |index| LogBatch { number: 1, writes: vec![write(index)], must_sync: true };
    let mut next = 1;
    while disk.ids().len() < 3 {
        log.appender.append(&batch(next), true).unwrap();
        next += 1;
    }
    disk.set_full(true);
    while log.appender.append(&batch(next), true).is_ok() {
        next += 1;
    }
    assert!(log.appender.used_bytes() < SIZES.log_bytes / 2, "it is no large log");
    log.index.with(|of| of.truncate(1, LogState { truncated_index: next - 1, truncated_term: 1 }));
    log.keep();
    for _ in 0..100 {
        log.appender.append(&batch(next), true).unwrap();
        log.index.with(|of| of.truncate(1, LogState { truncated_index: next, truncated_term: 1 }));
        next += 1;
        log.keep();
    }
    assert_eq!(disk.ids().len(), 3);
    assert_eq!(Log::open(&disk).unwrap().index.with(|of| of.lives()), [(9, tombstone)]);
}
