//! One store beside `redis-server --appendonly yes --appendfsync always` and the limit: SET and GET
//! of 1 KiB over 50 connections, with one and with sixteen commands in flight on each. The client
//! is our own load generator. `redis-benchmark` repeats the measurements as a cross-check.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::servers::{self, Server};
use super::{say, Comparison, Plan, Report, Sample, Side, SyncTime};
use crate::load::{self, Load, Mix};
use crate::measure::fdatasync_micros;

const CONNECTIONS: usize = 50;
const VALUE_BYTES: usize = 1024;
const KEYS: u64 = 100_000;
const WARM_UP: Duration = Duration::from_secs(2);
const LOADS: [(Mix, usize); 4] = [(Mix::Set, 1), (Mix::Set, 16), (Mix::Get, 1), (Mix::Get, 16)];
/// The ratios to reach, by load.
const AIMS: [f64; 4] = [1.25, 1.25, 0.95, 1.0];

pub async fn compare(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let Some(program) = servers::installed("redis-server") else {
        report.skip("redis-server is not installed: no comparison with Redis");
        return Ok(());
    };
    let name = |(mix, pipeline): (Mix, usize)| {
        let mix = if mix == Mix::Set { "SET" } else { "GET" };
        format!("{mix} 1 KiB, {CONNECTIONS} connections, pipeline {pipeline}")
    };
    let comparisons = |client: &str| -> Vec<Comparison> {
        let comparison =
            |(load, aim)| Comparison::new(name(load), client, "redis-server, appendfsync always", aim);
        LOADS.into_iter().zip(AIMS).map(comparison).collect()
    };
    let (mut own, mut checked) = (comparisons("steelyard bench"), comparisons("redis-benchmark"));
    let benchmark = servers::installed("redis-benchmark");
    if benchmark.is_none() {
        report.skip("redis-benchmark is not installed: no cross-check of our load generator");
    }
    for round in 0..plan.rounds {
        report.syncs.push(SyncTime::of(round, &fdatasync_micros(&plan.dir, 200)?));
        for side in Side::order(round) {
            let (server, who) = match side {
                Side::Ours => (servers::steelyard(&plan.dir, &plan.steelyard, 1, 1).await?, "steelyard"),
                Side::Theirs => (servers::redis(&plan.dir, &program).await?, "redis"),
                Side::Limit => (servers::limit(&plan.dir, &plan.steelyard, 1).await?, "limit"),
            };
            load::fill(server.clients[0], KEYS, VALUE_BYTES).await?;
            for (index, load) in LOADS.into_iter().enumerate() {
                say(&format!("round {} of {}: {who}: {}", round + 1, plan.rounds, name(load)));
                let sample = measure(plan, &server, load, round).await?;
                let rate = sample.per_second;
                own[index].of(side).push(sample);
                if let Some(benchmark) = &benchmark {
                    // The benchmark sends half as many requests as our run of the window made,
                    // within bounds.
                    let requests = (rate * plan.window.as_secs_f64() / 2.0) as u64;
                    let requests = requests.clamp(5_000, 2_000_000);
                    let sample = cross_check(benchmark, &server, load, requests, round).await?;
                    checked[index].of(side).push(sample);
                }
            }
        }
    }
    report.comparisons.append(&mut own);
    if benchmark.is_some() {
        report.comparisons.append(&mut checked);
    }
    Ok(())
}

async fn measure(
    plan: &Plan,
    server: &Server,
    (mix, pipeline): (Mix, usize),
    round: usize,
) -> anyhow::Result<Sample> {
    let load = Load {
        target: server.clients[0],
        mix,
        connections: CONNECTIONS,
        pipeline,
        value_bytes: VALUE_BYTES,
        keys: KEYS,
        warmup: WARM_UP,
        window: plan.window,
        pids: server.pids(),
        seed: round as u64,
        opening: &[],
    };
    // Both syncs and commands are counted over the whole run with its warm-up.
    let counters = || async { Some((server.counter("log_syncs").await?, server.counter("commands").await?)) };
    let before = counters().await;
    let measured = load::run(&load).await?;
    let after = counters().await;
    let syncs_per_operation = match (before, after) {
        (Some((s0, c0)), Some((s1, c1))) if c1 > c0 => Some((s1 - s0) as f64 / (c1 - c0) as f64),
        _ => None,
    };
    Ok(Sample {
        round,
        per_second: measured.per_second(),
        mean_us: measured.latency.mean(),
        p99_us: measured.latency.value_at_quantile(0.99) as f64,
        cpu_us_per_operation: measured.cpu_micros_per_operation(),
        syncs_per_operation,
    })
}

async fn cross_check(
    program: &std::path::Path,
    server: &Server,
    (mix, pipeline): (Mix, usize),
    requests: u64,
    round: usize,
) -> anyhow::Result<Sample> {
    let mut command = Command::new(program);
    command.args(["-p", &server.clients[0].port().to_string(), "--csv"]);
    command.args(["-t", if mix == Mix::Set { "set" } else { "get" }, "-d", &VALUE_BYTES.to_string()]);
    command.args(["-c", &CONNECTIONS.to_string(), "-P", &pipeline.to_string()]);
    command.args(["-n", &requests.to_string(), "-r", &KEYS.to_string()]);
    let output = tokio::task::spawn_blocking(move || client::process::output(&mut command)).await??;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse_csv(&text, round).with_context(|| format!("redis-benchmark said: {}", text.trim()))
}

/// Parses a line of names (`"test","rps","avg_latency_ms",...,"p99_latency_ms",...`) and a line of
/// values.
pub(super) fn parse_csv(text: &str, round: usize) -> Option<Sample> {
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let fields =
        |line: &str| line.split(',').map(|f| f.trim_matches('"').to_owned()).collect::<Vec<String>>();
    let (names, values) = (fields(lines.next()?), fields(lines.next()?));
    let of = |name: &str| values.get(names.iter().position(|known| known == name)?)?.parse::<f64>().ok();
    Some(Sample {
        round,
        per_second: of("rps")?,
        mean_us: of("avg_latency_ms")? * 1e3,
        p99_us: of("p99_latency_ms")? * 1e3,
        cpu_us_per_operation: None,
        syncs_per_operation: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_redis_benchmark_are_found_by_name() {
        let text =
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                    \"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"52631.58\",\"0.500\",\"0.100\",\"0.400\",\"0.900\",\"1.250\",\"2.000\"\n";
        let sample = parse_csv(text, 3).unwrap();
        assert_eq!(
            (sample.per_second, sample.mean_us, sample.p99_us, sample.round),
            (52631.58, 500.0, 1250.0, 3)
        );
        assert!(parse_csv("Could not connect", 0).is_none());
    }
}
