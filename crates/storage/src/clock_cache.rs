//! Eviction in two steps, so that entries that are used once cannot displace entries in use (Yang
//! et al., FIFO queues are all you need for cache eviction, SOSP 2023).
//!
//! A new entry is on *probation*. Once probation takes more than its part of a full cache, its
//! oldest entries leave it: an entry that was used meanwhile becomes a *resident*, and any other is
//! evicted. Among the residents a clock evicts: a hand passes over them, and evicts those that were
//! not used since it last passed. It passes only as far as new residents need room. So a scan or a
//! bulk load of any length only passes through probation.
//!
//! An entry that is needed again soon after its eviction from probation is a resident at once. For
//! this the cache remembers fingerprints of about as many evicted entries as it has places.
//!
//! Each entry has a numbered place, and the caller records the places. The row cache of the [RAM
//! tier](crate::tier) does so with a hash table of rows, and its model in `predict` with record
//! numbers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::chunked::Chunked;

/// Maximum number of entries that are examined per call. It bounds the time of a call after a large
/// reduction of the budget.
const STEPS_PER_CALL: usize = 64;
/// An entry larger than the budget divided by this number is not admitted.
const BUDGET_PART_MAX: u64 = 64;
/// Divisor of the budget for the bytes that are on probation while residents use the rest.
const PROBATION_PART: u64 = 8;

pub trait Entry {
    /// Returns the bytes of the budget that the entry takes.
    fn bytes(&self) -> u64;

    /// Returns a hash of the entry's key.
    fn hash(&self) -> u64;
}

#[derive(Debug)]
struct Held<E> {
    entry: E,
    is_used: AtomicBool,
    /// The number of the entry's probation, or `None` for a resident.
    probation: Option<u64>,
}

#[derive(Debug)]
pub struct Clock<E> {
    places: Chunked<Option<Held<E>>>,
    free: Vec<usize>,
    hand: usize,
    bytes: u64,
    bytes_max: u64,
    /// The places of entries on probation, oldest first, each with the number of its probation. An
    /// entry that was removed leaves its place here.
    probation: VecDeque<(usize, u64)>,
    probation_bytes: u64,
    probations: u64,
    evicted: Fingerprints,
}

/// The entries that were lately evicted from probation. A newer one replaces an older one by
/// chance, so after as many further evictions as the table has slots, about a third is left.
#[derive(Debug, Default)]
struct Fingerprints {
    /// A power of two of them, or none. 0 is an empty slot.
    slots: Vec<u32>,
}

impl Fingerprints {
    /// Makes room for the fingerprints of `count` entries. A larger table begins empty.
    fn hold(&mut self, count: usize) {
        if count > self.slots.len() {
            self.slots = vec![0; count.next_power_of_two().max(64)];
        }
    }

    fn at(&self, hash: u64) -> Option<usize> {
        Some(hash as usize & self.slots.len().checked_sub(1)?)
    }

    fn slot(&mut self, hash: u64) -> Option<(&mut u32, u32)> {
        let at = self.at(hash)?;
        Some((&mut self.slots[at], (hash >> 32) as u32 | 1))
    }

    fn note(&mut self, hash: u64) {
        if let Some((slot, fingerprint)) = self.slot(hash) {
            *slot = fingerprint;
        }
    }

    /// Returns true if the entry was noted, and forgets it.
    fn take(&mut self, hash: u64) -> bool {
        let Some((slot, fingerprint)) = self.slot(hash) else { return false };
        let is_noted = *slot == fingerprint;
        if is_noted {
            *slot = 0;
        }
        is_noted
    }
}

impl<E: Entry> Clock<E> {
    /// Creates an empty clock with a budget in bytes.
    pub fn new(bytes_max: u64) -> Clock<E> {
        Clock {
            places: Chunked::default(),
            free: Vec::new(),
            hand: 0,
            bytes: 0,
            bytes_max,
            probation: VecDeque::new(),
            probation_bytes: 0,
            probations: 0,
            evicted: Fingerprints::default(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of places, including free ones.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Sets the budget. Entries beyond it are evicted by this and later calls of
    /// [`evict`](Self::evict).
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    pub fn is_over(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Returns the cache, and leaves an empty one with the same budget in its place.
    pub fn replace(&mut self) -> Clock<E> {
        let bytes_max = self.bytes_max;
        std::mem::replace(self, Clock::new(bytes_max))
    }

    /// Returns true if an entry of this size may be added.
    pub fn admits(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max / BUDGET_PART_MAX
    }

    pub fn get(&self, place: usize) -> Option<&E> {
        Some(&self.places.get(place)?.as_ref()?.entry)
    }

    /// Returns an entry and marks it as used, which lets it outlive entries that are not.
    pub fn get_for_use(&self, place: usize) -> Option<&E> {
        let held = self.places.get(place)?.as_ref()?;
        // Most entries are marked already, and a write would take the cache line from other
        // readers.
        if !held.is_used.load(Ordering::Relaxed) {
            held.is_used.store(true, Ordering::Relaxed);
        }
        Some(&held.entry)
    }

    /// Reads what the addition of entries with these hashes will read, so that the processor's
    /// cache has it. Returns the hashes of as many entries that are likely to be evicted for them.
    pub fn touch<'a>(&'a self, hashes: &[u64]) -> impl Iterator<Item = u64> + 'a {
        let slots = hashes.iter().filter_map(|hash| Some(self.evicted.slots[self.evicted.at(*hash)?]));
        std::hint::black_box(slots.fold(0, u32::wrapping_add));
        let is_full = self.bytes > self.bytes_max - self.bytes_max / BUDGET_PART_MAX;
        let count = if is_full { hashes.len() } else { 0 };
        let oldest = self.probation.iter().take(count);
        oldest.filter_map(|(place, _)| Some(self.get(*place)?.hash()))
    }

    /// Adds an entry that counts as not used, and returns its place.
    pub fn add(&mut self, entry: E) -> usize {
        let (bytes, was_evicted) = (entry.bytes(), self.evicted.take(entry.hash()));
        self.bytes += bytes;
        let place = self.free.pop().unwrap_or_else(|| self.places.push(None));
        let probation = (!was_evicted).then(|| {
            self.probations += 1;
            self.probation_bytes += bytes;
            self.probation.push_back((place, self.probations));
            self.probations
        });
        let held = Held { entry, is_used: AtomicBool::new(false), probation };
        *self.places.get_mut(place).expect("the place was added") = Some(held);
        if self.probation.len() > 2 * self.places.len() {
            // Most of them were removed while the cache had room.
            let Clock { places, probation, .. } = self;
            let is_on = |place: usize| places.get(place)?.as_ref()?.probation;
            probation.retain(|(place, number)| is_on(*place) == Some(*number));
        }
        place
    }

    /// Changes an entry, possibly its size. This does not count as a use.
    pub fn change(&mut self, place: usize, change: impl FnOnce(&mut E)) {
        let Some(held) = self.places.get_mut(place).and_then(Option::as_mut) else { return };
        let before = held.entry.bytes();
        change(&mut held.entry);
        let after = held.entry.bytes();
        self.bytes = self.bytes - before + after;
        if held.probation.is_some() {
            self.probation_bytes = self.probation_bytes - before + after;
        }
    }

    pub fn remove(&mut self, place: usize) -> Option<E> {
        let Held { entry, probation, .. } = self.places.get_mut(place)?.take()?;
        self.bytes -= entry.bytes();
        if probation.is_some() {
            self.probation_bytes -= entry.bytes();
        }
        self.free.push(place);
        Some(entry)
    }

    /// Evicts a few entries if the budget is exceeded. `evicted` receives each with its place.
    pub fn evict(&mut self, mut evicted: impl FnMut(usize, E)) {
        let mut steps = STEPS_PER_CALL;
        while self.bytes > self.bytes_max && steps > 0 {
            steps -= 1;
            let from_probation =
                self.probation_bytes > self.bytes_max / PROBATION_PART || self.probation_bytes == self.bytes;
            let place = if from_probation { self.end_probation() } else { self.pass_hand() };
            if let Some((place, entry)) = place.and_then(|place| Some((place, self.remove(place)?))) {
                if from_probation {
                    self.evicted.hold(self.places.len());
                    self.evicted.note(entry.hash());
                }
                evicted(place, entry);
            }
        }
    }

    /// Ends the oldest probation. Returns the place of its entry if the entry must be evicted.
    fn end_probation(&mut self) -> Option<usize> {
        let (place, number) = self.probation.pop_front()?;
        let held = self.places.get_mut(place)?.as_mut().filter(|held| held.probation == Some(number))?;
        if !std::mem::take(held.is_used.get_mut()) {
            return Some(place);
        }
        held.probation = None;
        self.probation_bytes -= held.entry.bytes();
        None
    }

    /// Moves the hand to the next place. Returns it if its entry is a resident that must be
    /// evicted.
    fn pass_hand(&mut self) -> Option<usize> {
        self.hand = if self.hand + 1 < self.places.len() { self.hand + 1 } else { 0 };
        let held = self.places.get_mut(self.hand)?.as_mut().filter(|held| held.probation.is_none())?;
        (!std::mem::take(held.is_used.get_mut())).then_some(self.hand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(u64);

    impl Entry for Row {
        fn bytes(&self) -> u64 {
            100
        }

        fn hash(&self) -> u64 {
            types::mix(self.0)
        }
    }

    /// A cache of numbers.
    struct Cache {
        clock: Clock<Row>,
        places: std::collections::HashMap<u64, usize>,
    }

    impl Cache {
        fn new(rows: u64) -> Cache {
            Cache { clock: Clock::new(100 * rows), places: Default::default() }
        }

        /// Reads a row. Returns true if the cache had it.
        fn read(&mut self, row: u64) -> bool {
            let Cache { clock, places } = self;
            if places.get(&row).is_some_and(|place| clock.get_for_use(*place).is_some()) {
                return true;
            }
            places.insert(row, clock.add(Row(row)));
            clock.evict(|_, Row(row)| assert!(places.remove(&row).is_some()));
            assert!(clock.probation_bytes <= clock.bytes && clock.bytes == 100 * places.len() as u64);
            false
        }

        fn hits(&mut self, rows: std::ops::Range<u64>) -> usize {
            rows.filter(|row| self.read(*row)).count()
        }
    }

    #[test]
    fn a_scan_of_any_length_displaces_no_rows_in_use() {
        let mut cache = Cache::new(1000);
        for _ in 0..2 {
            cache.hits(0..800);
        }
        assert_eq!(cache.hits(1_000_000..1_200_000), 0);
        assert_eq!(cache.hits(0..800), 800);
    }

    #[test]
    fn rows_in_use_are_kept_in_a_cache_that_was_full_of_others() {
        let mut cache = Cache::new(1000);
        cache.hits(10_000..30_000);
        for _ in 0..3 {
            cache.hits(0..200);
        }
        cache.hits(30_000..60_000);
        assert_eq!(cache.hits(0..200), 200);
    }

    #[test]
    fn rows_that_come_into_use_displace_rows_that_are_no_longer_used() {
        let mut cache = Cache::new(1000);
        for _ in 0..3 {
            cache.hits(0..1000);
        }
        // Nothing is used twice while it is on probation, because all of it is larger than that.
        for _ in 0..8 {
            cache.hits(10_000..10_700);
        }
        let hits = cache.hits(10_000..10_700);
        assert!(hits >= 650, "{hits} of 700");
        let old = cache.hits(0..300);
        assert!(old <= 200, "{old} of the old ones");
    }

    #[test]
    fn entries_that_are_removed_or_change_their_size_are_accounted_for() {
        struct Sized(u64, u64);
        impl Entry for Sized {
            fn bytes(&self) -> u64 {
                self.1
            }
            fn hash(&self) -> u64 {
                types::mix(self.0)
            }
        }
        let mut clock = Clock::new(10_000);
        let mut held: Vec<usize> = Vec::new();
        for step in 0..5_000u64 {
            let draw = types::mix(step);
            match draw % 4 {
                0 | 1 => held.push(clock.add(Sized(draw % 300, 1 + draw / 7 % 150))),
                2 if !held.is_empty() => {
                    let place = held.swap_remove(draw as usize / 11 % held.len());
                    assert!(clock.remove(place).is_some());
                }
                _ => {
                    if let Some(&place) = held.get(draw as usize / 13 % held.len().max(1)) {
                        clock.change(place, |entry| entry.1 = 1 + draw / 17 % 150);
                        clock.get_for_use(place);
                    }
                }
            }
            clock.evict(|place, _| held.retain(|other| *other != place));
            let sum = |probation: bool| -> u64 {
                let held = (0..clock.places()).filter_map(|place| clock.places.get(place)?.as_ref());
                held.filter(|held| !probation || held.probation.is_some()).map(|held| held.entry.1).sum()
            };
            assert_eq!((clock.bytes, clock.probation_bytes), (sum(false), sum(true)), "step {step}");
            assert!(clock.bytes <= 10_000 + 150);
        }
    }
}
