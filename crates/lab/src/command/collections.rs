//! `steelyard bench collections`: collections of many elements on a running server.

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use anyhow::Context;
use lab::collections::{self, Kind, Plan};

#[derive(clap::Args)]
pub struct Collections {
    /// Server to measure
    #[arg(short, long, value_name = "HOST", default_value = "127.0.0.1")]
    server: String,
    #[arg(short, long, value_name = "PORT", default_value_t = 6379)]
    port: u16,
    /// Number of elements of each collection
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    elements: u64,
    /// Kinds of collections
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "hash,set,zset,list,stream")]
    kinds: Vec<Kind>,
    /// Also write the steps to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub async fn run(options: Collections) -> anyhow::Result<()> {
    let (host, port) = (options.server.as_str(), options.port);
    let server = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    let server = server.with_context(|| format!("{host} is no address of a server"))?;
    let report = collections::run(&Plan { server, kinds: options.kinds, elements: options.elements }).await?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    print!("{}", report.page());
    Ok(())
}
