//! Small limits and an in-memory log for tests of a single worker.

pub mod disk;

use steelyard_replica::{Config, Truncation};
use types::{RegionDescriptor, RegionId, SlotRange, StoreId};

pub const MILLISECOND: u64 = 1_000_000;

pub fn descriptor(id: RegionId, stores: u64) -> RegionDescriptor {
    let slots = Some(SlotRange {
        first: (id as u16).wrapping_mul(1000) % 16_000,
        last: (id as u16).wrapping_mul(1000) % 16_000 + 999,
    });
    RegionDescriptor::founded(id, slots, &(0..stores).collect::<Vec<_>>())
}

pub fn config(store: StoreId, seed: u64) -> Config {
    Config {
        max_message_bytes: 512,
        max_inflight_messages: 8,
        max_uncommitted_bytes: 4096,
        max_apply_bytes: 1024,
        hibernate_ticks: 8,
        entry_memory_bytes: 1024,
        truncation: Truncation {
            keep_entries: 6,
            keep_bytes: 1 << 20,
            step_entries: 4,
            step_bytes: 1 << 20,
            lag_bytes: 30 * 64,
        },
        ..Config::new(store, seed)
    }
}
