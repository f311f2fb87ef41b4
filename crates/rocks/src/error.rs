//! Classification of RocksDB's errors for the store.

use rocksdb::ErrorKind;
use storage::StorageError;

/// Converts an error of RocksDB. Its C interface gives only a text that begins with the kind of
/// error. "No space" is a sub-code of an I/O error that is spelled out after the kind. If the file
/// layer reports the error, it is a system message.
pub(crate) fn classify(error: rocksdb::Error) -> StorageError {
    let kind = error.kind();
    let text = error.into_string();
    match kind {
        ErrorKind::Corruption => StorageError::Damaged(text),
        _ if text.contains("No space left on device") || text.contains("Max allowed space was reached") => {
            StorageError::NoSpace(text)
        }
        _ => StorageError::Engine(text),
    }
}
