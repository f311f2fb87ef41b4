//! Failpoints of the log: defects that the tests of crashes must detect.

types::failpoints! {
    /// A sync is skipped but reported as done.
    AcknowledgeBeforeSync,
    /// Only the newest of several written segments is synced.
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
