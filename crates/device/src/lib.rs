//! Devices: measurement of a store's disk, and emulation of disks.
//!
//! - [`Profile`]: a device described by numbers, written as a name or as text.
//! - [`Control`]: a handle on the shared-memory block of one emulated device. All processes on the
//!   device see and change it there. The timing model ([`ControlBlock`]) is arithmetic over atomics
//!   that receives the time as an argument, so it can be tested without waiting.
//! - [`Image`]: the part of a directory that would survive a loss of power, and the simulated loss.
//! - [`probe`](probe::probe): measures a directory through ordinary file calls, emulated or not.
//! - [`Fit`]: maps measured I/O speed to a store's key-value speed. [`KvCapability`] combines both.
//! - [`Ground`]: the disks behind a directory, which shows if stores share one.
//! - [`shim_path`]: the path of the preload library that puts a process on an emulated device.
//!
//! `docs/DEVICES.md` lists the emulated calls and effects, and `docs/CAPABILITY.md` the measured
//! quantities.

mod array;
mod block;
mod cache;
mod capability;
mod control;
pub mod fit;
mod ground;
pub mod image;
mod lane;
mod mapping;
mod model;
mod noise;
pub mod probe;
mod profile;
mod shim;

pub use block::{ControlBlock, BLOCK_BYTES, MAGIC, VERSION};
pub use cache::{Cache, Extent};
pub use capability::KvCapability;
pub use control::{Control, ControlError, Stats};
pub use fit::{Fit, FitError, Pair};
pub use ground::{free_bytes, Disk, Ground, Underlying};
pub use image::{Image, ImageError, Survival};
pub use model::{Fault, Hang, EVERY};
pub use noise::{Burst, Neighbour, Noise};
pub use probe::{probe, Measured, ProbeError};
pub use profile::{ArrayProfile, CacheProfile, Profile, ProfileError, SlcProfile};
pub use shim::{preload_env, shim_path, ShimError, DEVICE_ENV, IMAGE_ENV, ROOT_ENV, SHIM_ENV};
