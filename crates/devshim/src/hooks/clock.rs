//! Clocks of this process: the wall clock can be made to jump, and the clock that counts from the
//! machine's start can be held back. CLOCK_MONOTONIC, which paces the device itself, is never
//! moved.

use std::ffi::{c_int, c_void};

use libc::{clockid_t, time_t, timespec, timeval};

use super::interpose;
use crate::device_state::state;

interpose!(clock_gettime: (clock: clockid_t, out: *mut timespec) -> c_int => told);
interpose!(gettimeofday: (out: *mut timeval, zone: *mut c_void) -> c_int => told_of_day);
interpose!(time: (out: *mut time_t) -> time_t => told_seconds);

const NANOS_PER_S: i64 = 1_000_000_000;

/// Returns the offset of the wall clock from the machine's, in nanoseconds. Positive if it is
/// ahead.
fn offset() -> i64 {
    state().map_or(0, |state| state.block().wall_offset_ns())
}

fn offset_of(clock: clockid_t) -> i64 {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => offset(),
        libc::CLOCK_BOOTTIME => state().map_or(0, |state| state.block().boot_offset_ns()),
        _ => 0,
    }
}

fn told(real: impl FnOnce() -> c_int, clock: clockid_t, out: *mut timespec) -> c_int {
    let result = real();
    let offset = offset_of(clock);
    if result == 0 && offset != 0 {
        // SAFETY: the real call has just filled it.
        let out = unsafe { &mut *out };
        let nanos = out.tv_nsec + offset % NANOS_PER_S;
        out.tv_sec += offset / NANOS_PER_S + nanos.div_euclid(NANOS_PER_S);
        out.tv_nsec = nanos.rem_euclid(NANOS_PER_S);
    }
    result
}

fn told_of_day(real: impl FnOnce() -> c_int, out: *mut timeval, _zone: *mut c_void) -> c_int {
    let result = real();
    if result == 0 && offset() != 0 && !out.is_null() {
        const MICROS_PER_S: i64 = NANOS_PER_S / 1000;
        // SAFETY: the real call has just filled it.
        let out = unsafe { &mut *out };
        let micros = out.tv_usec + offset() % NANOS_PER_S / 1000;
        out.tv_sec += offset() / NANOS_PER_S + micros.div_euclid(MICROS_PER_S);
        out.tv_usec = micros.rem_euclid(MICROS_PER_S);
    }
    result
}

fn told_seconds(real: impl FnOnce() -> time_t, out: *mut time_t) -> time_t {
    let seconds = real();
    if seconds == -1 || offset() == 0 {
        return seconds;
    }
    let seconds = seconds + offset() / NANOS_PER_S;
    if !out.is_null() {
        // SAFETY: the caller's pointer, which the real call has just written to.
        unsafe { *out = seconds };
    }
    seconds
}
