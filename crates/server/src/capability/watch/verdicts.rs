//! The rates of wrong verdicts, for a store on noisy devices whose true speed is known.
//!
//! With noise of n hundredths, times have a spread of n hundredths. Every 10 s there is a burst of
//! 300 ms that is five times slower, and every two minutes a neighbour takes 30% of the device for
//! 20 s. A run is ten minutes of a load on a healthy device. Then the device becomes slower by a
//! factor and the load continues.
//!
//! `cargo test --release --workspace --lib table_of_corrections -- --ignored --nocapture` prints
//! the tables of docs/CAPABILITY.md.

use types::Draw;

use super::simulated::{Load, Store};

const DEVICE: &str = "write=50MB/s,read=50MB/s,sync=2ms";
const HEALTHY_S: u64 = 600;
/// Seconds that suffice to learn the store's own past.
const TAUGHT_S: u64 = 240;

/// A load that changes by the second.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// The log is busy for a tenth of the time.
    Tenth,
    Half,
    Saturated,
    /// A tenth, beside compaction that takes 40% of the device.
    Compacting,
    /// Five seconds at full speed, then ten seconds idle.
    Bursts,
    /// A new load every half minute or so, with small or large writes, with or without compaction.
    Changing,
}

const STEADY: [Work; 5] = [Work::Tenth, Work::Half, Work::Saturated, Work::Compacting, Work::Bursts];

impl Work {
    fn at(self, second: u64, seed: u64) -> Load {
        let load = |batches| Load { batches, batch_bytes: 8 << 10, background_bytes: 0, burst: 1.0 };
        match self {
            Work::Tenth => load(45),
            Work::Half => load(230),
            Work::Saturated => load(2_000),
            Work::Compacting => Load { background_bytes: 20_000_000, ..load(45) },
            Work::Bursts => load(if second % 15 < 5 { 2_000 } else { 0 }),
            Work::Changing => {
                let mut draw = Draw::new(seed.wrapping_mul(1_000_003) + second / 37);
                let mut of = |choices: &[u64]| choices[draw.below(choices.len() as u64) as usize];
                Load {
                    batches: of(&[0, 5, 45, 200, 2_000]),
                    batch_bytes: of(&[1 << 10, 8 << 10, 64 << 10, 1 << 20]),
                    background_bytes: of(&[0, 0, 5_000_000, 20_000_000, 100_000_000]),
                    burst: of(&[1, 3, 10]) as f64 / 10.0,
                }
            }
        }
    }

    /// Returns true if the store is under load in that second.
    fn is_on(self, second: u64) -> bool {
        self != Work::Bursts || second % 15 < 5
    }
}

fn device(noise: f64) -> String {
    match noise {
        0.0 => DEVICE.to_owned(),
        noise => format!("{DEVICE},spread={noise},burst=10s:300ms:5,neighbour=120s:20s:30%"),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Verdict {
    /// True if a device that was healthy for ten minutes was corrected.
    is_corrected_falsely: bool,
    /// Seconds of load from the change to the correction; `None` if the change was not found.
    found_after_s: Option<u64>,
    /// Seconds from the device's recovery to the full capability.
    recovered_after_s: Option<u64>,
}

fn run(work: Work, noise: f64, healthy_s: u64, slower: f64, seed: u64) -> Verdict {
    let mut store = Store::with_noise(&device(noise), seed);
    for second in 0..healthy_s {
        store.second(work.at(second, seed), true);
    }
    let mut verdict = Verdict { is_corrected_falsely: !store.changes.is_empty(), ..Verdict::default() };
    if slower == 1.0 || verdict.is_corrected_falsely {
        return verdict;
    }
    store.slow(slower);
    let (mut second, mut loaded) = (healthy_s, 0);
    while loaded < 60 && store.watch.correction() == 1.0 {
        store.second(work.at(second, seed), true);
        loaded += u64::from(work.is_on(second));
        second += 1;
    }
    if store.watch.correction() == 1.0 {
        return verdict;
    }
    verdict.found_after_s = Some(loaded);
    for _ in 0..60 {
        store.second(work.at(second, seed), true);
        second += 1;
    }
    store.slow(1.0);
    for after in 1..=180 {
        store.second(work.at(second, seed), true);
        second += 1;
        if store.watch.correction() == 1.0 {
            verdict.recovered_after_s = Some(after);
            break;
        }
    }
    verdict
}

/// Returns the percentage of `seeds` runs for which `is_so` is true.
fn percent(seeds: u64, is_so: impl Fn(u64) -> bool) -> f64 {
    100.0 * (0..seeds).filter(|seed| is_so(*seed)).count() as f64 / seeds as f64
}

#[test]
fn noise_hardly_ever_corrects_a_healthy_device() {
    for work in STEADY {
        let wrong = percent(100, |seed| run(work, 0.5, HEALTHY_S, 1.0, seed).is_corrected_falsely);
        assert!(wrong <= 1.0, "{work:?}: {wrong}% of the runs");
    }
}

#[test]
fn another_load_is_not_taken_for_another_device() {
    for noise in [0.0, 0.5] {
        let wrong =
            percent(100, |seed| run(Work::Changing, noise, HEALTHY_S, 1.0, seed).is_corrected_falsely);
        assert!(wrong <= 1.0, "noise {noise}: {wrong}% of the runs");
    }
}

#[test]
fn a_device_half_as_fast_is_found_within_a_minute_of_load() {
    for work in STEADY {
        for noise in [0.0, 0.5] {
            let found = percent(60, |seed| run(work, noise, TAUGHT_S, 2.0, seed).found_after_s.is_some());
            assert!(found > 95.0, "{work:?}, noise {noise}: {found}%");
        }
    }
}

#[test]
fn a_device_a_tenth_as_fast_is_found_within_fifteen_seconds_of_load() {
    for work in STEADY {
        for noise in [0.0, 0.5] {
            let found = percent(60, |seed| {
                run(work, noise, TAUGHT_S, 10.0, seed).found_after_s.is_some_and(|s| s <= 15)
            });
            assert!(found > 99.0, "{work:?}, noise {noise}: {found}%");
        }
    }
}

#[test]
fn an_idle_store_is_never_corrected_whatever_its_device_does() {
    let few = Load { batches: 4, batch_bytes: 4 << 10, background_bytes: 100_000, burst: 1.0 };
    for seed in 0..20 {
        let mut store = Store::with_noise(&device(1.0), seed);
        for slower in [1.0, 2.0, 10.0] {
            store.slow(slower);
            store.seconds(HEALTHY_S, few, false);
        }
        assert!(store.changes.is_empty() && store.touches == 0, "{seed}: {:?}", store.changes);
    }
}

/// Slow syncs never become the usual ones, neither before the device is judged nor if it slows down
/// gradually.
#[test]
fn a_slow_device_never_becomes_the_usual_one() {
    for work in [Work::Tenth, Work::Half, Work::Compacting] {
        let mut store = Store::with_noise(&device(0.25), 3);
        let mut second = 0;
        let mut go = |store: &mut Store, seconds: u64| {
            for _ in 0..seconds {
                store.second(work.at(second, 3), true);
                second += 1;
            }
        };
        go(&mut store, HEALTHY_S);
        let mut slower = 1.0;
        while slower < 2.2 {
            store.slow(slower);
            go(&mut store, 120);
            slower *= 1.05;
        }
        assert!(store.watch.correction() < 0.75, "{work:?}: {:?}", store.changes);
    }
}

#[test]
fn a_slow_device_is_corrected_by_about_as_much_as_it_is_slower_and_stays_so() {
    for work in STEADY {
        for seed in 0..8 {
            let mut store = Store::with_noise(&device(0.25), seed);
            (0..TAUGHT_S).for_each(|second| store.second(work.at(second, seed), true));
            store.slow(2.0);
            (0..180).for_each(|second| store.second(work.at(second, seed), true));
            for second in 0..300 {
                store.second(work.at(second, seed), true);
                let correction = store.watch.correction();
                assert!((0.25..0.75).contains(&correction), "{work:?} {seed}: {:?}", store.changes);
            }
        }
    }
}

#[test]
fn a_cache_that_outlasts_the_load_is_the_device_and_one_that_fills_up_is_not() {
    const HYBRID: &str =
        "hybrid,write=10MB/s,sync=2ms,cache=256MB,cache-write=50MB/s,cache-sync=2ms,spread=25%";
    let load = |batches| Load { batches, batch_bytes: 128 << 10, background_bytes: 0, burst: 1.0 };
    let mut store = Store::with_noise(HYBRID, 1);
    for second in 0..900 {
        store.second(load(if second % 60 < 5 { 150 } else { 0 }), true);
    }
    assert!(store.changes.is_empty(), "{:?}", store.changes);
    // The cache accepts 20 MB/s and writes 10 MB/s to the device, so it is full within half a
    // minute.
    store.seconds(90, load(150), true);
    assert!(store.watch.correction() < 0.7, "{:?}", store.changes);
}

#[test]
#[ignore = "prints tables; asserts nothing"]
fn table_of_corrections() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    println!(
        "| load | noise | falsely | 1.5 | 2 | 5 | 10 within 60 s | 2: median s | 10 within 15 s | back |"
    );
    for work in STEADY.into_iter().chain([Work::Changing]) {
        for noise in [0.0, 0.25, 0.5, 1.0] {
            let all =
                |slower| (0..seeds).map(|seed| run(work, noise, HEALTHY_S, slower, seed)).collect::<Vec<_>>();
            let part = |count: usize| 100.0 * count as f64 / seeds as f64;
            let found = |verdicts: &[Verdict], within| {
                let is_found = |verdict: &&Verdict| verdict.found_after_s.is_some_and(|s| s <= within);
                part(verdicts.iter().filter(is_found).count())
            };
            let by = [1.5, 2.0, 5.0, 10.0].map(all);
            let wrong = part(by[0].iter().filter(|verdict| verdict.is_corrected_falsely).count());
            let middle = |mut values: Vec<u64>| {
                values.sort();
                values.get(values.len() / 2).copied().unwrap_or(0)
            };
            let after = middle(by[1].iter().filter_map(|verdict| verdict.found_after_s).collect());
            let back = middle(by[1].iter().filter_map(|verdict| verdict.recovered_after_s).collect());
            let tenfold = middle(by[3].iter().filter_map(|verdict| verdict.found_after_s).collect());
            println!(
                "| {work:?} | {noise} | {wrong:.1} | {:.0} | {:.0} | {:.0} | {:.0} | {after} | {tenfold} {:.0} | {back} |",
                found(&by[0], 60),
                found(&by[1], 60),
                found(&by[2], 60),
                found(&by[3], 60),
                found(&by[3], 15),
            );
        }
    }
}
