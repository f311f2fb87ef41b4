//! `steelyard import` and `steelyard export`: moves data from Redis, to Redis, and through RDB
//! files.
//!
//! A live source is walked with `SCAN`, and its values travel as payloads of `DUMP` and `RESTORE`
//! in pipelines over a few connections ([`live`]). A file is read element by element ([`file`]).
//! Values too large for one payload travel in pieces, by commands of their type ([`pieces`],
//! [`streams`]). An import that is repeated writes the same keys again, so a place that was
//! recorded too early or too late does no harm beyond time.
//!
//! With `--replicate` an import is a replica of the source: it loads the source's data and then
//! executes the source's stream of commands ([`replicate`]).

mod export;
mod file;
mod fingerprint;
mod live;
mod pieces;
mod place;
mod replicate;
mod report;
mod same_data;
mod server;
mod signals;
mod source;
mod streams;
mod target;

use std::path::PathBuf;

use anyhow::{ensure, Context};

use server::ServerUrl;

/// Bytes of a value above which it travels in pieces.
const LARGE_BYTES: u64 = 16 << 20;
const CONNECTIONS: usize = 4;

#[derive(clap::Args)]
pub struct Import {
    /// RDB file to read, of Redis 4.0 to 7.2
    #[arg(long, value_name = "FILE", conflicts_with = "from", required_unless_present = "from")]
    rdb: Option<PathBuf>,
    /// Running server to copy from: redis://[user:password@]host:port[/database]
    #[arg(long, value_name = "URL")]
    from: Option<ServerUrl>,
    /// Server to write to: redis://[user:password@]host:port; a forward port in cluster mode
    #[arg(long, value_name = "URL")]
    to: ServerUrl,
    /// File that records how far the import is; an import that was interrupted continues there
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
    #[command(flatten)]
    replication: replicate::Replication,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub struct Export {
    /// RDB file to write, which Redis 5.0 and later load, and Redis 7.0 if there are streams
    #[arg(long, value_name = "FILE")]
    rdb: PathBuf,
    /// Running server to copy from: redis://[user:password@]host:port[/database]
    #[arg(long, value_name = "URL")]
    from: ServerUrl,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args, Clone)]
struct Options {
    /// Connections to each server
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS)]
    connections: usize,
    /// Bytes of a value above which it is copied in pieces
    #[arg(long, value_name = "BYTES", default_value_t = LARGE_BYTES)]
    large: u64,
    /// Number of random keys that are compared at the end
    #[arg(long, value_name = "N", default_value_t = 1000)]
    sample: usize,
    /// Certificates for servers of rediss://, in a directory as `ctl tls init` makes it [default:
    /// the variable STEELYARD_TLS]
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
}

impl Options {
    fn prepare(&self) -> anyhow::Result<()> {
        ensure!((1..=64).contains(&self.connections), "--connections must be 1 to 64");
        ensure!(self.large >= 1024, "--large must be at least 1024");
        match &self.tls {
            Some(dir) => client::tls::use_directory(dir).map_err(anyhow::Error::msg),
            None => Ok(()),
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

pub fn import(import: Import) -> anyhow::Result<()> {
    import.options.prepare()?;
    import.progress.as_deref().map_or(Ok(()), place::check_record)?;
    ensure!(
        import.to.database.is_none(),
        "--to names no database: each key is copied to the number that it has at the source"
    );
    runtime()?.block_on(async {
        match (&import.from, &import.rdb) {
            (Some(from), _) if import.replication.replicate => {
                let record = import.progress.as_deref();
                replicate::import(from, &import.to, record, &import.replication, &import.options).await
            }
            (Some(from), _) => {
                live::import(from, &import.to, import.progress.as_deref(), &import.options).await
            }
            (None, Some(path)) => file::import(path, &import.to, import.progress.as_deref(), &import.options)
                .await
                .with_context(|| format!("{}", path.display())),
            (None, None) => unreachable!("clap requires one of them"),
        }
    })
}

pub fn export(export: Export) -> anyhow::Result<()> {
    export.options.prepare()?;
    runtime()?.block_on(export::export(&export.from, &export.rdb, &export.options))
}
