//! What RocksDB's errors mean to the store.

use rocksdb::ErrorKind;
use storage::StorageError;

/// RocksDB gives the C interface only a text. The kind is its first words; "no space" is a sub-code of
/// an I/O error, spelled out after the kind, and a system message when the file layer reports it.
pub(crate) fn classify(error: rocksdb::Error) -> StorageError {
    let kind = error.kind();
    let text = error.into_string();
    match kind {
        ErrorKind::Corruption => StorageError::Corrupt(text),
        _ if text.contains("No space left on device") || text.contains("Max allowed space was reached") => {
            StorageError::NoSpace(text)
        }
        _ => StorageError::Engine(text),
    }
}
