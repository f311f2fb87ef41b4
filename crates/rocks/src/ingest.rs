//! SST files of sorted rows, and their ingest.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use rocksdb::{IngestExternalFileOptions, DB};
use storage::Result;

use crate::error::{classify, classify_sst};

/// Bytes of rows after which the writer of a file may pause.
const SLICE_BYTES: u64 = 1 << 20;

/// Writes ascending rows into a file. A row without a value is a deletion. `after_slice` is called
/// after about each MiB, with the number of bytes since the last call.
pub(crate) fn write_rows<'a>(
    file: &mut sst::Writer,
    rows: impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
    mut after_slice: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut slice_bytes = 0;
    for (row, value) in rows {
        match value {
            Some(value) => file.put(row, value),
            None => file.delete(row),
        }
        .map_err(classify_sst)?;
        slice_bytes += (row.len() + value.as_ref().map_or(0, Bytes::len)) as u64;
        if slice_bytes >= SLICE_BYTES {
            after_slice(std::mem::take(&mut slice_bytes))?;
        }
    }
    Ok(())
}

/// Makes the rows of the files part of the database, in one atomic step. With `links`, the database
/// links the files, so that the rows are not written twice; otherwise it copies them.
///
/// The rows never have RocksDB's sequence number 0. While a snapshot of that number existed, a
/// compaction would drop all rows of that number (RocksDB before 9.10, pull request 13155).
pub(crate) fn ingest(db: &DB, files: Vec<PathBuf>, links: bool) -> Result<()> {
    let mut options = IngestExternalFileOptions::default();
    options.set_move_files(links);
    // While a snapshot exists, files get a sequence number of their own, even in an empty database.
    let _snapshot = db.snapshot();
    db.ingest_external_file_opts(&options, files).map_err(classify)
}

/// Returns true if files in the directory can be linked. RocksDB falls back to a copy for some
/// errors of a link only.
pub(crate) fn has_hard_links(dir: &Path) -> std::io::Result<bool> {
    let (file, link) = (dir.join("file"), dir.join("link"));
    std::fs::write(&file, b"")?;
    let linked = std::fs::hard_link(&file, &link).is_ok();
    std::fs::remove_file(&file)?;
    if linked {
        std::fs::remove_file(&link)?;
    }
    Ok(linked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keyspace, Options};

    #[test]
    fn no_snapshot_has_the_first_sequence_number_once_there_are_rows() {
        for is_older in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (db_dir, path) = (dir.path().join("db"), dir.path().join("rows.sst"));
            let options = Options::default();
            let mut file = sst::Writer::create(&path, &options.snapshot_format()).unwrap();
            write_rows(&mut file, [(&"d".into(), &Some("v".into()))].into_iter(), |_| Ok(())).unwrap();
            file.finish().unwrap();
            let db = DB::open_default(&db_dir).unwrap();
            if is_older {
                db.ingest_external_file_opts(&IngestExternalFileOptions::default(), vec![path]).unwrap();
                assert_eq!(db.latest_sequence_number(), 0, "this is what older programs left");
            } else {
                ingest(&db, vec![path], false).unwrap();
                assert_eq!(db.latest_sequence_number(), 1);
            }
            drop(db);
            let keyspace = Keyspace::open(&db_dir, &options).unwrap();
            assert!(keyspace.db.latest_sequence_number() > 0);
            assert_eq!(keyspace.get(b"d").unwrap().unwrap(), "v");
        }
    }
}
