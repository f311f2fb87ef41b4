//! Failpoints of the RAM tier: bugs that the simulator must detect. Each takes effect a line or two
//! away from the code it breaks.
//!
//! Without the feature `planted` none of them exists and [`is`] is a constant `false`. With it, one
//! build contains all of them, and each thread enables at most one.

/// A bug that can be enabled on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A value read from flash is cached although a memtable was dropped since the read.
    StaleFill,
    /// A memtable is dropped before all of its rows are in the row cache.
    DroppedUnsettled,
    /// Rows that a snapshot replaced on flash stay in the row cache.
    ReplacedStays,
    /// If several memtables have a row, the oldest is used instead of the newest.
    OldestFirst,
    /// A deleted row is looked up on flash.
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

    /// Enables `bug` on this thread and disables any other of this crate.
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
