//! Checksums of SST files that stay valid after the files are ingested.
//!
//! When RocksDB 7 ingests a file, it writes the file's sequence number into eight bytes of the
//! file's properties. The ingested file is the received one under another name (a hard link). So
//! after a crash during an ingest, the snapshot's files may differ in these bytes from the files
//! that were sent. The checksum treats the bytes as zero, which is their value in a new file.
//!
//! RocksDB does not ingest a file that already has a sequence number, so such a file is replaced
//! with a copy without one. The file itself is never written to, because RocksDB may use it, too.

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
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
const TAIL_BYTES: usize = 256 << 10;

const READ_BYTES: usize = 1 << 20;

/// Describes a new file from its bytes, which are added in order, so that it need not be read
/// again.
#[derive(Default)]
pub struct Description {
    /// In a new file the sequence number is zero, so nothing is masked.
    hash: Xxh3,
    bytes: u64,
    /// The last bytes of the file, at least [`TAIL_BYTES`] of them if there are as many.
    tail: Vec<u8>,
}

impl Description {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        let last = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        if self.tail.len() + last.len() > 2 * TAIL_BYTES {
            let kept = TAIL_BYTES.saturating_sub(last.len());
            self.tail.drain(..self.tail.len() - kept);
        }
        self.tail.extend_from_slice(last);
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the description of the whole file; `None` if it has no place for a sequence number,
    /// or already has one.
    pub fn finish(&self) -> Option<SnapshotFile> {
        let in_tail = find_sequence(&self.tail)?;
        let sequence_at = self.bytes - self.tail.len() as u64 + in_tail as u64;
        Some(SnapshotFile { bytes: self.bytes, sequence_at, checksum: self.hash.digest() })
    }
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
        match atrest::len(path).map_err(at(path))? {
            bytes if bytes == self.bytes => Ok(()),
            bytes => Err(damaged(path, &format!("{bytes} bytes, its manifest says {}", self.bytes))),
        }
    }

    /// Reads the file at `path` and compares it with this description.
    pub fn verify(&self, path: &Path) -> Result<(), SnapshotError> {
        self.verify_length(path)?;
        let mut file = atrest::File::open(path).map_err(at(path))?;
        if masked(&mut file, self.bytes, self.sequence_at).map_err(at(path))? != self.checksum {
            return Err(damaged(path, "its checksum is not that of its manifest"));
        }
        Ok(())
    }
}

/// Restores a verified file to its original content if an interrupted ingest has changed it.
pub(super) fn restore(file: &SnapshotFile, path: &Path) -> Result<(), SnapshotError> {
    let mut sequence = [0; SEQUENCE_BYTES as usize];
    let changed = atrest::File::open(path).map_err(at(path))?;
    changed.read_exact_at(&mut sequence, file.sequence_at).map_err(at(path))?;
    if sequence == [0; SEQUENCE_BYTES as usize] {
        return Ok(());
    }
    let copy = path.with_extension("restored");
    let restored = || {
        fs::copy(path, &copy)?;
        let restored = atrest::File::open_to_write(&copy)?;
        restored.write_all_at(&[0; SEQUENCE_BYTES as usize], file.sequence_at)?;
        restored.sync_all()?;
        fs::rename(&copy, path)
    };
    restored().map_err(at(&copy))
}

pub(super) fn damaged(path: &Path, why: &str) -> SnapshotError {
    SnapshotError::Damaged { path: path.to_path_buf(), why: why.to_owned() }
}

/// Returns the offset of the zero sequence number in the last bytes of a file.
fn find_sequence(tail: &[u8]) -> Option<usize> {
    let found = tail.windows(SEQUENCE_PROPERTY.len()).rposition(|window| window == SEQUENCE_PROPERTY)?;
    let value = found + SEQUENCE_PROPERTY.len();
    let is_zero = tail.get(value..value + SEQUENCE_BYTES as usize) == Some(&[0; SEQUENCE_BYTES as usize][..]);
    is_zero.then_some(value)
}

fn masked(file: &mut impl Read, bytes: u64, sequence_at: u64) -> io::Result<u64> {
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

    fn describe(content: &[u8], cut: usize) -> Option<SnapshotFile> {
        let mut description = Description::default();
        content.chunks(cut).for_each(|bytes| description.add(bytes));
        assert!(description.tail.len() <= 2 * TAIL_BYTES);
        description.finish()
    }

    #[test]
    fn a_description_is_that_of_the_whole_file_however_its_bytes_are_cut() {
        for length in [100, TAIL_BYTES - 1, TAIL_BYTES, 3 * TAIL_BYTES + 5] {
            let mut content: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let place = length - 20;
            content[place - SEQUENCE_PROPERTY.len()..place].copy_from_slice(SEQUENCE_PROPERTY);
            content[place..place + 8].fill(0);
            let checksum = xxhash_rust::xxh3::xxh3_64(&content);
            let expected = SnapshotFile { bytes: length as u64, sequence_at: place as u64, checksum };
            for cut in [1 << 10, 4099, TAIL_BYTES, TAIL_BYTES + 1, length] {
                assert_eq!(describe(&content, cut), Some(expected), "{length}, {cut}");
            }
        }
    }

    #[test]
    fn only_the_sequence_number_may_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        // The sequence number lies across two reads.
        let mut content: Vec<u8> = (0..READ_BYTES + 100).map(|at| at as u8).collect();
        let place = READ_BYTES - 3;
        content[place - SEQUENCE_PROPERTY.len()..place].copy_from_slice(SEQUENCE_PROPERTY);
        content[place..place + 8].fill(0);
        let file = describe(&content, READ_BYTES).unwrap();
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
    }

    #[test]
    fn a_file_without_a_place_or_with_a_number_in_it_is_not_described() {
        for content in [&b""[..], SEQUENCE_PROPERTY, &[SEQUENCE_PROPERTY, &[0, 0, 0, 0, 0, 0, 0, 1]].concat()]
        {
            assert_eq!(describe(content, 7), None);
        }
    }
}
