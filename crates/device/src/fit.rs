//! The fit: a polynomial that maps a device's I/O speed to a store's key-value speed (ALOR §3.2,
//! §4.3). It runs through pairs measured in advance by `steelyard calibrate`. The shipped fit
//! states its provenance.
//!
//! A fit's result is positive and never falls, for every input. Over the measured range it is the
//! least-squares polynomial among those that do not fall there. Below the range it is proportional,
//! and above it the last slope continues. See [`Curve`].
//!
//! ```text
//! { "version": 1, "provenance": "…", "degree": 2,
//!   "pairs": [ { "name": "…", "io_bytes_per_s": …, "kv_bytes_per_s": … }, … ],
//!   "coefficients": [ c0, c1, c2 ] }          KV = c0 + c1·IO + c2·IO², both in bytes per second
//! ```
//!
//! The pairs define the fit. Coefficients in a file follow from them and may be left out. A file
//! whose coefficients contradict its pairs is refused.

mod curve;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use curve::{Curve, DEGREE_MAX};

pub const VERSION: u32 = 1;
pub const DEFAULT_DEGREE: usize = 2;
/// Maximum speed in bytes per second: beyond any device, and far from where squares overflow.
const SPEED_MAX: f64 = 1e15;
/// Ratio below which two speeds count as one speed measured twice. Between them, a curve would bend
/// only because of noise.
const SAME_SPEED: f64 = 1.05;
/// Minimum value of the curve, as a part of the smallest measured one.
const FLOOR: f64 = 0.5;
/// Maximum relative difference between a fitted value and the value of a file's coefficients.
const AGREEMENT: f64 = 1e-3;

/// The measured I/O speed of a device and the key-value speed of a store on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    pub name: String,
    /// The rate of random 8 MiB writes, as [`probe`](crate::probe()) measures it.
    pub io_bytes_per_s: f64,
    /// The rate of user data written, counting keys and values once.
    pub kv_bytes_per_s: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error("a fit needs at least one pair")]
    NoPairs,
    #[error(
        "pair '{name}': {what} is {value}, and must be a number of bytes per second above 0, at most 1e15"
    )]
    BadPair { name: String, what: &'static str, value: f64 },
    #[error("a fit's degree is 1 to {DEGREE_MAX}, not {0}")]
    BadDegree(usize),
    #[error("a speed factor must be a number above 0 and at most 1e6, not {0}")]
    BadSpeed(f64),
    #[error(
        "the coefficients do not follow from the pairs: change the pairs and leave the coefficients out"
    )]
    Contradiction,
    #[error("fit version {0} is unknown, known is {VERSION}")]
    UnknownVersion(u64),
    #[error("{} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is not a fit: {reason}", path.display())]
    NotAFit { path: PathBuf, reason: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Fit {
    /// The pairs, ordered by I/O speed.
    pairs: Vec<Pair>,
    /// The requested degree. The curve's degree is lower if there are too few speeds.
    degree: usize,
    provenance: String,
    curve: Curve,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    provenance: String,
    degree: usize,
    pairs: Vec<Pair>,
    #[serde(default)]
    coefficients: Option<Vec<f64>>,
}

impl Fit {
    /// Returns the shipped fit, which was measured on the emulated profiles. See its provenance.
    pub fn shipped() -> Fit {
        parse(include_bytes!("fit/shipped.json")).expect("the fit that is shipped is one: a test reads it")
    }

    pub fn read(path: &Path) -> Result<Fit, FitError> {
        let bytes = fs::read(path).map_err(|source| FitError::Read { path: path.to_owned(), source })?;
        parse(&bytes).map_err(|reason| FitError::NotAFit { path: path.to_owned(), reason })
    }

    /// Writes the file atomically and durably.
    pub fn write(&self, path: &Path) -> Result<(), FitError> {
        let failed = |source| FitError::Write { path: path.to_owned(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))? + "\n";
        durable::write(path, text).map_err(failed)
    }

    /// Fits a polynomial of `degree`, or of a lower degree if there are too few different speeds.
    pub fn of(mut pairs: Vec<Pair>, degree: usize, provenance: String) -> Result<Fit, FitError> {
        if !(1..=DEGREE_MAX).contains(&degree) {
            return Err(FitError::BadDegree(degree));
        }
        for pair in &pairs {
            for (what, value) in [("I/O", pair.io_bytes_per_s), ("KV", pair.kv_bytes_per_s)] {
                if !(value.is_finite() && value > 0.0 && value <= SPEED_MAX) {
                    return Err(FitError::BadPair { name: pair.name.clone(), what, value });
                }
            }
        }
        pairs.sort_by(|a, b| a.io_bytes_per_s.total_cmp(&b.io_bytes_per_s).then(a.name.cmp(&b.name)));
        let points: Vec<(f64, f64)> = pairs.iter().map(|p| (p.io_bytes_per_s, p.kv_bytes_per_s)).collect();
        let least = points.iter().map(|(_, kv)| *kv).reduce(f64::min).ok_or(FitError::NoPairs)?;
        let curve = Curve::through(&points, degree.min(speeds(&points) - 1), FLOOR * least);
        Ok(Fit { pairs, degree, provenance, curve })
    }

    /// Returns the key-value speed for an I/O speed. It is positive and never falls, for every
    /// input. A NaN counts as the slowest device.
    pub fn kv_bytes_per_s(&self, io_bytes_per_s: f64) -> f64 {
        let io = if io_bytes_per_s.is_nan() { 1.0 } else { io_bytes_per_s.clamp(1.0, SPEED_MAX) };
        self.curve.at(io)
    }

    /// Returns the fit for devices whose bandwidths and latencies are all slowed by one factor. A
    /// store on them is slower by that factor in everything, as long as the device is its
    /// bottleneck.
    pub fn at_speed(&self, speed: f64) -> Result<Fit, FitError> {
        if !(speed.is_finite() && speed > 0.0 && speed <= 1e6) {
            return Err(FitError::BadSpeed(speed));
        }
        let slowed = |pair: &Pair| Pair {
            name: pair.name.clone(),
            io_bytes_per_s: pair.io_bytes_per_s * speed,
            kv_bytes_per_s: pair.kv_bytes_per_s * speed,
        };
        let provenance = format!("At {speed} of the speed that this was measured for. {}", self.provenance);
        Fit::of(self.pairs.iter().map(slowed).collect(), self.degree, provenance)
    }

    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    pub fn provenance(&self) -> &str {
        &self.provenance
    }

    /// Returns the degree of the curve, which the number of different speeds may have lowered.
    pub fn degree(&self) -> usize {
        self.curve.coefficients().len() - 1
    }

    /// Returns the coefficients of `1, IO, IO², …`, in bytes per second on both sides. They hold
    /// between the slowest and the fastest pair.
    pub fn coefficients(&self) -> Vec<f64> {
        self.curve.coefficients()
    }

    /// Returns the I/O speeds between which the polynomial holds.
    pub fn range(&self) -> (f64, f64) {
        self.curve.range()
    }

    /// Returns measured minus fitted speeds in bytes per second, in the order of the pairs.
    pub fn residuals(&self) -> Vec<f64> {
        let residual = |pair: &Pair| pair.kv_bytes_per_s - self.curve.at(pair.io_bytes_per_s);
        self.pairs.iter().map(residual).collect()
    }

    /// Returns the part of the pairs' variance that the curve explains, or 1 if there is no
    /// variance.
    pub fn r_squared(&self) -> f64 {
        let mean = self.pairs.iter().map(|pair| pair.kv_bytes_per_s).sum::<f64>() / self.pairs.len() as f64;
        let total: f64 = self.pairs.iter().map(|pair| (pair.kv_bytes_per_s - mean).powi(2)).sum();
        let left: f64 = self.residuals().iter().map(|residual| residual.powi(2)).sum();
        if total > 0.0 {
            1.0 - left / total
        } else {
            1.0
        }
    }

    /// Returns a text such as `KV = 1.2 + 34.5·x − 2.1·x² MB/s, x = I/O in GB/s from 0.5 to 5`.
    pub fn formula(&self) -> String {
        let mut text = String::from("KV =");
        for (power, coefficient) in self.coefficients().into_iter().enumerate() {
            let shown = coefficient * 1e9_f64.powi(power as i32) / 1e6;
            let sign = match (power, shown < 0.0) {
                (0, false) => " ",
                (0, true) => " −",
                (_, false) => " + ",
                (_, true) => " − ",
            };
            let _ = write!(text, "{sign}{}", significant(shown.abs()));
            let _ = match power {
                0 => Ok(()),
                1 => write!(text, "·x"),
                2 => write!(text, "·x²"),
                _ => write!(text, "·x³"),
            };
        }
        let (low, high) = self.range();
        let _ = write!(text, " MB/s, x = I/O in GB/s");
        let _ = match low < high {
            true => write!(text, " from {} to {}", significant(low / 1e9), significant(high / 1e9)),
            false => write!(text, " of {}", significant(low / 1e9)),
        };
        text
    }
}

/// Returns the number of different speeds. The points must be ordered by speed.
fn speeds(points: &[(f64, f64)]) -> usize {
    let (mut count, mut last) = (0, 0.0);
    for (io, _) in points {
        if *io > last * SAME_SPEED {
            count += 1;
            last = *io;
        }
    }
    count
}

/// Formats a number with four significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    if digits > 8 {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.*}", digits.max(0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Parses a fit. The version is checked first, because the format of later versions is unknown.
fn parse(bytes: &[u8]) -> Result<Fit, String> {
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let version = value["version"].as_u64().ok_or("it has no version")?;
    if version != u64::from(VERSION) {
        return Err(FitError::UnknownVersion(version).to_string());
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

impl From<Fit> for Written {
    fn from(fit: Fit) -> Written {
        Written {
            version: VERSION,
            coefficients: Some(fit.coefficients()),
            provenance: fit.provenance,
            degree: fit.degree,
            pairs: fit.pairs,
        }
    }
}

impl TryFrom<Written> for Fit {
    type Error = FitError;

    fn try_from(written: Written) -> Result<Fit, FitError> {
        if written.version != VERSION {
            return Err(FitError::UnknownVersion(written.version.into()));
        }
        let fit = Fit::of(written.pairs, written.degree, written.provenance)?;
        if let Some(given) = written.coefficients {
            let polynomial = |x: f64| given.iter().rev().fold(0.0, |value, c| value * x + c);
            let agrees = |pair: &Pair| {
                let fitted = fit.curve.at(pair.io_bytes_per_s);
                (polynomial(pair.io_bytes_per_s) - fitted).abs() <= AGREEMENT * fitted
            };
            if given.len() != fit.coefficients().len() || !fit.pairs.iter().all(agrees) {
                return Err(FitError::Contradiction);
            }
        }
        Ok(fit)
    }
}
