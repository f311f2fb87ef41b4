//! RDB files: a header, records, and a checksum.
//!
//! ```text
//! 0   5   "REDIS"
//! 5   4   version in decimal digits
//! 9       records: a number, and what belongs to it. Numbers from 244 on are the records of
//!         [`Record`], all others the types of keys: key (string), value
//! end 1   255
//!     8   CRC-64 of everything before, little endian; 0 if it was not computed
//! ```

use std::io::{Read, Write};

use bytes::Bytes;

use crate::libraries::{self, LIBRARY, LIBRARY_OLD};
use crate::payload::unsealed;
use crate::skip::skip_module;
use crate::source::Source;
use crate::{crc64, read_value, skip_value, write, Error, Result, VisitElement};

const MAGIC: &[u8; 5] = b"REDIS";
/// The oldest version of files that is read: that of Redis 4.0.
pub const FILE_VERSION_MIN: u64 = 8;
/// The newest version of files that is read: that of Redis 7.2.
pub const FILE_VERSION_MAX: u64 = 11;
/// The version of files that are written.
const VERSION_WRITTEN: u64 = 9;

const MODULE_AUX: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
const AUX: u8 = 250;
const RESIZE_DB: u8 = 251;
const EXPIRE_MS: u8 = 252;
const EXPIRE_SECONDS: u8 = 253;
const SELECT_DB: u8 = 254;
const END: u8 = 255;

/// A key of a file, whose value follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFacts {
    pub key: Bytes,
    pub expire_at_ms: Option<u64>,
    /// The number of the value's type.
    pub type_number: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A fact about the file, such as the version of the program that wrote it.
    Aux(Bytes, Bytes),
    /// The keys that follow are in this database.
    Database(u64),
    /// Numbers of keys in the database, and of those with an expiry time.
    Sizes(u64, u64),
    /// The source of a library of functions.
    Function(Bytes),
    /// Data of a module that belongs to no key. It was skipped.
    ModuleData,
    /// A key. [`FileReader::value`] or [`FileReader::skip`] must come next.
    Key(KeyFacts),
}

/// Reads a file record by record.
pub struct FileReader<R> {
    source: Source<R>,
    version: u64,
    is_done: bool,
}

impl<R: Read> FileReader<R> {
    /// Reads the header.
    pub fn open(reader: R) -> Result<FileReader<R>> {
        let mut source = Source::new(reader);
        let mut header = [0; 9];
        source.fill(&mut header)?;
        let (magic, version) = header.split_at(MAGIC.len());
        if magic != MAGIC || !version.iter().all(u8::is_ascii_digit) {
            return Err(Error::Damaged("the header: this is not an RDB file"));
        }
        let version = version.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        match (FILE_VERSION_MIN..=FILE_VERSION_MAX).contains(&version) {
            true => Ok(FileReader { source, version, is_done: false }),
            false => Err(Error::UnknownVersion(version)),
        }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> u64 {
        self.source.position()
    }

    /// Returns the next record, or `None` after the last one, when the checksum was checked.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if self.is_done {
            return Ok(None);
        }
        let mut facts = KeyFacts::default();
        loop {
            let source = &mut self.source;
            return Ok(Some(match source.u8()? {
                EXPIRE_MS => {
                    facts.expire_at_ms = Some(source.u64_le()?);
                    continue;
                }
                EXPIRE_SECONDS => {
                    facts.expire_at_ms = Some(u64::from(source.u32_le()?) * 1000);
                    continue;
                }
                IDLE => {
                    source.length()?;
                    continue;
                }
                FREQUENCY => {
                    source.u8()?;
                    continue;
                }
                AUX => Record::Aux(source.string()?, source.string()?),
                SELECT_DB => Record::Database(source.length()?),
                RESIZE_DB => Record::Sizes(source.length()?, source.length()?),
                LIBRARY => Record::Function(source.string()?),
                LIBRARY_OLD => return Err(libraries::OLD),
                MODULE_AUX => {
                    skip_module(source)?;
                    Record::ModuleData
                }
                END => {
                    let computed = source.checksum();
                    let mut checksum = [0; 8];
                    source.fill_unchecked(&mut checksum)?;
                    self.is_done = true;
                    return match u64::from_le_bytes(checksum) {
                        0 => Ok(None),
                        checksum if checksum == computed => Ok(None),
                        _ => Err(Error::WrongChecksum),
                    };
                }
                type_number => {
                    facts.type_number = type_number;
                    facts.key = source.string()?;
                    Record::Key(facts)
                }
            }));
        }
    }

    /// Reads the value of the key that was returned last.
    pub fn value(&mut self, facts: &KeyFacts, visit: &mut VisitElement<'_>) -> Result<()> {
        read_value(facts.type_number, &mut self.source, visit)
    }

    /// Skips the value of the key that was returned last.
    pub fn skip(&mut self, facts: &KeyFacts) -> Result<()> {
        skip_value(facts.type_number, &mut self.source)
    }
}

/// Writes a file that Redis 5.0 and later can load.
pub struct FileWriter<W> {
    writer: W,
    crc: u64,
    written: u64,
    database: Option<u64>,
}

impl<W: Write> FileWriter<W> {
    /// Writes the header.
    pub fn create(writer: W, aux: &[(&str, &str)]) -> Result<FileWriter<W>> {
        let mut file = FileWriter { writer, crc: 0, written: 0, database: None };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(format!("{VERSION_WRITTEN:04}").bytes());
        for (name, value) in aux {
            bytes.push(AUX);
            write::string(&mut bytes, name.as_bytes());
            write::string(&mut bytes, value.as_bytes());
        }
        file.put(&bytes)?;
        Ok(file)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.crc = crc64(self.crc, bytes);
        self.written += bytes.len() as u64;
        Ok(self.writer.write_all(bytes)?)
    }

    /// Returns the number of bytes written.
    pub fn position(&self) -> u64 {
        self.written
    }

    /// Writes the libraries of a payload of `FUNCTION DUMP`, before the first key.
    pub fn functions(&mut self, payload: &Bytes) -> Result<()> {
        let libraries = unsealed(payload)?;
        match libraries.first() {
            None | Some(&LIBRARY) => self.put(&libraries),
            Some(other) => Err(Error::UnknownType(*other)),
        }
    }

    /// Writes what precedes the elements of a key's value.
    pub fn begin_key(&mut self, database: u64, facts: &KeyFacts, header: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(facts.key.len() + header.len() + 32);
        if self.database != Some(database) {
            bytes.push(SELECT_DB);
            write::length(&mut bytes, database);
            self.database = Some(database);
        }
        if let Some(at) = facts.expire_at_ms {
            bytes.push(EXPIRE_MS);
            bytes.extend(at.to_le_bytes());
        }
        bytes.push(facts.type_number);
        write::string(&mut bytes, &facts.key);
        bytes.extend_from_slice(header);
        self.put(&bytes)
    }

    /// Writes encoded elements of the key that was begun.
    pub fn elements(&mut self, encoded: &[u8]) -> Result<()> {
        self.put(encoded)
    }

    /// Writes the end, and returns the writer, which the caller flushes.
    pub fn finish(mut self) -> Result<W> {
        self.put(&[END])?;
        let checksum = self.crc.to_le_bytes();
        self.writer.write_all(&checksum)?;
        Ok(self.writer)
    }
}
