//! Measures the nanoseconds of a point read with and without rows in RAM: `get_bench [ROWS]
//! [VALUE_BYTES]`.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use steelyard_rocks::{Keyspace, Options};
use storage::WriteSet;
use types::Draw;

const GETS: u64 = 1_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let rows = arguments.next().unwrap_or(20_000);
    let value_bytes = arguments.next().unwrap_or(1024) as usize;
    let dir = tempfile::tempdir().expect("a directory for the rows");
    for (name, row_cache_bytes) in [("row cache", 1 << 30), ("no row cache", 0)] {
        let options = Options { row_cache_bytes, ..Options::default() };
        let db = Keyspace::open(&dir.path().join(name), &options).expect("a new keyspace");
        let value = Bytes::from(vec![b'v'; value_bytes]);
        for row in 0..rows {
            let rows = vec![(Bytes::copy_from_slice(&row.to_be_bytes()), Some(value.clone()))];
            db.write(WriteSet { ranges_deleted: vec![], rows });
        }
        db.flush().expect("room");
        let mut draw = Draw::new(1);
        let mut round = |gets: u64| {
            let begun = Instant::now();
            for _ in 0..gets {
                let row = draw.below(rows);
                black_box(db.get(&row.to_be_bytes()).expect("a sound keyspace"));
            }
            begun.elapsed().as_nanos() as f64 / gets as f64
        };
        round(rows * 5);
        println!("{name}: {:.0} ns/get over {rows} rows of {value_bytes} bytes", round(GETS));
    }
}
