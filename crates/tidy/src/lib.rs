//! The rules of the house are tests, in `tests/house.rs`. Here is how they read Rust sources.
#![forbid(unsafe_code)]

pub mod source;
