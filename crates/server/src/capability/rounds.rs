//! A probe as several short rounds with pauses between them, and their combined result.
//!
//! One measurement of two seconds shows the device only in these two seconds. The start of another
//! store, a neighbour's compaction or a cache may distort it. Rounds that are spread over time see
//! the device in different states. Their differences show how certain the result is
//! ([`placement::estimate`]).

use std::path::Path;
use std::time::{Duration, Instant};

use device::{Fit, KvCapability, Measured, ProbeError};
use placement::{estimate, Estimate, Spread};
use serde::{Deserialize, Serialize};

use super::Probe;

/// Maximum number of rounds of one probe.
pub const ROUNDS: u32 = 32;
/// Minimum number of rounds of one probe, however long each takes.
const ROUNDS_MIN: u32 = 5;
/// Maximum number of rounds kept over all sittings; the oldest are dropped.
const KEPT_MAX: usize = 5 * ROUNDS as usize;
/// Assumed spread of a single short measurement. Two measurements in a row differ by less.
const SPREAD_OF_A_LOOK: f64 = 1.3;

/// The results of one round, in bytes/s and seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub write_bytes_per_s: f64,
    pub sync_s: f64,
    pub read_s: f64,
}

/// The uncertainty of a device's measured values, as factors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSpread {
    pub write: f64,
    pub sync: f64,
    pub read: f64,
}

impl DeviceSpread {
    pub const OF_A_LOOK: DeviceSpread =
        DeviceSpread { write: SPREAD_OF_A_LOOK, sync: SPREAD_OF_A_LOOK, read: SPREAD_OF_A_LOOK };
}

/// All rounds that count, and their combined result.
#[derive(Clone, Debug, PartialEq)]
pub struct Result {
    pub measured: Measured,
    pub spread: DeviceSpread,
    pub rounds: Vec<Round>,
    pub sittings: u32,
}

impl From<&Measured> for Round {
    fn from(measured: &Measured) -> Round {
        Round {
            write_bytes_per_s: measured.write_bytes_per_s,
            sync_s: measured.sync_latency.as_secs_f64(),
            read_s: measured.read_latency.as_secs_f64(),
        }
    }
}

/// Measures the device, continuing the `previous` rounds and sittings. A slow device gets fewer
/// rounds, with one job in each.
pub fn measure(
    dir: &Path,
    probe: Probe,
    previous: (&[Round], u32),
) -> std::result::Result<Result, ProbeError> {
    let mut options = probe.options();
    if probe == Probe::Brief {
        let measured = device::probe(dir, &options)?;
        let rounds = vec![Round::from(&measured)];
        return Ok(Result { measured, spread: DeviceSpread::OF_A_LOOK, rounds, sittings: 1 });
    }
    let mut rounds = previous.0.to_vec();
    let (time_max, pause) = (probe.time_max(), probe.pause());
    let mut spent = Duration::ZERO;
    let mut last = None;
    for round in 0..ROUNDS {
        if round >= ROUNDS_MIN && spent >= time_max {
            break;
        }
        if round > 0 {
            std::thread::sleep(pause);
        }
        options.seed = u64::from(round) + 1;
        let began = Instant::now();
        let measured = device::probe(dir, &options)?;
        let took = began.elapsed();
        spent += took;
        if took > 4 * options.time_max {
            options.jobs = 1;
        }
        rounds.push(Round::from(&measured));
        last = Some(measured);
    }
    let sittings = previous.1 + 1;
    rounds.drain(..rounds.len().saturating_sub(KEPT_MAX));
    let last = last.ok_or(ProbeError::NothingWritten)?;
    let of = |value: fn(&Round) -> f64| {
        estimate(&rounds.iter().map(value).collect::<Vec<_>>(), sittings as usize)
            .ok_or(ProbeError::NothingWritten)
    };
    let write = of(|round| round.write_bytes_per_s)?;
    // On a device in RAM a sync or read may take no measurable time.
    let none = Estimate { value: 0.0, spread: SPREAD_OF_A_LOOK };
    let (sync, read) = (of(|round| round.sync_s).unwrap_or(none), of(|round| round.read_s).unwrap_or(none));
    let measured = Measured {
        write_bytes_per_s: write.value,
        sync_latency: Duration::from_secs_f64(sync.value),
        read_latency: Duration::from_secs_f64(read.value),
        ..last
    };
    let spread = DeviceSpread { write: write.spread, sync: sync.spread, read: read.spread };
    Ok(Result { measured, spread, rounds, sittings })
}

/// Returns the spread of a store's capability: the fit's results at both ends of the device's
/// range.
pub fn spread_of(measured: &Measured, spread: DeviceSpread, fit: &Fit) -> Spread {
    let at = |factor: f64, slower: f64| {
        let device = Measured {
            write_bytes_per_s: measured.write_bytes_per_s * factor,
            read_latency: Duration::try_from_secs_f64(measured.read_latency.as_secs_f64() * slower)
                .unwrap_or(measured.read_latency),
            ..*measured
        };
        KvCapability::measured(&device, fit)
    };
    let (low, middle, high) =
        (at(1.0 / spread.write, spread.read), at(1.0, 1.0), at(spread.write, 1.0 / spread.read));
    let farther =
        |low: f64, middle: f64, high: f64| (high / middle).max(middle / low).max(1.0 + f64::EPSILON);
    Spread {
        kv_bytes_per_s: farther(low.kv_bytes_per_s, middle.kv_bytes_per_s, high.kv_bytes_per_s),
        ops_per_s: farther(low.kv_ops_per_s, middle.kv_ops_per_s, high.kv_ops_per_s),
        sync: spread.sync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_bounded_and_a_second_sitting_makes_them_surer() {
        let dir = tempfile::tempdir().unwrap();
        let first = measure(dir.path(), Probe::Start, (&[], 0)).unwrap();
        assert!((ROUNDS_MIN as usize..=ROUNDS as usize).contains(&first.rounds.len()), "{first:?}");
        assert!(first.spread.write >= 1.3 && first.measured.write_bytes_per_s > 0.0, "{first:?}");
        let second = measure(dir.path(), Probe::Start, (&first.rounds, first.sittings)).unwrap();
        assert_eq!(second.sittings, 2);
        assert!(second.rounds.len() > first.rounds.len() && second.rounds.len() <= KEPT_MAX);
        assert!(second.rounds.starts_with(&first.rounds));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_spread_of_the_device_is_about_that_of_the_store() {
        let measured = Measured::stated(&device::Profile::named("high-end-ssd").unwrap());
        let spread = DeviceSpread { write: 1.5, sync: 1.7, read: 1.2 };
        let of = spread_of(&measured, spread, &Fit::shipped());
        assert!((1.4..1.6).contains(&of.kv_bytes_per_s) && (1.2..1.5).contains(&of.ops_per_s), "{of:?}");
        assert_eq!(of.sync, 1.7);
        // A measurement is never exact.
        let sure = DeviceSpread { write: 1.0, sync: 1.0, read: 1.0 };
        assert!(spread_of(&measured, sure, &Fit::shipped()).kv_bytes_per_s > 1.0);
    }
}
