//! Each profile delivers its numbers within 15%, measured on the wall clock.
//!
//! The one place where a time is asserted. Devices are slowed until their waits are far above what a busy
//! machine adds by itself, and of several windows the best counts, since noise only ever takes away.

mod bench;

use bench::Device;
use device::Profile;

const WINDOWS: usize = 4;
const TOLERANCE: f64 = 0.15;

fn delivers(profile: &str, factor: f64) {
    let device = Device::new(profile, factor);
    let wanted: Profile = device.control.profile();
    let mut exercise = device.exercise();
    exercise.ask(&format!("open {}", device.file("data"))).unwrap();

    let bytes = wanted.write_bytes_per_s * 3 / 10;
    let best = |windows: &mut dyn FnMut() -> u64, larger: bool| {
        let values = (0..WINDOWS).map(|_| windows());
        let value = if larger { values.max() } else { values.min() };
        value.unwrap() as f64
    };
    let write = best(&mut || exercise.ask(&format!("write-rate {bytes}")).unwrap(), true);
    let read = best(&mut || exercise.ask("read-rate").unwrap(), true);
    let sync = best(&mut || exercise.ask("sync-mean 30").unwrap(), false);
    let latency = best(&mut || exercise.ask("read-mean 150").unwrap(), false);

    let near = |what: &str, measured: f64, wanted: f64| {
        println!(
            "{profile} {what}: {measured:.0} of {wanted:.0} ({:+.1}%)",
            (measured / wanted - 1.0) * 100.0
        );
        assert!(
            (measured / wanted - 1.0).abs() <= TOLERANCE,
            "{profile} (1/{factor}) delivers {what} {measured:.0}, its profile says {wanted:.0}"
        );
    };
    near("write bytes/s", write, wanted.write_bytes_per_s as f64);
    near("read bytes/s", read, wanted.read_bytes_per_s as f64);
    near("sync ns", sync, wanted.sync_latency.as_nanos() as f64);
    near("read latency ns", latency, wanted.read_latency.as_nanos() as f64);
}

#[test]
fn every_profile_delivers_its_numbers() {
    // One after the other: together they would measure each other.
    delivers("nvm", 200.0);
    delivers("high-end-ssd", 100.0);
    delivers("plain-ssd", 10.0);
}
