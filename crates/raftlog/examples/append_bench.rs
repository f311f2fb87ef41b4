//! Microseconds and bytes of one append and sync, by the number of regions in it:
//! `append_bench [DIR] [PAYLOAD_BYTES]`.

use std::path::PathBuf;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{LogBatch, RegionWrite};
use steelyard_raftlog::{Options, RaftLog};

const APPENDS: u64 = 500;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let payload_bytes: usize = arguments.next().map_or(128, |text| text.parse().expect("a number of bytes"));
    let dir = tempfile::tempdir_in(parent).expect("a directory for the log");
    for regions in [1, 16, 1000] {
        let path = dir.path().join(regions.to_string());
        let log = RaftLog::open(&path, &Options::default()).expect("a new log");
        let (mut total, mut sync, mut bytes) = (0, 0, 0);
        for index in 1..=APPENDS {
            let entry = |_| Entry {
                index,
                term: 1,
                data: Bytes::from(vec![b'v'; payload_bytes]),
                ..Entry::default()
            };
            let writes = (0..regions)
                .map(|region| RegionWrite {
                    region,
                    restart: None,
                    entries: vec![entry(region)],
                    hard_state: None,
                })
                .collect();
            let appended =
                log.append(&LogBatch { number: index, writes, must_sync: true }, true).expect("room");
            total += appended.total.as_micros();
            sync += appended.sync.as_micros();
            bytes += appended.bytes as u128;
        }
        let per = |sum: u128| sum as f64 / APPENDS as f64;
        println!(
            "{regions} regions of {payload_bytes} bytes: {:.0} us ({:.0} us of it the sync), {:.0} bytes",
            per(total),
            per(sync),
            per(bytes)
        );
    }
}
