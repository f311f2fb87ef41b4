//! A device's time: the arithmetic of the emulated devices (`device::ControlBlock`), for one caller at a time.
//!
//! Bytes are reserved at the end of a queue, one for writes and one for reads; read latency overlaps; one
//! flush runs at a time, and syncs that come meanwhile share the next. A test holds both models together.

use serde::{Deserialize, Serialize};

/// What a device does, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub write_bytes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub sync_ns: u64,
    pub read_ns: u64,
}

/// How far a device may lag behind buffered writes before they wait (`device::Control::create`).
const WRITE_BEHIND_NS: u64 = 20_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Queues {
    pub device: Device,
    write_end: u64,
    read_end: u64,
    flush_end: u64,
    pub bytes_written: u64,
    pub bytes_read: u64,
    pub flush_ns: u64,
}

impl Queues {
    pub fn new(device: Device) -> Queues {
        Queues {
            device,
            write_end: 0,
            read_end: 0,
            flush_end: 0,
            bytes_written: 0,
            bytes_read: 0,
            flush_ns: 0,
        }
    }

    /// When `bytes` more are written.
    pub fn write(&mut self, start: u64, bytes: u64) -> u64 {
        self.bytes_written += bytes;
        self.write_end = self.write_end.max(start) + transfer_ns(bytes, self.device.write_bytes_per_s);
        self.write_end
    }

    /// When the caller of a buffered write that ends at `done` goes on.
    pub fn buffered(done: u64) -> u64 {
        done.saturating_sub(WRITE_BEHIND_NS)
    }

    /// When `bytes` more are read. What was read ahead pays no latency.
    pub fn read(&mut self, start: u64, bytes: u64, prefetched: bool) -> u64 {
        self.bytes_read += bytes;
        self.read_end = self.read_end.max(start) + transfer_ns(bytes, self.device.read_bytes_per_s);
        self.read_end + if prefetched { 0 } else { self.device.read_ns }
    }

    /// When a sync that starts now is done. `part`: of its latency, for syncs of what is scaled down.
    pub fn sync(&mut self, start: u64, part: f64) -> u64 {
        let latency = (self.device.sync_ns as f64 * part) as u64;
        let written = self.write_end.max(start);
        if self.flush_end > 0 && self.flush_end.saturating_sub(latency) >= written {
            return self.flush_end;
        }
        self.flush_end = self.flush_end.max(written) + latency;
        self.flush_ns += latency;
        self.flush_end
    }
}

fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;

    /// The predictor's device is the emulated one, operation by operation.
    #[test]
    fn both_device_models_give_the_same_times() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["nvm", "high-end-ssd", "plain-ssd/80"] {
            let profile: device::Profile = name.parse().unwrap();
            let control = device::Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
            let mut queues = Queues::new(Device {
                write_bytes_per_s: profile.write_bytes_per_s,
                read_bytes_per_s: profile.read_bytes_per_s,
                sync_ns: profile.sync_latency.as_nanos() as u64,
                read_ns: profile.read_latency.as_nanos() as u64,
            });
            let (mut draw, mut now) = (Draw::new(5), 1_000_000_000);
            for _ in 0..2_000 {
                now += draw.below(30_000_000);
                let bytes = draw.below(1 << 20);
                let (ours, theirs) = match draw.below(4) {
                    0 => (queues.write(now, bytes), control.block().write(now, bytes)),
                    1 => (queues.read(now, bytes, false), control.block().read(now, bytes, false)),
                    2 => (queues.read(now, bytes, true), control.block().read(now, bytes, true)),
                    _ => (queues.sync(now, 1.0), control.block().sync(now)),
                };
                assert_eq!(ours, theirs, "{name} at {now}");
                assert_eq!(Queues::buffered(ours), control.block().buffered(ours));
            }
            std::fs::remove_file(dir.path().join("device")).unwrap();
        }
    }
}
