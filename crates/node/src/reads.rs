//! Conditions under which a read of this store's rows may be answered. There are three kinds of
//! reads: by the leader under its lease, by the leader after a round of heartbeats or an applied
//! entry has confirmed its leadership, and weak reads, by any store.
//!
//! Each read begins here, takes a view of the rows, and then checks here whether the view may be
//! returned. The rows must have been present and complete the whole time, and the slots must belong
//! to the region. Without another proof, the lease must be valid before the view is taken, and
//! still be valid by a clock that is read after the view.
//!
//! The lease begins only after an entry of the leader's own term is executed. So while it is valid,
//! the rows have everything that earlier leaders have acknowledged or announced. A check after the
//! view alone would not suffice: a new leader takes requests before it has executed what an earlier
//! leader acknowledged. Its lease can begin between an older view and the check.
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
    /// The leader's lease, which must be valid before the view is taken and afterwards. For
    /// commands from elsewhere the leader must also have executed what it has announced, before
    /// the view is taken.
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

    /// Returns the largest commit index that this store has announced to others, which is the
    /// maximum of `replica::announced_commit` over its messages. The executor records a message's
    /// index before it sends the message.
    fn announced(&self) -> LogIndex;

    /// Returns the index of the last entry that this store has executed. The rows have its changes.
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
    /// takes the view. Returns `None` if the rows are absent, or if the lease does not hold or does
    /// not suffice. `clock` returns a time since the arrival of the commands.
    pub fn begin<L: Local<Token = T>>(
        region: &L,
        proof: Proof,
        clock: impl FnOnce() -> BootNanos,
    ) -> Option<Read<T>> {
        // The token is taken before the applied index is read. If older rows replace these later,
        // the token changes, and the view is not returned.
        let rows = region.rows()?;
        let suffices = match proof {
            Proof::Lease(origin) => lease_suffices(region, origin, clock()),
            Proof::AlreadyThere => true,
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
        clock: impl FnOnce() -> BootNanos,
    ) -> Option<Read<T>> {
        if !writes.iter().all(Item::needs_its_keys) {
            return None;
        }
        let is_unproved = Failpoint::NothingUnproved.is_on();
        let proof = if is_unproved { Proof::AlreadyThere } else { Proof::Lease(origin) };
        Read::begin(region, proof, clock)
    }

    /// Begins a weak read, as [`begin`](Self::begin) does. Also returns `None` if the slots do not
    /// belong to the region as applied here. The rows of slots that a merge adds later may be older
    /// than the region's applied index says.
    pub fn begin_weak<L: Local<Token = T>>(
        region: &L,
        slots: impl IntoIterator<Item = ItemSlot>,
        version: u64,
    ) -> Option<Read<T>> {
        let read = Read { proof: Proof::AlreadyThere, rows: region.rows()? };
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

/// Returns true if a view that is taken after this call is new enough for the commands, as long as
/// no other store becomes the leader.
fn lease_suffices<L: Local>(region: &L, origin: Origin, now: BootNanos) -> bool {
    if !region.lease_holds(now) && !Failpoint::LeaseNotCheckedBefore.is_on() {
        return false;
    }
    match origin {
        // This store's clients know only of what it has executed itself.
        Origin::Here => true,
        Origin::Elsewhere => holds_what_is_announced(region),
    }
}

/// Returns true if the rows here have all entries that this store has announced as committed. If it
/// also holds the lease, no other store has executed more: the lease begins only after an entry of
/// the leader's own term is executed, so entries that earlier leaders announced are executed too.
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
        lease_until: BootNanos,
    }

    /// The time of the reads.
    const NOW: BootNanos = 100;

    impl Local for Half {
        type Token = u64;

        fn rows(&self) -> Option<u64> {
            Some(7)
        }

        fn lease_holds(&self, now: BootNanos) -> bool {
            now < self.lease_until
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
        let half = Half { announced: 8, applied: 7, lease_until: 0 };
        let begins = |slot, version| Read::begin_weak(&half, [slot], version).is_some();
        assert!(begins(ItemSlot::One(99), 4));
        // The newest descriptor has this slot already.
        assert!(!begins(ItemSlot::One(100), 4));
        assert!(begins(ItemSlot::Any, 3));
        assert!(!begins(ItemSlot::Any, 4));
    }

    fn items<const COUNT: usize>(lines: [&str; COUNT]) -> [Item; COUNT] {
        let args = |line: &str| line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        lines.map(|line| Item::new(args(line), 0, false).unwrap())
    }

    #[test]
    fn commands_from_elsewhere_need_what_the_leader_has_announced() {
        let writes = items(["DEL key", "SET key 1"]);
        let delete = &writes[..1];
        let of = |announced| Half { announced, applied: 7, lease_until: NOW + 1 };
        let begins = |announced, proof| Read::begin(&of(announced), proof, || NOW).is_some();
        let begins_nothing = |announced, writes: &[Item], origin| {
            Read::begin_nothing(&of(announced), writes, origin, || NOW).is_some()
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

    /// A new leader executes what an earlier leader has acknowledged, and then its own first entry.
    /// A view from before that lacks acknowledged writes.
    #[test]
    fn a_view_that_was_taken_before_the_lease_began_is_no_answer_when_it_has_begun() {
        let delete = items(["DEL key"]);
        let mut region = Half { announced: 0, applied: 6, lease_until: 0 };
        let answers = |region: &mut Half, begin: &dyn Fn(&Half) -> Option<Read<u64>>| {
            let read = begin(region);
            *region = Half { announced: 8, applied: 8, lease_until: NOW + 9 };
            let is_answered = |read: Read<u64>| read.may_be_answered(region, [ItemSlot::Any], 3, || NOW + 1);
            read.is_some_and(is_answered)
        };
        for origin in [Origin::Here, Origin::Elsewhere] {
            let nothing = |region: &Half| Read::begin_nothing(region, &delete, origin, || NOW);
            let rows = |region: &Half| Read::begin(region, Proof::Lease(origin), || NOW);
            for begin in [&nothing as &dyn Fn(&Half) -> Option<Read<u64>>, &rows] {
                region.lease_until = 0;
                assert!(!answers(&mut region, begin));
                // Now the lease holds before the view, too.
                assert!(answers(&mut region, begin));
            }
        }
    }

    #[test]
    fn a_view_that_was_taken_under_a_lease_is_no_answer_when_the_lease_has_ended() {
        let region = Half { announced: 7, applied: 7, lease_until: NOW + 1 };
        let read = Read::begin(&region, Proof::Lease(Origin::Here), || NOW).unwrap();
        assert!(read.may_be_answered(&region, [ItemSlot::Any], 3, || NOW));
        assert!(!read.may_be_answered(&region, [ItemSlot::Any], 3, || NOW + 1));
    }
}
