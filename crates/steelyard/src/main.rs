//! Steelyard: a Redis-compatible, strongly consistent key-value store for machines of unequal
//! speed.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use steelyard::{ctl, demo, lab, log_command, plan, playground, serve, transfer};

#[derive(Parser)]
#[command(name = "steelyard", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run one store
    Serve(Box<serve::Serve>),
    /// Run a local cluster of real processes, optionally with emulated devices
    Playground(playground::Playground),
    /// Inspect a running cluster, or change it
    Ctl(ctl::Ctl),
    /// Copy the data of a running Redis or of an RDB file
    Import(transfer::Import),
    /// Write all data to an RDB file, which Redis can load
    Export(transfer::Export),
    /// Read a store's Raft log
    Log(log_command::Log),
    /// Demonstrate six unequal stores under load: two policies, a kill -9, and a check for lost
    /// writes
    Demo(demo::Demo),
    /// Measure workloads, and compare with Redis and etcd (starts steelyard-lab)
    #[command(disable_help_flag = true)]
    Bench(lab::Arguments),
    /// Predict a cluster's speed and layout under each policy
    Plan(Box<plan::Plan>),
    /// Measure a store's speed on devices of different speeds, and fit the curve that stores use
    /// (starts steelyard-lab)
    #[command(disable_help_flag = true)]
    Calibrate(lab::Arguments),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve::run(*serve),
        Command::Playground(playground) => playground::run(playground),
        Command::Ctl(ctl) => ctl::run(ctl),
        Command::Import(import) => transfer::import(import),
        Command::Export(export) => transfer::export(export),
        Command::Log(log) => log_command::run(log),
        Command::Demo(demo) => demo::run(demo),
        Command::Bench(bench) => lab::start("bench", bench),
        Command::Plan(plan) => plan::run(*plan),
        Command::Calibrate(calibrate) => lab::start("calibrate", calibrate),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steelyard: {error:#}");
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
