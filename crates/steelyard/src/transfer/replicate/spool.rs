//! The stream of commands between its arrival and its execution, in temporary files.
//!
//! The files have no names, so nothing is left of them after a crash. A file is dropped once all of
//! it was read. The spool also remembers when each part arrived.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Context;
use tokio::sync::watch;

/// Bytes after which a new file begins.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Minimum time between two records of arrival times, in milliseconds.
const ARRIVAL_EVERY_MS: u64 = 100;

struct Segment {
    /// The offset of its first byte.
    start: u64,
    len: u64,
    file: Arc<File>,
}

#[derive(Default)]
struct Inner {
    segments: VecDeque<Segment>,
    /// Offsets, and the times at which the bytes from there on arrived, in Unix milliseconds.
    arrivals: VecDeque<(u64, u64)>,
}

pub struct Spool {
    dir: PathBuf,
    inner: Mutex<Inner>,
    /// The offset after the last byte that has arrived.
    end: watch::Sender<u64>,
}

/// Makes a file without a name in a directory.
pub fn temporary_file(dir: &Path) -> anyhow::Result<File> {
    tempfile::tempfile_in(dir).with_context(|| format!("a temporary file in {}", dir.display()))
}

impl Spool {
    pub fn new(dir: &Path) -> Spool {
        Spool { dir: dir.to_owned(), inner: Mutex::default(), end: watch::Sender::new(0) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under this lock")
    }

    /// Tells the offset of the first byte that will be appended.
    pub fn begin(&self, offset: u64) {
        self.end.send_replace(offset);
    }

    pub fn end(&self) -> u64 {
        *self.end.borrow()
    }

    /// Returns a receiver that learns of every new end.
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    pub fn append(&self, mut bytes: &[u8], now_ms: u64) -> anyhow::Result<()> {
        let mut end = self.end();
        {
            let mut inner = self.inner();
            if inner.arrivals.back().is_none_or(|(_, at)| at.saturating_add(ARRIVAL_EVERY_MS) <= now_ms) {
                inner.arrivals.push_back((end, now_ms));
            }
            while !bytes.is_empty() {
                if inner.segments.back().is_none_or(|segment| segment.len >= SEGMENT_BYTES) {
                    let file = Arc::new(temporary_file(&self.dir)?);
                    inner.segments.push_back(Segment { start: end, len: 0, file });
                }
                let segment = inner.segments.back_mut().expect("it was just made");
                let room = usize::try_from(SEGMENT_BYTES - segment.len).unwrap_or(usize::MAX);
                let (part, rest) = bytes.split_at(bytes.len().min(room));
                segment.file.write_all_at(part, segment.len).with_context(|| {
                    format!("the received commands cannot be kept in {}", self.dir.display())
                })?;
                segment.len += part.len() as u64;
                end += part.len() as u64;
                bytes = rest;
                // A part that follows may fail, and is then appended again.
                self.end.send_replace(end);
            }
        }
        Ok(())
    }

    /// Reads bytes from an offset on. Returns 0 if none has arrived.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> anyhow::Result<usize> {
        let (file, at, len) = {
            let inner = self.inner();
            let after = inner.segments.partition_point(|segment| segment.start <= offset);
            let Some(segment) = after.checked_sub(1).and_then(|at| inner.segments.get(at)) else {
                return Ok(0);
            };
            let at = offset - segment.start;
            let left = usize::try_from(segment.len.saturating_sub(at)).unwrap_or(usize::MAX);
            (segment.file.clone(), at, left.min(buffer.len()))
        };
        file.read_exact_at(&mut buffer[..len], at).context("the received commands")?;
        Ok(len)
    }

    /// Drops what precedes an offset.
    pub fn release(&self, offset: u64) {
        let mut inner = self.inner();
        while inner.segments.front().is_some_and(|first| {
            first.len >= SEGMENT_BYTES && first.start.saturating_add(first.len) <= offset
        }) {
            inner.segments.pop_front();
        }
        while inner.arrivals.get(1).is_some_and(|(start, _)| *start <= offset) {
            inner.arrivals.pop_front();
        }
    }

    /// Returns the time at which the byte at an offset arrived, in Unix milliseconds.
    pub fn arrival_ms(&self, offset: u64) -> Option<u64> {
        let inner = self.inner();
        let after = inner.arrivals.partition_point(|(start, _)| *start <= offset);
        inner.arrivals.get(after.checked_sub(1)?).map(|(_, at)| *at)
    }

    /// Returns the bytes of the files.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.inner().segments.iter().map(|segment| segment.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_where_they_were_written_and_released_files_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path());
        spool.begin(1000);
        let part: Vec<u8> = (0..1 << 20).map(|number| (number % 251) as u8).collect();
        let parts = SEGMENT_BYTES / part.len() as u64 + 2;
        for number in 0..parts {
            spool.append(&part, 1000 * number).unwrap();
        }
        assert_eq!(spool.end(), 1000 + parts * part.len() as u64);
        let mut buffer = vec![0; part.len()];
        // The read ends with the file.
        let at = 1000 + SEGMENT_BYTES - 10;
        assert_eq!(spool.read(at, &mut buffer).unwrap(), 10);
        assert_eq!(buffer[..10], part[part.len() - 10..]);
        assert_eq!(spool.read(at + 10, &mut buffer).unwrap(), part.len());
        assert_eq!(buffer, part);
        assert_eq!(spool.read(spool.end(), &mut buffer).unwrap(), 0);
        assert_eq!(spool.arrival_ms(1000), Some(0));
        assert_eq!(spool.arrival_ms(1000 + part.len() as u64), Some(1000));
        assert_eq!(spool.arrival_ms(999), None);
        spool.release(1000 + SEGMENT_BYTES);
        assert_eq!(spool.bytes(), 2 * part.len() as u64);
        assert_eq!(spool.read(at + 10, &mut buffer).unwrap(), part.len());
        assert_eq!(spool.arrival_ms(at + 10), Some(64_000));
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "the files have no names");
    }
}
