//! The log: one preallocated file, which is overwritten in a circle, by a thread of its own or by
//! the thread of the loop.
//!
//! All blocks of the file were written once before, so that overwriting them changes no metadata.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};

use anyhow::Context;

/// Batches begin at multiples of this number of bytes, so that the kernel never reads a page before
/// it is written.
const PAGE_BYTES: u64 = 4 << 10;

/// Finished batches that are written in turn and synced once.
pub(super) type Write = Vec<Arc<Vec<u8>>>;

/// The log. It takes one write at a time.
pub(super) struct Log {
    place: Arc<Mutex<Circle>>,
    writes: SyncSender<Write>,
    done: Receiver<io::Result<()>>,
    is_busy: bool,
}

impl Log {
    /// Makes the file and starts the thread. The thread calls `wake` when a write is done.
    pub(super) fn start(dir: &Path, bytes: u64, wake: impl Fn() + Send + 'static) -> anyhow::Result<Log> {
        let path = dir.join("LOG");
        let file = preallocate(&path, bytes).with_context(|| format!("{} cannot be made", path.display()))?;
        let (writes, to_write) = mpsc::sync_channel::<Write>(1);
        let (written, done) = mpsc::channel();
        let place = Arc::new(Mutex::new(Circle { file, bytes, next: 0 }));
        let of_thread = place.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || {
            while let Ok(write) = to_write.recv() {
                let result = of_thread.lock().expect("nobody panics with it").write(&write);
                if written.send(result).is_err() {
                    return;
                }
                wake();
            }
        })?;
        Ok(Log { place, writes, done, is_busy: false })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Starts a write. Must not be called while the log is busy.
    pub(super) fn write(&mut self, write: Write) -> anyhow::Result<()> {
        debug_assert!(!self.is_busy);
        self.is_busy = true;
        self.writes.try_send(write).map_err(|error| match error {
            TrySendError::Full(_) => anyhow::anyhow!("the log has a write already"),
            TrySendError::Disconnected(_) => anyhow::anyhow!("the log's thread has ended"),
        })
    }

    /// Writes on this thread. Must not be called while the log is busy.
    pub(super) fn write_here(&self, write: &Write) -> anyhow::Result<()> {
        debug_assert!(!self.is_busy);
        let mut place = self.place.lock().expect("nobody panics with it");
        place.write(write).context("the log cannot be written")
    }

    /// Returns true if the write in flight is done.
    pub(super) fn take_done(&mut self) -> anyhow::Result<bool> {
        let Ok(result) = self.done.try_recv() else { return Ok(false) };
        self.is_busy = false;
        result.context("the log cannot be written")?;
        Ok(true)
    }
}

fn preallocate(path: &Path, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    io::copy(&mut io::repeat(0).take(bytes), &mut &file)?;
    file.sync_all()?;
    Ok(file)
}

/// The file, and the position of the next batch in it.
struct Circle {
    file: File,
    bytes: u64,
    next: u64,
}

impl Circle {
    fn place(&mut self, bytes: u64) -> io::Result<u64> {
        if bytes > self.bytes {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a batch is larger than the log"));
        }
        if bytes > self.bytes - self.next {
            self.next = 0;
        }
        let at = self.next;
        self.next = (at + bytes).next_multiple_of(PAGE_BYTES).min(self.bytes);
        Ok(at)
    }

    /// Writes and syncs.
    fn write(&mut self, write: &Write) -> io::Result<()> {
        for batch in write {
            let at = self.place(batch.len() as u64)?;
            self.file.write_all_at(batch, at)?;
        }
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_each_other_and_go_round() {
        let file = tempfile::tempfile().unwrap();
        let mut circle = Circle { file, bytes: 3 * PAGE_BYTES, next: 0 };
        assert_eq!(circle.place(10).unwrap(), 0);
        assert_eq!(circle.place(PAGE_BYTES).unwrap(), PAGE_BYTES);
        assert_eq!(circle.place(PAGE_BYTES).unwrap(), 2 * PAGE_BYTES);
        assert_eq!(circle.place(PAGE_BYTES + 1).unwrap(), 0);
        assert_eq!(
            circle.place(PAGE_BYTES + 1).unwrap(),
            0,
            "there is not enough room behind the last batch"
        );
        assert_eq!(circle.place(3 * PAGE_BYTES).unwrap(), 0);
        assert!(circle.place(3 * PAGE_BYTES + 1).is_err());
    }
}
