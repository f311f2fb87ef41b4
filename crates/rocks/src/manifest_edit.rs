//! Removal of files from RocksDB's manifest while RocksDB is closed.
//!
//! RocksDB has no call that drops an unreadable file. Its tool `ldb` does this with a record in the
//! manifest, and so does this module. The manifest is a log in blocks of 32 KiB. A record that does
//! not fit into the rest of its block continues in the next one:
//!
//! ```text
//! part: checksum u32 | length u16 | type u8 (1 whole, 2 first, 3 middle, 4 last) | bytes
//! record, for each file: 6 (deleted file) | level | number
//! ```
//!
//! The checksum is a masked CRC-32C of type and bytes. Integers of a part are little-endian, those
//! of a record unsigned LEB128. A block that has no room for the head of a part ends with zeros.

use std::io;
use std::path::Path;

const BLOCK_BYTES: u64 = 32 << 10;
const HEAD_BYTES: u64 = 7;
const DELETED_FILE: u64 = 6;

/// Removes these files, each a level and a number, from the newest manifest in `dir`. The change is
/// durable on return. RocksDB must be closed.
///
/// # Errors
/// Those of the file system, and [`io::ErrorKind::InvalidData`] if `dir` has no manifest.
pub(crate) fn delete_files(dir: &Path, files: &[(u64, u64)]) -> io::Result<()> {
    let current = atrest::read_rows(&dir.join("CURRENT"))?;
    let current = String::from_utf8_lossy(&current);
    let name = current.trim_end();
    if !name.starts_with("MANIFEST-") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "CURRENT names no manifest"));
    }
    let manifest = atrest::File::open_to_write(&dir.join(name))?;
    let mut record = Vec::new();
    for &(level, number) in files {
        [DELETED_FILE, level, number].into_iter().for_each(|integer| push_integer(&mut record, integer));
    }
    let end = manifest.len()?;
    manifest.write_all_at(&parts_of(&record, end), end)?;
    manifest.sync_all()
}

/// Returns the bytes that append a record to a log of `end` bytes.
fn parts_of(record: &[u8], end: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = record;
    loop {
        let left = BLOCK_BYTES - (end + out.len() as u64) % BLOCK_BYTES;
        if left < HEAD_BYTES {
            out.resize(out.len() + left as usize, 0);
            continue;
        }
        let (part, after) = rest.split_at(rest.len().min((left - HEAD_BYTES) as usize));
        let is_first = rest.len() == record.len();
        let kind = match (is_first, after.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };
        let typed = [&[kind], part].concat();
        out.extend(mask(crc32c(&typed)).to_le_bytes());
        out.extend((part.len() as u16).to_le_bytes());
        out.extend(typed);
        rest = after;
        if rest.is_empty() {
            return out;
        }
    }
}

fn push_integer(out: &mut Vec<u8>, mut integer: u64) {
    while integer >= 0x80 {
        out.push(integer as u8 | 0x80);
        integer >>= 7;
    }
    out.push(integer as u8);
}

fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0u32, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_crc_32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn integers_are_leb128() {
        let mut out = Vec::new();
        [6, 127, 128, 300].into_iter().for_each(|integer| push_integer(&mut out, integer));
        assert_eq!(out, [6, 127, 0x80, 1, 0xac, 2]);
    }

    #[test]
    fn a_record_goes_on_in_the_next_block() {
        let record = [7; 100];
        for left in 0..=120 {
            let out = parts_of(&record, 3 * BLOCK_BYTES - left);
            let mut at = 0;
            let mut read = Vec::new();
            while at < out.len() {
                let rest = (left as usize).checked_sub(at).filter(|rest| *rest > 0).unwrap_or(usize::MAX);
                if rest < HEAD_BYTES as usize {
                    assert_eq!(out[at..at + rest], vec![0; rest], "{left}");
                    at += rest;
                    continue;
                }
                let length = usize::from(u16::from_le_bytes([out[at + 4], out[at + 5]]));
                assert!(length + 7 <= rest, "{left}: a part ends in its block");
                read.extend_from_slice(&out[at + 7..at + 7 + length]);
                at += 7 + length;
            }
            assert_eq!(read, record, "{left}");
        }
    }
}
