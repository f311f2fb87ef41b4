//! The system calls and file-system journal commits of an append: in steady state no metadata
//! changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{LogBatch, RegionWrite};
use steelyard_raftlog::{Options, RaftLog};

const DIR: &str = "STEELYARD_TEST_LOG_DIR";
const APPENDS: u64 = 400;

fn append(log: &RaftLog, index: u64) {
    let entry = Entry { index, term: 1, data: Bytes::from(vec![7; 9 << 10]), ..Entry::default() };
    let write = RegionWrite { region: 1, restart: None, entries: vec![entry], hard_state: None };
    log.append(&LogBatch { number: index, writes: vec![write], must_sync: true }, true).unwrap();
}

/// Returns a log that has reused its segments several times, so that all of them were written
/// before.
fn settled(dir: &Path) -> (RaftLog, u64) {
    let log = RaftLog::open(dir, &Options { segment_bytes: 1 << 20, log_bytes: 4 << 20 }).unwrap();
    let mut next = 1;
    for _ in 0..15 {
        next = go_on(&log, next, 100);
    }
    (log, next)
}

fn go_on(log: &RaftLog, mut next: u64, count: u64) -> u64 {
    for _ in 0..count {
        append(log, next);
        next += 1;
    }
    log.truncate(1, next - 2, 1);
    log.recycle().unwrap();
    log.prepare().unwrap();
    next
}

/// The process that is traced.
#[test]
#[ignore = "started by another test under strace"]
fn append_in_steady_state() {
    let dir = std::env::var(DIR).unwrap();
    let (log, mut next) = settled(Path::new(&dir));
    // Marks the beginning of the measured part in the trace.
    let _ = fs::metadata("/steady");
    for _ in 0..APPENDS {
        append(&log, next);
        next += 1;
    }
    let _ = fs::metadata("/end");
}

#[test]
fn an_append_is_two_writes_and_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let traced = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&trace)
        .args(["-e", "trace=file,desc,fsync,fdatasync"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "append_in_steady_state", "--ignored", "--nocapture"])
        .env(DIR, dir.path().join("log"))
        .output();
    let Ok(output) = traced else { return eprintln!("SKIPPED: no strace") };
    if output.stderr.starts_with(b"strace:") {
        return eprintln!("SKIPPED: strace may not trace here");
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&trace).unwrap();
    let steady = text.lines().skip_while(|line| !line.contains("\"/steady\"")).skip(1);
    let lines: Vec<&str> = steady.take_while(|line| !line.contains("\"/end\"")).collect();
    let count = |call: &str| lines.iter().filter(|line| line.contains(call)).count() as u64;
    // An append makes two writes: a block and the mark. All appends together fill about four
    // segments.
    assert_eq!(count("pwrite64("), 2 * APPENDS);
    assert!((APPENDS..APPENDS + 8).contains(&count("fdatasync(")), "{} syncs", count("fdatasync("));
    let others: Vec<_> = lines
        .iter()
        .filter(|line| !line.contains("pwrite64(") && !line.contains("fdatasync("))
        // These calls create segments, because the log is not recycled in the meantime.
        .collect();
    assert!(others.len() < 200, "{} other calls: {:?}", others.len(), &others[..20]);
}

/// A journaling file system in a file.
struct Journaled {
    dir: tempfile::TempDir,
    device: String,
}

impl Journaled {
    fn mount() -> Option<Journaled> {
        let dir = tempfile::tempdir().unwrap();
        let (image, point) = (dir.path().join("image"), dir.path().join("point"));
        fs::create_dir(&point).unwrap();
        fs::File::create(&image).unwrap().set_len(96 << 20).unwrap();
        let run = |command: &mut Command| command.output().ok().filter(|output| output.status.success());
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "has_journal"]).arg(&image))?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
        let journaled = Journaled { dir, device };
        run(Command::new("mount").arg(&journaled.device).arg(&point))?;
        Some(journaled)
    }

    fn point(&self) -> PathBuf {
        self.dir.path().join("point")
    }

    /// Returns the number of transactions that the journal has committed.
    fn commits(&self) -> Option<u64> {
        let name = self.device.rsplit('/').next()?;
        let of_device =
            |path: &Path| path.file_name()?.to_str()?.starts_with(&format!("{name}-")).then_some(());
        let mut paths = fs::read_dir("/proc/fs/jbd2").ok()?.flatten().map(|entry| entry.path());
        let path = paths.find(|path| of_device(path).is_some())?;
        let info = fs::read_to_string(path.join("info")).ok()?;
        info.split_whitespace().next()?.parse().ok()
    }
}

impl Drop for Journaled {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point()).output();
        let _ = Command::new("losetup").args(["--detach", &self.device]).output();
    }
}

#[test]
fn an_append_commits_nothing_to_a_journal() {
    let Some(journaled) = Journaled::mount() else {
        return eprintln!("SKIPPED: no loop device or no permission to mount one");
    };
    let dir = journaled.point().join("log");
    let (log, mut next) = settled(&dir);
    let Some(before) = journaled.commits() else { return eprintln!("SKIPPED: no statistics of the journal") };
    for _ in 0..4 {
        next = go_on(&log, next, APPENDS / 4);
    }
    let commits = journaled.commits().unwrap() - before;
    drop(log);
    // The kernel commits file times every few seconds. Making a segment costs a commit or two.
    assert!(commits < APPENDS / 8, "{commits} commits for {APPENDS} appends");
    // The converse shows that commits are counted: each append to a growing file commits.
    let grown = fs::File::create(journaled.point().join("grown")).unwrap();
    let before = journaled.commits().unwrap();
    for _ in 0..50 {
        std::io::Write::write_all(&mut &grown, &[7; 9 << 10]).unwrap();
        grown.sync_data().unwrap();
    }
    let commits = journaled.commits().unwrap() - before;
    assert!(commits > 40, "{commits} commits for 50 appends to a file that grows");
}
