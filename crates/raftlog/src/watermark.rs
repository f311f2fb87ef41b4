//! How far the log was synced and which of its files are needed, in a file of their own: this is how a log
//! that has lost its end or a file is found out.
//!
//! ```text
//! slot, at 0 and at 512, big-endian:
//!   synced u64 | version u64 = 2 | oldest file needed u64, appended | the same, rewritten | count u64 | xxh3 u64
//! ```
//!
//! The number of a batch is written here once its `fdatasync` has returned, with a plain `pwrite` that
//! costs a microsecond. A killed process loses none of it, for the page cache survives. After power loss the
//! file may be older than the log, never newer: then less is noticed, and nothing is noticed wrongly. For
//! the marks of files this holds because a mark is synced before a file below it goes.
//!
//! The slots lie in different sectors. Writes go to one of them until it is synced, then to the other: a torn
//! write leaves the state of the last sync.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{LogError, Result};

const FILE: &str = "WATERMARK";
const VERSION: u64 = 2;
const SLOT_LEN: usize = 48;
const SLOT_OFFSETS: [u64; 2] = [0, 512];

pub(crate) struct Watermark {
    file: File,
    state: State,
    /// The slot that takes the next writes; the other one holds what was synced last.
    slot: usize,
    is_dirty: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    synced: u64,
    /// The oldest file of each queue that is needed; 0 until one is marked.
    needed: [u64; 2],
    /// The number of writes of this file, by which the newer slot is found.
    count: u64,
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
        // What is read now counts as synced: a killed process may not have synced it.
        file.sync_data().map_err(failed)?;
        let mut newest = None;
        for (slot, offset) in SLOT_OFFSETS.into_iter().enumerate() {
            if let Some(state) = read_slot(&file, offset).map_err(failed)? {
                let place = (state.count, state.synced, slot);
                newest = newest.max(Some((place, state.needed)));
            }
        }
        let Some(((count, synced, slot), needed)) = newest else {
            return Err(LogError::Corrupt(format!("neither slot of {} can be read", path.display())));
        };
        let state = State { synced, needed, count };
        Ok(Watermark { file, state, slot: 1 - slot, is_dirty: false })
    }

    /// The number of the last batch that is known to be synced.
    pub(crate) fn synced(&self) -> u64 {
        self.state.synced
    }

    pub(crate) fn needed(&self) -> [u64; 2] {
        self.state.needed
    }

    pub(crate) fn advance(&mut self, synced: u64) -> io::Result<()> {
        debug_assert!(synced >= self.state.synced);
        self.write(State { synced, ..self.state })
    }

    /// Notes that a queue's files below `oldest` are not needed.
    pub(crate) fn need_from(&mut self, queue: usize, oldest: u64) -> io::Result<()> {
        let mut needed = self.state.needed;
        needed[queue] = needed[queue].max(oldest);
        self.need(needed)
    }

    /// Notes which files are needed.
    pub(crate) fn need(&mut self, needed: [u64; 2]) -> io::Result<()> {
        match needed == self.state.needed {
            true => Ok(()),
            false => self.write(State { needed, ..self.state }),
        }
    }

    fn write(&mut self, state: State) -> io::Result<()> {
        let state = State { count: self.state.count + 1, ..state };
        let mut bytes = [0; SLOT_LEN];
        let numbers = [state.synced, VERSION, state.needed[0], state.needed[1], state.count];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&number.to_be_bytes());
        }
        let checksum = xxh3_64(&bytes[..SLOT_LEN - 8]);
        bytes[SLOT_LEN - 8..].copy_from_slice(&checksum.to_be_bytes());
        self.file.write_all_at(&bytes, SLOT_OFFSETS[self.slot])?;
        self.state = state;
        self.is_dirty = true;
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.file.sync_data()?;
            self.is_dirty = false;
            self.slot = 1 - self.slot;
        }
        Ok(())
    }
}

/// A slot never written is a watermark of 0. `None` is a torn one.
fn read_slot(file: &File, offset: u64) -> io::Result<Option<State>> {
    let mut slot = [0; SLOT_LEN];
    let mut len = 0;
    while len < SLOT_LEN {
        match file.read_at(&mut slot[len..], offset + len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    if slot == [0; SLOT_LEN] {
        return Ok(Some(State::default()));
    }
    let number = |at: usize| u64::from_be_bytes(slot[at..at + 8].try_into().expect("8 bytes"));
    let is_whole = number(SLOT_LEN - 8) == xxh3_64(&slot[..SLOT_LEN - 8]);
    Ok((is_whole && number(8) == VERSION).then(|| State {
        synced: number(0),
        needed: [number(16), number(24)],
        count: number(32),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Watermark {
        Watermark::open(dir, true).unwrap()
    }

    #[test]
    fn a_torn_slot_leaves_the_state_of_the_last_sync() {
        let dir = tempfile::tempdir().unwrap();
        let mut watermark = open(dir.path());
        assert_eq!((watermark.synced(), watermark.needed()), (0, [0, 0]));
        watermark.advance(5).unwrap();
        watermark.need_from(0, 3).unwrap();
        watermark.sync().unwrap();
        for number in [6, 9] {
            watermark.advance(number).unwrap();
        }
        let newest = open(dir.path());
        assert_eq!((newest.synced(), newest.needed()), (9, [3, 0]));
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        for byte in 512..512 + SLOT_LEN {
            let mut torn = whole.clone();
            torn[byte] ^= 0x40;
            std::fs::write(&path, &torn).unwrap();
            let left = open(dir.path());
            assert_eq!((left.synced(), left.needed()), (5, [3, 0]), "{byte}");
        }
        let mut torn = whole;
        torn[0] ^= 1;
        torn[512] ^= 1;
        std::fs::write(&path, &torn).unwrap();
        assert!(matches!(Watermark::open(dir.path(), true), Err(LogError::Corrupt(_))));
    }

    #[test]
    fn marks_only_rise_but_for_an_open_that_sets_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut watermark = open(dir.path());
        watermark.need_from(0, 7).unwrap();
        watermark.need_from(0, 6).unwrap();
        watermark.need_from(1, 2).unwrap();
        assert_eq!(open(dir.path()).needed(), [7, 2]);
        watermark.need([5, 1]).unwrap();
        watermark.sync().unwrap();
        assert_eq!(open(dir.path()).needed(), [5, 1]);
    }
}
