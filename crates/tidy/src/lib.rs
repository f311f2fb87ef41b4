//! The project's rules as tests. `tests/house.rs` holds the rules, and this library reads Rust
//! sources for them.
#![forbid(unsafe_code)]

pub mod source;
