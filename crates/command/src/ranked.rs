//! Ranges of ranks, and pops from the first of several keys, for lists and sorted sets.

use bytes::Bytes;
use storage::StorageError;

use crate::counted_tree::Direction;
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::{integer, positive_or};

/// Minimum number of removed elements for which the remaining ones may be written again instead.
const REWRITTEN_FROM: u64 = 1024;

/// Returns true if the elements that remain should be written again, and the others left to the
/// sweep: many are removed, and more than `ratio` for each one that remains.
pub(crate) fn is_rewritten(removed: u64, len: u64, ratio: u64) -> bool {
    removed >= REWRITTEN_FROM && len - removed < removed / ratio
}

/// Maximum number of elements that a command removes in a thread that must not take long.
const REMOVED_IN_HASTE: u64 = 4096;

/// Leaves the removal of very many elements to a thread that may take its time.
pub(crate) fn leave_if_long(exec: &Exec<'_, '_>, removed: u64) -> CommandResult<()> {
    match exec.txn.is_hasty() && removed > REMOVED_IN_HASTE {
        true => Err(StorageError::NotInRam.into()),
        false => Ok(()),
    }
}

/// Returns the first rank and the rank behind the last one, both at most `len`, of a range whose
/// negative bounds count from the end.
pub(crate) fn rank_interval(first: i64, last: i64, len: u64) -> (u64, u64) {
    let from_start = |rank: i64| match u64::try_from(rank) {
        Ok(rank) => Some(rank),
        Err(_) => len.checked_sub(rank.unsigned_abs()),
    };
    let first = from_start(first).unwrap_or(0).min(len);
    let behind = from_start(last).map_or(0, |last| last.saturating_add(1).min(len));
    (first, behind.max(first))
}

/// Maximum number of elements of a range that counts as few rows.
const FEW_ELEMENTS: i64 = 1024;

/// Returns true if a command with a range of ranks reads only a few elements, however many there
/// are. Bounds at different ends leave the number open.
pub(crate) fn is_short_range(args: &[Bytes]) -> bool {
    let [_, _, first, last, options @ ..] = args else { return false };
    let is_by_rank = options
        .iter()
        .all(|option| [&b"WITHSCORES"[..], b"REV"].iter().any(|word| option.eq_ignore_ascii_case(word)));
    match (integer(first), integer(last)) {
        (Ok(first), Ok(last)) => {
            let has_one_end = (first < 0) == (last < 0);
            is_by_rank && has_one_end && last.saturating_sub(first) < FEW_ELEMENTS
        }
        _ => false,
    }
}

/// The arguments of `ZMPOP` or `LMPOP`: the keys, the end, and the maximum number of elements.
pub(crate) type Popping<'a> = (&'a [Bytes], Direction, u64);

/// Parses the arguments of `ZMPOP` and `LMPOP`. `ends` are the words for the beginning and the end.
pub(crate) fn many_keys<'a>(args: &'a [Bytes], ends: (&[u8], &[u8])) -> CommandResult<Popping<'a>> {
    let count = positive_or(&args[1], "ERR numkeys should be greater than 0")?;
    let parts = usize::try_from(count).ok().and_then(|count| args[2..].split_at_checked(count));
    let Some((keys, [end, options @ ..])) = parts else { return fail(error_messages::SYNTAX) };
    let end = match end {
        end if end.eq_ignore_ascii_case(ends.0) => Direction::Forward,
        end if end.eq_ignore_ascii_case(ends.1) => Direction::Backward,
        _ => return fail(error_messages::SYNTAX),
    };
    let count = match options {
        [] => 1,
        [word, count] if word.eq_ignore_ascii_case(b"COUNT") => {
            positive_or(count, "ERR count should be greater than 0")?
        }
        [word, count, ..] if word.eq_ignore_ascii_case(b"COUNT") => {
            positive_or(count, "ERR count should be greater than 0")?;
            return fail(error_messages::SYNTAX);
        }
        _ => return fail(error_messages::SYNTAX),
    };
    Ok((keys, end, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_short_if_its_bounds_count_from_one_end() {
        let is_short = |line: &str| {
            is_short_range(
                &line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect::<Vec<_>>(),
            )
        };
        for line in ["LRANGE l 0 99", "LRANGE l -100 -1", "LRANGE l 5 2", "ZRANGE z 0 1023 REV withscores"] {
            assert!(is_short(line), "{line}");
        }
        for line in [
            "LRANGE l 0 -1",
            "LRANGE l 0 1024",
            "LRANGE l -9223372036854775808 9223372036854775807",
            "LRANGE l x 1",
            "ZRANGE z 0 5 BYSCORE",
            "ZRANGE z 0 5 REV BYSCORE LIMIT 0 2",
            "LRANGE l 0",
        ] {
            assert!(!is_short(line), "{line}");
        }
    }

    #[test]
    fn negative_ranks_count_from_the_end() {
        for (first, last, expected) in [
            (0, -1, (0, 5)),
            (0, 0, (0, 1)),
            (1, 2, (1, 3)),
            (-2, -1, (3, 5)),
            (-100, 100, (0, 5)),
            (3, 1, (3, 3)),
            (5, 9, (5, 5)),
            (0, -6, (0, 0)),
            (i64::MIN, i64::MAX, (0, 5)),
            (i64::MAX, i64::MIN, (5, 5)),
        ] {
            assert_eq!(rank_interval(first, last, 5), expected, "{first} {last}");
        }
    }
}
