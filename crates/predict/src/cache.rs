//! A row cache with the replacement policy of `quick_cache` (0.6).
//!
//! New rows enter a small cold queue. A row that is requested again there, or soon after it has
//! left, becomes hot. The hot queue is a clock whose counters go up to two. All rows have the same
//! size, so the budget is a number of rows.
//!
//! The store's own cache differs: it is a clock without a cold queue (`storage::tier::row_cache`),
//! which this model does not reproduce yet.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Out,
    Ghost,
    Cold,
    Hot,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    place: Place,
    /// The number of requests since the hand last passed, up to `ASKED_MAX`.
    asked: u8,
    /// The number of the row's entry in its queue. Entries with other numbers are outdated.
    entry: u32,
}

/// quick_cache's `MAX_F`.
const ASKED_MAX: u8 = 2;
/// The part of the budget for hot rows, quick_cache's default.
const HOT_PART: f64 = 0.97;
/// The number of rows that are remembered after they have left, as a part of the expected rows;
/// quick_cache's default.
const GHOST_PART: f64 = 0.5;
/// The row size from which the number of expected rows is computed.
const EXPECTED_ROW_BYTES: u64 = 512;

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Records and entry numbers, oldest first, including outdated ones.
    entries: VecDeque<(u32, u32)>,
    rows: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct RowCache {
    rows: Vec<Row>,
    hot: Queue,
    cold: Queue,
    ghosts: Queue,
    entries: u32,
    capacity: usize,
    hot_max: usize,
    ghosts_max: usize,
}

impl RowCache {
    /// Makes a cache of `bytes` in which a row takes `entry_bytes`.
    pub fn new(records: u64, bytes: u64, entry_bytes: u64) -> RowCache {
        let capacity = (bytes / entry_bytes.max(1)) as usize;
        RowCache {
            rows: vec![Row::default(); records as usize],
            hot: Queue::default(),
            cold: Queue::default(),
            ghosts: Queue::default(),
            entries: 0,
            capacity,
            hot_max: ((capacity as f64 * HOT_PART) as usize).max(1),
            ghosts_max: ((bytes / EXPECTED_ROW_BYTES) as f64 * GHOST_PART) as usize,
        }
    }

    /// Returns true if the row is cached. Counts as a request for it.
    pub fn hit(&mut self, record: u32) -> bool {
        let row = &mut self.rows[record as usize];
        let held = matches!(row.place, Place::Cold | Place::Hot);
        if held {
            row.asked = ASKED_MAX.min(row.asked + 1);
        }
        held
    }

    /// Adds a row that was read. If it is cached already, this counts as a request.
    pub fn insert(&mut self, record: u32) {
        if self.capacity == 0 || self.hit(record) {
            return;
        }
        if self.rows[record as usize].place == Place::Ghost {
            self.leave(record);
            self.put(record, Place::Hot, 0);
            while self.hot.rows + self.cold.rows > self.capacity {
                self.turn_cold();
            }
        } else {
            self.enter(record);
        }
    }

    /// Writes the rows of one batch: removes all of them with their history, and then adds the new
    /// versions.
    pub fn write(&mut self, records: impl Iterator<Item = u32> + Clone) {
        records.clone().for_each(|record| self.leave(record));
        if self.capacity > 0 {
            records.for_each(|record| self.enter(record));
        }
    }

    /// Adds a row if it is not cached.
    fn enter(&mut self, record: u32) {
        if matches!(self.rows[record as usize].place, Place::Cold | Place::Hot) {
            return;
        }
        let place = if self.hot.rows < self.hot_max { Place::Hot } else { Place::Cold };
        while self.hot.rows + self.cold.rows >= self.capacity {
            self.turn_cold();
        }
        self.put(record, place, 0);
    }

    fn queue(&mut self, place: Place) -> Option<&mut Queue> {
        match place {
            Place::Out => None,
            Place::Ghost => Some(&mut self.ghosts),
            Place::Cold => Some(&mut self.cold),
            Place::Hot => Some(&mut self.hot),
        }
    }

    fn leave(&mut self, record: u32) {
        let place = std::mem::take(&mut self.rows[record as usize].place);
        if let Some(queue) = self.queue(place) {
            queue.rows -= 1;
        }
    }

    fn put(&mut self, record: u32, place: Place, asked: u8) {
        self.entries = self.entries.wrapping_add(1);
        let entry = self.entries;
        self.rows[record as usize] = Row { place, asked, entry };
        let Some(queue) = self.queue(place) else { return };
        queue.rows += 1;
        queue.entries.push_back((record, entry));
        if queue.entries.len() > 2 * queue.rows + 64 {
            let mut entries = std::mem::take(&mut queue.entries);
            entries.retain(|(record, entry)| stands(&self.rows[*record as usize], place, *entry));
            if let Some(queue) = self.queue(place) {
                queue.entries = entries;
            }
        }
    }

    /// Removes the oldest row of a queue. Returns `None` if the queue is empty.
    fn pop(&mut self, place: Place) -> Option<(u32, u8)> {
        loop {
            let (record, entry) = self.queue(place)?.entries.pop_front()?;
            let row = self.rows[record as usize];
            if stands(&row, place, entry) {
                self.leave(record);
                return Some((record, row.asked));
            }
        }
    }

    /// Moves the clock's hand past rows that were requested since it last passed, and removes the
    /// first row that was not.
    fn turn_hot(&mut self) {
        while let Some((record, asked)) = self.pop(Place::Hot) {
            if asked == 0 {
                return;
            }
            self.put(record, Place::Hot, asked - 1);
        }
    }

    fn turn_cold(&mut self) {
        match self.pop(Place::Cold) {
            None => self.turn_hot(),
            Some((record, 0)) => {
                self.put(record, Place::Ghost, 0);
                if self.ghosts.rows > self.ghosts_max {
                    self.pop(Place::Ghost);
                }
            }
            Some((record, asked)) => {
                self.put(record, Place::Hot, asked - 1);
                while self.hot.rows > self.hot_max {
                    self.turn_hot();
                }
            }
        }
    }
}

fn stands(row: &Row, place: Place, entry: u32) -> bool {
    row.place == place && row.entry == entry
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::draw::{popular, Draw};

    #[test]
    fn it_holds_no_more_than_its_budget() {
        let mut cache = RowCache::new(1000, 100_000, 1000);
        let mut draw = Draw::new(4);
        for _ in 0..10_000 {
            let record = draw.below(1000) as u32;
            match draw.below(3) {
                0 => cache.write([record, draw.below(1000) as u32].into_iter()),
                1 => cache.insert(record),
                _ => drop(cache.hit(record)),
            }
            let at = |place| cache.rows.iter().filter(|row| row.place == place).count();
            let rows = [Place::Hot, Place::Cold, Place::Ghost].map(at);
            assert_eq!(rows, [cache.hot.rows, cache.cold.rows, cache.ghosts.rows]);
            assert!(rows[0] + rows[1] <= 100 && rows[2] <= 97, "{rows:?}");
            assert!(cache.hot.entries.len() <= 300, "entries that were left are dropped");
        }
        assert_eq!(cache.hot.rows + cache.cold.rows, 100);
        let mut none = RowCache::new(1000, 999, 1000);
        none.insert(1);
        none.write([1, 2].into_iter());
        assert!(!none.hit(1));
    }

    /// Compares the model with quick_cache under the same requests.
    #[test]
    fn it_finds_what_quick_cache_finds() {
        let (records, rows) = (10_000u64, 1300u64);
        let theirs = quick_cache::unsync::Cache::<u32, ()>::with_options(
            quick_cache::OptionsBuilder::new()
                .estimated_items_capacity((rows * 1244 / 512) as usize)
                .weight_capacity(rows)
                .build()
                .unwrap(),
            quick_cache::UnitWeighter,
            Default::default(),
            Default::default(),
        );
        let (mut theirs, mut ours) = (theirs, RowCache::new(records, rows * 1244, 1244));
        for writes_percent in [0, 5, 50] {
            let mut draw = Draw::new(writes_percent + 1);
            let mut hits = [0u32; 2];
            for _ in 0..100_000 {
                let record = popular(records, &mut draw) as u32;
                if draw.below(100) < writes_percent {
                    let batch: BTreeSet<u32> = (0..8).map(|_| popular(records, &mut draw) as u32).collect();
                    batch.iter().for_each(|record| {
                        theirs.remove(record);
                    });
                    batch.iter().for_each(|record| theirs.insert(*record, ()));
                    ours.write(batch.iter().copied());
                    continue;
                }
                match theirs.get(&record) {
                    Some(()) => hits[0] += 1,
                    None => theirs.insert(record, ()),
                }
                match ours.hit(record) {
                    true => hits[1] += 1,
                    false => ours.insert(record),
                }
            }
            assert!(hits[0] > 10_000 && hits[0] == hits[1], "{writes_percent}% writes: {hits:?}");
        }
    }

    #[test]
    fn popular_rows_stay_while_others_pass_through() {
        let (mut cache, mut draw) = (RowCache::new(20_000, 500_000, 1000), Draw::new(1));
        let mut hits = 0;
        for at in 0..60_000 {
            let record = popular(20_000, &mut draw) as u32;
            let hit = cache.hit(record);
            cache.insert(record);
            hits += u32::from(hit && at >= 30_000);
            // A follower's write of a row that no client reads here.
            cache.write(std::iter::once(draw.below(20_000) as u32));
        }
        let share = f64::from(hits) / 30_000.0;
        // A cache of the 500 most popular rows would have a hit rate of 26%.
        assert!((0.18..0.27).contains(&share), "{share}");
    }
}
