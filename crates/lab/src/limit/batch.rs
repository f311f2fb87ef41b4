//! A batch: entries that go to the log and to the followers together. Numbers are little-endian.
//!
//! ```text
//! batch    length of the entries u64 | number u64 | committed u64 | xxh3 of the rest u64 | entries
//! entry    key length u32 | value length u32 | key | value
//! ```

use xxhash_rust::xxh3::Xxh3;

pub(super) const HEADER_BYTES: usize = 32;
const ENTRY_HEADER_BYTES: usize = 8;

/// A batch that is being filled.
pub(super) struct Batch {
    bytes: Vec<u8>,
    pub(super) entries: usize,
}

impl Batch {
    pub(super) fn new(capacity: usize) -> Batch {
        let mut bytes = Vec::with_capacity(capacity.max(HEADER_BYTES));
        bytes.resize(HEADER_BYTES, 0);
        Batch { bytes, entries: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends an entry. Keys and values are shorter than 4 GiB, because requests are.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a request is shorter").to_le_bytes();
        self.bytes.extend_from_slice(&length(key));
        self.bytes.extend_from_slice(&length(value));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries += 1;
    }

    /// Writes the header and returns the finished batch.
    pub(super) fn seal(mut self, number: u64, committed: u64) -> Vec<u8> {
        let length = (self.bytes.len() - HEADER_BYTES) as u64;
        for (at, field) in [length, number, committed].into_iter().enumerate() {
            self.bytes[8 * at..8 * at + 8].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = checksum(&self.bytes);
        self.bytes[24..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

fn checksum(batch: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&batch[..24]);
    hasher.update(&batch[HEADER_BYTES..]);
    hasher.digest()
}

/// The header of a finished batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The length of the batch in bytes, with its header.
    pub(super) bytes: usize,
    pub(super) number: u64,
    pub(super) committed: u64,
}

/// Finds the batch at the beginning of `bytes`. Returns `Ok(None)` if it is not complete yet.
///
/// # Errors
/// The length is impossible, or the checksum is wrong.
pub(super) fn find(bytes: &[u8]) -> anyhow::Result<Option<Found>> {
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let Some(length) = usize::try_from(field(0)).ok().and_then(|length| length.checked_add(HEADER_BYTES))
    else {
        anyhow::bail!("a batch has an impossible length")
    };
    let Some(batch) = bytes.get(..length) else { return Ok(None) };
    anyhow::ensure!(field(24) == checksum(batch), "a batch was damaged in transit");
    Ok(Some(Found { bytes: length, number: field(8), committed: field(16) }))
}

/// Returns the entries of a finished batch.
pub(super) fn entries(batch: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = &batch[HEADER_BYTES..];
    std::iter::from_fn(move || {
        let (header, behind) = rest.split_at_checked(ENTRY_HEADER_BYTES)?;
        let length = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes")) as usize;
        let (key, behind) = behind.split_at(length(0));
        let (value, behind) = behind.split_at(length(4));
        rest = behind;
        Some((key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_found_when_all_of_it_is_there_and_not_when_it_is_damaged() {
        let mut batch = Batch::new(0);
        batch.push(b"key", b"value");
        batch.push(b"", b"");
        assert_eq!(batch.entries, 2);
        let bytes = batch.seal(7, 6);
        for length in 0..bytes.len() {
            assert_eq!(find(&bytes[..length]).unwrap(), None, "{length}");
        }
        let longer = [&bytes[..], b"next"].concat();
        assert_eq!(find(&longer).unwrap(), Some(Found { bytes: bytes.len(), number: 7, committed: 6 }));
        let found: Vec<_> = entries(&bytes).collect();
        assert_eq!(found, [(&b"key"[..], &b"value"[..]), (&b""[..], &b""[..])]);
        for at in 8..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(find(&damaged).is_err(), "{at}");
        }
    }
}
