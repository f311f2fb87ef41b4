//! The keys of a region that clients watch for their transactions.
//!
//! A watch is replicated state: `WATCH` adds it, the first change of its key removes it, and `EXEC`
//! asks whether it is still there. So every replica gives the same answer, at every leader, and the
//! watch moves with its slot when the region is split or merged. It is part of the region's state
//! row, which is written with every batch anyway.
//!
//! A key is known by its slot, its database and its hash, as in its rows. Two keys with one hash
//! share a watch, and a change of one also counts as a change of the other.

use bytes::{Buf, BufMut, BytesMut};
use types::{SlotRange, UnixMillis};

use crate::failpoints::Failpoint;
use crate::rows::watched_key_of;
pub use crate::rows::WatchedKey;

/// Maximum number of watched keys of a region. Beyond it the oldest watch ends.
pub const WATCHES_MAX: usize = 2048;
/// Time after which a watch may end, in milliseconds. Clients of a store that crashed leave theirs
/// behind.
const AGE_MAX_MS: u64 = 24 * 3600 * 1000;
/// Bytes of an encoded watch.
pub(crate) const WATCH_LEN: usize = 2 + 2 + 8 + 8 + 4 + 8;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Watch {
    key: WatchedKey,
    /// A random number that no other watch has, so that a client cannot mistake a later watch of
    /// the same key for its own.
    number: u64,
    /// Number of clients that share the watch.
    clients: u32,
    /// The region's time when the last of them came.
    since_ms: UnixMillis,
}

/// The watches of a region, ascending by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watches(Vec<Watch>);

impl Watches {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the watched keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = WatchedKey> + '_ {
        self.0.iter().map(|watch| watch.key)
    }

    fn position(&self, key: WatchedKey) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |watch| watch.key)
    }

    /// Adds a client to the watch of the key, or a watch with this `number`. Returns the number of
    /// the watch.
    pub fn add(&mut self, key: WatchedKey, number: u64, now_ms: UnixMillis) -> u64 {
        if let Ok(at) = self.position(key) {
            let watch = &mut self.0[at];
            watch.clients = watch.clients.saturating_add(1);
            watch.since_ms = now_ms;
            return watch.number;
        }
        self.0.retain(|watch| now_ms.saturating_sub(watch.since_ms) < AGE_MAX_MS);
        self.make_room(WATCHES_MAX - 1);
        let at = self.position(key).unwrap_or_else(|at| at);
        self.0.insert(at, Watch { key, number, clients: 1, since_ms: now_ms });
        number
    }

    /// Ends the oldest watches until at most `max` are left.
    fn make_room(&mut self, max: usize) {
        while self.0.len() > max {
            let age = |(_, watch): &(usize, &Watch)| (watch.since_ms, watch.key);
            let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(age) else { return };
            self.0.remove(oldest);
        }
    }

    /// Returns true if the watch with this number is still there: its key has not changed.
    pub fn has(&self, key: WatchedKey, number: u64) -> bool {
        self.position(key).is_ok_and(|at| self.0[at].number == number)
    }

    /// Removes one client from the watch with this number. The last client ends it.
    pub fn release(&mut self, key: WatchedKey, number: u64) {
        let Some(at) = self.position(key).ok().filter(|at| self.0[*at].number == number) else { return };
        self.0[at].clients -= 1;
        if self.0[at].clients == 0 {
            self.0.remove(at);
        }
    }

    /// Ends the watch of a key that changes.
    pub fn key_changes(&mut self, key: WatchedKey) {
        let Ok(at) = self.position(key) else { return };
        if !Failpoint::WatchIgnored.is_on() {
            self.0.remove(at);
        }
    }

    /// Ends the watch of the key that a written row belongs to.
    pub(crate) fn row_changes(&mut self, row: &[u8]) {
        if let Some(key) = watched_key_of(row) {
            self.key_changes(key);
        }
    }

    /// Removes the watches of these slots and returns them.
    pub(crate) fn split_off(&mut self, slots: SlotRange) -> Watches {
        let (gone, left) =
            std::mem::take(&mut self.0).into_iter().partition(|watch| slots.contains(watch.key.slot));
        self.0 = left;
        Watches(gone)
    }

    /// Adds the watches of other slots. If there are too many, the oldest end.
    pub(crate) fn absorb(&mut self, others: &Watches) {
        self.0.extend(others.0.iter().cloned());
        self.0.sort_by_key(|watch| watch.key);
        self.0.dedup_by_key(|watch| watch.key);
        self.make_room(WATCHES_MAX);
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u16(u16::try_from(self.0.len()).expect("watches are bounded"));
        for watch in &self.0 {
            out.put_u16(watch.key.slot);
            out.put_u16(watch.key.db);
            out.put_u64(watch.key.hash);
            out.put_u64(watch.number);
            out.put_u32(watch.clients);
            out.put_u64(watch.since_ms);
        }
    }

    /// Decodes watches that take the whole of `row`. Returns `None` if they are damaged.
    pub(crate) fn decode(mut row: &[u8]) -> Option<Watches> {
        let count = if row.len() >= 2 { usize::from(row.get_u16()) } else { return None };
        if !(1..=WATCHES_MAX).contains(&count) || row.len() != WATCH_LEN * count {
            return None;
        }
        let mut watch = || {
            let key = WatchedKey { slot: row.get_u16(), db: row.get_u16(), hash: row.get_u64() };
            Watch { key, number: row.get_u64(), clients: row.get_u32(), since_ms: row.get_u64() }
        };
        let all: Vec<Watch> = (0..count).map(|_| watch()).collect();
        let is_sound =
            all.windows(2).all(|pair| pair[0].key < pair[1].key) && all.iter().all(|watch| watch.clients > 0);
        is_sound.then_some(Watches(all))
    }
}

#[cfg(test)]
mod tests {
    use types::Slot;

    use super::*;

    fn key(slot: Slot) -> WatchedKey {
        WatchedKey { slot, db: 0, hash: u64::from(slot) }
    }

    fn encoded(watches: &Watches) -> Vec<u8> {
        let mut out = BytesMut::new();
        watches.encode(&mut out);
        out.to_vec()
    }

    #[test]
    fn a_watch_ends_with_a_change_of_its_key_or_with_its_last_client() {
        let mut watches = Watches::default();
        assert_eq!(watches.add(key(1), 7, 0), 7);
        assert_eq!(watches.add(key(1), 8, 0), 7, "clients share a watch");
        watches.release(key(1), 8);
        watches.release(key(1), 7);
        assert!(watches.has(key(1), 7) && !watches.has(key(1), 8) && !watches.has(key(2), 7));
        watches.release(key(1), 7);
        assert!(watches.is_empty());
        watches.add(key(1), 9, 0);
        watches.key_changes(key(2));
        assert!(watches.has(key(1), 9));
        watches.key_changes(key(1));
        assert!(!watches.has(key(1), 9));
        watches.add(key(1), 10, 0);
        assert!(!watches.has(key(1), 9), "a later watch is another one");
    }

    #[test]
    fn the_oldest_watch_ends_if_there_are_too_many() {
        let mut watches = Watches::default();
        for slot in 0..WATCHES_MAX as Slot {
            watches.add(key(slot), 1, 100 - u64::from(slot == 5));
        }
        watches.add(key(0), 1, 200);
        watches.add(key(9000), 1, 200);
        assert_eq!(watches.len(), WATCHES_MAX);
        assert!(!watches.has(key(5), 1) && watches.has(key(0), 1) && watches.has(key(9000), 1));
        watches.add(key(9001), 1, 150 + AGE_MAX_MS);
        assert_eq!(watches.len(), 3, "watches of an earlier day are gone");
    }

    #[test]
    fn watches_go_with_their_slots() {
        let mut watches = Watches::default();
        for slot in 0..10 {
            watches.add(key(slot), u64::from(slot), 0);
        }
        let whole = watches.clone();
        let right = watches.split_off(SlotRange { first: 4, last: 7 });
        assert_eq!((watches.len(), right.len()), (6, 4));
        watches.absorb(&right);
        assert_eq!(watches, whole);
    }

    #[test]
    fn watches_round_trip_and_damaged_ones_are_refused() {
        let mut watches = Watches::default();
        for slot in 0..3 {
            watches.add(key(slot), 5, 6);
        }
        let row = encoded(&watches);
        assert_eq!(Watches::decode(&row), Some(watches));
        for cut in 0..row.len() {
            assert_eq!(Watches::decode(&row[..cut]), None, "{cut}");
        }
        let mut swapped = row.clone();
        swapped[3] = 9;
        assert_eq!(Watches::decode(&swapped), None);
        assert_eq!(Watches::decode(&encoded(&Watches::default())), None, "no watches are not encoded");
    }
}
