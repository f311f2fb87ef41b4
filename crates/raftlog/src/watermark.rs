//! How far the log had been synced, in a file of its own: what a log that ends early is found out by.
//!
//! The number of a batch is written here once its `fdatasync` has returned, with a plain `pwrite` that
//! costs a microsecond. A killed process loses none of it, for the page cache survives. After power loss the
//! file may be older than the log, never newer: then less is noticed, and nothing is noticed wrongly.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{LogError, Result};

const FILE: &str = "WATERMARK";
const VERSION: u64 = 1;
const SLOT_LEN: usize = 24;

/// Slots lie in different sectors, and writes alternate: a torn write leaves the other one.
const SLOT_OFFSETS: [u64; 2] = [0, 512];

pub(crate) struct Watermark {
    file: File,
    synced: u64,
    writes: usize,
    is_dirty: bool,
}

impl Watermark {
    /// Opens the file, making it if `is_new_log`. It is made before the first log file is, so a log without
    /// one has lost it.
    pub(crate) fn open(dir: &Path, is_new_log: bool) -> Result<Watermark> {
        let path = dir.join(FILE);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull => LogError::NoSpace(error.to_string()),
            _ => LogError::Device(format!("{}: {error}", path.display())),
        };
        let is_new = !path.exists();
        if is_new && !is_new_log {
            return Err(LogError::Corrupt(format!("{} is missing", path.display())));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        if is_new {
            file.set_len(SLOT_OFFSETS[1] + SLOT_LEN as u64).map_err(failed)?;
            file.sync_all().map_err(failed)?;
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        }
        let slots = SLOT_OFFSETS.map(|offset| read_slot(&file, offset));
        let mut synced = 0;
        let mut readable = 0;
        for slot in slots {
            if let Some(number) = slot.map_err(failed)? {
                synced = synced.max(number);
                readable += 1;
            }
        }
        if readable == 0 {
            return Err(LogError::Corrupt(format!("neither slot of {} can be read", path.display())));
        }
        Ok(Watermark { file, synced, writes: 0, is_dirty: false })
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    pub(crate) fn advance(&mut self, synced: u64) -> io::Result<()> {
        debug_assert!(synced >= self.synced);
        let mut slot = [0; SLOT_LEN];
        slot[..8].copy_from_slice(&synced.to_be_bytes());
        slot[8..16].copy_from_slice(&VERSION.to_be_bytes());
        let checksum = xxh3_64(&slot[..16]);
        slot[16..].copy_from_slice(&checksum.to_be_bytes());
        self.file.write_all_at(&slot, SLOT_OFFSETS[self.writes % 2])?;
        self.writes += 1;
        self.synced = synced;
        self.is_dirty = true;
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.file.sync_data()?;
            self.is_dirty = false;
        }
        Ok(())
    }
}

/// A slot never written is a watermark of 0. `None` is a torn one.
fn read_slot(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let mut slot = [0; SLOT_LEN];
    let mut len = 0;
    while len < SLOT_LEN {
        match file.read_at(&mut slot[len..], offset + len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    if slot == [0; SLOT_LEN] {
        return Ok(Some(0));
    }
    let number = |at: usize| u64::from_be_bytes(slot[at..at + 8].try_into().expect("8 bytes"));
    let is_whole = number(8) == VERSION && number(16) == xxh3_64(&slot[..16]);
    Ok(is_whole.then(|| number(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut watermark = Watermark::open(dir.path(), true).unwrap();
        assert_eq!(watermark.synced(), 0);
        for number in [5, 6, 9] {
            watermark.advance(number).unwrap();
        }
        watermark.sync().unwrap();
        assert_eq!(Watermark::open(dir.path(), true).unwrap().synced(), 9);
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        // The slot of 9 is torn: 6 is left.
        for byte in 0..SLOT_LEN {
            let mut torn = whole.clone();
            torn[byte] ^= 0x40;
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(Watermark::open(dir.path(), true).unwrap().synced(), 6, "{byte}");
        }
        let mut torn = whole;
        torn[0] ^= 1;
        torn[512] ^= 1;
        std::fs::write(&path, &torn).unwrap();
        assert!(matches!(Watermark::open(dir.path(), true), Err(LogError::Corrupt(_))));
    }
}
