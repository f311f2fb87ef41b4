//! The log over real files: the data that it persists, the losses that a crash may cause, and the
//! damage that it refuses or reports.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, LogBounds, LogStore, RegionWrite, Restart, RestartCause};
use steelyard_raftlog::{LogError, Options, PeerLifecycle, RaftLog};
use support::{crash_copy, segments};
use types::{LogIndex, RegionDescriptor, RegionId, Term};
use wal::layout::{HEADER_LEN, HEAD_LEN};
use wal::Record;

fn founded(region: RegionId) -> RegionDescriptor {
    RegionDescriptor::founded(region, None, &[0, 1, 2])
}

fn small() -> Options {
    Options { segment_bytes: 64 << 10, log_bytes: 128 << 10 }
}

fn open(dir: &Path) -> RaftLog {
    RaftLog::open(dir, &small()).unwrap()
}

fn entries(term: Term, indexes: std::ops::RangeInclusive<LogIndex>, payload: &[u8]) -> Vec<Entry> {
    indexes
        .map(|index| Entry { index, term, data: Bytes::copy_from_slice(payload), ..Entry::default() })
        .collect()
}

fn write(region: RegionId, entries: Vec<Entry>) -> RegionWrite {
    RegionWrite { region, restart: None, entries, hard_state: None }
}

fn batch(writes: Vec<RegionWrite>) -> LogBatch {
    LogBatch { number: 1, writes, must_sync: true }
}

fn append(log: &RaftLog, region: RegionId, entries: Vec<Entry>) {
    log.append(&batch(vec![write(region, entries)]), true).unwrap();
}

fn refusal(dir: &Path) -> LogError {
    match RaftLog::open(dir, &small()) {
        Err(error) => error,
        Ok(_) => panic!("opened"),
    }
}

#[test]
fn everything_synced_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let state = HardState { term: 3, vote: Some(0), commit: 2 };
    let writes = vec![
        RegionWrite {
            region: 0,
            restart: None,
            entries: entries(1, 1..=3, b"meta"),
            hard_state: Some(state),
        },
        RegionWrite { region: 7, restart: None, entries: entries(2, 1..=1, b""), hard_state: None },
    ];
    log.append(&batch(writes), true).unwrap();
    let exists = PeerLifecycle::Exists { descriptor: founded(7), parent: None };
    log.set_peers(&[(0, exists.clone()), (7, exists.clone())]).unwrap();
    log.set_store_value(b"store id", b"2").unwrap();
    let copy = crash_copy(dir.path());
    drop(log);
    for dir in [dir.path(), copy.path()] {
        let log = open(dir);
        assert_eq!(log.regions(), [0, 7]);
        assert_eq!(log.hard_state(0).unwrap(), Some(state));
        assert_eq!(log.hard_state(7).unwrap(), None);
        assert_eq!(log.bounds(0).unwrap(), LogBounds { first: 1, last: 3 });
        assert_eq!(log.bounds(9).unwrap(), LogBounds { first: 1, last: 0 });
        assert_eq!(log.entries(0, 1, 4, u64::MAX).unwrap(), entries(1, 1..=3, b"meta"));
        assert_eq!((log.term(0, 0).unwrap(), log.term(0, 2).unwrap(), log.term(7, 1).unwrap()), (0, 1, 2));
        assert_eq!(log.peers(), [(0, exists.clone()), (7, exists.clone())]);
        assert_eq!(log.store_value(b"store id").unwrap(), "2");
        assert_eq!(log.sequence(), 3);
    }
}

#[test]
fn entries_replace_whatever_followed_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 1, entries(1, 1..=10, b"old"));
    append(&log, 1, entries(2, 4..=5, b"new"));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.bounds(1).unwrap(), LogBounds { first: 1, last: 5 });
    assert_eq!((log.term(1, 3).unwrap(), log.term(1, 4).unwrap()), (1, 2));
    assert!(log.term(1, 6).is_err() && log.entries(1, 5, 7, u64::MAX).is_err());
}

#[test]
fn a_read_is_bounded_but_gives_at_least_one_entry() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 1, entries(1, 1..=10, &[b'x'; 1000]));
    let read = |low, max| log.entries(1, low, 11, max).unwrap().iter().map(|e| e.index).collect::<Vec<_>>();
    assert_eq!(read(4, 0), [4]);
    assert_eq!(read(4, 1500), [4]);
    assert_eq!(read(4, 3100), [4, 5, 6]);
    assert_eq!(read(9, u64::MAX), [9, 10]);
}

#[test]
fn a_truncated_log_keeps_the_term_of_its_last_truncated_entry() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 1, entries(1, 1..=5, b""));
    append(&log, 1, entries(4, 6..=9, b""));
    log.truncate(1, 6, 4);
    log.truncate(1, 3, 1);
    append(&log, 1, entries(5, 10..=10, b""));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.bounds(1).unwrap(), LogBounds { first: 7, last: 10 });
    assert_eq!(log.term(1, 6).unwrap(), 4);
    assert!(log.term(1, 5).is_err() && log.entries(1, 6, 8, u64::MAX).is_err());
    log.truncate(1, 10, 5);
    assert_eq!(log.bounds(1).unwrap(), LogBounds { first: 11, last: 10 });
    // The next batch records the truncation on disk.
    append(&log, 2, entries(5, 1..=1, b""));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.bounds(1).unwrap(), LogBounds { first: 11, last: 10 });
    append(&log, 1, entries(5, 11..=11, b""));
    assert_eq!(log.bounds(1).unwrap(), LogBounds { first: 11, last: 11 });
}

#[test]
fn a_hole_is_refused_and_the_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 1, entries(1, 1..=3, b""));
    log.truncate(1, 2, 1);
    for bad in [entries(1, 5..=6, b""), entries(1, 2..=4, b"")] {
        let refused = log.append(&batch(vec![write(1, bad)]), true);
        assert!(matches!(refused, Err(LogError::Range { region: 1, first: 3, last: 3, .. })), "{refused:?}");
    }
    append(&log, 1, entries(1, 4..=4, b""));
}

#[test]
fn a_batch_larger_than_segments_is_many_blocks_and_may_be_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.found(&[founded(1), founded(2)]).unwrap();
    let before = log.sequence();
    let state = HardState { term: 7, vote: Some(1), commit: 40 };
    let of = |region| RegionWrite {
        region,
        restart: None,
        entries: entries(7, 6..=45, &[region as u8; 10_000]),
        hard_state: Some(state),
    };
    let large = batch(vec![of(1), of(2)]);
    let written = log.append(&large, true).unwrap();
    assert!(written.bytes > 800_000, "{written:?}");
    assert!(log.sequence() >= before + 12, "{} blocks", log.sequence() - before);
    // The batch is repeated, as after a full device that may have taken the first blocks.
    log.append(&large, true).unwrap();
    drop(log);
    let log = open(dir.path());
    for region in [1, 2] {
        assert_eq!(log.bounds(region).unwrap(), LogBounds { first: 6, last: 45 });
        assert_eq!(log.entries(region, 6, 46, u64::MAX).unwrap(), of(region).entries);
        assert_eq!(log.hard_state(region).unwrap(), Some(state));
    }
}

/// Writes 2.2 GiB, of which the test itself holds 64 MiB.
#[test]
#[ignore = "writes gigabytes; make test-large runs it"]
fn more_than_two_gibibytes_that_waited_for_room_are_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), &Options::default()).unwrap();
    log.found(&[founded(1)]).unwrap();
    let payload = Bytes::from(vec![7; 64 << 20]);
    let entry = |index| Entry { index, term: 5, data: payload.clone(), ..Entry::default() };
    let large = batch(vec![write(1, (6..6 + 36).map(entry).collect())]);
    let written = log.append(&large, true).unwrap();
    assert!(written.bytes > 2 << 30, "{written:?}");
    drop(log);
    let log = RaftLog::open(dir.path(), &Options::default()).unwrap();
    assert_eq!(log.bounds(1).unwrap(), LogBounds { first: 6, last: 41 });
    assert_eq!(log.entries(1, 41, 42, u64::MAX).unwrap()[0].data, payload);
}

/// Prints how fast a start reads a log. No other process may run on the machine.
#[test]
#[ignore = "gigabytes: make test-large"]
fn more_than_two_gibibytes_of_log_are_read_at_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::of_size(8 << 30);
    for entry_bytes in [100usize, 1 << 10, 64 << 10] {
        let dir = dir.path().join(entry_bytes.to_string());
        let log = RaftLog::open(&dir, &options).unwrap();
        log.found(&[founded(1), founded(2)]).unwrap();
        let payload = Bytes::from(vec![7; entry_bytes]);
        let entry = |index| Entry { index, term: 5, data: payload.clone(), ..Entry::default() };
        let count = (512 << 10) / entry_bytes as u64;
        let (mut first, mut bytes) = (6, 0);
        while bytes <= 2 << 30 {
            let entries: Vec<Entry> = (first..first + count).map(entry).collect();
            let written =
                log.append(&batch(vec![write(1, entries.clone()), write(2, entries)]), false).unwrap();
            bytes += written.bytes as u64;
            first += count;
        }
        log.sync().unwrap();
        drop(log);
        // The data is written out, so that the log can be dropped from the page cache if that is
        // permitted.
        rustix::fs::sync();
        let is_cold = fs::write("/proc/sys/vm/drop_caches", "3").is_ok();
        for cold in [is_cold, false] {
            let began = std::time::Instant::now();
            let log = RaftLog::open(&dir, &options).unwrap();
            let seconds = began.elapsed().as_secs_f64();
            assert_eq!(log.bounds(2).unwrap(), LogBounds { first: 6, last: first - 1 });
            let mib = bytes >> 20;
            let from = if cold { "the device" } else { "the page cache" };
            println!(
                "{mib} MiB of entries of {entry_bytes} bytes, read from {from}: {seconds:.2} s, {:.0} MiB/s",
                mib as f64 / seconds
            );
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_destroyed_peer_leaves_a_tombstone_and_may_live_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.set_peers(&[(1, PeerLifecycle::Exists { descriptor: founded(1), parent: None })]).unwrap();
    append(&log, 1, entries(1, 1..=3, b""));
    log.destroy(1, 3).unwrap();
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.peers(), [(1, PeerLifecycle::Tombstone { peer: 3 })]);
    assert_eq!(log.bounds(1).unwrap(), LogBounds { first: 1, last: 0 });
    assert_eq!(log.hard_state(1).unwrap(), None);
    append(&log, 1, entries(9, 1..=1, b""));
    drop(log);
    assert_eq!(open(dir.path()).term(1, 1).unwrap(), 9);
}

#[test]
fn a_tail_torn_at_any_byte_falls_back_to_the_batch_before_when_it_was_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 1, entries(1, 1..=3, b"kept"));
    let file = segments(dir.path()).pop().unwrap();
    let before = end_of_blocks(&file);
    log.append(
        &batch(vec![write(1, entries(1, 4..=6, b"torn")), write(2, entries(1, 1..=1, b"torn"))]),
        false,
    )
    .unwrap();
    let after = end_of_data(&file);
    assert!(after > before);
    let copy = crash_copy(dir.path());
    let path = copy.path().join(file.file_name().unwrap());
    let whole = fs::read(&path).unwrap();
    for cut in before..after {
        fs::write(&path, &whole[..cut]).unwrap();
        let log = open(copy.path());
        let last = log.bounds(1).unwrap().last;
        assert_eq!(log.entries(1, 1, 4, u64::MAX).unwrap(), entries(1, 1..=3, b"kept"), "cut at {cut}");
        // The batch is atomic: all of it or nothing.
        assert_eq!((last, log.bounds(2).unwrap().last), (3, 0), "cut at {cut}");
    }
    fs::write(&path, &whole[..after]).unwrap();
    assert_eq!(open(copy.path()).bounds(1).unwrap().last, 6);
}

#[test]
fn a_synced_tail_that_is_cut_or_damaged_anywhere_is_noticed_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 1, entries(1, 1..=3, b"one"));
    let file = segments(dir.path()).pop().unwrap();
    let before = end_of_blocks(&file);
    append(&log, 1, entries(1, 4..=6, b"two"));
    let after = end_of_data(&file);
    let copy = crash_copy(dir.path());
    let path = copy.path().join(file.file_name().unwrap());
    let whole = fs::read(&path).unwrap();
    let lost = LogError::LostTail { synced: 2, found: 1 };
    // The block is one section of entries.
    let content = before + HEADER_LEN + HEAD_LEN;
    for at in before..after {
        for damage in [true, false] {
            let mut bytes = whole.clone();
            if damage {
                bytes[at] ^= 0x10;
            } else {
                bytes.truncate(at);
            }
            fs::write(&path, &bytes).unwrap();
            if damage && at >= content {
                let log = RaftLog::open(copy.path(), &small()).unwrap();
                let losses = log.losses();
                assert_eq!(losses.keys().collect::<Vec<_>>(), [&1], "byte {at}");
                assert_eq!((losses[&1].whole_through(), &losses[&1].after), (3, &None));
                continue;
            }
            assert_eq!(refusal(copy.path()), lost, "byte {at}");
            assert!(fs::read(&path).unwrap() == bytes, "refusing changed the file, byte {at}");
        }
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(open(copy.path()).bounds(1).unwrap().last, 6);
}

#[test]
fn damage_in_the_middle_and_missing_files_are_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    for index in 1..=40 {
        append(&log, 1, entries(1, index..=index, &[b'x'; 8 << 10]));
    }
    drop(log);
    let files = segments(dir.path());
    assert!(files.len() >= 4, "{files:?}");
    let copy = crash_copy(dir.path());
    let middle = copy.path().join(files[1].file_name().unwrap());
    let whole = fs::read(&middle).unwrap();
    // Offsets in the header of the segment's first block, and in the head of its section.
    for byte in [20, HEADER_LEN + 9] {
        let mut bytes = whole.clone();
        bytes[byte] ^= 1;
        fs::write(&middle, &bytes).unwrap();
        assert!(matches!(refusal(copy.path()), LogError::Corrupt(_)), "{:?}", refusal(copy.path()));
    }
    fs::remove_file(&middle).unwrap();
    assert!(matches!(refusal(copy.path()), LogError::Corrupt(_)));
    fs::write(&middle, &whole).unwrap();
    fs::remove_file(copy.path().join(files[0].file_name().unwrap())).unwrap();
    assert!(
        matches!(refusal(copy.path()), LogError::Corrupt(_)),
        "the oldest file holds what was not truncated"
    );
    let newest = crash_copy(dir.path());
    fs::remove_file(newest.path().join(files.last().unwrap().file_name().unwrap())).unwrap();
    assert!(matches!(refusal(newest.path()), LogError::LostTail { synced: 40, .. }));
}

#[test]
fn damage_in_a_payload_concerns_its_region_and_is_repaired_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    for index in 1..=40 {
        append(&log, 1, entries(1, index..=index, &[b'x'; 8 << 10]));
        append(&log, 2, entries(1, index..=index, b"y"));
    }
    drop(log);
    let copy = crash_copy(dir.path());
    let middle = copy.path().join(segments(dir.path())[1].file_name().unwrap());
    let mut bytes = fs::read(&middle).unwrap();
    bytes[4 << 10] ^= 1;
    fs::write(&middle, &bytes).unwrap();
    let log = RaftLog::open(copy.path(), &small()).unwrap();
    let losses = log.losses();
    assert_eq!(losses.keys().collect::<Vec<_>>(), [&1]);
    let through = losses[&1].whole_through();
    let after = losses[&1].after.as_ref().unwrap();
    assert_eq!(
        (after.first().map(|span| span.first), after.last().map(|span| span.last)),
        (Some(through + 2), Some(40))
    );
    assert_eq!(log.bounds(2).unwrap().last, 40);
    let hard_state = HardState { term: 1, vote: None, commit: through };
    log.repair(vec![(1, vec![Record::Cut(through), Record::HardState(hard_state)])]).unwrap();
    append(&log, 1, entries(2, through + 1..=through + 1, b"z"));
    drop(log);
    let log = RaftLog::open(copy.path(), &small()).unwrap();
    assert_eq!(log.losses(), BTreeMap::new());
    let read = log.entries(1, 1, through + 2, u64::MAX).unwrap();
    assert_eq!((read.len() as u64, read.last().map(|entry| entry.term)), (through + 1, Some(2)));
    assert_eq!(log.bounds(2).unwrap().last, 40);
}

#[test]
fn an_entry_that_is_damaged_while_the_log_is_open_is_named_and_the_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 1, entries(1, 1..=1, b"one"));
    append(&log, 1, entries(1, 2..=2, b"two"));
    let file = segments(dir.path()).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let at = bytes.windows(3).position(|window| window == b"two").unwrap();
    let mut damaged = bytes.clone();
    damaged[at] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let error = log.entries(1, 1, 3, u64::MAX).unwrap_err();
    assert_eq!((error.region, error.damaged), (1, Some((2, 2))), "{error}");
    append(&log, 1, entries(1, 3..=3, b"three"));
    assert_eq!(log.entries(1, 3, 4, u64::MAX).unwrap().len(), 1);
}

#[test]
fn a_log_without_one_of_its_small_files_is_refused_every_time() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path()), 1, entries(1, 1..=3, b""));
    for name in ["SYNCED", "FIRST", "LOG"] {
        let copy = crash_copy(dir.path());
        fs::remove_file(copy.path().join(name)).unwrap();
        for _ in 0..2 {
            assert!(matches!(refusal(copy.path()), LogError::Corrupt(_)), "{name}");
        }
        fs::write(copy.path().join(name), vec![0; 600]).unwrap();
        assert!(matches!(refusal(copy.path()), LogError::Corrupt(_)), "{name}");
    }
}

#[test]
fn files_that_no_log_has_made_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let huge = dir.path().join("00000009.segment");
    // The file is sparse and far larger than memory: a start must not read it.
    fs::File::create(&huge).unwrap().set_len(1 << 42).unwrap();
    for name in ["00000009.segment", "4294967295.segment", "9.segment"] {
        let strange = dir.path().join(name);
        if strange != huge {
            fs::write(&strange, []).unwrap();
        }
        let LogError::Corrupt(why) = refusal(dir.path()) else { panic!("not refused as it should be") };
        assert!(why.contains(name), "{why}");
        fs::remove_file(&strange).unwrap();
    }
    drop(open(dir.path()));
}

#[test]
fn a_log_of_the_engine_before_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0000000000000001.raftlog"), b"").unwrap();
    let LogError::Corrupt(why) = refusal(dir.path()) else { panic!("not refused as it should be") };
    assert!(why.ends_with("is of an older version of Steelyard"), "{why}");
}

#[test]
fn recycling_lets_go_of_what_was_truncated_and_keeps_what_was_not() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, 2, entries(1, 1..=1, b"still needed"));
    for index in 1..=200 {
        append(&log, 1, entries(1, index..=index, &[b'x'; 8 << 10]));
    }
    let full = log.used_bytes();
    log.truncate(1, 195, 1);
    let mut pinning = Vec::new();
    for _ in 0..3 {
        pinning = log.recycle().unwrap();
    }
    assert!(log.used_bytes() < full / 2, "{} of {full}, pinned by {pinning:?}", log.used_bytes());
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.entries(1, 196, 201, u64::MAX).unwrap().len(), 5);
    assert_eq!(log.entries(2, 1, 2, u64::MAX).unwrap(), entries(1, 1..=1, b"still needed"));
    assert_eq!(log.term(1, 195).unwrap(), 1);
}

#[test]
fn reads_are_right_while_files_are_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let payload = |region: RegionId, index: LogIndex| [region as u8, index as u8].repeat(512);
    append(&log, 2, entries(1, 1..=1, &payload(2, 1)));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Set even if an assertion here fails. Otherwise the reader would keep the scope open
        // forever.
        let stop = SetOnDrop(&done);
        let reader = log.clone();
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(reader.entries(2, 1, 2, u64::MAX).unwrap()[0].data, payload(2, 1));
            }
        });
        for index in 1..=600 {
            append(&log, 1, entries(1, index..=index, &payload(1, index)));
            log.truncate(1, index, 1);
            if index % 50 == 0 {
                log.recycle().unwrap();
            }
        }
        drop(stop);
    });
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_second_opener_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    assert!(RaftLog::open(dir.path(), &small()).is_err());
    drop(log);
    open(dir.path());
}

/// Returns the end of the written data. Unwritten parts of a segment are zeros, and no payload here
/// ends in a zero.
fn end_of_data(file: &Path) -> usize {
    let bytes = fs::read(file).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

/// Returns the offset at which the next block begins.
fn end_of_blocks(file: &Path) -> usize {
    end_of_data(file).next_multiple_of(512)
}

#[test]
fn founded_regions_begin_after_what_no_log_holds() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.found(&[founded(0), founded(4)]).unwrap();
    append(&log, 4, entries(6, 6..=7, b"x"));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.bounds(0).unwrap(), LogBounds { first: 6, last: 5 });
    assert_eq!((log.bounds(4).unwrap(), log.term(4, 5).unwrap()), (LogBounds { first: 6, last: 7 }, 5));
    assert_eq!(log.hard_state(0).unwrap(), Some(HardState { term: 5, vote: None, commit: 5 }));
    assert_eq!(log.peers().len(), 2);
}

/// A restart by a snapshot: one write drops the old entries and may add new ones, in whichever
/// files the old ones are.
#[test]
fn a_log_that_begins_anew_keeps_nothing_of_the_old_one_over_restarts_and_recycling() {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), &small()).unwrap();
    log.found(&[founded(1), founded(2)]).unwrap();
    for index in (6..200).step_by(10) {
        append(&log, 1, entries(6, index..=index + 9, &[7; 2000]));
        append(&log, 2, entries(6, index..=index + 9, &[8; 2000]));
        log.recycle().unwrap();
    }
    let restart = |index, cause| Restart { index, term: 9, descriptor: founded(1), cause };
    let state = HardState { term: 9, vote: Some(2), commit: 50 };
    // The index lies before, within and after the range of the old log.
    for (number, index) in [(50, 50), (51, 300), (52, 260)] {
        let write = RegionWrite {
            region: 1,
            restart: Some(restart(index, RestartCause::Snapshot)),
            entries: entries(9, index + 1..=index + 3, b"new"),
            hard_state: Some(state),
        };
        log.append(&LogBatch { number, writes: vec![write], must_sync: true }, true).unwrap();
        log.recycle().unwrap();
        let copy = crash_copy(dir.path());
        for log in [&log, &RaftLog::open(copy.path(), &small()).unwrap()] {
            assert_eq!(log.bounds(1).unwrap(), LogBounds { first: index + 1, last: index + 3 });
            assert_eq!((log.term(1, index).unwrap(), log.hard_state(1).unwrap()), (9, Some(state)));
            assert_eq!(
                log.entries(1, index + 1, index + 4, u64::MAX).unwrap(),
                entries(9, index + 1..=index + 3, b"new")
            );
            let life = PeerLifecycle::Applying { descriptor: founded(1), index, term: 9 };
            assert_eq!(log.peers()[0], (1, life));
            assert_eq!(log.bounds(2).unwrap(), LogBounds { first: 6, last: 205 });
        }
        append(&log, 1, entries(9, index + 4..=index + 4, &[9; 100_000]));
        log.recycle().unwrap();
    }
}
