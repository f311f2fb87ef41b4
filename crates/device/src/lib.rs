//! Devices: what a store's disk can do, and disks that are emulated.
//!
//! - [`Profile`]: a device in numbers, by name or as text.
//! - [`Control`]: the shared-memory block through which one emulated device is seen and changed by every
//!   process that uses it. The timing model itself ([`ControlBlock`]) is arithmetic over atomics with the
//!   time as an argument, so it is tested without waiting.
//! - [`Image`]: what of a directory would survive the loss of power, and the loss itself.
//! - [`probe`](probe::probe): measures a directory through ordinary file calls, emulated or not.
//! - [`Fit`]: from measured I/O to what a store makes of it; [`KvCapability`]: both put together.
//! - [`Ground`]: which disks a directory is on, so that stores which share one are recognised.
//! - [`shim_path`]: where the preload library is that puts a process onto an emulated device.
//!
//! What is and is not emulated is listed in `docs/DEVICES.md`, what is measured in `docs/CAPABILITY.md`.

mod block;
mod cache;
mod capability;
mod control;
pub mod fit;
mod ground;
pub mod image;
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
pub use ground::{Disk, Ground, Underlying};
pub use image::{Image, ImageError, Survival};
pub use model::{Fault, EVERY};
pub use noise::{Burst, Neighbour, Noise};
pub use probe::{probe, Measured, ProbeError};
pub use profile::{CacheProfile, Profile, ProfileError};
pub use shim::{preload_env, shim_path, ShimError, DEVICE_ENV, IMAGE_ENV, ROOT_ENV, SHIM_ENV};
