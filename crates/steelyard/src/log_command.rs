//! `steelyard log`: shows a store's Raft log.

use std::io::{stdout, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context};

use crate::encryption::KeyOptions;
use crate::serve::one_line;

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
    check(&dir)?;
    let store = dir.parent().unwrap_or(&dir).to_path_buf();
    let settings = keys.settings().map_err(anyhow::Error::msg)?;
    atrest::open_for_reading(&store, settings.as_ref()).map_err(|error| anyhow!(one_line(&error)))?;
    let mut out = BufWriter::new(stdout().lock());
    let dumped = raftlog::dump(&dir, blocks, &mut out).and_then(|()| out.flush());
    match dumped {
        // The reader has closed the pipe and wants no more output.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        dumped => dumped.with_context(|| format!("{}", dir.display())),
    }
}

/// Checks that a directory is that of a log, because another one would look like a damaged log. A
/// log that has lost only one of its files is shown as damaged.
fn check(dir: &Path) -> anyhow::Result<()> {
    if raftlog::is_log(dir).with_context(|| format!("{}", dir.display()))? {
        return Ok(());
    }
    let inner = dir.join("log");
    match raftlog::is_log(&inner) {
        Ok(true) => bail!("{} is the directory of a store: its log is {}", dir.display(), inner.display()),
        _ => bail!("{} is no directory of a log: it has neither LOG nor segments", dir.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_store_is_not_taken_for_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let (store, log) = (dir.path(), dir.path().join("log"));
        let refused = |dir: &Path| check(dir).unwrap_err().to_string();
        assert!(refused(store).ends_with("is no directory of a log: it has neither LOG nor segments"));
        std::fs::create_dir(&log).unwrap();
        std::fs::write(log.join("LOG"), "").unwrap();
        let expected = format!("is the directory of a store: its log is {}", log.display());
        assert!(refused(store).ends_with(&expected), "{}", refused(store));
        assert!(check(&log).is_ok());
        // A damaged log is still one.
        std::fs::rename(log.join("LOG"), log.join("00000001.segment")).unwrap();
        assert!(check(&log).is_ok());
        assert!(check(&store.join("nowhere")).is_err());
    }
}
