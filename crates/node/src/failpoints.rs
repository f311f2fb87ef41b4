//! Failpoints of the order of steps: defects that the simulator must detect.

types::failpoints! {
    /// Clients are answered, and the groups are told, before the rows are written.
    AnswerBeforeWrite,
    /// A proposal whose client has waited too long is refused, although it may still be applied.
    RefuseWhatIsLate,
    /// A command is executed although an earlier entry of the same turn gave its slot away.
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
    /// A connection's commands for a region are requested before earlier commands that must finish
    /// first.
    Overtake,
    /// The replies to a pipeline are sent in reverse order.
    RepliesTurned,
    /// A planned stop ends before the requests of the store's clients are answered.
    StopUnanswered,
    /// A store whose device hangs continues to lead.
    LeadsWhileHanging,
    /// Store 1 occasionally writes a string whose last byte differs from that of its peers.
    RowDiffers,
    /// A start does not read which peers are quarantined.
    QuarantineForgotten,
    /// A mark of rows that a snapshot is replacing quarantines the peer with the new rows.
    HeedsOldMark,
    /// A peer that must retry an entry skips it, while its peers do not.
    SkipAlone,
    /// The meta region's leader answers for live regions as if the others had absorbed them.
    LivingIsMerged,
    /// A peer whose log is damaged takes part with the rest of its log.
    DamageForgotten,
    /// A copy counts as complete as of the leader's answer, instead of as of the question.
    LagFromAnswer,
    /// A store without a lease answers writes that find nothing in its rows.
    NothingUnproved,
    /// A command that another store passed on is answered under the lease although the leader has
    /// announced entries that it has not executed.
    AnnouncedIgnored,
    /// A view that was taken before the leader's lease began is answered once the lease holds.
    LeaseNotCheckedBefore,
    /// Only the first peer in the coordinator's order ever campaigns.
    TurnsForgotten,
}
