//! Failpoints: bugs that the crate's tests must detect. Each takes effect a line or two away from
//! the code it breaks.
//!
//! Without the feature `planted` none of them exists and [`is`] is a constant `false`. With it, one
//! build contains all of them, and each thread enables at most one.

/// A bug that can be enabled on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A sync is skipped but reported as done.
    AcknowledgeBeforeSync,
    /// If several segments were written, only the newest one is synced.
    OlderSegmentNotSynced,
    /// A segment is released before the data still needed from it has been rewritten.
    NotCarried,
    /// Data carried out of a released segment is rewritten but not synced.
    CarryNotSynced,
    /// A segment is released although only truncations that no block records made it unneeded.
    TruncationsNotCarried,
    /// A segment is overwritten before the mark that allows it is synced.
    MarkNotSynced,
    /// A block with a torn body is accepted as whole.
    TornBlockTaken,
    /// A block is accepted as the next one by its sequence alone, without comparing `previous`.
    StaleBlockFollowed,
    /// Blocks that a killed process left in the page cache are treated as durable without a sync.
    StartNotSynced,
    /// A commit index that recovery lowered is not written back to the log.
    CorrectionNotWritten,
    /// The commit index is written before the entries that it covers.
    CommitBeforeEntries,
}

pub const BUGS: [Bug; 11] = [
    Bug::AcknowledgeBeforeSync,
    Bug::OlderSegmentNotSynced,
    Bug::NotCarried,
    Bug::CarryNotSynced,
    Bug::TruncationsNotCarried,
    Bug::MarkNotSynced,
    Bug::TornBlockTaken,
    Bug::StaleBlockFollowed,
    Bug::StartNotSynced,
    Bug::CorrectionNotWritten,
    Bug::CommitBeforeEntries,
];

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Enables `bug` on this thread, or disables all with `None`.
    pub fn choose(bug: Option<Bug>) {
        CHOSEN.set(bug);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use chosen::choose;
#[cfg(feature = "planted")]
pub(crate) use chosen::is;

#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
