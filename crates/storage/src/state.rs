//! A region's state row: how far the region has applied its log, its time, and its counts of keys
//! and bytes.
//!
//! It is written in the same batch as the rows it describes. So after a crash the engine holds a
//! consistent prefix of the log, and this row records the length of that prefix.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::{LogIndex, SlotRange, Term, UnixMillis, FIRST_INDEX, FIRST_TERM};

use crate::watches::{Watches, WATCH_LEN};
use crate::{Result, StorageError};

const STATE_VERSION: u8 = 2;
/// Version of a state with skipped entries. Other states keep the earlier version, so that an
/// earlier program can read them.
const STATE_VERSION_SKIPPED: u8 = 3;
/// Version of a state with watches, since version 3 of the cluster. Other states keep the earlier
/// versions.
const STATE_VERSION_WATCHES: u8 = 4;
/// Maximum number of skipped entries that are remembered.
const SKIPPED_MAX: usize = 64;
const FIXED_LEN: usize = 1 + 4 * 8 + 4 + 8 + 2;
const COUNTS_LEN: usize = 2 + 8 + 8;

/// The version of command semantics in a region's state. It has never changed: the format of each
/// entry decides how the entry is executed.
const SEMANTICS_VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbCounts {
    pub keys: u64,
    pub with_expiry: u64,
}

/// The counts of some slots, as returned by [`count_keys`](crate::count_keys).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Counts by database, in ascending order.
    pub keys: Vec<(u16, DbCounts)>,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionState {
    pub applied_index: LogIndex,
    pub applied_term: Term,
    /// The region's time: the largest stamp applied so far. It never decreases.
    pub last_stamp_ms: UnixMillis,
    /// The generation that the next new collection receives. A region never uses a generation
    /// twice.
    pub next_generation: u64,
    pub semantics: u32,
    /// Bytes of keys and values as clients sent them: each key once, with a string's value or each
    /// field and value of a collection. Elements of a dead generation count until they are swept.
    bytes: u64,
    /// Counts by database, in ascending order, without databases that hold no keys.
    counts: Vec<(u16, DbCounts)>,
    /// The latest entries that later orders in the log declared to be skipped. Ascending. They stay
    /// when the order is applied, because the same order may occur more than once.
    skipped: Vec<LogIndex>,
    /// The keys that clients watch.
    pub watches: Watches,
}

/// The state of a new region. Its log begins after a first entry that is in no log.
impl Default for RegionState {
    fn default() -> RegionState {
        RegionState {
            applied_index: FIRST_INDEX,
            applied_term: FIRST_TERM,
            last_stamp_ms: 0,
            next_generation: 1,
            semantics: SEMANTICS_VERSION,
            bytes: 0,
            counts: Vec::new(),
            skipped: Vec::new(),
            watches: Watches::default(),
        }
    }
}

impl RegionState {
    pub fn counts(&self, db: u16) -> DbCounts {
        match self.counts.binary_search_by_key(&db, |(number, _)| *number) {
            Ok(at) => self.counts[at].1,
            Err(_) => DbCounts::default(),
        }
    }

    /// Returns the databases that hold keys, ascending.
    pub fn databases(&self) -> impl Iterator<Item = (u16, DbCounts)> + '_ {
        self.counts.iter().copied()
    }

    pub fn set_counts(&mut self, db: u16, counts: DbCounts) {
        match (self.counts.binary_search_by_key(&db, |(number, _)| *number), counts.keys) {
            (Ok(at), 0) => drop(self.counts.remove(at)),
            (Ok(at), _) => self.counts[at].1 = counts,
            (Err(_), 0) => {}
            (Err(at), _) => self.counts.insert(at, (db, counts)),
        }
    }

    /// Adjusts the number of keys and of keys with an expiry time: `+1` for one that was added,
    /// `-1` for one that was removed.
    ///
    /// # Panics
    /// If a count would fall below zero. Rows and counts then disagree, and replication must not
    /// spread that.
    pub fn adjust(&mut self, db: u16, keys: i64, with_expiry: i64) {
        let old = self.counts(db);
        let new = DbCounts {
            keys: old.keys.checked_add_signed(keys).expect("keys are counted when they come"),
            with_expiry: old.with_expiry.checked_add_signed(with_expiry).expect("times are counted when set"),
        };
        self.set_counts(db, new);
    }

    /// Resets all counts to zero.
    pub fn clear_counts(&mut self) {
        self.counts.clear();
        self.bytes = 0;
    }

    /// Returns the bytes of keys and values, including elements that wait to be swept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds `came` bytes and subtracts `went` bytes.
    ///
    /// # Panics
    /// If the total would fall below zero. Rows and counts then disagree, and replication must not
    /// spread that.
    pub fn adjust_bytes(&mut self, came: usize, went: usize) {
        let more = self.bytes.saturating_add(came as u64);
        self.bytes = more.checked_sub(went as u64).expect("bytes are counted when they come");
    }

    /// Advances the region's time to `stamp_ms` unless it is later already, and returns it.
    pub fn advance_time(&mut self, stamp_ms: UnixMillis) -> UnixMillis {
        self.last_stamp_ms = self.last_stamp_ms.max(stamp_ms);
        self.last_stamp_ms
    }

    /// Records that the entry at `index` was not executed. If there are too many records, the
    /// oldest are dropped.
    pub fn note_skipped(&mut self, index: LogIndex) {
        if let Err(at) = self.skipped.binary_search(&index) {
            self.skipped.insert(at, index);
        }
        if self.skipped.len() > SKIPPED_MAX {
            self.skipped.remove(0);
        }
    }

    /// Returns true if the entry at `index` is known not to have been executed.
    pub fn has_skipped(&self, index: LogIndex) -> bool {
        self.skipped.binary_search(&index).is_ok()
    }

    pub fn take_generation(&mut self) -> u64 {
        let generation = self.next_generation;
        self.next_generation += 1;
        generation
    }

    /// Removes these slots, which have these counts, and returns the state of the new region that
    /// receives them. Both regions continue with the same time and next generation.
    pub fn split_off(&mut self, slots: SlotRange, counted: &Counted) -> RegionState {
        let mut child = RegionState {
            last_stamp_ms: self.last_stamp_ms,
            next_generation: self.next_generation,
            semantics: self.semantics,
            bytes: counted.bytes,
            watches: self.watches.split_off(slots),
            ..RegionState::default()
        };
        let left = |had: u64, gone: u64| had.checked_sub(gone).expect("a part is no more than the whole");
        self.bytes = left(self.bytes, counted.bytes);
        for &(db, gone) in &counted.keys {
            child.set_counts(db, gone);
            let had = self.counts(db);
            let keys = left(had.keys, gone.keys);
            self.set_counts(db, DbCounts { keys, with_expiry: left(had.with_expiry, gone.with_expiry) });
        }
        child
    }

    /// Keeps only the watches of these slots.
    pub fn retain_watches(&mut self, slots: SlotRange) {
        self.watches = self.watches.split_off(slots);
    }

    /// Replaces the counts with `counted`. Time and generations continue.
    pub fn recount(&mut self, counted: &Counted) {
        self.clear_counts();
        self.bytes = counted.bytes;
        for &(db, counts) in &counted.keys {
            self.set_counts(db, counts);
        }
    }

    /// Adds the counts of a region that merges into this one. Time and next generation become the
    /// maximum of both, so that no generation of either region is used twice.
    pub fn absorb(&mut self, source: &RegionState) {
        for (db, gained) in source.databases() {
            let had = self.counts(db);
            let (keys, with_expiry) = (had.keys + gained.keys, had.with_expiry + gained.with_expiry);
            self.set_counts(db, DbCounts { keys, with_expiry });
        }
        self.bytes = self.bytes.saturating_add(source.bytes);
        self.last_stamp_ms = self.last_stamp_ms.max(source.last_stamp_ms);
        self.next_generation = self.next_generation.max(source.next_generation);
        self.watches.absorb(&source.watches);
    }

    pub fn encode(&self) -> Bytes {
        let watches = self.watches.len() * WATCH_LEN;
        let mut out = BytesMut::with_capacity(FIXED_LEN + self.counts.len() * COUNTS_LEN + watches);
        out.put_u8(match (self.watches.is_empty(), self.skipped.is_empty()) {
            (false, _) => STATE_VERSION_WATCHES,
            (true, false) => STATE_VERSION_SKIPPED,
            (true, true) => STATE_VERSION,
        });
        out.put_u64(self.applied_index);
        out.put_u64(self.applied_term);
        out.put_u64(self.last_stamp_ms);
        out.put_u64(self.next_generation);
        out.put_u32(self.semantics);
        out.put_u64(self.bytes);
        out.put_u16(u16::try_from(self.counts.len()).expect("fewer databases than 65536"));
        for (db, counts) in &self.counts {
            out.put_u16(*db);
            out.put_u64(counts.keys);
            out.put_u64(counts.with_expiry);
        }
        if !self.skipped.is_empty() || !self.watches.is_empty() {
            out.put_u16(u16::try_from(self.skipped.len()).expect("they are bounded"));
            self.skipped.iter().for_each(|index| out.put_u64(*index));
        }
        if !self.watches.is_empty() {
            self.watches.encode(&mut out);
        }
        out.freeze()
    }

    pub fn decode(mut row: &[u8]) -> Result<RegionState> {
        let corrupt = |what: &str| StorageError::Corrupt(format!("{what} of a region's state"));
        if row.len() < FIXED_LEN {
            return Err(corrupt("the header"));
        }
        let (has_skipped, has_watches) = match row.get_u8() {
            STATE_VERSION => (false, false),
            STATE_VERSION_SKIPPED => (true, false),
            STATE_VERSION_WATCHES => (true, true),
            version => return Err(corrupt(&format!("the unknown version {version}"))),
        };
        let mut state = RegionState {
            applied_index: row.get_u64(),
            applied_term: row.get_u64(),
            last_stamp_ms: row.get_u64(),
            next_generation: row.get_u64(),
            semantics: row.get_u32(),
            bytes: row.get_u64(),
            counts: Vec::new(),
            skipped: Vec::new(),
            watches: Watches::default(),
        };
        let databases = usize::from(row.get_u16());
        if row.len() < databases * COUNTS_LEN || (!has_skipped && row.len() != databases * COUNTS_LEN) {
            return Err(corrupt("the counts"));
        }
        for _ in 0..databases {
            let db = row.get_u16();
            let counts = DbCounts { keys: row.get_u64(), with_expiry: row.get_u64() };
            if state.counts.last().is_some_and(|(last, _)| *last >= db) {
                return Err(corrupt("the order of the counts"));
            }
            state.counts.push((db, counts));
        }
        if has_skipped {
            let least = usize::from(!has_watches);
            state.skipped = take_skipped(&mut row, least).ok_or_else(|| corrupt("the skipped entries"))?;
        }
        if has_watches {
            state.watches = Watches::decode(row).ok_or_else(|| corrupt("the watches"))?;
        } else if !row.is_empty() {
            return Err(corrupt("the end"));
        }
        Ok(state)
    }
}

/// Takes the skipped entries, of which there are at least `least`.
fn take_skipped(row: &mut &[u8], least: usize) -> Option<Vec<LogIndex>> {
    let count = if row.len() >= 2 { usize::from(row.get_u16()) } else { return None };
    let is_whole = (least..=SKIPPED_MAX).contains(&count) && row.len() >= 8 * count;
    let skipped: Vec<LogIndex> =
        if is_whole { (0..count).map(|_| row.get_u64()).collect() } else { return None };
    skipped.windows(2).all(|pair| pair[0] < pair[1]).then_some(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watches::WatchedKey;

    fn sample() -> RegionState {
        let mut state = RegionState { applied_index: 9, applied_term: 2, ..RegionState::default() };
        state.adjust(3, 2, 1);
        state.adjust(0, 1, 0);
        state.adjust_bytes(70, 7);
        state
    }

    #[test]
    fn states_round_trip_and_cut_ones_are_corrupt() {
        let state = sample();
        let row = state.encode();
        assert_eq!(RegionState::decode(&row).unwrap(), state);
        for cut in 0..row.len() {
            assert!(matches!(RegionState::decode(&row[..cut]), Err(StorageError::Corrupt(_))), "{cut}");
        }
    }

    #[test]
    fn the_latest_skipped_entries_are_kept() {
        let mut state = sample();
        [7, 3, 7].into_iter().for_each(|index| state.note_skipped(index));
        let row = state.encode();
        assert_eq!(RegionState::decode(&row).unwrap(), state);
        for cut in 0..row.len() {
            assert!(matches!(RegionState::decode(&row[..cut]), Err(StorageError::Corrupt(_))), "{cut}");
        }
        assert!(state.has_skipped(3) && state.has_skipped(7) && !state.has_skipped(5));
        (0..100).for_each(|index| state.note_skipped(index));
        assert!(!state.has_skipped(35) && state.has_skipped(36), "the oldest are dropped");
        assert_eq!(RegionState::decode(&state.encode()).unwrap(), state);
    }

    #[test]
    fn a_state_with_watches_round_trips_with_skipped_entries_and_without() {
        for is_skipping in [false, true] {
            let mut state = sample();
            for slot in [1, 7] {
                state.watches.add(WatchedKey { slot, db: 0, hash: 5 }, 3, 9);
            }
            if is_skipping {
                state.note_skipped(4);
            }
            let row = state.encode();
            assert_eq!(RegionState::decode(&row).unwrap(), state);
            for cut in 0..row.len() {
                assert!(matches!(RegionState::decode(&row[..cut]), Err(StorageError::Corrupt(_))), "{cut}");
            }
            let right = state.split_off(SlotRange { first: 5, last: 9 }, &Counted::default());
            assert_eq!((state.watches.len(), right.watches.len()), (1, 1));
            assert_eq!(right.watches.keys().next().unwrap().slot, 7);
        }
    }

    #[test]
    fn what_a_split_parts_a_merge_puts_together_again() {
        let mut left = sample();
        (left.last_stamp_ms, left.next_generation) = (50, 7);
        let whole = left.clone();
        let counted = Counted { keys: vec![(3, DbCounts { keys: 1, with_expiry: 1 })], bytes: 20 };
        let mut right = left.split_off(SlotRange { first: 5, last: 9 }, &counted);
        assert_eq!((left.bytes(), right.bytes()), (43, 20));
        (right.last_stamp_ms, right.next_generation) = (70, 5);
        left.absorb(&right);
        assert_eq!(left, RegionState { last_stamp_ms: 70, ..whole });
        right.take_generation();
        right.next_generation = 9;
        left.absorb(&right);
        assert_eq!((left.last_stamp_ms, left.next_generation), (70, 9));
    }

    #[test]
    fn an_empty_database_leaves_no_trace() {
        let mut state = sample();
        state.adjust(3, -2, -1);
        state.adjust(0, -1, 0);
        assert_eq!(state.databases().count(), 0);
    }

    #[test]
    #[should_panic(expected = "keys are counted")]
    fn counts_never_fall_below_zero() {
        RegionState::default().adjust(0, -1, 0);
    }

    #[test]
    #[should_panic(expected = "bytes are counted")]
    fn bytes_never_fall_below_zero() {
        sample().adjust_bytes(1, 65);
    }

    #[test]
    fn time_never_goes_back() {
        let mut state = RegionState::default();
        assert_eq!(state.advance_time(100), 100);
        assert_eq!(state.advance_time(50), 100);
        assert_eq!(state.advance_time(101), 101);
    }
}
