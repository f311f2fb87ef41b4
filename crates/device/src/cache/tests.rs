use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use super::*;
use crate::{Control, Profile};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const KIB: u64 = 1024;

/// A cache of 1024 blocks with 100 MB/s and 100 us in front of a device with 10 MB/s and 1 ms.
const SMALL: &str = "hybrid,cache=4MiB,cache-write=100MB/s,cache-read=100MB/s,cache-sync=10us,\
                     cache-read-latency=100us,write=10MB/s,read=10MB/s,sync=5ms,read-latency=1ms";

fn device(text: &str) -> (tempfile::TempDir, Control) {
    let dir = tempfile::tempdir().unwrap();
    let profile: Profile = text.parse().unwrap();
    let control = Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
    (dir, control)
}

fn extent(file: u64, begin: u64, bytes: u64) -> Extent {
    Extent { file, begin, bytes }
}

fn dirty_entries(cache: &Cache) -> u64 {
    cache.entries.iter().filter(|entry| entry.load(Relaxed) & DIRTY != 0).count() as u64
}

/// Returns the nanoseconds that a device of `bytes_per_s` needs for `bytes`.
fn takes(bytes: u64, bytes_per_s: u64) -> u64 {
    bytes * S / bytes_per_s
}

fn near(measured: u64, wanted: u64) -> bool {
    (measured as f64 / wanted as f64 - 1.0).abs() < 0.05
}

#[test]
fn what_was_written_is_read_at_the_speed_of_the_cache() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    assert_eq!(cache.write(0, extent(1, 0, 100_000)), MS);
    assert_eq!(cache.read(10 * MS, extent(1, 0, 100_000), false), 11 * MS + 100 * US);
    assert_eq!(cache.read(20 * MS, extent(1, 0, 100_000), true), 21 * MS, "prefetched");
    let stats = control.stats();
    assert_eq!((stats.bytes_hit, stats.bytes_missed, stats.bytes_destaged), (200_000, 0, 0));
    assert_eq!((stats.writes, stats.reads, stats.bytes_written, stats.bytes_read), (1, 2, 100_000, 200_000));
}

#[test]
fn a_miss_costs_the_device_behind_and_is_a_hit_the_next_time() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    assert_eq!(cache.read(0, extent(1, 0, 100_000), false), 10 * MS + MS);
    assert_eq!(cache.read(20 * MS, extent(1, 0, 100_000), false), 21 * MS + 100 * US);
    assert_eq!(control.stats().dirty_bytes, 0, "what was read is clean");
}

#[test]
fn a_read_that_is_held_in_part_waits_for_the_slower_part() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    cache.write(0, extent(1, 0, 4 * 4096));
    let done = cache.read(S, extent(1, 2 * 4096 + 96, 4 * 4096), false);
    assert_eq!(control.stats().bytes_hit, 2 * 4096 - 96);
    assert_eq!(done, S + takes(2 * 4096 + 96, 10_000_000) + MS);
}

#[test]
fn files_are_told_apart() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    cache.write(0, extent(1, 0, 4096));
    cache.read(0, extent(2, 0, 4096), false);
    cache.read(0, extent(1, 4096, 4096), false);
    assert_eq!((control.stats().bytes_hit, control.stats().bytes_missed), (0, 2 * 4096));
}

#[test]
fn a_sync_costs_what_the_cache_asks_for() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    let written = cache.write(0, extent(1, 0, 100_000));
    assert_eq!(control.block().sync(0), written + 10 * US);
    control.set_slow(10.0).unwrap();
    assert_eq!(control.block().sync(S), S + 100 * US);
}

#[test]
fn a_burst_is_as_fast_as_the_cache_until_too_much_is_dirty_and_then_as_slow_as_the_device_behind() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    let burst = 2 << 20;
    assert_eq!(cache.write(0, extent(1, 0, burst)), takes(burst, 100_000_000));
    assert_eq!(control.stats().bytes_destaged, 0);
    let more = 100 << 20;
    let mut done = 0;
    for at in (0..more).step_by(64 << 10) {
        done = cache.write(done, extent(2, at, 64 << 10));
        assert!(dirty_entries(&cache) <= cache.share(DIRTY_MAX));
    }
    assert!(near(done, takes(more, 10_000_000)), "{done}");
    assert!(control.block().sync(done) >= done, "a sync waits for what waits for room");
    let stats = control.stats();
    assert_eq!(stats.bytes_destaged + stats.dirty_bytes, burst + more, "each block once");
}

/// Lets time pass without any access.
fn pass(cache: &Cache, now: u64) {
    assert_eq!(cache.read(now, extent(0, 0, 0), true), now);
}

#[test]
fn what_is_more_than_half_is_destaged_in_the_background_and_no_more() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    cache.write(0, extent(1, 0, 3 << 20));
    pass(&cache, 40 * MS);
    let destaged = control.stats().bytes_destaged;
    assert!(near(destaged, 400_000), "{destaged}");
    // Small steps lose none of the device's time.
    (0..1000).for_each(|step| pass(&cache, (40_000 + step * 20) * US));
    let destaged = control.stats().bytes_destaged;
    assert!(near(destaged, 600_000), "{destaged}");
    pass(&cache, 10 * S);
    assert_eq!(control.stats().dirty_bytes, 2 << 20);
    let destaged = control.stats().bytes_destaged;
    pass(&cache, 100 * S);
    assert_eq!(control.stats().bytes_destaged, destaged);
    let missed = control.stats().bytes_missed;
    cache.read(200 * S, extent(1, 0, 3 << 20), true);
    let missed = control.stats().bytes_missed - missed;
    assert!(missed < 160 << 10, "what was destaged is held; {missed} are gone");
    let burst = 512 << 10;
    let end = cache.write(201 * S, extent(3, 0, burst));
    // The device behind the cache alone would take ten times as long. A few full sets wait for it.
    let of_cache = takes(burst, 100_000_000);
    assert!((of_cache..3 * of_cache).contains(&(end - 201 * S)), "there is room for a burst again: {end}");
}

#[test]
fn idle_time_is_not_saved_up() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    cache.write(0, extent(1, 0, 3 << 20));
    pass(&cache, 100 * S);
    assert_eq!(control.stats().dirty_bytes, 2 << 20);
    // Only work that the device behind the cache does from this time on counts.
    let before = control.stats().bytes_destaged;
    cache.write(200 * S, extent(2, 0, 512 << 10));
    pass(&cache, 200 * S + 20 * MS);
    let destaged = control.stats().bytes_destaged - before;
    assert!(near(destaged, 200_000), "{destaged}");
}

#[test]
fn what_is_written_again_and_again_is_never_destaged() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    let mut done = 0;
    for round in 0..100 {
        done = cache.write(done, extent(1, round % 2 * (512 << 10), 512 << 10));
    }
    assert_eq!(done, takes(50 << 20, 100_000_000));
    assert_eq!((control.stats().bytes_destaged, control.stats().dirty_bytes), (0, 1 << 20));
}

#[test]
fn what_is_deleted_is_never_destaged() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    let mut done = 0;
    for file in 0..100 {
        done = cache.write(done, extent(file, 0, 1 << 20));
        cache.forget(extent(file, 0, 1 << 20));
    }
    let stats = control.stats();
    assert_eq!((stats.bytes_destaged, stats.dirty_bytes, stats.bytes_dropped), (0, 0, 100 << 20));
    assert_eq!(done, takes(100 << 20, 100_000_000));
    cache.read(done, extent(3, 0, 4096), false);
    assert_eq!(control.stats().bytes_missed, 4096, "nor held");
}

#[test]
fn a_file_cut_in_the_middle_of_a_block_keeps_that_block() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    cache.write(0, extent(1, 0, 16 * KIB));
    cache.forget(extent(1, 5000, 11_384));
    assert_eq!(control.stats().dirty_bytes, 8 * KIB);
    cache.forget(extent(1, u64::MAX - 5, u64::MAX));
}

#[test]
fn what_is_used_outlives_what_is_not() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    let hot = extent(1, 0, 256 << 10);
    cache.read(0, hot, true);
    for at in (0..32 << 20).step_by(256 << 10) {
        cache.read(0, extent(2, at, 256 << 10), true);
        cache.read(0, hot, true);
    }
    let before = control.stats().bytes_missed;
    cache.read(0, hot, true);
    let missed = control.stats().bytes_missed - before;
    assert!(missed < hot.bytes / 20, "{missed} of {} are gone", hot.bytes);
}

#[test]
fn reads_do_not_push_out_what_is_dirty() {
    let (_dir, control) = device(SMALL);
    let cache = control.cache().unwrap();
    cache.write(0, extent(1, 0, 2 << 20));
    (0..64).for_each(|mib| _ = cache.read(0, extent(2, mib << 20, 1 << 20), true));
    assert_eq!((control.stats().dirty_bytes, control.stats().bytes_destaged), (2 << 20, 0));
}

#[test]
fn the_table_has_room_for_the_largest_cache() {
    for (bytes, block_bytes, entries) in [
        (BYTES_MIN, 4096, 16),
        (1_000_000_000, 4096, 244_128),
        (4 << 30, 4096, 1 << 20),
        (5 << 30, 8192, 655_360),
        (BYTES_MAX, 1 << 30, 931_312),
    ] {
        let geometry = Geometry::of(bytes);
        assert_eq!((geometry.block_bytes, geometry.entries), (block_bytes, entries), "{bytes}");
    }
    let (_dir, control) = device("hybrid,cache=5GiB");
    let cache = control.cache().unwrap();
    cache.write(0, extent(1, 0, 1 << 30));
    assert_eq!(control.stats().dirty_bytes, 1 << 30);
}

#[derive(Clone, Debug)]
enum Step {
    Write(Extent),
    Read(Extent),
    Forget(Extent),
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let extent = (0u64..4, 0u64..1 << 20, 0u64..300_000).prop_map(|(file, begin, bytes)| Extent {
        file,
        begin,
        bytes,
    });
    let step = prop_oneof![
        4 => extent.clone().prop_map(Step::Write),
        2 => extent.clone().prop_map(Step::Read),
        1 => extent.prop_map(Step::Forget),
    ];
    (0u64..50 * MS, step)
}

proptest! {
    /// After any operation the count of dirty blocks equals that of the table and is within the
    /// limit, every byte read was a hit or a miss, no operation ends before it begins, and horizons
    /// never go back.
    #[test]
    fn the_books_balance_after_every_step(steps in prop::collection::vec(step(), 1..60)) {
        let (_dir, control) = device("hybrid,cache=512KiB,write=10MB/s,read=10MB/s");
        let cache = control.cache().unwrap();
        let mut now = 0;
        for (pause, step) in steps {
            now += pause;
            let before = control.stats();
            match step {
                Step::Write(extent) => prop_assert!(cache.write(now, extent) >= now),
                Step::Read(extent) => {
                    prop_assert!(cache.read(now, extent, false) >= now);
                    let after = control.stats();
                    let told = |of: fn(&crate::Stats) -> u64| of(&after) - of(&before);
                    prop_assert_eq!(told(|s| s.bytes_hit) + told(|s| s.bytes_missed), extent.bytes);
                    prop_assert!(after.dirty_bytes <= before.dirty_bytes);
                }
                Step::Forget(extent) => cache.forget(extent),
            }
            let after = control.stats();
            prop_assert_eq!(after.dirty_bytes, dirty_entries(&cache) * cache.block_bytes);
            prop_assert!(after.dirty_bytes <= cache.share(DIRTY_MAX) * cache.block_bytes);
            // Destaged or dropped bytes were dirty before this step or became dirty in it.
            let gone = after.bytes_destaged - before.bytes_destaged + after.bytes_dropped - before.bytes_dropped;
            let touched = (300_000 / cache.block_bytes + 2) * cache.block_bytes;
            prop_assert!(gone + after.dirty_bytes <= before.dirty_bytes + touched);
        }
    }
}

#[test]
fn threads_that_use_one_cache_at_once_lose_no_count() {
    let (_dir, control) = device("hybrid,cache=512KiB");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let control = &control;
            scope.spawn(move || {
                let cache = control.cache().unwrap();
                for round in 0..2_000u64 {
                    let at = round.wrapping_mul(7919) % 128 * 8192;
                    let here = extent(round % 3, at, 20_000);
                    match (round + thread) % 5 {
                        0 => _ = cache.read(round, here, false),
                        1 => cache.forget(here),
                        _ => _ = cache.write(round, here),
                    }
                    assert!(cache.dirty_bytes() <= 2 * 512 * KIB, "a count went below 0");
                }
            });
        }
    });
    let cache = control.cache().unwrap();
    assert_eq!(control.block().dirty_blocks.load(Relaxed), dirty_entries(&cache));
}

/// A miss takes turns with destaging: the reader waits longer, and less is destaged.
#[test]
fn misses_and_destaging_share_the_device_behind() {
    let destaged = |text: &str, misses: u64| {
        let (_dir, control) = device(text);
        let cache = control.cache().unwrap();
        cache.write(0, extent(1, 0, 3 << 20));
        let before = control.stats().bytes_destaged;
        let mut end = 40 * MS;
        (0..misses).for_each(|at| end = cache.read(end, extent(9, at << 12, 4096), true));
        pass(&cache, end);
        (control.stats().bytes_destaged - before, end - 40 * MS)
    };
    let alone = format!("{SMALL},sharing=0%");
    let ((much, fast), (less, slow)) = (destaged(&alone, 100), destaged(SMALL, 100));
    assert!(near(slow, 2 * fast), "{slow} beside {fast}");
    // In the doubled time half of the device is left for destaging.
    let rate = |bytes: u64, nanos: u64| bytes as f64 / (nanos + 40 * MS) as f64;
    assert!(rate(less, slow) < 0.8 * rate(much, fast), "{less} beside {much}");
}
