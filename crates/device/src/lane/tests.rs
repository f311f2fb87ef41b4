use crate::{Control, Extent, Profile};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const KIB: u64 = 1 << 10;

fn device(text: &str) -> (tempfile::TempDir, Control) {
    let dir = tempfile::tempdir().unwrap();
    let profile: Profile = text.parse().unwrap();
    let control = Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
    (dir, control)
}

/// Reads and writes side by side, each with `threads` operations under way, until `until`. Returns
/// the bytes of both.
fn side_by_side(control: &Control, bytes: u64, reading: bool, writing: bool, until: u64) -> [u64; 2] {
    let block = control.block();
    let (mut at, mut moved) = ([0, 0], [0, 0]);
    if !reading {
        at[0] = u64::MAX;
    }
    if !writing {
        at[1] = u64::MAX;
    }
    while at[0].min(at[1]) < until {
        if at[0] <= at[1] {
            at[0] = block.read(at[0], bytes, true);
            moved[0] += bytes;
        } else {
            at[1] = block.write(at[1], bytes);
            moved[1] += bytes;
        }
    }
    moved
}

fn near(value: u64, wanted: u64) -> bool {
    value.abs_diff(wanted) * 100 <= wanted
}

#[test]
fn reads_and_writes_share_the_time_of_a_device() {
    let alone = |reading, writing| {
        let (_dir, control) = device("write=100MB/s,read=200MB/s");
        side_by_side(&control, 100_000, reading, writing, 1000 * MS)
    };
    assert!(near(alone(true, false)[0], 200_000_000) && near(alone(false, true)[1], 100_000_000));
    let [read, written] = alone(true, true);
    let time = read as f64 / 200e6 + written as f64 / 100e6;
    assert!((0.99..1.01).contains(&time), "a device does one thing at a time: {read} and {written}");
    assert!(read > 60_000_000 && written > 30_000_000, "neither starves: {read} and {written}");
}

#[test]
fn a_device_without_sharing_does_both_at_once() {
    let (_dir, control) = device("write=100MB/s,read=200MB/s,sharing=0%");
    let [read, written] = side_by_side(&control, 100_000, true, true, 1000 * MS);
    assert!(near(read, 200_000_000) && near(written, 100_000_000), "{read} and {written}");
}

#[test]
fn a_few_reads_take_their_time_from_a_load_of_writes() {
    let (_dir, control) = device("write=100MB/s,read=100MB/s,read-latency=100us");
    let block = control.block();
    let (mut write_at, mut written, mut slowest) = (0, 0, 0);
    for millisecond in 0..1000 {
        // A tenth of the device's time goes to reads.
        let start = millisecond * MS;
        slowest = slowest.max(block.read(start, 10_000, false) - start);
        while write_at < start + MS {
            write_at = block.write(write_at, 10_000);
            written += 10_000;
        }
    }
    assert!((89_000_000..=91_000_000).contains(&written), "{written}");
    assert!(slowest <= 300 * US, "a read takes turns with writes: {slowest} ns");
}

#[test]
fn chunks_decide_how_many_devices_one_operation_uses() {
    let time = |text: &str, bytes: u64| {
        let (_dir, control) = device(text);
        control.block().read_at(0, Extent { file: 0, begin: 0, bytes }, true)
    };
    let one = time("write=100MB/s,read=100MB/s", 1 << 20);
    assert!(near(time("write=100MB/s,read=100MB/s,array=8:16KiB", 1 << 20) * 8, one));
    assert!(near(time("write=100MB/s,read=100MB/s,array=8:512KiB", 1 << 20) * 2, one));
    assert_eq!(time("write=100MB/s,read=100MB/s,array=8:2MiB", 1 << 20), one);
    assert_eq!(
        time("write=100MB/s,read=100MB/s,array=8:16KiB", 4096),
        time("write=100MB/s,read=100MB/s", 4096),
        "a small read is on one device"
    );
}

#[test]
fn many_small_operations_use_all_devices_of_an_array() {
    let (_dir, control) = device("write=100MB/s,read=100MB/s,array=4:16KiB,sync=1ms");
    let block = control.block();
    let mut end = 0;
    for chunk in 0..4000 {
        end = end.max(block.write_at(0, Extent { file: 0, begin: chunk * 16 * KIB, bytes: 16 * KIB }));
    }
    assert!(near(end, 4000 * 16 * KIB * 10 / 4), "{end}");
    assert_eq!(block.sync(0), end + MS, "a sync waits for every device");
}

#[test]
fn a_fast_cache_runs_out_and_empties_again() {
    let (_dir, control) = device("write=100MB/s,read=100MB/s,slc=50MB:10MB/s");
    let block = control.block();
    let write = |at: u64, megabytes: u64| {
        let mut end = at;
        (0..megabytes * 10).for_each(|_| end = block.write(end, 100_000));
        end - at
    };
    // While it is filled at 100 MB/s, it empties at 10 MB/s.
    let fast = write(0, 50);
    assert!(near(fast, 500 * MS), "{fast}");
    let rest = write(fast, 100);
    assert!(rest > 8_000 * MS, "about 5 of 100 MB still found room: {rest}");
    let slow = write(fast + rest, 10);
    assert!(near(slow, 1_000 * MS), "{slow}");
    let rested = fast + rest + slow + 6_000 * MS;
    let again = write(rested, 50);
    assert!(near(again, 500 * MS), "{again}");
}
