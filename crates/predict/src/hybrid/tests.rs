use device::Extent;

use super::*;
use crate::device::{Device, Queues};
use crate::draw::popular;

fn device(text: &str) -> (tempfile::TempDir, device::Control, Device) {
    let dir = tempfile::tempdir().unwrap();
    let profile: device::Profile = text.parse().unwrap();
    let control = device::Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
    let cache = profile.cache.unwrap();
    let ours = Device {
        write_bytes_per_s: profile.write_bytes_per_s,
        read_bytes_per_s: profile.read_bytes_per_s,
        sync_ns: profile.sync_latency.as_nanos() as u64,
        read_ns: profile.read_latency.as_nanos() as u64,
        cache: Some(WriteBack {
            bytes: cache.bytes,
            write_bytes_per_s: cache.write_bytes_per_s,
            read_bytes_per_s: cache.read_bytes_per_s,
            sync_ns: cache.sync_latency.as_nanos() as u64,
            read_ns: cache.read_latency.as_nanos() as u64,
        }),
    };
    (dir, control, ours)
}

fn near(ours: u64, theirs: u64, part: f64, what: &str) {
    let off = ours.abs_diff(theirs) as f64 / theirs.max(1) as f64;
    assert!(off <= part, "{what}: {ours} beside {theirs}");
}

/// A burst runs at the cache's speed, a long load at that of the device behind, pauses let it catch up.
#[test]
fn writes_end_when_those_of_the_emulated_hybrid_do() {
    let (_dir, control, ours) = device("hybrid/80,cache=8MiB");
    let mut queues = Queues::new(ours);
    let (mut draw, mut now) = (Draw::new(3), 1_000_000_000);
    for file in 0..400 {
        now += draw.below(40_000_000);
        let bytes = (1 + draw.below(64)) * BLOCK_BYTES;
        let theirs = control.cache().unwrap().write(now, Extent { file, begin: 0, bytes });
        let ours = queues.write(now, bytes);
        near(ours - 1_000_000_000, theirs - 1_000_000_000, 0.08, &format!("write {file}"));
        if draw.below(3) == 0 {
            near(queues.sync(now, 1.0), control.block().sync(now), 0.05, "sync");
        }
        now = now.max(ours.saturating_sub(20_000_000));
    }
    let stats = control.stats();
    assert!(stats.bytes_destaged > 8 << 20, "the device behind did work: {stats:?}");
}

/// Tables that are replaced while dirty cost the device behind nothing.
#[test]
fn as_much_is_destaged_as_of_an_emulated_hybrid() {
    let (_dir, control, ours) = device("hybrid/80,cache=8MiB");
    let mut hybrid = Hybrid::new(ours.cache.unwrap(), ours.write_bytes_per_s);
    let cache = control.cache().unwrap();
    let (mut now, table) = (1_000_000_000, 1 << 20);
    for file in 0..200u64 {
        let extent = Extent { file, begin: 0, bytes: table };
        now = cache.write(now, extent).max(hybrid.write(now, table, true));
        hybrid.replaced(&[], 0, table);
        // Of four tables one stays, which is the next level's.
        if file % 4 == 3 {
            for gone in file - 3..file {
                cache.forget(Extent { file: gone, begin: 0, bytes: table });
            }
            hybrid.replaced(&[(0, 0.25)], LEVELS - 1, 0);
            hybrid.replaced(&[(0, 1.0)], LEVELS - 1, 1);
        }
        now += 50_000_000;
    }
    let stats = control.stats();
    assert!(stats.bytes_dropped > stats.bytes_destaged / 2, "{stats:?}");
    near(hybrid.bytes_destaged, stats.bytes_destaged, 0.15, "destaged");
}

#[test]
fn at_rest_as_much_stays_dirty_as_in_an_emulated_hybrid() {
    let (_dir, control, ours) = device("hybrid/80,cache=8MiB");
    let mut hybrid = Hybrid::new(ours.cache.unwrap(), ours.write_bytes_per_s);
    for (file, now) in [(0, 1_000_000_000), (1, 1_000_000_000_000)] {
        let bytes = if file == 0 { 6 << 20 } else { BLOCK_BYTES };
        control.cache().unwrap().write(now, Extent { file, begin: 0, bytes });
        hybrid.write(now, bytes, false);
        near(hybrid.dirty_bytes() as u64, control.stats().dirty_bytes, 0.03, "dirty");
    }
}

/// Reads of popular rows hit as often, in caches of several sizes.
#[test]
fn as_many_rows_are_found_as_in_an_emulated_hybrid() {
    let (records, row, block) = (40_000u64, 1084, 8 * 1084);
    for cache in ["1MiB", "4MiB", "16MiB"] {
        let (_dir, control, ours) = device(&format!("hybrid,cache={cache}"));
        let mut hybrid = Hybrid::new(ours.cache.unwrap(), ours.write_bytes_per_s);
        hybrid.hold_rows(records, row, block);
        let theirs = control.cache().unwrap();
        let (mut draw, mut found, mut missed, mut warm) = (Draw::new(9), [0, 0], 0, false);
        for at in 0..60_000 {
            let record = popular(records, &mut draw) as u32;
            let place = u64::from(hybrid.rows.block_of[record as usize]);
            theirs.read(at, Extent { file: 1, begin: place * block, bytes: block }, false);
            // A block that is there in part is waited for as one that is not.
            let theirs_hit = std::mem::replace(&mut missed, control.stats().bytes_missed) == missed;
            let hit = hybrid.finds_row(at, record, block, records * row);
            warm |= at == 30_000;
            if warm {
                found[0] += u32::from(hit);
                found[1] += u32::from(theirs_hit);
            }
        }
        let [ours, theirs] = found.map(|found| f64::from(found) / 30_000.0);
        assert!((ours - theirs).abs() < 0.06, "{cache}: {ours:.3} beside {theirs:.3}");
    }
}
