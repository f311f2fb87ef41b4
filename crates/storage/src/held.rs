//! The memory that a read, or the commands of an entry, hold at once: what they have collected for
//! their replies, or to write it.
//!
//! A collection may be larger than RAM. Without a limit, one command that asks for all of it would
//! end the store.

use std::cell::Cell;

/// Limit of the bytes that the commands of a log entry hold together. It is part of the semantics
/// of an entry: every replica must refuse the same commands, however large its memory is.
pub const HELD_BYTES_MAX: u64 = 512 << 20;

/// Limit of the bytes that a read or an entry holds.
#[derive(Clone, Copy)]
pub struct HeldLimit<'a> {
    pub bytes: u64,
    /// A lower number of bytes, and a function that is called when that many are held.
    pub large: Option<(u64, &'a dyn Fn())>,
}

impl Default for HeldLimit<'_> {
    fn default() -> Self {
        HeldLimit { bytes: HELD_BYTES_MAX, large: None }
    }
}

/// The bytes that are held now.
#[derive(Default)]
pub(crate) struct Held<'a> {
    pub limit: HeldLimit<'a>,
    bytes: Cell<u64>,
}

impl Held<'_> {
    pub fn add(&self, bytes: u64) -> bool {
        let before = self.bytes.get();
        let now = before.saturating_add(bytes);
        self.bytes.set(now);
        if let Some((large, tell)) = self.limit.large {
            if before < large && now >= large {
                tell();
            }
        }
        now <= self.limit.bytes
    }

    pub fn has_room(&self, bytes: u64) -> bool {
        self.bytes.get().saturating_add(bytes) <= self.limit.bytes
    }

    pub fn is_too_much(&self) -> bool {
        self.bytes.get() > self.limit.bytes
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub fn set(&self, bytes: u64) {
        self.bytes.set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_told_once_that_it_is_large_and_each_time_that_it_is_too_large() {
        let told = Cell::new(0);
        let tell = || told.set(told.get() + 1);
        let limit = HeldLimit { bytes: 100, large: Some((50, &tell)) };
        let held = Held { limit, ..Held::default() };
        assert!(held.add(49) && told.get() == 0);
        assert!(held.add(51) && told.get() == 1 && !held.is_too_much());
        assert!(!held.add(1) && !held.add(u64::MAX) && held.is_too_much());
        held.set(60);
        assert!(held.has_room(40) && !held.has_room(41) && !held.has_room(u64::MAX));
        held.set(0);
        assert!(held.add(100) && told.get() == 2 && !held.is_too_much());
    }
}
