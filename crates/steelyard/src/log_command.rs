//! `steelyard log`: shows a store's Raft log.

use std::io::{stdout, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;

use crate::encryption::KeyOptions;

#[derive(clap::Args)]
pub struct Log {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the contents of a log and the result of a start from it, without changing it
    Dump {
        /// The log's directory: DIR/log of a store
        dir: PathBuf,
        /// Show every block and section instead of each segment
        #[arg(long)]
        blocks: bool,
        #[command(flatten)]
        keys: KeyOptions,
    },
}

pub fn run(log: Log) -> anyhow::Result<()> {
    let Command::Dump { dir, blocks, keys } = log.command;
    // The keys are beside the log.
    let dir = dir.canonicalize().with_context(|| format!("{}", dir.display()))?;
    let store = dir.parent().unwrap_or(&dir).to_path_buf();
    let settings = keys.settings().map_err(anyhow::Error::msg)?;
    atrest::open_for_reading(&store, settings.as_ref())?;
    let mut out = BufWriter::new(stdout().lock());
    let dumped = raftlog::dump(&dir, blocks, &mut out).and_then(|()| out.flush());
    match dumped {
        // The reader has closed the pipe and wants no more output.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        dumped => dumped.with_context(|| format!("{}", dir.display())),
    }
}
