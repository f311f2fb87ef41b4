//! When a read of this store's rows may be answered: by the leader under its lease, by the leader after a round of
//! heartbeats or an entry proved that it leads, or weakly, by any store.
//!
//! All three take a view of the rows first and look afterwards, here, whether the view was one that may be shown: the
//! rows were there, whole, all the time; the slots are the region's; and the lease, where there is no other proof, still
//! holds by a clock that is read now, so that it held when the view was taken.

use types::{BootNanos, SlotRange};

use crate::item::ItemSlot;

/// What makes a read as fresh as it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The leader's lease, which must hold after the view was taken.
    Lease,
    /// A round of heartbeats, or an entry that was applied, before the view is taken; or nothing, for a weak read.
    AlreadyThere,
}

/// A region as it is on this store now.
pub trait Local {
    type Token: Copy + PartialEq;

    /// A token of the rows, another one whenever they went or came, not by entries; `None` while they are not there.
    fn rows(&self) -> Option<Self::Token>;

    fn lease_holds(&self, now: BootNanos) -> bool;

    /// As applied here; all, for the meta region.
    fn slots_here(&self) -> SlotRange;

    /// Of the descriptor that is applied here.
    fn version_here(&self) -> u64;
}

/// A read of which the view is being taken.
#[derive(Clone, Debug)]
pub struct Read<T> {
    proof: Proof,
    rows: T,
}

impl<T: Copy + PartialEq> Read<T> {
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// To be called before the view is taken. `None`: the rows are not there.
    pub fn begin<L: Local<Token = T>>(region: &L, proof: Proof) -> Option<Read<T>> {
        Some(Read { proof, rows: region.rows()? })
    }

    /// Whether what the view gave may be answered; `clock` is read now, after the view. The commands are for these
    /// slots, by a descriptor of that version.
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

/// Whether the region, as it is applied here, has the slots of all commands. A command without keys is about all
/// of a region's slots: it needs the very range that the asker knows, which is that of `version`.
pub fn lie_in<L: Local>(slots: impl IntoIterator<Item = ItemSlot>, region: &L, version: u64) -> bool {
    let here = region.slots_here();
    let lies_in = |slot: ItemSlot| match slot {
        ItemSlot::Any => region.version_here() == version,
        ItemSlot::One(slot) => here.contains(slot),
        ItemSlot::Several => false,
    };
    here == SlotRange::ALL || slots.into_iter().all(lies_in)
}
