//! The observations that the invariants receive, at the moment of each event.

use std::collections::BTreeSet;

use cluster::{Comparison, MetaState};
use placement::Operator;
use replica::eraftpb::Entry;
use replica::Committed;
use resp::Reply;
use types::{BootNanos, LogIndex, RegionDescriptor, RegionEpoch, RegionId, Slot, StoreId, Term, UnixMillis};

use crate::model::{Command, Group};

pub type OpId = u64;
/// The number of a log entry with commands. It replaces the entry's seed.
pub type EntryId = u64;

/// An operation of a client.
#[derive(Clone, Debug)]
pub struct Op {
    pub id: OpId,
    pub group: Group,
    pub command: Command,
}

/// A part of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    Op(OpId),
    /// The `WATCH` of a transaction.
    Watch(OpId),
    /// A transaction that is executed only if its watched key has not changed.
    Checked(OpId),
    /// The beginning and the end of a command that is executed in parts.
    Begin(OpId),
    End(OpId),
    /// An item that changes nothing that a client sees: a part of such a command, the dropping of
    /// its parts, or a sweep.
    Unseen,
    ExpireDue(Slot),
}

/// The way in which a weak read was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weakly {
    pub store: StoreId,
    /// The incarnation of the store's process.
    pub life: u64,
    /// The maximum lag that the connection allows, in nanoseconds.
    pub max_lag: Option<u64>,
}

#[derive(Debug)]
pub enum Observation<'a> {
    /// A peer became leader. Its log ends at `last`.
    Led {
        store: StoreId,
        region: RegionId,
        term: Term,
        last: LogIndex,
    },
    /// Entries are durable. `before` is the term of the entry before them.
    Synced {
        store: StoreId,
        region: RegionId,
        entries: &'a [Entry],
        before: Option<Term>,
    },
    /// A peer in `term` handed out entries as committed.
    Committed {
        region: RegionId,
        term: Term,
        entries: &'a [Committed],
    },
    /// An entry of a user region was executed. There is a reply for each item, or `None` for an
    /// item that was not executed because its slot is in another region now.
    Executed {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
        entry: EntryId,
        now_ms: UnixMillis,
        replies: &'a [Option<Reply>],
    },
    /// A region's newest descriptor on a store, and the region that a split made from it.
    Described {
        store: StoreId,
        region: &'a RegionDescriptor,
        split_off: Option<&'a RegionDescriptor>,
    },
    /// A digest of all rows of a region, including the row of its state.
    Rows {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
        digest: u64,
    },
    /// An operator orders that the entry be skipped. `given_up` lists the stores that are excluded:
    /// they may have executed the entry, and are lost, were removed or get new peers.
    SkipOrdered {
        region: RegionId,
        index: LogIndex,
        given_up: &'a [StoreId],
    },
    /// A store's comparison of the reports of a check in which its own peer took part.
    Compared {
        store: StoreId,
        comparison: &'a Comparison,
    },
    /// A peer is quarantined, and its store will know of it after a crash. The entry at `index`
    /// must not be executed.
    Held {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
    },
    /// The quarantine, or the peer itself, is about to end.
    Released {
        store: StoreId,
        region: RegionId,
    },
    /// A client sends a command, at this true time.
    Invoked {
        op: &'a Op,
        at: u64,
    },
    Proposed {
        entry: EntryId,
        items: &'a [Item],
    },
    /// The proposal was refused. It is in no log.
    NotProposed {
        entry: EntryId,
    },
    /// A store hands out the answers to an entry's commands.
    Acknowledged {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
        term: Term,
        /// The groups of voters. A majority of each group is needed. There are several groups if
        /// the configuration has just changed.
        voters: &'a [Vec<StoreId>],
    },
    /// A client got its answer, at this true time. For a read, `read_ms` is the time at which the
    /// rows were read.
    Answered {
        op: OpId,
        at: u64,
        reply: &'a Reply,
        read_ms: Option<UnixMillis>,
        /// Set if a store answered after `READONLY` from its applied entries.
        weakly: Option<Weakly>,
        /// The store that passed the command on to the one that read the rows, if any.
        passed_by: Option<StoreId>,
        /// The previous command of the same group that leaders answered on the same connection.
        after: Option<OpId>,
    },
    /// A store whose clock is below its lease's end would answer reads from its applied entries.
    Leased {
        store: StoreId,
        region: RegionId,
        applied: LogIndex,
    },
    /// A store's peers learn that the store is stopping. `standing` lists the regions in which they
    /// are already candidates, or have won without having told it.
    StopBegun {
        store: StoreId,
        standing: &'a BTreeSet<RegionId>,
    },
    /// A store has completed a planned stop, or has crashed before its end.
    StopEnded {
        store: StoreId,
        /// Number of clients that waited for a reply from the store.
        unanswered: usize,
        /// True if the store has waited for them for the maximum time.
        has_waited: bool,
    },
    /// A store looks at its device, at a time by its own clock. `waited` is the time for which the
    /// pending log write has waited. `led` lists the regions that the store leads although the
    /// other voters that it receives heartbeats from could elect another leader.
    LogWaits {
        store: StoreId,
        at: BootNanos,
        waited: u64,
        led: &'a [RegionId],
    },
    /// A peer became leader of a region with more than one voter.
    LedBesideOthers {
        store: StoreId,
        region: RegionId,
        term: Term,
    },
    /// A change that this store proposed for the epoch `expect` was applied.
    Changed {
        region: RegionId,
        before: RegionEpoch,
        expect: RegionEpoch,
    },
    /// The meta region's leader begins an operator in this state.
    Planned {
        operator: &'a Operator,
        meta: &'a MetaState,
        /// The descriptor that the region's leader has reported, if any.
        told: Option<&'a RegionDescriptor>,
    },
}
