//! Each profile delivers its numbers within 15%, measured by the wall clock.
//!
//! No other test asserts a time. Devices are slowed until their waits far exceed the delays that a
//! busy machine adds. The best of several windows counts, because disturbances only slow a device
//! down. Time that a thread overslept is subtracted from its next waits, but a pause between
//! windows resets that.

mod bench;

use std::time::Duration;

use bench::Device;
use device::Profile;

const WINDOWS: usize = 4;
const TOLERANCE: f64 = 0.15;
/// Pause between windows. A thread that does not use its device for 50 ms loses its credit.
const PAUSE: Duration = Duration::from_millis(80);

fn delivers(profile: &str, factor: f64) {
    let device = Device::new(profile, factor);
    let wanted = device.control.profile();
    delivers_as(&device, &wanted);
}

/// A hybrid whose cache holds all data of the test is as fast as its cache. One whose cache holds
/// almost none is as fast as the device behind, except for syncs, because data in the cache is
/// durable.
fn hybrid_delivers() {
    let fits = Device::new("hybrid", 200.0);
    let wanted = fits.control.profile();
    delivers_as(&fits, &wanted.as_tested(wanted.cache.as_ref().unwrap().bytes / 2));
    let stats = fits.control.stats();
    assert_eq!((stats.bytes_missed, stats.bytes_destaged), (0, 0), "all of it was held");

    let small = Device::new("hybrid,cache=64KiB,cache-sync=100us", 10.0);
    let wanted = small.control.profile();
    delivers_as(&small, &wanted.as_tested(u64::MAX));
    let stats = small.control.stats();
    assert!(stats.bytes_hit < stats.bytes_missed / 20, "{stats:?}");
    assert!(stats.bytes_destaged > stats.bytes_written * 9 / 10, "{stats:?}");
}

fn delivers_as(device: &Device, wanted: &Profile) {
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();

    let bytes = wanted.write_bytes_per_s * 3 / 10;
    let best = |windows: &mut dyn FnMut() -> u64, larger: bool| {
        let values = (0..WINDOWS).map(|_| {
            std::thread::sleep(PAUSE);
            windows()
        });
        let value = if larger { values.max() } else { values.min() };
        value.unwrap() as f64
    };
    let write = best(&mut || exercise.ask(&format!("write-rate {bytes}")).unwrap(), true);
    let read = best(&mut || exercise.ask("read-rate").unwrap(), true);
    let sync = best(&mut || exercise.ask("sync-mean 30").unwrap(), false);
    let latency = best(&mut || exercise.ask("read-mean 150").unwrap(), false);

    let near = |what: &str, measured: f64, wanted_value: f64| {
        println!(
            "{} {what}: {measured:.0} of {wanted_value:.0} ({:+.1}%)",
            wanted.name,
            (measured / wanted_value - 1.0) * 100.0
        );
        assert!(
            (measured / wanted_value - 1.0).abs() <= TOLERANCE,
            "{wanted} delivers {what} {measured:.0}, its profile says {wanted_value:.0}"
        );
    };
    near("write bytes/s", write, wanted.write_bytes_per_s as f64);
    near("read bytes/s", read, wanted.read_bytes_per_s as f64);
    near("sync ns", sync, wanted.sync_latency.as_nanos() as f64);
    near("read latency ns", latency, wanted.read_latency.as_nanos() as f64);
}

#[test]
fn every_profile_delivers_its_numbers() {
    // One after the other, because concurrent tests would disturb each other.
    delivers("nvm", 200.0);
    delivers("high-end-ssd", 100.0);
    delivers("plain-ssd", 10.0);
    hybrid_delivers();
}
