//! Eviction by a clock: a hand passes over the entries, and evicts those that were not used since
//! it last passed.
//!
//! Entries that were used only once are evicted first, so a scan or a bulk load does not displace
//! entries in use. Each entry has a numbered place, and the caller records the places. The row
//! cache of the [RAM tier](crate::tier) does so with a hash table of rows, and its model in
//! `predict` with record numbers.

use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of places that the hand passes per call. It bounds the time of a call after a
/// large reduction of the budget.
const STEPS_PER_CALL: usize = 64;
/// An entry larger than the budget divided by this number is not admitted.
const BUDGET_PART_MAX: u64 = 64;

pub trait Entry {
    /// Returns the bytes of the budget that the entry takes.
    fn bytes(&self) -> u64;
}

#[derive(Debug)]
struct Held<E> {
    entry: E,
    is_used: AtomicBool,
}

#[derive(Debug)]
pub struct Clock<E> {
    places: Vec<Option<Held<E>>>,
    free: Vec<usize>,
    hand: usize,
    bytes: u64,
    bytes_max: u64,
}

impl<E: Entry> Clock<E> {
    /// Creates an empty clock with a budget in bytes.
    pub fn new(bytes_max: u64) -> Clock<E> {
        Clock { places: Vec::new(), free: Vec::new(), hand: 0, bytes: 0, bytes_max }
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

    /// Returns true if an entry of this size may be added.
    pub fn admits(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max / BUDGET_PART_MAX
    }

    pub fn get(&self, place: usize) -> Option<&E> {
        Some(&self.places.get(place)?.as_ref()?.entry)
    }

    /// Returns an entry and marks it as used: the hand will skip it once.
    pub fn get_for_use(&self, place: usize) -> Option<&E> {
        let held = self.places.get(place)?.as_ref()?;
        // Most entries are marked already, and a write would take the cache line from other
        // readers.
        if !held.is_used.load(Ordering::Relaxed) {
            held.is_used.store(true, Ordering::Relaxed);
        }
        Some(&held.entry)
    }

    /// Adds an entry that counts as not used, and returns its place.
    pub fn add(&mut self, entry: E) -> usize {
        self.bytes += entry.bytes();
        let held = Some(Held { entry, is_used: AtomicBool::new(false) });
        match self.free.pop() {
            Some(place) => {
                self.places[place] = held;
                place
            }
            None => {
                self.places.push(held);
                self.places.len() - 1
            }
        }
    }

    /// Changes an entry, possibly its size. This does not count as a use.
    pub fn change(&mut self, place: usize, change: impl FnOnce(&mut E)) {
        let Some(held) = self.places.get_mut(place).and_then(Option::as_mut) else { return };
        self.bytes -= held.entry.bytes();
        change(&mut held.entry);
        self.bytes += held.entry.bytes();
    }

    pub fn remove(&mut self, place: usize) -> Option<E> {
        let Held { entry, .. } = self.places.get_mut(place)?.take()?;
        self.bytes -= entry.bytes();
        self.free.push(place);
        Some(entry)
    }

    /// Evicts a few entries if the budget is exceeded. `evicted` receives each with its place.
    pub fn evict(&mut self, mut evicted: impl FnMut(usize, E)) {
        let mut steps = STEPS_PER_CALL;
        while self.bytes > self.bytes_max && steps > 0 {
            steps -= 1;
            self.hand = if self.hand + 1 < self.places.len() { self.hand + 1 } else { 0 };
            let spare = |held: &mut Held<E>| std::mem::take(held.is_used.get_mut());
            if self.places[self.hand].as_mut().is_some_and(|held| !spare(held)) {
                if let Some(entry) = self.remove(self.hand) {
                    evicted(self.hand, entry);
                }
            }
        }
    }
}
