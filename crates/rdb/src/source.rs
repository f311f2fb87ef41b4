//! Reads of numbers, lengths and strings, with the checksum of all bytes read.

use std::io::{self, Read};

use bytes::Bytes;

use crate::crc64::crc64;
use crate::{lzf, Error, Result};

/// Maximum bytes of a string, as Redis's.
pub const STRING_BYTES_MAX: u64 = 512 << 20;

/// Maximum number of pending entries of a group of a stream, which are in memory at once. They
/// take 32 bytes each.
pub const PENDING_MAX: usize = 4 << 20;

/// The first two bits of a length, and of the integer and compressed strings.
const LEN_6: u8 = 0;
const LEN_14: u8 = 1;
const LEN_WORD: u8 = 2;
pub(crate) const LEN_32: u8 = 0x80;
pub(crate) const LEN_64: u8 = 0x81;
pub(crate) const ENCODED_INT8: u8 = 0xc0;
pub(crate) const ENCODED_INT16: u8 = 0xc1;
pub(crate) const ENCODED_INT32: u8 = 0xc2;
const ENCODED_LZF: u8 = 0xc3;

/// Bytes read at once, so that a declared length reserves no more before they arrive.
const CHUNK_BYTES: u64 = 64 << 10;

/// A length, or the encoding of a string that has none.
enum Length {
    Of(u64),
    Encoded(u8),
}

/// Serialised bytes that are read in order.
pub struct Source<R> {
    reader: R,
    crc: u64,
    read: u64,
    string_bytes_max: u64,
    pending_max: usize,
}

impl<R: Read> Source<R> {
    pub fn new(reader: R) -> Source<R> {
        Source { reader, crc: 0, read: 0, string_bytes_max: STRING_BYTES_MAX, pending_max: PENDING_MAX }
    }

    /// Sets the maximum bytes of a string, which is [`STRING_BYTES_MAX`] otherwise.
    pub fn with_string_bytes_max(self, string_bytes_max: u64) -> Source<R> {
        Source { string_bytes_max, ..self }
    }

    /// Sets the maximum number of pending entries of a group, which is [`PENDING_MAX`] otherwise.
    pub fn with_pending_max(self, pending_max: usize) -> Source<R> {
        Source { pending_max, ..self }
    }

    pub(crate) fn pending_max(&self) -> usize {
        self.pending_max
    }

    /// Returns the checksum of the bytes that were read.
    pub fn checksum(&self) -> u64 {
        self.crc
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Fills a buffer.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.reader.read_exact(buffer)?;
        self.crc = crc64(self.crc, buffer);
        self.read += buffer.len() as u64;
        Ok(())
    }

    /// Reads bytes that do not count for the checksum.
    pub(crate) fn fill_unchecked(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.read += buffer.len() as u64;
        Ok(self.reader.read_exact(buffer)?)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32_le(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64_le(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn length_or_encoding(&mut self) -> Result<Length> {
        let first = self.u8()?;
        Ok(match first >> 6 {
            LEN_6 => Length::Of(u64::from(first & 0x3f)),
            LEN_14 => Length::Of(u64::from(first & 0x3f) << 8 | u64::from(self.u8()?)),
            LEN_WORD if first == LEN_32 => Length::Of(u64::from(u32::from_be_bytes(self.array()?))),
            LEN_WORD if first == LEN_64 => Length::Of(u64::from_be_bytes(self.array()?)),
            LEN_WORD => return Err(Error::Damaged("a length")),
            _ => Length::Encoded(first),
        })
    }

    pub(crate) fn length(&mut self) -> Result<u64> {
        match self.length_or_encoding()? {
            Length::Of(length) => Ok(length),
            Length::Encoded(_) => Err(Error::Damaged("a length")),
        }
    }

    pub(crate) fn string(&mut self) -> Result<Bytes> {
        match self.length_or_encoding()? {
            Length::Of(length) => Ok(self.bytes(length)?.into()),
            Length::Encoded(ENCODED_INT8) => Ok(decimal(self.array::<1>()?[0] as i8)),
            Length::Encoded(ENCODED_INT16) => Ok(decimal(i16::from_le_bytes(self.array()?))),
            Length::Encoded(ENCODED_INT32) => Ok(decimal(i32::from_le_bytes(self.array()?))),
            Length::Encoded(ENCODED_LZF) => {
                let (compressed, length) = (self.length()?, self.length()?);
                let length = self.admitted(length)?;
                let compressed = self.bytes(compressed)?;
                Ok(lzf::decompress(&compressed, length)?.into())
            }
            Length::Encoded(_) => Err(Error::Damaged("the encoding of a string")),
        }
    }

    fn admitted(&self, length: u64) -> Result<usize> {
        match usize::try_from(length) {
            Ok(bytes) if length <= self.string_bytes_max => Ok(bytes),
            _ => Err(Error::TooLarge("a string is too long")),
        }
    }

    /// Reads raw bytes. The buffer grows as they arrive.
    fn bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        let length = self.admitted(length)?;
        let mut bytes = Vec::with_capacity(length.min(CHUNK_BYTES as usize));
        let read = self.reader.by_ref().take(length as u64).read_to_end(&mut bytes)?;
        if read < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.crc = crc64(self.crc, &bytes);
        self.read += length as u64;
        Ok(bytes)
    }

    /// Reads raw bytes and drops them.
    pub(crate) fn skip(&mut self, mut length: u64) -> Result<()> {
        let mut buffer = [0; 4096];
        while length > 0 {
            let count = length.min(buffer.len() as u64) as usize;
            self.fill(&mut buffer[..count])?;
            length -= count as u64;
        }
        Ok(())
    }

    pub(crate) fn skip_string(&mut self) -> Result<()> {
        match self.length_or_encoding()? {
            Length::Of(length) => self.skip(length),
            Length::Encoded(ENCODED_INT8) => self.skip(1),
            Length::Encoded(ENCODED_INT16) => self.skip(2),
            Length::Encoded(ENCODED_INT32) => self.skip(4),
            Length::Encoded(ENCODED_LZF) => {
                let (compressed, _) = (self.length()?, self.length()?);
                self.skip(compressed)
            }
            Length::Encoded(_) => Err(Error::Damaged("the encoding of a string")),
        }
    }
}

/// Returns an integer as text.
pub(crate) fn decimal(value: impl itoa::Integer) -> Bytes {
    Bytes::copy_from_slice(itoa::Buffer::new().format(value).as_bytes())
}
