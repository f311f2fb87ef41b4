//! A disk of the log whose segments begin empty and grow with each block. Every sync is an `fsync`,
//! which also commits the file's new length. Only the measurement uses it: the store's own log
//! overwrites preallocated segments.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wal::layout::Secret;
use wal::mark::Mark;
use wal::{Disk, DiskError, MarkFile, SegmentId};

pub const SECRET: Secret = Secret(0x5061_7853_746f_7265);

#[derive(Clone)]
pub struct Growing(Arc<Shared>);

struct Shared {
    dir: PathBuf,
    segments: Mutex<BTreeMap<SegmentId, Arc<File>>>,
    marks: [File; 2],
    sync_nanos: AtomicU64,
}

fn told(error: std::io::Error) -> DiskError {
    DiskError::Failed(error.to_string())
}

impl Growing {
    /// Makes an empty disk in a new directory.
    pub fn new(dir: &Path) -> std::io::Result<Growing> {
        let mark = |name: &str| -> std::io::Result<File> {
            let path = dir.join(name);
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            file.write_all_at(&Mark::blank(SECRET), 0)?;
            file.sync_all()?;
            Ok(file)
        };
        let marks = [mark("SYNCED")?, mark("FIRST")?];
        Ok(Growing(Arc::new(Shared {
            dir: dir.to_owned(),
            segments: Mutex::default(),
            marks,
            sync_nanos: AtomicU64::new(0),
        })))
    }

    /// Returns the time spent in syncs so far.
    pub fn sync_time(&self) -> Duration {
        Duration::from_nanos(self.0.sync_nanos.load(Ordering::Relaxed))
    }

    fn segments(&self) -> MutexGuard<'_, BTreeMap<SegmentId, Arc<File>>> {
        self.0.segments.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn segment(&self, segment: SegmentId) -> Result<Arc<File>, DiskError> {
        let known = self.segments().get(&segment).cloned();
        known.ok_or_else(|| DiskError::Failed(format!("there is no segment {segment}")))
    }

    fn path(&self, segment: SegmentId) -> PathBuf {
        self.0.dir.join(format!("{segment}.log"))
    }

    fn mark(&self, mark: MarkFile) -> &File {
        match mark {
            MarkFile::Synced => &self.0.marks[0],
            MarkFile::First => &self.0.marks[1],
        }
    }
}

impl Disk for Growing {
    /// Makes an empty file, whatever length the log will use of it.
    fn create(&self, segment: SegmentId, _len: u64) -> Result<(), DiskError> {
        let path = self.path(segment);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).map_err(told)?;
        file.sync_all().map_err(told)?;
        durable::sync_dir(&self.0.dir).map_err(told)?;
        self.segments().insert(segment, Arc::new(file));
        Ok(())
    }

    fn delete(&self, segment: SegmentId) -> Result<(), DiskError> {
        self.segments().remove(&segment);
        std::fs::remove_file(self.path(segment)).map_err(told)
    }

    fn write(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.segment(segment)?.write_all_at(bytes, offset).map_err(told)
    }

    fn sync(&self, segment: SegmentId) -> Result<(), DiskError> {
        let file = self.segment(segment)?;
        let begun = Instant::now();
        file.sync_all().map_err(told)?;
        self.0.sync_nanos.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.segment(segment)?.read_exact_at(into, offset).map_err(told)
    }

    fn segments(&self) -> Result<Vec<(SegmentId, u64)>, DiskError> {
        let length = |(id, file): (&SegmentId, &Arc<File>)| Ok((*id, file.metadata().map_err(told)?.len()));
        Growing::segments(self).iter().map(length).collect()
    }

    fn write_mark(&self, file: MarkFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.mark(file).write_all_at(bytes, offset).map_err(told)
    }

    fn sync_mark(&self, file: MarkFile) -> Result<(), DiskError> {
        self.mark(file).sync_data().map_err(told)
    }

    fn read_mark(&self, file: MarkFile) -> Result<Vec<u8>, DiskError> {
        let name = if file == MarkFile::Synced { "SYNCED" } else { "FIRST" };
        std::fs::read(self.0.dir.join(name)).map_err(told)
    }
}
