//! Room on the data device: below the reserve, commands that may add data are refused before anything is
//! proposed; they are taken again when there is a quarter more than the reserve.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::datadir;

pub struct Disk {
    dir: PathBuf,
    reserve: u64,
    full: AtomicBool,
    total: AtomicU64,
}

impl Disk {
    pub fn new(dir: PathBuf, reserve: u64) -> Disk {
        let disk = Disk { dir, reserve, full: AtomicBool::new(false), total: AtomicU64::new(0) };
        disk.look();
        disk
    }

    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// A write has just failed for lack of space: no need to wait for the next look.
    pub fn set_full(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Asks the file system.
    pub fn look(&self) {
        match datadir::space(&self.dir) {
            Ok(space) => {
                self.total.store(space.total, Ordering::Relaxed);
                self.judge(space.free);
            }
            Err(error) => tracing::warn!(%error, "cannot ask for the free space"),
        }
    }

    fn judge(&self, free: u64) {
        if free < self.reserve {
            if !self.full.swap(true, Ordering::Relaxed) {
                tracing::warn!(free, reserve = self.reserve, "the data device is full: writes are refused");
            }
        } else if free >= self.reserve + self.reserve / 4 && self.full.swap(false, Ordering::Relaxed) {
            tracing::info!(free, "there is room again: writes are taken");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_below_the_reserve_and_taken_again_above_the_band() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path().to_path_buf(), 1000);
        disk.judge(999);
        assert!(disk.is_full());
        disk.judge(1200);
        assert!(disk.is_full(), "still inside the band");
        disk.judge(1250);
        assert!(!disk.is_full());
        disk.judge(1000);
        assert!(!disk.is_full());
    }
}
