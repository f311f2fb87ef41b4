//! The writer of the log. It alone defines the order of writes and syncs. A store runs it over
//! files, and the tests over a faulty disk.
//!
//! Each block is one write at the end of the newest segment. A sync covers all segments written
//! since the last sync, oldest first. The mark of the synced sequence is written after the sync.
//!
//! A segment is overwritten only after
//!
//! 1. all data still needed from it was rewritten to the newest segment and synced, together with
//!    every pending truncation, and
//! 2. the mark that names a later block as the first needed one was synced.

use std::collections::{BTreeSet, VecDeque};

use replica::{HardState, LogBatch, RegionWrite, RestartCause};
use types::{LogIndex, RegionId};

use crate::block::{Block, Finished, Group};
use crate::disk::{Disk, DiskError, SegmentId};
use crate::error::Result;
use crate::failpoints::Failpoint;
use crate::index::{Needed, SharedIndex};
use crate::layout::{Position, Secret, ALIGNMENT};
use crate::mark::Mark;
use crate::reader::{read_section, unreadable};
use crate::records::{decode_entries, encode_entries, LogState, PeerLifecycle, Record};
use crate::recovery::{Recovered, Segment};

/// Maximum size of a block in bytes, unless a single item (an entry, or the records of a group) is
/// larger.
const BLOCK_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of pending truncations that one batch writes.
const TRUNCATIONS_MAX: usize = 256;
/// Bytes that a batch is assumed to take besides its entries: truncations and padding, and for each
/// of its groups.
const BATCH_EXTRA: u64 = 64 << 10;
const GROUP_EXTRA: u64 = 1 << 10;
/// Number of free segments to keep ready.
const READY: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The size of a segment in bytes, a multiple of the block alignment. A segment made for a
    /// larger entry is larger.
    pub segment_bytes: u64,
    /// The size of the log in bytes above which needed entries of old segments are rewritten, so
    /// that the segments can be reused.
    pub log_bytes: u64,
}

pub struct Appender<D, S> {
    disk: D,
    index: S,
    secret: Secret,
    sizes: Sizes,
    incarnation: u64,
    /// The sequence of the last block.
    sequence: u64,
    checksum: u64,
    synced: u64,
    synced_mark: Mark,
    /// The segments in use, oldest first. The next block goes into the last one, at `offset`.
    in_use: VecDeque<Segment>,
    offset: u64,
    /// The segments with unsynced blocks, oldest first.
    unsynced: Vec<SegmentId>,
    free: Vec<(SegmentId, u64)>,
    /// The segments that are no longer needed but that the durable mark still covers.
    released: Vec<Segment>,
    next_segment: SegmentId,
    /// True if the last attempt to create a segment for an append failed.
    is_short: bool,
    /// Regions whose log accepts no writes until it restarts: see [`Appender::give_up`].
    given_up: BTreeSet<RegionId>,
}

/// The outcome of an attempt to release the oldest segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The segment may be reused once the mark names `first` as the first needed block.
    Released { first: u64 },
    /// The segment is kept: it is the only one in use, or the log is small enough.
    Kept,
    /// The log is too large, but rewriting the segment's entries would gain no space, because most
    /// of the log is needed. The regions listed hold needed entries in the segment.
    Pinned(Vec<RegionId>),
}

impl<D: Disk + Clone, S: SharedIndex> Appender<D, S> {
    /// Continues a recovered log. Returns the appender with the mark of the first needed block, to
    /// be passed to [`settle`].
    ///
    /// Recovered segments are synced first, because a killed process may have left blocks only in
    /// the page cache, and later blocks declare them synced. Blocks that are not proved to be
    /// synced are rewritten unchanged, and so is the mark of the first needed block. After a failed
    /// sync the page cache may differ from the device, and a sync alone would succeed without
    /// writing anything.
    pub fn new(
        disk: D,
        secret: Secret,
        sizes: Sizes,
        index: S,
        log: Recovered,
    ) -> Result<(Appender<D, S>, Mark)> {
        let mut first_mark = log.first_mark;
        let first = first_mark.number();
        settle(&disk, &mut first_mark, first)?;
        for (position, length) in &log.unproven {
            // With its padding, so that whole sectors are written. A file that was cut off may end
            // within it.
            let segment = log.in_use.iter().find(|segment| segment.id == position.segment);
            let rest = segment.map_or(u64::MAX, |segment| segment.len.saturating_sub(position.offset));
            let padded = length.next_multiple_of(ALIGNMENT).min(rest);
            let mut bytes = vec![0; padded as usize];
            disk.read(position.segment, position.offset, &mut bytes)?;
            disk.write(position.segment, position.offset, &bytes)?;
        }
        for segment in log.in_use.iter().filter(|_| !Failpoint::StartNotSynced.is_on()) {
            disk.sync(segment.id)?;
        }
        let used = log.in_use.iter().map(|segment| segment.id);
        let next_segment = used.chain(log.free.iter().map(|(id, _)| *id)).max().map_or(0, |id| id + 1);
        index.with(|index| *index = log.index);
        let mut appender = Appender {
            disk,
            index,
            secret,
            sizes,
            incarnation: log.incarnation,
            sequence: log.sequence,
            checksum: log.checksum,
            synced: log.sequence,
            synced_mark: log.synced_mark,
            in_use: log.in_use.into(),
            offset: log.offset,
            unsynced: Vec::new(),
            free: log.free,
            released: Vec::new(),
            next_segment,
            is_short: false,
            given_up: BTreeSet::new(),
        };
        appender.synced_mark.write(&appender.disk, appender.synced)?;
        let records =
            log.corrected.into_iter().map(|(region, state)| (region, vec![Record::HardState(state)]));
        if !Failpoint::CorrectionNotWritten.is_on() {
            appender.record(records.collect(), true)?;
        }
        Ok((appender, first_mark))
    }

    /// Writes a batch and, if `sync` is set, makes it durable. Returns the number of bytes written.
    pub fn append(&mut self, batch: &LogBatch, sync: bool) -> Result<usize> {
        let mut groups = Vec::with_capacity(batch.writes.len());
        for write in &batch.writes {
            if write.restart.is_some() {
                self.given_up.remove(&write.region);
            } else if self.given_up.contains(&write.region) {
                continue;
            }
            let begun = write.restart.as_ref().map(|restart| restart.index);
            self.index.with(|index| index.check_append(write.region, begun, &write.entries))?;
            let mut records = Vec::new();
            if let Some(restart) = &write.restart {
                let (index, term) = (restart.index, restart.term);
                records.push(Record::Begun(LogState { truncated_index: index, truncated_term: term }));
                let descriptor = restart.descriptor.clone();
                records.push(Record::Life(match restart.cause {
                    RestartCause::Split { parent, at } => {
                        PeerLifecycle::Exists { descriptor, parent: Some((parent, at)) }
                    }
                    RestartCause::Snapshot => PeerLifecycle::Applying { descriptor, index, term },
                }));
            }
            let (early, full) = hard_states(write);
            records.extend(early.map(Record::HardState));
            groups.push(Group { region: write.region, records, entries: &write.entries, ..Group::default() });
            let records = full.into_iter().map(Record::HardState).collect();
            groups.push(Group { region: write.region, records, ..Group::default() });
        }
        groups.extend(self.truncations(TRUNCATIONS_MAX));
        self.write(groups, sync)
    }

    /// Writes records of regions, or of the store under region 0. All records of one item go into
    /// one block.
    pub fn record(&mut self, records: Vec<(RegionId, Vec<Record>)>, sync: bool) -> Result<usize> {
        let begins = |record: &Record| matches!(record, Record::Forgotten | Record::Begun(_));
        for (region, _) in records.iter().filter(|(_, records)| records.iter().any(begins)) {
            self.given_up.remove(region);
        }
        self.write(groups_of(records), sync)
    }

    /// Writes and syncs the records that make the logs of damaged regions consistent again. The
    /// caller must have recorded durably which peers the damage concerns, because the next recovery
    /// finds none.
    pub fn repair(&mut self, records: Vec<(RegionId, Vec<Record>)>) -> Result<usize> {
        let regions: Vec<RegionId> = records.iter().map(|(region, _)| *region).collect();
        let written = self.record(records, true)?;
        self.index.with(|index| regions.iter().for_each(|region| index.repaired(*region)));
        Ok(written)
    }

    /// Drops the region's entries from the damaged one at `first` on, so that their segments can be
    /// released. Accepts no more writes of the region until its log restarts. The region's peer
    /// must be silent permanently, and this must be recorded durably.
    pub fn give_up(&mut self, region: RegionId, first: LogIndex) -> Result<usize> {
        self.given_up.insert(region);
        self.write(groups_of(vec![(region, vec![Record::Cut(first.saturating_sub(1))])]), true)
    }

    /// Makes all written blocks durable.
    pub fn sync(&mut self) -> Result<()> {
        if self.synced == self.sequence {
            return Ok(());
        }
        let newest = self.unsynced.last().copied();
        for segment in &self.unsynced {
            let is_skipped = Failpoint::AcknowledgeBeforeSync.is_on()
                || Failpoint::OlderSegmentNotSynced.is_on() && newest != Some(*segment);
            if !is_skipped {
                self.disk.sync(*segment)?;
            }
        }
        self.unsynced.clear();
        self.synced = self.sequence;
        Ok(self.synced_mark.write(&self.disk, self.synced)?)
    }

    /// Makes the mark of the synced sequence durable. The caller does this once the log has been
    /// idle for a while.
    pub fn sync_mark(&mut self) -> Result<()> {
        Ok(self.synced_mark.sync(&self.disk)?)
    }

    /// Returns the sequence of the last block.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the bytes of the segments in use, counting the last one only as far as it is
    /// written.
    pub fn used_bytes(&self) -> u64 {
        let full: u64 = self.in_use.iter().rev().skip(1).map(|segment| segment.len).sum();
        full + if self.in_use.is_empty() { 0 } else { self.offset }
    }

    pub fn free_segments(&self) -> usize {
        self.free.len()
    }

    /// Returns true if the batch probably needs no new segment. Its size is estimated.
    pub fn has_room_for(&self, batch: &LogBatch) -> bool {
        let (entries, _) = batch.entry_sizes();
        let least = entries.saturating_add(BATCH_EXTRA + GROUP_EXTRA * batch.writes.len() as u64);
        self.room_here() >= least || self.free_segment(least).is_some()
    }

    /// Returns the bytes that the next block may have in the current segment.
    fn room_here(&self) -> u64 {
        let current = self.in_use.back().filter(|current| !self.disk.is_outdated(current.id));
        // A file that was cut off may end within the padding of its last block.
        current.map_or(0, |current| current.len.saturating_sub(self.offset))
    }

    /// Returns the place among the free segments of one with at least `least` bytes.
    fn free_segment(&self, least: u64) -> Option<usize> {
        self.free.iter().position(|(id, len)| *len >= least && !self.disk.is_outdated(*id))
    }

    fn truncations(&self, at_most: usize) -> Vec<Group<'static>> {
        let pending = self.index.with(|index| index.pending(at_most));
        let record = |(region, state)| (region, vec![Record::Truncated(state)]);
        groups_of(pending.into_iter().map(record).collect())
    }

    fn write(&mut self, groups: Vec<Group<'_>>, sync: bool) -> Result<usize> {
        let mut bytes = 0;
        let mut cursor = Cursor::over(groups);
        while let Some(least) = cursor.least_block() {
            let (position, capacity) = self.room_for(least)?;
            let mut block = Block::begin(position, self.sequence + 1, capacity, self.secret);
            cursor.fill(&mut block);
            assert!(!block.is_empty(), "a block has room for what it was made for");
            let block = block.finish(self.incarnation, self.synced, self.checksum);
            bytes += block.bytes.len();
            self.write_block(block)?;
        }
        if sync {
            self.sync()?;
        }
        Ok(bytes)
    }

    /// Returns the position of the next block and its maximum size in bytes, which is at least
    /// `least`. Takes a free segment or creates one if the current one is too full.
    fn room_for(&mut self, least: u64) -> Result<(Position, u64)> {
        let most = BLOCK_BYTES_MAX.max(least);
        let room = self.room_here();
        if let Some(current) = self.in_use.back().filter(|_| room >= least) {
            return Ok((Position { segment: current.id, offset: self.offset }, room.min(most)));
        }
        let at = match self.free_segment(least) {
            Some(at) => at,
            None => {
                let (id, len) = self.new_segment(least);
                let made = self.disk.create(id, len);
                self.is_short = made.is_err();
                made?;
                self.free.push((id, len));
                self.free.len() - 1
            }
        };
        let (id, len) = self.free.remove(at);
        self.in_use.push_back(Segment { id, len, first: self.sequence + 1 });
        self.offset = 0;
        Ok((Position { segment: id, offset: 0 }, len.min(most)))
    }

    fn new_segment(&mut self, least: u64) -> (SegmentId, u64) {
        let id = self.next_segment;
        self.next_segment += 1;
        (id, self.sizes.segment_bytes.max(least))
    }

    fn write_block(&mut self, block: Finished) -> Result<()> {
        let Position { segment, offset } = block.position;
        self.disk.write(segment, offset, &block.bytes)?;
        self.sequence += 1;
        self.checksum = block.checksum;
        self.offset = offset + block.bytes.len() as u64;
        if self.unsynced.last() != Some(&segment) {
            self.unsynced.push(segment);
        }
        self.index.with(|index| block.updates.iter().for_each(|update| index.apply(update)));
        Ok(())
    }

    /// Releases the oldest segment if that is worthwhile. Records needed from it are rewritten once
    /// the log takes half of `log_bytes`, or if no segment can be created. Entries are rewritten
    /// once the log takes all of it.
    pub fn release_oldest(&mut self) -> Result<Release> {
        let Some(first) = self.in_use.get(1).map(|next| next.first) else {
            return Ok(Release::Kept);
        };
        let used = self.used_bytes();
        let needed = self.index.with(|index| index.needed_through(first - 1));
        let enough = match (needed.records.is_empty(), needed.entries.is_empty()) {
            (true, true) => 0,
            // If no segment can be created, a free segment justifies the cost of rewriting records.
            (false, true) if self.is_short && self.free.is_empty() => 0,
            (false, true) => self.sizes.log_bytes / 2,
            (_, false) => self.sizes.log_bytes,
        };
        if used <= enough {
            return Ok(Release::Kept);
        }
        // Rewriting entries frees no space if most of the log is needed. The log would only grow.
        if !needed.entries.is_empty() && self.index.with(|index| index.entry_bytes()) > used / 2 {
            let mut regions: Vec<RegionId> = needed.entries.iter().map(|(region, ..)| *region).collect();
            regions.dedup();
            return Ok(Release::Pinned(regions));
        }
        if !Failpoint::NotCarried.is_on() {
            self.carry(needed)?;
        }
        self.released.extend(self.in_use.pop_front());
        Ok(Release::Released { first })
    }

    fn carry(&mut self, needed: Needed) -> Result<()> {
        let mut groups = groups_of(needed.records);
        for (region, run, low, high) in needed.entries {
            let content = read_section(&self.disk, self.secret, region, &run.place)?;
            let entries = content.and_then(|content| decode_entries(&content, low, high));
            let Some(entries) = entries.filter(|entries| entries.len() as u64 == high - low) else {
                return Err(unreadable(region, &run));
            };
            let mut content = Vec::new();
            encode_entries(&entries, &mut content);
            groups.push(Group { region, carried: Some(content), ..Group::default() });
        }
        // The segment may be unneeded only because of truncations that no block holds yet.
        if !Failpoint::TruncationsNotCarried.is_on() {
            groups.extend(self.truncations(usize::MAX));
        }
        self.write(groups, !Failpoint::CarryNotSynced.is_on())?;
        Ok(())
    }

    /// Makes released segments with blocks below `first` available again. The mark that names
    /// `first` must be synced.
    pub fn reuse_below(&mut self, first: u64) {
        let normal = self.sizes.segment_bytes;
        let disk = &self.disk;
        let mut surplus = Vec::new();
        self.released.retain(|segment| {
            let is_done = segment.first < first;
            if is_done {
                let is_reusable = segment.len == normal && !disk.is_outdated(segment.id);
                let list = if is_reusable { &mut self.free } else { &mut surplus };
                list.push((segment.id, segment.len));
            }
            !is_done
        });
        // Those that were free when the key changed.
        self.free.retain(|free| {
            let is_outdated = disk.is_outdated(free.0);
            if is_outdated {
                surplus.push(*free);
            }
            !is_outdated
        });
        let mut bytes = (self.in_use.len() + self.free.len()) as u64 * normal;
        while bytes > self.sizes.log_bytes && self.free.len() > READY {
            surplus.extend(self.free.pop());
            bytes -= normal;
        }
        for (segment, _) in surplus {
            // If the deletion fails, the next start finds the file again.
            let _ = disk.delete(segment);
        }
    }

    /// Returns the number and the length of a segment to create in advance, so that appends need
    /// not wait for it.
    pub fn wanted_segment(&mut self) -> Option<(SegmentId, u64)> {
        (self.free.len() < READY).then(|| self.new_segment(0))
    }

    /// Adds a segment that was created in advance.
    pub fn add_segment(&mut self, segment: SegmentId, len: u64) {
        self.free.push((segment, len));
    }
}

/// Durably marks `first` as the first needed block. Must come after the release, and before
/// [`Appender::reuse_below`].
pub fn settle(disk: &impl Disk, mark: &mut Mark, first: u64) -> std::result::Result<(), DiskError> {
    mark.write(disk, first)?;
    if Failpoint::MarkNotSynced.is_on() {
        return Ok(());
    }
    mark.sync(disk)
}

/// Returns the hard state to write before the entries, and the one to write after them if it
/// differs. A crash may keep only the blocks with the first part of a batch. Until the new entries
/// are written, the entries that they replace must not count as committed.
fn hard_states(write: &RegionWrite) -> (Option<HardState>, Option<HardState>) {
    let Some(state) = write.hard_state else { return (None, None) };
    match write.entries.first() {
        Some(first) if first.index <= state.commit && !Failpoint::CommitBeforeEntries.is_on() => {
            let early = HardState { commit: first.index.saturating_sub(1), ..state };
            (Some(early), Some(state))
        }
        _ => (Some(state), None),
    }
}

fn groups_of(records: Vec<(RegionId, Vec<Record>)>) -> Vec<Group<'static>> {
    let group = |(region, records)| Group { region, records, ..Group::default() };
    records.into_iter().map(group).collect()
}

/// The part of some groups that is not yet written.
struct Cursor<'a> {
    groups: VecDeque<Group<'a>>,
}

impl<'a> Cursor<'a> {
    fn over(groups: Vec<Group<'a>>) -> Cursor<'a> {
        let mut groups = VecDeque::from(groups);
        groups.retain(|group| !group.is_done());
        Cursor { groups }
    }

    fn least_block(&self) -> Option<u64> {
        self.groups.front().map(Group::least_block)
    }

    /// Fills the block with as many items as fit, in order.
    fn fill(&mut self, block: &mut Block) {
        while let Some(group) = self.groups.front_mut() {
            if !group.records.is_empty() {
                if !block.push_records(group.region, &group.records) {
                    return;
                }
                group.records.clear();
            }
            let done = block.push_entries(group.region, group.entries);
            group.entries = &group.entries[done..];
            group.carried.take_if(|content| block.push_carried(group.region, content));
            if !group.is_done() {
                return;
            }
            self.groups.pop_front();
        }
    }
}
