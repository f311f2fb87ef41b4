//! What the invariants are shown, at the moment it happens.

use std::collections::BTreeSet;

use cluster::{Comparison, MetaState};
use placement::Operator;
use replica::eraftpb::Entry;
use replica::Committed;
use resp::Reply;
use types::{LogIndex, RegionDescriptor, RegionEpoch, RegionId, Slot, StoreId, Term, UnixMillis};

use crate::model::{Command, Group};

pub type OpId = u64;
/// Every log entry with commands has a number of its own, in the place of its seed.
pub type EntryId = u64;

/// What a client asked for.
#[derive(Clone, Debug)]
pub struct Op {
    pub id: OpId,
    pub group: Group,
    pub command: Command,
}

/// What is in a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    Op(OpId),
    ExpireDue(Slot),
}

#[derive(Debug)]
pub enum Observation<'a> {
    /// A peer became leader; its log ends at `last`.
    Led {
        store: StoreId,
        region: RegionId,
        term: Term,
        last: LogIndex,
    },
    /// Entries are durable. `before` is the term of the entry in front of them.
    Synced {
        store: StoreId,
        region: RegionId,
        entries: &'a [Entry],
        before: Option<Term>,
    },
    /// Entries were handed out as committed, by a peer in `term`.
    Committed {
        region: RegionId,
        term: Term,
        entries: &'a [Committed],
    },
    /// An entry of a user region was executed; a reply for each item, none where it was not executed since its
    /// slot is another region's.
    Executed {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
        entry: EntryId,
        now_ms: UnixMillis,
        replies: &'a [Option<Reply>],
    },
    /// A region's newest descriptor on a store, and the region that a split made beside it.
    Described {
        store: StoreId,
        region: &'a RegionDescriptor,
        split_off: Option<&'a RegionDescriptor>,
    },
    /// A digest of all rows of a region, its state's row among them.
    Rows {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
        digest: u64,
    },
    /// What a store makes of the reports of a check in which its own peer took part.
    Compared {
        store: StoreId,
        comparison: &'a Comparison,
    },
    /// A peer is quarantined, and its store will know after a crash: the entry at `index` is not to be executed.
    Held {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
    },
    /// The quarantine is to end, or the peer.
    Released {
        store: StoreId,
        region: RegionId,
    },
    Invoked {
        op: &'a Op,
    },
    Proposed {
        entry: EntryId,
        items: &'a [Item],
    },
    /// The proposal was refused: it is in no log.
    NotProposed {
        entry: EntryId,
    },
    /// A store hands out the answers to an entry's commands.
    Acknowledged {
        store: StoreId,
        region: RegionId,
        index: LogIndex,
        term: Term,
        /// Those whose majority counts; several where the configuration has just changed.
        voters: &'a [Vec<StoreId>],
    },
    /// A client has its answer; of a read, with the time at which the rows were read.
    Answered {
        op: OpId,
        reply: &'a Reply,
        read_ms: Option<UnixMillis>,
        /// The life of the store that answered from what it had applied, after `READONLY`.
        weakly: Option<(StoreId, u64)>,
        /// The command of the same group before it, which the same connection got answered by leaders.
        after: Option<OpId>,
    },
    /// A store whose clock is below its lease's end would answer reads from what it has applied.
    Leased {
        store: StoreId,
        region: RegionId,
        applied: LogIndex,
    },
    /// A store's peers hear that the store is to stop. In the regions `standing` they stand for election already.
    StopBegun {
        store: StoreId,
        standing: &'a BTreeSet<RegionId>,
    },
    /// A store has stopped by plan, or has crashed before it came so far.
    StopEnded {
        store: StoreId,
        /// Clients that waited for a reply of it.
        unanswered: usize,
        /// It has waited for them for as long as it waits at most.
        has_waited: bool,
    },
    /// A peer became leader of a region with more than one voter.
    LedBesideOthers {
        store: StoreId,
        region: RegionId,
        term: Term,
    },
    /// A change is applied that this store proposed for the epoch `expect`.
    Changed {
        region: RegionId,
        before: RegionEpoch,
        expect: RegionEpoch,
    },
    /// The meta region's leader begins an operator, over this state.
    Planned {
        operator: &'a Operator,
        meta: &'a MetaState,
        /// What the region's leader says of it, where it has spoken.
        told: Option<&'a RegionDescriptor>,
    },
}
