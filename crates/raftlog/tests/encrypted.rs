//! The log in an encrypted directory: what its files tell, restarts, torn tails, and a new key.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use atrest::{Settings, Source};
use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{LogBatch, LogStore, RegionWrite};
use steelyard_raftlog::{Options, RaftLog};
use support::segments;

const SECRET: &[u8] = b"a planted secret in an entry";

fn settings(dir: &Path) -> Settings {
    let path = dir.join("key");
    fs::write(&path, "0f".repeat(32)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    Settings { key: Source::File(path), old_key: None }
}

fn small() -> Options {
    Options { segment_bytes: 64 << 10, log_bytes: 128 << 10 }
}

fn open(dir: &Path) -> RaftLog {
    RaftLog::open(dir, &small()).unwrap()
}

fn batch(index: u64) -> LogBatch {
    let data = Bytes::from([SECRET, &index.to_be_bytes()].concat().repeat(20));
    let entries = vec![Entry { index, term: 1, data, ..Entry::default() }];
    let write = RegionWrite { region: 1, restart: None, entries, hard_state: None };
    LogBatch { number: 1, writes: vec![write], must_sync: true }
}

fn append(log: &RaftLog, index: u64, sync: bool) {
    log.append(&batch(index), sync).unwrap();
}

fn tells(paths: &[PathBuf]) -> bool {
    let has = |path: &PathBuf| fs::read(path).unwrap().windows(SECRET.len()).any(|part| part == SECRET);
    paths.iter().any(has)
}

fn check(log: &RaftLog, last: u64) {
    assert_eq!(log.bounds(1).unwrap().last, last);
    let first = log.bounds(1).unwrap().first;
    for entry in log.entries(1, first, last + 1, u64::MAX).unwrap() {
        assert_eq!(entry.data[..], [SECRET, &entry.index.to_be_bytes()].concat().repeat(20)[..]);
    }
}

/// Returns the offsets of the sectors that differ.
fn changed_sectors(before: &[u8], after: &[u8]) -> Vec<usize> {
    (0..after.len()).step_by(512).filter(|at| before[*at..at + 512] != after[*at..at + 512]).collect()
}

#[test]
fn an_encrypted_log_is_found_again_and_its_segments_tell_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let keys = settings(dir.path());
    let (store, log_dir) = (dir.path().join("store"), dir.path().join("store/log"));
    fs::create_dir(&store).unwrap();
    // A log from before encryption: its segments stay as they are, and get no more blocks.
    let log = open(&log_dir);
    (1..=20).for_each(|index| append(&log, index, true));
    drop(log);
    assert!(tells(&segments(&log_dir)), "the search finds what is there");
    let plain = segments(&log_dir);
    let before: Vec<Vec<u8>> = plain.iter().map(|path| fs::read(path).unwrap()).collect();
    let vault = atrest::open(&store, Some(&keys)).unwrap().unwrap();
    let log = open(&log_dir);
    check(&log, 20);
    (21..=200).for_each(|index| append(&log, index, true));
    check(&log, 200);
    drop(log);
    for (path, before) in plain.iter().zip(&before) {
        assert!(fs::read(path).is_ok_and(|after| after == *before), "{}", path.display());
    }
    let encrypted: Vec<PathBuf> =
        segments(&log_dir).into_iter().filter(|path| !plain.contains(path)).collect();
    assert!(!encrypted.is_empty() && !tells(&encrypted));
    // Old segments are deleted as soon as they are not needed, not overwritten.
    let log = open(&log_dir);
    check(&log, 200);
    log.truncate(1, 150, 1);
    append(&log, 201, true);
    log.recycle().unwrap();
    (202..=260).for_each(|index| append(&log, index, true));
    log.truncate(1, 255, 1);
    append(&log, 261, true);
    log.recycle().unwrap();
    assert!(!tells(&segments(&log_dir)), "no plain segment is left");
    assert_eq!(vault.rotate().unwrap(), 2);
    (262..=300).for_each(|index| append(&log, index, true));
    drop(log);
    check(&open(&log_dir), 300);
    assert!(vault.usage().unwrap().bytes_of_keys.contains_key(&2));
    // Without the keys the log is refused and unchanged.
    atrest::forget(&store);
    assert!(RaftLog::open(&log_dir, &Options::default()).is_err());
    atrest::open(&store, Some(&keys)).unwrap();
    check(&open(&log_dir), 300);
}

#[test]
fn a_torn_tail_of_an_encrypted_log_is_cut_off_and_synced_blocks_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let keys = settings(dir.path());
    atrest::open(dir.path(), Some(&keys)).unwrap();
    let log_dir = dir.path().join("log");
    let log = open(&log_dir);
    (1..=5).for_each(|index| append(&log, index, true));
    let segment = segments(&log_dir).remove(0);
    let before = fs::read(&segment).unwrap();
    append(&log, 6, false);
    let after = fs::read(&segment).unwrap();
    let changed = changed_sectors(&before, &after);
    assert!(changed.len() >= 2, "{changed:?}");
    for lost in changed {
        let copy = dir.path().join(format!("copy-{lost}"));
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(&log_dir).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        let torn = copy.join(segment.file_name().unwrap());
        let file = fs::File::options().write(true).open(&torn).unwrap();
        file.write_all_at(&before[lost..lost + 512], lost as u64).unwrap();
        check(&open(&copy), 5);
        // A sector of a block that was synced is damage, not a torn write.
        file.write_all_at(&[0xab; 512], 4096).unwrap();
        assert!(RaftLog::open(&copy, &small()).is_err());
    }
    check(&log, 6);
}

#[test]
fn a_segment_that_was_cut_off_in_the_padding_of_its_last_block_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let keys = settings(dir.path());
    atrest::open(dir.path(), Some(&keys)).unwrap();
    let log_dir = dir.path().join("log");
    let log = open(&log_dir);
    (1..=5).for_each(|index| append(&log, index, true));
    let segment = segments(&log_dir).remove(0);
    let before = fs::read(&segment).unwrap();
    append(&log, 6, true);
    drop(log);
    let after = fs::read(&segment).unwrap();
    let last = *changed_sectors(&before, &after).last().unwrap();
    fs::File::options().write(true).open(&segment).unwrap().set_len(last as u64 + 500).unwrap();
    let log = open(&log_dir);
    check(&log, 6);
    append(&log, 7, true);
    drop(log);
    check(&open(&log_dir), 7);
}

#[test]
fn a_write_that_must_not_wait_makes_no_segment() {
    let dir = tempfile::tempdir().unwrap();
    let vault = atrest::open(dir.path(), Some(&settings(dir.path()))).unwrap().unwrap();
    let log_dir = dir.path().join("log");
    let options = Options { segment_bytes: 256 << 10, log_bytes: 1 << 20 };
    let log = RaftLog::open(&log_dir, &options).unwrap();
    assert!(log.try_append(&batch(1), true).is_none(), "there is no segment yet");
    append(&log, 1, true);
    log.try_append(&batch(2), true).expect("there is room").unwrap();
    // The segments that are there must not be written to under a new key.
    log.prepare().unwrap();
    vault.rotate().unwrap();
    assert!(log.try_append(&batch(3), true).is_none());
    check(&log, 2);
    append(&log, 3, true);
    log.try_append(&batch(4), true).expect("there is room").unwrap();
    drop(log);
    check(&RaftLog::open(&log_dir, &options).unwrap(), 4);
}
