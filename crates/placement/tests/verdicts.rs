//! Measures how often stores are classified wrongly: noisy probes of clusters with known true
//! speeds.
//!
//! With noise of n hundredths, a round of a probe is off by a factor whose logarithm is normal with
//! a deviation of ln(1 + n / 100). One round in ten is in a burst and takes three times as long.
//! The error that all rounds of a probe have in common has a sixth of that deviation. A cluster is
//! classified correctly under two conditions: no class has stores of both kinds, and there is only
//! one class if all stores are equal.
//!
//! `cargo test --release -p steelyard-placement --test verdicts -- --ignored --nocapture` prints
//! the table of docs/CAPABILITY.md.

use steelyard_placement::{estimate, rate, Capability, Spread, StoreView};
use types::Draw;

/// The number of rounds of a probe.
const ROUNDS: usize = 32;

struct Dice(Draw);

impl Dice {
    /// Returns a normally distributed number, by the Box–Muller transform.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.0.fraction(), self.0.fraction());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    fn probe(&mut self, truth: f64, noise: f64, rounds: &mut Vec<f64>) {
        let deviation = (1.0 + noise).ln();
        let common = self.normal() * deviation / 6.0;
        for _ in 0..ROUNDS {
            let burst = if noise > 0.0 && self.0.below(10) == 0 { 3.0 } else { 1.0 };
            rounds.push(truth / burst * (common + self.normal() * deviation).exp());
        }
    }
}

/// Returns, after each of `probes` probes, true if a cluster is classified correctly. In that
/// cluster every second store is faster by the factor `difference`.
fn judge(dice: &mut Dice, stores: usize, difference: f64, noise: f64, probes: usize) -> Vec<bool> {
    let truth = |store: usize| if store % 2 == 0 { 1e8 } else { 1e8 * difference };
    let mut rounds = vec![Vec::new(); stores];
    let mut views: Vec<StoreView> =
        (0..stores).map(|id| StoreView { id: id as u64, ..StoreView::default() }).collect();
    let mut right = Vec::new();
    for probe in 1..=probes {
        for (at, (view, rounds)) in views.iter_mut().zip(&mut rounds).enumerate() {
            dice.probe(truth(at), noise, rounds);
            let estimate = estimate(rounds, probe).unwrap();
            view.capability = Capability { kv_bytes_per_s: estimate.value, ops_per_s: 1.0 };
            view.spread = Spread { kv_bytes_per_s: estimate.spread, ..Spread::EXACT };
        }
        let ratings = rate(&views);
        for (view, rating) in views.iter_mut().zip(&ratings) {
            view.previous = rating.classes;
        }
        let class = |at: usize| ratings[at].classes.writes;
        let pairs = || (0..stores).flat_map(|one| (0..one).map(move |other| (one, other)));
        right.push(match difference {
            1.0 => pairs().all(|(one, other)| class(one) == class(other)),
            _ => pairs().all(|(one, other)| truth(one) == truth(other) || class(one) != class(other)),
        });
    }
    right
}

/// Returns the percentage of clusters that are classified wrongly after one probe and after two.
fn wrong(stores: usize, difference: f64, noise: f64, clusters: usize) -> [f64; 2] {
    let mut dice = Dice(Draw::new(7));
    let mut wrong = [0usize; 2];
    for _ in 0..clusters {
        for (wrong, right) in wrong.iter_mut().zip(judge(&mut dice, stores, difference, noise, 2)) {
            *wrong += usize::from(!right);
        }
    }
    wrong.map(|wrong| 100.0 * wrong as f64 / clusters as f64)
}

#[test]
fn equal_stores_are_hardly_ever_taken_for_unequal() {
    for stores in [2, 4, 6] {
        for noise in [0.0, 0.25, 0.5] {
            let wrong = wrong(stores, 1.0, noise, 2000);
            assert!(wrong.iter().all(|wrong| *wrong < 1.0), "{stores} stores, noise {noise}: {wrong:?}%");
        }
    }
}

#[test]
fn a_store_twice_as_fast_is_found_within_two_probes() {
    for noise in [0.0, 0.25, 0.5] {
        let [_, second] = wrong(2, 2.0, noise, 2000);
        assert!(second < 1.0, "noise {noise}: {second}%");
    }
}

#[test]
fn devices_of_other_kinds_are_told_apart_by_the_first_probe_in_any_noise() {
    for stores in [2, 6, 12] {
        for noise in [0.0, 0.5, 1.0] {
            let [first, _] = wrong(stores, 20.0, noise, 300);
            assert_eq!(first, 0.0, "{stores} stores, noise {noise}");
        }
    }
}

#[test]
#[ignore = "prints a table; asserts nothing"]
fn table_of_wrong_verdicts() {
    println!("| stores | truth | noise 0% | 25% | 50% | 75% | 100% |\n|---:|---:|---:|---:|---:|---:|---:|");
    for stores in [2, 4, 6, 12] {
        for difference in [1.0, 1.25, 1.5, 2.0, 5.0, 20.0] {
            print!("| {stores} | {difference} |");
            for noise in [0.0, 0.25, 0.5, 0.75, 1.0] {
                let [first, second] = wrong(stores, difference, noise, 2000);
                print!(" {first:.1} → {second:.1} |");
            }
            println!();
        }
    }
}
