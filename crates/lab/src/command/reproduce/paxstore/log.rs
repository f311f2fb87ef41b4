//! Figure 5.1: the store's log without a store, beside the same log on files that grow.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, Context};
use bytes::Bytes;
use client::latency::histogram;
use hdrhistogram::Histogram;
use lab::paxstore::{Measured, Sample};
use raftlog::RaftLog;
use replica::{LogBatch, RegionWrite, Restart, RestartCause};
use types::{RegionDescriptor, FIRST_INDEX, FIRST_TERM};
use wal::{recover, Appender, Index, SharedIndex, Sizes};

use super::growing::{Growing, SECRET};
use super::mount::Mount;
use super::{say, turns, Bench, Busy, Loaded};

const REGION: u64 = 1;
const WRITERS: [usize; 2] = [1, 16];
/// Nominal size of the log that overwrites. The file system has all its segments before anything is
/// measured.
const LOG_BYTES: u64 = 64 << 20;
/// Bytes written first, so that all segments of the log exist and are overwritten from then on.
const LAP_BYTES: u64 = 2 * LOG_BYTES;
const LAP_WRITE_BYTES: usize = 1 << 20;
/// The length up to which one file grows. No measurement fills it.
const GROWTH_BYTES: u64 = 4 << 30;
/// Entries that stay in the log behind the newest one.
const ENTRIES_KEPT: u64 = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Overwrite,
    Append,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Overwrite => "overwrite",
            Way::Append => "append",
        }
    }
}

pub async fn measure(bench: &Bench, round: usize) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    let disk = bench.directory()?;
    at(bench, "disk", disk.path(), round, &mut measured).await?;
    let data = disk.path().to_owned();
    match tokio::task::spawn_blocking(move || Mount::new(&data)).await? {
        Ok(mount) => at(bench, "loop-ext4", mount.path(), round, &mut measured).await?,
        Err(error) => measured.skipped.push(format!("loop-ext4: {error:#}")),
    }
    Ok(measured)
}

async fn at(
    bench: &Bench,
    place: &str,
    dir: &Path,
    round: usize,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let writes = bench.scale().log_writes;
    for bytes in bench.scale().sizes.clone() {
        for writers in WRITERS {
            for way in turns(&[Way::Overwrite, Way::Append], round) {
                let dir = tempfile::Builder::new().prefix(way.name()).tempdir_in(dir)?;
                let path = dir.path().to_owned();
                let work = move || one(&path, way, writers, bytes, writes);
                let One { loaded, sync_us, new_files } = tokio::task::spawn_blocking(work).await??;
                let load = if writers == 1 { "1 writer".to_owned() } else { format!("{writers} writers") };
                let sample = loaded.sample(place, &load, way.name(), bytes);
                measured.samples.push(Sample { sync_us: Some(sync_us), ..sample });
                if way == Way::Overwrite && new_files > 0 {
                    measured.skipped.push(format!(
                        "{place}, {load}, {bytes} B: {new_files} segments were made during the writes, so \
                         that not all of them overwrote"
                    ));
                }
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct OwnIndex(Mutex<Index>);

impl SharedIndex for OwnIndex {
    fn with<R>(&self, act: impl FnOnce(&mut Index) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A log of one region. Both ways write the same blocks by the same code of `wal`.
enum Log {
    Overwrite(RaftLog),
    Append(Box<Appender<Growing, OwnIndex>>, Growing),
}

struct Writer {
    log: Log,
    next: u64,
    is_begun: bool,
    syncs: u64,
    sync: Duration,
}

impl Writer {
    fn open(dir: &Path, way: Way) -> anyhow::Result<Writer> {
        let log = match way {
            Way::Overwrite => Log::Overwrite(RaftLog::open(dir, &raftlog::Options::of_size(LOG_BYTES))?),
            Way::Append => {
                let disk = Growing::new(dir)?;
                let found = recover(&disk, SECRET)?;
                let sizes = Sizes { segment_bytes: GROWTH_BYTES, log_bytes: 2 * GROWTH_BYTES };
                let (log, _) = Appender::new(disk.clone(), SECRET, sizes, OwnIndex::default(), found)?;
                Log::Append(Box::new(log), disk)
            }
        };
        Ok(Writer { log, next: FIRST_INDEX + 1, is_begun: false, syncs: 0, sync: Duration::ZERO })
    }

    /// Appends one entry for each payload in one batch, and syncs it.
    fn write(&mut self, payloads: &[Bytes]) -> anyhow::Result<()> {
        let restart = (!self.is_begun).then(|| Restart {
            index: FIRST_INDEX,
            term: FIRST_TERM,
            descriptor: RegionDescriptor::founded(REGION, None, &[0]),
            cause: RestartCause::Snapshot,
        });
        let entries = payloads.iter().map(|_| Default::default()).collect();
        let mut write = RegionWrite { region: REGION, restart, entries, hard_state: None };
        for (entry, payload) in write.entries.iter_mut().zip(payloads) {
            (entry.index, entry.term, entry.data) = (self.next, FIRST_TERM, payload.clone());
            self.next += 1;
        }
        let batch = LogBatch { number: self.syncs + 1, writes: vec![write], must_sync: true };
        self.sync += match &mut self.log {
            Log::Overwrite(log) => log.append(&batch, true)?.sync,
            Log::Append(log, disk) => {
                let before = disk.sync_time();
                log.append(&batch, true)?;
                disk.sync_time() - before
            }
        };
        (self.is_begun, self.syncs) = (true, self.syncs + 1);
        // A store truncates what it has applied, and the segments return to use.
        let old = self.next.saturating_sub(1 + ENTRIES_KEPT);
        if let (Log::Overwrite(log), true) = (&self.log, old > FIRST_INDEX) {
            log.truncate(REGION, old, FIRST_TERM);
        }
        Ok(())
    }
}

/// The result of one measurement.
struct One {
    loaded: Loaded,
    sync_us: f64,
    /// Number of files that were made while it was measured.
    new_files: usize,
}

fn one(dir: &Path, way: Way, writers: usize, bytes: u64, writes: u64) -> anyhow::Result<One> {
    let mut writer = Writer::open(dir, way)?;
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Log::Overwrite(log) = &writer.log {
            let (log, is_done) = (log.clone(), &is_done);
            scope.spawn(move || keep(&log, is_done));
        }
        let measured = (|| {
            if way == Way::Overwrite {
                let payload = Bytes::from(client::value::printable(LAP_WRITE_BYTES, 0));
                for _ in 0..LAP_BYTES / LAP_WRITE_BYTES as u64 {
                    writer.write(std::slice::from_ref(&payload))?;
                }
            }
            let before = files(dir)?;
            let (loaded, sync_us) = driven(&mut writer, writers, bytes, writes)?;
            Ok(One { loaded, sync_us, new_files: files(dir)?.difference(&before).count() })
        })();
        is_done.store(true, Ordering::Release);
        measured
    })
}

fn files(dir: &Path) -> std::io::Result<BTreeSet<OsString>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Recycles segments and makes them in advance, as the store's own thread does.
fn keep(log: &RaftLog, is_done: &AtomicBool) {
    while !is_done.load(Ordering::Acquire) {
        log.await_work(Duration::from_millis(50));
        if let Err(error) = log.recycle().map(|_| ()).and_then(|()| log.prepare()) {
            // The next append fails as well and ends the measurement.
            say(&format!("the log cannot be recycled: {error}"));
            return;
        }
    }
}

/// A write and the channel of its acknowledgement.
type Order = (Bytes, Sender<()>);

/// Writes from threads, each of which waits for its acknowledgement before it goes on. Returns the
/// latencies and the mean microseconds of a sync.
fn driven(writer: &mut Writer, writers: usize, bytes: u64, writes: u64) -> anyhow::Result<(Loaded, f64)> {
    let (orders, queue) = channel::<Order>();
    let (syncs, sync) = (writer.syncs, writer.sync);
    let (started, busy) = (Instant::now(), Busy::start());
    let latencies = std::thread::scope(|scope| {
        let each = writes.div_ceil(writers as u64);
        let threads: Vec<_> = (0..writers as u64)
            .map(|number| {
                let orders = orders.clone();
                scope.spawn(move || drive(&orders, bytes, number, each))
            })
            .collect();
        drop(orders);
        // If this fails, the queue is dropped and the threads end.
        serve(writer, queue)?;
        let mut all = histogram();
        for thread in threads {
            all.add(thread.join().map_err(|_| anyhow!("a writer panicked"))?)?;
        }
        anyhow::Ok(all)
    })?;
    let made = (writer.syncs - syncs).max(1);
    let sync_us = (writer.sync - sync).as_micros() as f64 / made as f64;
    Ok((Loaded::of(&latencies, started.elapsed(), busy.cpus()), sync_us))
}

fn drive(orders: &Sender<Order>, bytes: u64, number: u64, writes: u64) -> Histogram<u64> {
    let payload = Bytes::from(client::value::printable(bytes as usize, number));
    let (acknowledge, acknowledged) = channel();
    let mut latency = histogram();
    for _ in 0..writes {
        let sent = Instant::now();
        if orders.send((payload.clone(), acknowledge.clone())).is_err() || acknowledged.recv().is_err() {
            break;
        }
        latency.saturating_record(sent.elapsed().as_micros() as u64);
    }
    latency
}

/// Writes all orders that wait with one sync, until no writer is left.
fn serve(writer: &mut Writer, queue: Receiver<Order>) -> anyhow::Result<()> {
    while let Ok(first) = queue.recv() {
        let orders: Vec<Order> = std::iter::once(first).chain(queue.try_iter()).collect();
        let payloads: Vec<Bytes> = orders.iter().map(|(payload, _)| payload.clone()).collect();
        writer.write(&payloads).context("the log cannot be written")?;
        for (_, acknowledge) in orders {
            // A writer that has ended needs no answer.
            let _ = acknowledge.send(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_acknowledge_every_write_of_every_writer() {
        for way in [Way::Overwrite, Way::Append] {
            let dir = tempfile::tempdir().unwrap();
            let one = one(dir.path(), way, 3, 700, 30).unwrap();
            assert_eq!(one.loaded.latency.count, 30, "{}", way.name());
            assert!(one.sync_us > 0.0);
        }
    }

    #[test]
    fn a_log_that_grows_has_the_same_blocks_as_the_one_that_overwrites() {
        let payload = Bytes::from(client::value::printable(5000, 1));
        let written = |way| {
            let dir = tempfile::tempdir().unwrap();
            let mut writer = Writer::open(dir.path(), way).unwrap();
            for _ in 0..3 {
                writer.write(&[payload.clone(), payload.clone()]).unwrap();
            }
            match &writer.log {
                Log::Overwrite(log) => log.used_bytes(),
                Log::Append(log, disk) => {
                    let on_disk: u64 = wal::Disk::segments(disk).unwrap().iter().map(|(_, len)| len).sum();
                    assert_eq!(on_disk, log.used_bytes(), "a file is as long as what was written");
                    log.used_bytes()
                }
            }
        };
        assert_eq!(written(Way::Overwrite), written(Way::Append));
    }
}
