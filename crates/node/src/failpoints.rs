//! Failpoints of the order of steps: defects that the simulator must detect.

types::failpoints! {
    /// Clients are answered, and the groups are told, before the rows are written.
    AnswerBeforeWrite,
    /// A proposal whose client has waited too long is refused, although it may still be applied.
    RefuseWhatIsLate,
    /// A command for a slot that an earlier entry of the same turn gave away is executed.
    SlotsOfTheTurn,
    /// A start treats a snapshot that was only accepted as applied.
    SnapshotNotFinished,
    /// A start opens a peer whose removal was already applied.
    EndForgotten,
    /// The log records a snapshot as applied before the rows are replaced.
    ExistsBeforeRows,
    /// The rows of a removed peer are deleted before its tombstone is written.
    TombstoneAfterRows,
    /// The worker's thread executes entries while the apply thread still has earlier ones of the
    /// region.
    ExecuteAhead,
    /// The worker's thread executes entries before the apply thread knows that a snapshot replaced
    /// the rows.
    ExecuteBeforeReload,
    /// A connection's commands for a region are requested before earlier ones that must come first
    /// are done.
    Overtake,
    /// The replies to a pipeline are sent in reverse order.
    RepliesTurned,
    /// A planned stop ends before the requests of the store's clients are answered.
    StopUnanswered,
    /// A store whose device hangs goes on leading.
    LeadsWhileHanging,
    /// Store 1 now and then writes a string with another last byte than its peers.
    RowDiffers,
    /// A start does not read which peers are quarantined.
    QuarantineForgotten,
    /// A peer that is to retry an entry skips it, alone.
    SkipAlone,
    /// The meta region's leader answers for regions that live as if the others had merged with
    /// them.
    LivingIsMerged,
    /// A peer whose log is damaged takes part with what is left of it.
    DamageForgotten,
}
