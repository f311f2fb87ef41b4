#![no_main]

#[path = "../../crates/wal/tests/support/mod.rs"]
mod support;

steelyard_fuzz::target!(64 << 20, support::damage::recovery);
