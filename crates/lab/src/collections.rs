//! Collections of many elements: `steelyard bench collections`.
//!
//! One client loads a collection, reads parts of it and all of it, and deletes it. Two others send
//! single GETs and SETs meanwhile: their longest waits show whether a command stalls others.
//! The resident set is the server's own figure, so the server may be any that speaks RESP.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{bail, Context};
use client::connection::{text, Connection};
use client::table::{bytes, count, micros, Align, Table};
use resp::Reply;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::page::Page;

const PATIENCE: Duration = Duration::from_secs(120);
/// The collection, its copy, and a result of both.
const KEY: &str = "steelyard-bench-collection";
const COPY: &str = "steelyard-bench-copy";
const RESULT: &str = "steelyard-bench-result";
const PROBED: &str = "steelyard-bench-probe";
/// Elements of one command of the load, and commands of one pipeline.
const BATCH: u64 = 200;
const PIPELINE: u64 = 20;
/// Elements of a part that is read.
const PART: u64 = 1000;
/// Time between two rounds of the other client.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of its rounds for each look at the resident set.
const ROUNDS_PER_LOOK: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum Kind {
    Hash,
    Set,
    Zset,
    List,
    Stream,
}

pub struct Plan {
    pub server: SocketAddr,
    pub kinds: Vec<Kind>,
    pub elements: u64,
}

/// A command, the time that it took, and what others saw meanwhile.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub kind: Kind,
    pub command: String,
    pub took_us: u64,
    pub longest_get_us: u64,
    pub longest_set_us: u64,
    pub rss_bytes_max: u64,
    /// The reply in a few words, or the error.
    pub outcome: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub elements: u64,
    pub steps: Vec<Step>,
}

/// Observations of another client.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    longest: Duration,
    rss_bytes_max: u64,
}

/// Measures all kinds of collections, one after the other. The keys of the bench must not exist.
///
/// # Errors
/// Fails if the server refuses the load, or ends.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut client = Connection::open(plan.server, PATIENCE).await.context("the server cannot be reached")?;
    if client.call(&["EXISTS", KEY, COPY, RESULT]).await? != Reply::Int(0) {
        bail!("the server has keys of this bench, {KEY}, {COPY} or {RESULT}: delete them first");
    }
    let mut report = Report { elements: plan.elements, steps: Vec::new() };
    for kind in &plan.kinds {
        let began = Instant::now();
        let watch = Watch::begin(plan.server);
        load(&mut client, *kind, plan.elements).await?;
        let (took, loaded) = (began.elapsed(), format!("{} elements", count(plan.elements as f64)));
        report.steps.push(step(*kind, "load".into(), took, watch.end().await?, loaded));
        for command in commands(*kind, plan.elements) {
            let words: Vec<&str> = command.split(' ').collect();
            let began = Instant::now();
            let watch = Watch::begin(plan.server);
            let reply = client.call(&words).await.with_context(|| command.clone())?;
            let took = began.elapsed();
            report.steps.push(step(*kind, command, took, watch.end().await?, shown(&reply)));
        }
    }
    client.call(&["DEL", PROBED]).await?;
    Ok(report)
}

fn step(
    kind: Kind,
    command: String,
    took: Duration,
    (reader, writer): (Seen, Seen),
    outcome: String,
) -> Step {
    Step {
        kind,
        command: command.replace(KEY, "k").replace(COPY, "copy").replace(RESULT, "result"),
        took_us: took.as_micros() as u64,
        longest_get_us: reader.longest.as_micros() as u64,
        longest_set_us: writer.longest.as_micros() as u64,
        rss_bytes_max: reader.rss_bytes_max.max(writer.rss_bytes_max),
        outcome,
    }
}

/// Returns the commands on a loaded collection. The last ones delete it.
fn commands(kind: Kind, elements: u64) -> Vec<String> {
    let (middle, behind) = (elements / 2, elements / 2 + PART - 1);
    let parts: Vec<String> = match kind {
        Kind::Hash => vec![
            format!("HLEN {KEY}"),
            format!("HGET {KEY} field-{middle}"),
            format!("HSCAN {KEY} 0 COUNT {PART}"),
            format!("HGETALL {KEY}"),
        ],
        Kind::Set => vec![
            format!("SCARD {KEY}"),
            format!("SISMEMBER {KEY} member-{middle}"),
            format!("SSCAN {KEY} 0 COUNT {PART}"),
            format!("SPOP {KEY}"),
            format!("SMEMBERS {KEY}"),
        ],
        Kind::Zset => vec![
            format!("ZCARD {KEY}"),
            format!("ZRANK {KEY} member-{middle}"),
            format!("ZRANGE {KEY} {middle} {behind}"),
            format!("ZCOUNT {KEY} {middle} +inf"),
            format!("ZPOPMIN {KEY} 100"),
            format!("ZRANGE {KEY} 0 -1 WITHSCORES"),
        ],
        Kind::List => vec![
            format!("LLEN {KEY}"),
            format!("LINDEX {KEY} {middle}"),
            format!("LRANGE {KEY} {middle} {behind}"),
            format!("LPOP {KEY} 100"),
            format!("LRANGE {KEY} 0 -1"),
        ],
        Kind::Stream => vec![
            format!("XLEN {KEY}"),
            format!("XRANGE {KEY} {middle} + COUNT {PART}"),
            format!("XTRIM {KEY} MAXLEN ~ {}", elements - elements / 100),
            format!("XRANGE {KEY} - +"),
        ],
    };
    let stored: Vec<String> = match kind {
        Kind::Set => vec![
            format!("SUNIONSTORE {RESULT} {KEY} {COPY}"),
            format!("SINTERSTORE {RESULT} {KEY} {COPY}"),
            format!("SDIFFSTORE {RESULT} {KEY} {COPY}"),
        ],
        Kind::Zset => vec![
            format!("ZUNIONSTORE {RESULT} 2 {KEY} {COPY}"),
            format!("ZINTERSTORE {RESULT} 2 {KEY} {COPY}"),
            format!("ZDIFFSTORE {RESULT} 2 {KEY} {COPY}"),
            format!("ZRANGESTORE {RESULT} {KEY} 0 -1"),
        ],
        Kind::Hash | Kind::List | Kind::Stream => Vec::new(),
    };
    let copied = [format!("DUMP {KEY}"), format!("COPY {KEY} {COPY}")];
    let deleted = [format!("DEL {COPY} {RESULT}"), format!("DEL {KEY}")];
    parts.into_iter().chain(copied).chain(stored).chain(deleted).collect()
}

async fn load(client: &mut Connection, kind: Kind, elements: u64) -> anyhow::Result<()> {
    // An XADD adds one entry.
    let batch = if kind == Kind::Stream { 1 } else { BATCH };
    let pipeline = BATCH * PIPELINE / batch;
    let mut at = 0;
    while at < elements {
        let mut sent = 0;
        while sent < pipeline && at < elements {
            let behind = elements.min(at + batch);
            client.queue(&adding(kind, at, behind));
            (at, sent) = (behind, sent + 1);
        }
        client.flush().await?;
        for _ in 0..sent {
            if let Reply::Error(text) = client.reply().await? {
                bail!("the load is refused: {text}");
            }
        }
    }
    Ok(())
}

/// Returns the command that adds elements.
fn adding(kind: Kind, from: u64, behind: u64) -> Vec<String> {
    let name = match kind {
        Kind::Hash => "HSET",
        Kind::Set => "SADD",
        Kind::Zset => "ZADD",
        Kind::List => "RPUSH",
        Kind::Stream => "XADD",
    };
    let mut words = vec![name.to_owned(), KEY.to_owned()];
    for at in from..behind {
        match kind {
            Kind::Hash => words.extend([format!("field-{at}"), format!("value-{at}")]),
            Kind::Set => words.push(format!("member-{at}")),
            Kind::Zset => words.extend([at.to_string(), format!("member-{at}")]),
            Kind::List => words.push(format!("element-{at}")),
            Kind::Stream => words.extend([format!("{}-0", at + 1), "field".into(), format!("value-{at}")]),
        }
    }
    words
}

fn shown(reply: &Reply) -> String {
    let items = |number: usize| format!("{} items", count(number as f64));
    match reply {
        Reply::Error(text) => text.split(':').next().unwrap_or_default().to_owned(),
        Reply::Array(replies) | Reply::Set(replies) => items(replies.len()),
        Reply::Map(pairs) => items(pairs.len()),
        Reply::Bulk(text) if text.len() > 40 => bytes(text.len() as f64),
        Reply::Int(number) => count(*number as f64),
        other => text(other).map_or("nil".into(), |text| String::from_utf8_lossy(&text).into_owned()),
    }
}

/// The other clients, one that reads and one that writes. They run until they are told to end.
struct Watch {
    end: watch::Sender<bool>,
    reading: JoinHandle<anyhow::Result<Seen>>,
    writing: JoinHandle<anyhow::Result<Seen>>,
}

impl Watch {
    fn begin(server: SocketAddr) -> Watch {
        let (end, ended) = watch::channel(false);
        let reading = tokio::spawn(probe(server, &["GET", PROBED], ended.clone()));
        Watch { end, reading, writing: tokio::spawn(probe(server, &["SET", PROBED, "value"], ended)) }
    }

    async fn end(self) -> anyhow::Result<(Seen, Seen)> {
        let _ = self.end.send(true);
        Ok((self.reading.await??, self.writing.await??))
    }
}

/// Sends one command again and again, and looks at the resident set now and then.
async fn probe(
    server: SocketAddr,
    words: &'static [&'static str],
    ended: watch::Receiver<bool>,
) -> anyhow::Result<Seen> {
    let mut client = Connection::open(server, PATIENCE).await?;
    let mut seen = Seen::default();
    let mut round = 0;
    loop {
        // The last round is complete, so that a stall at the end is seen.
        let is_last = *ended.borrow();
        let began = Instant::now();
        client.call(words).await?;
        seen.longest = began.elapsed().max(seen.longest);
        if round % ROUNDS_PER_LOOK == 0 || is_last {
            let info = client.call(&["INFO", "memory"]).await?;
            seen.rss_bytes_max = resident(&info).unwrap_or(0).max(seen.rss_bytes_max);
        }
        if is_last {
            return Ok(seen);
        }
        round += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

fn resident(info: &Reply) -> Option<u64> {
    let info = text(info)?;
    let line =
        std::str::from_utf8(&info).ok()?.lines().find_map(|line| line.strip_prefix("used_memory_rss:"))?;
    line.trim().parse().ok()
}

impl Report {
    /// Returns the steps as a page of Markdown.
    pub fn page(&self) -> String {
        let mut page = Page::new("Collections of many elements");
        page.paragraph(format!(
            "One client works on a collection of {} elements; two others send single GETs and SETs meanwhile.",
            count(self.elements as f64)
        ));
        let mut table = Table::new([
            ("collection", Align::Left),
            ("command", Align::Left),
            ("takes", Align::Right),
            ("longest GET", Align::Right),
            ("longest SET", Align::Right),
            ("resident set", Align::Right),
            ("reply", Align::Left),
        ]);
        let time = |us: u64| micros(us as f64);
        for step in &self.steps {
            table.row([
                format!("{:?}", step.kind).to_lowercase(),
                format!("`{}`", step.command),
                time(step.took_us),
                time(step.longest_get_us),
                time(step.longest_set_us),
                bytes(step.rss_bytes_max as f64),
                step.outcome.clone(),
            ]);
        }
        page.table(&table);
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_loaded_read_and_deleted() {
        for kind in [Kind::Hash, Kind::Set, Kind::Zset, Kind::List, Kind::Stream] {
            let add = adding(kind, 3, if kind == Kind::Stream { 4 } else { 5 });
            assert!(add.len() > 2 && add[1] == KEY, "{add:?}");
            let commands = commands(kind, 10_000);
            assert_eq!(commands.last().unwrap(), &format!("DEL {KEY}"));
            assert!(commands.iter().any(|command| command.starts_with("DUMP")));
        }
        assert_eq!(adding(Kind::Hash, 3, 4), ["HSET", KEY, "field-3", "value-3"]);
    }

    #[test]
    fn the_page_shows_times_memory_and_replies() {
        let seen = |ms| Seen { longest: Duration::from_millis(ms), rss_bytes_max: 100 << 20 };
        let outcome = shown(&Reply::error("ERR too much: read in parts"));
        let took = Duration::from_micros(1500);
        let one = step(Kind::Zset, format!("COPY {KEY} {COPY}"), took, (seen(2), seen(3)), outcome);
        let page = Report { elements: 1000, steps: vec![one] }.page();
        let row = "| zset | `COPY k copy` | 1.50 ms | 2.00 ms | 3.00 ms | 105 MB | ERR too much |";
        assert!(page.contains(row), "{page}");
        let info = Reply::bulk("# Memory\r\nused_memory:5\r\nused_memory_rss:77\r\n");
        assert_eq!(resident(&info), Some(77));
    }
}
