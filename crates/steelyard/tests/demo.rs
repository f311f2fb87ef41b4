//! The demonstration ends without input, in plain text, and leaves no process behind.

mod stores;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use client::process::Child;
use resp::Reply;
use stores::wire::Wire;
use stores::{alone, eventually, say, steelyard, within};

/// Maximum width of a line.
const WIDTH: usize = 100;

/// Returns a port from which on the ports of a demonstration with three stores are free.
fn port() -> u16 {
    let is_free = |port: u16| client::process::port_is_free(([127, 0, 0, 1], port).into());
    // Store i uses port + i, and the same with 100, 10,000 and 20,000 added.
    let are_free = |port: &u16| {
        let offsets = [0, 100, 10_000, 20_000];
        offsets.iter().all(|offset| (0..3).all(|store| is_free(port + offset + store)))
    };
    (12_000..20_000).step_by(10).find(are_free).expect("free ports")
}

fn demo(dir: &Path, port: u16) -> Command {
    let mut command = steelyard();
    command.args(["demo", "--once", "--port", &port.to_string(), "--dir"]).arg(dir);
    command.args(["--devices", "nvm,2x plain-ssd", "--device-speed", "0.1", "--seconds-per-policy", "1"]);
    command.args(["--regions", "6", "--clients", "8", "--records", "300"]);
    command
}

/// Returns the ids of the store processes whose data is in a directory.
fn stores_in(dir: &Path) -> Vec<u32> {
    let dir = dir.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let is_store = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("\0serve\0") && line.contains(&dir)
    };
    pids.filter(is_store).collect()
}

#[test]
fn once_tells_the_whole_story_in_plain_text_and_succeeds_because_nothing_is_lost() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let output = client::process::output(&mut demo(dir.path(), port())).expect("the demonstration runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    say(&text);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    let is_plain = |c: char| c == '\n' || !c.is_control();
    assert!(text.chars().all(is_plain), "control codes: {text:?}");
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    let mut rest = text.as_str();
    for part in [
        "== 1/6 start",
        "== 2/6 load",
        "300 records",
        "== 3/6 even",
        "device busy",
        "== 4/6 adaptive",
        "adaptive moved",
        "leader of region",
        "policy even",
        "policy adaptive",
        "adaptive / even",
        "== 5/6 kill -9",
        "kill -9 of store",
        "Every region had a leader again after",
        "DOWN",
        "was started again",
        "== 6/6 proof",
        "No acknowledged write is lost: 300 records were read back",
    ] {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing or misplaced in\n{text}"));
        rest = &rest[at + part.len()..];
    }
    assert_eq!(stores_in(dir.path()), [0u32; 0], "no store is left");
}

#[test]
#[ignore = "another whole demonstration: make test-large"]
fn a_record_that_is_not_as_acknowledged_fails_the_demonstration() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (port, told) = (port(), dir.path().join("told"));
    let data = dir.path().join("data");
    let mut command = demo(&data, port);
    command.stdout(std::fs::File::create(&told).unwrap()).stderr(Stdio::null());
    let mut child = Child::spawn("demo", &mut command).expect("the demonstration starts");
    let text = || std::fs::read_to_string(&told).unwrap();
    within(Duration::from_secs(120), || text().contains("== 4/6").then_some(())).expect("records are loaded");
    // The forward port of store 0 serves every key.
    let mut wire = Wire::open(([127, 0, 0, 1], port + 100).into());
    let mut cursor = Reply::bulk("0");
    let key = loop {
        let Reply::Bulk(at) = &cursor else { panic!("{cursor:?}") };
        let at = String::from_utf8(at.to_vec()).unwrap();
        let Reply::Array(parts) = wire.call(&["SCAN", &at]) else { panic!("SCAN answers with two parts") };
        if let Some(Reply::Array(keys)) = parts.get(1) {
            if let Some(Reply::Bulk(key)) = keys.first() {
                break String::from_utf8(key.to_vec()).unwrap();
            }
        }
        cursor = parts[0].clone();
    };
    assert_eq!(wire.int(&["HSET", &key, "Sabotage", "1"]), 1);
    let status =
        within(Duration::from_secs(120), || child.ended()).expect("the demonstration ends by itself");
    let text = text();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("ACKNOWLEDGED WRITES ARE MISSING") && text.contains(&key), "{text}");
}

#[test]
fn an_interrupt_ends_all_stores_and_is_no_proof() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut command = demo(dir.path(), port());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Child::spawn("demo", &mut command).expect("the demonstration starts");
    eventually("three stores run", || (stores_in(dir.path()).len() == 3).then_some(()));
    let pid = child.pid().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(sent.success());
    let status = eventually("the demonstration ends", || child.ended());
    assert_eq!(status.code(), Some(1), "an interrupted run is not a success");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(stores_in(dir.path()), [0u32; 0], "no store is left");
}
