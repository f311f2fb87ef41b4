//! Bugs that the tests must find, each a line or two away from the code that it breaks.
//!
//! Without the feature `planted` none of this exists: [`is`] is a constant `false`. With it, one build holds
//! all of them, and each thread chooses at most one.

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A sync is not made, and counts.
    AcknowledgeBeforeSync,
    /// Of several segments that were written only the newest one is synced.
    OlderSegmentNotSynced,
    /// A segment is let go of before what is needed of it was written again.
    NotCarried,
    /// It was written again, and not synced.
    CarryNotSynced,
    /// Truncations that no block holds are forgotten when what they made unneeded goes.
    TruncationsNotCarried,
    /// A segment is overwritten before the mark that says so is synced.
    MarkNotSynced,
    /// A block whose body is torn is taken for whole.
    TornBlockTaken,
    /// A block follows another one by its sequence alone.
    StaleBlockFollowed,
    /// What a killed process left in the page cache is vouched for without a sync.
    StartNotSynced,
    /// A commit index that was taken back is not written so.
    CorrectionNotWritten,
}

pub const BUGS: [Bug; 10] = [
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
];

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Breaks this, or nothing, on this thread from now on.
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
