//! The log: one preallocated file, overwritten in a circle by a thread of its own.
//!
//! Its blocks were written once before, so that to overwrite them changes no metadata.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::Arc;

use anyhow::Context;

/// Batches begin at multiples of this, so that no page is read before it is written.
const PAGE_BYTES: u64 = 4 << 10;

/// Finished batches, written one after the other and synced once.
pub(super) type Write = Vec<Arc<Vec<u8>>>;

/// Takes one write at a time.
pub(super) struct Log {
    writes: SyncSender<Write>,
    done: Receiver<io::Result<()>>,
    is_busy: bool,
}

impl Log {
    /// `wake` is called when a write is done.
    pub(super) fn start(dir: &Path, bytes: u64, wake: impl Fn() + Send + 'static) -> anyhow::Result<Log> {
        let path = dir.join("LOG");
        let file = preallocate(&path, bytes).with_context(|| format!("{} cannot be made", path.display()))?;
        let (writes, to_write) = mpsc::sync_channel::<Write>(1);
        let (written, done) = mpsc::channel();
        std::thread::Builder::new().name("log".into()).spawn(move || {
            let mut place = Circle { bytes, next: 0 };
            while let Ok(write) = to_write.recv() {
                let result = place.write(&file, &write).and_then(|()| file.sync_data());
                if written.send(result).is_err() {
                    return;
                }
                wake();
            }
        })?;
        Ok(Log { writes, done, is_busy: false })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Only while the log is not busy.
    pub(super) fn write(&mut self, write: Write) -> anyhow::Result<()> {
        debug_assert!(!self.is_busy);
        self.is_busy = true;
        self.writes.try_send(write).map_err(|error| match error {
            TrySendError::Full(_) => anyhow::anyhow!("the log has a write already"),
            TrySendError::Disconnected(_) => anyhow::anyhow!("the log's thread has ended"),
        })
    }

    /// Whether the write is done that was under way.
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

/// Where in the file the next batch goes.
struct Circle {
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

    fn write(&mut self, file: &File, write: &Write) -> io::Result<()> {
        write.iter().try_for_each(|batch| file.write_all_at(batch, self.place(batch.len() as u64)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_each_other_and_go_round() {
        let mut circle = Circle { bytes: 3 * PAGE_BYTES, next: 0 };
        assert_eq!(circle.place(10).unwrap(), 0);
        assert_eq!(circle.place(PAGE_BYTES).unwrap(), PAGE_BYTES);
        assert_eq!(circle.place(PAGE_BYTES).unwrap(), 2 * PAGE_BYTES);
        assert_eq!(circle.place(PAGE_BYTES + 1).unwrap(), 0);
        assert_eq!(circle.place(PAGE_BYTES + 1).unwrap(), 0, "it does not fit behind the last");
        assert_eq!(circle.place(3 * PAGE_BYTES).unwrap(), 0);
        assert!(circle.place(3 * PAGE_BYTES + 1).is_err());
    }
}
