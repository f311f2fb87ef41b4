//! The loads of `memtier_benchmark`, the tool of *RocksDB for Redis on Flash* (§2.3.3): SET and GET
//! in a ratio, with sequential, random or Gaussian keys, in pipelines. Options, defaults and the
//! names of keys are the tool's.

mod keys;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context};
use hdrhistogram::Histogram;
use resp::Reply;
use serde::Serialize;
use tokio::task::JoinSet;

use client::connection::Connection;
use client::latency::histogram;
use client::table::{count, Align, Table};

use keys::Keys;
pub use keys::{Pattern, Range};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub target: SocketAddr,
    /// Number of connections of all threads together.
    pub clients: u64,
    pub pipeline: usize,
    /// Number of SETs, and then of GETs, in turns.
    pub ratio: [u64; 2],
    pub value_bytes: usize,
    pub prefix: String,
    pub range: Range,
    /// The patterns of the keys of SETs and of GETs.
    pub patterns: [Pattern; 2],
    /// The end of the run.
    pub end: End,
    pub password: Option<String>,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Number of requests of each client.
    Requests(u64),
    Time(Duration),
}

/// The operations of one kind.
#[derive(Clone, Debug)]
pub struct Kind {
    pub operations: u64,
    /// GETs that found a value.
    pub hits: u64,
    /// Bytes of commands and replies.
    pub bytes: u64,
    /// Microseconds.
    pub latency: Histogram<u64>,
}

/// The results of a run: SETs and GETs.
#[derive(Clone, Debug)]
pub struct Measured {
    pub elapsed: Duration,
    pub kinds: [Kind; 2],
}

/// The numbers of one line of the results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub kind: &'static str,
    pub per_second: f64,
    pub hits_per_second: f64,
    pub misses_per_second: f64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub kb_per_second: f64,
}

const SET: usize = 0;
const GET: usize = 1;
const CONNECT: Duration = Duration::from_secs(5);

impl Kind {
    fn new() -> Kind {
        Kind { operations: 0, hits: 0, bytes: 0, latency: histogram() }
    }

    fn add(&mut self, other: &Kind) -> anyhow::Result<()> {
        self.operations += other.operations;
        self.hits += other.hits;
        self.bytes += other.bytes;
        Ok(self.latency.add(&other.latency)?)
    }
}

impl Measured {
    fn new() -> Measured {
        Measured { elapsed: Duration::ZERO, kinds: [Kind::new(), Kind::new()] }
    }

    /// Returns the lines of the results: SETs, GETs and both.
    pub fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let mut totals = Kind::new();
        self.kinds.iter().try_for_each(|kind| totals.add(kind))?;
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let row = |name, kind: &Kind, looked_up: u64| Row {
            kind: name,
            per_second: kind.operations as f64 / seconds,
            hits_per_second: kind.hits as f64 / seconds,
            misses_per_second: looked_up.saturating_sub(kind.hits) as f64 / seconds,
            mean_us: kind.latency.mean(),
            p50_us: kind.latency.value_at_quantile(0.5),
            p99_us: kind.latency.value_at_quantile(0.99),
            p999_us: kind.latency.value_at_quantile(0.999),
            kb_per_second: kind.bytes as f64 / 1024.0 / seconds,
        };
        let [sets, gets] = &self.kinds;
        Ok(vec![
            row("Sets", sets, 0),
            row("Gets", gets, gets.operations),
            row("Totals", &totals, gets.operations),
        ])
    }

    /// Returns the results as the table of the tool.
    pub fn table(&self) -> anyhow::Result<Table> {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("Type", Left),
            ("Ops/sec", Right),
            ("Hits/sec", Right),
            ("Misses/sec", Right),
            ("Avg. Latency", Right),
            ("p50", Right),
            ("p99", Right),
            ("p99.9", Right),
            ("KB/sec", Right),
        ]);
        for row in self.rows()? {
            let ms = |us: f64| format!("{:.3} ms", us / 1e3);
            table.row([
                row.kind.to_owned(),
                count(row.per_second),
                count(row.hits_per_second),
                count(row.misses_per_second),
                ms(row.mean_us),
                ms(row.p50_us as f64),
                ms(row.p99_us as f64),
                ms(row.p999_us as f64),
                count(row.kb_per_second),
            ]);
        }
        Ok(table)
    }
}

/// Runs the load. It is an error if the server sends an error reply, because figures over errors
/// would mean nothing.
pub async fn run(settings: &Settings) -> anyhow::Result<Measured> {
    ensure!(settings.clients > 0 && settings.pipeline > 0, "a load needs clients and a pipeline");
    ensure!(settings.ratio != [0, 0], "a ratio needs a side above 0");
    let mut connections = Vec::new();
    for _ in 0..settings.clients {
        let mut connection = Connection::open(settings.target, CONNECT)
            .await
            .with_context(|| format!("{} cannot be reached", settings.target))?;
        if let Some(password) = &settings.password {
            accept(connection.call(&["AUTH", password]).await?)?;
        }
        connections.push(connection);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, connection) in connections.into_iter().enumerate() {
        let settings = settings.clone();
        tasks.spawn(async move { drive(connection, &settings, number as u64, started).await });
    }
    let mut measured = Measured::new();
    while let Some(done) = tasks.join_next().await {
        let part = done?.with_context(|| format!("load on {}", settings.target))?;
        for (all, part) in measured.kinds.iter_mut().zip(&part) {
            all.add(part)?;
        }
    }
    measured.elapsed = started.elapsed();
    Ok(measured)
}

fn accept(reply: Reply) -> anyhow::Result<Reply> {
    match reply {
        Reply::Error(text) => bail!("the server answered: {text}"),
        reply => Ok(reply),
    }
}

async fn drive(
    mut connection: Connection,
    settings: &Settings,
    number: u64,
    started: Instant,
) -> anyhow::Result<[Kind; 2]> {
    let mut keys = [SET, GET].map(|kind| {
        Keys::new(
            settings.patterns[kind],
            settings.range,
            number,
            settings.clients,
            settings.seed + kind as u64,
        )
    });
    let value = client::value::printable(settings.value_bytes, settings.seed + number);
    let mut kinds = [Kind::new(), Kind::new()];
    let (mut sent, mut turn) = (0, 0);
    let whole = settings.ratio[SET] + settings.ratio[GET];
    let mut under_way = Vec::with_capacity(settings.pipeline);
    loop {
        let left = match settings.end {
            End::Requests(requests) => requests - sent,
            End::Time(time) if started.elapsed() >= time => 0,
            End::Time(_) => u64::MAX,
        };
        if left == 0 {
            return Ok(kinds);
        }
        under_way.clear();
        for _ in 0..left.min(settings.pipeline as u64) {
            let kind = if turn % whole < settings.ratio[SET] { SET } else { GET };
            turn += 1;
            let key = format!("{}{}", settings.prefix, keys[kind].next());
            match kind {
                SET => connection.queue(&[b"SET", key.as_bytes(), &value]),
                _ => connection.queue(&[b"GET", key.as_bytes()]),
            }
            under_way.push((kind, key.len()));
        }
        sent += under_way.len() as u64;
        let began = Instant::now();
        connection.flush().await?;
        for (kind, key_bytes) in &under_way {
            let reply = accept(connection.reply().await?)?;
            let found = match &reply {
                Reply::Bulk(value) if *kind == GET => Some(value.len()),
                _ => None,
            };
            let it = &mut kinds[*kind];
            it.operations += 1;
            it.hits += u64::from(found.is_some());
            let value_bytes = if *kind == SET { settings.value_bytes } else { found.unwrap_or(0) };
            it.bytes += (key_bytes + value_bytes) as u64;
            it.latency.saturating_record(began.elapsed().as_micros() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use super::*;

    fn settings(target: SocketAddr) -> Settings {
        Settings {
            target,
            clients: 4,
            pipeline: 3,
            ratio: [1, 1],
            value_bytes: 32,
            prefix: "memtier-".into(),
            range: Range { least: 0, most: 39, median: None, deviation: None },
            patterns: [Pattern::Parallel, Pattern::Random],
            end: End::Requests(20),
            password: None,
            seed: 1,
        }
    }

    async fn measured(change: impl Fn(&mut Settings)) -> (Measured, Vec<String>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let target = client::scripted::scripted(move |request| {
            let words: Vec<&str> = request.split(' ').collect();
            log.lock().unwrap().push(words[..2].join(" "));
            Some(match words[0] {
                "SET" => "+OK\r\n".to_owned(),
                "GET" if words[1].ends_with('7') => "$-1\r\n".to_owned(),
                "GET" => "$5\r\nvalue\r\n".to_owned(),
                _ => "-ERR unknown\r\n".to_owned(),
            })
        })
        .await;
        let mut settings = settings(target);
        change(&mut settings);
        let measured = run(&settings).await.unwrap();
        let seen = seen.lock().unwrap().clone();
        (measured, seen)
    }

    #[tokio::test]
    async fn every_request_is_sent_in_its_ratio_and_counted() {
        let (half, seen) = measured(|_| ()).await;
        assert_eq!(half.kinds.each_ref().map(|kind| kind.operations), [40, 40]);
        assert_eq!(seen.len(), 80);
        let sets: BTreeSet<&String> = seen.iter().filter(|line| line.starts_with("SET")).collect();
        assert_eq!(sets.len(), 40, "parallel keys are each set once");
        let misses = seen.iter().filter(|line| line.starts_with("GET") && line.ends_with('7')).count() as u64;
        assert_eq!(half.kinds[GET].hits, 40 - misses);
        assert_eq!(half.kinds[SET].latency.len(), 40);

        let (reads, _) = measured(|settings| settings.ratio = [1, 9]).await;
        assert_eq!(reads.kinds.each_ref().map(|kind| kind.operations), [8, 72]);
        let (writes, _) = measured(|settings| settings.ratio = [1, 0]).await;
        assert_eq!(writes.kinds.each_ref().map(|kind| kind.operations), [80, 0]);
        let text = writes.table().unwrap().markdown();
        assert!(text.contains("Totals") && text.contains("Misses/sec"), "{text}");
    }

    #[tokio::test]
    async fn an_error_reply_ends_the_run() {
        let target = client::scripted::scripted(|_| Some("-LOADING wait\r\n".to_owned())).await;
        let error = run(&settings(target)).await.unwrap_err();
        assert!(format!("{error:#}").contains("LOADING wait"), "{error:#}");
    }
}
