//! `steelyard-sim`: runs seeds and prints counts of the events.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use sim::run::{run, Options, Report};
use sim::tally::Tally;

/// Simulates whole clusters, each from one seed.
#[derive(Parser)]
#[command(name = "steelyard-sim", version)]
struct Arguments {
    /// One seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// A range of seeds, `A..B`, without B.
    #[arg(long, value_parser = range)]
    seeds: Option<std::ops::Range<u64>>,
    /// Number of conversations that clients begin in each run during faults.
    #[arg(long, default_value_t = 160)]
    steps: u64,
    /// Run new seeds for this many hours, and print the counts every minute.
    #[arg(long)]
    hours: Option<f64>,
    /// Print what happens.
    #[arg(long)]
    trace: bool,
    /// Enable a failpoint, by its name.
    #[cfg(feature = "failpoints")]
    #[arg(long)]
    failpoint: Option<String>,
}

fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("not of the form A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match (arguments.seed, arguments.seeds.clone()) {
        (Some(seed), _) => seed..seed.saturating_add(1),
        (None, Some(seeds)) => seeds,
        (None, None) if arguments.hours.is_some() => 0..u64::MAX,
        (None, None) => 0..100,
    };
    std::panic::set_hook(Box::new(|_| {}));
    // The program reads no other clock. It measures only how long the runs take.
    #[allow(clippy::disallowed_methods)]
    let began = std::time::Instant::now();
    let seconds = arguments.hours.map_or(f64::INFINITY, |hours| hours * 3600.0);
    let mut sum = Tally::default();
    let mut minutes = 0;
    for seed in seeds {
        let options = Options {
            steps: arguments.steps,
            is_tracing: arguments.trace,
            #[cfg(feature = "failpoints")]
            failpoint: arguments
                .failpoint
                .as_deref()
                .map(|name| sim::run::Failpoint::named(name).expect("a failpoint's name")),
            ..Options::of(seed)
        };
        let Report { tally, violation, digest } = run(options);
        sum.add(&tally);
        if let Some(violation) = violation {
            println!("{sum}");
            println!("seed {seed}: {} is broken after {} ms:", violation.invariant, violation.at_ms);
            println!("  {}", violation.what);
            println!("of {}; again with", version());
            println!("  steelyard-sim --seed {seed} --steps {} --trace", arguments.steps);
            return ExitCode::FAILURE;
        }
        if arguments.seed.is_some() {
            println!("digest {digest:016x}");
        }
        let spent = began.elapsed().as_secs_f64();
        if arguments.hours.is_some() && spent >= 60.0 * (minutes + 1) as f64 {
            minutes = spent as u64 / 60;
            println!("after {minutes} minutes\n{sum}");
        }
        if spent >= seconds {
            break;
        }
    }
    println!("{sum}");
    println!("{} s of {}", began.elapsed().as_secs(), version());
    ExitCode::SUCCESS
}

/// Returns the program's version, and its commit if known.
fn version() -> String {
    let commit = option_env!("STEELYARD_COMMIT").unwrap_or("an unnamed commit");
    format!("version {} at {commit}", env!("CARGO_PKG_VERSION"))
}
