//! Device faults: the log waits for room on a full device, and stops on a failing one.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::process::{Command, Output};

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{LogBatch, LogStore, RegionWrite};
use steelyard_raftlog::{LogError, Options, RaftLog};
use types::LogIndex;

const DIR: &str = "STEELYARD_TEST_LOG_DIR";
const SIGABRT: i32 = 6;

fn small() -> Options {
    Options { segment_bytes: 256 << 10, log_bytes: 512 << 10 }
}

fn batch(index: LogIndex) -> LogBatch {
    let entry = Entry { index, term: 1, data: Bytes::from(vec![index as u8; 8 << 10]), ..Entry::default() };
    let write = RegionWrite { region: 1, restart: None, entries: vec![entry], hard_state: None };
    LogBatch { number: index, writes: vec![write], must_sync: true }
}

/// The process with the injected fault. It appends until an append is refused, and reports the
/// errors.
#[test]
#[ignore = "started by the other tests under strace"]
fn append_until_refused() {
    let log = RaftLog::open(Path::new(&std::env::var(DIR).unwrap()), &small()).unwrap();
    let say = |line: String| writeln!(std::io::stderr(), "{line}").unwrap();
    for index in 1..=50 {
        let appended = catch_unwind(AssertUnwindSafe(|| log.append(&batch(index), true)));
        match appended {
            Ok(Ok(_)) => say(format!("acknowledged {index}")),
            Ok(Err(error)) => {
                say(format!("refused {error:?}"));
                say(format!("then {:?}", log.append(&batch(index), true).unwrap_err()));
                say(format!("and {:?}", log.recycle().unwrap_err()));
                return;
            }
            Err(_) => say("survived a panic".to_owned()),
        }
    }
    say("nothing failed".to_owned());
}

/// Runs `append_until_refused` with an injected system call failure. Returns `None` where tracing
/// is not possible.
fn run_with_fault(dir: &Path, inject: &str) -> Option<Output> {
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,pwrite64", "-e", inject])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "append_until_refused", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .output();
    match traced {
        Ok(output) if !output.stderr.starts_with(b"strace:") => Some(output),
        _ => {
            eprintln!("skipped: no strace, or it may not trace here");
            None
        }
    }
}

fn acknowledged(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| line.starts_with("acknowledged")).count() as u64
}

#[test]
fn a_failed_sync_ends_the_process_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = run_with_fault(dir.path(), "inject=fdatasync:error=EIO:when=12+") else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{:?}\n{text}", output.status);
    assert!(!text.contains("survived") && !text.contains("nothing failed"), "{text}");
    let acknowledged = acknowledged(&output);
    assert!(acknowledged > 0, "{text}");
    let log = RaftLog::open(dir.path(), &small()).unwrap();
    assert!(log.bounds(1).unwrap().last >= acknowledged);
}

#[test]
fn a_failed_write_stops_the_log_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = run_with_fault(dir.path(), "inject=pwrite64:error=EIO:when=20") else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}", output.status);
    assert!(text.contains("refused Device("), "{text}");
    assert!(
        text.contains("then Stopped") && text.contains("and Stopped"),
        "one failure, but it continued: {text}"
    );
    let log = RaftLog::open(dir.path(), &small()).unwrap();
    assert!(log.bounds(1).unwrap().last >= acknowledged(&output));
}

struct SmallDevice(tempfile::TempDir);

impl SmallDevice {
    fn mount(size: &str) -> Option<SmallDevice> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDevice(dir)),
            _ => {
                eprintln!("skipped: no permission to mount a tmpfs");
                None
            }
        }
    }
}

impl Drop for SmallDevice {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_device_refuses_batches_whole_and_takes_them_when_there_is_room() {
    let Some(device) = SmallDevice::mount("6m") else { return };
    let ballast = device.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 3 << 20]).unwrap();
    let dir = device.0.path().join("log");
    let log = RaftLog::open(&dir, &small()).unwrap();
    let mut last = 0;
    let refusal = loop {
        match log.append(&batch(last + 1), true) {
            Ok(_) => last += 1,
            Err(error) => break error,
        }
        assert!(last < 1000, "6 MiB need no more appends");
    };
    assert!(matches!(refusal, LogError::NoSpace(_)), "{refusal:?}");
    for _ in 0..20 {
        let again = log.append(&batch(last + 1), true).unwrap_err();
        assert!(matches!(again, LogError::NoSpace(_)), "{again:?}");
        assert_eq!(log.bounds(1).unwrap().last, last, "nothing of a refused batch is kept");
        assert_eq!(log.entries(1, last, last + 1, u64::MAX).unwrap()[0].data[0], last as u8);
    }
    // At the limit, a restarted process opens the log or reports that there is no room.
    let sequence = log.sequence();
    drop(log);
    match RaftLog::open(&dir, &small()) {
        Ok(log) => assert_eq!((log.bounds(1).unwrap().last, log.sequence()), (last, sequence)),
        Err(error) => assert!(matches!(error, LogError::NoSpace(_)), "{error:?}"),
    }
    std::fs::remove_file(&ballast).unwrap();
    let log = RaftLog::open(&dir, &small()).unwrap();
    assert_eq!(log.bounds(1).unwrap().last, last);
    for index in last + 1..=last + 20 {
        log.append(&batch(index), true).unwrap();
    }
    drop(log);
    let log = RaftLog::open(&dir, &small()).unwrap();
    let entries = log.entries(1, 1, last + 21, u64::MAX).unwrap();
    assert!(entries
        .iter()
        .zip(1..)
        .all(|(entry, index)| entry.index == index && entry.data[0] == index as u8));
    assert_eq!(entries.len() as u64, last + 20);
}

#[test]
fn a_full_device_is_waited_out_without_reopening() {
    let Some(device) = SmallDevice::mount("6m") else { return };
    let ballast = device.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 3 << 20]).unwrap();
    let log = RaftLog::open(&device.0.path().join("log"), &small()).unwrap();
    let mut last = 0;
    while log.append(&batch(last + 1), true).is_ok() {
        last += 1;
    }
    // Leaves no free page: another file can be created, but no data can be written to it.
    let filler = device.0.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    for _ in 0..3 {
        assert!(matches!(log.append(&batch(last + 1), true), Err(LogError::NoSpace(_))));
    }
    // Recycling wants to make segments, and finds no room either.
    log.truncate(1, last / 2, 1);
    if let Err(error) = log.recycle() {
        assert!(matches!(error, LogError::NoSpace(_)), "{error:?}");
    }
    std::fs::remove_file(&ballast).unwrap();
    std::fs::remove_file(&filler).unwrap();
    for index in last + 1..=last + 20 {
        log.append(&batch(index), true).unwrap();
        // A copy of the files as they are if the process is killed now.
        let copy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(device.0.path().join("log")).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
        let copied = RaftLog::open(copy.path(), &small()).unwrap();
        assert_eq!(copied.bounds(1).unwrap().last, index);
    }
    let first = log.bounds(1).unwrap().first;
    assert_eq!(log.entries(1, first, last + 21, u64::MAX).unwrap().len() as u64, last + 21 - first);
}
