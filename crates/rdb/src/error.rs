//! The reasons for which data cannot be read.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not what the format says.
    #[error("damaged data: {0}")]
    Damaged(&'static str),
    /// A type of values that is not supported. [`crate::skip_value`] can skip it.
    #[error("{0} are not supported")]
    Unsupported(&'static str),
    /// A type of a newer or unknown program. What follows cannot be found.
    #[error("the type {0} is not known")]
    UnknownType(u8),
    #[error("the format's version {0} is not supported")]
    UnknownVersion(u64),
    #[error("the checksum is wrong")]
    WrongChecksum,
    /// A limit of the caller, or of this crate.
    #[error("{0}")]
    TooLarge(&'static str),
    /// A group has more pending entries than are kept in memory. The whole value was read.
    #[error("a consumer group has more than {0} pending entries")]
    TooManyPending(usize),
    /// The callback that receives elements has ended the read.
    #[error("the read was ended")]
    Stopped,
}
