//! A small thing done to the device to see how it is, where the store itself asks too little of it: a few
//! synced pages and a synced megabyte.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::account::scheduled_here;
use super::watch::Touch;

/// What it takes on the device for as long as the store runs, once it was needed.
pub const FILE_BYTES: u64 = 1 << 20;
const PAGE: usize = 4096;
const PAGES: u64 = 4;

/// Has the file, which has no name any more: it goes with the process, however that ends.
#[derive(Default)]
pub struct Toucher {
    file: Option<Arc<File>>,
}

impl Toucher {
    /// `others_bytes_per_s`: what is written to the device otherwise.
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
    // Its blocks are there before anything is timed.
    file.write_all_at(&vec![0x5a; FILE_BYTES as usize], 0)?;
    file.sync_all()?;
    Ok(file)
}

fn touch(file: &File, others_bytes_per_s: f64) -> io::Result<Touch> {
    let page = [0xa5; PAGE];
    let block = vec![0x3c; FILE_BYTES as usize];
    // A drive that sleeps wakes up for this one.
    file.write_all_at(&page, 0)?;
    file.sync_data()?;
    let worked = scheduled_here()?;
    let began = Instant::now();
    for index in 0..PAGES {
        file.write_all_at(&page, index * PAGE as u64)?;
        file.sync_data()?;
    }
    file.write_all_at(&block, 0)?;
    file.sync_data()?;
    let blocked = began.elapsed().saturating_sub(scheduled_here()?.saturating_sub(worked));
    let others = (others_bytes_per_s * blocked.as_secs_f64()) as u64;
    Ok(Touch { blocked, syncs: PAGES + 1, bytes: PAGES * PAGE as u64 + FILE_BYTES + others })
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
            assert_eq!((touch.syncs, touch.bytes), (5, (1 << 20) + 4 * 4096));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(runtime.block_on(Toucher::default().touch(Path::new("/nonexistent"), 0.0)).is_err());
    }
}
