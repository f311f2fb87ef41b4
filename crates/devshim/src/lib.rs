//! The preload library that puts a process's files onto an emulated device.
//!
//! Loaded with `LD_PRELOAD`, it stands before libc's file calls. A descriptor whose file lies under
//! `STEELYARD_DEVICE_ROOT` is on the device whose control block `STEELYARD_DEVICE` names: its reads, writes
//! and syncs do what they always do and then wait as long as the device model says. Without
//! `STEELYARD_DEVICE` every call goes straight through.
//!
//! With `STEELYARD_DEVICE_IMAGE` it also keeps an image of what a power loss would leave (`device::image`).
//!
//! Rules of the house: no lock (a fork in another thread would leave it held) but `flock`, no allocation after
//! start-up (an allocator may itself open files), `errno` is left as libc set it, and what is not understood is passed
//! on untouched. Only 64-bit glibc Linux, where `off_t` is `off64_t`.
//!
//! `docs/DEVICES.md` lists what is and is not emulated.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

// The crate's own unit tests must not stand before their own libc.
#[cfg(not(test))]
mod device_state;
#[cfg(not(test))]
mod hooks;
#[cfg(not(test))]
mod image;
mod pace;
#[cfg(not(test))]
mod usage;
