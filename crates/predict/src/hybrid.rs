//! A hybrid device's write-back cache, by amounts: what it takes of the writes, and which reads it answers.
//!
//! The emulated one (`device::cache`, docs/DEVICES.md "Hybrid devices") knows blocks of files; here there are
//! amounts of bytes and rows. Its rules are the same: destaging begins at a half, writes wait at three quarters,
//! what is missed comes in, what is dirty stays, what is deleted need not be destaged. In place of its table:
//!
//! * its hand goes over blocks in the order of a hash, so what it destages is taken to be spread evenly over all that
//!   is dirty: of each level of the tree its part, and of the log;
//! * a level's dirty part is spread evenly over the level, so files that are compacted away take that part along;
//! * rows that are read have blocks of their own, by the order of their keys, in one queue with a second chance; a
//!   table that was destaged brings some of them in anew;
//! * of tables that are read through, what was written last is there: as much of them and of the levels above them as
//!   the cache has room for.

use std::collections::VecDeque;

use crate::blocks::blocks_of;
use crate::draw::Draw;
use crate::tree::LEVELS;

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

/// Whose bytes are dirty: a level's, the log's and whatever else is there to stay, and of tables being written.
const LOG: usize = LEVELS;
const UNFINISHED: usize = LEVELS + 1;
const OWNERS: usize = LEVELS + 2;

#[derive(Clone, Debug)]
pub(crate) struct Hybrid {
    pub cache: WriteBack,
    /// Of the device behind.
    behind_bytes_per_s: u64,
    dirty: [f64; OWNERS],
    /// Tables being written.
    unfinished: u64,
    /// When the device behind will have destaged all that a write waited for.
    destage_end: u64,
    rows: RowBlocks,
    draw: Draw,
    /// The last write had to wait.
    is_full: bool,
    #[cfg(test)]
    bytes_destaged: u64,
    /// Of what was destaged, what writes waited for.
    pub bytes_awaited: u64,
}

impl Hybrid {
    pub fn new(cache: WriteBack, behind_bytes_per_s: u64) -> Hybrid {
        Hybrid {
            cache,
            behind_bytes_per_s,
            dirty: [0.0; OWNERS],
            unfinished: 0,
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

    fn dirty_bytes(&self) -> f64 {
        self.dirty.iter().sum()
    }

    /// Bytes come in at `start`; when there is room for them.
    pub fn write(&mut self, start: u64, bytes: u64, is_table: bool) -> u64 {
        self.destage_until(start);
        self.dirty[if is_table { UNFINISHED } else { LOG }] += bytes as f64;
        self.unfinished += if is_table { bytes } else { 0 };
        let excess = self.dirty_bytes() - self.cache.bytes as f64 * DIRTY_MAX;
        self.is_full = excess > 0.0;
        let room_at = match self.is_full {
            true => {
                self.destage_end = self.destage_end.max(start) + self.destage_ns(excess);
                self.clean(excess);
                self.destage_end
            }
            false => start,
        };
        self.make_room();
        room_at
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
        self.clean(bytes);
    }

    fn destage_ns(&self, bytes: f64) -> u64 {
        (bytes / self.behind_bytes_per_s.max(1) as f64 * 1e9) as u64
    }

    /// `bytes` of what is dirty go to the device behind and stay as clean ones.
    fn clean(&mut self, bytes: f64) {
        let dirty = self.dirty_bytes();
        if bytes <= 0.0 || dirty <= 0.0 {
            return;
        }
        let part = (bytes / dirty).min(1.0);
        let tables = (dirty - self.dirty[LOG]) * part;
        self.dirty.iter_mut().for_each(|dirty| *dirty -= *dirty * part);
        #[cfg(test)]
        {
            self.bytes_destaged += bytes as u64;
        }
        self.bytes_awaited += if self.is_full { bytes as u64 } else { 0 };
        self.rows.leave_clean(tables, dirty * part - tables, &mut self.draw);
    }

    fn make_room(&mut self) {
        let clean = self.cache.bytes as f64 - self.dirty_bytes();
        self.rows.shrink(clean.max(0.0) as u64);
    }

    /// A job has replaced parts of levels by what it wrote, which is `into`'s from now on. What was dirty in files
    /// that a job without output gave to the next level goes there.
    pub fn replaced(&mut self, parts: &[(usize, f64)], into: usize, written: u64) {
        for &(level, part) in parts {
            let gone = self.dirty[level] * part.clamp(0.0, 1.0);
            self.dirty[level] -= gone;
            if written == 0 {
                self.dirty[into] += gone;
            }
        }
        let part = written as f64 / self.unfinished.max(written).max(1) as f64;
        let finished = self.dirty[UNFINISHED] * part;
        self.dirty[UNFINISHED] -= finished;
        self.dirty[into] += finished;
        self.unfinished = self.unfinished.saturating_sub(written);
    }

    /// Whether the block of a record's row is there, of tables of so many bytes; if not, it comes in.
    pub fn finds_row(&mut self, start: u64, record: u32, bytes: u64, tables: u64) -> bool {
        self.destage_until(start);
        if self.rows.finds(record) {
            return true;
        }
        let dirty = self.dirty_bytes() - self.dirty[LOG];
        if self.draw.fraction() * (tables.max(1) as f64) < dirty {
            return true;
        }
        self.rows.take(record, bytes);
        self.make_room();
        false
    }

    /// How many of `bytes` that are read through are there, of the last so many that were written. The rest comes in.
    pub fn finds_tables(&mut self, start: u64, bytes: u64, youngest: u64) -> u64 {
        self.destage_until(start);
        let part = (self.cache.bytes as f64 / youngest.max(1) as f64).min(1.0);
        let found = (bytes as f64 * part) as u64;
        self.rows.pass_through(bytes - found);
        self.make_room();
        found
    }
}

/// What a block in the queue is known by that holds no row.
const NO_ROW: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Out,
    Held,
    /// And read since its turn last came.
    Used,
}

/// The clean part of the cache.
#[derive(Clone, Debug, Default)]
struct RowBlocks {
    /// By record.
    block_of: Vec<u32>,
    state: Vec<State>,
    /// Blocks and the bytes that they take, oldest first.
    queue: VecDeque<(u32, u64)>,
    bytes: u64,
    block_bytes: u64,
}

impl RowBlocks {
    fn new(records: u64, row_bytes: u64, block_bytes: u64) -> RowBlocks {
        let rows = (block_bytes / row_bytes.max(1)).max(1);
        RowBlocks {
            block_of: blocks_of(records, rows),
            state: vec![State::Out; records.div_ceil(rows) as usize],
            queue: VecDeque::new(),
            bytes: 0,
            block_bytes: block_bytes.max(1),
        }
    }

    fn finds(&mut self, record: u32) -> bool {
        let Some(state) = self.block_of.get(record as usize).map(|block| &mut self.state[*block as usize])
        else {
            return false;
        };
        let held = *state != State::Out;
        if held {
            *state = State::Used;
        }
        held
    }

    fn take(&mut self, record: u32, bytes: u64) {
        if let Some(block) = self.block_of.get(record as usize) {
            self.put(*block, bytes + BLOCK_BYTES);
        }
    }

    /// Blocks that were dirty, of tables anywhere and of what holds no rows.
    fn leave_clean(&mut self, tables: f64, others: f64, draw: &mut Draw) {
        if !self.state.is_empty() {
            for _ in 0..(tables / self.block_bytes as f64 + draw.fraction()) as u64 {
                let block = draw.below(self.state.len() as u64) as u32;
                self.put(block, self.block_bytes);
            }
        }
        self.pass_through(others as u64);
    }

    fn pass_through(&mut self, bytes: u64) {
        if bytes > 0 {
            self.queue.push_back((NO_ROW, bytes));
            self.bytes += bytes;
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
            match self.state.get_mut(block as usize) {
                Some(state) if *state == State::Used => {
                    *state = State::Held;
                    self.queue.push_back((block, bytes));
                }
                Some(state) => {
                    *state = State::Out;
                    self.bytes -= bytes;
                }
                None => {
                    let gone = bytes.min(self.bytes - room);
                    self.bytes -= gone;
                    if gone < bytes {
                        self.queue.push_front((block, bytes - gone));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
