//! The words every layer shares: identities, slots, region descriptors, epochs.
//!
//! Nothing here does anything; the crate has no I/O or clock, and its chance comes from a seed.

#![forbid(unsafe_code)]

mod draw;
mod region;
mod slot;

pub use draw::{mix, Draw};
pub use region::{
    ChangeError, Changed, DescriptorError, Merging, Peer, PeerChange, PeerId, PeerRole, RegionChange,
    RegionDescriptor, RegionEpoch, ABSORBED_MAX, PEERS_MAX,
};
pub use slot::{hash_tag, key_hash, slot_of_key, Slot, SlotRange, SLOT_COUNT};

/// One server process and its device, numbered from 0.
pub type StoreId = u64;

/// One Raft group. Region 0 is the meta region; user regions are numbered from 1.
pub type RegionId = u64;

/// The region whose state machine is the cluster's own state.
pub const META_REGION: RegionId = 0;

/// Raft log index (PaxStore's LSN).
pub type LogIndex = u64;

/// Raft term (PaxStore's epoch).
pub type Term = u64;

/// Wall-clock milliseconds since the Unix epoch, always passed in as an argument.
pub type UnixMillis = u64;

/// Nanoseconds on a monotonic clock that counts suspended time (CLOCK_BOOTTIME).
pub type BootNanos = u64;

/// A region's log begins after this entry, of this term: what a region is founded with, or made of by a
/// split, is not in its log. So a peer that begins with nothing always needs a snapshot.
pub const FIRST_INDEX: LogIndex = 5;
pub const FIRST_TERM: Term = 5;
