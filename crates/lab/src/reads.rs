//! The cost of a read by the way in which it is proved: `steelyard bench reads`.
//!
//! Three stores hold one region. Each way is measured in each round, at the leader or at a
//! follower, with one connection and with many. The CPU time is that of all three stores, because
//! a proof also costs the stores that are asked.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context};
use client::admin::{AdminClient, ConfigQuery, ConfigRequest, RegionsQuery};
use client::table::{count, micros, Align, Table};
use serde::Serialize;
use types::StoreId;

use crate::load::{self, Load, Mix};
use crate::measure::{fdatasync_micros, median};
use crate::page::Page;
use crate::peers::servers::{self, Server};

const VALUE_BYTES: usize = 512;
const KEYS: u64 = 10_000;
const CONNECTIONS: [usize; 2] = [1, 50];
const WARM_UP: Duration = Duration::from_millis(500);
const SETTING: &str = "strong-reads";
/// Maximum time until every store knows a changed setting.
const PATIENCE: Duration = Duration::from_secs(30);

/// A way to prove that a read is current enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Way {
    pub name: &'static str,
    /// The value of `strong-reads`.
    strong_reads: &'static str,
    /// The command with which each connection begins.
    opening: &'static [&'static str],
}

pub const WAYS: [Way; 5] = [
    Way { name: "lease", strong_reads: "lease", opening: &[] },
    Way { name: "epoch-check", strong_reads: "epoch-check", opening: &[] },
    Way { name: "read-index", strong_reads: "read-index", opening: &[] },
    Way { name: "weak, at a follower", strong_reads: "lease", opening: &["READONLY"] },
    Way { name: "weak, at most 50 ms old", strong_reads: "lease", opening: &["READONLY", "MAXLAG", "50"] },
];

pub struct Plan {
    /// The directory for the stores' data.
    pub dir: PathBuf,
    /// The `steelyard` program.
    pub steelyard: PathBuf,
    pub rounds: usize,
    pub window: Duration,
}

#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub round: usize,
    pub way: &'static str,
    pub connections: usize,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// CPU time of all three stores.
    pub cpu_us_per_read: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub rounds: usize,
    pub window_s: f64,
    /// The median time of an `fdatasync` of 4 KiB in each round.
    pub sync_us: Vec<f64>,
    pub samples: Vec<Sample>,
}

/// Measures all ways, which take turns in each round. Must be called from the main thread, because
/// the stores end when the calling thread ends.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    ensure!(plan.rounds > 0, "a comparison needs at least one round");
    std::fs::create_dir_all(&plan.dir).with_context(|| format!("{} cannot be made", plan.dir.display()))?;
    let server = servers::steelyard(&plan.dir, &plan.steelyard, 3, 1).await?;
    let leader = leader(&server).await?;
    load::fill(server.clients[leader], KEYS, VALUE_BYTES).await?;
    let window_s = plan.window.as_secs_f64();
    let mut report = Report { rounds: plan.rounds, window_s, sync_us: Vec::new(), samples: Vec::new() };
    for round in 0..plan.rounds {
        report.sync_us.push(sync_us(&plan.dir)?);
        let mut ways = WAYS;
        ways.rotate_left(round % WAYS.len());
        for way in ways {
            set(&server, way.strong_reads).await?;
            for connections in CONNECTIONS {
                report.samples.push(measure(plan, &server, way, connections, round).await?);
            }
        }
    }
    Ok(report)
}

fn sync_us(dir: &Path) -> anyhow::Result<f64> {
    Ok(fdatasync_micros(dir, 200)?.value_at_quantile(0.5) as f64)
}

async fn measure(
    plan: &Plan,
    server: &Server,
    way: Way,
    connections: usize,
    round: usize,
) -> anyhow::Result<Sample> {
    let leader = leader(server).await?;
    let is_weak = !way.opening.is_empty();
    let store = if is_weak { (leader + 1) % server.clients.len() } else { leader };
    let load = Load {
        target: server.clients[store],
        mix: Mix::Get,
        connections,
        pipeline: 1,
        value_bytes: VALUE_BYTES,
        keys: KEYS,
        warmup: WARM_UP,
        window: plan.window,
        pids: server.pids(),
        seed: round as u64,
        opening: way.opening,
    };
    let measured = load::run(&load).await.with_context(|| format!("reads by {}", way.name))?;
    let at = |quantile| measured.latency.value_at_quantile(quantile) as f64;
    Ok(Sample {
        round,
        way: way.name,
        connections,
        per_second: measured.per_second(),
        p50_us: at(0.5),
        p99_us: at(0.99),
        cpu_us_per_read: measured.cpu_micros_per_operation().context("a store has ended")?,
    })
}

/// Returns the position of the store that leads the region, once there is one.
async fn leader(server: &Server) -> anyhow::Result<usize> {
    let leads = |store: StoreId| usize::try_from(store).ok();
    eventually(server, "the region has a leader", move |admin| {
        let regions = admin.ask(&RegionsQuery {}).ok()?;
        let row = regions.iter().find(|region| region.first_slot.is_some())?;
        row.leader.and_then(leads)
    })
    .await
}

/// Changes `strong-reads`, and returns once every store knows the value.
async fn set(server: &Server, value: &'static str) -> anyhow::Result<()> {
    eventually(server, "the setting is accepted", move |admin| {
        let request = ConfigRequest { name: SETTING.into(), value: value.into() };
        admin.ask(&request).ok().map(drop)
    })
    .await?;
    eventually(server, "every store knows the setting", |admin| {
        let rows = admin.ask(&ConfigQuery {}).ok()?;
        let row = rows.iter().find(|row| row.name == SETTING)?;
        (!row.note.contains("not known")).then_some(())
    })
    .await
}

async fn eventually<T: Send + 'static>(
    server: &Server,
    what: &str,
    look: impl Fn(&AdminClient) -> Option<T> + Clone + Send + 'static,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    let admin = server.admins.first().context("the stores have admin endpoints")?;
    loop {
        let (admin, look) = (admin.clone(), look.clone());
        if let Some(found) = tokio::task::spawn_blocking(move || look(&admin)).await? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("not within {} s: {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl Report {
    /// Returns the medians as a page of Markdown.
    pub fn page(&self) -> String {
        let mut page = Page::new("Reads by their proof");
        page.paragraph(format!(
            "Three stores on this machine, one region, GET of {VALUE_BYTES} bytes that are in RAM, pipeline 1. Medians \
             of {} interleaved rounds of {} s; in parentheses the lowest and the highest. CPU is that of all three \
             stores.",
            self.rounds, self.window_s
        ));
        let mut table = Table::new([
            ("proof", Align::Left),
            ("connections", Align::Right),
            ("reads/s", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("CPU a read", Align::Right),
        ]);
        for connections in CONNECTIONS {
            for way in WAYS {
                let of = |value: fn(&Sample) -> f64| -> Vec<f64> {
                    let is_one =
                        |sample: &&Sample| sample.way == way.name && sample.connections == connections;
                    self.samples.iter().filter(is_one).map(value).collect()
                };
                table.row([
                    way.name.to_owned(),
                    connections.to_string(),
                    spread(&of(|sample| sample.per_second), count),
                    micros(median(&of(|sample| sample.p50_us))),
                    micros(median(&of(|sample| sample.p99_us))),
                    spread(&of(|sample| sample.cpu_us_per_read), |value| format!("{value:.1} us")),
                ]);
            }
        }
        page.table(&table);
        let syncs: Vec<String> = self.sync_us.iter().map(|us| micros(*us)).collect();
        page.paragraph(format!("fdatasync of 4 KiB at the start of each round (p50): {}.", syncs.join(", ")));
        page.into_text()
    }
}

fn spread(values: &[f64], show: impl Fn(f64) -> String) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{} ({} to {})", show(median(values)), show(least), show(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_medians_of_each_way() {
        let sample = |round, per_second| Sample {
            round,
            way: "lease",
            connections: 50,
            per_second,
            p50_us: 100.0,
            p99_us: 300.0,
            cpu_us_per_read: 10.0 + round as f64,
        };
        let others = WAYS.iter().flat_map(|way| {
            CONNECTIONS.map(|connections| Sample { way: way.name, connections, ..sample(0, 1000.0) })
        });
        let is_other = |other: &Sample| (other.way, other.connections) != ("lease", 50);
        let mut samples: Vec<Sample> = others.filter(is_other).collect();
        samples.extend([sample(0, 1000.0), sample(1, 3000.0), sample(2, 2000.0)]);
        let report = Report { rounds: 3, window_s: 5.0, sync_us: vec![90.0, 95.0, 100.0], samples };
        let page = report.page();
        let row = "| lease | 50 | 2,000 (1,000 to 3,000) | 100 us | 300 us | 11.0 us (10.0 us to 12.0 us) |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("(p50): 90 us, 95 us, 100 us."), "{page}");
    }
}
