//! Median microseconds of one write with its sync, by size: into files that grow, that were
//! reserved, and that were written before, and through the log. Usage: `append_bench [DIR]`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{LogBatch, RegionWrite};
use steelyard_raftlog::{Options, RaftLog};

const APPENDS: u64 = 400;
const SIZES: [usize; 5] = [512, 4 << 10, 20 << 10, 64 << 10, 300_000];

fn median(mut nanos: Vec<u128>) -> f64 {
    nanos.sort_unstable();
    nanos[nanos.len() / 2] as f64 / 1000.0
}

/// Returns the median over appends to a file that `prepare` has prepared for this many bytes.
fn into_file(path: &Path, bytes: usize, prepare: impl Fn(&File, u64), sync: impl Fn(&File)) -> f64 {
    let file = File::options().read(true).write(true).create_new(true).open(path).expect("a new file");
    prepare(&file, APPENDS * bytes as u64);
    file.sync_all().expect("synced");
    let value = vec![7; bytes];
    let append = |index: u64| {
        let begun = Instant::now();
        file.write_all_at(&value, index * bytes as u64).expect("written");
        sync(&file);
        begun.elapsed().as_nanos()
    };
    let nanos = (0..APPENDS).map(append).collect();
    std::fs::remove_file(path).expect("it goes");
    median(nanos)
}

fn fill(file: &File, bytes: u64) {
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < bytes {
        let part = (bytes - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..part as usize], at).expect("room");
        at += part;
    }
}

fn into_log(dir: &Path, bytes: usize) -> f64 {
    let log = RaftLog::open(dir, &Options::of_size(64 << 20)).expect("a new log");
    let value = Bytes::from(vec![7; bytes]);
    let mut nanos = Vec::new();
    // Enough appends to write every segment at least once.
    let warm = (160 << 20) / (bytes as u64 + 512);
    for index in 1..=warm + APPENDS {
        let entry = Entry { index, term: 1, data: value.clone(), ..Entry::default() };
        let write = RegionWrite { region: 1, restart: None, entries: vec![entry], hard_state: None };
        let is_measured = index > warm;
        let batch = LogBatch { number: index, writes: vec![write], must_sync: true };
        let appended = log.append(&batch, is_measured || index % 64 == 0).expect("room");
        if is_measured {
            nanos.push(appended.total.as_nanos());
        }
        if index % 256 == 0 {
            log.truncate(1, index, 1);
            log.recycle().expect("recycled");
        }
    }
    median(nanos)
}

fn main() {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(parent).expect("a directory");
    println!("bytes    grows, fsync   grows, fdatasync   reserved   written before   the log");
    for bytes in SIZES {
        let path = dir.path().join("file");
        let data = |file: &File| file.sync_data().expect("synced");
        let all = |file: &File| file.sync_all().expect("synced");
        let reserve = |file: &File, bytes| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes).expect("room");
        };
        let grows_all = into_file(&path, bytes, |_, _| {}, all);
        let grows = into_file(&path, bytes, |_, _| {}, data);
        let reserved = into_file(&path, bytes, reserve, data);
        let written = into_file(&path, bytes, fill, data);
        let log = into_log(&dir.path().join(format!("log-{bytes}")), bytes);
        println!(
            "{bytes:>6}   {grows_all:>10.0}   {grows:>16.0}   {reserved:>8.0}   {written:>14.0}   {log:>7.0}"
        );
    }
}
