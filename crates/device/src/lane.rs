//! The queues of one device: reads and writes that share it, and the fast cache of a cheap device.
//!
//! The rules of sharing are those of `types::device_time`. The words of a lane change one by one,
//! so operations that arrive at the same moment may end in another order than they arrived in. No
//! work is lost: every operation adds its whole cost to `all_reads` and `all_writes`.

use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use types::device_time::{contended, reserved, taken};

use crate::ControlBlock;

#[repr(C, align(64))]
pub(crate) struct Lane {
    /// The ends of the last read and of the last write.
    read_end_ns: AtomicU64,
    write_end_ns: AtomicU64,
    /// The horizons of all work that stands in the way of reads, and of writes.
    all_reads_ns: AtomicU64,
    all_writes_ns: AtomicU64,
    /// The time at which the fast cache will be empty.
    slc_empty_ns: AtomicU64,
    _pad: [u64; 3],
}

const _: () = assert!(size_of::<Lane>() == 64);

impl Lane {
    /// Adds a read of length `cost`. Returns its end.
    pub fn read(&self, start: u64, cost: u64, sharing_milli: u64) -> u64 {
        reserve(&self.all_writes_ns, start, taken(cost, sharing_milli));
        let all = reserve(&self.all_reads_ns, start, cost);
        add(&self.read_end_ns, all, start, cost, sharing_milli)
    }

    /// Adds a write of length `cost`. Returns its end.
    pub fn write(&self, start: u64, cost: u64, sharing_milli: u64) -> u64 {
        reserve(&self.all_reads_ns, start, taken(cost, sharing_milli));
        let all = reserve(&self.all_writes_ns, start, cost);
        add(&self.write_end_ns, all, start, cost, sharing_milli)
    }

    /// Returns the time at which all writes so far are finished.
    pub fn written(&self) -> u64 {
        self.write_end_ns.load(Relaxed)
    }

    /// Fills the fast cache by a write that takes `behind_ns` on the flash behind the cache. The
    /// cache holds `room_ns` of such writes and empties all the time. Returns the part of
    /// `behind_ns` for which there is no room.
    pub fn overflow(&self, start: u64, behind_ns: u64, room_ns: u64) -> u64 {
        let begins = start.max(self.written());
        let empty = reserve(&self.slc_empty_ns, begins, behind_ns);
        empty.saturating_sub(begins).saturating_sub(room_ns).min(behind_ns)
    }

    #[cfg(test)]
    pub fn all_writes(&self) -> u64 {
        self.all_writes_ns.load(Relaxed)
    }
}

impl ControlBlock {
    /// Returns the time that a write of `bytes` takes on one device. While its fast cache is full,
    /// that is the time on the flash behind the cache.
    pub(crate) fn write_cost(&self, lane: &Lane, start: u64, bytes: u64) -> u64 {
        let fast = |bytes| self.transfer_ns(start, bytes, &self.write_bytes_per_s);
        let room = self.slc_bytes.load(Relaxed);
        if room == 0 || bytes == 0 {
            return fast(bytes);
        }
        let behind = |bytes| self.transfer_ns(start, bytes, &self.slc_write_bytes_per_s);
        let behind_ns = behind(bytes);
        let over = lane.overflow(start, behind_ns, behind(room));
        let over_bytes = (u128::from(bytes) * u128::from(over) / u128::from(behind_ns.max(1))) as u64;
        fast(bytes - over_bytes).saturating_add(over)
    }
}

/// Advances `horizon` by `cost`, starting no earlier than `start`, and returns its new value.
/// Relaxed ordering suffices, because the horizon guards no other memory.
pub(crate) fn reserve(horizon: &AtomicU64, start: u64, cost: u64) -> u64 {
    advance(horizon, |seen| reserved(seen, start, cost))
}

fn add(end: &AtomicU64, all: u64, start: u64, cost: u64, sharing_milli: u64) -> u64 {
    advance(end, |seen| contended(seen, all, start, cost, sharing_milli))
}

fn advance(word: &AtomicU64, next: impl Fn(u64) -> u64) -> u64 {
    let mut seen = word.load(Relaxed);
    loop {
        let new = next(seen);
        match word.compare_exchange_weak(seen, new, Relaxed, Relaxed) {
            Ok(_) => return new,
            Err(other) => seen = other,
        }
    }
}

#[cfg(test)]
mod tests;
