//! The manifest of a snapshot: its region, its index, and every file with its length and checksum.
//!
//! ```text
//! "SYSN" | version u8 = 1 | region u64 | applied index u64 | applied term u64
//! | descriptor length u32 | descriptor | number of files u32
//! | files x (bytes u64 | place of the sequence number u64 | XXH3-64 u64)
//! | XXH3-64 of everything before, u64
//! ```
//!
//! Integers are big-endian. File `n`, counted from 1, is called `{n:06}.sst`. The manifest contains
//! no names, so a manifest from another store cannot name a file outside of its directory. The last
//! file has the region's own rows.

use std::fs;
use std::path::Path;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::{LogIndex, RegionDescriptor, RegionId, Term};
use xxhash_rust::xxh3::xxh3_64;

use super::checksum::damaged;
use super::{at, SnapshotError};

/// The manifest's file name.
pub const MANIFEST: &str = "MANIFEST";

const MAGIC: &[u8; 4] = b"SYSN";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 4 + 1 + 8 + 8 + 8 + 4;
const FILE_ENTRY_BYTES: usize = 3 * 8;
const CHECKSUM_BYTES: usize = 8;

/// Maximum length of a manifest, in bytes. It is enough for a million files and the descriptor.
const MANIFEST_BYTES_MAX: u64 = 32 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub descriptor: RegionDescriptor,
    /// Index and term of the last log entry that the rows reflect.
    pub index: LogIndex,
    pub term: Term,
    pub files: Vec<SnapshotFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    pub bytes: u64,
    /// Offset at which RocksDB writes the file's sequence number when it ingests the file.
    pub sequence_at: u64,
    /// XXH3-64 of the file, with those eight bytes as zeros.
    pub checksum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a snapshot's manifest: {0}")]
pub struct ManifestError(&'static str);

impl Manifest {
    pub fn region(&self) -> RegionId {
        self.descriptor.id
    }

    /// Returns the total size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Returns the name of the file at position `at` of [`files`](Self::files).
    pub fn file_name(at: usize) -> String {
        format!("{:06}.sst", at + 1)
    }

    pub fn encode(&self) -> Bytes {
        let descriptor = self.descriptor.encode();
        let length = HEADER_BYTES + descriptor.len() + 4 + self.files.len() * FILE_ENTRY_BYTES;
        let mut out = BytesMut::with_capacity(length + CHECKSUM_BYTES);
        out.put_slice(MAGIC);
        out.put_u8(VERSION);
        out.put_u64(self.region());
        out.put_u64(self.index);
        out.put_u64(self.term);
        out.put_u32(u32::try_from(descriptor.len()).expect("a descriptor is small"));
        out.put_slice(&descriptor);
        out.put_u32(u32::try_from(self.files.len()).expect("files are large"));
        for file in &self.files {
            out.put_u64(file.bytes);
            out.put_u64(file.sequence_at);
            out.put_u64(file.checksum);
        }
        let checksum = xxh3_64(&out);
        out.put_u64(checksum);
        out.freeze()
    }

    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let bad = |what| Err(ManifestError(what));
        if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES {
            return bad("it is cut short");
        }
        let (mut bytes, mut checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if &bytes[..MAGIC.len()] != MAGIC {
            return bad("it begins with something else");
        }
        if xxh3_64(bytes) != checksum.get_u64() {
            return bad("its checksum is wrong");
        }
        bytes.advance(MAGIC.len());
        if bytes.get_u8() != VERSION {
            return bad("its version is unknown");
        }
        let (region, index, term) = (bytes.get_u64(), bytes.get_u64(), bytes.get_u64());
        let length = bytes.get_u32() as usize;
        if bytes.len() < length {
            return bad("its descriptor is cut short");
        }
        let (descriptor, mut bytes) = bytes.split_at(length);
        let descriptor = match RegionDescriptor::decode(descriptor) {
            Ok(descriptor) if descriptor.id == region => descriptor,
            Ok(_) => return bad("its descriptor is of another region"),
            Err(_) => return bad("its descriptor cannot be read"),
        };
        if bytes.len() < 4 {
            return bad("it is cut short");
        }
        let count = bytes.get_u32() as usize;
        if Some(bytes.len()) != count.checked_mul(FILE_ENTRY_BYTES) {
            return bad("its length is not that of its files");
        }
        let mut files = Vec::new();
        while bytes.has_remaining() {
            let file = SnapshotFile {
                bytes: bytes.get_u64(),
                sequence_at: bytes.get_u64(),
                checksum: bytes.get_u64(),
            };
            files.push(file);
        }
        if files.is_empty() {
            return bad("it has no files");
        }
        Ok(Manifest { descriptor, index, term, files })
    }

    /// Reads the manifest of the snapshot in `dir`.
    pub fn read(dir: &Path) -> Result<Manifest, SnapshotError> {
        let path = dir.join(MANIFEST);
        if fs::metadata(&path).map_err(at(&path))?.len() > MANIFEST_BYTES_MAX {
            return Err(damaged(&path, "it is too long for a manifest"));
        }
        let bytes = atrest::read(&path).map_err(at(&path))?;
        Manifest::decode(&bytes).map_err(|error| damaged(&path, &error.to_string()))
    }

    /// Writes the manifest into `dir` and makes it and the directory's entries durable. After a
    /// crash the file is either complete or absent.
    pub fn write(&self, dir: &Path) -> Result<(), SnapshotError> {
        let path = dir.join(MANIFEST);
        atrest::write(&path, self.encode()).map_err(at(&path))
    }

    /// Reads every file of the snapshot in `dir` and compares it with its checksum.
    pub fn verify(&self, dir: &Path) -> Result<(), SnapshotError> {
        let mut files = self.files.iter().enumerate();
        files.try_for_each(|(number, file)| file.verify(&dir.join(Manifest::file_name(number))))
    }
}

#[cfg(test)]
mod tests {
    use types::SlotRange;

    use super::*;

    fn manifest() -> Manifest {
        let slots = Some(SlotRange { first: 3, last: 9 });
        let file = |n| SnapshotFile { bytes: n, sequence_at: n + 1, checksum: n + 2 };
        Manifest {
            descriptor: RegionDescriptor::founded(4, slots, &[0, 1, 2]),
            index: 77,
            term: 5,
            files: vec![file(1000), file(u64::MAX - 2)],
        }
    }

    #[test]
    fn a_manifest_survives_and_no_damage_goes_unnoticed() {
        let bytes = manifest().encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest()));
        for at in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..at]).is_err());
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            assert!(Manifest::decode(&flipped).is_err(), "byte {at}");
        }
        assert!(Manifest::decode(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn a_manifest_that_checks_out_but_says_nonsense_is_refused() {
        let sealed = |mut bytes: Vec<u8>| {
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            let checksum = xxh3_64(&bytes);
            [&bytes[..], &checksum.to_be_bytes()].concat()
        };
        let good = manifest().encode().to_vec();
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Manifest::decode(&sealed(bytes)).unwrap_err().0
        };
        assert_eq!(with(4, 9), "its version is unknown");
        assert_eq!(with(12, 5), "its descriptor is of another region");
        assert_eq!(with(29, 0xff), "its descriptor is cut short");
        let files_at = good.len() - CHECKSUM_BYTES - 2 * FILE_ENTRY_BYTES - 4;
        assert_eq!(with(files_at, 0xff), "its length is not that of its files");
        let none = Manifest { files: vec![], ..manifest() };
        assert_eq!(Manifest::decode(&none.encode()).unwrap_err().0, "it has no files");
    }

    #[test]
    fn it_is_read_from_where_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Manifest::read(dir.path()), Err(SnapshotError::Io { .. })));
        manifest().write(dir.path()).unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), manifest());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(dir.path().join(MANIFEST), b"SYSN and so on").unwrap();
        assert!(matches!(Manifest::read(dir.path()), Err(SnapshotError::Damaged { .. })));
        assert_eq!(Manifest::file_name(0), "000001.sst");
    }
}
