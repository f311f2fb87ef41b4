//! The commands of the program `steelyard`. The laboratory uses some of them as a library.

#![forbid(unsafe_code)]

pub mod authority;
pub mod ctl;
pub mod demo;
pub mod encryption;
pub mod lab;
pub mod log_command;
pub mod plan;
pub mod playground;
pub mod serve;
pub mod transfer;
