//! Delays that turn a shortage into a slope. RocksDB lets writers run at full speed until a limit
//! and then stops them, so throughput alternates between full speed and none.
//!
//! * Flushes slow down with the *compaction debt*, from RocksDB's slowdown triggers to its stop
//!   triggers, so that debt settles where compaction keeps up.
//! * Writes into a memtable slow down while a flush is under way and most of the memtable's size is
//!   used, so that the room lasts as long as the flush.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::options::Options;

/// Rate of flushes at the slowdown triggers and at the stop triggers, in bytes per second. Between
/// them the rate falls by the same factor for each equal part of the way.
const FLUSH_RATE_FIRST: f64 = (512u64 << 20) as f64;
const FLUSH_RATE_LAST: f64 = (1u64 << 20) as f64;

/// The part of a memtable that writes may use at full speed while another memtable is flushed.
const UNPACED_PART: u64 = 4;
/// Minimum size of a flush from which the next one's time is estimated. A smaller one mostly waits
/// for the device's sync.
const TELLING_BYTES: u64 = 1 << 20;
/// Maximum time for which a writer is delayed for bytes that were written before. It bounds the
/// effect of a flush that is suddenly slow.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Time for which unused rate accumulates.
const SAVED: Duration = Duration::from_millis(2);

/// The compaction that RocksDB owes, and the limits at which it delays and stops writers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    pub level0_files: u64,
    pub pending_bytes: u64,
    /// The way from the slowdown triggers (0) to the stop triggers (1). Below 0 nothing is delayed.
    pub share: f64,
}

impl Debt {
    pub(crate) fn new(level0_files: u64, pending_bytes: u64, options: &Options) -> Debt {
        let way = |now: u64, from: u64, to: u64| {
            (now as f64 - from as f64) / (to.max(from.saturating_add(1)) - from) as f64
        };
        let (slowdown, stop) = (options.level0_slowdown_writes_trigger, options.level0_stop_writes_trigger);
        let (soft, hard) =
            (options.soft_pending_compaction_bytes_limit, options.hard_pending_compaction_bytes_limit);
        // RocksDB takes 0 as no limit.
        let pending = if soft == 0 { -1.0 } else { way(pending_bytes, soft, hard) };
        // Without compactions there is nothing to wait for. RocksDB stops no writer either.
        let share = match options.disable_auto_compactions {
            true => -1.0,
            false => way(level0_files, slowdown, stop).max(pending).max(-1.0),
        };
        Debt { level0_files, pending_bytes, share }
    }

    /// Returns the rate of flushes in bytes per second; `None` if they are not limited.
    pub(crate) fn flush_rate(&self) -> Option<f64> {
        let share = self.share.min(1.0);
        (share >= 0.0).then(|| FLUSH_RATE_FIRST * (FLUSH_RATE_LAST / FLUSH_RATE_FIRST).powf(share))
    }
}

/// The progress of flushes, and the rate of writes that they allow.
pub(crate) struct Pace {
    base: Instant,
    flush: Mutex<Flush>,
    /// The time at which all writes so far are within their rate, in nanoseconds since `base`.
    paid_at: AtomicU64,
    /// Nanoseconds for which writes were delayed.
    delayed: AtomicU64,
}

struct Flush {
    /// The start of the flush under way, and its memtable's bytes.
    under_way: Option<(Duration, u64)>,
    done_bytes: u64,
    /// The rate of the last flush in bytes per second; 0 before the first.
    last_rate: f64,
    /// The part of a flush's time until its file is part of RocksDB, as the last flush had it. In
    /// the rest its rows move to the row cache.
    writing_share: f64,
    /// The latest time at which no row had moved to the row cache yet.
    written_at: Duration,
}

impl Default for Flush {
    fn default() -> Flush {
        let writing_share = 0.5;
        Flush { under_way: None, done_bytes: 0, last_rate: 0.0, writing_share, written_at: Duration::ZERO }
    }
}

impl Flush {
    /// Returns the rate of flushing in bytes per second, if it is known.
    fn rate(&self, now: Duration) -> Option<f64> {
        let (began, bytes) = self.under_way?;
        // The beginning of a flush says little about its rate.
        let present = (self.done_bytes >= bytes / 16)
            .then(|| self.done_bytes as f64 / now.saturating_sub(began).as_secs_f64().max(1e-6));
        match (self.last_rate > 0.0, present) {
            (true, Some(present)) => Some(present.min(self.last_rate)),
            (true, None) => Some(self.last_rate),
            (false, present) => present,
        }
    }
}

impl Pace {
    pub fn new() -> Pace {
        let (paid_at, delayed) = (AtomicU64::new(0), AtomicU64::new(0));
        Pace { base: Instant::now(), flush: Mutex::default(), paid_at, delayed }
    }

    pub fn flush_begins(&self, bytes: u64) {
        let mut flush = self.flush.lock();
        (flush.under_way, flush.done_bytes) = (Some((self.base.elapsed(), bytes)), 0);
    }

    /// Records which parts of the memtable's rows, from 0 to 1, are written to flash and have moved
    /// to the row cache.
    pub fn flushed(&self, written: f64, settled: f64) {
        self.flushed_at(self.base.elapsed(), written, settled);
    }

    fn flushed_at(&self, now: Duration, written: f64, settled: f64) {
        let mut flush = self.flush.lock();
        let Some((_, bytes)) = flush.under_way else { return };
        if settled == 0.0 {
            flush.written_at = now;
        }
        let done = written * flush.writing_share + settled.min(1.0) * (1.0 - flush.writing_share);
        flush.done_bytes = (bytes as f64 * done).round() as u64;
    }

    /// Ends the flush, which paused for the benefit of others. If it failed or was small, its rate
    /// says nothing.
    pub fn flush_ends(&self, is_done: bool, paused: Duration) {
        self.flush_ends_at(self.base.elapsed(), is_done, paused);
    }

    fn flush_ends_at(&self, now: Duration, is_done: bool, paused: Duration) {
        let mut flush = self.flush.lock();
        let telling = |(_, bytes): &(Duration, u64)| is_done && *bytes >= TELLING_BYTES;
        if let Some((began, bytes)) = flush.under_way.take().filter(telling) {
            let seconds = now.saturating_sub(began + paused).as_secs_f64().max(1e-6);
            flush.last_rate = bytes as f64 / seconds;
            let writing = flush.written_at.saturating_sub(began).as_secs_f64();
            flush.writing_share = (writing / seconds).clamp(0.1, 0.9);
        }
    }

    /// Counts a write into the active memtable. `dirty_bytes` are in memtables now, of which
    /// `frozen_bytes` are frozen, and a flush is due at `memtable_bytes` of the active one.
    pub fn wrote(&self, bytes: u64, dirty_bytes: u64, frozen_bytes: u64, memtable_bytes: u64) {
        self.wrote_at(self.base.elapsed(), bytes, dirty_bytes, frozen_bytes, memtable_bytes);
    }

    fn wrote_at(&self, now: Duration, bytes: u64, dirty_bytes: u64, frozen_bytes: u64, memtable_bytes: u64) {
        let free = memtable_bytes.saturating_add(memtable_bytes / UNPACED_PART);
        if dirty_bytes <= free || frozen_bytes == 0 {
            return;
        }
        let flush = self.flush.lock();
        let Some(rate) = flush.rate(now) else { return };
        let left = frozen_bytes.saturating_sub(flush.done_bytes).max(memtable_bytes / 64).max(1);
        drop(flush);
        let room =
            memtable_bytes.saturating_mul(2).saturating_sub(dirty_bytes).max(memtable_bytes / 64).max(1);
        let cost = bytes as f64 / (rate * room as f64 / left as f64);
        let cost = Duration::try_from_secs_f64(cost).unwrap_or(WAIT_MAX).as_nanos() as u64;
        let now = now.as_nanos() as u64;
        let begin = self.paid_at.load(Relaxed).max(now.saturating_sub(SAVED.as_nanos() as u64));
        let latest = now.saturating_add(WAIT_MAX.as_nanos() as u64);
        // Writers hold the tier's lock, so there is one at a time.
        self.paid_at.store(begin.saturating_add(cost).min(latest), Relaxed);
    }

    /// Returns the time for which the next write should wait.
    pub fn wait(&self) -> Duration {
        match self.paid_at.load(Relaxed) {
            0 => Duration::ZERO,
            _ => self.wait_at(self.base.elapsed()),
        }
    }

    fn wait_at(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.paid_at.load(Relaxed)).saturating_sub(now)
    }

    pub fn waited(&self, time: Duration) {
        self.delayed.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// Returns the total time for which writes were delayed.
    pub fn delayed(&self) -> Duration {
        Duration::from_nanos(self.delayed.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(level0_files: u64, pending_bytes: u64) -> Debt {
        let options = Options {
            level0_slowdown_writes_trigger: 20,
            level0_stop_writes_trigger: 36,
            soft_pending_compaction_bytes_limit: 1000,
            hard_pending_compaction_bytes_limit: 2000,
            ..Options::default()
        };
        Debt::new(level0_files, pending_bytes, &options)
    }

    #[test]
    fn flushes_slow_down_evenly_from_the_slowdown_to_the_stop_triggers() {
        assert_eq!(debt(19, 999).flush_rate(), None);
        assert_eq!(debt(20, 0).flush_rate(), Some(FLUSH_RATE_FIRST));
        assert_eq!(debt(40, 0).flush_rate(), Some(FLUSH_RATE_LAST));
        assert_eq!(debt(28, 0).share, 0.5);
        assert_eq!(debt(0, 1500).share, 0.5);
        let rates: Vec<f64> = (20..=36).map(|files| debt(files, 0).flush_rate().unwrap()).collect();
        for pair in rates.windows(2) {
            let step = pair[0] / pair[1];
            assert!((1.4..1.6).contains(&step), "{step}");
        }
    }

    #[test]
    fn limits_that_are_equal_or_absent_make_a_step_or_none() {
        let equal = Options {
            level0_slowdown_writes_trigger: 4,
            level0_stop_writes_trigger: 4,
            soft_pending_compaction_bytes_limit: 0,
            ..Options::default()
        };
        assert!(Debt::new(3, u64::MAX, &equal).share < 0.0);
        assert_eq!(Debt::new(5, u64::MAX, &equal).flush_rate(), Some(FLUSH_RATE_LAST));
        let off = Options { disable_auto_compactions: true, ..equal };
        assert_eq!(Debt::new(500, u64::MAX, &off).flush_rate(), None);
    }

    #[test]
    fn the_progress_of_a_flush_counts_both_of_its_parts_as_the_last_flush_had_them() {
        let (pace, second) = (Pace::new(), Duration::from_secs);
        let done = |now, written, settled| {
            pace.flushed_at(now, written, settled);
            pace.flush.lock().done_bytes
        };
        assert_eq!(done(second(1), 1.0, 1.0), 0, "no flush is under way");
        const BYTES: u64 = 10 * TELLING_BYTES;
        for half in [BYTES / 2, BYTES / 5] {
            let began = second(100);
            pace.flush.lock().under_way = Some((began, BYTES));
            assert_eq!([done(began, 0.5, 0.0), done(began + second(1), 1.0, 0.0)], [half / 2, half]);
            assert_eq!(done(began + second(3), 1.0, 0.5), half + (BYTES - half) / 2);
            assert_eq!(done(began + second(7), 1.0, 1.1), BYTES, "the last step may count too many");
            // Of 7 s it paused for 2. In 1 of the other 5 it wrote.
            pace.flush_ends_at(began + second(7), true, second(2));
            // Flushes that fail or are small change nothing.
            for (bytes, is_done) in [(BYTES, false), (TELLING_BYTES - 1, true)] {
                pace.flush.lock().under_way = Some((began, bytes));
                pace.flush_ends_at(began + second(70), is_done, second(0));
            }
        }
    }

    /// Writes as fast as the pace allows while a memtable of the same size is flushed.
    #[test]
    fn the_room_lasts_as_long_as_the_flush() {
        const MEMTABLE: u64 = 64 << 20;
        const NOW: Duration = Duration::from_secs(100);
        let pace = Pace::new();
        let last_rate = MEMTABLE as f64 / 8.0;
        // Returns the time for which a write waits while this many bytes of the active memtable are
        // used, in seconds. The flush takes 8 s, and has written `done_bytes`.
        let wait_for = |active: u64, done_bytes: u64| {
            let began = NOW - Duration::from_secs_f64(done_bytes as f64 / last_rate);
            *pace.flush.lock() =
                Flush { under_way: Some((began, MEMTABLE)), done_bytes, last_rate, ..Flush::default() };
            pace.paid_at.store(0, Relaxed);
            pace.wrote_at(NOW, 256 << 10, MEMTABLE + active, MEMTABLE, MEMTABLE);
            pace.wait_at(NOW).as_secs_f64()
        };
        assert_eq!(wait_for(MEMTABLE / 4, 0), 0.0, "the first quarter is free");
        let as_fast_as_the_flush = f64::from(256 << 10) / last_rate;
        for part in 3..7 {
            let done = MEMTABLE / 8 * part;
            let wait = wait_for(done, done);
            assert!((wait / as_fast_as_the_flush - 1.0).abs() < 0.1, "{wait} at {part}");
        }
        assert!(wait_for(MEMTABLE / 2, MEMTABLE / 16) > 1.5 * as_fast_as_the_flush, "too early");
        assert!(wait_for(MEMTABLE / 2, MEMTABLE / 4 * 3) < 0.6 * as_fast_as_the_flush, "there is much room");
        assert_eq!(wait_for(2 * MEMTABLE, MEMTABLE / 16), WAIT_MAX.as_secs_f64());
        pace.flush_ends(true, Duration::ZERO);
        pace.paid_at.store(0, Relaxed);
        pace.wrote_at(NOW, 1 << 20, 2 * MEMTABLE, 0, MEMTABLE);
        assert_eq!(pace.wait_at(NOW), Duration::ZERO, "nothing is flushed");
    }
}
