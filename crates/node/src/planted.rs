//! Bugs that the simulator must find, each a line or two away from the code that it breaks.
//!
//! Without the feature `planted` none of this exists: [`is`] is a constant `false`. With it, one build holds
//! all of them, and each thread chooses at most one.

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// Clients are answered, and the groups are told, before the rows are written.
    AnswerBeforeWrite,
    /// A proposal for which its client has waited too long is refused, though it may yet be applied.
    RefuseWhatIsLate,
    /// A command for a slot that an earlier entry of the same turn gave away is executed.
    SlotsOfTheTurn,
    /// A start takes a snapshot for applied that it was only promised.
    SnapshotNotFinished,
    /// A start opens a peer whose removal it had applied.
    EndForgotten,
    /// The log says that a snapshot is applied before the rows are replaced.
    ExistsBeforeRows,
    /// The rows of a peer that ends are deleted before its tombstone is written.
    TombstoneAfterRows,
    /// Entries are executed beside the groups while the apply thread has earlier ones of their region.
    ExecuteAhead,
    /// Entries are executed beside the groups before the apply thread has heard that a snapshot replaced the rows.
    ExecuteBeforeReload,
    /// Commands for a region are asked for while earlier ones of the connection are, which must come first.
    Overtake,
    /// The replies to a pipeline are given in the opposite order.
    RepliesTurned,
    /// A store that stops by plan ends before the requests of its clients are answered.
    StopUnanswered,
    /// Store 1 now and then writes a string with another last byte than its peers.
    RowDiffers,
    /// A start does not read which peers are quarantined.
    QuarantineForgotten,
    /// A peer that is to retry an entry skips it, alone.
    SkipAlone,
}

pub const BUGS: [Bug; 15] = [
    Bug::AnswerBeforeWrite,
    Bug::RefuseWhatIsLate,
    Bug::SlotsOfTheTurn,
    Bug::SnapshotNotFinished,
    Bug::EndForgotten,
    Bug::ExistsBeforeRows,
    Bug::TombstoneAfterRows,
    Bug::ExecuteAhead,
    Bug::ExecuteBeforeReload,
    Bug::Overtake,
    Bug::RepliesTurned,
    Bug::StopUnanswered,
    Bug::RowDiffers,
    Bug::QuarantineForgotten,
    Bug::SkipAlone,
];

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
