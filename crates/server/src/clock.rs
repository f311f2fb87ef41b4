//! The two clocks of a store. Everything below this crate gets time as an argument.

use types::{BootNanos, UnixMillis};

/// CLOCK_BOOTTIME: monotonic, and it goes on counting while the machine is suspended, which a lease
/// must notice.
pub fn boot_nanos() -> BootNanos {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec that the call fills.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    assert_eq!(status, 0, "CLOCK_BOOTTIME is not readable");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub fn unix_millis() -> UnixMillis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map(|d| d.as_millis() as u64).unwrap_or(0)
}

pub fn unix_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map(|d| d.as_micros() as u64).unwrap_or(0)
}
