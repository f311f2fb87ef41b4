//! A hybrid device's write-back cache, by amounts: what it takes of the writes, and which reads it answers.
//!
//! The emulated one (`device::cache`, docs/DEVICES.md "Hybrid devices") knows blocks of files; here there are
//! amounts of bytes and rows. Its rules are the same: destaging begins at a half, writes wait at three quarters,
//! what is missed comes in, what is dirty stays, what is deleted need not be destaged. In place of its table:
//!
//! * its hand goes over blocks in the order of a hash, so what is dirty is destaged within one round of it, evenly:
//!   half a round after it was written, half of it is;
//! * what it holds of a level is spread evenly over the level, so files that are compacted away take that part along,
//!   and a job that reads a level through finds that part;
//! * room is made at the cost of what is clean, whatever it is, but rows that are read have blocks of their own, by
//!   the order of their keys, in one queue with a second chance.

use std::collections::VecDeque;

use crate::blocks::blocks_of;
use crate::draw::Draw;
use crate::tree::{Place, LEVELS};

/// A write-back cache that keeps what it has without power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WriteBack {
    pub bytes: u64,
    pub write_bytes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub sync_ns: u64,
    pub read_ns: u64,
}

/// `device::cache`: of the cache, where destaging begins and where writes wait for it.
const DESTAGE_FROM: f64 = 0.50;
const DIRTY_MAX: f64 = 0.75;
/// `device::cache`: what a read touches is held in whole blocks, of which its ends fill one in part.
const BLOCK_BYTES: u64 = 4096;

/// Whose bytes are held: a level's, the log's and whatever else is there to stay, of tables being written, and of those
/// that a job has read through and that go when it ends.
const LOG: usize = LEVELS;
const UNFINISHED: usize = LEVELS + 1;
const READ_THROUGH: usize = LEVELS + 2;
const OWNERS: usize = LEVELS + 3;

/// What was written at about the same time, and where the hand was.
#[derive(Clone, Copy, Debug)]
struct Cohort {
    owner: usize,
    /// When it was written; of that a part is clean, as far as the hand has come since.
    bytes: f64,
    since: f64,
}

/// Writes of less of a round of the hand than this count as one.
const COHORT_ROUNDS: f64 = 1.0 / 64.0;

#[derive(Clone, Debug)]
pub(crate) struct Hybrid {
    pub cache: WriteBack,
    /// Of the device behind.
    behind_bytes_per_s: u64,
    /// Rounds that the hand has made.
    hand: f64,
    /// The oldest first.
    dirty: VecDeque<Cohort>,
    /// Beside blocks of rows that were read.
    clean: [f64; OWNERS],
    /// Tables being written, and being read by jobs.
    unfinished: u64,
    read_through: u64,
    /// When the device behind will have destaged all that a write waited for.
    destage_end: u64,
    rows: RowBlocks,
    draw: Draw,
    /// The last write had to wait.
    is_full: bool,
    #[cfg(test)]
    pub bytes_destaged: u64,
    /// Of what was destaged, what writes waited for.
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

    /// Rows will be read, by records in blocks of `block_bytes` and rows of `row_bytes`.
    pub fn hold_rows(&mut self, records: u64, row_bytes: u64, block_bytes: u64) {
        self.rows = RowBlocks::new(records, row_bytes, block_bytes);
    }

    /// What is dirty yet of whom.
    fn dirty_of(&self, owners: impl Fn(usize) -> bool) -> f64 {
        let of = self.dirty.iter().filter(|cohort| owners(cohort.owner));
        of.map(|cohort| cohort.bytes * (1.0 - (self.hand - cohort.since))).sum()
    }

    fn dirty_bytes(&self) -> f64 {
        self.dirty_of(|_| true)
    }

    /// Bytes come in at `start`; when there is room for them.
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
            // As much is dirty as if it had been written then.
            Some(cohort) => cohort.bytes += bytes / (1.0 - (hand - cohort.since)),
            None => self.dirty.push_back(Cohort { owner, bytes, since: hand }),
        }
    }

    /// Lets the device behind have worked until `now`. Where nothing is to be destaged it idles.
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

    fn destage_ns(&self, bytes: f64) -> u64 {
        (bytes / self.behind_bytes_per_s.max(1) as f64 * 1e9) as u64
    }

    /// `bytes` of what is dirty go to the device behind and stay as clean ones.
    fn destage(&mut self, bytes: f64) {
        #[cfg(test)]
        {
            self.bytes_destaged += bytes.max(0.0) as u64;
        }
        self.bytes_awaited += if self.is_full { bytes as u64 } else { 0 };
        let mut left = bytes;
        while left > 0.5 {
            let Some(oldest) = self.dirty.front() else { return };
            // The hand goes on until all of the oldest is clean, or so many bytes are.
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
        // What was used again is passed over once.
        let idle = self.rows.idle_bytes() as f64;
        let of_tables = (excess * tables / (tables + idle).max(1.0)).min(tables);
        let part = 1.0 - of_tables / tables.max(1.0);
        self.clean.iter_mut().for_each(|clean| *clean *= part);
        self.rows.shrink((rows - (excess - of_tables)).max(0.0) as u64);
    }

    /// Of what is held of one, a part is gone, or becomes another's.
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

    /// A job has replaced parts of levels, of which it read so much, by what it wrote, which is `into`'s from now on. What a
    /// job without output gave to the next level goes there.
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

    /// Whether the block of a record's row is there, which is on those levels; if not, it comes in.
    pub fn finds_row(&mut self, start: u64, record: u32, bytes: u64, on: &Place) -> bool {
        self.destage_until(start);
        // Above the last levels rows come and go with their tables.
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

    /// How many of `bytes` are there, of `all` those parts of levels. The rest comes in.
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
    /// And read since its turn last came.
    Used,
}

/// Of the clean part of the cache the blocks of rows that were read.
#[derive(Clone, Debug, Default)]
struct RowBlocks {
    /// By record.
    block_of: Vec<u32>,
    state: Vec<State>,
    /// Blocks and the bytes that they take, oldest first.
    queue: VecDeque<(u32, u64)>,
    bytes: u64,
    /// Of the blocks in the queue, those that were used again.
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

    /// Of blocks that were not used again.
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
