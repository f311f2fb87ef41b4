//! `steelyard bench limit`: the smallest durable server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use lab::limit::{self, Options, Role};

/// Size of the log in bytes. It is so small that the page cache keeps it.
const LOG_BYTES: u64 = 256 << 20;

#[derive(clap::Args)]
pub struct Limit {
    /// Port to listen on, on the loopback interface
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// Directory of the log, which should be on a real disk
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Addresses of the followers, which must be running already
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', conflicts_with = "follow")]
    followers: Vec<SocketAddr>,
    /// Run as a follower
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
