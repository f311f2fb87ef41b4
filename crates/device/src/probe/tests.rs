use super::*;

fn small() -> Options {
    Options {
        file_bytes: BLOCK,
        jobs: 2,
        time_max: Duration::from_secs(60),
        bytes_max: 4 * BLOCK,
        fio: false,
        ..Options::default()
    }
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn our_own_test_measures_within_its_bounds_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let measured = probe(dir.path(), &small()).unwrap();
    assert!(measured.write_bytes_per_s > 0.0 && measured.method != Method::Fio);
    assert!(measured.read_latency > Duration::ZERO);
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn no_more_is_written_than_allowed_and_only_inside_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let test = Test::open(&dir.path().join("file"), 3, 7).unwrap();
    let bounds = Bounds { time: Duration::from_secs(60), bytes: 5 * BLOCK + 12345 };
    let written = test.write(3, bounds).unwrap();
    assert!(written.bytes > 0 && written.bytes <= bounds.bytes, "{}", written.bytes);
    let sum: u64 = written.extents.iter().map(|(_, length)| length).sum();
    assert_eq!(sum, written.bytes);
    assert!(written.extents.iter().all(|(at, length)| at + length <= 3 * BLOCK && at % PAGE as u64 == 0));
    assert_eq!(fs::metadata(dir.path().join("file")).unwrap().len(), 3 * BLOCK);
}

/// With a time limit that has passed already, writes in flight finish and no others start.
#[test]
fn pieces_are_small_while_the_device_is_slow_for_the_time_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let test = Test::open(&dir.path().join("file"), 2, 7).unwrap();
    let all = |time| test.write(1, Bounds { time, bytes: 8 * BLOCK }).unwrap();
    assert!(all(Duration::ZERO).extents.is_empty());
    let lengths = |time| all(time).extents.iter().map(|(_, length)| length >> 20).collect::<Vec<_>>();
    // No write of 1 MiB takes less than a 32nd of this.
    assert!(lengths(Duration::from_micros(320)).iter().all(|mib| *mib == 1));
    assert_eq!(lengths(Duration::from_secs(3600))[..6], [1, 2, 4, 1, 8, 8]);
}

#[test]
fn nothing_within_the_bounds_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let error = probe(dir.path(), &Options { bytes_max: 1, ..small() }).unwrap_err();
    assert!(matches!(error, ProbeError::NothingWritten));
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn a_killed_process_has_its_file_removed_and_a_living_one_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let gone = child.id();
    child.wait().unwrap();
    let parent = std::os::unix::process::parent_id();
    for name in [format!("{FILE_PREFIX}{gone}"), format!("{FILE_PREFIX}{parent}"), "other".into()] {
        fs::write(dir.path().join(name), b"data").unwrap();
    }
    probe(dir.path(), &small()).unwrap();
    assert!(!dir.path().join(format!("{FILE_PREFIX}{gone}")).exists());
    assert_eq!(files(dir.path()), 2);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let error = probe(Path::new("/nonexistent/data"), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/data"));
}

#[test]
fn a_profile_states_what_a_probe_would_see() {
    let plain = Measured::stated(&Profile::named("plain-ssd").unwrap());
    assert_eq!(plain.write_bytes_per_s, 500e6);
    assert_eq!(plain.sync_latency, Duration::from_millis(1));
    // 80 us, plus 4 KiB at 550 MB/s.
    assert_eq!(plain.read_latency.as_micros(), 87);
    assert_eq!(plain.method, Method::Stated);
}
