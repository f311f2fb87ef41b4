//! `steelyard calibrate`: measures how fast one store is on devices of different speeds, and fits a
//! curve.
//!
//! On each device the I/O is probed, through the emulation if it is emulated. Then one store is
//! loaded until it compacts steadily. A pair is void if something other than the device was the
//! bound. A void pair is shown with its reason. It is not fitted, unless `--keep-void` says so.

mod measure;
mod report;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{bail, ensure, Context};
use client::process::port_is_free;
use device::Fit;
use indicatif::{ProgressBar, ProgressStyle};
use lab::alor::Scale;

use crate::command::{drive, CLIENT_THREADS};
use measure::{measure, Place, Settings, Trial};
use steelyard::playground::layout::parse_devices;

#[derive(clap::Args)]
pub struct Calibrate {
    /// Emulated devices, in the notation of a playground [default: nvm,high-end-ssd,plain-ssd, or
    /// none with --dir]
    #[arg(long, value_name = "LIST")]
    devices: Option<String>,
    /// A directory on a real device; can be repeated
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Speed of the emulated devices. Both numbers of a pair are divided by it, so that pairs are
    /// at full speed
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0125)]
    device_speed: f64,
    /// Number of records of 1 KiB to load on each device; memtables and levels are scaled to it
    #[arg(long, value_name = "N", default_value_t = 80_000, value_parser = clap::value_parser!(u64).range(1000..))]
    records: u64,
    /// Maximum time in seconds for the load of one device
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(5..))]
    seconds: u64,
    /// Number of client threads, each with one operation in flight; enough threads make the device
    /// the bottleneck
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Degree of the polynomial, 1 to 3; lower if there are fewer devices
    #[arg(long, value_name = "D", default_value_t = device::fit::DEFAULT_DEGREE)]
    degree: usize,
    /// Also fit void measurements, and note that in the file
    #[arg(long)]
    keep_void: bool,
    /// File for the fit; stores use it with --capability-fit
    #[arg(long, value_name = "FILE", default_value = "capability-fit.json")]
    out: PathBuf,
    /// Probe this directory, print the measurements and exit. This probes emulated devices
    #[arg(long, value_name = "DIR", hide = true)]
    probe: Option<PathBuf>,
}

const DEVICES: &str = "nvm,high-end-ssd,plain-ssd";

pub fn run(options: Calibrate) -> anyhow::Result<()> {
    if let Some(dir) = &options.probe {
        let measured = device::probe(dir, &device::probe::Options::default())?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    drive(CLIENT_THREADS, calibrate(options))
}

async fn calibrate(options: Calibrate) -> anyhow::Result<()> {
    ensure!(
        options.device_speed.is_finite() && options.device_speed > 0.0,
        "device-speed must be above 0: 0.1 makes every device ten times slower"
    );
    ensure!((1..=3).contains(&options.degree), "a fit's degree must be 1 to 3, not {}", options.degree);
    let places = places(&options)?;
    let settings = Settings {
        records: options.records,
        at_most: Duration::from_secs(options.seconds),
        scale: scale(options.records, options.device_speed, options.threads),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        port: free_port()?,
    };
    let bar = progress();
    let mut trials: Vec<Trial> = Vec::new();
    for (number, place) in places.iter().enumerate() {
        bar.set_prefix(format!("{}/{} {}", number + 1, places.len(), place.name()));
        let trial = measure(place, &settings, &bar).await;
        let trial = trial.with_context(|| format!("{} cannot be measured", place.name()))?;
        bar.suspend(|| eprintln!("{}", report::line(&trial)));
        trials.push(trial);
    }
    bar.finish_and_clear();
    let fitted = |trial: &&Trial| trial.void.is_empty() || options.keep_void && trial.kv_bytes_per_s > 0.0;
    let pairs: Vec<_> = trials.iter().filter(fitted).map(Trial::pair).collect();
    if pairs.is_empty() {
        print!("{}", report::table(&trials, None));
        bail!("every measurement is void: there is nothing to fit");
    }
    let provenance = report::provenance(&settings, &options, &trials, &today());
    let fit = Fit::of(pairs, options.degree, provenance)?;
    print!("{}", report::table(&trials, Some(&fit)));
    print!("{}", report::fit(&fit));
    fit.write(&options.out)?;
    println!("written to {}", options.out.display());
    Ok(())
}

fn places(options: &Calibrate) -> anyhow::Result<Vec<Place>> {
    let devices = match (&options.devices, options.dir.is_empty()) {
        (Some(list), _) => parse_devices(list, None)?,
        (None, true) => parse_devices(DEVICES, None)?,
        (None, false) => Vec::new(),
    };
    let mut places = Vec::new();
    for device in devices {
        places.push(Place::Emulated { device, speed: options.device_speed });
    }
    for dir in &options.dir {
        ensure!(dir.is_dir(), "{} is not a directory", dir.display());
        places.push(Place::Real(dir.clone()));
    }
    ensure!(!places.is_empty(), "name at least one device");
    Ok(places)
}

/// Returns the scale of the load. A store of the evaluation holds half of its records, with three
/// copies on six stores. Here memtables are half as large in relation to the data, because the work
/// that level 0 can postpone must not determine the result.
fn scale(records: u64, device_speed: f64, threads: u16) -> Scale {
    let whole =
        Scale { data_factor: 1.0, ..Scale::named(Scale::NAMES[0]).expect("a scale has its own names") };
    Scale {
        name: "calibrate".into(),
        data_factor: records as f64 / whole.records(6) as f64,
        device_speed,
        threads: usize::from(threads),
        ..whole
    }
}

/// Finds a free port. A store's other ports are 10,000 and 20,000 above, and also below the range
/// of outgoing connections.
fn free_port() -> anyhow::Result<u16> {
    let free = |port: u16| port_is_free(SocketAddr::from(([127, 0, 0, 1], port)));
    let mut ports = 11_000..12_700;
    let found = ports.find(|port| [0, 10_000, 20_000].iter().all(|above| free(port + above)));
    found.context("no free port was found")
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("{prefix:<24} {msg:<10} [{bar:30}] {percent:>3}%  {elapsed}");
    bar.set_style(style.expect("a constant template is valid").progress_chars("=> "));
    bar
}

/// Returns the date in UTC, such as `2026-11-21`.
fn today() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// Returns the date of a day since 1970 (Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// civil_from_days).
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        let days = [0, 58, 59, 11_016, 11_017, 20_778].map(date);
        assert_eq!(
            days,
            ["1970-01-01", "1970-02-28", "1970-03-01", "2000-02-29", "2000-03-01", "2026-11-21"]
        );
    }

    #[test]
    fn many_memtables_are_filled_after_the_first_quarter() {
        for records in [20_000, 80_000, 1_000_000] {
            let options = scale(records, 1.0, 1).store_options();
            let memtable = options.iter().find(|(name, _)| *name == "write_buffer_size").unwrap().1;
            let filled = records * 1024 / memtable;
            assert!((70..90).contains(&filled), "{records}: {filled}");
        }
    }

    #[test]
    fn profiles_are_measured_unless_only_directories_are_named() {
        use clap::Parser;

        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            calibrate: Calibrate,
        }
        let of = |words: &[&str]| {
            let line = Line::parse_from([&["calibrate"], words].concat());
            places(&line.calibrate).map(|places| places.iter().map(Place::name).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).unwrap(), ["nvm", "high-end-ssd", "plain-ssd"]);
        assert_eq!(of(&["--dir", "/tmp"]).unwrap(), ["/tmp"]);
        assert_eq!(of(&["--dir", "/tmp", "--devices", "2x nvm"]).unwrap(), ["nvm", "nvm", "/tmp"]);
        assert!(of(&["--dir", "/none"]).is_err() && of(&["--devices", "floppy"]).is_err());
    }
}
