//! One store beside Redis with values of other sizes, other commands and more connections. The
//! client is `redis-benchmark`.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::redis::parse_csv;
use super::servers::{self, Server};
use super::{say, Comparison, Plan, Report, Sample, Side, SyncTime};
use crate::measure::{cpu_time, fdatasync_micros};

/// The ratio to reach in every case.
const AIM: f64 = 0.9;
/// The part of the window for which a case runs before it is measured.
const WARM_UP_PART: f64 = 0.4;

struct Case {
    name: &'static str,
    connections: usize,
    pipeline: usize,
    keys: u64,
    value_bytes: usize,
    /// A test of `redis-benchmark`, or a command in which it replaces `__rand_int__`.
    command: &'static [&'static str],
    /// Number of requests of the first run, which measures the rate.
    first: u64,
}

const SMALL: Case = Case {
    name: "",
    connections: 50,
    pipeline: 1,
    keys: 100_000,
    value_bytes: 64,
    command: &["-t", "set"],
    first: 20_000,
};
const GET: &[&str] = &["-t", "get"];
const OF_16_KIB: Case = Case { value_bytes: 16 << 10, keys: 5000, first: 5000, ..SMALL };
const OF_1_MIB: Case = Case { value_bytes: 1 << 20, keys: 100, first: 300, connections: 8, ..SMALL };
const OF_1_KIB: Case = Case { value_bytes: 1024, ..SMALL };

/// A case that reads follows the one that writes what it reads.
const CASES: [Case; 15] = [
    Case { name: "SET 64 B", ..SMALL },
    Case { name: "SET 64 B, pipeline 16", pipeline: 16, ..SMALL },
    Case { name: "GET 64 B", command: GET, ..SMALL },
    Case { name: "SET 16 KiB", ..OF_16_KIB },
    Case { name: "GET 16 KiB", command: GET, ..OF_16_KIB },
    Case { name: "SET 1 MiB, 8 connections", ..OF_1_MIB },
    Case { name: "GET 1 MiB, 8 connections", command: GET, ..OF_1_MIB },
    Case { name: "INCR", command: &["-t", "incr"], ..SMALL },
    Case { name: "HSET, one hash", command: &["-t", "hset"], ..SMALL },
    Case { name: "MSET of 10 keys", command: &["-t", "mset"], ..SMALL },
    Case { name: "GET, absent keys", command: &["GET", "absent:__rand_int__"], ..SMALL },
    Case { name: "SET 1 KiB, 1,000 connections", connections: 1000, ..OF_1_KIB },
    Case { name: "GET 1 KiB, 1,000 connections", connections: 1000, command: GET, ..OF_1_KIB },
    Case { name: "SET 1 KiB, 9,000 connections", connections: 9000, ..OF_1_KIB },
    Case { name: "GET 1 KiB, 9,000 connections", connections: 9000, command: GET, ..OF_1_KIB },
];

pub async fn compare(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let (Some(redis), Some(benchmark)) =
        (servers::installed("redis-server"), servers::installed("redis-benchmark"))
    else {
        report.skip("redis-server or redis-benchmark is not installed: no other cases");
        return Ok(());
    };
    let neighbour = "redis-server, appendfsync always";
    let mut comparisons: Vec<Comparison> = CASES
        .iter()
        .map(|case| Comparison::new(case.name.to_owned(), "redis-benchmark", neighbour, AIM))
        .collect();
    for round in 0..plan.rounds {
        report.syncs.push(SyncTime::of(round, &fdatasync_micros(&plan.dir, 200)?));
        for side in Side::order(round) {
            let server = match side {
                Side::Ours => servers::steelyard(&plan.dir, &plan.steelyard, 1, 1).await?,
                Side::Theirs => servers::redis(&plan.dir, &redis).await?,
                Side::Limit => continue,
            };
            for (case, comparison) in CASES.iter().zip(&mut comparisons) {
                say(&format!("round {} of {}: {side:?}: {}", round + 1, plan.rounds, case.name));
                let window = plan.window.as_secs_f64();
                let first = run(&benchmark, &server, case, case.first, round).await?;
                let warm = (first.per_second * window * WARM_UP_PART) as u64;
                let warm = run(&benchmark, &server, case, warm.max(case.first), round).await?;
                let requests = (warm.per_second * window) as u64;
                let sample = run(&benchmark, &server, case, requests.max(case.first), round).await?;
                comparison.of(side).push(sample);
            }
        }
    }
    report.comparisons.append(&mut comparisons);
    Ok(())
}

async fn run(
    benchmark: &Path,
    server: &Server,
    case: &Case,
    requests: u64,
    round: usize,
) -> anyhow::Result<Sample> {
    let mut command = Command::new(benchmark);
    command.args(["-p", &server.clients[0].port().to_string(), "--csv"]);
    command.args(["-c", &case.connections.to_string(), "-P", &case.pipeline.to_string()]);
    command.args(["-d", &case.value_bytes.to_string(), "-r", &case.keys.to_string()]);
    command.args(["-n", &requests.to_string()]).args(case.command);
    let cpu = || server.pids().into_iter().map(cpu_time).sum::<Option<std::time::Duration>>();
    let before = cpu();
    let output = tokio::task::spawn_blocking(move || client::process::output(&mut command)).await??;
    let after = cpu();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sample = parse_csv(&text, round).with_context(|| format!("redis-benchmark said: {}", text.trim()))?;
    let cpu_us = before.zip(after).map(|(before, after)| (after - before).as_secs_f64() * 1e6);
    Ok(Sample { cpu_us_per_operation: cpu_us.map(|us| us / requests as f64), ..sample })
}
