//! The room on the data device. Below the reserve, this store proposes no entries that may add
//! data: such commands wait for a leader elsewhere or are refused. This ends when the free space
//! exceeds the reserve by a quarter.
//!
//! The file system is queried a few times a second, and earlier after many proposed bytes. Rows in
//! memtables count as if they were on the device.
//!
//! Proposals never wait for the file system. They count bytes against the last known free space.
//! This may show that the device is full, and then requests an early look.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

pub struct Disk {
    dir: PathBuf,
    reserve: u64,
    full: AtomicBool,
    /// Free bytes at the last look.
    free: AtomicU64,
    /// Bytes in memtables at the flusher's last look.
    unflushed: AtomicU64,
    /// Bytes proposed since then.
    proposed: AtomicU64,
    /// A request for an early look.
    pub look_soon: Notify,
}

/// Maximum bytes that are proposed between two looks, unless the reserve is even smaller.
const LOOK_BYTES: u64 = 8 << 20;

/// Minimum free bytes at which a device that refused a write has room again, even if the reserve is
/// smaller.
const ROOM_BYTES_MIN: u64 = 1 << 20;

impl Disk {
    pub fn new(dir: PathBuf, reserve: u64) -> Disk {
        let disk = Disk {
            dir,
            reserve,
            full: AtomicBool::new(false),
            free: AtomicU64::new(u64::MAX),
            unflushed: AtomicU64::new(0),
            proposed: AtomicU64::new(0),
            look_soon: Notify::new(),
        };
        disk.look();
        disk
    }

    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Marks the device as full, because a write has just failed for lack of space.
    pub fn set_full(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    pub fn set_unflushed(&self, bytes: u64) {
        self.unflushed.store(bytes, Ordering::Relaxed);
        self.proposed.store(0, Ordering::Relaxed);
    }

    /// Counts bytes that will be proposed.
    pub fn will_grow(&self, bytes: u64) {
        let look_bytes = LOOK_BYTES.min(self.reserve / 8).max(1 << 20);
        let before = self.proposed.fetch_add(bytes, Ordering::Relaxed);
        if before / look_bytes != before.saturating_add(bytes) / look_bytes {
            self.look_soon.notify_one();
        }
        let free = self.less_what_is_to_come(self.free.load(Ordering::Relaxed));
        if free < self.reserve && !self.is_full() {
            self.refuse(free);
        }
    }

    /// Queries the free space from the file system. This may take time.
    pub fn look(&self) {
        match device::free_bytes(&self.dir) {
            Ok(free) => {
                self.free.store(free, Ordering::Relaxed);
                self.judge(self.less_what_is_to_come(free));
            }
            Err(error) => tracing::warn!(%error, "cannot ask for the free space"),
        }
    }

    /// Returns true if the device has room for `bytes` now, or if the free space is unknown.
    pub fn takes(&self, bytes: u64) -> bool {
        device::free_bytes(&self.dir).map_or(true, |free| free >= bytes.saturating_add(ROOM_BYTES_MIN))
    }

    /// Returns the bytes that may be written before the free space falls to the reserve.
    pub fn room(&self) -> u64 {
        self.less_what_is_to_come(self.free.load(Ordering::Relaxed)).saturating_sub(self.reserve)
    }

    fn less_what_is_to_come(&self, free: u64) -> u64 {
        let (unflushed, proposed) =
            (self.unflushed.load(Ordering::Relaxed), self.proposed.load(Ordering::Relaxed));
        free.saturating_sub(unflushed).saturating_sub(proposed)
    }

    fn refuse(&self, free: u64) {
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                free,
                reserve = self.reserve,
                "the data device is full: this store proposes nothing that may add data"
            );
        }
    }

    fn judge(&self, free: u64) {
        if free < self.reserve {
            self.refuse(free);
        } else if free >= (self.reserve + self.reserve / 4).max(ROOM_BYTES_MIN)
            && self.full.swap(false, Ordering::Relaxed)
        {
            tracing::info!(free, "there is room again: this store proposes all commands");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_device_takes_no_more_than_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path().to_path_buf(), 0);
        assert!(disk.takes(1));
        assert!(!disk.takes(u64::MAX));
    }

    #[test]
    fn writes_are_refused_below_the_reserve_and_taken_again_above_the_band() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path().to_path_buf(), 1000 << 20);
        disk.judge(999 << 20);
        assert!(disk.is_full());
        disk.judge(1200 << 20);
        assert!(disk.is_full(), "still inside the band");
        disk.judge(1250 << 20);
        assert!(!disk.is_full());
        disk.judge(1000 << 20);
        assert!(!disk.is_full());
    }

    #[test]
    fn without_a_reserve_a_refused_write_is_believed_until_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path().to_path_buf(), 0);
        disk.judge(0);
        assert!(!disk.is_full());
        disk.set_full();
        disk.judge(0);
        assert!(disk.is_full());
        disk.judge(ROOM_BYTES_MIN);
        assert!(!disk.is_full());
    }

    #[test]
    fn rows_that_are_not_on_the_device_yet_count() {
        let dir = tempfile::tempdir().unwrap();
        let free = device::free_bytes(dir.path()).unwrap();
        let disk = Disk::new(dir.path().to_path_buf(), free / 2);
        assert!(!disk.is_full());
        disk.will_grow(free / 4 * 3);
        assert!(disk.is_full(), "proposed bytes count at once");
        disk.set_unflushed(0);
        disk.look();
        assert!(!disk.is_full());
        disk.set_unflushed(free / 4 * 3);
        disk.look();
        assert!(disk.is_full());
    }
    #[test]
    fn who_proposes_much_rings_for_a_look_and_does_not_make_it() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path().to_path_buf(), 8 << 20);
        let rung = || disk.look_soon.notified().now_or_never().is_some();
        disk.free.store(u64::MAX, Ordering::Relaxed);
        disk.will_grow((1 << 20) - 1);
        assert!(!rung());
        disk.will_grow(1);
        assert!(rung());
        assert!(!rung(), "one notification for each crossing");
        disk.will_grow(1 << 40);
        assert_eq!(disk.free.load(Ordering::Relaxed), u64::MAX, "no look has happened");
    }
}
