//! The effects of the preload library on a real process, observed through the device's counters and
//! the results of calls.

mod bench;

use std::process::Command;
use std::time::Instant;

use bench::{Device, Exercise};
use device::{preload_env, shim_path, Fault, DEVICE_ENV, EVERY, ROOT_ENV};

#[test]
fn every_byte_under_the_root_is_counted_and_none_outside() {
    let device = Device::new("nvm", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.outside("elsewhere"))).unwrap();
    exercise.ask("write 5000").unwrap();
    exercise.ask("sync").unwrap();
    exercise.ask("read 0 5000").unwrap();
    let stats = device.control.stats();
    assert_eq!((stats.bytes_written, stats.bytes_read, stats.syncs), (0, 0, 0));

    exercise.ask(&format!("open {}", device.file("inside"))).unwrap();
    exercise.ask("write 5000").unwrap();
    exercise.ask("sync").unwrap();
    assert_eq!(exercise.ask("read 1000 9000"), Ok(4000));
    let stats = device.control.stats();
    assert_eq!((stats.bytes_written, stats.bytes_read, stats.syncs), (5000, 4000, 1));
}

#[test]
fn a_descriptor_closed_by_stdio_is_forgotten() {
    let device = Device::new("nvm", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("inside"))).unwrap();
    assert_eq!(exercise.ask(&format!("reuse {}", device.file("inside"))), Ok(0));
    assert_eq!(device.control.stats().bytes_written, 0);
}

#[test]
fn slow_changes_a_running_process() {
    let device = Device::new("write=100MB/s,read=100MB/s,sync=1ms", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    exercise.ask("sync-mean 10").unwrap();
    let before = device.control.stats().stalled_ns;
    device.control.set_slow(50.0).unwrap();
    exercise.ask("sync-mean 10").unwrap();
    let slow = device.control.stats().stalled_ns - before;
    // Ten syncs of 50 ms. The stall time is the model's own, and only the repayment of late
    // wake-ups can shorten it.
    assert!(slow >= 450_000_000, "stalled {slow} ns");
}

#[test]
fn a_neighbour_slows_a_running_process() {
    let device = Device::new("write=100MB/s,read=100MB/s,sync=1ms,neighbour=3600s:3600s:98%", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    exercise.ask("sync-mean 10").unwrap();
    // Ten syncs of 50 ms, as above.
    let stalled = device.control.stats().stalled_ns;
    assert!(stalled >= 450_000_000, "stalled {stalled} ns");
}

#[test]
fn a_full_device_refuses_growth_allows_overwrites_and_recovers() {
    let device = Device::new("nvm,capacity=1MiB", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("first"))).unwrap();
    exercise.ask("write 700000").unwrap();
    exercise.ask(&format!("open {}", device.file("second"))).unwrap();
    assert_eq!(exercise.ask("write 400000"), Err(libc::ENOSPC));
    assert_eq!(exercise.ask("allocate 400000"), Err(libc::ENOSPC));
    assert_eq!(exercise.ask("write 300000"), Ok(300_000));
    for _ in 0..20 {
        assert_eq!(exercise.ask("overwrite 300000"), Ok(300_000), "a recycled log needs no room");
    }
    assert!(exercise.ask(&format!("free {}", device.file("second"))).unwrap() < 100_000);
    assert_eq!(exercise.ask("write 400000"), Err(libc::ENOSPC));

    exercise.ask(&format!("unlink {}", device.file("first"))).unwrap();
    assert_eq!(exercise.ask("write 400000"), Ok(400_000));
}

#[test]
fn a_new_process_finds_the_room_that_was_left() {
    let device = Device::new("nvm,capacity=1MiB", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("first"))).unwrap();
    exercise.ask("write 700000").unwrap();
    drop(exercise); // killed
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("second"))).unwrap();
    assert_eq!(exercise.ask("write 400000"), Err(libc::ENOSPC));
}

#[test]
fn injected_faults_reach_the_calls_they_are_for() {
    let device = Device::new("nvm", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    exercise.ask("write 1000").unwrap();

    device.control.set_fault(Fault::SyncEio, 1);
    assert_eq!(exercise.ask("sync"), Err(libc::EIO));
    assert_eq!(exercise.ask("sync"), Ok(0));
    device.control.set_fault(Fault::WriteEio, 1);
    assert_eq!(exercise.ask("write 10"), Err(libc::EIO));
    device.control.set_fault(Fault::WriteNoSpace, EVERY);
    assert_eq!(exercise.ask("write 10"), Err(libc::ENOSPC));
    assert_eq!(exercise.ask("allocate 10000"), Err(libc::ENOSPC));
    device.control.set_fault(Fault::ReadEio, 1);
    assert_eq!(exercise.ask("read 0 10"), Err(libc::EIO));
    device.control.clear_faults();
    assert_eq!(exercise.ask("write 10"), Ok(10));
    assert_eq!(exercise.ask("read 1000 100"), Ok(10), "what failed wrote nothing");
}

/// A hybrid whose cache holds 256 blocks.
const HYBRID: &str = "hybrid,cache=1MiB";
/// For data that must stay in the cache: in a small cache a set of blocks may be full by chance.
const ROOMY_HYBRID: &str = "hybrid,cache=64MiB";
const FILLED: u64 = 512 << 10;

#[test]
fn a_hybrid_reads_what_was_written_from_its_cache_also_in_another_process() {
    let device = Device::new(HYBRID, 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    exercise.ask("write 100000").unwrap();
    exercise.ask("write 100000").unwrap();
    drop(exercise); // killed
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    exercise.ask("read 50000 100000").unwrap();
    let stats = device.control.stats();
    assert_eq!((stats.bytes_hit, stats.bytes_missed), (100_000, 0));
    assert_eq!(stats.dirty_bytes, 200_704, "49 blocks of 4 KiB");
}

#[test]
fn a_hybrid_destages_what_it_has_no_room_for_and_misses_it_later() {
    let device = Device::new(HYBRID, 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    (0..16).for_each(|_| assert_eq!(exercise.ask("write 524288"), Ok(524_288)));
    let stats = device.control.stats();
    assert!(stats.dirty_bytes <= 768 << 10, "{stats:?}");
    assert_eq!(stats.bytes_destaged + stats.dirty_bytes, 8 << 20);
    exercise.ask("read 0 524288").unwrap();
    let stats = device.control.stats();
    assert!(stats.bytes_missed > 500_000 && stats.bytes_hit + stats.bytes_missed == 524_288, "{stats:?}");
}

#[test]
fn what_is_deleted_cut_or_replaced_leaves_a_hybrids_cache() {
    let device = Device::new(ROOMY_HYBRID, 1.0);
    let mut exercise = device.exercise();
    let mut fill = |name: &str| {
        exercise.ask(&format!("open {}", device.file(name))).unwrap();
        exercise.ask("truncate 0").unwrap();
        exercise.ask(&format!("write {FILLED}")).unwrap();
        exercise.ask("sync").unwrap();
    };
    let dirty = || device.control.stats().dirty_bytes;
    fill("deleted");
    assert_eq!(dirty(), FILLED);
    std::fs::hard_link(device.file("deleted"), device.file("other-name")).unwrap();
    let mut other = device.exercise();
    other.ask(&format!("unlink {}", device.file("deleted"))).unwrap();
    assert_eq!(dirty(), FILLED, "it has another name");
    other.ask(&format!("unlink {}", device.file("other-name"))).unwrap();
    assert_eq!(dirty(), 0);
    fill("cut");
    other.ask(&format!("open {}", device.file("cut"))).unwrap();
    other.ask("truncate 10000").unwrap();
    assert_eq!(dirty(), 3 * 4096);
    other.ask(&format!("unlink {}", device.file("cut"))).unwrap();
    fill("replaced");
    let renamed = |other: &mut Exercise, from: &str, to: &str| {
        other.ask(&format!("rename {} {}", device.file(from), device.file(to))).unwrap();
    };
    renamed(&mut other, "replaced", "replaced");
    assert_eq!(dirty(), FILLED, "nothing was replaced");
    renamed(&mut other, "replaced", "moved");
    assert_eq!(dirty(), FILLED, "it moved");
    other.ask(&format!("open {}", device.file("small"))).unwrap();
    renamed(&mut other, "small", "moved");
    assert_eq!(dirty(), 0, "it was replaced");
    assert_eq!(device.control.stats().bytes_destaged, 0);
}

#[test]
fn files_outside_the_root_leave_a_hybrids_cache_alone() {
    let device = Device::new(HYBRID, 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("inside"))).unwrap();
    exercise.ask("write 5000").unwrap();
    exercise.ask(&format!("open {}", device.outside("elsewhere"))).unwrap();
    exercise.ask("write 5000").unwrap();
    exercise.ask("read 0 5000").unwrap();
    exercise.ask(&format!("unlink {}", device.outside("elsewhere"))).unwrap();
    let stats = device.control.stats();
    assert_eq!((stats.dirty_bytes, stats.bytes_hit, stats.bytes_dropped), (8192, 0, 0));
}

#[test]
fn the_wall_clock_jumps_forth_and_back() {
    const HOUR: i64 = 3600;
    let device = Device::new("nvm", 1.0);
    let mut exercise = device.exercise();
    let machine = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    for (hours, nanos) in [(0, 0), (2, 999_999_999), (-3, -1), (0, 0)] {
        device.control.set_wall_offset(hours * HOUR * 1_000_000_000 + nanos);
        let ahead = exercise.ask("wall-clock").unwrap() as i64 - machine();
        // Within a minute, because a busy machine may answer slowly.
        assert!((ahead - hours * HOUR).abs() < 60, "{ahead} s for {hours} h");
    }
}

#[test]
fn the_boot_clock_is_held_back_and_no_other_clock_with_it() {
    const SECOND: i64 = 1_000_000_000;
    let device = Device::new("nvm", 1.0);
    let mut exercise = device.exercise();
    let mut both =
        || [exercise.ask("boot-clock").unwrap() as i64, exercise.ask("wall-clock").unwrap() as i64];
    let before = both();
    device.control.set_boot_offset(-7 * SECOND);
    let held = both();
    device.control.set_boot_offset(0);
    let after = both();
    assert!((held[0] - before[0] + 7000).abs() < 5000, "{before:?} {held:?}");
    assert!((after[0] - before[0]).abs() < 5000 && after[0] >= before[0], "{before:?} {after:?}");
    assert!((held[1] - before[1]).abs() < 5, "{before:?} {held:?}");
}

#[test]
fn without_the_environment_the_library_does_nothing() {
    let device = Device::new("nvm", 1.0);
    device.control.set_fault(Fault::SyncEio, EVERY);
    let mut command = Command::new(env!("CARGO_BIN_EXE_devshim-exercise"));
    command.env("LD_PRELOAD", shim_path().unwrap()).env_remove(DEVICE_ENV).env_remove(ROOT_ENV);
    let mut exercise = Exercise::start(command);
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    exercise.ask("write 1000").unwrap();
    assert_eq!(exercise.ask("sync"), Ok(0));
    assert_eq!(device.control.stats().bytes_written, 0);
}

#[test]
fn a_process_that_cannot_reach_its_device_does_not_run() {
    let device = Device::new("nvm", 1.0);
    let mut environment = preload_env(device.control.path(), &device.data()).unwrap();
    environment[1].1 = device.outside("no-such-device").into();
    let output = Command::new("/bin/true").envs(environment).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-device"));
}

#[test]
fn programs_written_in_c_are_seen_too() {
    let device = Device::new("nvm", 1.0);
    let status = Command::new("dd")
        .envs(preload_env(device.control.path(), &device.data()).unwrap())
        .args(["if=/dev/zero", "bs=64K", "count=16", "conv=fdatasync", "status=none"])
        .arg(format!("of={}", device.file("dd")))
        .status()
        .unwrap();
    assert!(status.success());
    let stats = device.control.stats();
    assert_eq!((stats.bytes_written, stats.writes, stats.syncs), (1 << 20, 16, 1));
}

/// The time for which a process on `device` sleeps while it does `work`, in milliseconds. It is the
/// model's own time, and only longer on a busy machine.
fn stalled_ms(device: &str, work: impl FnOnce(&Device, &mut Exercise)) -> u64 {
    let device = Device::new(device, 1.0);
    let mut exercise = device.exercise();
    work(&device, &mut exercise);
    device.control.stats().stalled_ns / 1_000_000
}

#[test]
fn the_chunks_of_an_array_are_written_at_the_same_time() {
    let write = |device: &Device, exercise: &mut Exercise| {
        exercise.ask(&format!("open {}", device.file("data"))).unwrap();
        exercise.ask("write 4194304").unwrap();
        exercise.ask("sync").unwrap();
    };
    let one = stalled_ms("write=8MB/s,read=8MB/s", write);
    let four = stalled_ms("write=8MB/s,read=8MB/s,array=4:64KiB", write);
    assert!(one >= 480, "4 MiB take 524 ms on one device: {one}");
    assert!((110..400).contains(&four), "and 131 ms on four: {four}");
}

#[test]
fn reads_of_a_process_wait_for_the_writes_of_another() {
    let device = Device::new("write=10MB/s,read=10MB/s", 1.0);
    let (mut reader, mut writer) = (device.exercise(), device.exercise());
    reader.ask(&format!("open {}", device.file("data"))).unwrap();
    reader.ask("write 1000000").unwrap();
    reader.ask("sync").unwrap();
    writer.ask(&format!("open {}", device.file("other"))).unwrap();
    let begin = Instant::now();
    let stalled = || device.control.stats().stalled_ns / 1_000_000;
    let before = stalled();
    writer.ask("write 1000000").unwrap();
    let written = stalled();
    reader.ask("read 0 1000000").unwrap();
    assert!(written > before, "the writer waited");
    assert!(stalled() - written >= 90, "{} ms", stalled() - written);
    // Each takes 100 ms. That it takes no less holds on a busy machine, too.
    let took = begin.elapsed().as_millis();
    assert!(took >= 195, "{took} ms");
}

#[test]
fn nothing_reads_ahead_of_direct_reads() {
    let read = |open: &str| {
        stalled_ms("write=1GB/s,read=1GB/s,read-latency=2ms", |device, exercise| {
            exercise.ask(&format!("open {}", device.file("data"))).unwrap();
            exercise.ask("write 262144").unwrap();
            exercise.ask(&format!("{open} {}", device.file("data"))).unwrap();
            exercise.ask("read-pages 0 262144").unwrap();
        })
    };
    let (buffered, direct) = (read("open"), read("open-direct"));
    assert!(direct >= 120, "64 reads of 2 ms: {direct}");
    assert!(buffered < 60, "one read of 2 ms, and the rest was read ahead: {buffered}");
}

#[test]
fn calls_of_sync_file_range_are_counted() {
    let device = Device::new("nvm", 1.0);
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();
    exercise.ask("write 100000").unwrap();
    exercise.ask("range-sync 4096").unwrap();
    exercise.ask("range-sync 8192").unwrap();
    let stats = device.control.stats();
    assert_eq!((stats.range_syncs, stats.range_sync_bytes, stats.syncs), (2, 12_288, 0));
}
