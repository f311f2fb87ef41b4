//! The simulated loss of power: puts the directory into a state in which a disk could have been
//! left.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use types::Draw;

use super::{at, parse_image_name, Image, ImageError, Result};

/// The unsynced changes that survive the loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// None: the minimum that a device must keep.
    Synced,
    /// A choice by seed. Of a file, any of the sectors written since its last sync survive, with
    /// its old length or its new one, and zeros for bytes that did not survive. Of a directory,
    /// either its current names or its last synced names survive.
    Torn(u64),
}

/// Bytes that a device writes atomically.
const SECTOR_BYTES: usize = 512;

/// A directory entry with its inode.
struct Entry {
    name: OsString,
    inode: u64,
    is_dir: bool,
}

impl Image {
    /// Puts the directory into a state that a power loss could leave, and starts a new image with
    /// all of that as synced. No process may be using the directory.
    pub fn lose_power(&self, survival: Survival) -> Result<()> {
        let mut chance = match survival {
            Survival::Synced => Chance(None),
            Survival::Torn(seed) => Chance(Some(Draw::new(seed))),
        };
        let left = self.path.join("left");
        fs::create_dir_all(&left).map_err(at(&left))?;
        let inode = fs::metadata(&self.root).map_err(at(&self.root))?.ino();
        self.leave_dir(inode, Some(&self.root), &left, &mut chance)?;
        for entry in fs::read_dir(&self.root).map_err(at(&self.root))? {
            let path = entry.map_err(at(&self.root))?.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(at(&path))?;
        }
        for entry in fs::read_dir(&left).map_err(at(&left))? {
            let entry = entry.map_err(at(&left))?;
            let target = self.root.join(entry.file_name());
            fs::rename(entry.path(), &target).map_err(at(&target))?;
        }
        Image::create(&self.path, &self.root).map(drop)
    }

    /// Recreates a directory in `to`. `live` is its current path, if it still exists.
    fn leave_dir(&self, inode: u64, live: Option<&Path>, to: &Path, chance: &mut Chance) -> Result<()> {
        let now = live.map(live_entries).transpose()?.unwrap_or_default();
        let synced = self.synced_entries(inode)?;
        let mut kept = if live.is_some() && chance.coin() { now } else { synced };
        // The choices must not depend on the order in which a file system lists names.
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in kept {
            let to = to.join(&entry.name);
            if entry.is_dir {
                fs::create_dir(&to).map_err(at(&to))?;
                let live = live.map(|live| live.join(&entry.name));
                let is_it = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.ino() == entry.inode);
                self.leave_dir(entry.inode, live.filter(is_it).as_deref(), &to, chance)?;
            } else {
                self.leave_file(entry.inode, &to, chance)?;
            }
        }
        Ok(())
    }

    /// Returns the last synced entries. Empty for a directory that was never synced.
    fn synced_entries(&self, inode: u64) -> Result<Vec<Entry>> {
        let dir = self.dir(inode);
        let listed = match fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(at(&dir))?,
        };
        let mut entries = Vec::new();
        for entry in listed {
            let name = entry.map_err(at(&dir))?.file_name();
            let damaged = || ImageError::Damaged { path: dir.clone(), what: format!("{name:?} in it") };
            let (is_dir, inode, name) = parse_image_name(&name).ok_or_else(damaged)?;
            entries.push(Entry { name: name.to_owned(), inode, is_dir });
        }
        Ok(entries)
    }

    fn leave_file(&self, inode: u64, to: &Path, chance: &mut Chance) -> Result<()> {
        let (file, pin) = (self.file(inode), self.pin(inode));
        if !file.exists() {
            // The process was killed after it created the file and before the image knew it, so
            // nothing was written to it.
            return File::create(to).map(drop).map_err(at(to));
        }
        fs::copy(&file, to).map_err(at(&file))?;
        let kept = chance.per_mille();
        if kept == 0 {
            return Ok(());
        }
        let out = OpenOptions::new().write(true).open(to).map_err(at(to))?;
        let (live, synced) = (File::open(&pin).map_err(at(&pin))?, File::open(&file).map_err(at(&file))?);
        let length = |file: &File, path: &Path| file.metadata().map(|found| found.len()).map_err(at(path));
        let (live_length, synced_length) = (length(&live, &pin)?, length(&synced, &file)?);
        if chance.coin() {
            out.set_len(live_length).map_err(at(to))?;
        }
        let end = length(&out, to)?.min(live_length);
        let range = self.dirty_table()?.find(inode).map_or(0, super::Slot::range);
        let (mut offset, dirty_end) = super::Slot::bytes(range);
        let end = end.min(dirty_end);
        let (mut now, mut before) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
        while offset < end {
            let wanted = (end - offset).min(SECTOR_BYTES as u64) as usize;
            let read = read_up_to(&live, &mut now[..wanted], offset).map_err(at(&pin))?;
            before.fill(0);
            if offset < synced_length {
                read_up_to(&synced, &mut before[..wanted], offset).map_err(at(&file))?;
            }
            if now[..read] != before[..read] && chance.below(1000) < kept {
                out.write_all_at(&now[..read], offset).map_err(at(to))?;
            }
            offset += SECTOR_BYTES as u64;
        }
        Ok(())
    }
}

fn live_entries(dir: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let metadata = entry.metadata().map_err(at(dir))?;
        entries.push(Entry { name: entry.file_name(), inode: metadata.ino(), is_dir: metadata.is_dir() });
    }
    Ok(entries)
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Random choices. Without a seed, every choice is against unsynced data.
struct Chance(Option<Draw>);

impl Chance {
    fn below(&mut self, below: u64) -> u64 {
        match &mut self.0 {
            Some(draw) => draw.number() % below,
            None => below - 1,
        }
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Returns the number of unsynced sectors of a file that survive, per thousand: often none,
    /// all, or nearly so.
    fn per_mille(&mut self) -> u64 {
        match self.0 {
            None => 0,
            Some(_) => [0, 20, 500, 980, 1000][self.below(5) as usize],
        }
    }
}
