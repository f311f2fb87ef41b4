//! Arrays: devices with one address space that is divided into chunks, as in RAID 0.
//!
//! A file begins at a place that follows from its number and lies there in one piece. Each device
//! has its own queues, and the devices of one operation work at the same time. So the operation
//! takes as long as the device that has the most to do. Pieces of one operation that lie on the
//! same device are one transfer, as the block layer merges them.

use std::sync::atomic::Ordering::Relaxed;

use crate::cache::mixed;
use crate::{ControlBlock, Extent};

/// The way in which an array divides its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripes {
    pub devices: u64,
    pub chunk_bytes: u64,
}

impl Stripes {
    /// Returns the bytes of an extent on each device.
    pub fn parts(self, extent: Extent) -> impl Iterator<Item = u64> {
        let stripe = self.devices.saturating_mul(self.chunk_bytes).max(1);
        let place = if extent.file == 0 { 0 } else { mixed(extent.file) % stripe };
        let begin = extent.begin.saturating_add(place);
        let end = begin.saturating_add(extent.bytes);
        (0..self.devices).map(move |device| self.before(end, device) - self.before(begin, device))
    }

    /// Returns the bytes on one device below an address of the array.
    fn before(self, address: u64, device: u64) -> u64 {
        let stripe = self.devices.saturating_mul(self.chunk_bytes).max(1);
        let own = (address % stripe).saturating_sub(device * self.chunk_bytes).min(self.chunk_bytes);
        address / stripe * self.chunk_bytes + own
    }
}

impl ControlBlock {
    /// Returns the stripes of an array, or `None` if it is a single device.
    pub(crate) fn stripes(&self) -> Option<Stripes> {
        let devices = self.devices.load(Relaxed).min(self.lanes.len() as u64);
        let chunk_bytes = self.chunk_bytes.load(Relaxed);
        (devices > 1 && chunk_bytes > 0).then_some(Stripes { devices, chunk_bytes })
    }

    /// Returns true if the place of an operation on the device matters.
    pub fn is_array(&self) -> bool {
        self.stripes().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(devices: u64, chunk_bytes: u64, begin: u64, bytes: u64) -> Vec<u64> {
        Stripes { devices, chunk_bytes }.parts(Extent { file: 0, begin, bytes }).collect()
    }

    #[test]
    fn an_extent_is_divided_at_the_chunks() {
        assert_eq!(parts(4, 100, 0, 100), [100, 0, 0, 0]);
        assert_eq!(parts(4, 100, 50, 100), [50, 50, 0, 0]);
        assert_eq!(parts(4, 100, 350, 100), [50, 0, 0, 50]);
        assert_eq!(parts(4, 100, 50, 1000), [250, 300, 250, 200]);
        assert_eq!(parts(4, 100, 0, 900), [300, 200, 200, 200]);
    }

    #[test]
    fn no_byte_is_lost_wherever_a_file_begins() {
        for file in 0..200 {
            for (begin, bytes) in [(0, 1), (7, 4096), (1 << 20, 3 << 20), (u64::MAX - 10, 5)] {
                let all: u64 =
                    Stripes { devices: 5, chunk_bytes: 16 << 10 }.parts(Extent { file, begin, bytes }).sum();
                let most = u64::MAX - begin;
                assert!(all == bytes || all < bytes && most < bytes + (5 << 20), "{file} {begin}: {all}");
            }
        }
    }
}
