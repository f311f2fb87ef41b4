//! A client's commands from the seeds of the fuzz target `client`, among them those that once
//! failed.

extern crate command as steelyard_command;

#[path = "support/client.rs"]
mod client;
#[path = "../../command/tests/support/consistency.rs"]
mod consistency;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn seeds_of_the_fuzz_target_harm_nothing() {
    replay::seeds("client", client::serve);
}
