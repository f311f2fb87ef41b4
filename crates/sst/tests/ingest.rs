//! Files that are ingested by RocksDB.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use rocksdb::{IngestExternalFileOptions, Options, DB};
use steelyard_sst::{Builder, Compression, Format, Writer};

const FORMAT: Format = Format {
    block_bytes: 4096,
    bloom_bits: 10.0,
    bytes_per_sync: 1 << 20,
    format_version: 5,
    compression: Compression::None,
    stays_in_page_cache: true,
    direct_writes: false,
};

fn open(dir: &Path) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    DB::open(&options, dir).unwrap()
}

fn ingest(db: &DB, path: &Path) {
    let mut options = IngestExternalFileOptions::default();
    options.set_move_files(true);
    db.ingest_external_file_opts(&options, vec![path]).unwrap();
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

#[test]
fn a_range_deletion_deletes_older_rows_and_spares_those_of_its_own_file() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir.path().join("db"));
        (0..100).for_each(|number| db.put(key(number), "old").unwrap());
        let path = dir.path().join("run.sst");
        let mut file = Writer::create(&path, &Format { compression, ..FORMAT }).unwrap();
        file.put(&key(15), b"new").unwrap();
        // A range may come after rows that it covers.
        file.delete_range(&key(10), &key(20)).unwrap();
        file.delete(&key(30)).unwrap();
        file.put(&key(40), b"").unwrap();
        file.finish().unwrap();
        ingest(&db, &path);
        for number in 0..100 {
            let expected = match number {
                15 => Some(&b"new"[..]),
                10..=19 | 30 => None,
                40 => Some(&b""[..]),
                _ => Some(&b"old"[..]),
            };
            assert_eq!(db.get(key(number)).unwrap().as_deref(), expected, "{number}, {compression:?}");
        }
    }
}

#[test]
fn bad_input_is_an_error_in_rocksdb_s_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.sst");
    let error = Writer::create(Path::new("/nonexistent/run.sst"), &FORMAT).unwrap_err();
    assert!(error.0.contains("No such file or directory"), "{error}");
    let empty = Writer::create(&path, &FORMAT).unwrap();
    assert!(empty.finish().unwrap_err().0.contains("no entries"));
    let mut file = Writer::create(&path, &FORMAT).unwrap();
    file.put(b"b", b"").unwrap();
    assert!(file.put(b"a", b"").unwrap_err().0.starts_with("Invalid argument"));
    assert!(file.put(b"b", b"").is_err(), "not even twice");
    file.delete_range(b"z", b"a").expect("an empty range deletes nothing");
    file.put(b"c", b"").expect("an error leaves the file usable");
    file.finish().unwrap();
}

/// Returns how many of the file's pages are in the page cache, and how many it has.
fn cached_pages(path: &Path) -> (usize, usize) {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let pages = length.div_ceil(4096);
    let mut present = vec![0u8; pages];
    // SAFETY: The mapping is private to this function and unmapped at its end; the vector has a
    // byte for each page.
    unsafe {
        let at =
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, length, present.as_mut_ptr()), 0);
        libc::munmap(at, length);
    }
    (present.iter().filter(|&&page| page & 1 == 1).count(), pages)
}

#[test]
fn the_pages_stay_in_the_page_cache() {
    // A temporary directory in RAM would keep them in any case.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("run.sst");
    let mut file = Writer::create(&path, &FORMAT).unwrap();
    (0..20_000).for_each(|number| file.put(&key(number), &[7; 500]).unwrap());
    assert!(file.file_size() > 9_000_000);
    file.finish().unwrap();
    let (cached, pages) = cached_pages(&path);
    assert!(cached >= pages / 10 * 9, "{cached} of {pages}");
}

#[test]
fn a_file_that_was_built_in_memory_is_ingested_like_one_that_was_written() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.sst");
        let value = |number: u32| vec![number as u8; 1000];
        let mut file = Builder::new(&Format { compression, ..FORMAT }).unwrap();
        let (mut bytes, mut pieces) = (Vec::new(), 0);
        for number in 0..5000 {
            file.put(&key(number), &value(number)).unwrap();
            if !file.built().is_empty() {
                assert!(file.built().len() <= 2 << 20, "the file does not gather in memory");
                bytes.extend_from_slice(file.built());
                file.drop_built();
                pieces += 1;
            }
        }
        assert!(file.put(&key(7), b"").is_err(), "rows ascend");
        file.finish().unwrap();
        bytes.extend_from_slice(file.built());
        assert_eq!(bytes.len() as u64, file.file_size());
        assert!(pieces > 2 || compression != Compression::None);
        assert!(file.put(&key(9999), b"").is_err(), "the file has ended");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is written");
        std::fs::write(&path, &bytes).unwrap();
        let db = open(&dir.path().join("db"));
        ingest(&db, &path);
        for number in 0..5000 {
            assert_eq!(db.get(key(number)).unwrap(), Some(value(number)));
        }
    }
    assert!(Builder::new(&FORMAT).unwrap().finish().is_err(), "a file has rows");
}
