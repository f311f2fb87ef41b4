//! Types and rules that several layers share: ids, slots, region descriptors, epochs, the time of
//! devices.
//!
//! The crate contains data types and pure functions only. It has no I/O and no clock, and its
//! random numbers follow from a seed.

#![forbid(unsafe_code)]

pub mod device_time;
mod draw;
mod failpoints;
mod output;
mod region;
mod size;
mod slot;
mod thresholds;
mod version;

pub use draw::{mix, Draw};
pub use output::{copy_in_pieces, Output, PIECE_BYTES, SHARED_BYTES_MIN};
pub use region::{
    ChangeError, Changed, DescriptorError, Merging, Peer, PeerChange, PeerEnd, PeerId, PeerRole, Recovery,
    RegionChange, RegionDescriptor, RegionEpoch, ABSORBED_MAX, PEERS_MAX, RECOVERIES_MAX, RECOVERY_LEAP,
};
pub use size::{parse_size, SizeError};
pub use slot::{hash_tag, key_hash, slot_of_key, Slot, SlotRange, SLOT_COUNT};
pub use thresholds::{threshold_name, LayoutBounds, ThresholdName, Thresholds, THRESHOLDS};
pub use version::{Version, NEWEST_VERSION, OLDEST_VERSION, SECOND_VERSION, THIRD_VERSION};

/// The id of a store: one server process and its device. Numbered from 0.
pub type StoreId = u64;

/// The id of a region: one Raft group. Region 0 is the meta region; user regions are numbered from
/// 1.
pub type RegionId = u64;

/// The meta region, whose state machine is the cluster's own state.
pub const META_REGION: RegionId = 0;

/// An index in a Raft log (PaxStore's LSN).
pub type LogIndex = u64;

/// A Raft term (PaxStore's epoch).
pub type Term = u64;

/// Wall-clock milliseconds since the Unix epoch. Always passed in as an argument.
pub type UnixMillis = u64;

/// Nanoseconds on a monotonic clock that counts suspended time (CLOCK_BOOTTIME).
pub type BootNanos = u64;

/// The index and term of the entry after which every region's log begins. The initial state of a
/// region is not in its log, whether the region was founded or split off. A peer that begins
/// without data therefore always needs a snapshot.
pub const FIRST_INDEX: LogIndex = 5;
pub const FIRST_TERM: Term = 5;
