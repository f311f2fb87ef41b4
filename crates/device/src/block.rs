//! The control block: one page of shared memory that represents an emulated device, followed by the
//! table of its cache.
//!
//! Every field is an `AtomicU64` in native byte order at a fixed offset, drawn in
//! `docs/DEVICES.md`. So any number of threads and processes use it without a lock, and a process
//! that dies holds nothing.

use std::mem::{offset_of, size_of};
use std::sync::atomic::AtomicU64;

use crate::lane::Lane;

pub const BLOCK_BYTES: usize = 4096;
/// Number of table entries, enough for the blocks of the largest cache. The file is sparse, so
/// unused entries take no space.
pub(crate) const TABLE_ENTRIES: usize = 1 << 20;
/// Bytes of the file and of the mapping.
pub const CONTROL_BYTES: usize = BLOCK_BYTES + TABLE_ENTRIES * size_of::<AtomicU64>();
pub const MAGIC: u64 = u64::from_le_bytes(*b"STYLDEV\0");
/// Version of the layout. Must rise whenever a field moves or changes its meaning.
pub const VERSION: u64 = 5;
pub(crate) const NAME_WORDS: usize = 4;
/// Maximum number of devices in an array.
pub(crate) const DEVICES_MAX: usize = 32;
pub(crate) const HANGS_WRITES: u64 = 1;
pub(crate) const HANGS_READS: u64 = 2;

/// The state of an emulated device. Times are nanoseconds of CLOCK_MONOTONIC, which all processes
/// of a machine share.
#[repr(C, align(64))]
pub struct ControlBlock {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU64,
    pub(crate) name: [AtomicU64; NAME_WORDS],
    _pad0: [u64; 2],

    /// Parameters, written by `Control` and read before every operation. Those of a hybrid describe
    /// the device behind its cache.
    pub(crate) write_bytes_per_s: AtomicU64,
    pub(crate) read_bytes_per_s: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) read_ns: AtomicU64,
    /// The capacity in bytes; 0 if unlimited.
    pub(crate) capacity_bytes: AtomicU64,
    /// The current slowdown relative to the parameters, in thousandths.
    pub(crate) slow_milli: AtomicU64,
    /// The time by which the device may lag behind buffered writes before they wait.
    pub(crate) write_behind_ns: AtomicU64,
    _pad1: [u64; 1],

    /// Numbers of operations that are still to fail. `u64::MAX` stands for all.
    pub(crate) fail_sync: AtomicU64,
    pub(crate) fail_write: AtomicU64,
    pub(crate) fail_space: AtomicU64,
    pub(crate) fail_read: AtomicU64,
    /// The offset of the wall clock from the machine's, in two's complement. Positive if it is
    /// ahead.
    pub(crate) wall_offset_ns: AtomicU64,
    /// The offset of CLOCK_BOOTTIME from the machine's, in two's complement. Negative after a
    /// simulated pause of the machine.
    pub(crate) boot_offset_ns: AtomicU64,
    /// The operations that do not return: a sum of the `HANGS_` constants.
    pub(crate) hangs: AtomicU64,
    _pad2: [u64; 1],

    /// The part of an operation's time that it takes from the other kind, in thousandths.
    pub(crate) sharing_milli: AtomicU64,
    /// The number of devices in an array, and the bytes that each one holds before the next one
    /// follows. 0 or 1 if it is no array.
    pub(crate) devices: AtomicU64,
    pub(crate) chunk_bytes: AtomicU64,
    /// Bytes of a cheap device's fast cache, and the write bandwidth of the flash behind it. 0 if
    /// the device has no such cache.
    pub(crate) slc_bytes: AtomicU64,
    pub(crate) slc_write_bytes_per_s: AtomicU64,
    _pad3: [u64; 11],
    /// The time at which the last scheduled flush of the device's cache ends.
    pub(crate) flush_end_ns: AtomicU64,
    _pad5: [u64; 7],

    /// Accounting of the capacity. `allocated_bytes` is an upper bound of the bytes that operations
    /// have allocated since the block was created. When it reaches `measure_at_bytes`, the
    /// directory must be measured again.
    pub(crate) allocated_bytes: AtomicU64,
    pub(crate) measure_at_bytes: AtomicU64,
    pub(crate) measured_used_bytes: AtomicU64,
    pub(crate) measured_at_ns: AtomicU64,
    _pad6: [u64; 4],

    /// Counters since the block was created.
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// The number of flushes for those syncs. It is smaller, because concurrent syncs share a
    /// flush.
    pub(crate) flushes: AtomicU64,
    pub(crate) stalled_ns: AtomicU64,
    pub(crate) injected_faults: AtomicU64,

    /// Parameters of a hybrid's cache (`cache.rs`). `cache_bytes` is 0 if there is none.
    pub(crate) cache_bytes: AtomicU64,
    pub(crate) cache_write_bytes_per_s: AtomicU64,
    pub(crate) cache_read_bytes_per_s: AtomicU64,
    pub(crate) cache_sync_ns: AtomicU64,
    pub(crate) cache_read_ns: AtomicU64,
    /// The unit of caching, and the number of table entries in use. 0 if there is no cache.
    pub(crate) cache_block_bytes: AtomicU64,
    pub(crate) cache_entries: AtomicU64,
    _pad7: [u64; 1],

    /// The number of dirty entries or more, never fewer.
    pub(crate) dirty_blocks: AtomicU64,
    /// The table position at which the search for the next block to destage continues.
    pub(crate) destage_hand: AtomicU64,
    _pad8: [u64; 6],
    /// The time at which the device behind the cache has written all blocks given to it for
    /// destaging.
    pub(crate) destage_horizon_ns: AtomicU64,
    _pad9: [u64; 7],
    /// The time at which the device behind the cache has read all missed bytes.
    pub(crate) miss_horizon_ns: AtomicU64,
    _pad10: [u64; 7],

    /// Counters of bytes since the block was created.
    pub(crate) bytes_hit: AtomicU64,
    pub(crate) bytes_missed: AtomicU64,
    pub(crate) bytes_destaged: AtomicU64,
    pub(crate) bytes_dropped: AtomicU64,
    _pad11: [u64; 4],

    /// Noise (`noise.rs`): a flag whether there is any, the spread (the bits of an `f64`), the
    /// seed, and the number of operations that have drawn a factor.
    pub(crate) noise_is_on: AtomicU64,
    pub(crate) noise_spread: AtomicU64,
    pub(crate) noise_seed: AtomicU64,
    pub(crate) noise_operations: AtomicU64,
    /// 0 if there are none. Factor and share are the bits of an `f64`.
    pub(crate) burst_every_ns: AtomicU64,
    pub(crate) burst_lasts_ns: AtomicU64,
    pub(crate) burst_slower: AtomicU64,
    pub(crate) neighbour_every_ns: AtomicU64,
    pub(crate) neighbour_lasts_ns: AtomicU64,
    pub(crate) neighbour_share: AtomicU64,
    /// The duration of the flush that ends at `flush_end_ns`.
    pub(crate) flush_took_ns: AtomicU64,
    /// Calls of `sync_file_range`, and the bytes that they named.
    pub(crate) range_syncs: AtomicU64,
    pub(crate) range_sync_bytes: AtomicU64,
    _pad12: [u64; 11],

    /// The queues of each device of an array. Other devices have only the first, and in a hybrid it
    /// is the cache's.
    pub(crate) lanes: [Lane; DEVICES_MAX],
}

const _: () = assert!(size_of::<ControlBlock>() == 3072 && size_of::<ControlBlock>() <= BLOCK_BYTES);
const _: () = assert!(offset_of!(ControlBlock, write_bytes_per_s) == 64);
const _: () = assert!(offset_of!(ControlBlock, fail_sync) == 128);
const _: () = assert!(offset_of!(ControlBlock, wall_offset_ns) == 160);
const _: () = assert!(offset_of!(ControlBlock, boot_offset_ns) == 168);
const _: () = assert!(offset_of!(ControlBlock, hangs) == 176);
const _: () = assert!(offset_of!(ControlBlock, sharing_milli) == 192);
const _: () = assert!(offset_of!(ControlBlock, slc_write_bytes_per_s) == 224);
const _: () = assert!(offset_of!(ControlBlock, flush_end_ns) == 320);
const _: () = assert!(offset_of!(ControlBlock, allocated_bytes) == 384);
const _: () = assert!(offset_of!(ControlBlock, bytes_written) == 448);
const _: () = assert!(offset_of!(ControlBlock, injected_faults) == 504);
const _: () = assert!(offset_of!(ControlBlock, cache_bytes) == 512);
const _: () = assert!(offset_of!(ControlBlock, dirty_blocks) == 576);
const _: () = assert!(offset_of!(ControlBlock, destage_horizon_ns) == 640);
const _: () = assert!(offset_of!(ControlBlock, miss_horizon_ns) == 704);
const _: () = assert!(offset_of!(ControlBlock, bytes_hit) == 768);
const _: () = assert!(offset_of!(ControlBlock, noise_is_on) == 832);
const _: () = assert!(offset_of!(ControlBlock, flush_took_ns) == 912);
const _: () = assert!(offset_of!(ControlBlock, range_syncs) == 920);
const _: () = assert!(offset_of!(ControlBlock, lanes) == 1024);
