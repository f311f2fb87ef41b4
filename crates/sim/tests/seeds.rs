//! Seeds that every change must pass.

use sim::run::{run, Options};
use sim::tally::Tally;

fn sum_of(seeds: std::ops::Range<u64>) -> Tally {
    let mut sum = Tally::default();
    for seed in seeds {
        let report = run(Options::of(seed));
        if let Some(violation) = report.violation {
            panic!(
                "seed {seed}: {} is broken after {} ms: {}\nagain with: steelyard-sim --seed {seed} --trace",
                violation.invariant, violation.at_ms, violation.what
            );
        }
        sum.add(&report.tally);
    }
    sum
}

#[test]
fn a_thousand_clusters_in_trouble_keep_every_promise() {
    let sum = sum_of(0..2200);
    println!("{sum}");
    // Every case must have happened often enough for the invariants to mean something.
    for (what, count) in sum.counts() {
        assert!(count >= 100, "{what}: {count}");
    }
    for (_, kind) in sim::faults::FAULTS {
        let count = sum.faults.get(kind).copied().unwrap_or(0);
        assert!(count >= 100, "{kind}: {count}");
    }
    assert!(sum.events / sum.seeds >= 500);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let digest = |seed| run(Options::of(seed)).digest;
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}
