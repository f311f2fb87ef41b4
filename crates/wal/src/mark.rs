//! Marks: numbers in small files beside the segments. One mark is the sequence through which the
//! log is synced. The other is the sequence of the first needed block.
//!
//! ```text
//! slot, at 0 and at 512, big-endian:
//!   number u64 | count u64 | xxh3-64 u64, keyed by the log's secret
//! ```
//!
//! Writes go to one slot until the file is synced, and then to the other slot. So a torn write
//! preserves the last synced number. If both slots are intact, the one with the larger count is
//! valid.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::disk::{Disk, DiskError, MarkFile};
use crate::layout::{u64_at, Secret};

pub const SLOT_LEN: usize = 24;
pub const SLOT_OFFSETS: [u64; 2] = [0, 512];
/// The length of a mark file in bytes.
pub const MARK_LEN: usize = SLOT_OFFSETS[1] as usize + SLOT_LEN;

#[derive(Clone, Debug)]
pub struct Mark {
    file: MarkFile,
    secret: Secret,
    number: u64,
    count: u64,
    /// The slot that receives the next writes.
    slot: usize,
    is_dirty: bool,
}

impl Mark {
    /// Reads a mark. Returns `None` if neither slot is whole.
    pub fn read(disk: &impl Disk, file: MarkFile, secret: Secret) -> Result<Option<Mark>, DiskError> {
        let bytes = disk.read_mark(file)?;
        let mut newest: Option<Mark> = None;
        for (slot, offset) in SLOT_OFFSETS.into_iter().enumerate() {
            let offset = offset as usize;
            let Some(slot_bytes) = bytes.get(offset..offset + SLOT_LEN) else { continue };
            let Some((number, count)) = decode(slot_bytes, secret) else { continue };
            if newest.as_ref().is_none_or(|mark| count >= mark.count) {
                newest = Some(Mark { file, secret, number, count, slot: 1 - slot, is_dirty: false });
            }
        }
        Ok(newest)
    }

    /// Returns the file content of a new log's mark: both slots hold the number 0.
    pub fn blank(secret: Secret) -> Vec<u8> {
        let mut bytes = vec![0; MARK_LEN];
        for offset in SLOT_OFFSETS {
            bytes[offset as usize..offset as usize + SLOT_LEN].copy_from_slice(&encode(0, 0, secret));
        }
        bytes
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn write(&mut self, disk: &impl Disk, number: u64) -> Result<(), DiskError> {
        let slot = encode(number, self.count + 1, self.secret);
        disk.write_mark(self.file, SLOT_OFFSETS[self.slot], &slot)?;
        self.count += 1;
        self.number = number;
        self.is_dirty = true;
        Ok(())
    }

    pub fn sync(&mut self, disk: &impl Disk) -> Result<(), DiskError> {
        if self.is_dirty {
            disk.sync_mark(self.file)?;
            self.is_dirty = false;
            self.slot = 1 - self.slot;
        }
        Ok(())
    }
}

fn encode(number: u64, count: u64, secret: Secret) -> [u8; SLOT_LEN] {
    let mut out = [0; SLOT_LEN];
    out[..8].copy_from_slice(&number.to_be_bytes());
    out[8..16].copy_from_slice(&count.to_be_bytes());
    let checksum = xxh3_64_with_seed(&out[..16], secret.0);
    out[16..].copy_from_slice(&checksum.to_be_bytes());
    out
}

fn decode(slot: &[u8], secret: Secret) -> Option<(u64, u64)> {
    let is_whole = u64_at(slot, 16) == xxh3_64_with_seed(&slot[..16], secret.0);
    is_whole.then(|| (u64_at(slot, 0), u64_at(slot, 8)))
}
