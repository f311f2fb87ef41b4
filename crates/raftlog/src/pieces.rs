//! A batch of the worker in pieces that the engine can write.
//!
//! While the log waits for room, entries of all regions gather in one batch, and the engine takes no more than
//! 2 GiB at once and copies what it takes. A batch is therefore written in pieces, the last of which is synced.
//! If a crash leaves only the first of them, that is as if less had been asked for: nothing of a batch was
//! told to anyone before all of it is durable, regions do not depend on each other's writes, and a region's
//! own pieces are in order. Term and vote are in the first piece that holds something of their region, and a
//! commit index never lies beyond the entries that are written with it.

use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, RegionWrite, Restart};
use types::RegionId;

/// Part of what one region writes.
#[derive(Debug, PartialEq)]
pub(crate) struct Part<'a> {
    pub region: RegionId,
    /// In the region's first part only.
    pub restart: Option<&'a Restart>,
    pub entries: &'a [Entry],
    pub hard_state: Option<HardState>,
}

/// Cuts a batch into pieces of at most `bytes_max` of entries, or of one entry that is larger by itself. A batch
/// without writes is one piece without parts.
pub(crate) fn cut(batch: &LogBatch, bytes_max: usize) -> Vec<Vec<Part<'_>>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let mut room = bytes_max;
    for write in &batch.writes {
        let mut rest = &write.entries[..];
        loop {
            let (count, bytes) = fitting(rest, room);
            let is_rest = count == rest.len();
            if count == 0 && !is_rest && room < bytes_max {
                pieces.push(std::mem::take(&mut piece));
                room = bytes_max;
                continue;
            }
            // An entry that is larger than a piece is one by itself.
            let count = if is_rest { count } else { count.max(1) };
            let (entries, left) = rest.split_at(count);
            piece.push(part(write, entries, left.is_empty()));
            room = room.saturating_sub(bytes);
            rest = left;
            if rest.is_empty() {
                break;
            }
            pieces.push(std::mem::take(&mut piece));
            room = bytes_max;
        }
    }
    if !piece.is_empty() || pieces.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Returns how many of the entries fit, and their bytes.
fn fitting(entries: &[Entry], room: usize) -> (usize, usize) {
    let mut bytes = 0;
    for (count, entry) in entries.iter().enumerate() {
        let with_it = bytes + bytes_of(entry);
        if with_it > room {
            return (count, bytes);
        }
        bytes = with_it;
    }
    (entries.len(), bytes)
}

/// The bytes of an entry and a little more, for its fields.
fn bytes_of(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len() + 64
}

fn part<'a>(write: &'a RegionWrite, entries: &'a [Entry], is_last: bool) -> Part<'a> {
    let is_first = entries.as_ptr() == write.entries.as_ptr();
    let hard_state = write.hard_state.map(|state| match entries.last() {
        Some(last) if !is_last => HardState { commit: state.commit.min(last.index), ..state },
        _ => state,
    });
    Part { region: write.region, restart: write.restart.as_ref().filter(|_| is_first), entries, hard_state }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use replica::RestartCause;
    use types::RegionDescriptor;

    use super::*;

    const ENTRY: usize = 100;

    fn write(region: RegionId, count: u64, commit: u64) -> RegionWrite {
        let entry = |index| Entry { index, data: vec![0; ENTRY - 64].into(), ..Entry::default() };
        let state = HardState { term: 7, vote: Some(2), commit };
        RegionWrite {
            region,
            restart: None,
            entries: (1..=count).map(entry).collect(),
            hard_state: Some(state),
        }
    }

    fn batch(writes: Vec<RegionWrite>) -> LogBatch {
        LogBatch { number: 1, writes, must_sync: true }
    }

    /// Region, first and last entry, commit index of each part.
    fn shape(pieces: &[Vec<Part<'_>>]) -> Vec<Vec<(RegionId, u64, u64, u64)>> {
        let of_part = |part: &Part<'_>| {
            let index = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.index);
            let commit = part.hard_state.map_or(0, |state| state.commit);
            (part.region, index(part.entries.first()), index(part.entries.last()), commit)
        };
        pieces.iter().map(|piece| piece.iter().map(of_part).collect()).collect()
    }

    #[test]
    fn a_batch_that_fits_is_one_piece() {
        let batch = batch(vec![write(1, 2, 1), write(2, 0, 9), write(3, 3, 3)]);
        let pieces = cut(&batch, 5 * ENTRY);
        assert_eq!(shape(&pieces), [[(1, 1, 2, 1), (2, 0, 0, 9), (3, 1, 3, 3)]]);
        assert_eq!(cut(&self::batch(Vec::new()), 1), [[]]);
    }

    #[test]
    fn pieces_are_full_and_keep_the_order_of_entries() {
        let batch = batch(vec![write(1, 3, 3), write(2, 6, 5), write(3, 1, 0)]);
        let expected = vec![
            vec![(1, 1, 3, 3), (2, 1, 1, 1)],
            vec![(2, 2, 5, 5)],
            // The commit index rises with the entries, and is whole with the last of them.
            vec![(2, 6, 6, 5), (3, 1, 1, 0)],
        ];
        assert_eq!(shape(&cut(&batch, 4 * ENTRY)), expected);
    }

    #[test]
    fn an_entry_larger_than_a_piece_is_one() {
        let mut large = write(1, 3, 3);
        large.entries[1].data = Bytes::from(vec![0; 10 * ENTRY]);
        let batch = batch(vec![large, write(2, 1, 1)]);
        let expected = vec![vec![(1, 1, 1, 1)], vec![(1, 2, 2, 2)], vec![(1, 3, 3, 3), (2, 1, 1, 1)]];
        assert_eq!(shape(&cut(&batch, 2 * ENTRY)), expected);
    }

    #[test]
    fn a_log_begins_anew_with_its_first_part_only() {
        let mut begun = write(1, 3, 3);
        let descriptor = RegionDescriptor::founded(1, None, &[0]);
        begun.restart = Some(Restart { index: 0, term: 0, descriptor, cause: RestartCause::Snapshot });
        let batch = batch(vec![begun]);
        let restarts = cut(&batch, ENTRY).iter().map(|piece| piece[0].restart.is_some()).collect::<Vec<_>>();
        assert_eq!(restarts, [true, false, false]);
    }
}
