//! A store on the device model, in simulated time.

use device::{Control, Extent, Profile};

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
/// Maximum time by which background writes run ahead of the device.
const AHEAD_NS: u64 = 20_000_000;
/// Interval between background writes.
const STEP_NS: u64 = 2_000_000;
const CHUNK: u64 = 64 << 10;

/// The load of a store on its device.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Log batches begun per second, of this size. Each waits for the one before.
    pub batches: u64,
    pub batch_bytes: u64,
    /// Bytes per second that compaction would write, in bursts of this share of the time.
    pub background_bytes: u64,
    pub burst: f64,
}

pub const BUSY: Load = Load { batches: 500, batch_bytes: 8 << 10, background_bytes: 10 << 20, burst: 1.0 };
pub const IDLE: Load = Load { batches: 0, batch_bytes: 0, background_bytes: 0, burst: 1.0 };

/// A store on the device model, second by second.
pub struct Store {
    _dir: tempfile::TempDir,
    device: Control,
    pub watch: Watch,
    pub now_ns: u64,
    log_free_ns: u64,
    written: u64,
    /// Time until which the watch waits for a touch and observes nothing.
    touch_ends_ns: u64,
    owed: f64,
    totals: Totals,
    pub touches: u64,
    pub changes: Vec<(u64, Changed)>,
}

impl Store {
    /// Creates a store whose watch knows the device without noise, and knows a hybrid device by its
    /// cache.
    pub fn new(profile: &str) -> Store {
        Store::with_noise(profile, 0)
    }

    pub fn with_noise(profile: &str, seed: u64) -> Store {
        let dir = tempfile::tempdir().unwrap();
        let mut profile: Profile = profile.parse().unwrap();
        profile.noise = profile.noise.of_device(seed);
        let device = Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
        let (sync_latency, write_bytes_per_s) = match &profile.cache {
            Some(cache) => (cache.sync_latency, cache.write_bytes_per_s),
            None => (profile.sync_latency, profile.write_bytes_per_s),
        };
        let reference = Reference { sync_latency, write_bytes_per_s: write_bytes_per_s as f64 };
        Store {
            _dir: dir,
            device,
            watch: Watch::new(reference),
            now_ns: SECOND_NS,
            log_free_ns: 0,
            written: 0,
            touch_ends_ns: 0,
            owed: 0.0,
            totals: Totals::default(),
            touches: 0,
            changes: Vec::new(),
        }
    }

    pub fn seconds(&mut self, seconds: u64, load: Load, serves: bool) {
        for _ in 0..seconds {
            self.second(load, serves);
        }
    }

    pub fn second(&mut self, load: Load, serves: bool) {
        let (began, end) = (self.now_ns, self.now_ns + SECOND_NS);
        let (bytes_before, log_before) = (self.totals.bytes, self.totals.log_bytes);
        let block = self.device.block();
        let mut batch = 0;
        while self.now_ns < end {
            let at = self.now_ns;
            let into = (at % SECOND_NS) as f64 / SECOND_NS as f64;
            if into < load.burst {
                self.owed += load.background_bytes as f64 * STEP_NS as f64 / SECOND_NS as f64 / load.burst;
            }
            // Compaction defers the bytes that it cannot write, up to one second's worth.
            self.owed = self.owed.min((load.background_bytes as f64 / load.burst).max(2.0 * CHUNK as f64));
            while self.owed >= CHUNK as f64 && block.drained(at) < at + AHEAD_NS {
                write(&self.device, &mut self.written, at, CHUNK);
                self.totals.bytes += CHUNK;
                self.owed -= CHUNK as f64;
            }
            while batch < load.batches {
                let wants = began + batch * SECOND_NS / load.batches;
                if wants >= at + STEP_NS {
                    break;
                }
                batch += 1;
                if self.log_free_ns > wants {
                    continue;
                }
                write(&self.device, &mut self.written, wants, load.batch_bytes);
                let done = block.sync(wants);
                self.totals.bytes += load.batch_bytes;
                self.totals.log_bytes += load.batch_bytes;
                self.totals.syncs += 1;
                self.totals.blocked += Duration::from_nanos(done - wants);
                self.log_free_ns = done;
            }
            self.now_ns += STEP_NS;
        }
        if self.now_ns < self.touch_ends_ns {
            return;
        }
        let now = Duration::from_nanos(self.now_ns);
        // The wait for a time that lies ahead does not count yet.
        let ahead = Duration::from_nanos(self.log_free_ns.saturating_sub(self.now_ns));
        let seen = Totals { blocked: self.totals.blocked - ahead, ..self.totals };
        let change = self.watch.observe(now, seen);
        self.note(change);
        if self.watch.wants_touch(now, serves) {
            self.touches += 1;
            let log_bytes = self.totals.log_bytes - log_before;
            let others = (self.totals.bytes - bytes_before - log_bytes) as f64;
            let touch = self.touch(others, log_bytes as f64);
            let change = self.watch.touched(now, touch);
            self.note(change);
        }
    }

    /// Touches the device. Compaction and the log continue meanwhile, and some flushes of the log
    /// are in progress when a sync comes.
    fn touch(&mut self, others_bytes_per_s: f64, log_bytes_per_s: f64) -> Touch {
        let (block, began) = (self.device.block(), self.now_ns);
        // This write wakes a sleeping drive.
        write(&self.device, &mut self.written, began, 4 << 10);
        let (woken, mut bytes, mut syncs) = (block.sync(began), 0, 0);
        let (mut last, mut at, mut log) = (began, woken, 0.0);
        let half_a_sync =
            (self.watch.reference.sync_latency.as_nanos() as f64 / 2.0 * self.device.slow()) as u64;
        for own in [[4 << 10; 4], [256 << 10; 4]].concat() {
            let others = (others_bytes_per_s * (at - last) as f64 / SECOND_NS as f64) as u64;
            write(&self.device, &mut self.written, at, others);
            self.totals.bytes += others;
            log += self.watch.used;
            if log >= 1.0 {
                log -= 1.0;
                block.sync(at.saturating_sub(half_a_sync));
            }
            write(&self.device, &mut self.written, at, own);
            (last, at) = (at, block.sync(at));
            bytes += own;
            syncs += 1;
            if at - woken > SECOND_NS {
                break;
            }
        }
        self.touch_ends_ns = at;
        let blocked = Duration::from_nanos(at - woken);
        let others = (others_bytes_per_s + log_bytes_per_s) * blocked.as_secs_f64();
        Touch { blocked, syncs, bytes, others_bytes: others as u64 }
    }

    fn note(&mut self, change: Option<Changed>) {
        if let Some(change) = change {
            assert!((CORRECTION_MIN..=1.0).contains(&change.correction), "{change:?}");
            self.changes.push((self.now_ns / SECOND_NS, change));
        }
    }

    pub fn slow(&self, factor: f64) {
        self.device.set_slow(factor).unwrap();
    }
}

/// Writes an extent that was never written before.
fn write(device: &Control, written: &mut u64, at: u64, bytes: u64) {
    match device.cache() {
        Some(cache) => _ = cache.write(at, Extent { file: 1, begin: *written, bytes }),
        None => _ = device.block().write(at, bytes),
    }
    *written += bytes;
}
