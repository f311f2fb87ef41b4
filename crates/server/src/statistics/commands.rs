//! Numbers and times by command, and numbers of errors by code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use node::session::{Calls, Tally};
use parking_lot::Mutex;
use storage::KeyCounts;

use crate::metrics::Traffic;

/// Maximum time in a histogram in microseconds, about a second as in Redis. Longer times count as
/// this.
const MICROS_MAX: u64 = 1 << 20;
/// Significant digits of a histogram. It takes about 16 KiB, for each command and each loop.
const DIGITS: u8 = 2;
/// Maximum number of codes of errors that are counted one by one, as in Redis.
const CODES_MAX: usize = 128;

/// The statistics of one command.
#[derive(Clone, Default)]
pub struct OfCommand {
    pub calls: u64,
    pub micros: u64,
    pub rejected: u64,
    pub failed: u64,
    /// The times of the executions in microseconds, if they are recorded.
    pub times: Option<Histogram<u64>>,
}

impl OfCommand {
    /// Records executions that took a time together.
    fn record(&mut self, took: Duration, count: u64, tracks: bool) {
        let micros = took.as_micros() as u64;
        self.micros = self.micros.saturating_add(micros.saturating_mul(count));
        if tracks && count > 0 {
            let times = self.times.get_or_insert_with(|| {
                Histogram::new_with_bounds(1, MICROS_MAX, DIGITS).expect("the bounds are a range")
            });
            times.saturating_record_n(micros.clamp(1, MICROS_MAX), count);
        }
    }

    fn join(&mut self, other: &OfCommand) {
        self.calls += other.calls;
        self.micros = self.micros.saturating_add(other.micros);
        self.rejected += other.rejected;
        self.failed += other.failed;
        if let Some(times) = &other.times {
            match &mut self.times {
                Some(own) => own.add(times).expect("histograms of the same bounds"),
                None => self.times = Some(times.clone()),
            }
        }
    }
}

/// The commands that a loop has answered since they were last recorded.
#[derive(Default)]
pub struct Tallied {
    /// Counts of commands, with the time that they took.
    calls: Vec<(Calls, Duration)>,
    errors: Vec<Bytes>,
    /// Keys that the loop's reads have looked up.
    pub keys: KeyCounts,
    pub traffic: Traffic,
}

impl Tallied {
    /// Takes the counts of a session whose commands took a time together.
    pub fn take(&mut self, tally: &mut Tally, took: Duration) {
        self.calls.extend(tally.commands.drain(..).map(|calls| (calls, took)));
        self.errors.append(&mut tally.errors);
    }
}

/// The commands that a loop has answered, by their names.
type OfLoop = BTreeMap<&'static str, OfCommand>;

pub struct CommandTimes {
    /// Each loop has its own, so that loops do not wait for each other.
    loops: Vec<Mutex<OfLoop>>,
    errors: Mutex<BTreeMap<String, u64>>,
    error_count: AtomicU64,
    tracks: AtomicBool,
}

impl CommandTimes {
    pub fn new(loops: usize) -> CommandTimes {
        CommandTimes {
            loops: (0..loops.max(1)).map(|_| Mutex::default()).collect(),
            errors: Mutex::default(),
            error_count: AtomicU64::new(0),
            tracks: AtomicBool::new(true),
        }
    }

    /// Sets whether histograms of times are recorded.
    pub fn set_tracking(&self, tracks: bool) {
        if self.tracks.swap(tracks, Ordering::Relaxed) && !tracks {
            for of_loop in &self.loops {
                of_loop.lock().values_mut().for_each(|of| of.times = None);
            }
        }
    }

    /// Records and removes what a loop has answered.
    pub fn record(&self, of_loop: usize, tallied: &mut Tallied) {
        // Replies to no known command are errors without a call.
        if !tallied.errors.is_empty() {
            self.count_errors(std::mem::take(&mut tallied.errors));
        }
        if tallied.calls.is_empty() {
            return;
        }
        let tracks = self.tracks.load(Ordering::Relaxed);
        let mut commands = self.loops[of_loop].lock();
        // Commands of one kind often follow each other.
        for run in tallied.calls.chunk_by(|(one, _), (other, _)| std::ptr::eq(one.spec, other.spec)) {
            let of = commands.entry(run[0].0.spec.name).or_default();
            for (calls, took) in run {
                of.calls += calls.calls;
                of.failed += calls.failed;
                of.rejected += calls.rejected;
                of.record(*took, calls.calls, tracks);
            }
        }
        tallied.calls.clear();
    }

    fn count_errors(&self, codes: Vec<Bytes>) {
        self.error_count.fetch_add(codes.len() as u64, Ordering::Relaxed);
        let mut errors = self.errors.lock();
        for code in &codes {
            let code = String::from_utf8_lossy(code);
            // The others are only in the sum: codes that clients make up must not fill memory.
            if errors.len() < CODES_MAX || errors.contains_key(&*code) {
                *errors.entry(code.into_owned()).or_default() += 1;
            }
        }
    }

    /// Returns the statistics of all commands that were used.
    pub fn all(&self) -> BTreeMap<&'static str, OfCommand> {
        let mut all = BTreeMap::<_, OfCommand>::new();
        for of_loop in &self.loops {
            of_loop.lock().iter().for_each(|(name, of)| all.entry(*name).or_default().join(of));
        }
        all
    }

    /// Returns the number of errors by code.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Returns the number of all error replies.
    pub fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }

    pub fn reset(&self) {
        self.loops.iter().for_each(|of_loop| of_loop.lock().clear());
        self.errors.lock().clear();
        self.error_count.store(0, Ordering::Relaxed);
    }
}

/// Returns the number of executions that took at most 1, 2, 4, … microseconds, as far as the
/// numbers grow.
pub fn cumulative(times: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut rows = Vec::new();
    let mut bound = 1;
    while bound <= MICROS_MAX {
        let count = times.count_between(0, bound);
        if count > 0 {
            rows.push((bound, count));
        }
        if count >= times.len() {
            break;
        }
        bound *= 2;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tallied(answered: &[(&str, u64, u64, Duration)]) -> Tallied {
        let mut tallied = Tallied::default();
        for &(name, calls, failed, took) in answered {
            let spec = command::lookup(name.as_bytes()).unwrap();
            let errors = (0..failed).map(|_| Bytes::from_static(b"ERR")).collect();
            let mut tally = Tally { commands: vec![Calls { spec, calls, failed, rejected: 0 }], errors };
            tallied.take(&mut tally, took);
        }
        tallied
    }

    #[test]
    fn the_loops_commands_are_joined_and_every_time_is_in_a_bucket() {
        let times = CommandTimes::new(2);
        times.record(0, &mut tallied(&[("get", 3, 0, Duration::from_micros(5))]));
        let of_other = [("get", 1, 1, Duration::from_secs(9)), ("set", 2, 0, Duration::ZERO)];
        times.record(1, &mut tallied(&of_other));
        let all = times.all();
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), ["get", "set"]);
        let get = &all["get"];
        assert_eq!((get.calls, get.failed, get.micros), (4, 1, 9_000_015));
        let rows = cumulative(get.times.as_ref().unwrap());
        assert_eq!(rows.first(), Some(&(8, 3)));
        assert_eq!(rows.last(), Some(&(MICROS_MAX, 4)), "long times are in the last bucket");
        assert_eq!(cumulative(all["set"].times.as_ref().unwrap()), [(1, 2)]);
        assert_eq!((times.errors()["ERR"], times.error_count()), (1, 1));
        times.set_tracking(false);
        assert!(times.all()["get"].times.is_none());
        times.reset();
        assert!(times.all().is_empty() && times.errors().is_empty());
    }

    #[test]
    fn codes_that_clients_make_up_do_not_fill_memory() {
        let times = CommandTimes::new(1);
        let codes = (0..1000).map(|number| format!("CODE{number}").into()).collect();
        times.count_errors(codes);
        assert_eq!((times.errors().len(), times.error_count()), (CODES_MAX, 1000));
    }
}
