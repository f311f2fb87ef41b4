//! The earliest time at which each slot's rows may need maintenance, so that idle slots are not
//! searched.
//!
//! Two threads use it. Apply lowers a slot's time *after* it has written a row that becomes due
//! then. A search takes the time *before* it reads the rows, and notes the times that it finds. If
//! a search does not see a row, the row was written after the time was taken, so the row's own time
//! stays.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

use types::{Slot, SlotRange, UnixMillis, SLOT_COUNT};

/// The time of a slot in which no row will ever be due.
pub const NEVER: UnixMillis = UnixMillis::MAX;

/// The time of a slot whose rows were not searched yet.
const UNKNOWN: UnixMillis = 0;

pub struct SlotTimes(Box<[AtomicU64]>);

impl SlotTimes {
    pub fn unknown() -> SlotTimes {
        SlotTimes((0..SLOT_COUNT).map(|_| AtomicU64::new(UNKNOWN)).collect())
    }

    /// Notes a row in the slot that is due at `at`.
    pub fn note(&self, slot: Slot, at: UnixMillis) {
        if let Some(time) = self.0.get(usize::from(slot)) {
            time.fetch_min(at, AcqRel);
        }
    }

    /// Notes that rows were added to these slots by means other than entries.
    pub fn forget(&self, slots: SlotRange) {
        (slots.first..=slots.last).for_each(|slot| self.note(slot, UNKNOWN));
    }

    /// Takes the slot's time. The caller must then search the slot and note the times that it
    /// finds.
    pub fn take(&self, slot: Slot) -> UnixMillis {
        self.0.get(usize::from(slot)).map_or(NEVER, |time| time.swap(NEVER, AcqRel))
    }

    pub fn earliest(&self, slots: SlotRange) -> UnixMillis {
        (slots.first..=slots.last).map(|slot| self.of(slot)).min().unwrap_or(NEVER)
    }

    /// Returns up to `max` due slots, from `from` on and then from the range's first.
    pub fn due(&self, slots: SlotRange, from: Slot, now: UnixMillis, max: usize) -> Vec<Slot> {
        let from = if slots.contains(from) { from } else { slots.first };
        let around = (from..=slots.last).chain(slots.first..from);
        around.filter(|slot| self.of(*slot) <= now).take(max).collect()
    }

    fn of(&self, slot: Slot) -> UnixMillis {
        self.0.get(usize::from(slot)).map_or(NEVER, |time| time.load(Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: SlotRange = SlotRange { first: 10, last: 13 };

    fn looked_through(slots: SlotRange) -> SlotTimes {
        let times = SlotTimes::unknown();
        (slots.first..=slots.last).for_each(|slot| assert_eq!(times.take(slot), UNKNOWN));
        times
    }

    #[test]
    fn what_nobody_has_looked_at_may_be_due() {
        let times = SlotTimes::unknown();
        assert_eq!(times.due(FEW, 0, 1, 9), [10, 11, 12, 13]);
        let times = looked_through(FEW);
        assert_eq!((times.due(FEW, 0, NEVER - 1, 9), times.earliest(FEW)), (vec![], NEVER));
        times.forget(SlotRange { first: 12, last: 20 });
        assert_eq!((times.due(FEW, 0, 1, 9), times.earliest(FEW)), (vec![12, 13], UNKNOWN));
        assert!(times.due(SlotRange { first: 5, last: 4 }, 0, 1, 9).is_empty());
    }

    #[test]
    fn the_earliest_row_counts_and_what_comes_while_somebody_looks_stays() {
        let times = looked_through(FEW);
        [(11, 70), (11, 50), (11, 60), (13, 90)].iter().for_each(|(slot, at)| times.note(*slot, *at));
        assert_eq!(times.earliest(FEW), 50);
        assert!(times.due(FEW, 0, 49, 9).is_empty());
        assert_eq!(times.due(FEW, 0, 50, 9), [11]);
        assert_eq!(times.take(11), 50);
        // The time is noted after the search took the slot's time. The search then finds an older
        // row.
        times.note(11, 55);
        times.note(11, 80);
        assert_eq!(times.earliest(FEW), 55);
    }

    #[test]
    fn a_search_goes_on_where_it_was_and_comes_round() {
        let times = SlotTimes::unknown();
        assert_eq!(times.due(FEW, 12, 1, 3), [12, 13, 10]);
        assert_eq!(times.due(FEW, 13, 1, 9), [13, 10, 11, 12]);
        assert_eq!(times.due(FEW, 14, 1, 2), [10, 11]);
        assert_eq!(times.due(SlotRange::ALL, SLOT_COUNT - 1, 1, 2), [SLOT_COUNT - 1, 0]);
    }
}
