//! Which rows are in a store's RAM tier: the replacement of `quick_cache`, which the row cache is.
//!
//! New rows come into a small cold queue; one that is asked for again there, or soon after it left, is hot.
//! The hot queue is a clock. Rows are of one size, so the budget is a number of rows.

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
    asked: bool,
}

/// quick_cache's defaults: of the budget, for hot rows; and rows remembered after they left.
const HOT_PART: f64 = 0.97;
const GHOST_PART: f64 = 0.5;

#[derive(Clone, Debug)]
pub(crate) struct RowCache {
    rows: Vec<Row>,
    hot: VecDeque<u32>,
    cold: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    capacity: usize,
    hot_max: usize,
    ghosts_max: usize,
}

impl RowCache {
    pub fn new(records: u64, capacity: u64) -> RowCache {
        let capacity = capacity.min(records) as usize;
        RowCache {
            rows: vec![Row::default(); records as usize],
            hot: VecDeque::new(),
            cold: VecDeque::new(),
            ghosts: VecDeque::new(),
            capacity,
            hot_max: (capacity as f64 * HOT_PART) as usize,
            ghosts_max: (capacity as f64 * GHOST_PART) as usize,
        }
    }

    /// Whether the row is there; it counts as asked for.
    pub fn hit(&mut self, record: u32) -> bool {
        let row = &mut self.rows[record as usize];
        let held = matches!(row.place, Place::Cold | Place::Hot);
        row.asked |= held;
        held
    }

    /// A row that was read or written comes in; one that is there is asked for.
    pub fn insert(&mut self, record: u32) {
        if self.capacity == 0 || self.hit(record) {
            return;
        }
        let was_ghost = self.rows[record as usize].place == Place::Ghost;
        if was_ghost || self.hot.len() < self.hot_max {
            self.put_hot(record);
        } else {
            self.rows[record as usize] = Row { place: Place::Cold, asked: false };
            self.cold.push_back(record);
        }
        while self.hot.len() + self.cold.len() > self.capacity {
            self.evict();
        }
    }

    fn put_hot(&mut self, record: u32) {
        self.rows[record as usize] = Row { place: Place::Hot, asked: false };
        self.hot.push_back(record);
        while self.hot.len() > self.hot_max.max(1) {
            self.turn_hot();
        }
    }

    /// The clock's hand passes rows that were asked for since it came by; the first other one leaves.
    fn turn_hot(&mut self) {
        while let Some(record) = self.hot.pop_front() {
            let row = &mut self.rows[record as usize];
            if !row.asked {
                row.place = Place::Out;
                return;
            }
            row.asked = false;
            self.hot.push_back(record);
        }
    }

    fn evict(&mut self) {
        let Some(record) = self.cold.pop_front() else { return self.turn_hot() };
        if self.rows[record as usize].asked {
            return self.put_hot(record);
        }
        self.rows[record as usize].place = Place::Ghost;
        self.ghosts.push_back(record);
        while self.ghosts.len() > self.ghosts_max {
            let Some(gone) = self.ghosts.pop_front() else { return };
            let row = &mut self.rows[gone as usize];
            if row.place == Place::Ghost {
                row.place = Place::Out;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{popular, Draw};

    #[test]
    fn it_holds_no_more_than_its_budget() {
        let mut cache = RowCache::new(1000, 100);
        (0..1000).for_each(|record| cache.insert(record));
        let held = (0..1000).filter(|record| matches!(cache.rows[*record].place, Place::Cold | Place::Hot));
        assert_eq!(held.count(), 100);
        let mut none = RowCache::new(1000, 0);
        none.insert(1);
        assert!(!none.hit(1));
    }

    #[test]
    fn popular_rows_stay_while_others_pass_through() {
        let (mut cache, mut draw) = (RowCache::new(20_000, 500), Draw::new(1));
        let mut hits = 0;
        for at in 0..60_000 {
            let record = popular(20_000, &mut draw) as u32;
            let hit = cache.hit(record);
            cache.insert(record);
            hits += u32::from(hit && at >= 30_000);
            // A follower's writes of rows that nobody reads here.
            cache.insert(draw.below(20_000) as u32);
        }
        let share = f64::from(hits) / 30_000.0;
        // A cache that knew the most popular 500 would hit 26%.
        assert!((0.18..0.27).contains(&share), "{share}");
    }
}
