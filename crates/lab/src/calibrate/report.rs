//! The reports of measurements and fit, for people and for the file.

use client::table::{bytes, micros, Align, Table};
use device::Fit;

use super::measure::{Settings, Trial};
use super::Calibrate;

/// Formats one trial as a line.
pub fn line(trial: &Trial) -> String {
    let rate = |per_s: f64| format!("{}/s", bytes(per_s));
    let void =
        if trial.void.is_empty() { String::new() } else { format!("  VOID: {}", trial.void.join("; ")) };
    let slowed = if trial.speed == 1.0 { String::new() } else { format!(" at {} of its speed", trial.speed) };
    format!(
        "{}{slowed}: I/O {}, sync {}, read {}; KV {}{void}",
        trial.name,
        rate(trial.probed.write_bytes_per_s),
        micros(trial.probed.sync_latency.as_secs_f64() * 1e6),
        micros(trial.probed.read_latency.as_secs_f64() * 1e6),
        rate(trial.kv_bytes_per_s),
    )
}

/// Formats the trials at full speed, in MB/s.
pub fn table(trials: &[Trial], fit: Option<&Fit>) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("device", Left),
        ("I/O MB/s", Right),
        ("KV MB/s", Right),
        ("fitted", Right),
        ("residual", Right),
        ("device used", Right),
        ("CPU", Right),
        ("compacted", Right),
        ("void", Left),
    ]);
    for trial in trials {
        let pair = trial.pair();
        let fitted = fit.map(|fit| fit.kv_bytes_per_s(pair.io_bytes_per_s));
        let mb = |per_s: f64| format!("{:.1}", per_s / 1e6);
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        let used =
            trial.evidence.busiest_device().map(|used| used.device_share()).filter(|share| *share > 0.0);
        let ratio = trial.evidence.compaction_ratio();
        table.row([
            trial.name.clone(),
            mb(pair.io_bytes_per_s),
            mb(pair.kv_bytes_per_s),
            fitted.map(mb).unwrap_or_default(),
            fitted.map(|fitted| format!("{:+.1}", (pair.kv_bytes_per_s - fitted) / 1e6)).unwrap_or_default(),
            used.map(percent).unwrap_or_default(),
            percent(trial.evidence.cpu_share()),
            ratio.map(|ratio| format!("{ratio:.1} x")).unwrap_or_default(),
            trial.void.join("; "),
        ]);
    }
    table.to_string()
}

pub fn fit(fit: &Fit) -> String {
    format!("{}\nR² {:.4}\n", fit.formula(), fit.r_squared())
}

pub fn provenance(settings: &Settings, options: &Calibrate, trials: &[Trial], date: &str) -> String {
    let (emulated, real): (Vec<_>, Vec<_>) = trials.iter().partition(|trial| trial.probed.emulated);
    let names =
        |trials: &[&Trial]| trials.iter().map(|trial| trial.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "Measured by steelyard {} calibrate on {date}, {} CPUs: {} records of 1 KiB under keys of 16 bytes loaded \
         by {} threads into one store with one copy, keys and values per second after the first quarter. ",
        env!("CARGO_PKG_VERSION"),
        settings.cpus,
        settings.records,
        settings.scale.threads,
    );
    if !emulated.is_empty() {
        let on = &emulated[0].file_system;
        text += &format!(
            "Emulated at {} of their speed on {on}, both numbers divided by it: {}. ",
            options.device_speed,
            names(&emulated)
        );
    }
    if !real.is_empty() {
        text += &format!("Real: {}. ", names(&real));
    }
    let void = trials.iter().filter(|trial| !trial.void.is_empty());
    let void: Vec<String> = void.map(|trial| format!("{} ({})", trial.name, trial.void.join("; "))).collect();
    if !void.is_empty() {
        let what = if options.keep_void { "Void, but kept" } else { "Void and left out" };
        text += &format!("{what}: {}. ", void.join(", "));
    }
    text.trim_end().to_owned()
}
