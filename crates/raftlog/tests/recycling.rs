//! Logs that have reused their segments many times: recovery after a killed process, and detection
//! of a lost file.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, LogBounds, LogStore, RegionWrite};
use steelyard_raftlog::{LogError, Options, RaftLog};
use support::{crash_copy, segments};
use types::{LogIndex, RegionId};

const BUSY: RegionId = 1;
const COLD: RegionId = 2;
/// Number of entries that the busy region keeps.
const KEPT: u64 = 12;

/// Eight segments, and a few more while the log is busy.
fn small() -> Options {
    Options { segment_bytes: 64 << 10, log_bytes: 512 << 10 }
}

fn payload(region: RegionId, index: LogIndex) -> Bytes {
    Bytes::from([region as u8, index as u8, (index >> 8) as u8, 1].repeat(2 << 10))
}

fn state(index: LogIndex) -> HardState {
    HardState { term: 1 + index / 50, vote: Some(index % 3), commit: index }
}

/// A log together with the data written to it.
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

    /// Writes about one segment and truncates, as a store does. Recycles every few calls.
    fn go_on(&mut self) {
        for _ in 0..10 {
            self.last += 1;
            self.append(BUSY, self.last);
        }
        let name = format!("value {}", self.last % 90);
        self.log.set_store_value(name.as_bytes(), &self.last.to_be_bytes()).unwrap();
        self.values.insert(name, self.last);
        self.truncated = self.last.saturating_sub(KEPT);
        self.log.truncate(BUSY, self.truncated, 1);
        if self.last % 30 == 0 {
            self.log.recycle().unwrap();
            self.log.prepare().unwrap();
        }
    }

    /// Panics unless all written data is in the log.
    fn assert_is_in(&self, log: &RaftLog) {
        // The last truncations reach the disk only with a later write.
        let LogBounds { first, last } = log.bounds(BUSY).unwrap();
        assert!(first <= self.truncated + 1 && last == self.last, "{first}..={last}");
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

#[test]
fn a_log_whose_segments_were_overwritten_opens_after_a_kill_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = Written::begin(dir.path());
    let mut bytes = 0;
    for _ in 0..120 {
        written.go_on();
        let copy = crash_copy(dir.path());
        for _ in 0..2 {
            written.assert_is_in(&RaftLog::open(copy.path(), &small()).unwrap());
        }
        bytes = segments(dir.path()).iter().map(|path| path.metadata().unwrap().size()).sum();
    }
    assert!(written.log.written_bytes() > 12 * bytes, "{bytes} bytes were hardly overwritten");
    assert!(bytes < 1 << 20, "a log of 512 KiB takes {bytes} bytes");
}

#[test]
fn a_log_that_is_killed_again_and_again_goes_on_from_what_the_last_one_left() {
    let mut dir = tempfile::tempdir().unwrap();
    let mut written = Written::begin(dir.path());
    for round in 0..40 {
        for _ in 0..3 + round % 7 {
            written.go_on();
        }
        let copy = crash_copy(dir.path());
        written.log = RaftLog::open(copy.path(), &small()).unwrap();
        written.assert_is_in(&written.log);
        dir = copy;
    }
    assert!(segments(dir.path()).len() < 24, "{:?}", segments(dir.path()));
}

#[test]
fn a_lost_segment_is_missed_exactly_if_it_was_needed() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = Written::begin(dir.path());
    let (mut missed, mut not_needed) = (0, 0);
    for _ in 0..60 {
        written.go_on();
        if written.last < 300 || written.last % 20 != 0 {
            continue;
        }
        let copy = crash_copy(dir.path());
        for path in segments(copy.path()) {
            let without = crash_copy(copy.path());
            fs::remove_file(without.path().join(path.file_name().unwrap())).unwrap();
            match RaftLog::open(without.path(), &small()) {
                Ok(log) => {
                    written.assert_is_in(&log);
                    not_needed += 1;
                }
                Err(LogError::Corrupt(_) | LogError::LostTail { .. }) => missed += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(missed > 20 && not_needed > 10, "{missed} segments were missed, {not_needed} not needed");
}
