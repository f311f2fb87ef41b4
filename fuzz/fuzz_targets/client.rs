#![no_main]

extern crate command as steelyard_command;

#[path = "../../crates/node/tests/support/client.rs"]
mod client;
#[path = "../../crates/command/tests/support/consistency.rs"]
mod consistency;

steelyard_fuzz::target!(1 << 30, client::serve);
