//! The time at which a row in RAM was last used.

use std::sync::atomic::{AtomicU32, Ordering};

/// A time in seconds since the tier was created.
pub type Seconds = u32;

/// The time of a row's last use. 0 also stands for a row that was not used since it is known.
#[derive(Debug, Default)]
pub(super) struct LastUse(AtomicU32);

impl LastUse {
    pub fn at(now: Seconds) -> LastUse {
        LastUse(AtomicU32::new(now))
    }

    pub fn get(&self) -> Seconds {
        self.0.load(Ordering::Relaxed)
    }

    pub fn note(&self, now: Seconds) {
        // A write would take the cache line from other readers.
        if self.get() != now {
            self.0.store(now, Ordering::Relaxed);
        }
    }
}
