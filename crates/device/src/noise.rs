//! Noise of an emulated device: its times vary, it has bursts of slowness, and a neighbour takes a
//! share of it.
//!
//! ```text
//! noise     = ["spread=" share] ["burst=" every ":" lasts ":" slower]
//!             ["neighbour=" every ":" lasts ":" share] ["seed=" n]
//! bandwidth = nominal / (exp(σ · slice) · spells)                      σ = ln(1 + spread)
//! latency   = nominal · exp(σ · (slice + operation) / √2) · spells
//! ```
//!
//! `slice` is a standard normal number drawn per 100 ms, and `operation` one drawn per operation.
//! So the median of both results is the nominal number, and σ is the standard deviation of their
//! logarithms. Half of a latency's variance comes from its slice: a slow device is still slow for
//! the next operation. `spells` is the product of the burst's factor and of 1 / (1 - the
//! neighbour's share), each while it lasts. Each period of `every` has one spell at a random place.
//!
//! Everything follows from the seed, the time and the number of preceding operations. No clock is
//! read.

use std::f64::consts::{FRAC_1_SQRT_2, TAU};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::mixed;
use crate::ControlBlock;

/// Time for which the bandwidth keeps one drawn factor.
pub const SLICE: Duration = Duration::from_millis(100);
pub(crate) const SLOWER_MAX: f64 = 1e6;
pub(crate) const SPREAD_MAX: f64 = 10.0;
pub(crate) const SHARE_MAX: f64 = 0.99;

/// Purposes of draws. Each purpose has its own sequence of numbers.
const OF_SLICE: u64 = 1;
const OF_OPERATION: u64 = 2;
const OF_BURST: u64 = 3;
const OF_NEIGHBOUR: u64 = 4;

/// A description of noise. [`Noise::NONE`] leaves the time of every operation exact to the
/// nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Noise {
    /// The relative spread of times. With 0.5, the logarithm of a time has a standard deviation of
    /// ln 1.5.
    pub spread: f64,
    pub burst: Option<Burst>,
    pub neighbour: Option<Neighbour>,
    pub seed: u64,
}

/// Once in each period of `every`, the device is `slower` times as slow for the duration of
/// `lasts`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    pub every: Duration,
    pub lasts: Duration,
    pub slower: f64,
}

/// Once in each period of `every`, another user takes this share of the device for the duration of
/// `lasts`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    pub every: Duration,
    pub lasts: Duration,
    pub share: f64,
}

impl Default for Noise {
    fn default() -> Noise {
        Noise::NONE
    }
}

impl Noise {
    pub const NONE: Noise = Noise { spread: 0.0, burst: None, neighbour: None, seed: 0 };

    pub fn is_none(&self) -> bool {
        self.spread <= 0.0 && self.burst.is_none() && self.neighbour.is_none()
    }

    /// Returns the same noise with other draws, so that devices of one description do not slow down
    /// together.
    pub fn of_device(self, number: u64) -> Noise {
        Noise { seed: mixed(self.seed ^ mixed(number)), ..self }
    }

    /// Returns the factor by which noise slows down transfers at the time `at`.
    pub fn transfer_factor(&self, at: u64) -> f64 {
        (self.deviation() * self.slice(at)).exp() * self.spells(at)
    }

    /// Returns the factor by which noise extends, at the time `at`, the latency of the operation
    /// with this number.
    pub fn latency_factor(&self, at: u64, operation: u64) -> f64 {
        let own = normal(self.draw(OF_OPERATION, operation));
        (self.deviation() * (self.slice(at) + own) * FRAC_1_SQRT_2).exp() * self.spells(at)
    }

    fn deviation(&self) -> f64 {
        self.spread.max(0.0).ln_1p()
    }

    fn slice(&self, at: u64) -> f64 {
        if self.spread <= 0.0 {
            return 0.0;
        }
        normal(self.draw(OF_SLICE, at / SLICE.as_nanos() as u64))
    }

    fn spells(&self, at: u64) -> f64 {
        let burst = self.burst.filter(|burst| self.is_within(OF_BURST, at, burst.every, burst.lasts));
        let neighbour = self.neighbour;
        let neighbour = neighbour.filter(|other| self.is_within(OF_NEIGHBOUR, at, other.every, other.lasts));
        burst.map_or(1.0, |burst| burst.slower) / (1.0 - neighbour.map_or(0.0, |other| other.share))
    }

    fn is_within(&self, purpose: u64, at: u64, every: Duration, lasts: Duration) -> bool {
        let every = nanos(every).max(1);
        let lasts = nanos(lasts).min(every);
        let begins = fraction(self.draw(purpose, at / every)) * (every - lasts) as f64;
        (begins as u64..begins as u64 + lasts).contains(&(at % every))
    }

    fn draw(&self, purpose: u64, number: u64) -> u64 {
        mixed(mixed(self.seed ^ mixed(purpose)).wrapping_add(number))
    }
}

impl ControlBlock {
    /// Returns the device's noise, or `None` if it has none.
    pub(crate) fn noise(&self) -> Option<Noise> {
        if self.noise_is_on.load(Relaxed) == 0 {
            return None;
        }
        let spell = |every: u64, lasts: u64| (Duration::from_nanos(every), Duration::from_nanos(lasts));
        let burst = match self.burst_every_ns.load(Relaxed) {
            0 => None,
            every => {
                let (every, lasts) = spell(every, self.burst_lasts_ns.load(Relaxed));
                Some(Burst { every, lasts, slower: f64::from_bits(self.burst_slower.load(Relaxed)) })
            }
        };
        let neighbour = match self.neighbour_every_ns.load(Relaxed) {
            0 => None,
            every => {
                let (every, lasts) = spell(every, self.neighbour_lasts_ns.load(Relaxed));
                Some(Neighbour { every, lasts, share: f64::from_bits(self.neighbour_share.load(Relaxed)) })
            }
        };
        let spread = f64::from_bits(self.noise_spread.load(Relaxed));
        Some(Noise { spread, burst, neighbour, seed: self.noise_seed.load(Relaxed) })
    }

    pub(crate) fn set_noise(&self, noise: &Noise) {
        self.noise_is_on.store(0, Relaxed);
        self.noise_spread.store(noise.spread.to_bits(), Relaxed);
        self.noise_seed.store(noise.seed, Relaxed);
        self.noise_operations.store(0, Relaxed);
        let burst = noise.burst.map_or((0, 0, 1.0), |it| (nanos(it.every), nanos(it.lasts), it.slower));
        self.burst_every_ns.store(burst.0, Relaxed);
        self.burst_lasts_ns.store(burst.1, Relaxed);
        self.burst_slower.store(burst.2.to_bits(), Relaxed);
        let other = noise.neighbour.map_or((0, 0, 0.0), |it| (nanos(it.every), nanos(it.lasts), it.share));
        self.neighbour_every_ns.store(other.0, Relaxed);
        self.neighbour_lasts_ns.store(other.1, Relaxed);
        self.neighbour_share.store(other.2.to_bits(), Relaxed);
        self.noise_is_on.store(u64::from(!noise.is_none()), Relaxed);
    }

    /// Returns the time of a transfer that begins at `at`, with noise applied.
    pub(crate) fn noisy_transfer(&self, at: u64, nanos: u64) -> u64 {
        self.noise().map_or(nanos, |noise| scaled(nanos, noise.transfer_factor(at)))
    }

    /// Returns the latency of an operation that begins at `at`, with noise applied.
    pub(crate) fn noisy_latency(&self, at: u64, nanos: u64) -> u64 {
        self.noise().map_or(nanos, |noise| {
            let operation = self.noise_operations.fetch_add(1, Relaxed);
            scaled(nanos, noise.latency_factor(at, operation))
        })
    }
}

fn scaled(nanos: u64, factor: f64) -> u64 {
    // The conversion to an integer saturates.
    ((nanos as f64 * factor) as u64).min(u64::MAX / 4)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// Maps a number to the range from 0 up to but not including 1.
fn fraction(number: u64) -> f64 {
    (number >> 11) as f64 / (1u64 << 53) as f64
}

/// Maps a number to a standard normal one, by the Box-Muller method.
fn normal(number: u64) -> f64 {
    let radius = (-2.0 * (1.0 - fraction(number)).ln()).sqrt();
    radius * (TAU * fraction(mixed(number))).cos()
}

#[cfg(test)]
mod tests;
