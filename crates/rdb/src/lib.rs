//! Redis's serialisation of values (RDB): payloads of `DUMP` and `RESTORE`, and whole files.
//!
//! A value is read element by element ([`read_value`]), so a collection is never in memory as a
//! whole unless the caller keeps it. Every encoding of Redis 4 to 7.2 is read. Values are written
//! in the encodings without compression, which every Redis from 4.0 on reads ([`write`]); it
//! chooses its own encoding when it loads them. Streams are written as Redis 7.0 does.
//!
//! *Invariant:* no memory is allocated because of a declared length, no input causes a panic, and
//! nothing recurses. Values of modules are recognised, and can be skipped ([`skip_value`]).

#![forbid(unsafe_code)]

mod compact;
mod crc64;
mod error;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod libraries;
mod listpack;
mod lzf;
mod payload;
mod skip;
mod source;
mod stream;
mod stream_writer;
mod value;
pub mod write;
mod ziplist;

pub use crc64::crc64;
pub use error::Error;
pub use file::{FileReader, FileWriter, KeyFacts, Record, FILE_VERSION_MAX, FILE_VERSION_MIN};
pub use libraries::{read_libraries, write_libraries};
pub use payload::{open_payload, seal_payload, PAYLOAD_VERSION, PAYLOAD_VERSION_MAX};
pub use skip::skip_value;
pub use source::{Source, PENDING_MAX, STRING_BYTES_MAX};
pub use stream::{estimated_entries_read, EntryId, StreamPart};
pub use stream_writer::StreamWriter;
pub use value::{kind_of, read_value, Element, Kind, VisitElement};

/// Result of a read or write.
pub type Result<T> = std::result::Result<T, Error>;
