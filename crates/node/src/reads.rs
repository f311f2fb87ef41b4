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

use types::{BootNanos, SlotRange};

use crate::failpoints::Failpoint;
use crate::item::{Item, ItemSlot};

/// The proof that a read is as fresh as required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The leader's lease, which must still be valid after the view was taken.
    Lease,
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

    /// Begins a read. The caller must call this before it takes the view. Returns `None` if the
    /// rows are absent.
    pub fn begin<L: Local<Token = T>>(region: &L, proof: Proof) -> Option<Read<T>> {
        Some(Read { proof, rows: region.rows()? })
    }

    /// Begins a read in the place of writes, as [`begin`](Self::begin) does. Its result is an answer
    /// only if each of them [finds nothing](Item::finds_nothing) in the view. Returns `None` if one
    /// may change something without its keys.
    pub fn begin_nothing<L: Local<Token = T>>(region: &L, writes: &[Item]) -> Option<Read<T>> {
        if !writes.iter().all(Item::needs_its_keys) {
            return None;
        }
        let is_unproved = Failpoint::NothingUnproved.is_on();
        Read::begin(region, if is_unproved { Proof::AlreadyThere } else { Proof::Lease })
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
            Proof::Lease => region.lease_holds(clock()),
            Proof::AlreadyThere => true,
        };
        is_fresh && region.rows() == Some(self.rows) && lie_in(slots, region, version)
    }
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
    use super::*;

    /// A region that has applied only its own slots. A merge will add the others.
    struct Half;

    impl Local for Half {
        type Token = u64;

        fn rows(&self) -> Option<u64> {
            Some(7)
        }

        fn lease_holds(&self, _: BootNanos) -> bool {
            true
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
        let begins = |slot, version| Read::begin_weak(&Half, [slot], version).is_some();
        assert!(begins(ItemSlot::One(99), 4));
        // The newest descriptor has this slot already.
        assert!(!begins(ItemSlot::One(100), 4));
        assert!(begins(ItemSlot::Any, 3));
        assert!(!begins(ItemSlot::Any, 4));
    }
}
