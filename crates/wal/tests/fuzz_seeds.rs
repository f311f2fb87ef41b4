//! Damaged logs from the seeds of the fuzz target `log_recovery`, among them those that once
//! failed.

#[path = "../../../fuzz/replay.rs"]
mod replay;
mod support;

#[test]
fn seeds_of_the_fuzz_target_harm_nothing() {
    replay::seeds("log_recovery", support::damage::recovery);
}
