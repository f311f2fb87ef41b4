//! Classification of RocksDB's errors for the store.

use rocksdb::ErrorKind;
use storage::StorageError;

/// Converts an error of RocksDB. Its C interface gives only a text that begins with the kind of
/// error. "No space" is a sub-code of an I/O error that is spelled out after the kind. If the file
/// layer reports the error, it is a system message.
pub(crate) fn classify(error: rocksdb::Error) -> StorageError {
    let is_corruption = error.kind() == ErrorKind::Corruption;
    by_text(is_corruption, error.into_string())
}

/// Converts an error of RocksDB's writer of SST files, which has the same form.
pub(crate) fn classify_sst(error: sst::Error) -> StorageError {
    by_text(error.0.starts_with("Corruption"), error.0)
}

fn by_text(is_corruption: bool, text: String) -> StorageError {
    if is_corruption {
        return StorageError::Damaged(text);
    }
    match text.contains("No space left on device") || text.contains("Max allowed space was reached") {
        true => StorageError::NoSpace(text),
        false => StorageError::Engine(text),
    }
}
