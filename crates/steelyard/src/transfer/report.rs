//! The progress line, and the report at the end of a transfer.

use std::collections::{BTreeMap, HashSet};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::table::{bytes, count, duration};
use resp::Reply;
use tokio::task::JoinHandle;

use super::place::{LeftOut, Place};

/// Time between two lines on a terminal, and elsewhere.
const TERMINAL_EVERY: Duration = Duration::from_millis(500);
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Number of refused keys that are named.
const NAMED_MAX: usize = 20;

/// Counters of a transfer, which its tasks share.
pub struct Progress {
    started: Instant,
    pub keys: AtomicU64,
    pub bytes: AtomicU64,
    /// Keys that were copied in pieces.
    pub in_pieces: AtomicU64,
    /// The expected number of keys or bytes, 0 if it is not known.
    expected: AtomicU64,
    by_bytes: AtomicBool,
    /// The place in the file that is read.
    reached: AtomicU64,
    refused: Mutex<Refused>,
    notes: Mutex<Vec<String>>,
    /// Streams that were written without some of their pending entries, and the number of these.
    left_out: Mutex<BTreeMap<(u64, Bytes), u64>>,
}

#[derive(Default)]
struct Refused {
    count: u64,
    named: Vec<String>,
    by_reason: BTreeMap<String, u64>,
    /// The lines of keys that were refused before an interruption, and may be met again.
    before: HashSet<String>,
}

/// Returns a key as text.
pub fn shown(key: &[u8]) -> String {
    const SHOWN_MAX: usize = 80;
    let text = key[..key.len().min(SHOWN_MAX)].escape_ascii().to_string();
    if key.len() > SHOWN_MAX {
        format!("{text}...")
    } else {
        text
    }
}

impl Progress {
    pub fn new() -> Arc<Progress> {
        Arc::new(Progress {
            started: Instant::now(),
            keys: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            in_pieces: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            by_bytes: AtomicBool::new(false),
            reached: AtomicU64::new(0),
            refused: Mutex::default(),
            notes: Mutex::default(),
            left_out: Mutex::default(),
        })
    }

    pub fn expect_keys(&self, keys: u64) {
        self.expected.store(keys, Ordering::Relaxed);
    }

    pub fn expect_bytes(&self, bytes: u64) {
        self.by_bytes.store(true, Ordering::Relaxed);
        self.expected.store(bytes, Ordering::Relaxed);
    }

    /// Tells the place in the file that is read.
    pub fn reached(&self, position: u64) {
        self.reached.store(position, Ordering::Relaxed);
    }

    /// Begins with what was not copied before an interruption.
    pub fn begin_with(&self, place: &Place) {
        let mut refused = self.refused.lock().expect("nothing panics under this lock");
        (refused.count, refused.named) = (place.refused, place.named.clone());
        refused.by_reason = place.by_reason.clone();
        refused.before = refused.named.iter().cloned().collect();
        let left_out = place
            .left_out
            .iter()
            .map(|stream| ((stream.database, Bytes::from(stream.key.clone())), stream.pending));
        *self.left_out.lock().expect("nothing panics under this lock") = left_out.collect();
    }

    /// Writes to a place what was not copied before it.
    pub fn record(&self, place: &mut Place) {
        let refused = self.refused.lock().expect("nothing panics under this lock");
        (place.refused, place.named) = (refused.count, refused.named.clone());
        place.by_reason = refused.by_reason.clone();
        let left_out = self.left_out.lock().expect("nothing panics under this lock");
        let left_out = left_out.iter().map(|((database, key), pending)| LeftOut {
            database: *database,
            key: key.to_vec(),
            pending: *pending,
        });
        place.left_out = left_out.collect();
    }

    pub fn add(&self, keys: u64, bytes: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records a key that is not copied.
    pub fn refuse(&self, database: u64, key: &[u8], reason: &str) {
        let line = format!("  database {database}, {}: {reason}", shown(key));
        let mut refused = self.refused.lock().expect("nothing panics under this lock");
        if refused.before.remove(&line) {
            return;
        }
        refused.count += 1;
        *refused.by_reason.entry(reason.to_owned()).or_default() += 1;
        if refused.named.len() < NAMED_MAX {
            refused.named.push(line);
        }
    }

    pub fn refused(&self) -> u64 {
        self.refused.lock().expect("nothing panics under this lock").count
    }

    /// Notes that the source did not give its libraries of functions. One without functions has
    /// none.
    pub fn note_without_functions(&self, reply: &Reply) {
        match reply {
            Reply::Error(text) if !text.starts_with("ERR unknown command") => {
                self.note(format!("the libraries of functions were not read: {text}"));
            }
            _ => {}
        }
    }

    /// Records that a stream was written without some of its pending entries.
    pub fn leave_out(&self, database: u64, key: &Bytes, count: u64) {
        let mut left_out = self.left_out.lock().expect("nothing panics under this lock");
        left_out.insert((database, key.clone()), count);
    }

    /// Returns true if a stream was written with all its pending entries.
    pub fn has_all_pending(&self, database: u64, key: &Bytes) -> bool {
        let left_out = self.left_out.lock().expect("nothing panics under this lock");
        !left_out.contains_key(&(database, key.clone()))
    }

    /// Adds a line to the report.
    pub fn note(&self, text: impl Into<String>) {
        let (text, mut notes) = (text.into(), self.notes.lock().expect("nothing panics under this lock"));
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    pub fn line(&self) -> String {
        let [keys, copied, expected] =
            [&self.keys, &self.bytes, &self.expected].map(|number| number.load(Ordering::Relaxed));
        let elapsed = self.started.elapsed();
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let done = match self.by_bytes.load(Ordering::Relaxed) {
            true => self.reached.load(Ordering::Relaxed),
            false => keys,
        };
        let share = match expected {
            0 => String::new(),
            expected => format!("  {:.0}%", (100.0 * done as f64 / expected as f64).min(100.0)),
        };
        format!(
            "{} keys  {}{share}  {} keys/s  {}/s  {}",
            count(keys as f64),
            bytes(copied as f64),
            count(keys as f64 / seconds),
            bytes(copied as f64 / seconds),
            duration(elapsed)
        )
    }

    /// Shows the progress on stderr until the task is aborted.
    pub fn show(self: &Arc<Progress>) -> JoinHandle<()> {
        let progress = self.clone();
        tokio::spawn(async move {
            let is_terminal = std::io::stderr().is_terminal();
            let mut ticks = tokio::time::interval(if is_terminal { TERMINAL_EVERY } else { LOG_EVERY });
            ticks.tick().await;
            loop {
                ticks.tick().await;
                match is_terminal {
                    true => eprint!("\r\x1b[K{}", progress.line()),
                    false => eprintln!("{}", progress.line()),
                }
            }
        })
    }

    /// Prints the totals, notes and refused keys.
    pub fn print_totals(&self, verb: &str) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        println!("{verb} {}", self.line());
        let pieces = self.in_pieces.load(Ordering::Relaxed);
        if pieces > 0 {
            println!("{} keys in pieces", count(pieces as f64));
        }
        for note in self.notes.lock().expect("nothing panics under this lock").iter() {
            println!("note: {note}");
        }
        let left_out = self.left_out.lock().expect("nothing panics under this lock");
        if !left_out.is_empty() {
            println!(
                "note: {} pending entries, whose entries were deleted, were left out of {} streams",
                count(left_out.values().sum::<u64>() as f64),
                count(left_out.len() as f64)
            );
        }
        let refused = self.refused.lock().expect("nothing panics under this lock");
        if refused.count > 0 {
            println!("{} keys not copied:", count(refused.count as f64));
            refused.named.iter().for_each(|line| println!("{line}"));
            if refused.count > refused.named.len() as u64 {
                let reasons = refused.by_reason.iter();
                reasons.for_each(|(reason, number)| println!("  {}: {reason}", count(*number as f64)));
            }
        }
    }
}
