//! The rules of the house are tests, in `tests/house.rs`; there is nothing to link.
#![forbid(unsafe_code)]
