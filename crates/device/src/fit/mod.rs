//! From a device's I/O speed to what a store makes of it: a polynomial through pairs that were measured
//! before (ALOR §3.2, §4.3). `steelyard calibrate` measures pairs; the fit that is shipped has its provenance in it.
//!
//! What a fit says is positive and never falls, for every input: over the measured range it is the least
//! squares polynomial among those that do not fall there; below the range it is in proportion, above it goes on
//! along its last slope. See [`Curve`].
//!
//! ```text
//! { "version": 1, "provenance": "…", "degree": 2,
//!   "pairs": [ { "name": "…", "io_bytes_per_s": …, "kv_bytes_per_s": … }, … ],
//!   "coefficients": [ c0, c1, c2 ] }          KV = c0 + c1·IO + c2·IO², both in bytes per second
//! ```
//!
//! The pairs are what a file says; coefficients follow from them, may be left out, and are refused when they
//! contradict the pairs.

mod curve;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use curve::{Curve, DEGREE_MAX};

pub const VERSION: u32 = 1;
pub const DEFAULT_DEGREE: usize = 2;
/// Beyond any device, and far from where squares overflow.
const SPEED_MAX: f64 = 1e15;
/// Speeds that are nearer than this are one speed, measured twice: between them a curve would bend for noise.
const SAME_SPEED: f64 = 1.05;
/// The curve begins at no less than this part of the least that was measured.
const FLOOR: f64 = 0.5;
/// Between coefficients of a file and those that follow from its pairs, in parts of what is fitted.
const AGREEMENT: f64 = 1e-3;

/// A device and what one store did on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    pub name: String,
    /// Random 8 MiB writes, as [`probe`](crate::probe()) measures them.
    pub io_bytes_per_s: f64,
    /// User data written, keys and values once.
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
    #[error("a speed factor is a number above 0 and at most 1e6, not {0}")]
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
    /// By I/O speed.
    pairs: Vec<Pair>,
    /// That was asked for; the curve's is lower when there are fewer speeds.
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
    /// Measured on our emulated profiles; see its provenance.
    pub fn shipped() -> Fit {
        parse(include_bytes!("shipped.json")).expect("the fit that is shipped is one: a test reads it")
    }

    pub fn read(path: &Path) -> Result<Fit, FitError> {
        let bytes = fs::read(path).map_err(|source| FitError::Read { path: path.to_owned(), source })?;
        parse(&bytes).map_err(|reason| FitError::NotAFit { path: path.to_owned(), reason })
    }

    /// Whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), FitError> {
        let failed = |source| FitError::Write { path: path.to_owned(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))? + "\n";
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let written = (|| {
            let mut file = File::create(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)
        })();
        written.map_err(|source| {
            let _ = fs::remove_file(&beside);
            failed(source)
        })
    }

    /// The polynomial of `degree`, or of less where there are fewer speeds than it needs.
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

    /// Positive and never falling, for every input; what is no number is taken for the slowest device.
    pub fn kv_bytes_per_s(&self, io_bytes_per_s: f64) -> f64 {
        let io = if io_bytes_per_s.is_nan() { 1.0 } else { io_bytes_per_s.clamp(1.0, SPEED_MAX) };
        self.curve.at(io)
    }

    /// For devices that are slowed as a whole, bandwidths and latencies, by one factor: a store on them is
    /// slower by it in everything, as long as the device is its bound.
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

    /// Of the curve: what the pairs were enough for.
    pub fn degree(&self) -> usize {
        self.curve.coefficients().len() - 1
    }

    /// Of `1, IO, IO², …`, both sides in bytes per second; between the slowest and the fastest pair.
    pub fn coefficients(&self) -> Vec<f64> {
        self.curve.coefficients()
    }

    /// The I/O speeds between which the polynomial holds.
    pub fn range(&self) -> (f64, f64) {
        self.curve.range()
    }

    /// Measured less fitted, in bytes per second, in the order of the pairs.
    pub fn residuals(&self) -> Vec<f64> {
        let residual = |pair: &Pair| pair.kv_bytes_per_s - self.curve.at(pair.io_bytes_per_s);
        self.pairs.iter().map(residual).collect()
    }

    /// The part of the pairs' variance that the curve explains; 1 when there is none to explain.
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

    /// `KV = 1.2 + 34.5·x − 2.1·x² MB/s, x = I/O in GB/s from 0.5 to 5`
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

/// How many different speeds there are, in the order of speed.
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

/// Four digits that count.
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

/// The version is looked at first: what a later one looks like is not known here.
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
