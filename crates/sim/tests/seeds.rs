//! Seeds that every change must pass.

use std::sync::atomic::{AtomicU64, Ordering};

use sim::run::{run, Options};
use sim::tally::Tally;

fn sum_of(seeds: std::ops::Range<u64>) -> Tally {
    let next = AtomicU64::new(seeds.start);
    // The threads share the seeds. A run is a function of its seed, so the sum is the same.
    let search = || {
        let mut sum = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return sum;
            }
            let report = run(Options::of(seed));
            if let Some(violation) = report.violation {
                panic!(
                    "seed {seed}: {} is broken after {} ms: {}\nagain with: steelyard-sim --seed {seed} --trace",
                    violation.invariant, violation.at_ms, violation.what
                );
            }
            sum.add(&report.tally);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let searches: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        let mut sum = Tally::default();
        searches.into_iter().for_each(|search| sum.add(&search.join().expect("no seed is broken")));
        sum
    })
}

#[test]
fn a_thousand_clusters_in_trouble_keep_every_promise() {
    let sum = sum_of(0..2200);
    println!("{sum}");
    // Every case must have happened often enough for the invariants to be meaningful.
    for (what, count) in sum.counts() {
        let least = match what {
            // Usually a successor takes over before the leadership must be given up.
            _ if what.contains("leads given up") => 30,
            // A merge is rolled back only if it is overtaken between its seal and its binding.
            _ if what.contains("merges taken back") => 20,
            // Usually a removed peer is informed before its region has merged and been forgotten.
            _ if what.contains("that had merged away") => 3,
            _ => 100,
        };
        assert!(count >= least, "{what}: {count}");
    }
    for (fault, kind) in sim::faults::FAULTS {
        // At most one store of a run is lost, and only where another can replace it.
        let is_loss = matches!(fault, sim::faults::Fault::StoreLost | sim::faults::Fault::TailDamaged);
        let least = if is_loss { 50 } else { 100 };
        let count = sum.faults.get(kind).copied().unwrap_or(0);
        assert!(count >= least, "{kind}: {count}");
    }
    // A race takes many steps, and other faults disturb it.
    for kind in sim::split_race::STAGES.into_iter().chain([sim::absence::ABSENT, sim::forgetting::FORGOT]) {
        let count = sum.faults.get(kind).copied().unwrap_or(0);
        assert!(count >= 50, "{kind}: {count}");
    }
    for kind in sim::coordinator::FAULTS {
        let count = sum.faults.get(kind).copied().unwrap_or(0);
        assert!(count >= 50, "{kind}: {count}");
    }
    // Few coordinators are depended on.
    let silent = sum.faults.get(sim::silent_candidate::FIRST_SILENT).copied().unwrap_or(0);
    assert!(silent >= 10, "{silent}");
    let isolated = sum.faults.get(sim::chained::MIDDLE_ISOLATED).copied().unwrap_or(0);
    assert!(isolated >= 20, "{isolated}");
    assert!(sum.events / sum.seeds >= 500);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let digest = |seed| run(Options::of(seed)).digest;
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}
