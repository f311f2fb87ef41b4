use device::{Control, Profile};
use proptest::prelude::*;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

/// What a store does to its device.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Log batches begun per second, of so many bytes; one waits for the one before.
    batches: u64,
    batch_bytes: u64,
    /// Compaction that would write so much a second, in bursts of this part of the time.
    background_bytes: u64,
    burst: f64,
}

const BUSY: Load = Load { batches: 500, batch_bytes: 8 << 10, background_bytes: 10 << 20, burst: 1.0 };
const IDLE: Load = Load { batches: 0, batch_bytes: 0, background_bytes: 0, burst: 1.0 };

/// A store on the device model, second by second.
struct Store {
    _dir: tempfile::TempDir,
    device: Control,
    watch: Watch,
    now_ns: u64,
    log_free_ns: u64,
    totals: Totals,
    touches: u64,
    changes: Vec<(u64, Changed)>,
}

impl Store {
    fn new(profile: &str) -> Store {
        let dir = tempfile::tempdir().unwrap();
        let profile: Profile = profile.parse().unwrap();
        let device = Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
        let reference = Reference {
            sync_latency: profile.sync_latency,
            write_bytes_per_s: profile.write_bytes_per_s as f64,
        };
        Store {
            _dir: dir,
            device,
            watch: Watch::new(reference),
            now_ns: SECOND_NS,
            log_free_ns: 0,
            totals: Totals::default(),
            touches: 0,
            changes: Vec::new(),
        }
    }

    fn seconds(&mut self, seconds: u64, load: Load, serves: bool) {
        for _ in 0..seconds {
            self.second(load, serves);
        }
    }

    fn second(&mut self, load: Load, serves: bool) {
        let end = self.now_ns + SECOND_NS;
        let block = self.device.block();
        // A millisecond at a time: background first, which runs at most 20 ms ahead of the device.
        const STEP_NS: u64 = 1_000_000;
        let mut owed = 0.0;
        while self.now_ns < end {
            let at = self.now_ns;
            let into = (at % SECOND_NS) as f64 / SECOND_NS as f64;
            if into < load.burst {
                owed += load.background_bytes as f64 / 1000.0 / load.burst;
            }
            let chunk = 64 << 10;
            while owed >= chunk as f64 && block.drained(at) < at + 20_000_000 {
                block.write(at, chunk);
                self.totals.bytes += chunk;
                owed -= chunk as f64;
            }
            for batch in 0..load.batches {
                let wants = end - SECOND_NS + batch * SECOND_NS / load.batches;
                if wants < at || wants >= at + STEP_NS || self.log_free_ns > wants {
                    continue;
                }
                block.write(wants, load.batch_bytes);
                let done = block.sync(wants);
                self.totals.bytes += load.batch_bytes;
                self.totals.syncs += 1;
                self.totals.blocked += Duration::from_nanos(done - wants);
                self.log_free_ns = done;
            }
            self.now_ns += STEP_NS;
        }
        let now = Duration::from_nanos(self.now_ns);
        // What has not come back is not waited for beyond now.
        let ahead = Duration::from_nanos(self.log_free_ns.saturating_sub(self.now_ns));
        let seen = Totals { blocked: self.totals.blocked - ahead, ..self.totals };
        let change = self.watch.observe(now, seen);
        self.note(change);
        if self.watch.wants_touch(now, serves) {
            self.touches += 1;
            let mut at = self.now_ns;
            let mut own = 0;
            let block = self.device.block();
            for bytes in [4 << 10, 4 << 10, 4 << 10, 4 << 10, 1 << 20] {
                block.write(at, bytes);
                at = block.sync(at);
                own += bytes;
            }
            let blocked = Duration::from_nanos(at - self.now_ns);
            let meanwhile = (load.background_bytes as f64 * blocked.as_secs_f64()) as u64;
            let touch = Touch { blocked, syncs: 5, bytes: own + meanwhile };
            let change = self.watch.touched(now, touch);
            self.note(change);
        }
    }

    fn note(&mut self, change: Option<Changed>) {
        if let Some(change) = change {
            assert!((CORRECTION_MIN..=1.0).contains(&change.correction), "{change:?}");
            self.changes.push((self.now_ns / SECOND_NS, change));
        }
    }

    fn slow(&self, factor: f64) {
        self.device.set_slow(factor).unwrap();
    }
}

#[test]
fn a_store_whose_device_slows_tenfold_counts_for_a_fraction_within_twenty_seconds() {
    for (profile, load) in [
        ("write=25MB/s,read=25MB/s,sync=20ms", Load { batches: 20, ..BUSY }),
        ("write=500MB/s,read=500MB/s,sync=1ms", BUSY),
        // Compaction alone keeps the slowed device busy.
        ("write=100MB/s,read=100MB/s,sync=100us", Load { background_bytes: 60 << 20, ..BUSY }),
    ] {
        let mut store = Store::new(profile);
        store.seconds(60, load, true);
        assert_eq!(store.watch.correction(), 1.0, "{profile}: {:?}", store.changes);
        store.slow(10.0);
        store.seconds(20, load, true);
        let correction = store.watch.correction();
        // Syncs and compaction share the time in which the device is busy, and both are counted in full.
        assert!((0.05..0.25).contains(&correction), "{profile}: {correction} {:?}", store.changes);
    }
}

#[test]
fn a_device_that_has_recovered_counts_fully_again_without_any_load_and_not_at_once() {
    let mut store = Store::new("write=25MB/s,read=25MB/s,sync=20ms");
    let load = Load { batches: 20, ..BUSY };
    store.seconds(20, load, true);
    store.slow(10.0);
    store.seconds(30, load, true);
    let low = store.watch.correction();
    // Placement has taken everything away by now, and nothing comes back as long as it is slow.
    store.seconds(120, IDLE, false);
    assert!(store.watch.correction() <= low * 1.01, "{:?}", store.changes);
    let touches = store.touches;
    store.slow(1.0);
    store.seconds(20, IDLE, false);
    assert!(store.watch.correction() <= low * 1.01, "calmly: {:?}", store.changes);
    store.seconds(130, IDLE, false);
    assert_eq!(store.watch.correction(), 1.0, "{:?}", store.changes);
    let steps = store.changes.windows(2).filter(|pair| pair[1].1.correction > pair[0].1.correction);
    assert!(steps.clone().count() >= 3, "in steps: {:?}", store.changes);
    assert!(store.touches > touches);
    let touches = store.touches;
    store.seconds(600, IDLE, false);
    assert_eq!(store.touches, touches, "a healthy device at rest is left in peace");
}

#[test]
fn a_device_that_slows_under_reads_alone_is_found_by_touching_it() {
    let mut store = Store::new("write=500MB/s,read=500MB/s,sync=1ms");
    store.seconds(100, IDLE, true);
    assert_eq!(store.watch.correction(), 1.0);
    assert!((8..=11).contains(&store.touches), "{}", store.touches);
    store.slow(10.0);
    store.seconds(40, IDLE, true);
    assert!(store.watch.correction() < 0.2, "{:?}", store.changes);
}

#[test]
fn one_hiccup_says_nothing() {
    let mut store = Store::new("write=500MB/s,read=500MB/s,sync=1ms");
    for _ in 0..10 {
        store.seconds(12, BUSY, true);
        store.slow(100.0);
        store.seconds(2, BUSY, true);
        store.slow(1.0);
    }
    assert!(store.changes.is_empty(), "{:?}", store.changes);
}

#[test]
fn a_sync_that_never_comes_back_is_a_slow_device() {
    let mut watch = Watch::new(Reference { sync_latency: Duration::from_millis(1), write_bytes_per_s: 1e8 });
    let mut last = None;
    for second in 0..20 {
        let now = Duration::from_secs(second);
        last = watch.observe(now, Totals { blocked: now, syncs: 0, bytes: 0 }).or(last);
    }
    assert!(watch.correction() < 0.01, "{last:?}");
}

#[test]
fn a_drive_that_wakes_up_for_each_of_few_syncs_is_not_blamed() {
    let mut watch =
        Watch::new(Reference { sync_latency: Duration::from_micros(100), write_bytes_per_s: 1e9 });
    for second in 0..600u32 {
        let blocked = second * 5 * Duration::from_millis(3);
        let totals = Totals { blocked, syncs: u64::from(second) * 5, bytes: u64::from(second) * 20_000 };
        assert_eq!(watch.observe(Duration::from_secs(second.into()), totals), None);
    }
}

/// A few syncs a second, each of them held up by what else runs on the machine.
#[test]
fn an_idle_store_is_never_corrected_down() {
    let mut watch = Watch::new(Reference { sync_latency: Duration::from_micros(44), write_bytes_per_s: 1e9 });
    for second in 0..600u64 {
        let syncs = second * 8;
        let blocked = Duration::from_millis(10) * syncs as u32;
        let totals = Totals { blocked, syncs, bytes: syncs * 4096 };
        assert_eq!(watch.observe(Duration::from_secs(second), totals), None);
        assert!(!watch.wants_touch(Duration::from_secs(second), false));
    }
    assert_eq!(watch.correction(), 1.0);
}

#[test]
fn a_partly_restored_device_counts_for_as_much_as_it_does() {
    let mut store = Store::new("write=25MB/s,read=25MB/s,sync=20ms");
    let load = Load { batches: 20, background_bytes: 0, ..BUSY };
    store.slow(30.0);
    store.seconds(60, load, true);
    assert!(store.watch.correction() < 0.06, "{:?}", store.changes);
    store.slow(4.0);
    store.seconds(200, load, true);
    let correction = store.watch.correction();
    assert!((0.15..0.4).contains(&correction), "{correction} {:?}", store.changes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// However busy: with what a device does it is never taken for a slowed one.
    #[test]
    fn a_healthy_device_always_counts_fully(
        sync_us in 5u64..30_000,
        bandwidth in 20u64..2_000,
        loads in proptest::collection::vec((0u64..2_000, 1u64..200_000, 0.0..3.0f64, 0.05..1.0f64), 1..6),
        serves in any::<bool>(),
    ) {
        let profile = format!("write={bandwidth}MB/s,read={bandwidth}MB/s,sync={sync_us}us");
        let mut store = Store::new(&profile);
        for (batches, batch_bytes, background, burst) in loads {
            let background_bytes = (background * bandwidth as f64 * 1e6) as u64;
            store.seconds(15, Load { batches, batch_bytes, background_bytes, burst }, serves);
        }
        prop_assert!(store.changes.is_empty(), "{:?}", store.changes);
    }

    /// And a factor stays within its bounds, and becomes 1 again, whatever the device did before.
    #[test]
    fn whatever_happened_a_healthy_device_counts_fully_in_the_end(
        slowness in proptest::collection::vec((1.0..200.0f64, 0u64..50), 1..6),
    ) {
        let mut store = Store::new("write=50MB/s,read=50MB/s,sync=5ms");
        let load = Load { batches: 40, background_bytes: 5 << 20, ..BUSY };
        for (factor, seconds) in slowness {
            store.slow(factor);
            store.seconds(seconds, load, true);
        }
        store.slow(1.0);
        store.seconds(400, load, true);
        prop_assert_eq!(store.watch.correction(), 1.0, "{:?}", store.changes);
        let calm = store.changes.len();
        store.seconds(100, load, true);
        prop_assert_eq!(store.changes.len(), calm);
    }
}
