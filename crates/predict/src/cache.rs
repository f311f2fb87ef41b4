//! Which rows are in a store's RAM tier: the replacement of `quick_cache` (0.6), which the row cache is.
//!
//! New rows come into a small cold queue; one that is asked for again there, or soon after it left, is hot.
//! The hot queue is a clock that counts to two. Rows are of one size, so the budget is a number of rows. The store's
//! is in several parts with queues of their own (shards); this one is in one.

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
    /// So often since a hand came by.
    asked: u8,
    /// Where it stands in its queue: an entry with another number is one that it left.
    entry: u32,
}

/// quick_cache's `MAX_F`.
const ASKED_MAX: u8 = 2;
/// quick_cache's default: of the budget, for hot rows.
const HOT_PART: f64 = 0.97;
/// quick_cache's default: of the rows that are expected, remembered after they left.
const GHOST_PART: f64 = 0.5;
/// `rocks::row_cache` expects rows of so many bytes.
const EXPECTED_ROW_BYTES: u64 = 512;

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Records and entries, the oldest first; some were left.
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
    /// `entry_bytes`: what a row takes in it.
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

    /// Whether the row is there; it counts as asked for.
    pub fn hit(&mut self, record: u32) -> bool {
        let row = &mut self.rows[record as usize];
        let held = matches!(row.place, Place::Cold | Place::Hot);
        if held {
            row.asked = ASKED_MAX.min(row.asked + 1);
        }
        held
    }

    /// A row that was read comes in; one that is there by now is asked for.
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

    /// Rows that are written by one batch: all that was there goes first, and what was known of it, and then the new
    /// ones come in (`RowCache::write_through`).
    pub fn write(&mut self, records: impl Iterator<Item = u32> + Clone) {
        records.clone().for_each(|record| self.leave(record));
        if self.capacity > 0 {
            records.for_each(|record| self.enter(record));
        }
    }

    /// Nothing, if it is there.
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

    /// The oldest of a queue leaves it. `None`: it is empty.
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

    /// The clock's hand passes rows that were asked for since it came by; the first other one leaves.
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

    /// Beside the cache that it stands for, asked the same.
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
            // A follower's writes of rows that nobody reads here.
            cache.write(std::iter::once(draw.below(20_000) as u32));
        }
        let share = f64::from(hits) / 30_000.0;
        // A cache that knew the most popular 500 would hit 26%.
        assert!((0.18..0.27).contains(&share), "{share}");
    }
}
