//! Logs that have outgrown their files many times: what a killed process leaves of them, and what is missed
//! if one of their files is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, LogBounds, LogStore, RegionWrite};
use steelyard_raftlog::{LogError, Options, RaftLog};
use types::{LogIndex, RegionId};

const BUSY: RegionId = 1;
const COLD: RegionId = 2;
/// Entries of the busy region that are kept behind its newest one.
const KEPT: u64 = 12;

/// Four files to write over, and no more.
fn small() -> Options {
    Options {
        target_file_bytes: 64 << 10,
        purge_threshold_bytes: 256 << 10,
        prefill_bytes: 0,
        ..Options::default()
    }
}

fn payload(region: RegionId, index: LogIndex) -> Bytes {
    Bytes::from([region as u8, index as u8, (index >> 8) as u8, 1].repeat(2 << 10))
}

fn state(index: LogIndex) -> HardState {
    HardState { term: 1 + index / 50, vote: Some(index % 3), commit: index }
}

/// A log, and what was written to it.
struct Written {
    log: RaftLog,
    last: LogIndex,
    truncated: LogIndex,
    values: BTreeMap<String, u64>,
}

impl Written {
    fn begin(dir: &Path) -> Written {
        let log = RaftLog::open(dir, &small()).unwrap();
        let written = Written { log, last: 0, truncated: 0, values: BTreeMap::new() };
        for index in 1..=3 {
            written.append(COLD, index);
        }
        written
    }

    fn append(&self, region: RegionId, index: LogIndex) {
        let entry = Entry { index, term: 1, data: payload(region, index), ..Entry::default() };
        let write =
            RegionWrite { region, restart: None, entries: vec![entry], hard_state: Some(state(index)) };
        self.log.append(&LogBatch { number: 1, writes: vec![write], must_sync: true }, true).unwrap();
    }

    /// Writes a file or so, and truncates, as a store does; purges now and then.
    fn go_on(&mut self) {
        for _ in 0..10 {
            self.last += 1;
            self.append(BUSY, self.last);
        }
        let name = format!("value {}", self.last % 90);
        self.log.set_store_value(name.as_bytes(), &self.last.to_be_bytes()).unwrap();
        self.values.insert(name, self.last);
        self.truncated = self.last.saturating_sub(KEPT);
        self.log.truncate(BUSY, self.truncated, 1).unwrap();
        if self.last % 30 == 0 {
            self.log.purge().unwrap();
        }
        // Makes the truncation durable, as the next batch of a store does.
        self.log.sync().unwrap();
    }

    /// Fails unless everything that was written is there.
    fn assert_is_in(&self, log: &RaftLog) {
        assert_eq!(log.bounds(BUSY).unwrap(), LogBounds { first: self.truncated + 1, last: self.last });
        assert_eq!(log.bounds(COLD).unwrap(), LogBounds { first: 1, last: 3 });
        for (region, first, last) in [(BUSY, self.truncated + 1, self.last), (COLD, 1, 3)] {
            let entries = log.entries(region, first, last + 1, u64::MAX).unwrap();
            assert_eq!(entries.len() as u64, last + 1 - first);
            assert!(entries.iter().all(|entry| entry.data == payload(region, entry.index)));
            assert_eq!(log.hard_state(region).unwrap(), Some(state(last)));
        }
        for (name, value) in &self.values {
            assert_eq!(log.store_value(name.as_bytes()).as_deref(), Some(&value.to_be_bytes()[..]), "{name}");
        }
    }
}

/// The files as a killed process leaves them at this moment.
fn crash_copy(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn files(dir: &Path, extension: &str) -> Vec<(u64, PathBuf)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|of| of == extension))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), path))
        .collect();
    files.sort();
    files
}

fn has_hole(files: &[(u64, PathBuf)]) -> bool {
    files.windows(2).any(|pair| pair[1].0 != pair[0].0 + 1)
}

#[test]
fn a_log_whose_files_were_recycled_opens_after_a_kill_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = Written::begin(dir.path());
    let mut with_holes = 0;
    for _ in 0..120 {
        written.go_on();
        let copy = crash_copy(dir.path());
        with_holes += usize::from(has_hole(&files(copy.path(), "raftlog")));
        // Files below a hole go once the log is open, or they would pile up from kill to kill.
        for _ in 0..2 {
            let log = RaftLog::open(copy.path(), &small()).unwrap();
            written.assert_is_in(&log);
            assert!(!has_hole(&files(copy.path(), "raftlog")));
        }
    }
    assert!(with_holes > 20, "only {with_holes} of 120 kills left a hole between files");
}

#[test]
fn a_log_that_is_killed_again_and_again_goes_on_from_what_the_last_one_left() {
    let mut dir = tempfile::tempdir().unwrap();
    let mut written = Written::begin(dir.path());
    let mut with_holes = 0;
    for round in 0..40 {
        for _ in 0..3 + round % 7 {
            written.go_on();
        }
        let copy = crash_copy(dir.path());
        with_holes += usize::from(has_hole(&files(copy.path(), "raftlog")));
        written.log = RaftLog::open(copy.path(), &small()).unwrap();
        written.assert_is_in(&written.log);
        dir = copy;
    }
    assert!(with_holes > 5, "only {with_holes} of 40 kills left a hole between files");
}

#[test]
fn a_lost_file_is_missed_exactly_if_it_was_needed() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = Written::begin(dir.path());
    let (mut missed, mut not_needed) = (0, 0);
    for _ in 0..100 {
        written.go_on();
        let copy = crash_copy(dir.path());
        let appended = files(copy.path(), "raftlog");
        if written.last < 300 || written.last % 20 != 0 || !has_hole(&appended) {
            continue;
        }
        for (_, path) in appended.iter().chain(&files(copy.path(), "rewrite")) {
            let without = crash_copy(copy.path());
            fs::remove_file(without.path().join(path.file_name().unwrap())).unwrap();
            match RaftLog::open(without.path(), &small()) {
                Ok(log) => {
                    written.assert_is_in(&log);
                    not_needed += 1;
                }
                Err(LogError::Corrupt(why)) => {
                    let name = path.file_name().unwrap().to_str().unwrap();
                    assert_eq!(why, format!("file {name} is missing"));
                    missed += 1;
                }
                // The newest file holds the batch that was synced last.
                Err(LogError::LostTail { .. }) => {
                    assert_eq!(path, &appended.last().unwrap().1);
                    missed += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(missed > 20 && not_needed > 10, "{missed} files were missed, {not_needed} not needed");
}
