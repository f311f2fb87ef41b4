//! Behaviour on a full device: flushes fail with `NoSpace`, nothing is lost, and writing resumes
//! once there is free space. The test uses a small RAM file system and is skipped if none can be
//! mounted.
//!
//! RocksDB may also abort the process: if the library is built with assertions, as Debian's is, one
//! of them (in `WritableFileWriter`) sometimes fails after a write that found no space. So a
//! separate process fills the device. If it aborts, the test checks that a prefix of the written
//! rows is left.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use steelyard_rocks::{Keyspace, Options};
use storage::{StorageError, WriteSet};
use types::Draw;

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

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDevice {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

fn set(row: u32) -> WriteSet {
    // The value is not compressible.
    let mut draw = Draw::new(row.into());
    let value: Vec<u8> = (0..4096).map(|_| draw.number() as u8).collect();
    let key = Bytes::copy_from_slice(&row.to_be_bytes());
    WriteSet { ranges_deleted: vec![], rows: vec![(key, Some(value.into()))] }
}

/// Environment variable that names the device to the process that fills it.
const FILLED: &str = "STEELYARD_FILLED_DEVICE";

fn options() -> Options {
    Options::default().scaled(1.0 / 128.0)
}

fn rows(device: &Path) -> Keyspace {
    Keyspace::open(&device.join("rows"), &options()).unwrap()
}

#[test]
fn writing_stops_at_a_full_device_and_resumes_without_loss() {
    if let Some(device) = std::env::var_os(FILLED) {
        return fill(Path::new(&device));
    }
    let Some(device) = SmallDevice::mount("24m") else { return };
    std::fs::write(device.path().join("ballast"), vec![0; 12 << 20]).unwrap();
    let mut filler = Command::new(std::env::current_exe().unwrap());
    filler.args(["--exact", "writing_stops_at_a_full_device_and_resumes_without_loss", "--nocapture"]);
    let ended = filler.env(FILLED, device.path()).output().unwrap();
    let words = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        return;
    }
    let asserted = ended.status.signal() == Some(6) && words.contains("WritableFileWriter");
    assert!(asserted, "{}: {words}", ended.status);
    let _ = std::fs::remove_file(device.path().join("ballast"));
    let db = rows(device.path());
    let has = |row: u32| db.get(&row.to_be_bytes()).unwrap();
    let left = (0..).find(|row| has(*row).is_none()).unwrap();
    (0..left).for_each(|row| assert_eq!(has(row), set(row).rows[0].1, "row {row}"));
    (left..left + 10_000).for_each(|row| assert!(has(row).is_none(), "row {row} without row {left}"));
    db.write(set(left));
    db.flush().unwrap();
}

fn fill(device: &Path) {
    let db = rows(device);
    let mut written = 0;
    // A compaction that fails for want of space deletes its unfinished tables, so a flush may be
    // refused once and then find room. The device is full when two in a row are refused.
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 2 {
        assert!(written < 100_000, "24 MiB need no more writes");
        if refused_in_a_row == 0 {
            db.write(set(written));
            written += 1;
        }
        if refused_in_a_row > 0 || db.is_flush_due() {
            match db.flush() {
                Ok(()) => refused_in_a_row = 0,
                Err(StorageError::NoSpace(_)) => refused_in_a_row += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    // Rows are still accepted until the memtables are full.
    while db.has_room() {
        db.write(set(written));
        written += 1;
    }
    assert!(!db.wait_for_room(Duration::from_millis(10)));
    for row in [0, written / 2, written - 1] {
        assert!(db.get(&row.to_be_bytes()).unwrap().is_some(), "reads are served, row {row}");
    }
    std::fs::remove_file(device.join("ballast")).unwrap();
    let begun = Instant::now();
    while let Err(error) = db.flush() {
        assert!(matches!(error, StorageError::NoSpace(_)), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "no resumption: {error:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(db.wait_for_room(Duration::ZERO));
    db.write(set(written));
    db.flush().unwrap();
    eprintln!("resumed after {:?}, {written} rows", begun.elapsed());
    drop(db);
    let db = rows(device);
    for row in 0..=written {
        assert_eq!(db.get(&row.to_be_bytes()).unwrap(), set(row).rows[0].1, "row {row}");
    }
}
