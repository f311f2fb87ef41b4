//! Runs a workload, either with closed-loop threads or with operations that are due at a rate.
//!
//! Without a target rate each thread waits for its answer before it goes on, and latency counts
//! from the sending. A stalled store then slows the load, which hides the stall. With a target rate
//! every operation is due at a given moment, and latency counts from that moment even if it is sent
//! late.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use resp::Reply;
use tokio::task::JoinSet;
use types::Draw;

use super::inserts::Inserts;
use super::record::Records;
use super::summary::{Latency, Second, Summary};
use super::workload::{Kind, Operations, Workload};
use super::Distribution;
use client::cluster_client::{Call, ClusterClient, Outcome};
use client::latency::histogram;

#[derive(Clone, Debug)]
pub struct Settings {
    pub workload: Workload,
    /// The distribution of requests: the workload's own, unless another is chosen.
    pub distribution: Distribution,
    /// Number of records that exist, or that `Load` inserts.
    pub records: u64,
    pub fields: usize,
    pub field_bytes: usize,
    /// Number of consecutive records that share a slot, by a hash tag in their keys. 1 for no hash
    /// tag.
    pub group: u64,
    /// Number of operations. Ignored by `Load`, which inserts every record once.
    pub operations: u64,
    /// Maximum time after which no operation begins. Operations in flight are awaited. They count
    /// as latencies, because a run in which operations stall would otherwise look better. They do
    /// not count as throughput. Ignored by `Load`.
    pub at_most: Option<Duration>,
    pub threads: usize,
    /// Number of commands that a thread sends at once. Must be 1 for the workloads E and F, and if
    /// there is a target rate.
    pub pipeline: usize,
    pub target_per_s: Option<f64>,
    pub seed: u64,
}

impl Settings {
    pub fn new(workload: Workload, records: u64) -> Settings {
        Settings {
            workload,
            distribution: workload.distribution(),
            records,
            fields: 1,
            field_bytes: 1024,
            group: 1,
            operations: records,
            at_most: None,
            threads: 64,
            pipeline: 1,
            target_per_s: None,
            seed: 1,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.records > 0, "a workload must have records");
        ensure!(
            self.threads > 0 && self.pipeline > 0,
            "a load must have threads, and each must send at least one command at once"
        );
        ensure!(
            self.fields > 0 && self.field_bytes > 0,
            "a record must have a field, and a field must have bytes"
        );
        ensure!(
            self.target_per_s.is_none_or(|target| target.is_finite() && target > 0.0),
            "a target must be a number of operations per second above 0"
        );
        ensure!(
            self.pipeline == 1 || self.workload != Workload::F,
            "workload F writes records that it has read, so it cannot be pipelined"
        );
        ensure!(
            self.pipeline == 1 || self.workload != Workload::E,
            "workload E asks for all records of a range at once, so it cannot be pipelined"
        );
        ensure!(self.group > 0, "a group must have a record");
        ensure!(
            self.pipeline == 1 || self.target_per_s.is_none(),
            "operations with a target rate are due one by one, so they cannot be pipelined"
        );
        Ok(())
    }
}

/// Maximum number of attempts of an insert. Repeating an insert changes nothing.
const INSERT_ATTEMPTS: usize = 10;
/// Number of recorders. Threads share them, so that many threads do not need many histograms.
const RECORDERS: usize = 8;

/// Maximum time by which the runtime's timers are late.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

struct Recorder {
    kinds: BTreeMap<Kind, Histogram<u64>>,
    service: Histogram<u64>,
    second: Histogram<u64>,
    /// Number of operations that ended within the run's time.
    in_time: u64,
    missing: u64,
    not_done: u64,
    unknown: u64,
    last: Option<Instant>,
}

impl Recorder {
    fn new() -> Recorder {
        Recorder {
            kinds: BTreeMap::new(),
            service: histogram(),
            second: histogram(),
            in_time: 0,
            missing: 0,
            not_done: 0,
            unknown: 0,
            last: None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoned histograms are still consistent: no code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Shared {
    client: Arc<ClusterClient>,
    settings: Settings,
    records: Records,
    inserts: Inserts,
    /// Number of operations begun.
    tickets: AtomicU64,
    recorders: Vec<Mutex<Recorder>>,
    started: Instant,
    until: Option<Instant>,
}

/// Runs a workload to its end. Calls `progress` every second with the number of completed
/// operations.
pub async fn run(
    client: Arc<ClusterClient>,
    settings: Settings,
    mut progress: impl FnMut(u64),
) -> anyhow::Result<Summary> {
    settings.check()?;
    let load = settings.workload == Workload::Load;
    let inserts = match load {
        true => Inserts::new(0, settings.records),
        false => Inserts::new(settings.records, u64::MAX),
    };
    let started = Instant::now();
    let until = settings.at_most.filter(|_| !load).map(|most| started + most);
    let redirections = client.redirections();
    let shared = Arc::new(Shared {
        records: Records::new(settings.fields, settings.field_bytes, settings.seed).grouped(settings.group),
        client: client.clone(),
        inserts,
        tickets: AtomicU64::new(0),
        recorders: (0..RECORDERS).map(|_| Mutex::new(Recorder::new())).collect(),
        started,
        until,
        settings,
    });
    let mut threads = JoinSet::new();
    for number in 0..shared.settings.threads {
        threads.spawn(drive(shared.clone(), number));
    }
    let mut series = Vec::new();
    let mut completed = 0;
    let mut tick = tokio::time::interval_at((started + SECOND).into(), SECOND);
    loop {
        tokio::select! {
            ended = threads.join_next() => match ended {
                Some(done) => done??,
                None => break,
            },
            _ = tick.tick() => {
                let second = shared.turn();
                completed += second.operations;
                // After the run's time is over, only operations in flight are left.
                if second.operations > 0 || shared.until.is_none_or(|until| Instant::now() <= until) {
                    series.push(second);
                }
                progress(completed);
            }
        }
    }
    let last = shared.turn();
    if last.operations > 0 {
        series.push(last);
    }
    Ok(shared.summary(series, client.redirections() - redirections))
}

const SECOND: Duration = Duration::from_secs(1);

impl Shared {
    /// Returns the operations that ended since the last turn.
    fn turn(&self) -> Second {
        let mut all = histogram();
        for recorder in &self.recorders {
            let mut recorder = lock(recorder);
            // Adding histograms of equal bounds cannot fail.
            let _ = all.add(&recorder.second);
            recorder.second.reset();
        }
        let latency = Latency::of(&all);
        Second {
            at_s: self.started.elapsed().as_secs_f64(),
            operations: latency.count,
            mean_us: latency.mean_us,
            p99_us: latency.p99_us,
        }
    }

    fn summary(&self, series: Vec<Second>, redirections: u64) -> Summary {
        let settings = &self.settings;
        let mut kinds: BTreeMap<Kind, Histogram<u64>> = BTreeMap::new();
        let (mut all, mut service) = (histogram(), histogram());
        let (mut operations, mut missing, mut not_done, mut unknown) = (0, 0, 0, 0);
        let mut last = None;
        for recorder in &self.recorders {
            let recorder = lock(recorder);
            for (kind, latency) in &recorder.kinds {
                let _ = all.add(latency);
                let _ = kinds.entry(*kind).or_insert_with(histogram).add(latency);
            }
            let _ = service.add(&recorder.service);
            operations += recorder.in_time;
            missing += recorder.missing;
            not_done += recorder.not_done;
            unknown += recorder.unknown;
            last = last.max(recorder.last);
        }
        let wanted = if settings.workload == Workload::Load { settings.records } else { settings.operations };
        let cut_short = operations + not_done + unknown < wanted;
        let end = match (cut_short, self.until) {
            (true, Some(until)) => until,
            _ => last.unwrap_or(self.started),
        };
        Summary {
            workload: settings.workload,
            distribution: settings.distribution,
            records: settings.records,
            threads: settings.threads,
            pipeline: settings.pipeline,
            seed: settings.seed,
            target_per_s: settings.target_per_s,
            seconds: end.duration_since(self.started).as_secs_f64(),
            operations,
            latency: Latency::of(&all),
            service: settings.target_per_s.map(|_| Latency::of(&service)),
            kinds: kinds.into_iter().map(|(kind, latency)| (kind, Latency::of(&latency))).collect(),
            series,
            missing,
            not_done,
            unknown,
            redirections,
            cut_short,
        }
    }

    /// Returns true if one more operation may begin.
    fn ticket(&self) -> bool {
        let time = self.until.is_none_or(|until| Instant::now() < until);
        let wanted = match self.settings.workload {
            Workload::Load => u64::MAX,
            _ => self.settings.operations,
        };
        time && self.tickets.fetch_add(1, Ordering::Relaxed) < wanted
    }
}

/// An operation in flight.
struct Step {
    kind: Kind,
    record: u64,
    /// The commands of the operation. Only a range has more than one.
    calls: Vec<Call>,
}

async fn drive(shared: Arc<Shared>, number: usize) -> anyhow::Result<()> {
    let settings = &shared.settings;
    let mut streams = Draw::new(settings.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
    let chosen = Draw::new(streams.number());
    let mut draw = Draw::new(streams.number());
    let (workload, distribution) = (settings.workload, settings.distribution);
    let mut operations =
        Operations::new(workload, distribution, settings.records, settings.operations, chosen);
    let mut due = settings.target_per_s.map(|target| {
        let apart = Duration::from_secs_f64(settings.threads as f64 / target);
        (shared.started + apart.mul_f64(number as f64 / settings.threads as f64), apart)
    });
    loop {
        let mut steps = Vec::with_capacity(settings.pipeline);
        while steps.len() < settings.pipeline && shared.ticket() {
            match next(&shared, &mut operations, &mut draw) {
                Some(step) => steps.push(step),
                None => break,
            }
        }
        if steps.is_empty() {
            return Ok(());
        }
        let from = match &mut due {
            Some((moment, apart)) => {
                let due = *moment;
                *moment += *apart;
                tokio::time::sleep_until((due - TIMER_GRAIN.min(due - shared.started)).into()).await;
                // An operation sent early by at most a timer's grain counts from the sending. A
                // late one counts from when it was due.
                due.min(Instant::now())
            }
            None => Instant::now(),
        };
        let sent = Instant::now();
        if settings.pipeline == 1 {
            for step in steps {
                let outcome = complete(&shared, &step, &mut draw).await?;
                record(&shared, number, &step, outcome, from, sent)?;
            }
        } else {
            let calls: Vec<Call> = steps.iter().flat_map(|step| step.calls.clone()).collect();
            let outcomes = shared.client.call_many(&calls).await;
            for (step, outcome) in steps.iter().zip(outcomes) {
                let outcome = match step.kind == Kind::Insert && !outcome.acknowledged() {
                    true => insist(&shared, &step.calls[0], outcome).await,
                    false => outcome,
                };
                record(&shared, number, step, outcome, from, sent)?;
            }
        }
    }
}

/// Returns the next operation. `None` if every record has been handed out.
fn next(shared: &Shared, operations: &mut Operations, draw: &mut Draw) -> Option<Step> {
    if shared.settings.workload == Workload::Load {
        let record = shared.inserts.take()?;
        return Some(Step { kind: Kind::Insert, record, calls: vec![shared.records.insert(record, draw)] });
    }
    let records = shared.inserts.records();
    let operation = operations.next(records);
    let record = match operation.record {
        Some(record) => record,
        None => shared.inserts.take()?,
    };
    let calls = match operation.kind {
        Kind::Read | Kind::ReadModifyWrite => vec![shared.records.read(record)],
        Kind::Update => vec![shared.records.update(record, draw)],
        Kind::Insert => vec![shared.records.insert(record, draw)],
        Kind::Scan => shared.records.scan(record..records.min(record.saturating_add(operation.length))),
    };
    Some(Step { kind: operation.kind, record, calls })
}

async fn complete(shared: &Shared, step: &Step, draw: &mut Draw) -> anyhow::Result<Outcome> {
    if step.kind == Kind::Scan {
        return Ok(whole(shared.client.call_many(&step.calls).await));
    }
    let outcome = shared.client.call(&step.calls[0]).await;
    match step.kind {
        Kind::Insert if !outcome.acknowledged() => Ok(insist(shared, &step.calls[0], outcome).await),
        Kind::ReadModifyWrite if outcome.acknowledged() && !is_missing(&outcome) => {
            Ok(shared.client.call(&shared.records.update(step.record, draw)).await)
        }
        _ => Ok(outcome),
    }
}

async fn insist(shared: &Shared, call: &Call, first: Outcome) -> Outcome {
    let mut outcome = first;
    for _ in 1..INSERT_ATTEMPTS {
        if matches!(outcome, Outcome::Done(_)) {
            break;
        }
        outcome = shared.client.call(call).await;
    }
    outcome
}

/// Returns the outcome of a range, which is the worst outcome of its parts.
fn whole(parts: Vec<Outcome>) -> Outcome {
    let amiss = |part: &Outcome| match part {
        Outcome::Done(Reply::Error(_)) => 3,
        Outcome::NotDone(_) | Outcome::Unknown(_) => 2,
        Outcome::Done(_) => u8::from(is_missing(part)),
    };
    parts.into_iter().max_by_key(amiss).unwrap_or(Outcome::Done(Reply::NilArray))
}

/// Returns true if the record, or one of the records asked for, was missing.
fn is_missing(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(Reply::Nil | Reply::NilArray) => true,
        Outcome::Done(Reply::Array(fields)) => fields.is_empty() || fields.contains(&Reply::Nil),
        _ => false,
    }
}

fn record(
    shared: &Shared,
    number: usize,
    step: &Step,
    outcome: Outcome,
    from: Instant,
    sent: Instant,
) -> anyhow::Result<()> {
    let now = Instant::now();
    if step.kind == Kind::Insert {
        ensure!(outcome.acknowledged(), "record {} cannot be inserted: {outcome:?}", step.record);
        shared.inserts.acknowledge(step.record);
    }
    if let Outcome::Done(Reply::Error(text)) = &outcome {
        // Figures over errors would mean nothing.
        bail!("a store answered: {text}");
    }
    let in_time = shared.until.is_none_or(|until| now <= until);
    let mut recorder = lock(&shared.recorders[number % RECORDERS]);
    match &outcome {
        Outcome::NotDone(_) => recorder.not_done += 1,
        Outcome::Unknown(_) => recorder.unknown += 1,
        Outcome::Done(_) => {
            if step.kind != Kind::Insert && is_missing(&outcome) {
                recorder.missing += 1;
            }
            let micros = |since: Instant| now.saturating_duration_since(since).as_micros() as u64;
            recorder.kinds.entry(step.kind).or_insert_with(histogram).saturating_record(micros(from));
            recorder.service.saturating_record(micros(sent));
            if in_time {
                recorder.second.saturating_record(micros(from));
                recorder.in_time += 1;
                recorder.last = recorder.last.max(Some(now));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
