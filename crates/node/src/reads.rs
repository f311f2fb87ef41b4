//! Conditions under which a read of this store's rows may be answered. There are three kinds of
//! reads: by the leader under its lease, by the leader after a round of heartbeats or an applied
//! entry has confirmed its leadership, and weak reads, by any store.
//!
//! Each read first takes a view of the rows and then checks here whether the view may be returned.
//! The rows must have been present and complete the whole time, and the slots must belong to the
//! region. Without another proof, the lease must still be valid by a clock that is read after the
//! view. So the lease was valid when the view was taken.
//!
//! A write that changes nothing, because its keys do not exist, is answered like a read by the
//! leader under its lease, without an entry of the log.
//!
//! A leader announces entries as committed before it has executed them itself, so a follower may
//! execute an entry first. The follower's clients may then know of the entry: by a weak read, by an
//! invalidation, or because they waited for it. Commands that they send over the same follower must
//! not find older rows. So the lease suffices for commands of another store's clients only if the
//! leader has executed everything that it has announced. The leader's own clients learn of entries
//! only by its own execution.

use types::{BootNanos, LogIndex, SlotRange};

use crate::failpoints::Failpoint;
use crate::item::{Item, ItemSlot};

/// The store to which the client of commands is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The store that executes the commands.
    Here,
    /// Another store, which has passed the commands on.
    Elsewhere,
}

/// The proof that a read is as fresh as required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The leader's lease, which must still be valid after the view was taken. Before the view is
    /// taken, commands from elsewhere need that the leader has executed what it has announced.
    Lease(Origin),
    /// A round of heartbeats or an applied entry, before the view is taken. A weak read needs no
    /// proof.
    AlreadyThere,
}

/// The current state of a region on this store.
pub trait Local {
    type Token: Copy + PartialEq;

    /// Returns a token of the rows, or `None` while they are absent. The token changes whenever the
    /// rows are replaced, removed or added by anything but entries.
    fn rows(&self) -> Option<Self::Token>;

    fn lease_holds(&self, now: BootNanos) -> bool;

    /// Returns the largest commit index that this store has announced to others: the maximum of
    /// `replica::announced_commit` of its messages. The executor records a message's index before
    /// it sends the message.
    fn announced(&self) -> LogIndex;

    /// Returns the index through which entries are executed on this store. The rows have them.
    fn applied(&self) -> LogIndex;

    /// Returns the region's slots as applied on this store; all slots for the meta region.
    fn slots_here(&self) -> SlotRange;

    /// Returns the version of the descriptor that is applied on this store.
    fn version_here(&self) -> u64;
}

/// A read whose view is being taken.
#[derive(Clone, Debug)]
pub struct Read<T> {
    proof: Proof,
    rows: T,
}

impl<T: Copy + PartialEq> Read<T> {
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// Begins a read. The caller must call this after the commands have arrived, and before it
    /// takes the view. Returns `None` if the rows are absent, or if the lease does not suffice.
    pub fn begin<L: Local<Token = T>>(region: &L, proof: Proof) -> Option<Read<T>> {
        // If older rows replace these after the look at the applied index, the token changes.
        let rows = region.rows()?;
        let suffices = match proof {
            Proof::Lease(Origin::Elsewhere) => holds_what_is_announced(region),
            Proof::Lease(Origin::Here) | Proof::AlreadyThere => true,
        };
        suffices.then_some(Read { proof, rows })
    }

    /// Begins a read in the place of writes, as [`begin`](Self::begin) does. Its result is an
    /// answer only if each of them [finds nothing](Item::finds_nothing) in the view. Also returns
    /// `None` if one may change something without its keys.
    pub fn begin_nothing<L: Local<Token = T>>(
        region: &L,
        writes: &[Item],
        origin: Origin,
    ) -> Option<Read<T>> {
        if !writes.iter().all(Item::needs_its_keys) {
            return None;
        }
        let is_unproved = Failpoint::NothingUnproved.is_on();
        Read::begin(region, if is_unproved { Proof::AlreadyThere } else { Proof::Lease(origin) })
    }

    /// Begins a weak read, as [`begin`](Self::begin) does. Also returns `None` if the slots do not
    /// belong to the region as applied here. The rows of slots that a merge adds later may be older
    /// than the region's applied index says.
    pub fn begin_weak<L: Local<Token = T>>(
        region: &L,
        slots: impl IntoIterator<Item = ItemSlot>,
        version: u64,
    ) -> Option<Read<T>> {
        let read = Read::begin(region, Proof::AlreadyThere)?;
        lie_in(slots, region, version).then_some(read)
    }

    /// Returns true if the result of the view may be sent to the client. The caller must call this
    /// after it has taken the view; `clock` is read during the call. The commands are for `slots`,
    /// according to a descriptor of `version`.
    pub fn may_be_answered<L: Local<Token = T>>(
        &self,
        region: &L,
        slots: impl IntoIterator<Item = ItemSlot>,
        version: u64,
        clock: impl FnOnce() -> BootNanos,
    ) -> bool {
        let is_fresh = match self.proof {
            Proof::Lease(_) => region.lease_holds(clock()),
            Proof::AlreadyThere => true,
        };
        is_fresh && region.rows() == Some(self.rows) && lie_in(slots, region, version)
    }
}

/// Returns true if the rows here have all entries that this store has announced as committed. If it
/// leads the region, no other store has executed more.
fn holds_what_is_announced<L: Local>(region: &L) -> bool {
    region.announced() <= region.applied() || Failpoint::AnnouncedIgnored.is_on()
}

/// Returns true if the region, as applied on this store, has the slots of all commands. A command
/// without keys concerns all slots of a region. It needs exactly the range that the sender knows,
/// which is the range of `version`.
pub fn lie_in<L: Local>(slots: impl IntoIterator<Item = ItemSlot>, region: &L, version: u64) -> bool {
    let here = region.slots_here();
    let lies_in = |slot: ItemSlot| match slot {
        ItemSlot::Any => region.version_here() == version,
        ItemSlot::One(slot) => here.contains(slot),
        ItemSlot::Several => false,
    };
    here == SlotRange::ALL || slots.into_iter().all(lies_in)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// A region that has applied only its own slots. A merge will add the others.
    struct Half {
        announced: LogIndex,
        applied: LogIndex,
    }

    impl Local for Half {
        type Token = u64;

        fn rows(&self) -> Option<u64> {
            Some(7)
        }

        fn lease_holds(&self, _: BootNanos) -> bool {
            true
        }

        fn announced(&self) -> LogIndex {
            self.announced
        }

        fn applied(&self) -> LogIndex {
            self.applied
        }

        fn slots_here(&self) -> SlotRange {
            SlotRange { first: 0, last: 99 }
        }

        fn version_here(&self) -> u64 {
            3
        }
    }

    #[test]
    fn a_weak_read_begins_only_in_slots_that_the_region_has_applied() {
        let half = Half { announced: 8, applied: 7 };
        let begins = |slot, version| Read::begin_weak(&half, [slot], version).is_some();
        assert!(begins(ItemSlot::One(99), 4));
        // The newest descriptor has this slot already.
        assert!(!begins(ItemSlot::One(100), 4));
        assert!(begins(ItemSlot::Any, 3));
        assert!(!begins(ItemSlot::Any, 4));
    }

    #[test]
    fn commands_from_elsewhere_need_what_the_leader_has_announced() {
        let args = |line: &str| line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        let writes = ["DEL key", "SET key 1"].map(|line| Item::new(args(line), 0, false).unwrap());
        let delete = &writes[..1];
        let begins = |announced, proof| Read::begin(&Half { announced, applied: 7 }, proof).is_some();
        let begins_nothing = |announced, writes: &[Item], origin| {
            Read::begin_nothing(&Half { announced, applied: 7 }, writes, origin).is_some()
        };
        for announced in [0, 6, 7] {
            assert!(begins(announced, Proof::Lease(Origin::Elsewhere)));
            assert!(begins_nothing(announced, delete, Origin::Elsewhere));
        }
        assert!(!begins(8, Proof::Lease(Origin::Elsewhere)));
        assert!(!begins_nothing(8, delete, Origin::Elsewhere));
        // The leader's own clients know of nothing that it has not executed, and a round of
        // heartbeats ends only when everything committed before it is executed.
        assert!(begins(8, Proof::Lease(Origin::Here)) && begins(8, Proof::AlreadyThere));
        assert!(begins_nothing(8, delete, Origin::Here));
        assert!(!begins_nothing(7, &writes, Origin::Here));
    }
}
