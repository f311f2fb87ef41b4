//! The control block: one page of shared memory that is an emulated device, and the table of its cache behind it.
//!
//! Every field is an `AtomicU64` in native byte order at a fixed offset (drawn in `docs/DEVICES.md`), so any
//! number of threads and processes work on it without a lock, and one that dies holds nothing.

use std::mem::{offset_of, size_of};
use std::sync::atomic::AtomicU64;

pub const BLOCK_BYTES: usize = 4096;
/// The table has room for the blocks of the largest cache; of a file that has holes, only what is used takes any.
pub(crate) const TABLE_ENTRIES: usize = 1 << 20;
/// Bytes of the file and of the mapping.
pub const CONTROL_BYTES: usize = BLOCK_BYTES + TABLE_ENTRIES * size_of::<AtomicU64>();
pub const MAGIC: u64 = u64::from_le_bytes(*b"STYLDEV\0");
/// Raised whenever a field moves or changes its meaning.
pub const VERSION: u64 = 3;
pub(crate) const NAME_WORDS: usize = 4;

/// Times are nanoseconds of CLOCK_MONOTONIC, the one clock all processes of a machine share.
#[repr(C, align(64))]
pub struct ControlBlock {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU64,
    pub(crate) name: [AtomicU64; NAME_WORDS],
    _pad0: [u64; 2],

    /// Parameters: written by `Control`, read before every operation. Of a hybrid, those of the device behind
    /// its cache.
    pub(crate) write_bytes_per_s: AtomicU64,
    pub(crate) read_bytes_per_s: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) read_ns: AtomicU64,
    /// 0: unlimited.
    pub(crate) capacity_bytes: AtomicU64,
    /// How much slower than its parameters the device is now, in thousandths.
    pub(crate) slow_milli: AtomicU64,
    /// How far the device may lag behind buffered writes before they wait for it.
    pub(crate) write_behind_ns: AtomicU64,
    _pad1: [u64; 1],

    /// Operations still to fail; `u64::MAX`: all of them.
    pub(crate) fail_sync: AtomicU64,
    pub(crate) fail_write: AtomicU64,
    pub(crate) fail_space: AtomicU64,
    pub(crate) fail_read: AtomicU64,
    /// How far the wall clock is ahead of the machine's; two's complement.
    pub(crate) wall_offset_ns: AtomicU64,
    /// How far CLOCK_BOOTTIME is ahead of the machine's; two's complement. Below 0: the machine was paused.
    pub(crate) boot_offset_ns: AtomicU64,
    _pad2: [u64; 2],

    /// When the device, or a hybrid's cache, will have written all that was reserved.
    pub(crate) write_horizon_ns: AtomicU64,
    _pad3: [u64; 7],
    /// When the device, or a hybrid's cache, will have read all that was reserved.
    pub(crate) read_horizon_ns: AtomicU64,
    _pad4: [u64; 7],
    /// When the last scheduled flush of the device's cache will have ended.
    pub(crate) flush_end_ns: AtomicU64,
    _pad5: [u64; 7],

    /// Capacity: bytes that operations may have allocated since the block was made, never less than the
    /// truth, and the value of that sum at which the directory has to be measured again.
    pub(crate) allocated_bytes: AtomicU64,
    pub(crate) measure_at_bytes: AtomicU64,
    pub(crate) measured_used_bytes: AtomicU64,
    pub(crate) measured_at_ns: AtomicU64,
    _pad6: [u64; 4],

    /// Counters since the block was made.
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// Flushes the device made for those syncs: fewer, for concurrent syncs share one.
    pub(crate) flushes: AtomicU64,
    pub(crate) stalled_ns: AtomicU64,
    pub(crate) injected_faults: AtomicU64,

    /// A hybrid's cache (`cache.rs`): its size, 0 where there is none, and what it can do.
    pub(crate) cache_bytes: AtomicU64,
    pub(crate) cache_write_bytes_per_s: AtomicU64,
    pub(crate) cache_read_bytes_per_s: AtomicU64,
    pub(crate) cache_sync_ns: AtomicU64,
    pub(crate) cache_read_ns: AtomicU64,
    /// The unit of caching, and how many entries of the table are in use; 0: no cache.
    pub(crate) cache_block_bytes: AtomicU64,
    pub(crate) cache_entries: AtomicU64,
    _pad7: [u64; 1],

    /// Never less than the number of dirty entries.
    pub(crate) dirty_blocks: AtomicU64,
    /// Where in the table the next block to destage is looked for.
    pub(crate) destage_hand: AtomicU64,
    _pad8: [u64; 6],
    /// When the device behind the cache will have written all that it was given to destage.
    pub(crate) destage_horizon_ns: AtomicU64,
    _pad9: [u64; 7],
    /// When the device behind the cache will have read all that was missed.
    pub(crate) miss_horizon_ns: AtomicU64,
    _pad10: [u64; 7],

    /// Counters since the block was made, of bytes.
    pub(crate) bytes_hit: AtomicU64,
    pub(crate) bytes_missed: AtomicU64,
    pub(crate) bytes_destaged: AtomicU64,
    pub(crate) bytes_dropped: AtomicU64,
    _pad11: [u64; 4],

    /// Noise (`noise.rs`): whether there is any, its spread (the bits of an `f64`), its seed, and how many operations
    /// have had a number of their own.
    pub(crate) noise_is_on: AtomicU64,
    pub(crate) noise_spread: AtomicU64,
    pub(crate) noise_seed: AtomicU64,
    pub(crate) noise_operations: AtomicU64,
    /// 0: none. Factor and share are the bits of an `f64`.
    pub(crate) burst_every_ns: AtomicU64,
    pub(crate) burst_lasts_ns: AtomicU64,
    pub(crate) burst_slower: AtomicU64,
    pub(crate) neighbour_every_ns: AtomicU64,
    pub(crate) neighbour_lasts_ns: AtomicU64,
    pub(crate) neighbour_share: AtomicU64,
    /// Of the flush that ends at `flush_end_ns`.
    pub(crate) flush_took_ns: AtomicU64,
    _pad12: [u64; 5],
}

const _: () = assert!(size_of::<ControlBlock>() == 960 && size_of::<ControlBlock>() <= BLOCK_BYTES);
const _: () = assert!(offset_of!(ControlBlock, write_bytes_per_s) == 64);
const _: () = assert!(offset_of!(ControlBlock, fail_sync) == 128);
const _: () = assert!(offset_of!(ControlBlock, wall_offset_ns) == 160);
const _: () = assert!(offset_of!(ControlBlock, boot_offset_ns) == 168);
const _: () = assert!(offset_of!(ControlBlock, write_horizon_ns) == 192);
const _: () = assert!(offset_of!(ControlBlock, read_horizon_ns) == 256);
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
