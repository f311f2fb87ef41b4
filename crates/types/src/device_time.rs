//! The time of operations on an emulated or modelled device. The emulation (`device`) and the
//! prediction (`predict`) share these rules.
//!
//! A queue is represented by its *horizon*, the time at which all of its work will be finished.
//! Bytes wait in a queue, one each for writes and for reads, and latencies overlap. Both queues
//! share the device: while both have work, each advances at its part of the device's speed, and a
//! queue that is alone gets all of it. One flush runs at a time, and syncs that arrive during a
//! flush share the next one. All times are in nanoseconds.

/// Maximum time in nanoseconds that a device may lag behind buffered writes before they wait.
pub const WRITE_BEHIND_NS: u64 = 20_000_000;

/// The slowdown, in thousandths, of a device that is as fast as its parameters.
pub const NOT_SLOWED: u64 = 1000;

/// The sharing, in thousandths, of a device whose reads and writes use the same resource.
pub const ALL_SHARED: u64 = 1000;

/// Bytes of a block in a hybrid's cache: the unit of a page cache and of RocksDB's reads. Blocks of
/// very large caches are larger.
pub const CACHE_BLOCK_BYTES: u64 = 4096;

/// The dirty part of a hybrid's cache, in hundredths, at which destaging begins, and at which
/// writes wait for it.
pub const DESTAGE_FROM: u64 = 50;
pub const DIRTY_MAX: u64 = 75;
const _: () = assert!(DESTAGE_FROM < DIRTY_MAX && DIRTY_MAX < 100);

/// Returns the time that a transfer takes. `slow_milli` is the device's slowdown in thousandths.
pub fn transfer_ns(bytes: u64, bytes_per_s: u64, slow_milli: u64) -> u64 {
    let (rate, slow) = (u128::from(bytes_per_s.max(1)), u128::from(slow_milli.max(1)));
    let nanos = u128::from(bytes) * 1_000_000_000 * slow / (rate * 1000);
    u64::try_from(nanos).unwrap_or(u64::MAX / 4)
}

/// Returns the horizon of a queue after work of length `cost`, which begins no earlier than
/// `start`, has been added.
pub fn reserved(horizon: u64, start: u64, cost: u64) -> u64 {
    horizon.max(start).saturating_add(cost)
}

/// Returns the part of an operation of length `cost` for which operations of the other kind cannot
/// use the device. `sharing_milli` is at most [`ALL_SHARED`].
pub fn taken(cost: u64, sharing_milli: u64) -> u64 {
    let taken = u128::from(cost) * u128::from(sharing_milli.min(ALL_SHARED)) / u128::from(ALL_SHARED);
    u64::try_from(taken).unwrap_or(u64::MAX)
}

/// Returns the end of an operation of length `cost` in the queue of its kind.
///
/// `own` is the end of the previous operation of this kind. `both` is the horizon of all work that
/// stands in the way of this kind, this operation included. The operation is done by then at the
/// latest. If the other kind has more work than this one, the operation is done earlier: while both
/// wait, an operation takes the time of its own and of as much work of the other kind.
pub fn contended(own: u64, both: u64, start: u64, cost: u64, sharing_milli: u64) -> u64 {
    let in_turns = reserved(own, start, cost.saturating_add(taken(cost, sharing_milli)));
    in_turns.min(both).max(own)
}

/// The two queues of a device, for one caller at a time.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    sharing_milli: u64,
    reads: Queue,
    writes: Queue,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// The end of the last operation of this kind.
    own: u64,
    /// The horizon of all work that stands in the way of this kind.
    both: u64,
}

impl Queues {
    pub fn new(sharing_milli: u64) -> Queues {
        Queues { sharing_milli, ..Queues::default() }
    }

    /// Adds a read of length `cost`. Returns its end.
    pub fn read(&mut self, start: u64, cost: u64) -> u64 {
        add(&mut self.reads, &mut self.writes, start, cost, self.sharing_milli)
    }

    /// Adds a write of length `cost`. Returns its end.
    pub fn write(&mut self, start: u64, cost: u64) -> u64 {
        add(&mut self.writes, &mut self.reads, start, cost, self.sharing_milli)
    }

    /// Returns the time at which all writes are finished.
    pub fn written(&self) -> u64 {
        self.writes.own
    }
}

fn add(kind: &mut Queue, other: &mut Queue, start: u64, cost: u64, sharing_milli: u64) -> u64 {
    other.both = reserved(other.both, start, taken(cost, sharing_milli));
    kind.both = reserved(kind.both, start, cost);
    kind.own = contended(kind.own, kind.both, start, cost, sharing_milli);
    kind.own
}

/// Returns the end of the flush that must be scheduled for a sync, or `None` if the last scheduled
/// flush covers it. That flush ends at `end` (0: there was none) and takes `took`. It covers the
/// sync if it begins after all preceding writes, which are finished at `written`. A new flush takes
/// `latency`.
pub fn next_flush(end: u64, took: u64, written: u64, latency: u64) -> Option<u64> {
    let covers = end > 0 && end.saturating_sub(took) >= written;
    (!covers).then(|| reserved(end, written, latency))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs both kinds for `until`, each with one operation of a millisecond under way, and returns
    /// how many of each were done.
    fn side_by_side(sharing_milli: u64, until: u64) -> (u64, u64) {
        let mut queues = Queues::new(sharing_milli);
        let (mut read_at, mut write_at, mut reads, mut writes) = (0, 0, 0, 0);
        while read_at.min(write_at) < until {
            if read_at <= write_at {
                read_at = queues.read(read_at, MS);
                reads += 1;
            } else {
                write_at = queues.write(write_at, MS);
                writes += 1;
            }
        }
        (reads, writes)
    }

    #[test]
    fn both_kinds_get_half_of_a_device_that_they_share() {
        let (reads, writes) = side_by_side(ALL_SHARED, 1000 * MS);
        assert!((495..=505).contains(&reads) && (495..=505).contains(&writes), "{reads} and {writes}");
    }

    #[test]
    fn what_is_shared_in_half_does_two_thirds_of_each() {
        let (reads, writes) = side_by_side(500, 900 * MS);
        assert!((595..=605).contains(&reads) && (595..=605).contains(&writes), "{reads} and {writes}");
    }

    #[test]
    fn nothing_shared_is_as_two_devices() {
        assert_eq!(side_by_side(0, 1000 * MS), (1000, 1000));
    }

    #[test]
    fn a_read_does_not_wait_for_the_whole_backlog_of_writes() {
        let mut queues = Queues::new(ALL_SHARED);
        for _ in 0..20 {
            queues.write(0, MS);
        }
        assert_eq!(queues.read(0, MS), 2 * MS, "it takes turns with the writes");
        // The read took a millisecond that the writes lack.
        (0..3).for_each(|_| _ = queues.write(20 * MS, MS));
        assert_eq!(queues.written(), 24 * MS);
    }

    #[test]
    fn a_kind_that_is_alone_has_the_whole_device() {
        let mut queues = Queues::new(ALL_SHARED);
        queues.write(0, MS);
        assert_eq!(queues.read(10 * MS, MS), 11 * MS);
        assert_eq!(queues.read(10 * MS, MS), 12 * MS);
        assert_eq!(queues.write(20 * MS, MS), 21 * MS);
    }
}
