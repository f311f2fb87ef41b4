//! RocksDB on encrypted files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::{Options, DB};
use steelyard_atrest as atrest;
use steelyard_atrest::{Settings, Source, Vault};

fn key(dir: &Path, digit: char) -> Settings {
    let path = dir.join(format!("key-{digit}"));
    std::fs::write(&path, digit.to_string().repeat(64)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Settings { key: Source::File(path), old_key: None }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

fn tells(dir: &Path, secret: &[u8]) -> bool {
    let has = |path: &PathBuf| std::fs::read(path).unwrap().windows(secret.len()).any(|part| part == secret);
    files(dir).iter().any(has)
}

fn options(direct: bool) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_use_direct_reads(direct);
    options.set_use_direct_io_for_flush_and_compaction(direct);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    options
}

fn fill(db: &DB, numbers: std::ops::Range<u32>) {
    for number in numbers {
        db.put(format!("planted-key-{number:06}"), format!("planted-value-{number}").repeat(20)).unwrap();
    }
    db.flush().unwrap();
}

fn check(db: &DB, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let value = db.get(format!("planted-key-{number:06}")).unwrap().expect("a row");
        assert_eq!(value, format!("planted-value-{number}").repeat(20).into_bytes());
    }
}

fn round(direct: bool, is_encrypted: bool) {
    let dir = tempfile::tempdir().unwrap();
    let settings = key(dir.path(), 'a');
    let store = dir.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let vault: Option<Arc<Vault>> = atrest::open(&store, is_encrypted.then_some(&settings)).unwrap();
    assert_eq!(vault.is_some(), is_encrypted);
    let db = DB::open(&options(direct), store.join("rows")).unwrap();
    fill(&db, 0..3000);
    fill(&db, 2000..5000);
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    check(&db, 0..5000);
    // A file from outside, and one with a sequence number written into it.
    let path = store.join("given.sst");
    let options_of_file = options(direct);
    let mut writer = rocksdb::SstFileWriter::create(&options_of_file);
    writer.open(&path).unwrap();
    (4000..6000u32).for_each(|number| {
        let (key, value) = (format!("planted-key-{number:06}"), format!("planted-value-{number}").repeat(20));
        writer.put(key, value).unwrap();
    });
    writer.finish().unwrap();
    let snapshot = db.snapshot();
    db.ingest_external_file(vec![path]).unwrap();
    drop(snapshot);
    check(&db, 0..6000);
    fill(&db, 6000..6100);
    drop(db);
    let db = DB::open(&options(direct), store.join("rows")).unwrap();
    check(&db, 0..6100);
    drop(db);
    for secret in [&b"planted-key-0"[..], b"planted-value-7"] {
        assert_eq!(tells(&store, secret), !is_encrypted, "direct {direct}");
    }
    atrest::forget(&store);
    assert_eq!(DB::open(&options(direct), store.join("rows")).is_err(), is_encrypted);
    // Other keys open nothing.
    if is_encrypted {
        std::fs::remove_file(store.join(atrest::KEYS)).unwrap();
        let _other = atrest::open(&store, Some(&settings)).unwrap();
        let error = DB::open(&options(direct), store.join("rows")).expect_err("no database");
        assert!(error.to_string().contains("encryption prefix"), "{error}");
    }
}

#[test]
fn rows_are_written_read_and_ingested_and_no_file_tells_them() {
    round(false, true);
    round(true, true);
    // The same search finds the rows of a plain database, so it can fail.
    round(false, false);
}

#[test]
fn plain_files_stay_readable_and_a_rotation_rewrites_them() {
    let dir = tempfile::tempdir().unwrap();
    let settings = key(dir.path(), 'a');
    let store = dir.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let db = DB::open(&options(false), store.join("rows")).unwrap();
    fill(&db, 0..2000);
    drop(db);
    assert!(tells(&store, b"planted-value-1"));
    let vault = atrest::open(&store, Some(&settings)).unwrap().unwrap();
    let plain = vault.usage().unwrap().plain_bytes;
    let db = DB::open(&options(false), store.join("rows")).unwrap();
    check(&db, 0..2000);
    fill(&db, 1000..3000);
    let mixed = vault.usage().unwrap();
    assert!(plain > 0 && mixed.plain_bytes > 0 && mixed.bytes_of_keys[&1] > 0, "{mixed:?}");
    assert_eq!(vault.rotate().unwrap(), 2);
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    check(&db, 0..3000);
    drop(db);
    // The second start renames the first one's log of events, and the third drops it.
    for _ in 0..2 {
        drop(DB::open(&options(false), store.join("rows")).unwrap());
    }
    atrest::forget(&store);
    let vault = atrest::open(&store, Some(&settings)).unwrap().unwrap();
    assert_eq!(vault.keyring().numbers().collect::<Vec<_>>(), [1, 2]);
    let db = DB::open(&options(false), store.join("rows")).unwrap();
    check(&db, 0..3000);
    let tables = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sst");
    for table in files(&store).iter().filter(|path| tables(path)) {
        let head = std::fs::read(table).unwrap();
        assert_eq!(&head[..8], b"SYLYREST");
        assert_eq!(head[15], 2, "{}", table.display());
    }
}
