//! Estimate of the SST file bytes that a range of rows takes, from the files' bounds.

use rocksdb::LiveFile;

/// Returns the bytes of the files in `from..to`. A file that is only partly in the range counts by
/// that part of its key space.
pub(crate) fn of_range(files: &[LiveFile], from: &[u8], to: &[u8]) -> u64 {
    if from >= to {
        return 0;
    }
    files
        .iter()
        .filter_map(|file| Some((file.start_key.as_deref()?, file.end_key.as_deref()?, file.size)))
        .map(|(first, last, bytes)| (bytes as f64 * overlap(first, last, from, to)) as u64)
        .sum()
}

/// Returns the fraction of `first..=last` that lies in `from..to`, assuming evenly spread keys.
fn overlap(first: &[u8], last: &[u8], from: &[u8], to: &[u8]) -> f64 {
    if last < from || to <= first {
        return 0.0;
    }
    if from <= first && last < to {
        return 1.0;
    }
    let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let (low, high) = (position(first, same), position(last, same));
    // A bound outside of the file may not share the prefix of its keys.
    let begin = if from <= first { low } else { position(from, same) };
    let end = if last < to { high } else { position(to, same) };
    match high - low {
        0 => 1.0,
        span => end.saturating_sub(begin) as f64 / span as f64,
    }
}

/// Returns the eight bytes after a prefix of `skip` bytes as a number.
fn position(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; 8];
    for (byte, from) in bytes.iter_mut().zip(key.iter().skip(skip)) {
        *byte = *from;
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_by_the_part_that_overlaps() {
        let part = |from: &[u8], to: &[u8]| overlap(b"d\x00\x00", b"d\x40\x00", from, to);
        assert_eq!(part(b"a", b"z"), 1.0);
        assert_eq!(part(b"a", b"b"), 0.0);
        assert_eq!(part(b"e", b"z"), 0.0);
        assert_eq!(part(b"d\x10\x00", b"d\x20\x00"), 0.25);
        assert_eq!(part(b"a", b"d\x10\x00"), 0.25);
        assert_eq!(part(b"d\x30\x00", b"e"), 0.25);
    }
}
