//! Failpoints of the RAM tier and of watched keys: defects that the simulator must detect.

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
    /// A deleted row leaves no trace although a frozen memtable has it.
    FrozenForgotten,
    /// A flushed memtable's rows are not learnt by the filter of rows.
    FlushUnlearnt,
    /// A pass over flash completes a part of the filter although rows were replaced since it began.
    StalePass,
    /// Entries are executed with the thresholds of the first entry of their batch that wrote rows.
    FirstThresholds,
    /// The watch of a key does not end when the key changes.
    WatchIgnored,
    /// Rows that were replaced on flash leave the filter of rows as it was.
    ReplacedLearnt,
    /// A flushed memtable's rows are not written into known ranges.
    FlushUnknown,
    /// A range that was read from flash is learnt although flash has changed since.
    StaleRange,
    /// A known range whose rows a snapshot replaced on flash stays known.
    ReplacedStaysKnown,
    /// A known range that a flushed memtable deleted stays known.
    DeletedStaysKnown,
    /// A range that was evicted stays known as one without rows.
    EvictedStaysKnown,
    /// A known range loses a row when it is divided.
    DivisionLosesRow,
}
