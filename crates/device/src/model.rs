//! The timing model: reservations on shared horizons.
//!
//! A horizon is the time at which a device will have finished all reserved work. An operation that
//! starts at `start` reserves its bytes by advancing a horizon with one compare-and-swap, and is
//! done at the time to which it advanced it. The caller does the waiting. So all users of the
//! device share its bandwidth, for any number of threads, while latencies of operations overlap, as
//! in a device with a queue. How reads and writes share a device is in `lane.rs`, arrays are in
//! `array.rs`, hybrids in `cache.rs`, noise in `noise.rs`. The arithmetic is `types::device_time`,
//! which the predictor shares.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use types::device_time::{next_flush, transfer_ns};

use crate::block::{HANGS_READS, HANGS_WRITES};
use crate::lane::Lane;
use crate::{ControlBlock, Extent};

/// A number of faults that never runs out.
pub const EVERY: u64 = u64::MAX;

/// The operations that can be made to fail, from the next one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `fsync`, `fdatasync`, `syncfs` and synchronous writes fail with EIO.
    SyncEio,
    /// Writes fail with EIO and write nothing.
    WriteEio,
    /// Writes and allocations fail with ENOSPC and write nothing.
    WriteNoSpace,
    /// Reads fail with EIO.
    ReadEio,
}

/// The operations that do not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    Nothing,
    /// Writes and syncs.
    Writes,
    Reads,
    Everything,
}

impl ControlBlock {
    /// Returns true while a write or a sync that has been performed must not return.
    pub fn hangs_writes(&self) -> bool {
        self.hangs.load(Relaxed) & HANGS_WRITES != 0
    }

    /// Returns true while a read that has been performed must not return.
    pub fn hangs_reads(&self) -> bool {
        self.hangs.load(Relaxed) & HANGS_READS != 0
    }

    /// Returns the time at which the device has written `bytes` more, at the begin of an array.
    pub fn write(&self, start: u64, bytes: u64) -> u64 {
        self.write_at(start, Extent { file: 0, begin: 0, bytes })
    }

    /// Returns the time at which the device has written `extent`. Its place matters in an array
    /// only.
    pub fn write_at(&self, start: u64, extent: Extent) -> u64 {
        self.writes.fetch_add(1, Relaxed);
        self.bytes_written.fetch_add(extent.bytes, Relaxed);
        self.on_devices(extent, |lane, bytes| {
            lane.write(start, self.write_cost(lane, start, bytes), self.sharing())
        })
    }

    /// Returns the time until which the caller of a *buffered* write must wait, if the device
    /// finishes the write at `done`. The device may lag by the write-behind allowance, as behind a
    /// page cache.
    pub fn buffered(&self, done: u64) -> u64 {
        done.saturating_sub(self.write_behind_ns.load(Relaxed))
    }

    /// Returns the time at which all writes reserved so far are finished.
    pub fn drained(&self, start: u64) -> u64 {
        let devices = self.stripes().map_or(1, |stripes| stripes.devices as usize);
        self.lanes[..devices].iter().map(Lane::written).fold(start, u64::max)
    }

    /// Returns the time at which the device has read `bytes` more, at the begin of an array.
    pub fn read(&self, start: u64, bytes: u64, prefetched: bool) -> u64 {
        self.read_at(start, Extent { file: 0, begin: 0, bytes }, prefetched)
    }

    /// Returns the time at which the device has read `extent`. A read that continues the preceding
    /// one on the same descriptor was prefetched: it pays for the transfer, but not for the
    /// latency.
    pub fn read_at(&self, start: u64, extent: Extent, prefetched: bool) -> u64 {
        self.reads.fetch_add(1, Relaxed);
        self.bytes_read.fetch_add(extent.bytes, Relaxed);
        let latency = if prefetched { 0 } else { self.latency_ns(start, &self.read_ns) };
        let end = self.on_devices(extent, |lane, bytes| {
            let cost = self.transfer_ns(start, bytes, &self.read_bytes_per_s);
            lane.read(start, cost, self.sharing())
        });
        end.saturating_add(latency)
    }

    /// Gives each device its part of an operation. Returns the end of the last part.
    fn on_devices(&self, extent: Extent, operate: impl Fn(&Lane, u64) -> u64) -> u64 {
        let Some(stripes) = self.stripes() else { return operate(&self.lanes[0], extent.bytes) };
        let parts = self.lanes.iter().zip(stripes.parts(extent)).filter(|(_, bytes)| *bytes > 0);
        parts.map(|(lane, bytes)| operate(lane, bytes)).max().unwrap_or(0)
    }

    pub(crate) fn sharing(&self) -> u64 {
        self.sharing_milli.load(Relaxed)
    }

    /// Counts a call of `sync_file_range`.
    pub fn range_synced(&self, bytes: u64) {
        self.range_syncs.fetch_add(1, Relaxed);
        self.range_sync_bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns the time at which a sync that starts at `start` is done: all writes reserved so far
    /// are finished, and a flush of the device's cache that began after them has ended. One flush
    /// runs at a time. Syncs that arrive during a flush share the next one, as in the kernel's
    /// block layer (`block/blk-flush.c`).
    pub fn sync(&self, start: u64) -> u64 {
        self.syncs.fetch_add(1, Relaxed);
        // Data in a hybrid's cache is durable, so the cache's latency applies.
        let cached = self.cache_entries.load(Relaxed) > 0;
        let latency = self.latency_ns(start, if cached { &self.cache_sync_ns } else { &self.sync_ns });
        let written = self.drained(start);
        let mut end = self.flush_end_ns.load(Relaxed);
        loop {
            // With noise, the flush that ends there took a time of its own, not the latency drawn
            // for this one.
            let took = match self.noise_is_on.load(Relaxed) {
                0 => latency,
                _ => self.flush_took_ns.load(Relaxed),
            };
            let Some(next) = next_flush(end, took, written, latency) else { return end };
            match self.flush_end_ns.compare_exchange_weak(end, next, Relaxed, Relaxed) {
                Ok(_) => {
                    self.flush_took_ns.store(latency, Relaxed);
                    self.flushes.fetch_add(1, Relaxed);
                    return next;
                }
                Err(seen) => end = seen,
            }
        }
    }

    pub fn stalled(&self, nanos: u64) {
        self.stalled_ns.fetch_add(nanos, Relaxed);
    }

    /// Returns true if this operation must fail, and consumes one fault.
    pub fn take_fault(&self, fault: Fault) -> bool {
        let left = self.fault(fault);
        if left.load(Relaxed) == 0 {
            return false;
        }
        let taken = left.fetch_update(Relaxed, Relaxed, |left| match left {
            0 => None,
            EVERY => Some(EVERY),
            left => Some(left - 1),
        });
        if taken.is_ok() {
            self.injected_faults.fetch_add(1, Relaxed);
        }
        taken.is_ok()
    }

    /// Returns the offset of the wall clock of processes on this device from the machine's.
    /// Positive if it is ahead.
    pub fn wall_offset_ns(&self) -> i64 {
        self.wall_offset_ns.load(Relaxed) as i64
    }

    /// Returns the offset of CLOCK_BOOTTIME of processes on this device from the machine's.
    /// Positive if it is ahead.
    pub fn boot_offset_ns(&self) -> i64 {
        self.boot_offset_ns.load(Relaxed) as i64
    }

    pub(crate) fn fault(&self, fault: Fault) -> &AtomicU64 {
        match fault {
            Fault::SyncEio => &self.fail_sync,
            Fault::WriteEio => &self.fail_write,
            Fault::WriteNoSpace => &self.fail_space,
            Fault::ReadEio => &self.fail_read,
        }
    }

    /// Returns the capacity in bytes, or `None` if there is no limit.
    ///
    /// Usage is not tracked by counting writes and deletions, because a killed process would leave
    /// the count wrong. An upper bound of the bytes allocated since the directory was last measured
    /// decides cheaply. If that bound exceeds the room, the directory is measured again.
    pub fn capacity(&self) -> Option<u64> {
        match self.capacity_bytes.load(Relaxed) {
            0 => None,
            bytes => Some(bytes),
        }
    }

    /// Reserves room for at most `bytes` more. If it returns false, there may not be enough room:
    /// the caller must measure the directory and call [`admit_measured`](Self::admit_measured).
    pub fn admit(&self, bytes: u64) -> bool {
        let before = self.allocated_bytes.fetch_add(bytes, Relaxed);
        before.saturating_add(bytes) <= self.measure_at_bytes.load(Relaxed)
    }

    /// Returns the sum of all admitted bytes. A caller that measures must read it *before* the
    /// measurement, and subtract bytes that are admitted but not yet written.
    pub fn admitted(&self) -> u64 {
        self.allocated_bytes.load(Relaxed)
    }

    /// Returns true if an operation that allocates `bytes` fits beside the `used` bytes just
    /// measured.
    pub fn admit_measured(&self, mark: u64, now: u64, used: u64, bytes: u64) -> bool {
        self.measured(mark, now, used);
        self.capacity().is_none_or(|capacity| used.saturating_add(bytes) <= capacity)
    }

    pub fn measured(&self, mark: u64, now: u64, used: u64) {
        let room = self.capacity().unwrap_or(u64::MAX).saturating_sub(used);
        self.measured_used_bytes.store(used, Relaxed);
        self.measured_at_ns.store(now, Relaxed);
        self.measure_at_bytes.store(mark.saturating_add(room), Relaxed);
    }

    /// Returns the last measured usage if it is younger than `age_ns`.
    pub fn used_if_younger(&self, now: u64, age_ns: u64) -> Option<u64> {
        let at = self.measured_at_ns.load(Relaxed);
        (at > 0 && now.saturating_sub(at) < age_ns).then(|| self.measured_used_bytes.load(Relaxed))
    }

    /// Returns the time of a transfer that begins at `at`.
    pub(crate) fn transfer_ns(&self, at: u64, bytes: u64, bytes_per_s: &AtomicU64) -> u64 {
        let nanos = transfer_ns(bytes, bytes_per_s.load(Relaxed), self.slow_milli.load(Relaxed));
        self.noisy_transfer(at, nanos)
    }

    /// Returns the latency of an operation that begins at `at`.
    pub(crate) fn latency_ns(&self, at: u64, nanos: &AtomicU64) -> u64 {
        let slow = u128::from(self.slow_milli.load(Relaxed).max(1));
        let nanos = u128::from(nanos.load(Relaxed)) * slow / 1000;
        self.noisy_latency(at, u64::try_from(nanos).unwrap_or(u64::MAX / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Control, Profile};

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    fn device(text: &str) -> (tempfile::TempDir, Control) {
        let dir = tempfile::tempdir().unwrap();
        let profile: Profile = text.parse().unwrap();
        let control = Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
        (dir, control)
    }

    #[test]
    fn write_bandwidth_is_shared_and_idle_time_is_not_saved_up() {
        let (_dir, control) = device("write=1MB/s,read=2MB/s");
        let block = control.block();
        assert_eq!(block.write(0, 1_000), MS);
        assert_eq!(block.write(0, 1_000), 2 * MS, "a second writer queues behind the first");
        assert_eq!(block.write(100 * MS, 1_000), 101 * MS, "an idle device has gained nothing");
        assert_eq!(block.read(200 * MS, 1_000, true), 200 * MS + MS / 2);
    }

    #[test]
    fn read_latency_overlaps_while_transfers_queue() {
        let (_dir, control) = device("write=1MB/s,read=1MB/s,read-latency=80us");
        let block = control.block();
        assert_eq!(block.read(0, 1_000, false), MS + 80 * US);
        assert_eq!(block.read(0, 1_000, false), 2 * MS + 80 * US);
        assert_eq!(block.read(0, 1_000, true), 3 * MS);
    }

    #[test]
    fn a_sync_waits_for_the_writes_before_it() {
        let (_dir, control) = device("write=1MB/s,read=1MB/s,sync=1ms");
        let block = control.block();
        block.write(0, 5_000);
        assert_eq!(block.sync(0), 6 * MS);
        assert_eq!(block.sync(6 * MS), 7 * MS);
    }

    #[test]
    fn syncs_that_meet_a_running_flush_share_the_next() {
        let (_dir, control) = device("write=1MB/s,read=1MB/s,sync=1ms");
        let block = control.block();
        assert_eq!(block.sync(10 * MS), 11 * MS);
        assert_eq!(block.sync(10 * MS + 1), 12 * MS, "it came after the flush began");
        assert_eq!(block.sync(10 * MS + 500 * US), 12 * MS, "and this one shares the second flush");
        assert_eq!(block.sync(11 * MS + 1), 13 * MS);
        let stats = control.stats();
        assert_eq!((stats.syncs, stats.flushes), (4, 3));
    }

    #[test]
    fn slow_divides_bandwidth_and_multiplies_latency_at_once() {
        let (_dir, control) = device("write=1MB/s,read=1MB/s,sync=1ms,read-latency=100us");
        let block = control.block();
        control.set_slow(10.0).unwrap();
        assert_eq!(block.write(0, 1_000), 10 * MS);
        assert_eq!(block.sync(0), 20 * MS);
        assert_eq!(block.read(30 * MS, 1_000, false), 41 * MS);
        control.set_slow(1.0).unwrap();
        assert_eq!(block.write(50 * MS, 1_000), 51 * MS);
    }

    #[test]
    fn a_buffered_write_waits_only_beyond_the_allowance() {
        let (_dir, control) = device("write=1MB/s,read=1MB/s");
        let block = control.block();
        let done = block.write(100 * MS, 50_000);
        assert_eq!(done, 150 * MS);
        assert_eq!(block.buffered(done), 130 * MS);
    }

    #[test]
    fn faults_run_out_unless_they_are_for_every_operation() {
        let (_dir, control) = device("nvm");
        let block = control.block();
        assert!(!block.take_fault(Fault::SyncEio));
        control.set_fault(Fault::SyncEio, 2);
        assert!(block.take_fault(Fault::SyncEio) && block.take_fault(Fault::SyncEio));
        assert!(!block.take_fault(Fault::SyncEio));
        control.set_fault(Fault::ReadEio, EVERY);
        assert!((0..100).all(|_| block.take_fault(Fault::ReadEio)));
        assert!(!block.take_fault(Fault::WriteEio) && !block.take_fault(Fault::WriteNoSpace));
        control.clear_faults();
        assert!(!block.take_fault(Fault::ReadEio));
        assert_eq!(control.stats().injected_faults, 102);
    }

    #[test]
    fn capacity_is_decided_by_what_was_measured() {
        let (_dir, control) = device("nvm,capacity=10KB");
        let block = control.block();
        assert!(!block.admit(1_000), "nothing was measured yet");
        assert!(block.admit_measured(block.admitted() - 1_000, 1, 0, 1_000));
        assert!(block.admit(9_000), "what was measured and what was admitted since fill the device");
        assert!(!block.admit(1), "the bound is used up");
        assert!(!block.admit_measured(block.admitted() - 1, 2, 10_000, 1), "and the directory is full");
        assert!(block.admit_measured(block.admitted(), 2, 10_000, 0), "an overwrite needs no room");
        assert!(block.admit_measured(block.admitted(), 3, 4_000, 6_000), "files were deleted");
        control.set_capacity(None);
        assert!(block.admit_measured(block.admitted(), 4, 10_000, 6_000) && block.admit(1 << 40));
    }

    #[test]
    fn concurrent_reservations_lose_nothing() {
        let (_dir, control) = device("write=1GB/s,read=1GB/s");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| _ = control.block().write(0, 1_000)));
            }
        });
        assert_eq!(control.block().lanes[0].all_writes(), 40_000 * US);
        assert_eq!(control.stats().bytes_written, 40_000_000);
    }
}
