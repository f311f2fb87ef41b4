//! A small, deliberate use of the device that shows its present speed when the store itself uses
//! the device too little. It writes a few synced pages, and a megabyte in a few synced parts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::account::Schedule;
use super::watch::Touch;

/// The size of the file. It occupies the device from the first touch until the store stops.
pub const FILE_BYTES: u64 = 1 << 20;
const PAGE: usize = 4096;
const PAGES: u64 = 4;
/// Number of parts of the megabyte. With several parts, other writes during the last sync have
/// little effect.
const PARTS: u64 = 4;
/// Time after which a touch begins no further write.
const TIME_MAX: Duration = Duration::from_secs(1);
const PART_BYTES: u64 = FILE_BYTES / PARTS;

/// Owner of the touches' file. The file is already unlinked, so it disappears with the process.
#[derive(Default)]
pub struct Toucher {
    file: Option<Arc<File>>,
}

impl Toucher {
    /// Touches the device once. `others_bytes_per_s` is the rate of all other writes to the device.
    pub async fn touch(&mut self, dir: &Path, others_bytes_per_s: f64) -> io::Result<Touch> {
        let known = self.file.clone();
        let dir = dir.to_owned();
        let touching = tokio::task::spawn_blocking(move || {
            let file = match known {
                Some(file) => file,
                None => Arc::new(nameless(&dir)?),
            };
            let touch = touch(&file, others_bytes_per_s)?;
            io::Result::Ok((file, touch))
        });
        let (file, touch) = touching.await.map_err(io::Error::other)??;
        self.file = Some(file);
        Ok(touch)
    }
}

fn nameless(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!(".steelyard-probe-{}-touch", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    // The blocks are allocated before the timed writes.
    file.write_all_at(&vec![0x5a; FILE_BYTES as usize], 0)?;
    file.sync_all()?;
    Ok(file)
}

fn touch(file: &File, others_bytes_per_s: f64) -> io::Result<Touch> {
    let page = [0xa5; PAGE];
    let part = vec![0x3c; PART_BYTES as usize];
    // This write wakes a sleeping drive.
    file.write_all_at(&page, 0)?;
    file.sync_data()?;
    let schedule = Schedule::default();
    let worked = schedule.read()?;
    let began = Instant::now();
    let (mut syncs, mut bytes) = (0, 0);
    let pages = (0..PAGES).map(|index| (&page[..], index * PAGE as u64));
    let parts = (0..PARTS).map(|index| (&part[..], index * PART_BYTES));
    for (data, at) in pages.chain(parts) {
        file.write_all_at(data, at)?;
        file.sync_data()?;
        (syncs, bytes) = (syncs + 1, bytes + data.len() as u64);
        if began.elapsed() > TIME_MAX {
            break;
        }
    }
    let blocked = began.elapsed().saturating_sub(schedule.read()?.saturating_sub(worked));
    let others_bytes = (others_bytes_per_s * blocked.as_secs_f64()) as u64;
    Ok(Touch { blocked, syncs, bytes, others_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_leaves_no_name_behind_and_says_what_it_did() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut toucher = Toucher::default();
        for _ in 0..2 {
            let touch = runtime.block_on(toucher.touch(dir.path(), 0.0)).unwrap();
            assert!((1..=8).contains(&touch.syncs) && touch.bytes <= (1 << 20) + 4 * 4096);
            assert!(touch.bytes >= touch.syncs * 4096 && touch.others_bytes == 0, "{touch:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(runtime.block_on(Toucher::default().touch(Path::new("/nonexistent"), 0.0)).is_err());
    }
}
