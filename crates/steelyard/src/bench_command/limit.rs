//! `steelyard bench limit`: the smallest durable server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use bench::limit::{self, Options, Role};

/// So short that the page cache keeps it.
const LOG_BYTES: u64 = 256 << 20;

#[derive(clap::Args)]
pub struct Limit {
    /// Listens on this port of the loopback interface
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// Where the log is: a real disk
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Sends what it writes to these followers, which run already
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', conflicts_with = "follow")]
    followers: Vec<SocketAddr>,
    /// Is a follower
    #[arg(long)]
    follow: bool,
}

pub fn run(options: Limit) -> anyhow::Result<()> {
    let role = match options.follow {
        true => Role::Follower,
        false => Role::Leader { followers: options.followers },
    };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    limit::serve(&Options { listen, dir: options.dir, log_bytes: LOG_BYTES, role })
}
