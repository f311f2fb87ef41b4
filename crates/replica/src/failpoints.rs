//! Failpoints of consensus: defects that the simulator must detect.

types::failpoints! {
    /// A follower acknowledges entries before its log has synced them.
    AcknowledgeBeforeSync,
    /// Term and vote are not written.
    VoteNotSaved,
    /// The lease counts from the confirmation of a round, not from its sending.
    LeaseFromConfirmation,
    /// A lease begins before an entry of the leader's own term is applied.
    LeaseBeforeOwnTerm,
    /// The lease is neither ended nor fenced when leadership is handed over.
    LeaseInTransfer,
    /// A restarted voter votes at once.
    NoStickinessAfterRestart,
    /// Proposals of a leader that lost its leadership are refused, though they are in logs.
    RefuseWhatWasProposed,
    /// The log is cut by what is applied, not by what a flush covers.
    TruncatePastFlush,
    /// A proven read is answered before what it must see is applied.
    ReadBeforeApplied,
    /// A change takes effect in every epoch, not only in the one it was meant for.
    EpochIgnored,
    /// The consensus code is never told that a learner votes.
    PromotionLost,
    /// A snapshot's message names the leader's present configuration, not that of the rows.
    SnapshotOfThePresent,
    /// A snapshot is applied before the log says that it will be.
    SnapshotNotRecorded,
    /// An entry behind the seal of a merge is executed.
    SealIgnored,
    /// A merge's target goes on before its source has come to its end on this store.
    MergeNotAwaited,
    /// Appends are accepted regardless of the bytes that wait for the log.
    FullIgnored,
    /// A peer that a split makes forgets the vote of the blank peer whose place it takes.
    BirthForgetsVote,
    /// A blank peer that is announced after a restart does not look for an earlier one's vote.
    BlankForgetsVote,
    /// The peers of a store that is about to stop stand for election and take leads over.
    LeadsWhileStopping,
    /// A peer that may have forgotten what it acknowledged votes at once.
    UncleanVotes,
    /// A peer of a region that has merged away goes although another peer here has yet to take its
    /// rows over.
    HeirNotAwaited,
    /// The consensus code is never told that a recovery forced the lost voters out.
    RecoveryNotTold,
}
