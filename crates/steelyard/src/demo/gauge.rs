//! The busy share of an emulated device, from the counters in its control block.

use std::path::Path;
use std::time::{Duration, Instant};

use device::{Control, Profile, Stats};

/// Minimum time over which a device's busy share is averaged. One flush of a slowed device takes
/// up to a tenth of it.
const SPAN: Duration = Duration::from_millis(1500);

pub struct Gauge {
    /// `None` for a store without an emulated device.
    control: Option<Control>,
    since: Instant,
    seen: Stats,
    busy: Option<f64>,
}

impl Gauge {
    pub fn new(control: &Path) -> Gauge {
        let control = Control::open(control).ok();
        let seen = control.as_ref().map(Control::stats).unwrap_or_default();
        Gauge { control, since: Instant::now(), seen, busy: None }
    }

    /// Returns the recent share of time in which the device worked, from 0 to 1. `None` if it is
    /// not known yet, or cannot be known for this kind of device.
    pub fn busy(&mut self) -> Option<f64> {
        let control = self.control.as_ref()?;
        let elapsed = self.since.elapsed();
        if elapsed >= SPAN {
            let now = control.stats();
            self.busy = busy(&control.profile(), control.slow(), &self.seen, &now, elapsed);
            (self.seen, self.since) = (now, Instant::now());
        }
        self.busy
    }

    /// Returns the device's time for a sync in microseconds.
    pub fn sync_us(&self) -> Option<f64> {
        let control = self.control.as_ref()?;
        let profile = control.profile();
        let sync = profile.cache.as_ref().map_or(profile.sync_latency, |cache| cache.sync_latency);
        Some(sync.as_secs_f64() * 1e6 * control.slow())
    }
}

/// Returns the time that the device needs for its work between two counts, as a share of the
/// elapsed time. Writes, flushes and reads may overlap, so the sum is limited to 1. A hybrid's
/// cache answers an unknown part of them, so its share is `None`.
fn busy(profile: &Profile, slow: f64, before: &Stats, after: &Stats, elapsed: Duration) -> Option<f64> {
    if profile.cache.is_some() || elapsed.is_zero() {
        return None;
    }
    let seconds = |bytes: u64, bytes_per_s: u64| bytes as f64 / bytes_per_s.max(1) as f64;
    let written = after.bytes_written.saturating_sub(before.bytes_written);
    let read = after.bytes_read.saturating_sub(before.bytes_read);
    let flushes = after.flushes.saturating_sub(before.flushes);
    let worked = seconds(written, profile.write_bytes_per_s)
        + seconds(read, profile.read_bytes_per_s)
        + flushes as f64 * profile.sync_latency.as_secs_f64();
    Some((worked * slow / elapsed.as_secs_f64()).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_busy_while_it_writes_flushes_and_reads() {
        let profile: Profile = "write=1MB/s,read=2MB/s,sync=1ms,read-latency=0us".parse().unwrap();
        let before = Stats { bytes_written: 500, ..Stats::default() };
        let after = Stats { bytes_written: 100_500, bytes_read: 200_000, flushes: 100, ..before };
        let second = Duration::from_secs(1);
        let share = |slow| busy(&profile, slow, &before, &after, second).unwrap();
        assert!((share(1.0) - 0.3).abs() < 1e-9, "0.1 s each");
        assert!((share(2.0) - 0.6).abs() < 1e-9, "everything takes twice as long");
        assert_eq!(share(100.0), 1.0);
        assert_eq!(busy(&profile, 1.0, &after, &before, second), Some(0.0), "counters of a new device");
        assert_eq!(busy(&profile, 1.0, &before, &after, Duration::ZERO), None);
        let hybrid: Profile = "hybrid".parse().unwrap();
        assert_eq!(busy(&hybrid, 1.0, &before, &after, second), None);
    }
}
