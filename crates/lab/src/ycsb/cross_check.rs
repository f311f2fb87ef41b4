//! The same workload run by two programs on the same cluster: ours and go-ycsb.
//!
//! Absolute rates differ, because the clients need different amounts of CPU. The two must agree on
//! the comparison of two placements: on the ratio of the figures under one policy and under
//! another.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{ensure, Context};
use serde::{Deserialize, Serialize};

use super::run::{run, Settings};
use super::workload::{Kind, Workload};
use crate::peers::ycsb as go_ycsb;
use client::cluster_client::{ClusterClient, Patience};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    pub per_second: f64,
    pub mean_us: f64,
    pub p99_us: f64,
}

/// The results of one workload by both programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossCheck {
    pub workload: Workload,
    pub ours: Side,
    pub go_ycsb: Side,
    /// Number of go-ycsb's operations that failed. With too many there is no result.
    pub go_ycsb_errors: u64,
}

impl CrossCheck {
    /// Returns our rate divided by go-ycsb's.
    pub fn ratio(&self) -> f64 {
        self.ours.per_second / self.go_ycsb.per_second.max(f64::MIN_POSITIVE)
    }
}

/// The program that runs first. The compaction that it leaves behind slows the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    Ours,
    GoYcsb,
}

/// Returns an error if the two programs cannot run the same workload.
pub fn comparable(workload: Workload) -> anyhow::Result<()> {
    ensure!(workload != Workload::E, "go-ycsb reads no ranges from Redis: workload E cannot be compared");
    Ok(())
}

/// Runs `settings` by both programs, one after the other. Each inserts its own records under
/// `Load`, so both must have run `Load` before another workload.
pub async fn cross_check(
    stores: &[SocketAddr],
    tools: &Path,
    settings: &Settings,
    patience: Patience,
    first: First,
) -> anyhow::Result<CrossCheck> {
    let program = tokio::task::block_in_place(|| go_ycsb::program(tools))?;
    let program = program.context("go-ycsb cannot be built: Go is not installed")?;
    let (ours, (go_ycsb, go_ycsb_errors)) = match first {
        First::Ours => {
            let ours = by_ours(stores, settings, patience).await?;
            (ours, by_go_ycsb(&program, stores, settings, patience).await?)
        }
        First::GoYcsb => {
            let theirs = by_go_ycsb(&program, stores, settings, patience).await?;
            (by_ours(stores, settings, patience).await?, theirs)
        }
    };
    Ok(CrossCheck { workload: settings.workload, ours, go_ycsb, go_ycsb_errors })
}

async fn by_ours(stores: &[SocketAddr], settings: &Settings, patience: Patience) -> anyhow::Result<Side> {
    let client = Arc::new(ClusterClient::new(stores.to_vec(), patience));
    let summary = run(client, settings.clone(), |_| {}).await?;
    let failed = summary.missing + summary.not_done + summary.unknown;
    ensure!(
        failed as f64 <= summary.operations as f64 * ERRORS_MAX,
        "too many operations of our run failed, so its figures mean nothing: {}",
        summary.faults().join(", ")
    );
    Ok(Side {
        per_second: summary.per_second(),
        mean_us: summary.latency.mean_us,
        p99_us: summary.latency.p99_us as f64,
    })
}

/// Returns go-ycsb's results, and the number of its operations that failed.
async fn by_go_ycsb(
    program: &Path,
    stores: &[SocketAddr],
    settings: &Settings,
    patience: Patience,
) -> anyhow::Result<(Side, u64)> {
    let mut command = Command::new(program);
    command.args(arguments(stores, settings, patience)?);
    let output = tokio::task::spawn_blocking(move || client::process::output(&mut command)).await??;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let tail = || text.lines().rev().take(3).collect::<Vec<_>>().join(" / ");
    ensure!(output.status.success(), "go-ycsb failed: {}", tail());
    let (total, done) =
        go_ycsb::parse(&text, "TOTAL", 0).with_context(|| format!("go-ycsb said: {}", tail()))?;
    let go_ycsb_errors = errors(&text);
    ensure!(
        go_ycsb_errors as f64 <= done as f64 * ERRORS_MAX,
        "{go_ycsb_errors} of {done} operations of go-ycsb failed, so its figures mean nothing"
    );
    let side = Side { per_second: total.per_second, mean_us: total.mean_us, p99_us: total.p99_us };
    Ok((side, go_ycsb_errors))
}

/// Maximum part of operations that may fail. With more, the rate means nothing. A leader that
/// changes during the run costs go-ycsb a few operations, because it does not send them again.
const ERRORS_MAX: f64 = 0.001;

/// Returns the number of failed operations of all kinds.
fn errors(text: &str) -> u64 {
    let kinds = ["READ_ERROR", "UPDATE_ERROR", "INSERT_ERROR", "READ_MODIFY_WRITE_ERROR"];
    kinds.iter().filter_map(|kind| go_ycsb::parse(text, kind, 0)).map(|(_, count)| count).sum()
}

/// Returns the arguments that make go-ycsb run the same workload.
fn arguments(stores: &[SocketAddr], settings: &Settings, patience: Patience) -> anyhow::Result<Vec<String>> {
    ensure!(
        settings.pipeline == 1 && settings.fields == 1 && settings.group == 1 && settings.at_most.is_none(),
        "go-ycsb has no pipelines, no groups and no time limit, and the comparison needs records of one field"
    );
    comparable(settings.workload)?;
    let load = settings.workload == Workload::Load;
    let share = |kind: Kind| settings.workload.share(kind) as f64 / 100.0;
    let mut arguments = vec![if load { "load" } else { "run" }.to_owned(), "redis".to_owned()];
    let addresses: Vec<String> = stores.iter().map(ToString::to_string).collect();
    let mut properties = vec![
        "workload=core".to_owned(),
        format!("recordcount={}", settings.records),
        format!("operationcount={}", settings.operations),
        format!("threadcount={}", settings.threads),
        "fieldcount=1".to_owned(),
        format!("fieldlength={}", settings.field_bytes),
        format!("requestdistribution={}", settings.distribution.name()),
        // The timeout is in nanoseconds. By default, threads would share ten connections per CPU.
        format!("redis.read_timeout={}", patience.reply.as_nanos()),
        format!("redis.pool_size={}", settings.threads),
        // Progress lines would be parsed as results.
        "measurement.interval=3600".to_owned(),
        "redis.mode=cluster".to_owned(),
        "redis.datatype=string".to_owned(),
        "redis.max_redirects=8".to_owned(),
        format!("redis.addr={}", addresses.join(";")),
    ];
    if !load {
        properties.push(format!("readproportion={}", share(Kind::Read)));
        properties.push(format!("updateproportion={}", share(Kind::Update)));
        properties.push(format!("insertproportion={}", share(Kind::Insert)));
        properties.push(format!("readmodifywriteproportion={}", share(Kind::ReadModifyWrite)));
        properties.push("scanproportion=0".to_owned());
    }
    if let Some(target) = settings.target_per_s {
        properties.push(format!("target={}", target.round()));
    }
    for property in properties {
        arguments.extend(["-p".to_owned(), property]);
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_ycsb_is_told_the_same_workload() {
        let stores = ["127.0.0.1:7000".parse().unwrap(), "127.0.0.1:7001".parse().unwrap()];
        let settings = Settings { operations: 77, threads: 5, ..Settings::new(Workload::B, 900) };
        let arguments = arguments(&stores, &settings, Patience::default()).unwrap();
        assert_eq!(arguments[..2], ["run", "redis"]);
        for wanted in [
            "recordcount=900",
            "operationcount=77",
            "threadcount=5",
            "redis.pool_size=5",
            "redis.read_timeout=8000000000",
            "requestdistribution=zipfian",
            "readproportion=0.95",
            "updateproportion=0.05",
            "redis.addr=127.0.0.1:7000;127.0.0.1:7001",
        ] {
            assert!(arguments.iter().any(|argument| argument == wanted), "{wanted}: {arguments:?}");
        }
        for other in [
            Settings { pipeline: 2, ..settings.clone() },
            Settings { group: 2, ..settings.clone() },
            Settings { workload: Workload::E, ..settings },
        ] {
            assert!(super::arguments(&stores, &other, Patience::default()).is_err(), "{other:?}");
        }
    }

    #[test]
    fn failed_operations_are_counted_over_all_kinds() {
        let line = |kind: &str, count: u64| {
            format!("{kind} - Takes(s): 5.2, Count: {count}, OPS: 0.4, Avg(us): 1845, 99th(us): 2977\n")
        };
        let text =
            line("READ", 1000) + &line("READ_ERROR", 2) + &line("UPDATE_ERROR", 3) + &line("TOTAL", 1000);
        assert_eq!(errors(&text), 5);
        assert_eq!(errors(&line("READ", 1000)), 0);
    }

    #[test]
    fn the_ratio_is_of_rates() {
        let side = |per_second| Side { per_second, mean_us: 1.0, p99_us: 2.0 };
        let check =
            CrossCheck { workload: Workload::A, ours: side(150.0), go_ycsb: side(100.0), go_ycsb_errors: 0 };
        assert_eq!(check.ratio(), 1.5);
    }
}
