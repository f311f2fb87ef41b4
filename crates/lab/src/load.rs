//! A closed-loop load on one server: N connections, each with P commands in flight.
//!
//! Latency is measured from sending a pipeline to receiving each of its replies, as
//! `redis-benchmark` does. Nothing is recorded during the warm-up. The CPU time of the server's
//! processes is measured over the same window.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{bail, Context};
use hdrhistogram::Histogram;
use resp::Reply;
use serde::Serialize;
use tokio::task::JoinSet;
use types::Draw;

use crate::measure::cpu_time;
use client::connection::Connection;
use client::latency::histogram;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    Set,
    Get,
    /// SET and GET, half and half.
    Mixed,
}

#[derive(Clone, Debug)]
pub struct Load {
    pub target: SocketAddr,
    pub mix: Mix,
    pub connections: usize,
    pub pipeline: usize,
    pub value_bytes: usize,
    /// The number of keys. The first is `key:000000000000`, and each is drawn equally often.
    pub keys: u64,
    pub warmup: Duration,
    pub window: Duration,
    /// The server's processes.
    pub pids: Vec<u32>,
    pub seed: u64,
    /// The command that each connection sends first; empty for none.
    pub opening: &'static [&'static str],
}

#[derive(Clone, Debug)]
pub struct Measured {
    pub operations: u64,
    pub window: Duration,
    /// Microseconds.
    pub latency: Histogram<u64>,
    /// CPU time of all `pids` over the window. `None` if one of them has ended.
    pub server_cpu: Option<Duration>,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.window.as_secs_f64()
    }

    pub fn cpu_micros_per_operation(&self) -> Option<f64> {
        Some(self.server_cpu?.as_micros() as f64 / self.operations.max(1) as f64)
    }
}

pub fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Writes every key once.
pub async fn fill(target: SocketAddr, keys: u64, value_bytes: usize) -> anyhow::Result<()> {
    const CONNECTIONS: u64 = 8;
    const PIPELINE: u64 = 64;
    let mut tasks = JoinSet::new();
    for part in 0..CONNECTIONS {
        tasks.spawn(async move {
            let mut connection = Connection::open(target, CONNECT).await?;
            let value = client::value::printable(value_bytes, part);
            let numbers: Vec<u64> = (part..keys).step_by(CONNECTIONS as usize).collect();
            for batch in numbers.chunks(PIPELINE as usize) {
                for number in batch {
                    connection.queue(&[b"SET", key(*number).as_bytes(), &value]);
                }
                connection.flush().await?;
                for _ in batch {
                    refuse_errors(connection.reply().await?)?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?.with_context(|| format!("filling {target}"))?;
    }
    Ok(())
}

const CONNECT: Duration = Duration::from_secs(5);

fn refuse_errors(reply: Reply) -> anyhow::Result<()> {
    match reply {
        Reply::Error(text) => bail!("the server answered: {text}"),
        _ => Ok(()),
    }
}

/// Runs the load. It is an error if the server sends an error reply, because figures over errors
/// would mean nothing.
pub async fn run(load: &Load) -> anyhow::Result<Measured> {
    assert!(
        load.connections > 0 && load.pipeline > 0 && load.keys > 0,
        "a load must have connections, commands and keys"
    );
    let mut connections = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        let mut connection = Connection::open(load.target, CONNECT).await?;
        if !load.opening.is_empty() {
            refuse_errors(connection.call(load.opening).await?)?;
        }
        connections.push(connection);
    }
    let from = Instant::now() + load.warmup;
    let until = from + load.window;
    let mut tasks = JoinSet::new();
    for (number, connection) in connections.into_iter().enumerate() {
        let load = load.clone();
        tasks.spawn(async move { drive(connection, load, number as u64, from, until).await });
    }
    let cpu = |pids: &[u32]| pids.iter().map(|pid| cpu_time(*pid)).sum::<Option<Duration>>();
    tokio::time::sleep_until(from.into()).await;
    let before = cpu(&load.pids);
    tokio::time::sleep_until(until.into()).await;
    let after = cpu(&load.pids);
    let mut latency = histogram();
    while let Some(done) = tasks.join_next().await {
        latency.add(done?.with_context(|| format!("load on {}", load.target))?)?;
    }
    let server_cpu = match (before, after) {
        (Some(before), Some(after)) if !load.pids.is_empty() => Some(after.saturating_sub(before)),
        _ => None,
    };
    Ok(Measured { operations: latency.len(), window: load.window, latency, server_cpu })
}

async fn drive(
    mut connection: Connection,
    load: Load,
    number: u64,
    from: Instant,
    until: Instant,
) -> anyhow::Result<Histogram<u64>> {
    let mut draw = Draw::new(load.seed.wrapping_mul(1_000_003).wrapping_add(number));
    let value = client::value::printable(load.value_bytes, number);
    let mut latency = histogram();
    loop {
        for _ in 0..load.pipeline {
            let key = key(draw.below(load.keys));
            let write = match load.mix {
                Mix::Set => true,
                Mix::Get => false,
                Mix::Mixed => draw.number() & 1 == 0,
            };
            match write {
                true => connection.queue(&[b"SET", key.as_bytes(), &value]),
                false => connection.queue(&[b"GET", key.as_bytes()]),
            }
        }
        let sent = Instant::now();
        if sent >= until {
            return Ok(latency);
        }
        connection.flush().await?;
        for _ in 0..load.pipeline {
            refuse_errors(connection.reply().await?)?;
            let now = Instant::now();
            if now >= from && now < until {
                latency.saturating_record(now.duration_since(sent).as_micros() as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_length() {
        assert_eq!(key(42), "key:000000000042");
    }
}
