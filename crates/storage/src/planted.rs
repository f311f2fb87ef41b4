//! Bugs that the simulator must find in the RAM tier, each a line or two away from the code that it breaks.
//!
//! Without the feature `planted` none of this exists: [`is`] is a constant `false`. With it, one build holds
//! all of them, and each thread chooses at most one.

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// What flash said of a row is kept though a memtable was dropped since.
    StaleFill,
    /// A memtable is dropped before the row cache knows all of its rows.
    DroppedUnsettled,
    /// Rows that a snapshot replaced on flash stay in the row cache.
    ReplacedStays,
    /// Of several memtables an older one is asked first.
    OldestFirst,
    /// A row that was deleted is looked for on flash.
    NoTombstones,
}

pub const BUGS: [Bug; 5] =
    [Bug::StaleFill, Bug::DroppedUnsettled, Bug::ReplacedStays, Bug::OldestFirst, Bug::NoTombstones];

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// From now on this thread has this bug and no other of this crate.
    pub fn set(bug: Option<Bug>) {
        CHOSEN.with(|chosen| chosen.set(bug));
    }

    pub(crate) fn is(bug: Bug) -> bool {
        CHOSEN.with(Cell::get) == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub(crate) use chosen::is;
#[cfg(feature = "planted")]
pub use chosen::set;

#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
