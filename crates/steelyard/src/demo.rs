//! `steelyard demo`: shows in about two minutes why unequal machines matter, with real processes
//! and real data.
//!
//! Six stores run on emulated devices of three kinds. They serve one load, first under the policy
//! `even` and then under `adaptive`. The store that leads most is killed with `kill -9` under load
//! and restarted. At the end every acknowledged write is read back.

mod chapter;
mod gauge;
mod kill;
mod load;
mod loading;
mod moves;
mod painter;
mod records;
mod screen;
mod story;
mod verify;
mod waits;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{signal, SignalKind};

use painter::Painter;

#[derive(clap::Args)]
pub struct Demo {
    /// Print plain text and exit after the last chapter, instead of serving until Ctrl-C. The exit
    /// code is 0 only if every acknowledged write was read back
    #[arg(long)]
    once: bool,
    /// Store i serves clients on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7000)]
    port: u16,
    /// Directory for the data [default: a temporary directory, in RAM if there is room]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Seconds of load measured under each policy
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    seconds_per_policy: u64,
    /// Emulated devices, one per store
    #[arg(long, value_name = "LIST", default_value = "nvm,2x high-end-ssd,3x plain-ssd")]
    devices: String,
    /// Speed factor for every device, so that the devices are the limit and not this machine's CPU
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0125)]
    device_speed: f64,
    /// Number of regions
    #[arg(long, value_name = "N", default_value_t = 24)]
    regions: u16,
    /// Number of clients, each of which waits for its reply before it sends again
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// The way in which candidates of elections are chosen: raft, or zookeeper, for which a server
    /// of Debian's package zookeeper is started
    #[arg(long, value_name = "raft|zookeeper", value_parser = ["raft", "zookeeper"])]
    election: Option<String>,
    /// Maximum number of records to load
    #[arg(long, value_name = "N", default_value_t = 15_000)]
    records: usize,
}

pub fn run(demo: Demo) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // The root future runs on the main thread, because the stores end when that thread ends.
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let once = demo.once;
        tokio::select! {
            shown = story::show(demo, Painter::new(once)) => return shown,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
        // A script must not mistake an interrupted demonstration for a successful one.
        match once {
            true => bail!("interrupted before every acknowledged write was read back"),
            false => Ok(()),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}
