//! Damage to a log at rest: the log is refused, or it holds exactly what was written.

mod support;

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, RegionWrite};
use support::{Cell, MemoryDisk, SECRET};
use types::{Draw, RegionDescriptor, RegionId};
use wal::layout::{block_len, Head, Kind, ALIGNMENT, HEADER_LEN, HEAD_LEN};
use wal::{
    read_entries, recover, scan, settle, Appender, Found, LogError, LogState, Loss, PeerLifecycle, Record,
    Release, SharedIndex, Sizes,
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
        let (log, losses) = Log::open_damaged(disk)?;
        assert_eq!(losses, BTreeMap::new());
        Ok(log)
    }

    fn open_damaged(disk: &MemoryDisk) -> Result<(Log, BTreeMap<RegionId, Loss>), LogError> {
        Log::open_sized(disk, SIZES)
    }

    fn open_sized(disk: &MemoryDisk, sizes: Sizes) -> Result<(Log, BTreeMap<RegionId, Loss>), LogError> {
        let found = recover(disk, SECRET)?;
        let losses = found.losses.clone();
        let index = Cell::default();
        let (appender, first) = Appender::new(disk.clone(), SECRET, sizes, index.clone(), found)?;
        Ok((Log { disk: disk.clone(), index, appender, first }, losses))
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

/// Returns the region and the kind of the section whose content holds this byte of a segment,
/// according to the undamaged log.
fn owner(disk: &MemoryDisk, segment: u32, at: usize) -> Option<(RegionId, Kind)> {
    let bytes = disk.segment(segment);
    let holds = |block: &Found| {
        let begin = block.header.position.offset as usize;
        (begin..begin + HEADER_LEN + block.header.length as usize).contains(&at)
    };
    let block = blocks_of(disk, segment).into_iter().find(holds)?;
    let begin = block.header.position.offset as usize + HEADER_LEN;
    let (mut next, end) = (begin, begin + block.header.length as usize);
    while next < end {
        let head = Head::decode(&bytes[next..]).expect("the head of a section");
        let content = next + HEAD_LEN..next + HEAD_LEN + head.length as usize;
        if content.contains(&at) {
            return Some((head.region, head.kind));
        }
        next = content.end;
    }
    None
}

#[test]
fn a_bit_that_is_flipped_anywhere_is_noticed_or_does_not_matter() {
    let disk = overwritten();
    let whole = Log::open(&disk.copy()).unwrap();
    let held = [(1, whole.held(1)), (2, whole.held(2))];
    assert!(held[0].1.len() > 6 && held[1].1.len() == 1);
    let (mut refused, mut harmless, mut damaged) = (0, 0, 0);
    for segment in disk.ids() {
        for at in 0..disk.segment(segment).len() {
            let copy = disk.copy();
            copy.change(segment, |bytes| bytes[at] ^= 1 << (at % 8));
            match Log::open_damaged(&copy) {
                Ok((log, losses)) => {
                    let owner = owner(&disk, segment, at).map(|(region, _)| region);
                    assert!(
                        losses.keys().all(|region| Some(*region) == owner),
                        "{segment}, {at}: {losses:?}"
                    );
                    for (region, held) in held.iter().filter(|(region, _)| !losses.contains_key(region)) {
                        // Without a truncation the log is longer.
                        let found = log.held(*region);
                        let ends = |of: &[Entry]| of.first().zip(of.last()).map(|(a, b)| (a.index, b.index));
                        let (was, is) = (ends(held), ends(&found));
                        assert!(found.ends_with(held), "{segment}, {at}, {owner:?}: {was:?}, {is:?}");
                    }
                    harmless += usize::from(losses.is_empty());
                    damaged += losses.len();
                }
                Err(LogError::Corrupt(_) | LogError::LostTail { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    println!("{refused} refused, {damaged} in one region, {harmless} without harm");
    assert!(refused > 1_000 && damaged > 5_000 && harmless > 5_000);
}

/// The contents of the log for a region: its entries, its last index, its hard state and its peer's
/// lifecycle.
type All = (Vec<Entry>, u64, Option<HardState>, Option<PeerLifecycle>);

fn all_of(log: &Log, region: RegionId) -> All {
    let (last, hard_state, life) = log.index.with(|index| {
        let life = index.lifecycles().into_iter().find(|(of, _)| *of == region).map(|(_, life)| life);
        (index.bounds(region).last, index.hard_state(region), life)
    });
    (log.held(region), last, hard_state, life)
}

/// Asserts that the log still has all data of a region. Without its truncation the log is longer.
fn assert_has(log: &Log, region: RegionId, all: &All, what: &str) {
    let (held, last, hard_state, life) = all_of(log, region);
    assert!(held.ends_with(&all.0), "region {region}: {what}");
    assert_eq!((last, &hard_state, &life), (all.1, &all.2, &all.3), "region {region}: {what}");
}

/// Sizes so small that the log is recycled constantly.
const TINY: Sizes = Sizes { segment_bytes: 2 << 10, log_bytes: 10 << 10 };

fn short(region: RegionId, index: u64) -> Bytes {
    let data = data(region, index);
    data.slice(..20 + data.len() % 60)
}

const REGIONS: [RegionId; 4] = [0, 1, 2, 9];

/// Returns a synced log of several regions with every kind of section. Region 9 had a peer that was
/// removed.
fn of_many_regions() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut log = Log::open_sized(&disk, TINY).unwrap().0;
    let life = |region| PeerLifecycle::Exists {
        descriptor: RegionDescriptor::founded(region, None, &[0, 1, 2]),
        parent: None,
    };
    let begun = LogState { truncated_index: 5, truncated_term: 5 };
    let begin = |region| (region, vec![Record::Begun(begun), Record::Life(life(region))]);
    log.appender.record(REGIONS.map(begin).to_vec(), true).unwrap();
    let tombstone = Record::Life(PeerLifecycle::Tombstone { peer: 3 });
    log.appender.record(vec![(9, vec![Record::Forgotten, tombstone])], true).unwrap();
    for round in 0..36u64 {
        let term = 5 + round / 12;
        let write = |region: RegionId| {
            let last = log.index.with(|index| index.bounds(region).last);
            // Region 2 replaces an entry from time to time.
            let first = last + 1 - u64::from(region == 2 && round % 12 == 1);
            let of = |index| Entry { index, term, data: short(region, index), ..Entry::default() };
            let entries = (first..8 + round * 2).map(of).collect();
            let hard_state = HardState { term, vote: Some(2), commit: 5 + round };
            let hard_state = (round % 7 == region % 7).then_some(hard_state);
            RegionWrite { region, restart: None, entries, hard_state }
        };
        let writes = [0, 1, 2].into_iter().filter(|region| round % 4 != *region).map(write).collect();
        log.appender.append(&LogBatch { number: round, writes, must_sync: true }, true).unwrap();
        if round % 10 == 9 {
            // The entries of region 0 stay, so they are carried.
            for region in [1, 2] {
                let index = round * 2 - 6;
                let term = log.index.with(|of| of.term(region, index)).unwrap();
                let truncated = LogState { truncated_index: index, truncated_term: term };
                log.index.with(|of| of.truncate(region, truncated));
            }
            log.keep();
        }
    }
    disk
}

#[test]
fn damage_to_the_content_of_a_section_touches_its_region_and_no_other() {
    let disk = of_many_regions();
    let whole = Log::open_sized(&disk.copy(), TINY).unwrap().0;
    let held: Vec<All> = REGIONS.iter().map(|region| all_of(&whole, *region)).collect();
    let needed: Vec<u32> = recover(&disk, SECRET).unwrap().in_use.iter().map(|segment| segment.id).collect();
    let mut lost: BTreeMap<(u8, bool), u64> = BTreeMap::new();
    for segment in needed {
        for at in 0..disk.segment(segment).len() {
            let Some((region, kind)) = owner(&disk, segment, at) else { continue };
            let copy = disk.copy();
            copy.change(segment, |bytes| bytes[at] ^= 1 << (at % 8));
            let (mut log, losses) = Log::open_sized(&copy, TINY).unwrap();
            assert!(losses.keys().all(|of| *of == region), "{kind:?}: {losses:?}");
            *lost.entry((kind as u8, !losses.is_empty())).or_default() += 1;
            let others = |log: &Log| {
                for (of, all) in REGIONS.iter().zip(&held).filter(|(of, _)| !losses.contains_key(of)) {
                    assert_has(log, *of, all, &format!("{kind:?} of region {region}, {segment}, {at}"));
                }
            };
            others(&log);
            let Some(loss) = losses.get(&region) else { continue };
            assert!(loss.has_gap || loss.promise || loss.life, "{loss:?}");
            if at % 16 > 0 {
                continue;
            }
            // The entries before the damage are unchanged, except for those that other entries
            // replaced.
            let mut records = Vec::new();
            if loss.has_gap {
                records.push(Record::Cut(loss.whole_through()));
            }
            let term = loss.before.last().map_or(loss.truncated.truncated_term, |span| span.term);
            let commit = loss.truncated.truncated_index;
            records.push(Record::HardState(HardState { term, vote: None, commit }));
            records.extend(loss.life.then(|| Record::Life(PeerLifecycle::Tombstone { peer: 7 })));
            log.appender.repair(vec![(region, records)]).unwrap();
            let left = log.held(region);
            assert_eq!(left.last().map_or(commit, |entry| entry.index), loss.whole_through());
            assert!(left.iter().all(|entry| entry.data == short(region, entry.index)));
            others(&log);
            let (again, losses) = Log::open_sized(&copy, TINY).unwrap();
            assert_eq!(
                (again.held(region), losses),
                (left, BTreeMap::new()),
                "{kind:?}: the damage is repaired"
            );
            others(&again);
        }
    }
    println!("kind and whether it mattered: {lost:?}");
    for kind in [Kind::Entries, Kind::Carried, Kind::HardState, Kind::Life] {
        assert!(lost.contains_key(&(kind as u8, true)), "{kind:?}");
    }
}

#[test]
fn a_damaged_value_of_the_store_or_a_damaged_head_is_refused_and_the_log_left_as_it_is() {
    let disk = MemoryDisk::new();
    let mut log = Log::open(&disk).unwrap();
    let value = Record::Value { name: b"begun".to_vec(), value: Bytes::from_static(b"key") };
    log.appender.record(vec![(0, vec![value])], true).unwrap();
    log.append(1, 1, data(1, 1), true);
    log.append(1, 2, data(1, 2), true);
    drop(log);
    let blocks = blocks_of(&disk, 0);
    let of = |block: usize| blocks[block].header.position.offset as usize;
    let ranges = [
        of(0) + HEADER_LEN + HEAD_LEN..of(0) + HEADER_LEN + blocks[0].header.length as usize,
        of(1)..of(1) + HEADER_LEN + HEAD_LEN,
    ];
    for at in ranges.into_iter().flatten() {
        let copy = disk.copy();
        copy.change(0, |bytes| bytes[at] ^= 4);
        let before = copy.segment(0);
        assert!(matches!(Log::open(&copy), Err(LogError::Corrupt(_))), "byte {at}");
        assert_eq!(copy.segment(0), before);
    }
}

#[test]
fn a_region_that_is_given_up_keeps_no_segment_and_takes_nothing_until_it_begins_again() {
    let disk = MemoryDisk::new();
    let mut log = Log::open(&disk).unwrap();
    for index in 1..20 {
        log.append(1, index, data(1, index), true);
        log.append(2, index, data(2, index), true);
    }
    let at = log.index.with(|index| index.run_at(1, 7)).unwrap().place;
    disk.change(at.segment, |bytes| bytes[at.offset as usize + HEAD_LEN + 30] ^= 1);
    let damaged = |error| matches!(error, LogError::Damaged { region: 1, first: 7, last: 7, .. });
    let read = |log: &Log| read_entries(&log.disk, &log.index, SECRET, 1, (1, 20), u64::MAX);
    assert!(read(&log).is_err_and(damaged));
    // The log cannot be recycled beyond the damage.
    let mut next = 20;
    loop {
        let truncated = LogState { truncated_index: next - 1, truncated_term: 1 };
        log.index.with(|of| of.truncate(2, truncated));
        match log.appender.release_oldest() {
            Ok(Release::Released { first }) => {
                settle(&log.disk, &mut log.first, first).unwrap();
                log.appender.reuse_below(first);
            }
            Ok(_) => {
                log.append(2, next, data(2, next), true);
                next += 1;
            }
            Err(error) => {
                assert!(damaged(error));
                break;
            }
        }
    }
    log.appender.give_up(1, 7).unwrap();
    assert_eq!(log.held(1).len(), 6);
    log.append(1, 20, data(1, 20), true);
    assert_eq!(log.held(1).len(), 6, "the log accepts no more entries");
    for _ in 0..200 {
        log.append(2, next, data(2, next), true);
        log.index.with(|of| of.truncate(2, LogState { truncated_index: next, truncated_term: 1 }));
        next += 1;
        log.keep();
    }
    let (again, losses) = Log::open_damaged(&disk).unwrap();
    assert_eq!((again.held(1).len(), losses), (6, BTreeMap::new()), "the damaged block is overwritten");
    let tombstone = Record::Life(PeerLifecycle::Tombstone { peer: 4 });
    log.appender.record(vec![(1, vec![Record::Forgotten, tombstone])], true).unwrap();
    log.append(1, 1, data(1, 1), true);
    assert_eq!(log.held(1).len(), 1);
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
    // The lengths are smaller and larger than a window, so that blocks begin and end before, at and
    // after its end.
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
    // A client that can read the store's files writes a value with the bytes of this log's own
    // blocks.
    let disk = overwritten();
    let segment = disk.ids()[0];
    let stolen = Bytes::from(disk.segment(segment));
    let mut log = Log::open(&disk).unwrap();
    let last = log.index.with(|index| index.bounds(2).last);
    log.append(2, last + 1, stolen.clone(), true);
    log.append(2, last + 2, data(2, last + 2), true);
    // These bytes do not count as a block if the block around them is torn.
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
    assert!(log.appender.used_bytes() < SIZES.log_bytes / 2, "the log is small");
    log.index.with(|of| of.truncate(1, LogState { truncated_index: next - 1, truncated_term: 1 }));
    log.keep();
    for _ in 0..100 {
        log.appender.append(&batch(next), true).unwrap();
        log.index.with(|of| of.truncate(1, LogState { truncated_index: next, truncated_term: 1 }));
        next += 1;
        log.keep();
    }
    assert_eq!(disk.ids().len(), 3);
    assert_eq!(Log::open(&disk).unwrap().index.with(|of| of.lifecycles()), [(9, tombstone)]);
}
