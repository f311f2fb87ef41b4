//! Bugs planted in `replica`, `node` and `storage`: the simulator finds each, and finds nothing in the same seeds without them.

#![cfg(feature = "planted")]

use sim::invariants::Violation;
use sim::run::{run, Bug, Options};

/// A bug is found within so many seeds.
const SEEDS: u64 = 3000;

fn first_violation(bug: Option<Bug>, seeds: std::ops::Range<u64>) -> Option<(u64, Violation)> {
    seeds.into_iter().find_map(|seed| {
        let report = run(Options { bug, ..Options::of(seed) });
        Some((seed, report.violation?))
    })
}

#[test]
fn every_planted_bug_is_found_and_its_seed_is_clean_without_it() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let only = std::env::var("STEELYARD_BUG").ok();
    let replica = replica::planted::BUGS.into_iter().map(Bug::Replica);
    let storage = storage::planted::BUGS.into_iter().map(Bug::Storage);
    let bugs = replica.chain(node::planted::BUGS.into_iter().map(Bug::Node)).chain(storage);
    for bug in bugs.filter(|bug| only.as_ref().is_none_or(|only| format!("{bug:?}").contains(only.as_str())))
    {
        match first_violation(Some(bug), 0..SEEDS) {
            Some((seed, violation)) => {
                println!("{bug:?}: seed {seed}, {}: {}", violation.invariant, violation.what);
                let clean = first_violation(None, seed..seed + 1);
                assert_eq!(clean, None, "{bug:?}: seed {seed} is broken without it");
            }
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "not found within {SEEDS} seeds");
}
