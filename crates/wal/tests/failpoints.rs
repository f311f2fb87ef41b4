//! Tests of the failpoints: the power-loss test detects each one, and passes on the same seed
//! without it.

#![cfg(feature = "failpoints")]

mod support;

use support::life::live;
use wal::failpoints::Failpoint;

/// Number of seeds within which each failpoint must be detected.
const SEEDS: u64 = 3000;

/// A seed that detects each failpoint at present, with which the search begins. A change of the log
/// or of the test's workload moves them: then the test takes minutes, and its output has the new
/// ones.
const KNOWN: [(&str, u64); 11] = [
    ("AcknowledgeBeforeSync", 0),
    ("CarryNotSynced", 0),
    ("CommitBeforeEntries", 5),
    ("CorrectionNotWritten", 2532),
    ("MarkNotSynced", 0),
    ("NotCarried", 0),
    ("OlderSegmentNotSynced", 0),
    ("StaleBlockFollowed", 2478),
    ("StartNotSynced", 9),
    ("TornBlockTaken", 1),
    ("TruncationsNotCarried", 0),
];

fn first_found(failpoint: Option<Failpoint>, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    Failpoint::enable(failpoint);
    let found = seeds.into_iter().find_map(|seed| {
        let lived = std::panic::catch_unwind(|| live(seed, false));
        let why = lived.unwrap_or_else(|_| Err("a panic".to_owned())).err()?;
        Some((seed, why))
    });
    Failpoint::enable(None);
    found
}

#[test]
fn every_failpoint_is_detected_and_its_seed_is_clean_without_it() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for &failpoint in Failpoint::ALL {
        let name = format!("{failpoint:?}");
        let from = KNOWN.iter().find(|(known, _)| name == *known).map_or(0, |(_, from)| *from);
        match first_found(Some(failpoint), from..from + SEEDS) {
            Some((seed, why)) => {
                println!("{name}: seed {seed}, {}", why.lines().next().unwrap_or_default());
                assert_eq!(
                    first_found(None, seed..seed + 1),
                    None,
                    "{failpoint:?}: seed {seed} is broken without it"
                );
            }
            None => missed.push(failpoint),
        }
    }
    assert_eq!(missed, [], "not found within {SEEDS} seeds");
}
