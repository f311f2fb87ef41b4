//! Failpoints of the RAM tier: defects that the simulator must detect.

types::failpoints! {
    /// A value read from flash is cached although a memtable was dropped since the read.
    StaleFill,
    /// A memtable is dropped before all of its rows are in the row cache.
    DroppedUnsettled,
    /// Rows that a snapshot replaced on flash stay in the row cache.
    ReplacedStays,
    /// The oldest memtable that has a row is used instead of the newest.
    OldestFirst,
    /// A deleted row is looked up on flash.
    NoTombstones,
}
