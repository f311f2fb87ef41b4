//! Replication of a node: one process reads the whole set, another one writes it into an empty
//! database. And the reading alone, by an iterator and by random reads (Fig 7).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{ensure, Context};
use bytes::Bytes;
use rocks::bare::Bare;
use serde::{Deserialize, Serialize};
use types::Draw;

use super::knobs::WritePath;
use super::loads::{check, histogram, in_threads, key, Phase, Stage};
use super::pipe::{receive, send, Row};
use super::scale::{Scale, KEY_BYTES};

/// Rows that go from the reader of the pipe to a writer at once, and the number of such batches
/// that may wait.
const BATCH_ROWS: usize = 64;
const BATCHES: usize = 8;

/// Sends all rows in the order of their keys. Returns their number.
pub fn send_all(bare: &Bare, readahead_bytes: usize, to: &mut impl Write) -> anyhow::Result<u64> {
    let (mut sent, mut failure) = (0, None);
    bare.scan(readahead_bytes, |key, value| match send(to, key, value) {
        Ok(()) => {
            sent += 1;
            true
        }
        Err(error) => {
            failure = Some(error);
            false
        }
    })?;
    match failure {
        Some(error) => Err(error).context("the replica does not take rows"),
        None => Ok(sent),
    }
}

/// Writes the rows of a pipe into an empty database, and measures until all are durable.
///
/// The replica holds a part of the rows in RAM. Rows come to it in the order of their keys and
/// leave it in random order, as they are evicted. Both write paths get the same rows in the same
/// order.
pub fn receive_all(stage: &Stage<'_>, from: &mut (impl Read + Send)) -> anyhow::Result<Phase> {
    let scale = stage.scale;
    let phase = stage.measure(|counters| {
        let writers = match stage.path {
            WritePath::Ingest => 1,
            WritePath::Puts if stage.running.one_writer => 1,
            WritePath::Puts => stage.running.io_threads,
        };
        let (mut to, mut queues) = (Vec::new(), Vec::new());
        for _ in 0..writers {
            let (sender, receiver) = sync_channel(BATCHES);
            to.push(sender);
            queues.push(Mutex::new(receiver));
        }
        std::thread::scope(|scope| {
            let evicting = scope.spawn(move || evict(from, scale, to));
            let written = in_threads(writers, |thread| {
                let queue = queues[thread].lock().expect("one thread has the queue");
                let mut run = BTreeMap::new();
                while let Ok(rows) = queue.recv() {
                    let count = rows.len() as u64;
                    for (key, value) in rows {
                        match stage.path {
                            WritePath::Puts => stage.bare.put(&key, &value)?,
                            WritePath::Ingest => {
                                run.insert(key, value);
                                if run.len() as u64 * scale.row_bytes() >= stage.run_bytes {
                                    freeze(stage.bare, &mut run)?;
                                }
                            }
                        }
                    }
                    counters.done.fetch_add(count, Relaxed);
                }
                freeze(stage.bare, &mut run)
            });
            drop(queues);
            let received = evicting.join().expect("the eviction does not panic");
            written.and(received)
        })?;
        Ok(stage.bare.flush()?)
    })?;
    ensure!(phase.operations == scale.rows, "the replica got {} of {} rows", phase.operations, scale.rows);
    Ok(phase)
}

fn freeze(bare: &Bare, run: &mut BTreeMap<[u8; KEY_BYTES], Vec<u8>>) -> anyhow::Result<()> {
    let row =
        |(key, value): ([u8; KEY_BYTES], Vec<u8>)| (Bytes::copy_from_slice(&key), Some(Bytes::from(value)));
    let rows: Vec<_> = std::mem::take(run).into_iter().map(row).collect();
    if !rows.is_empty() {
        bare.ingest(&rows)?;
    }
    Ok(())
}

/// Reads rows from the pipe into a RAM of limited size, from which random rows go to the writers.
fn evict(from: &mut impl Read, scale: &Scale, to: Vec<SyncSender<Vec<Row>>>) -> anyhow::Result<()> {
    let room = ((scale.rows as f64 * scale.ram_share) as usize).max(1);
    let (mut ram, mut batch, mut next) = (Vec::with_capacity(room), Vec::new(), 0);
    let mut draw = Draw::new(7);
    let mut leave = |row: Option<Row>, is_last: bool| {
        batch.extend(row);
        if batch.len() == BATCH_ROWS || is_last && !batch.is_empty() {
            // A writer that has failed takes no more. Its error is reported by itself.
            let _ = to[next % to.len()].send(std::mem::take(&mut batch));
            next += 1;
        }
    };
    while let Some(row) = receive(from, scale)? {
        if ram.len() < room {
            ram.push(row);
            continue;
        }
        let victim = draw.below(room as u64) as usize;
        leave(Some(std::mem::replace(&mut ram[victim], row)), false);
    }
    while !ram.is_empty() {
        let victim = draw.below(ram.len() as u64) as usize;
        leave(Some(ram.swap_remove(victim)), false);
    }
    leave(None, true);
    Ok(())
}

/// The time to read the values that are not in RAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetRead {
    /// Percent of the values that are on flash.
    pub on_flash: u64,
    pub iterator_s: f64,
    pub random_s: f64,
}

/// Reads the set by an iterator, and by random reads of the values that are not in RAM, in the
/// order of a hash table.
pub fn read_set(
    bare: &Bare,
    scale: &Scale,
    threads: usize,
    readahead_bytes: usize,
    on_flash: u64,
) -> anyhow::Result<SetRead> {
    let started = Instant::now();
    let rows = send_all(bare, readahead_bytes, &mut std::io::sink())?;
    ensure!(rows == scale.rows, "the iterator finds {rows} of {} rows", scale.rows);
    let iterator_s = started.elapsed().as_secs_f64();
    let (started, next) = (Instant::now(), AtomicU64::new(0));
    let wanted = scale.rows * on_flash / 100;
    in_threads(threads, |_| {
        let mut times = histogram();
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= wanted {
                return Ok(());
            }
            let began = Instant::now();
            let value = bare.get(&key(number))?.with_context(|| format!("row {number} is missing"))?;
            times.saturating_record(began.elapsed().as_nanos() as u64);
            check(number, &value)?;
        }
    })?;
    Ok(SetRead { on_flash, iterator_s, random_s: started.elapsed().as_secs_f64() })
}
