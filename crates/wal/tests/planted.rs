//! Tests of the failpoints: the power-loss test detects each one, and passes on the same seed
//! without it.

#![cfg(feature = "planted")]

mod support;

use support::life::live;
use wal::planted::{choose, Bug, BUGS};

/// Number of seeds within which each failpoint must be detected.
const SEEDS: u64 = 3000;

fn first_found(bug: Option<Bug>, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    choose(bug);
    let found = seeds.into_iter().find_map(|seed| {
        let lived = std::panic::catch_unwind(|| live(seed, false));
        let why = lived.unwrap_or_else(|_| Err("a panic".to_owned())).err()?;
        Some((seed, why))
    });
    choose(None);
    found
}

#[test]
fn every_planted_bug_is_found_and_its_seed_is_clean_without_it() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in BUGS {
        match first_found(Some(bug), 0..SEEDS) {
            Some((seed, why)) => {
                println!("{bug:?}: {}", why.lines().next().unwrap_or_default());
                assert_eq!(
                    first_found(None, seed..seed + 1),
                    None,
                    "{bug:?}: seed {seed} is broken without it"
                );
            }
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "not found within {SEEDS} seeds");
}
