//! The write-back cache of a hybrid device, as amounts of bytes: which writes it absorbs, and which
//! reads it answers.
//!
//! The emulated cache (`device::cache`, docs/DEVICES.md "Hybrid devices") knows blocks of files;
//! this model knows amounts of bytes, and rows. The rules are the same: destaging begins at a half,
//! writes wait at three quarters, missed data is added, dirty data stays, and deleted data need not
//! be destaged. The emulated table of blocks is replaced by these approximations:
//!
//! * The hand of the emulated cache visits blocks in the order of a hash. Dirty data is therefore
//!   destaged evenly within one round of the hand: half a round after it was written, half of it is
//!   clean.
//! * Cached data of a level is spread evenly over the level. Files that are compacted away take
//!   their share with them, and a job that reads all of a level finds that share.
//! * Room is made at the expense of all clean data. Blocks of rows that were read are tracked
//!   individually, by the order of their keys, in one queue with a second chance.

use std::collections::VecDeque;

use types::device_time;

use crate::blocks::blocks_of;
use crate::draw::Draw;
use crate::tree::{Place, LEVELS};

/// A write-back cache that keeps its contents without power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WriteBack {
    pub bytes: u64,
    pub write_bytes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub sync_ns: u64,
    pub read_ns: u64,
}

/// The dirty parts of the cache at which destaging begins and at which writes wait for it.
const DESTAGE_FROM: f64 = device_time::DESTAGE_FROM as f64 / 100.0;
const DIRTY_MAX: f64 = device_time::DIRTY_MAX as f64 / 100.0;
/// The size of a cached block. A read is cached in whole blocks, and its ends fill one of them only
/// in part.
const BLOCK_BYTES: u64 = device_time::CACHE_BLOCK_BYTES;

/// Owners of cached bytes. The levels come first. Then follow the log and other permanent data,
/// tables being written, and tables that a job has read and that disappear when it ends.
const LOG: usize = LEVELS;
const UNFINISHED: usize = LEVELS + 1;
const READ_THROUGH: usize = LEVELS + 2;
const OWNERS: usize = LEVELS + 3;

/// Bytes written at about the same time.
#[derive(Clone, Copy, Debug)]
struct Cohort {
    owner: usize,
    /// Bytes written. The part over which the hand has passed since is clean.
    bytes: f64,
    since: f64,
}

/// Writes within this part of a round of the hand belong to one cohort.
const COHORT_ROUNDS: f64 = 1.0 / 64.0;

#[derive(Clone, Debug)]
pub(crate) struct Hybrid {
    pub cache: WriteBack,
    /// The write bandwidth of the device behind the cache.
    behind_bytes_per_s: u64,
    /// The number of rounds that the hand has made.
    hand: f64,
    /// Oldest first.
    dirty: VecDeque<Cohort>,
    /// Clean bytes by owner, without the blocks of rows that were read.
    clean: [f64; OWNERS],
    /// Bytes of tables that are being written, and of tables that jobs are reading.
    unfinished: u64,
    read_through: u64,
    /// The time at which the device behind will have destaged everything that a write waited for.
    destage_end: u64,
    rows: RowBlocks,
    draw: Draw,
    /// The last write had to wait.
    is_full: bool,
    #[cfg(test)]
    pub bytes_destaged: u64,
    /// The part of the destaged bytes for which writes waited.
    pub bytes_awaited: u64,
}

impl Hybrid {
    pub fn new(cache: WriteBack, behind_bytes_per_s: u64) -> Hybrid {
        Hybrid {
            cache,
            behind_bytes_per_s,
            hand: 0.0,
            dirty: VecDeque::new(),
            clean: [0.0; OWNERS],
            unfinished: 0,
            read_through: 0,
            destage_end: 0,
            rows: RowBlocks::default(),
            draw: Draw::new(cache.bytes),
            is_full: false,
            #[cfg(test)]
            bytes_destaged: 0,
            bytes_awaited: 0,
        }
    }

    /// Sets the number and size of the rows that will be read, in blocks of `block_bytes`.
    pub fn hold_rows(&mut self, records: u64, row_bytes: u64, block_bytes: u64) {
        self.rows = RowBlocks::new(records, row_bytes, block_bytes);
    }

    /// Returns the bytes of some owners that are still dirty.
    fn dirty_of(&self, owners: impl Fn(usize) -> bool) -> f64 {
        let of = self.dirty.iter().filter(|cohort| owners(cohort.owner));
        of.map(|cohort| cohort.bytes * (1.0 - (self.hand - cohort.since))).sum()
    }

    fn dirty_bytes(&self) -> f64 {
        self.dirty_of(|_| true)
    }

    /// Writes bytes at `start`. Returns the time at which there is room for them.
    pub fn write(&mut self, start: u64, bytes: u64, is_table: bool) -> u64 {
        self.destage_until(start);
        self.soil(if is_table { UNFINISHED } else { LOG }, bytes as f64);
        self.unfinished += if is_table { bytes } else { 0 };
        let excess = self.dirty_bytes() - self.cache.bytes as f64 * DIRTY_MAX;
        self.is_full = excess > 0.0;
        let room_at = match self.is_full {
            true => {
                self.destage_end = self.destage_end.max(start) + self.destage_ns(excess);
                self.destage(excess);
                self.destage_end
            }
            false => start,
        };
        self.make_room();
        room_at
    }

    fn soil(&mut self, owner: usize, bytes: f64) {
        let hand = self.hand;
        let is_young = |cohort: &&mut Cohort| hand - cohort.since < COHORT_ROUNDS;
        let mut young = self.dirty.iter_mut().rev().take_while(is_young);
        match young.find(|cohort| cohort.owner == owner) {
            // The cohort is older, so more bytes are added: their dirty part is then `bytes`.
            Some(cohort) => cohort.bytes += bytes / (1.0 - (hand - cohort.since)),
            None => self.dirty.push_back(Cohort { owner, bytes, since: hand }),
        }
    }

    /// Accounts for the work of the device behind until `now`. It is idle if nothing needs
    /// destaging.
    fn destage_until(&mut self, now: u64) {
        let excess = self.dirty_bytes() - self.cache.bytes as f64 * DESTAGE_FROM;
        if excess <= 0.0 {
            self.destage_end = self.destage_end.max(now);
            return;
        }
        let idle = now.saturating_sub(self.destage_end) as f64 / 1e9;
        let bytes = excess.min(idle * self.behind_bytes_per_s as f64);
        self.destage_end += self.destage_ns(bytes);
        self.destage(bytes);
    }

    /// Makes destaging wait for a read of the device behind the cache. Returns false if nothing
    /// needs destaging.
    pub fn yields(&mut self, start: u64, nanos: u64) -> bool {
        self.destage_until(start);
        // Less than a block is left when the hand has destaged all that it may.
        let excess = self.dirty_bytes() - self.cache.bytes as f64 * DESTAGE_FROM;
        let is_busy = excess > BLOCK_BYTES as f64;
        if is_busy {
            self.destage_end = self.destage_end.max(start) + nanos;
        }
        is_busy
    }

    fn destage_ns(&self, bytes: f64) -> u64 {
        (bytes / self.behind_bytes_per_s.max(1) as f64 * 1e9) as u64
    }

    /// Moves dirty bytes to the device behind. They stay in the cache as clean ones.
    fn destage(&mut self, bytes: f64) {
        #[cfg(test)]
        {
            self.bytes_destaged += bytes.max(0.0) as u64;
        }
        self.bytes_awaited += if self.is_full { bytes as u64 } else { 0 };
        let mut left = bytes;
        while left > 0.5 {
            let Some(oldest) = self.dirty.front() else { return };
            // The hand moves until all of the oldest cohort is clean, or enough bytes are.
            let all: f64 = self.dirty.iter().map(|cohort| cohort.bytes).sum();
            let rounds = (left / all.max(1.0)).min(oldest.since + 1.0 - self.hand).max(0.0);
            for cohort in &self.dirty {
                self.clean[cohort.owner] += cohort.bytes * rounds;
            }
            left -= all * rounds;
            self.hand += rounds;
            while self.dirty.front().is_some_and(|oldest| self.hand - oldest.since > 1.0 - 1e-9) {
                self.dirty.pop_front();
            }
        }
    }

    fn make_room(&mut self) {
        let room = (self.cache.bytes as f64 - self.dirty_bytes()).max(0.0);
        let (tables, rows) = (self.clean.iter().sum::<f64>(), self.rows.bytes as f64);
        let excess = tables + rows - room;
        if excess <= 0.0 {
            return;
        }
        // Blocks that were used again are passed over once.
        let idle = self.rows.idle_bytes() as f64;
        let of_tables = (excess * tables / (tables + idle).max(1.0)).min(tables);
        let part = 1.0 - of_tables / tables.max(1.0);
        self.clean.iter_mut().for_each(|clean| *clean *= part);
        self.rows.shrink((rows - (excess - of_tables)).max(0.0) as u64);
    }

    /// Removes a part of an owner's bytes, or gives it to `heir`.
    fn take_part(&mut self, owner: usize, part: f64, heir: Option<usize>) {
        let part = part.clamp(0.0, 1.0);
        let mut inherited = Vec::new();
        for cohort in self.dirty.iter_mut().filter(|cohort| cohort.owner == owner) {
            let gone = cohort.bytes * part;
            cohort.bytes -= gone;
            inherited.extend(heir.map(|owner| Cohort { owner, bytes: gone, ..*cohort }));
        }
        let clean = self.clean[owner] * part;
        self.clean[owner] -= clean;
        if let Some(heir) = heir {
            self.clean[heir] += clean;
        }
        self.dirty.extend(inherited);
        self.dirty.retain(|cohort| cohort.bytes >= 1.0);
        let cohorts = self.dirty.make_contiguous();
        cohorts.sort_by(|one, other| one.since.total_cmp(&other.since).then(one.owner.cmp(&other.owner)));
        let mut merged: VecDeque<Cohort> = VecDeque::with_capacity(cohorts.len());
        for cohort in cohorts {
            match merged.back_mut().filter(|last| last.owner == cohort.owner && last.since == cohort.since) {
                Some(last) => last.bytes += cohort.bytes,
                None => merged.push_back(*cohort),
            }
        }
        self.dirty = merged;
    }

    /// Ends a job that replaced these parts of levels after reading `read` bytes. Its output
    /// belongs to `into`. A job without output moves the parts to `into` instead.
    pub fn replaced(&mut self, parts: &[(usize, f64)], into: usize, read: u64, written: u64) {
        for &(level, part) in parts {
            self.take_part(level, part, (written == 0).then_some(into));
        }
        let part = written as f64 / self.unfinished.max(written).max(1) as f64;
        self.take_part(UNFINISHED, part, Some(into));
        let part = read as f64 / self.read_through.max(read).max(1) as f64;
        self.take_part(READ_THROUGH, part, None);
        self.read_through = self.read_through.saturating_sub(read);
        self.unfinished = self.unfinished.saturating_sub(written);
    }

    /// Returns true if the block with the record's row is cached. `on` is where the row is. A block
    /// that is not cached is added.
    pub fn finds_row(&mut self, start: u64, record: u32, bytes: u64, on: &Place) -> bool {
        self.destage_until(start);
        // Above the last level, rows come and go with their tables.
        let has_block = on.levels.contains(&(LEVELS - 1));
        if has_block && self.rows.finds(record) {
            return true;
        }
        let dirty = self.dirty_of(|owner| on.levels.contains(&owner));
        let clean: f64 = self.clean[on.levels.clone()].iter().sum();
        let at = self.draw.fraction() * on.bytes.max(1) as f64;
        if at < dirty {
            return true;
        }
        let found = at < dirty + clean;
        if has_block {
            if found {
                let part = (bytes as f64 / clean.max(1.0)).min(1.0);
                self.clean[on.levels.clone()].iter_mut().for_each(|clean| *clean -= *clean * part);
            }
            self.rows.take(record, bytes);
        } else if !found {
            self.clean[*on.levels.start()] += (bytes + BLOCK_BYTES) as f64;
        }
        self.make_room();
        found
    }

    /// Returns how many of `bytes` are cached, if they are a share of the `all` bytes in these
    /// parts of levels. The rest is added.
    pub fn finds_tables(&mut self, start: u64, bytes: u64, parts: &[(usize, f64)], all: u64) -> u64 {
        self.destage_until(start);
        self.read_through += bytes;
        let share = bytes as f64 / all.max(1) as f64;
        let held = |&(level, part): &(usize, f64)| {
            (self.dirty_of(|owner| owner == level) + self.clean[level]) * part.clamp(0.0, 1.0) * share
        };
        let found = parts.iter().map(held).sum::<f64>().min(bytes as f64);
        self.clean[READ_THROUGH] += bytes as f64 - found;
        self.make_room();
        found as u64
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Out,
    Held,
    /// Held, and read since its turn last came.
    Used,
}

/// The cached blocks of rows that were read, which are clean.
#[derive(Clone, Debug, Default)]
struct RowBlocks {
    /// By record.
    block_of: Vec<u32>,
    state: Vec<State>,
    /// Blocks and their bytes, oldest first.
    queue: VecDeque<(u32, u64)>,
    bytes: u64,
    /// The number of blocks in the queue that were used again.
    used: usize,
}

impl RowBlocks {
    fn new(records: u64, row_bytes: u64, block_bytes: u64) -> RowBlocks {
        let rows = (block_bytes / row_bytes.max(1)).max(1);
        RowBlocks {
            block_of: blocks_of(records, rows),
            state: vec![State::Out; records.div_ceil(rows) as usize],
            queue: VecDeque::new(),
            bytes: 0,
            used: 0,
        }
    }

    /// Returns the bytes of blocks that were not used again.
    fn idle_bytes(&self) -> u64 {
        let idle = self.queue.len() - self.used;
        (self.bytes as f64 * idle as f64 / self.queue.len().max(1) as f64) as u64
    }

    fn finds(&mut self, record: u32) -> bool {
        let Some(state) = self.block_of.get(record as usize).map(|block| &mut self.state[*block as usize])
        else {
            return false;
        };
        if *state == State::Held {
            *state = State::Used;
            self.used += 1;
        }
        *state == State::Used
    }

    fn take(&mut self, record: u32, bytes: u64) {
        if let Some(block) = self.block_of.get(record as usize) {
            self.put(*block, bytes + BLOCK_BYTES);
        }
    }

    fn put(&mut self, block: u32, bytes: u64) {
        let state = &mut self.state[block as usize];
        if *state == State::Out {
            *state = State::Held;
            self.queue.push_back((block, bytes));
            self.bytes += bytes;
        }
    }

    fn shrink(&mut self, room: u64) {
        while self.bytes > room {
            let Some((block, bytes)) = self.queue.pop_front() else { return };
            let state = &mut self.state[block as usize];
            if *state == State::Used {
                *state = State::Held;
                self.used -= 1;
                self.queue.push_back((block, bytes));
            } else {
                *state = State::Out;
                self.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests;
