//! `steelyard bench reproduce redis-on-flash` from its command line: processes on emulated devices,
//! results that are kept, and the report.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn bench(dir: &Path, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_steelyard-lab"))
        .args([
            "bench",
            "reproduce",
            "redis-on-flash",
            "--scale",
            "smoke",
            "--rows",
            "6000",
            "--repeat-void",
            "0",
        ])
        .arg("--out")
        .arg(dir)
        .args(more)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    errors
}

fn runs(dir: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(dir.join("runs")).unwrap();
    files.map(|file| serde_json::from_slice(&std::fs::read(file.unwrap().path()).unwrap()).unwrap()).collect()
}

#[test]
fn the_riddle_s_runs_count_bytes_and_are_made_once() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), &["--figure", "sync"]);
    let made = runs(dir.path());
    assert_eq!(made.len(), 4);
    for run in &made {
        let options = &run["measured"]["options"];
        let is_direct = options["use_direct_io_for_flush_and_compaction"] == "true";
        let syncs = options["bytes_per_sync"] != "0";
        let bytes = run["measured"]["phases"]["write-only"]["work"]["range_sync_bytes"].as_u64().unwrap();
        assert_eq!(
            bytes > 0,
            syncs && !is_direct,
            "direct {is_direct}, bytes_per_sync {syncs}: {bytes} bytes"
        );
    }
    let again = bench(dir.path(), &["--figure", "sync"]);
    assert!(!again.contains("to go"), "nothing is left to do: {again}");
}

#[test]
fn a_replica_on_a_device_of_its_own_is_measured_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), &["--figure", "3", "--place", "sata"]);
    let made = runs(dir.path());
    let phases = &made[0]["measured"]["phases"];
    for load in ["write-only", "read-only", "50:50", "replication"] {
        assert!(phases[load]["operations"].as_u64().unwrap() > 0, "{load}");
        assert!(phases[load]["work"]["written"].as_u64().is_some(), "{load}");
    }
    let written = phases["replication"]["work"]["written"].as_u64().unwrap();
    assert!(written >= 6000 * 1040, "the replica's device has every row: {written}");
    let report = std::fs::read_to_string(dir.path().join("report.md")).unwrap();
    assert!(report.contains("level0_slowdown_writes_trigger") && report.contains("fdatasync"), "{report}");
}
