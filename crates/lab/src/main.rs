//! The laboratory: measures stores beside other servers, reproduces figures, fits models of
//! devices.

#![forbid(unsafe_code)]

mod calibrate;
mod command;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "steelyard-lab", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Measure beside Redis and etcd
    Bench(command::Bench),
    /// Measure what a store makes of devices of different speeds, and fit the curve that stores use
    Calibrate(calibrate::Calibrate),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(bench) => command::run(bench),
        Command::Calibrate(calibrate) => calibrate::run(calibrate),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steelyard-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
