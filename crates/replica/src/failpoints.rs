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
    /// The lease is neither ended nor fenced when leadership is transferred.
    LeaseInTransfer,
    /// A restarted voter votes at once.
    NoStickinessAfterRestart,
    /// Proposals of a previous leader are refused, though they are in logs.
    RefuseWhatWasProposed,
    /// The log is truncated by the applied index, not by the flushed index.
    TruncatePastFlush,
    /// A confirmed read is answered before its read index is applied.
    ReadBeforeApplied,
    /// A change takes effect in every epoch, not only in the one it was meant for.
    EpochIgnored,
    /// The consensus code is never told that a learner votes.
    PromotionLost,
    /// A snapshot's message names the leader's present configuration, not that of the rows.
    SnapshotOfThePresent,
    /// A snapshot is applied before the log records it.
    SnapshotNotRecorded,
    /// An entry after the seal of a merge is executed.
    SealIgnored,
    /// A merge's target continues before its source is complete on this store.
    MergeNotAwaited,
    /// Appends are accepted regardless of the bytes that wait for the log.
    FullIgnored,
    /// The peer of a split-off region forgets the vote of the blank peer that it replaces.
    BirthForgetsVote,
    /// A blank peer that is announced after a restart does not read the vote of an earlier blank
    /// peer.
    BlankForgetsVote,
    /// The peers of a store that is about to stop campaign and take over leadership.
    LeadsWhileStopping,
    /// A peer that may have lost state that it acknowledged votes at once.
    UncleanVotes,
    /// The peer of a merged region is removed although another peer here has yet to take over its
    /// rows.
    HeirNotAwaited,
    /// The consensus code is never told that a recovery removed the lost voters.
    RecoveryNotTold,
    /// The end of a leader's session counts as its end: peers campaign at once, as the target of a
    /// transfer does, whose votes do not wait for the end of the lease.
    SessionEndTrusted,
    /// A voter trusts the coordinator's choice: it grants its vote to a shorter log.
    StaleEpochWins,
    /// A leader that may ask a mere majority does not ask: it counts the term of earlier answers.
    EpochRemembered,
    /// A leader keeps its lease without a quorum while the coordinator decides about elections.
    SessionKeepsLease,
    /// A peer never campaigns by its own timeout while the coordinator is away.
    FallbackForgotten,
    /// A follower that passes appends on loses them, and its acknowledgement counts for the
    /// followers behind it, too.
    ChainLosesEntry,
    /// A leader does not notice that relayed appends are not acknowledged.
    LostRelayUnnoticed,
}
