//! The bodies of fuzz targets, which `fuzz/` calls.

use bytes::Bytes;
use storage::{MemoryKeyspace, StorageError, Txn};
use types::SlotRange;

use crate::order::Order;
use crate::{describe, entry, glob};

/// Maximum bytes of a pattern that is compared with the recursive definition, which takes long.
const COMPARED_BYTES_MAX: usize = 12;

/// Checks the matcher of glob patterns against their recursive definition. An input is the length
/// of the pattern, the pattern and the text.
pub fn glob(input: &[u8]) {
    let Some((&length, rest)) = input.split_first() else { return };
    let Some((pattern, text)) = rest.split_at_checked(usize::from(length)) else { return };
    let matches = glob::matches(pattern, text);
    if pattern.len() <= COMPARED_BYTES_MAX && text.len() <= COMPARED_BYTES_MAX && !text.is_empty() {
        assert_eq!(matches, matches_by_definition(pattern, text));
    }
}

/// Matches a star by trying every rest of the text.
fn matches_by_definition(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', pattern @ ..], _) => (0..=text.len()).any(|at| matches_by_definition(pattern, &text[at..])),
        ([], _) | (_, []) => false,
        (_, [first, rest @ ..]) => {
            glob::match_one(pattern, *first).is_some_and(|used| matches_by_definition(&pattern[used..], rest))
        }
    }
}

/// Executes a log entry of another store. It is executed, or it is damaged.
pub fn log_entry(input: &[u8]) {
    let payload = Bytes::copy_from_slice(input);
    let _ = Order::decode(&payload);
    for nth in 0..4 {
        describe::entry_item(&payload, nth);
    }
    let rows = MemoryKeyspace::default();
    let mut txn = Txn::begin(&rows, 1).expect("an empty region");
    match entry::apply(&payload, &mut txn, SlotRange::ALL) {
        Ok(_) | Err(StorageError::Corrupt(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_the_fuzz_targets_harm_nothing() {
        replay::seeds("glob", glob);
        replay::seeds("log_entry", log_entry);
    }
}
