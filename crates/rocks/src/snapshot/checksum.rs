//! Checksums of SST files that stay valid after the files are ingested.
//!
//! When RocksDB 7 ingests a file, it writes the file's sequence number into eight bytes of the
//! file's properties. The ingested file is the received one under another name (a hard link). So
//! after a crash during an ingest, the snapshot's files may differ in these bytes from the files
//! that were sent. The checksum treats the bytes as zero, which is their value in a new file.
//!
//! RocksDB does not ingest a file that already has a sequence number, so such a file is replaced
//! with a copy without one. The file itself is never written to, because RocksDB may use it, too.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::manifest::SnapshotFile;
use super::{at, SnapshotError};

/// The end of the property name `rocksdb.external_sst_file.global_seqno`, which the sequence number
/// follows. Properties are stored uncompressed, after all user data, and each name omits the prefix
/// that it shares with the name before it.
const SEQUENCE_PROPERTY: &[u8] = b"sst_file.global_seqno";
const SEQUENCE_BYTES: u64 = 8;

/// Number of bytes at the end of a file in which the property is searched. The properties are
/// within the last few KiB.
const TAIL_BYTES: u64 = 256 << 10;

const READ_BYTES: usize = 1 << 20;

/// Returns the description of a file that was just written.
pub(super) fn describe(path: &Path) -> Result<SnapshotFile, SnapshotError> {
    let mut file = File::open(path).map_err(at(path))?;
    let bytes = file.metadata().map_err(at(path))?.len();
    let found = find_sequence(&mut file, bytes).map_err(at(path))?;
    let sequence_at = found.ok_or_else(|| damaged(path, "it has no place for a sequence number"))?;
    let checksum = masked(&mut file, bytes, sequence_at).map_err(at(path))?;
    Ok(SnapshotFile { bytes, sequence_at, checksum })
}

/// The checksum of a file whose bytes arrive in order.
pub struct Arriving {
    file: SnapshotFile,
    hash: Xxh3,
    offset: u64,
}

impl Arriving {
    pub fn new(file: &SnapshotFile) -> Arriving {
        Arriving { file: *file, hash: Xxh3::new(), offset: 0 }
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let end = self.offset.saturating_add(bytes.len() as u64);
        let masked = mask(self.file.sequence_at, self.offset, end);
        self.hash.update(&bytes[..masked.start]);
        self.hash.update(&[0; SEQUENCE_BYTES as usize][..masked.len()]);
        self.hash.update(&bytes[masked.end..]);
        self.offset = end;
    }

    /// Returns true if the bytes are those of the described file.
    pub fn is_whole(&self) -> bool {
        self.offset == self.file.bytes && self.hash.digest() == self.file.checksum
    }
}

/// Returns the part of the bytes from `offset` to `end` of a file that the checksum treats as zero,
/// counted from `offset`.
fn mask(sequence_at: u64, offset: u64, end: u64) -> Range<usize> {
    let from = sequence_at.clamp(offset, end);
    let to = sequence_at.saturating_add(SEQUENCE_BYTES).clamp(offset, end);
    (from - offset) as usize..(to - offset) as usize
}

impl SnapshotFile {
    pub(super) fn verify_length(&self, path: &Path) -> Result<(), SnapshotError> {
        match fs::metadata(path).map_err(at(path))?.len() {
            bytes if bytes == self.bytes => Ok(()),
            bytes => Err(damaged(path, &format!("{bytes} bytes, its manifest says {}", self.bytes))),
        }
    }

    /// Reads the file at `path` and compares it with this description.
    pub fn verify(&self, path: &Path) -> Result<(), SnapshotError> {
        self.verify_length(path)?;
        let mut file = File::open(path).map_err(at(path))?;
        if masked(&mut file, self.bytes, self.sequence_at).map_err(at(path))? != self.checksum {
            return Err(damaged(path, "its checksum is not that of its manifest"));
        }
        Ok(())
    }
}

/// Restores a verified file to its original content if an interrupted ingest has changed it.
pub(super) fn restore(file: &SnapshotFile, path: &Path) -> Result<(), SnapshotError> {
    let mut sequence = [0; SEQUENCE_BYTES as usize];
    let changed = File::open(path).map_err(at(path))?;
    changed.read_exact_at(&mut sequence, file.sequence_at).map_err(at(path))?;
    if sequence == [0; SEQUENCE_BYTES as usize] {
        return Ok(());
    }
    let copy = path.with_extension("restored");
    let restored = || {
        fs::copy(path, &copy)?;
        let restored = File::options().write(true).open(&copy)?;
        restored.write_all_at(&[0; SEQUENCE_BYTES as usize], file.sequence_at)?;
        restored.sync_all()?;
        fs::rename(&copy, path)
    };
    restored().map_err(at(&copy))
}

pub(super) fn damaged(path: &Path, why: &str) -> SnapshotError {
    SnapshotError::Damaged { path: path.to_path_buf(), why: why.to_owned() }
}

fn find_sequence(file: &mut File, bytes: u64) -> io::Result<Option<u64>> {
    let start = bytes.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let found = tail.windows(SEQUENCE_PROPERTY.len()).rposition(|window| window == SEQUENCE_PROPERTY);
    let Some(value) = found.map(|at| at + SEQUENCE_PROPERTY.len()) else { return Ok(None) };
    let is_zero = tail.get(value..value + SEQUENCE_BYTES as usize) == Some(&[0; SEQUENCE_BYTES as usize][..]);
    Ok(is_zero.then_some(start + value as u64))
}

fn masked(file: &mut File, bytes: u64, sequence_at: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(bytes).unwrap_or(READ_BYTES))];
    let mut offset = 0;
    while offset < bytes {
        let read = match file.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = offset + read as u64;
        buffer[mask(sequence_at, offset, end)].fill(0);
        hash.update(&buffer[..read]);
        offset = end;
    }
    Ok(hash.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sequence_number_may_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        // The sequence number lies across two reads.
        let mut content: Vec<u8> = (0..READ_BYTES + 100).map(|at| at as u8).collect();
        let place = READ_BYTES - 3;
        content[place - SEQUENCE_PROPERTY.len()..place].copy_from_slice(SEQUENCE_PROPERTY);
        content[place..place + 8].fill(0);
        std::fs::write(&path, &content).unwrap();
        let file = describe(&path).unwrap();
        assert_eq!((file.bytes, file.sequence_at), (content.len() as u64, place as u64));
        for changed in [0, place - 1, place, place + 7, place + 8, content.len() - 1] {
            content[changed] ^= 1;
            std::fs::write(&path, &content).unwrap();
            assert_eq!(file.verify(&path).is_ok(), (place..place + 8).contains(&changed), "{changed}");
            content[changed] ^= 1;
        }
        for cut in [1, 7, place, place + 3, place + 8] {
            let is_whole = |content: &[u8]| {
                let mut arriving = Arriving::new(&file);
                content.chunks(cut).for_each(|bytes| arriving.add(bytes));
                arriving.is_whole()
            };
            assert!(is_whole(&content) && !is_whole(&content[1..]), "{cut}");
            content[place + 4] ^= 1;
            assert!(is_whole(&content), "{cut}");
            content[place + 8] ^= 1;
            assert!(!is_whole(&content), "{cut}");
            content[place + 4] ^= 1;
            content[place + 8] ^= 1;
        }
        content[place] = 9;
        std::fs::write(&path, &content).unwrap();
        let link = dir.path().join("link");
        std::fs::hard_link(&path, &link).unwrap();
        restore(&file, &path).unwrap();
        assert_eq!(std::fs::read(&link).unwrap(), content);
        content[place] = 0;
        assert_eq!(std::fs::read(&path).unwrap(), content);
        std::fs::write(&path, &content[1..]).unwrap();
        assert!(matches!(file.verify(&path), Err(SnapshotError::Damaged { .. })));
        assert!(matches!(describe(&dir.path().join("none")), Err(SnapshotError::Io { .. })));
    }

    #[test]
    fn a_file_without_a_place_or_with_a_number_in_it_is_not_described() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for content in [&b""[..], SEQUENCE_PROPERTY, &[SEQUENCE_PROPERTY, &[0, 0, 0, 0, 0, 0, 0, 1]].concat()]
        {
            std::fs::write(&path, content).unwrap();
            assert!(matches!(describe(&path), Err(SnapshotError::Damaged { .. })));
        }
    }
}
