//! The preload library that puts a process's files on an emulated device.
//!
//! Loaded with `LD_PRELOAD`, it intercepts libc's file calls. A descriptor whose file is under
//! `STEELYARD_DEVICE_ROOT` is on the device whose control block `STEELYARD_DEVICE` names. Reads,
//! writes and syncs on it are performed as usual and then wait as long as the device model says.
//! Without `STEELYARD_DEVICE` every call passes straight through.
//!
//! With `STEELYARD_DEVICE_IMAGE` it also keeps an image of the data that a power loss would leave
//! (`device::image`).
//!
//! Rules for this code: take no lock except `flock`, because a fork in another thread would leave
//! it held; allocate nothing after start-up, because an allocator may itself open files; leave
//! `errno` as libc set it; pass on unchanged all calls that are not understood. It supports only
//! 64-bit glibc Linux, where `off_t` is `off64_t`.
//!
//! `docs/DEVICES.md` lists what is and is not emulated.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

// The crate's own unit tests must not intercept the calls of their own process.
#[cfg(not(test))]
mod device_state;
#[cfg(not(test))]
mod directory;
#[cfg(not(test))]
mod hooks;
#[cfg(not(test))]
mod image;
mod pace;
#[cfg(not(test))]
mod usage;
