//! `steelyard log`: a store's Raft log, read by a person.

use std::io::{stdout, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;

#[derive(clap::Args)]
pub struct Log {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// What a log holds, and what a start would do with it; nothing is changed
    Dump {
        /// The log's directory, DIR/log of a store
        dir: PathBuf,
        /// Every block and section, and not only each segment
        #[arg(long)]
        blocks: bool,
    },
}

pub fn run(log: Log) -> anyhow::Result<()> {
    let Command::Dump { dir, blocks } = log.command;
    let mut out = BufWriter::new(stdout().lock());
    let dumped = raftlog::dump(&dir, blocks, &mut out).and_then(|()| out.flush());
    match dumped {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        dumped => dumped.with_context(|| format!("{}", dir.display())),
    }
}
