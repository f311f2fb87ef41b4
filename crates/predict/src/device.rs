//! A device's time, by the rules that the emulated devices (`device::ControlBlock`) also use
//! ([`types::device_time`]), for one caller at a time. A test compares both.

use serde::{Deserialize, Serialize};
use types::device_time::{
    self, next_flush, reserved, taken, transfer_ns, ALL_SHARED, NOT_SLOWED, WRITE_BEHIND_NS,
};

use crate::hybrid::{Hybrid, WriteBack};
use crate::tree::Place;

/// The properties of a device. For a hybrid these are the properties of the device behind its
/// cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub write_bytes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub sync_ns: u64,
    pub read_ns: u64,
    pub cache: Option<WriteBack>,
    /// The part of an operation's time that it takes from the other kind, in thousandths.
    #[serde(default = "all_shared")]
    pub sharing_milli: u64,
}

fn all_shared() -> u64 {
    ALL_SHARED
}

/// The queues of a device, given by the time at which each is empty. If there is a cache, these are
/// the cache's queues, and reads that miss it have one of their own.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    device: Device,
    hybrid: Option<Hybrid>,
    front: device_time::Queues,
    miss_end: u64,
    flush_end: u64,
    used: Used,
}

/// Work done since the start. For a hybrid, bytes of its cache and of the device behind are counted
/// separately, and destaged bytes only if writes waited for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    written: u64,
    read: u64,
    destaged: u64,
    missed: u64,
    flush_ns: u64,
    pub flushes: u64,
}

#[cfg(test)]
impl Used {
    pub fn missed_since(&self, before: &Used) -> u64 {
        self.missed - before.missed
    }
}

impl Queues {
    pub fn new(device: Device) -> Queues {
        Queues {
            device,
            hybrid: device.cache.map(|cache| Hybrid::new(cache, device.write_bytes_per_s)),
            front: device_time::Queues::new(device.sharing_milli),
            miss_end: 0,
            flush_end: 0,
            used: Used::default(),
        }
    }

    /// Prepares for rows that will be read by [`read_row`](Self::read_row).
    pub fn with_rows(mut self, records: u64, row_bytes: u64, block_bytes: u64) -> Queues {
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.hold_rows(records, row_bytes, block_bytes);
        }
        self
    }

    /// Writes `bytes`. Returns the time at which they are written.
    pub fn write(&mut self, start: u64, bytes: u64) -> u64 {
        self.write_into(start, bytes, false)
    }

    /// Like `write`, for a table that stays after its job until another one replaces it.
    pub fn write_table(&mut self, start: u64, bytes: u64) -> u64 {
        self.write_into(start, bytes, true)
    }

    fn write_into(&mut self, start: u64, bytes: u64, is_table: bool) -> u64 {
        self.used.written += bytes;
        let (room_at, bytes_per_s) = match &mut self.hybrid {
            Some(hybrid) => (hybrid.write(start, bytes, is_table), hybrid.cache.write_bytes_per_s),
            None => (start, self.device.write_bytes_per_s),
        };
        self.front.write(room_at, transfer_ns(bytes, bytes_per_s, NOT_SLOWED))
    }

    /// Returns the time at which the caller of a buffered write that ends at `done` continues.
    pub fn buffered(done: u64) -> u64 {
        done.saturating_sub(WRITE_BEHIND_NS)
    }

    /// Reads `bytes` that no cache has. Returns the time at which they are read. A prefetched read
    /// has no latency.
    pub fn read(&mut self, start: u64, bytes: u64, prefetched: bool) -> u64 {
        self.read_parts(start, 0, bytes, prefetched)
    }

    /// Like `read`, for the block of a record.
    pub fn read_row(&mut self, start: u64, bytes: u64, record: u32, on: impl FnOnce() -> Place) -> u64 {
        let hybrid = self.hybrid.as_mut();
        let found = hybrid.is_some_and(|hybrid| hybrid.finds_row(start, record, bytes, &on()));
        let found = if found { bytes } else { 0 };
        self.read_parts(start, found, bytes - found, false)
    }

    /// Like `read`, for tables: `bytes` of the `all` bytes in these parts of levels.
    pub fn read_tables(
        &mut self,
        start: u64,
        bytes: u64,
        prefetched: bool,
        parts: &[(usize, f64)],
        all: u64,
    ) -> u64 {
        let hybrid = self.hybrid.as_mut();
        let found = hybrid.map_or(0, |hybrid| hybrid.finds_tables(start, bytes, parts, all));
        self.read_parts(start, found, bytes - found, prefetched)
    }

    fn read_parts(&mut self, start: u64, found: u64, missed: u64, prefetched: bool) -> u64 {
        let Device { read_bytes_per_s, read_ns, cache, .. } = self.device;
        let cost = |bytes, bytes_per_s| transfer_ns(bytes, bytes_per_s, NOT_SLOWED);
        let latency = |nanos: u64| if prefetched { 0 } else { nanos };
        let Some(cache) = cache else {
            self.used.read += missed;
            return self.front.read(start, cost(missed, read_bytes_per_s)) + latency(read_ns);
        };
        let mut done = start;
        if found > 0 {
            self.used.read += found;
            let end = self.front.read(start, cost(found, cache.read_bytes_per_s));
            done = end + latency(cache.read_ns);
        }
        if missed > 0 {
            self.used.missed += missed;
            let alone = cost(missed, read_bytes_per_s);
            let taken = taken(alone, self.device.sharing_milli);
            let yields = self.hybrid.as_mut().is_some_and(|hybrid| hybrid.yields(start, taken));
            let delay = if yields { taken } else { 0 };
            self.miss_end = reserved(self.miss_end, start, alone.saturating_add(delay));
            done = done.max(self.miss_end + latency(read_ns));
            self.front.write(start, cost(missed, cache.write_bytes_per_s));
        }
        done
    }

    /// Syncs, and returns the time at which that is done. `part` is the factor for the latency of
    /// syncs that are scaled down.
    pub fn sync(&mut self, start: u64, part: f64) -> u64 {
        // Data in a cache is durable.
        let latency = self.device.cache.map_or(self.device.sync_ns, |cache| cache.sync_ns);
        let latency = (latency as f64 * part) as u64;
        let written = self.front.written().max(start);
        if let Some(end) = next_flush(self.flush_end, latency, written, latency) {
            self.flush_end = end;
            self.used.flush_ns += latency;
            self.used.flushes += 1;
        }
        self.flush_end
    }

    /// Replaces parts of levels by tables of `into`; see [`Hybrid::replaced`].
    pub fn replaced(&mut self, parts: &[(usize, f64)], into: usize, read: u64, written: u64) {
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.replaced(parts, into, read, written);
        }
    }

    #[cfg(test)]
    pub fn bytes_destaged(&self) -> u64 {
        self.hybrid.as_ref().map_or(0, |hybrid| hybrid.bytes_destaged)
    }

    /// Returns the bytes of a hybrid that were read from its cache.
    #[cfg(test)]
    pub fn bytes_found(&self) -> u64 {
        self.used.read
    }

    pub fn used(&self) -> Used {
        let destaged = self.hybrid.as_ref().map_or(0, |hybrid| hybrid.bytes_awaited);
        Used { destaged, ..self.used }
    }

    /// Returns the shares of the time between two moments in which the device wrote, read and
    /// flushed. For a hybrid, the larger share of the cache and the device behind counts.
    pub fn shares(&self, before: &Used, after: &Used, seconds: f64) -> [f64; 3] {
        let Device { write_bytes_per_s, read_bytes_per_s, cache, .. } = self.device;
        let share = |bytes: u64, per_s: u64| bytes as f64 / per_s.max(1) as f64 / seconds;
        let written =
            share(after.written - before.written, cache.map_or(write_bytes_per_s, |c| c.write_bytes_per_s));
        let read = share(after.read - before.read, cache.map_or(read_bytes_per_s, |c| c.read_bytes_per_s));
        [
            written.max(share(after.destaged - before.destaged, write_bytes_per_s)),
            read.max(share(after.missed - before.missed, read_bytes_per_s)),
            share(after.flush_ns - before.flush_ns, 1_000_000_000),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;

    /// The predictor's device gives the same times as the emulated one, operation by operation.
    #[test]
    fn both_device_models_give_the_same_times() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["nvm", "high-end-ssd", "plain-ssd/80", "plain-ssd/80,sharing=30%"] {
            let profile: device::Profile = name.parse().unwrap();
            let control = device::Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
            let mut queues = Queues::new(Device {
                write_bytes_per_s: profile.write_bytes_per_s,
                read_bytes_per_s: profile.read_bytes_per_s,
                sync_ns: profile.sync_latency.as_nanos() as u64,
                read_ns: profile.read_latency.as_nanos() as u64,
                cache: None,
                sharing_milli: (profile.sharing * ALL_SHARED as f64) as u64,
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
