//! The time of operations on an emulated or modelled device. The emulation (`device`) and the
//! prediction (`predict`) share these rules.
//!
//! A queue is represented by its *horizon*, the time at which all of its work will be finished.
//! Bytes wait in a queue, one each for writes and for reads, and latencies overlap. One flush runs
//! at a time, and syncs that arrive during a flush share the next one. All times are in
//! nanoseconds.

/// Maximum time in nanoseconds that a device may lag behind buffered writes before they wait.
pub const WRITE_BEHIND_NS: u64 = 20_000_000;

/// The slowdown, in thousandths, of a device that is as fast as its parameters.
pub const NOT_SLOWED: u64 = 1000;

/// Bytes of a block in a hybrid's cache: the unit of a page cache and of RocksDB's reads. Blocks of
/// very large caches are larger.
pub const CACHE_BLOCK_BYTES: u64 = 4096;

/// The dirty part of a hybrid's cache, in hundredths, at which destaging begins, and at which
/// writes wait for it.
pub const DESTAGE_FROM: u64 = 50;
pub const DIRTY_MAX: u64 = 75;
const _: () = assert!(DESTAGE_FROM < DIRTY_MAX && DIRTY_MAX < 100);

/// Returns the time that a transfer takes. `slow_milli` is the device's slowdown in thousandths.
pub fn transfer_ns(bytes: u64, bytes_per_s: u64, slow_milli: u64) -> u64 {
    let (rate, slow) = (u128::from(bytes_per_s.max(1)), u128::from(slow_milli.max(1)));
    let nanos = u128::from(bytes) * 1_000_000_000 * slow / (rate * 1000);
    u64::try_from(nanos).unwrap_or(u64::MAX / 4)
}

/// Returns the horizon of a queue after work of length `cost`, which begins no earlier than
/// `start`, has been added.
pub fn reserved(horizon: u64, start: u64, cost: u64) -> u64 {
    horizon.max(start).saturating_add(cost)
}

/// Returns the end of the flush that must be scheduled for a sync, or `None` if the last scheduled
/// flush covers it. That flush ends at `end` (0: there was none) and takes `took`. It covers the
/// sync if it begins after all preceding writes, which are finished at `written`. A new flush takes
/// `latency`.
pub fn next_flush(end: u64, took: u64, written: u64, latency: u64) -> Option<u64> {
    let covers = end > 0 && end.saturating_sub(took) >= written;
    (!covers).then(|| reserved(end, written, latency))
}
