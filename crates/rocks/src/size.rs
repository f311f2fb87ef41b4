//! How many bytes of SST files a range of rows takes, from the files' bounds.

use bytes::Bytes;
use rocksdb::LiveFile;

/// Files that lie half in the range count by the part of their key space that does.
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

/// The same when `ranges` hold all rows of any weight: each file counts in full, shared out by how much of its
/// key space lies in each range. Rows between the ranges, of which there are next to none, and the few before
/// and after all of them, would otherwise take the larger part of a file that spans them.
pub(crate) fn shares(files: &[LiveFile], ranges: &[(Bytes, Bytes)]) -> Vec<u64> {
    let bounds = files
        .iter()
        .filter_map(|file| Some((file.start_key.as_deref()?, file.end_key.as_deref()?, file.size as u64)));
    shares_of(bounds, ranges)
}

fn shares_of<'a>(
    files: impl Iterator<Item = (&'a [u8], &'a [u8], u64)>,
    ranges: &[(Bytes, Bytes)],
) -> Vec<u64> {
    let mut sizes = vec![0u64; ranges.len()];
    let begin = ranges.iter().map(|(from, _)| &from[..]).min().unwrap_or(&[]);
    let end = ranges.iter().map(|(_, to)| &to[..]).max().unwrap_or(&[]);
    for (first, last, bytes) in files {
        let (first, last) = (first.max(begin), last.min(end));
        if last < first {
            continue;
        }
        let parts: Vec<f64> = ranges.iter().map(|(from, to)| overlap(first, last, from, to)).collect();
        let all: f64 = parts.iter().sum();
        if all > 0.0 {
            sizes.iter_mut().zip(&parts).for_each(|(size, part)| *size += (bytes as f64 * part / all) as u64);
        }
    }
    sizes
}

/// The part of `first..=last` that lies in `from..to`, taking keys for evenly spread.
fn overlap(first: &[u8], last: &[u8], from: &[u8], to: &[u8]) -> f64 {
    if last < from || to <= first {
        return 0.0;
    }
    if from <= first && last < to {
        return 1.0;
    }
    let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let (low, high) = (position(first, same), position(last, same));
    // A bound outside of the file need not share its keys' prefix.
    let begin = if from <= first { low } else { position(from, same) };
    let end = if last < to { high } else { position(to, same) };
    match high - low {
        0 => 1.0,
        span => end.saturating_sub(begin) as f64 / span as f64,
    }
}

/// The eight bytes after a prefix, as a number.
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

    /// One file from the rows before the data to those after it; half of the slots between are elsewhere.
    #[test]
    fn a_file_that_spans_everything_is_shared_out_in_full() {
        let range = |from: u8, to: u8| {
            (Bytes::copy_from_slice(&[b'd', from, 0]), Bytes::copy_from_slice(&[b'd', to, 0]))
        };
        let ranges = [range(0x00, 0x10), range(0x20, 0x30), range(0x38, 0x40)];
        let spans: (&[u8], &[u8], u64) = (b"a", b"z", 5000);
        let within: (&[u8], &[u8], u64) = (b"d\x21\x00", b"d\x22\x00", 70);
        let outside: (&[u8], &[u8], u64) = (b"e", b"z", 900);
        assert_eq!(shares_of([spans, within, outside].into_iter(), &ranges), [2000, 2070, 1000]);
        assert_eq!(shares_of([spans].into_iter(), &[]), Vec::<u64>::new());
    }

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
