//! Skips values: those of modules, which are not supported, and all others.

use std::io::Read;

use crate::stream::{STREAM, STREAM_2, STREAM_3};
use crate::value::{kind_of, MODULE};
use crate::{read_value, Error, Result, Source};

/// Bytes of an entry's number in a stream, and of a time.
const STREAM_ID_LEN: u64 = 16;
const TIME_LEN: u64 = 8;

/// The kinds of a module's parts.
const PART_END: u64 = 0;
const PART_SIGNED: u64 = 1;
const PART_UNSIGNED: u64 = 2;
const PART_FLOAT: u64 = 3;
const PART_DOUBLE: u64 = 4;
const PART_STRING: u64 = 5;

/// Skips the value that follows a type's number.
///
/// # Errors
/// Errors of the data and the reader; [`Error::Unsupported`] for the oldest form of modules'
/// values, whose end only the module knows.
pub fn skip_value<R: Read>(number: u8, source: &mut Source<R>) -> Result<()> {
    match number {
        STREAM | STREAM_2 | STREAM_3 => skip_stream(number, source),
        MODULE => skip_module(source),
        _ => {
            kind_of(number)?;
            read_value(number, source, &mut |_| Ok(()))
        }
    }
}

fn skip_stream<R: Read>(number: u8, source: &mut Source<R>) -> Result<()> {
    for _ in 0..source.length()? {
        source.skip_string()?;
        source.skip_string()?;
    }
    // The number of entries and the last entry; since 7.0 also the first one, the last one deleted,
    // and the number of entries ever added.
    let numbers = if number == STREAM { 3 } else { 8 };
    for _ in 0..numbers {
        source.length()?;
    }
    for _ in 0..source.length()? {
        source.skip_string()?;
        for _ in 0..if number == STREAM { 2 } else { 3 } {
            source.length()?;
        }
        for _ in 0..source.length()? {
            source.skip(STREAM_ID_LEN + TIME_LEN)?;
            source.length()?;
        }
        for _ in 0..source.length()? {
            source.skip_string()?;
            source.skip(if number == STREAM_3 { 2 * TIME_LEN } else { TIME_LEN })?;
            for _ in 0..source.length()? {
                source.skip(STREAM_ID_LEN)?;
            }
        }
    }
    Ok(())
}

/// Skips the number of a module and its parts.
pub(crate) fn skip_module<R: Read>(source: &mut Source<R>) -> Result<()> {
    source.length()?;
    loop {
        match source.length()? {
            PART_END => return Ok(()),
            PART_SIGNED | PART_UNSIGNED => drop(source.length()?),
            PART_FLOAT => source.skip(4)?,
            PART_DOUBLE => source.skip(8)?,
            PART_STRING => source.skip_string()?,
            _ => return Err(Error::Damaged("a part of a module's value")),
        }
    }
}
