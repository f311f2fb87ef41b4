//! Figure 5.6: random reads, warm: one store, Redis, and the engine alone.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use bytes::Bytes;
use client::latency::histogram;
use lab::load::{self, Mix};
use lab::paxstore::Measured;
use lab::peers::servers;
use rocks::freeze::{CompactionPriority, Freezer, Row, Way};
use types::Draw;

use super::stores::{leader_address, Device, Wanted};
use super::{turns, Bench, Busy, Loaded, Request};

const PLACE: &str = "disk";
const LOAD: &str = "1 client";
/// Rows in one batch into the engine.
const BATCH: u64 = 10_000;

#[derive(Clone, Copy)]
enum Side {
    Ours,
    Redis,
    Engine,
}

pub async fn measure(bench: &Bench, round: usize) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    let records = bench.scale().read;
    for bytes in bench.scale().sizes.clone() {
        for side in turns(&[Side::Ours, Side::Redis, Side::Engine], round) {
            let dir = bench.directory()?;
            match side {
                Side::Ours => {
                    let cluster = bench.start(&Wanted::new(Device::Disk, 1)).await?;
                    let target = leader_address(&cluster).await?;
                    let read = over_loopback(bench, target, bytes, round).await?;
                    measured.samples.push(read.sample(PLACE, LOAD, "Steelyard", bytes));
                }
                Side::Redis => match servers::installed("redis-server") {
                    Some(program) => {
                        let server = servers::redis(dir.path(), &program).await?;
                        let read = over_loopback(bench, server.clients[0], bytes, round).await?;
                        measured.samples.push(read.sample(PLACE, LOAD, "Redis", bytes));
                    }
                    None => measured.skipped.push("Redis: redis-server is not installed".to_owned()),
                },
                Side::Engine => {
                    let path = dir.path().to_owned();
                    let times = [bench.scale().warmup_ms, bench.scale().window_ms].map(Duration::from_millis);
                    let work = move || engine(&path, records, bytes, times, round as u64);
                    let read = tokio::task::spawn_blocking(work).await??;
                    measured.samples.push(read.sample(PLACE, LOAD, "RocksDB alone", bytes));
                }
            }
        }
    }
    Ok(measured)
}

async fn over_loopback(
    bench: &Bench,
    target: std::net::SocketAddr,
    bytes: u64,
    round: usize,
) -> anyhow::Result<Loaded> {
    let keys = bench.scale().read;
    load::fill(target, keys, bytes as usize).await?;
    bench.load(Request { target, mix: Mix::Get, clients: 1, bytes, keys, seed: round }).await
}

/// Reads random rows of RocksDB with a store's options. Only the mean latency is measured, because
/// a read may take less than a microsecond.
fn engine(
    dir: &Path,
    records: u64,
    bytes: u64,
    [warmup, window]: [Duration; 2],
    seed: u64,
) -> anyhow::Result<Loaded> {
    let engine = Freezer::open(dir, Way::Memtable, &rocks::Options::default(), CompactionPriority::Normal)?;
    let value = Bytes::from(client::value::printable(bytes as usize, seed));
    for first in (0..records).step_by(BATCH as usize) {
        let rows: Vec<Row> = (first..records.min(first + BATCH))
            .map(|number| (Bytes::from(load::key(number)), Some(value.clone())))
            .collect();
        engine.freeze(&rows, &mut |_| ())?;
    }
    lab::freeze::settle(&engine)?;
    let mut draw = Draw::new(seed);
    let mut read = |until: Instant| -> anyhow::Result<u64> {
        let mut reads = 0;
        while Instant::now() < until {
            let row = engine.get(load::key(draw.below(records)).as_bytes())?.context("a row is missing")?;
            ensure!(row.len() as u64 == bytes, "a row has {} bytes", row.len());
            reads += 1;
        }
        Ok(reads)
    };
    read(Instant::now() + warmup)?;
    let (busy, started) = (Busy::start(), Instant::now());
    let reads = read(started + window)?;
    let elapsed = started.elapsed();
    let mean_us = elapsed.as_secs_f64() * 1e6 / reads.max(1) as f64;
    let mut loaded = Loaded::of(&histogram(), elapsed, busy.cpus());
    loaded.per_second = reads as f64 / elapsed.as_secs_f64();
    loaded.latency.count = reads;
    loaded.latency.mean_us = mean_us;
    Ok(loaded)
}
