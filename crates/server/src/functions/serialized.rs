//! Redis's serialization of libraries (`FUNCTION DUMP`), with Redis's errors.

use bytes::Bytes;
use rdb::Error;

/// Maximum memory of the libraries of a serialization, which may be compressed.
const BYTES_MAX: u64 = cluster::LIBRARIES_BYTES_MAX as u64;

/// Reads the codes of the libraries in a serialization.
///
/// # Errors
/// The text of the error, without its code.
pub fn read(payload: &Bytes) -> Result<Vec<Bytes>, &'static str> {
    rdb::read_libraries(payload, BYTES_MAX).map_err(|error| match error {
        Error::UnknownVersion(_) | Error::WrongChecksum => "DUMP payload version or checksum are wrong",
        Error::Unsupported(_) => "Pre-GA function format not supported",
        Error::TooLarge(_) => cluster::LIBRARIES_TOO_LONG,
        Error::UnknownType(_) => "given type is not a function",
        _ => "Failed loading library payload",
    })
}
