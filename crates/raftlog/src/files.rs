//! The files of the log: [`wal`]'s trait `Disk` by system calls.
//!
//! ```text
//! LOG                  the log's secret; the last file created for a new log
//! SYNCED, FIRST        the marks
//! 00000000.segment     a segment, zeros where it was never written
//! 00000000.new         a segment that is being made
//! LOCK                 locked while the log is open
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrest::segment::{Cipher, SECTOR_BYTES};
use parking_lot::RwLock;
use wal::layout::Secret;
use wal::mark::Mark;
use wal::{Disk, DiskError, LogError, MarkFile, SegmentId};
use xxhash_rust::xxh3::xxh3_64;

const IDENTITY: &str = "LOG";
const LOCK: &str = "LOCK";
const SEGMENT: &str = "segment";
const UNFINISHED: &str = "new";
const MAGIC: u64 = 0x5374_6C79_4C6F_6731;
/// Offsets of the two copies of the identity, each in its own sector.
const COPY_OFFSETS: [usize; 2] = [0, 512];
const COPY_LEN: usize = 24;
const ZEROS: usize = 1 << 20;
/// Maximum length in bytes of a segment that a start reads. A block's length field has four bytes,
/// and one block may fill a segment.
const SEGMENT_BYTES_MAX: u64 = 8 << 30;

/// Returns true if a directory has a file of a log, which may be damaged.
pub fn is_log(dir: &Path) -> io::Result<bool> {
    let is_segment = |path: PathBuf| path.extension().is_some_and(|extension| extension == SEGMENT);
    let mut files = dir.read_dir()?.filter_map(Result::ok);
    Ok(dir.join(IDENTITY).exists() || files.any(|file| is_segment(file.path())))
}

/// The access to the files of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
}

#[derive(Clone)]
pub(crate) struct Files(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    /// The keys, if the directory is encrypted.
    vault: Option<Arc<atrest::Vault>>,
    access: Access,
    segments: RwLock<BTreeMap<SegmentId, Arc<SegmentFile>>>,
    marks: BTreeMap<MarkFile, File>,
    sync_nanos: AtomicU64,
    /// Bytes written: blocks, marks, and the zeros of new segments.
    written: AtomicU64,
    /// The lock file, held while the log is open for writing.
    _lock: Option<File>,
}

/// The file of a segment, encrypted or not. Offsets and lengths are those of the content.
struct SegmentFile {
    file: File,
    cipher: Option<Cipher>,
}

impl SegmentFile {
    fn shift(&self) -> u64 {
        self.cipher.as_ref().map_or(0, |_| Cipher::PREFIX_BYTES)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.shift()))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &self.cipher {
            None => self.file.write_all_at(bytes, offset),
            Some(cipher) => {
                let mut whole = bytes.to_vec();
                // A file that was cut off within a sector gets its rest back.
                whole.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
                self.file.write_all_at(&cipher.encrypt(offset, whole)?, self.shift() + offset)
            }
        }
    }

    fn read(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.cipher {
            None => self.file.read_exact_at(into, offset),
            Some(cipher) => cipher.read(offset, into, |whole, at| self.read_sectors(whole, at)),
        }
    }

    /// Reads whole sectors. A file that was cut off may end within the last sector. The rest of
    /// that sector then counts as zeros.
    fn read_sectors(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let at = self.shift() + offset;
        let there = (self.file.metadata()?.len().saturating_sub(at)).min(into.len() as u64) as usize;
        if into.len() - there >= SECTOR_BYTES {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        into[there..].fill(0);
        self.file.read_exact_at(&mut into[..there], at)
    }
}

impl Files {
    /// Opens the files of a log. With write access, creates a new log where there is none.
    pub(crate) fn open(dir: &Path, access: Access) -> Result<(Files, Secret), LogError> {
        let opened = open(dir, access);
        opened.map_err(|error| match error.kind() {
            _ if is_no_space(&error) => LogError::NoSpace(error.to_string()),
            ErrorKind::InvalidData => LogError::Corrupt(error.to_string()),
            ErrorKind::WouldBlock => LogError::Options(format!("{} is open already", dir.display())),
            _ => LogError::Device(format!("{}: {error}", dir.display())),
        })
    }

    /// Returns the bytes written to all files.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    fn note_written(&self, bytes: u64) {
        self.0.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the total time spent in syncs of segments.
    pub(crate) fn sync_time(&self) -> Duration {
        Duration::from_nanos(self.0.sync_nanos.load(Ordering::Relaxed))
    }

    fn segment(&self, segment: SegmentId) -> Result<Arc<SegmentFile>, DiskError> {
        let file = self.0.segments.read().get(&segment).cloned();
        file.ok_or_else(|| DiskError::Failed(format!("there is no segment {segment}")))
    }

    fn mark(&self, mark: MarkFile) -> &File {
        &self.0.marks[&mark]
    }
}

fn open(dir: &Path, access: Access) -> io::Result<(Files, Secret)> {
    if access == Access::Write {
        fs::create_dir_all(dir)?;
    }
    let lock = match access {
        Access::Write => Some(lock(dir)?),
        Access::Read => None,
    };
    let mut segments = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(SEGMENT) => {
                let segment = number_of(&path)?;
                let file = open_file(&path, access)?;
                let cipher = atrest::segment::open(&path, &file)
                    .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
                let file = SegmentFile { file, cipher };
                let len = file.len()?;
                if len > SEGMENT_BYTES_MAX {
                    return Err(damaged(format!(
                        "{} has {len} bytes, more than a segment can have",
                        path.display()
                    )));
                }
                segments.insert(segment, Arc::new(file));
            }
            Some(UNFINISHED) if access == Access::Write => fs::remove_file(&path)?,
            Some("raftlog" | "rewrite") => {
                return Err(damaged(format!("{} is of an older version of Steelyard", path.display())));
            }
            _ => {}
        }
    }
    let identity = dir.join(IDENTITY);
    if !identity.exists() {
        if !segments.is_empty() || access == Access::Read {
            return Err(damaged(format!("{} is missing", identity.display())));
        }
        found(dir)?;
    }
    let secret = read_identity(&identity)?;
    let mut marks = BTreeMap::new();
    for mark in [MarkFile::Synced, MarkFile::First] {
        let path = dir.join(name_of_mark(mark));
        let file = open_file(&path, access).map_err(|error| match error.kind() {
            ErrorKind::NotFound => damaged(format!("{} is missing", path.display())),
            _ => error,
        })?;
        // The mark is used from here on, so it must be synced: a killed process may have left it in
        // the page cache.
        if access == Access::Write {
            file.sync_data()?;
        }
        marks.insert(mark, file);
    }
    let segments = RwLock::new(segments);
    let (vault, dir) = (atrest::vault_of(dir), dir.to_owned());
    let (sync_nanos, written) = (AtomicU64::new(0), AtomicU64::new(0));
    Ok((
        Files(Arc::new(Inner { dir, vault, access, segments, marks, sync_nanos, written, _lock: lock })),
        secret,
    ))
}

fn damaged(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn lock(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(dir.join(LOCK))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

fn open_file(path: &Path, access: Access) -> io::Result<File> {
    OpenOptions::new().read(true).write(access == Access::Write).open(path)
}

/// Returns the name of a segment's file. Each number has exactly one name. The largest number is
/// not used, so that every number has a successor.
fn name_of(segment: SegmentId) -> String {
    format!("{segment:08}.{SEGMENT}")
}

fn number_of(path: &Path) -> io::Result<SegmentId> {
    let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
    let has_name = |number: &SegmentId| *number < SegmentId::MAX && path.ends_with(name_of(*number));
    number.filter(has_name).ok_or_else(|| damaged(format!("{} is not the name of a segment", path.display())))
}

/// An exceeded quota counts as a full disk: once an operator raises it, the store continues.
fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn name_of_mark(mark: MarkFile) -> &'static str {
    match mark {
        MarkFile::Synced => "SYNCED",
        MarkFile::First => "FIRST",
    }
}

/// Creates the files of a new log. The identity comes last, so that an interrupted creation leaves
/// no log.
fn found(dir: &Path) -> io::Result<()> {
    let mut secret = [0; 8];
    getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
    let secret = u64::from_be_bytes(secret);
    for mark in [MarkFile::Synced, MarkFile::First] {
        durable::write(&dir.join(name_of_mark(mark)), Mark::blank(Secret(secret)))?;
    }
    let mut bytes = vec![0; COPY_OFFSETS[1] + COPY_LEN];
    for offset in COPY_OFFSETS {
        bytes[offset..offset + COPY_LEN].copy_from_slice(&encode_identity(secret));
    }
    durable::write(&dir.join(IDENTITY), bytes)
}

fn encode_identity(secret: u64) -> [u8; COPY_LEN] {
    let mut out = [0; COPY_LEN];
    out[..8].copy_from_slice(&MAGIC.to_be_bytes());
    out[8..16].copy_from_slice(&secret.to_be_bytes());
    let checksum = xxh3_64(&out[..16]);
    out[16..].copy_from_slice(&checksum.to_be_bytes());
    out
}

fn read_identity(path: &Path) -> io::Result<Secret> {
    let bytes = fs::read(path)?;
    let copies = COPY_OFFSETS.iter().filter_map(|offset| bytes.get(*offset..offset + COPY_LEN));
    for copy in copies {
        let secret = u64::from_be_bytes(copy[8..16].try_into().expect("8 bytes"));
        if copy == encode_identity(secret) {
            return Ok(Secret(secret));
        }
    }
    Err(damaged(format!("both copies in {} are damaged", path.display())))
}

fn told(error: io::Error) -> DiskError {
    match is_no_space(&error) {
        true => DiskError::NoSpace(error.to_string()),
        false => DiskError::Failed(error.to_string()),
    }
}

/// Aborts the process after a failed sync. The kernel may have dropped the pages that it could not
/// write, and reports that only once. So a retry proves nothing, and the process must acknowledge
/// nothing more.
fn end(error: &io::Error) -> ! {
    tracing::error!(%error, "a sync of the log failed; the process ends");
    std::process::abort();
}

impl Disk for Files {
    fn create(&self, segment: SegmentId, len: u64) -> Result<(), DiskError> {
        let path = self.0.dir.join(name_of(segment));
        let unfinished = path.with_extension(UNFINISHED);
        let made = || {
            let mut file =
                OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&unfinished)?;
            let zeros = vec![0; ZEROS.min(len as usize)];
            let cipher = match atrest::segment::begin(&path)? {
                Some((cipher, prefix)) => {
                    file.write_all(&prefix)?;
                    Some(cipher)
                }
                None => None,
            };
            let mut done = 0;
            while done < len {
                let part = &zeros[..(len - done).min(zeros.len() as u64) as usize];
                match &cipher {
                    Some(cipher) => file.write_all(&cipher.encrypt(done, part.to_vec())?)?,
                    None => file.write_all(part)?,
                }
                done += part.len() as u64;
            }
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            durable::sync_dir(&self.0.dir)?;
            Ok(SegmentFile { file, cipher })
        };
        let file = made().inspect_err(|_| {
            // If the removal fails, the next start removes the file.
            let _ = fs::remove_file(&unfinished);
        });
        self.0.segments.write().insert(segment, Arc::new(file.map_err(told)?));
        self.note_written(len);
        Ok(())
    }

    fn delete(&self, segment: SegmentId) -> Result<(), DiskError> {
        self.0.segments.write().remove(&segment);
        fs::remove_file(self.0.dir.join(name_of(segment))).map_err(told)
    }

    fn write(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.segment(segment)?.write(bytes, offset).map_err(told)?;
        self.note_written(bytes.len() as u64);
        Ok(())
    }

    fn sync(&self, segment: SegmentId) -> Result<(), DiskError> {
        let file = self.segment(segment)?;
        let begun = Instant::now();
        file.file.sync_data().unwrap_or_else(|error| end(&error));
        self.0.sync_nanos.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.segment(segment)?.read(into, offset).map_err(told)
    }

    fn is_outdated(&self, segment: SegmentId) -> bool {
        let Some(vault) = &self.0.vault else { return false };
        let segments = self.0.segments.read();
        segments.get(&segment).is_some_and(|file| {
            file.cipher.as_ref().is_none_or(|cipher| cipher.key() != vault.keyring().active().0)
        })
    }

    fn segments(&self) -> Result<Vec<(SegmentId, u64)>, DiskError> {
        let segments = self.0.segments.read();
        let length = |(id, file): (&SegmentId, &Arc<SegmentFile>)| Ok((*id, file.len().map_err(told)?));
        segments.iter().map(length).collect()
    }

    fn write_mark(&self, mark: MarkFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.mark(mark).write_all_at(bytes, offset).map_err(told)?;
        self.note_written(bytes.len() as u64);
        Ok(())
    }

    fn sync_mark(&self, mark: MarkFile) -> Result<(), DiskError> {
        debug_assert_eq!(self.0.access, Access::Write);
        self.mark(mark).sync_data().unwrap_or_else(|error| end(&error));
        Ok(())
    }

    fn read_mark(&self, mark: MarkFile) -> Result<Vec<u8>, DiskError> {
        fs::read(self.0.dir.join(name_of_mark(mark))).map_err(told)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_full_device_and_a_full_quota_wait_for_room_and_nothing_else_does() {
        for full in [Errno::NOSPC, Errno::DQUOT] {
            assert!(matches!(told(full.into()), DiskError::NoSpace(_)), "{full}");
        }
        for failed in [Errno::IO, Errno::ROFS, Errno::FBIG] {
            assert!(matches!(told(failed.into()), DiskError::Failed(_)), "{failed}");
        }
    }

    #[test]
    fn a_segments_number_has_one_name() {
        for number in [0, 7, 99_999_999, 100_000_000, SegmentId::MAX - 1] {
            assert_eq!(number_of(&Path::new("log").join(name_of(number))).unwrap(), number);
        }
        let last = name_of(SegmentId::MAX);
        for name in ["7.segment", "+0000007.segment", "000000007.segment", "x.segment", ".segment", &last] {
            assert!(number_of(&Path::new("log").join(name)).is_err(), "{name}");
        }
    }
}
