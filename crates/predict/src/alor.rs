//! The set-up of ALOR's evaluation (NPC 2018, §4) at a scale: stores, devices, data and capacity.

mod mix;
mod scale;

pub use mix::{capacity_bytes, devices, records, scaled_devices};
pub use scale::{Scale, REQUEST_TIMEOUT_MS};
