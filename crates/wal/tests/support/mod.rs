//! A disk in memory. A loss of power keeps all synced data, and a seeded random part of the rest.

#![allow(dead_code, reason = "each file of tests uses a part")]

pub mod damage;
pub mod life;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use types::Draw;
use vault::{Key, Keyring, Kind, Prefix, Sectors};
use wal::mark::Mark;
use wal::{Disk, DiskError, Index, MarkFile, Secret, SegmentId, SharedIndex};

pub const SECRET: Secret = Secret(0x5EC2E7);
const SECTOR: usize = 512;

/// A file's current bytes, its synced bytes, and the writes since the last sync.
#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl File {
    fn of(bytes: Vec<u8>) -> File {
        File { now: bytes.clone(), synced: bytes, unsynced: Vec::new() }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.now[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.unsynced.push((offset, bytes.to_vec()));
    }

    fn sync(&mut self) {
        self.synced = self.now.clone();
        self.unsynced.clear();
    }

    /// Keeps or drops each sector of the unsynced writes at random.
    fn lose_power(&mut self, draw: &mut Draw) {
        let keeps = draw.below(5);
        for (offset, bytes) in std::mem::take(&mut self.unsynced) {
            let mut at = 0;
            while at < bytes.len() {
                let end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
                let end = end.min(bytes.len());
                if draw.below(4) < keeps {
                    self.synced[offset + at..offset + end].copy_from_slice(&bytes[at..end]);
                }
                at = end;
            }
        }
        self.now = self.synced.clone();
    }
}

#[derive(Default)]
struct Files {
    segments: BTreeMap<SegmentId, File>,
    /// Deleted segments, which may reappear after a loss of power.
    deleted: BTreeMap<SegmentId, File>,
    marks: BTreeMap<MarkFile, File>,
    /// The number of operations left until the power goes.
    left: u64,
    full: bool,
    /// True if syncs of segments have no effect: an injected fault.
    ignores_syncs: bool,
    keys: Option<Keys>,
}

/// The keys of an encrypted disk. Each segment keeps the key that was active when it was made.
#[derive(Default)]
struct Keys {
    active: u8,
    of_segments: BTreeMap<SegmentId, u8>,
    syncs: u32,
}

impl Keys {
    fn sectors(&self, segment: SegmentId) -> Sectors {
        let ring = Keyring::new(Key::new([self.of_segments[&segment]; 32]));
        let mut salt = [0; 32];
        salt[..4].copy_from_slice(&segment.to_be_bytes());
        Prefix::new(Kind::Log, &ring, salt).sectors(&ring).expect("it is the active key")
    }
}

#[derive(Clone)]
pub struct MemoryDisk(Rc<RefCell<Files>>);

fn off() -> DiskError {
    DiskError::Failed("the power is off".into())
}

impl MemoryDisk {
    pub fn new() -> MemoryDisk {
        let disk = MemoryDisk(Rc::default());
        for mark in [MarkFile::Synced, MarkFile::First] {
            disk.0.borrow_mut().marks.insert(mark, File::of(Mark::blank(SECRET)));
        }
        disk.power_for(u64::MAX);
        disk
    }

    /// Returns a disk whose segments are encrypted, with a new key at each loss of power and after
    /// some syncs.
    pub fn encrypted() -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.0.borrow_mut().keys = Some(Keys::default());
        disk
    }

    pub fn power_for(&self, operations: u64) {
        self.0.borrow_mut().left = operations;
    }

    pub fn set_full(&self, full: bool) {
        self.0.borrow_mut().full = full;
    }

    pub fn ignore_syncs(&self) {
        self.0.borrow_mut().ignores_syncs = true;
    }

    pub fn lose_power(&self, draw: &mut Draw) {
        let mut files = self.0.borrow_mut();
        files.segments.values_mut().for_each(|file| file.lose_power(draw));
        files.marks.values_mut().for_each(|file| file.lose_power(draw));
        for (segment, mut file) in std::mem::take(&mut files.deleted) {
            if draw.below(2) == 0 && !files.segments.contains_key(&segment) {
                file.lose_power(draw);
                files.segments.insert(segment, file);
            }
        }
        files.left = u64::MAX;
        if let Some(keys) = &mut files.keys {
            keys.active += 1;
        }
    }

    /// Returns a copy of the current state, to be damaged by a test.
    pub fn copy(&self) -> MemoryDisk {
        let files = self.0.borrow();
        MemoryDisk(Rc::new(RefCell::new(Files {
            segments: files.segments.clone(),
            deleted: BTreeMap::new(),
            marks: files.marks.clone(),
            left: u64::MAX,
            full: false,
            ignores_syncs: false,
            keys: None,
        })))
    }

    pub fn change(&self, segment: SegmentId, act: impl FnOnce(&mut Vec<u8>)) {
        let mut files = self.0.borrow_mut();
        let file = files.segments.get_mut(&segment).expect("a segment");
        act(&mut file.now);
        *file = File::of(std::mem::take(&mut file.now));
    }

    pub fn lose_segment(&self, segment: SegmentId) {
        self.0.borrow_mut().segments.remove(&segment);
    }

    pub fn segment(&self, segment: SegmentId) -> Vec<u8> {
        self.0.borrow().segments[&segment].now.clone()
    }

    pub fn ids(&self) -> Vec<SegmentId> {
        self.0.borrow().segments.keys().copied().collect()
    }

    fn spend(&self) -> Result<(), DiskError> {
        let mut files = self.0.borrow_mut();
        if files.left == 0 {
            return Err(off());
        }
        files.left -= 1;
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn create(&self, segment: SegmentId, len: u64) -> Result<(), DiskError> {
        self.spend()?;
        let mut files = self.0.borrow_mut();
        if files.full {
            return Err(DiskError::NoSpace("full".into()));
        }
        let mut zeros = vec![0; len as usize];
        if let Some(keys) = &mut files.keys {
            keys.of_segments.insert(segment, keys.active);
            keys.sectors(segment).encrypt(0, &mut zeros);
        }
        let old = files.segments.insert(segment, File::of(zeros));
        assert!(old.is_none(), "segment {segment} was made twice");
        Ok(())
    }

    fn delete(&self, segment: SegmentId) -> Result<(), DiskError> {
        self.spend()?;
        let mut files = self.0.borrow_mut();
        let file = files.segments.remove(&segment).expect("a segment");
        files.deleted.insert(segment, file);
        Ok(())
    }

    fn write(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let is_last = self.0.borrow().left == 0;
        let mut files = self.0.borrow_mut();
        let mut bytes = bytes.to_vec();
        if let Some(keys) = &files.keys {
            keys.sectors(segment).encrypt(offset / SECTOR as u64, &mut bytes);
        }
        let file = files.segments.get_mut(&segment).expect("a segment");
        // The last write before the power goes may have been in flight.
        file.write(offset as usize, &bytes);
        if is_last {
            return Err(off());
        }
        files.left -= 1;
        Ok(())
    }

    fn sync(&self, segment: SegmentId) -> Result<(), DiskError> {
        self.spend()?;
        let mut files = self.0.borrow_mut();
        if !files.ignores_syncs {
            files.segments.get_mut(&segment).expect("a segment").sync();
        }
        if let Some(keys) = &mut files.keys {
            keys.syncs += 1;
            if keys.syncs % 40 == 0 {
                keys.active += 1;
            }
        }
        Ok(())
    }

    fn read(&self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let files = self.0.borrow();
        let file = files.segments.get(&segment).ok_or_else(|| DiskError::Failed("no such segment".into()))?;
        let range = offset as usize..offset as usize + into.len();
        let Some(keys) = &files.keys else {
            into.copy_from_slice(
                file.now.get(range).ok_or_else(|| DiskError::Failed("a short read".into()))?,
            );
            return Ok(());
        };
        let first = range.start / SECTOR;
        let sectors = file.now.get(first * SECTOR..range.end.next_multiple_of(SECTOR));
        let mut sectors = sectors.ok_or_else(|| DiskError::Failed("a short read".into()))?.to_vec();
        keys.sectors(segment).decrypt(first as u64, &mut sectors);
        into.copy_from_slice(&sectors[range.start - first * SECTOR..][..range.len()]);
        Ok(())
    }

    fn is_outdated(&self, segment: SegmentId) -> bool {
        let files = self.0.borrow();
        files.keys.as_ref().is_some_and(|keys| keys.of_segments.get(&segment) != Some(&keys.active))
    }

    fn segments(&self) -> Result<Vec<(SegmentId, u64)>, DiskError> {
        Ok(self.0.borrow().segments.iter().map(|(id, file)| (*id, file.now.len() as u64)).collect())
    }

    fn write_mark(&self, mark: MarkFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.spend()?;
        self.0.borrow_mut().marks.get_mut(&mark).expect("a mark").write(offset as usize, bytes);
        Ok(())
    }

    fn sync_mark(&self, mark: MarkFile) -> Result<(), DiskError> {
        self.spend()?;
        self.0.borrow_mut().marks.get_mut(&mark).expect("a mark").sync();
        Ok(())
    }

    fn read_mark(&self, mark: MarkFile) -> Result<Vec<u8>, DiskError> {
        Ok(self.0.borrow().marks[&mark].now.clone())
    }
}

#[derive(Clone, Default)]
pub struct Cell(Rc<RefCell<Index>>);

impl SharedIndex for Cell {
    fn with<R>(&self, act: impl FnOnce(&mut Index) -> R) -> R {
        act(&mut self.0.borrow_mut())
    }
}
