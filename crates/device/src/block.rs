//! The control block: one page of shared memory that is an emulated device.
//!
//! Every field is an `AtomicU64` in native byte order at a fixed offset (drawn in `docs/DEVICES.md`), so any
//! number of threads and processes work on it without a lock, and one that dies holds nothing.

use std::mem::{offset_of, size_of};
use std::sync::atomic::AtomicU64;

/// Bytes of the file and of the mapping.
pub const BLOCK_BYTES: usize = 4096;
pub const MAGIC: u64 = u64::from_le_bytes(*b"STYLDEV\0");
/// Raised whenever a field moves or changes its meaning.
pub const VERSION: u64 = 1;
pub(crate) const NAME_WORDS: usize = 4;

/// Times are nanoseconds of CLOCK_MONOTONIC, the one clock all processes of a machine share.
#[repr(C, align(64))]
pub struct ControlBlock {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU64,
    pub(crate) name: [AtomicU64; NAME_WORDS],
    _pad0: [u64; 2],

    /// Parameters: written by `Control`, read before every operation.
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
    _pad2: [u64; 3],

    /// When the device will have written all that was reserved.
    pub(crate) write_horizon_ns: AtomicU64,
    _pad3: [u64; 7],
    /// When the device will have read all that was reserved.
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
}

const _: () = assert!(size_of::<ControlBlock>() == 512 && size_of::<ControlBlock>() <= BLOCK_BYTES);
const _: () = assert!(offset_of!(ControlBlock, write_bytes_per_s) == 64);
const _: () = assert!(offset_of!(ControlBlock, fail_sync) == 128);
const _: () = assert!(offset_of!(ControlBlock, wall_offset_ns) == 160);
const _: () = assert!(offset_of!(ControlBlock, write_horizon_ns) == 192);
const _: () = assert!(offset_of!(ControlBlock, read_horizon_ns) == 256);
const _: () = assert!(offset_of!(ControlBlock, flush_end_ns) == 320);
const _: () = assert!(offset_of!(ControlBlock, allocated_bytes) == 384);
const _: () = assert!(offset_of!(ControlBlock, bytes_written) == 448);
const _: () = assert!(offset_of!(ControlBlock, injected_faults) == 504);
