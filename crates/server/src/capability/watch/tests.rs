use proptest::prelude::*;

use super::simulated::{Load, Store, BUSY, IDLE};
use super::*;

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
        // Syncs and compaction share the time in which the device is busy, and both count in full.
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
    // By now placement has moved everything away. Nothing moves back while the device is slow.
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
    assert_eq!(store.touches, touches, "a healthy device at rest is not touched");
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
        last = watch.observe(now, Totals { blocked: now, ..Totals::default() }).or(last);
    }
    assert!(watch.correction() < 0.01, "{last:?}");
}

#[test]
fn a_drive_that_wakes_up_for_each_of_few_syncs_is_not_blamed() {
    let mut watch =
        Watch::new(Reference { sync_latency: Duration::from_micros(100), write_bytes_per_s: 1e9 });
    for second in 0..600u32 {
        let blocked = second * 5 * Duration::from_millis(3);
        let totals =
            Totals { blocked, syncs: u64::from(second) * 5, bytes: u64::from(second) * 20_000, log_bytes: 0 };
        assert_eq!(watch.observe(Duration::from_secs(second.into()), totals), None);
    }
}

/// A few syncs a second, each delayed by other work of the machine.
#[test]
fn an_idle_store_is_never_corrected_down() {
    let mut watch = Watch::new(Reference { sync_latency: Duration::from_micros(44), write_bytes_per_s: 1e9 });
    for second in 0..600u64 {
        let syncs = second * 8;
        let blocked = Duration::from_millis(10) * syncs as u32;
        let totals = Totals { blocked, syncs, bytes: syncs * 4096, log_bytes: syncs * 4096 };
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

    /// A busy healthy device is never judged slow, whatever its load.
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

    /// A correction stays within its bounds and returns to 1, whatever the device did before.
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

#[test]
fn a_store_that_has_its_part_of_a_shared_device_is_healthy_and_one_that_has_less_is_not() {
    let reference = Reference { sync_latency: Duration::from_millis(1), write_bytes_per_s: 1e9 };
    let ratio = |sharers: usize, blocked_ms: u64| {
        let mut watch = Watch::new(reference);
        watch.share(sharers);
        let mut totals = Totals::default();
        for second in 0..10 {
            watch.observe(Duration::from_secs(second), totals);
            totals.syncs += 100;
            totals.blocked += Duration::from_millis(blocked_ms);
        }
        (watch.ratio().expect("there is enough evidence"), watch.correction())
    };
    assert_eq!(ratio(1, 400), (4.0, 0.25));
    assert_eq!(ratio(4, 400), (1.0, 1.0));
    assert_eq!(ratio(2, 800), (4.0, 0.25));
    assert_eq!(ratio(0, 100), (1.0, 1.0));
}
