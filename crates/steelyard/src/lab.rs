//! `steelyard bench` and `steelyard calibrate` start the laboratory, a separate program beside this
//! one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::anyhow;

/// Name of the laboratory's program.
const PROGRAM: &str = "steelyard-lab";

#[derive(clap::Args)]
pub struct Arguments {
    /// Arguments of the laboratory
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process with the laboratory's `command`. Returns only if that fails.
pub fn start(command: &str, options: Arguments) -> anyhow::Result<()> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    let error = Command::new(&program).arg(command).args(options.arguments).exec();
    Err(anyhow!(
        "{} cannot be started: {error}; `make build` makes it, or `cargo build --release -p {PROGRAM}`",
        program.display()
    ))
}
