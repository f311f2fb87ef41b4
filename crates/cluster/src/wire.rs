//! Encoder and decoder of compact binary messages: unsigned LEB128 integers and IEEE 754 rates.
//!
//! The reader checks everything. It never reads past the end, and allocates nothing for a declared
//! length that the input is too short to hold.

use types::{RegionDescriptor, RegionEpoch};

/// The reason why bytes cannot be decoded as a message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("a message is cut short")]
    Cut,
    #[error("a message has the unknown version {0}")]
    UnknownVersion(u8),
    #[error("a malformed message: {0}")]
    Malformed(&'static str),
}

#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn uint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn float(&mut self, value: f64) {
        self.0.extend_from_slice(&value.to_bits().to_be_bytes());
    }

    pub fn epoch(&mut self, epoch: RegionEpoch) {
        self.uint(epoch.conf_version);
        self.uint(epoch.version);
    }

    /// Writes the text after its length.
    pub fn text(&mut self, text: &str) {
        self.uint(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Writes the descriptor after its length.
    pub fn descriptor(&mut self, region: &RegionDescriptor) {
        let bytes = region.encode();
        self.uint(bytes.len() as u64);
        self.0.extend_from_slice(&bytes);
    }

    pub fn finish(self) -> bytes::Bytes {
        self.0.into()
    }
}

pub(crate) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    /// Reads the first byte of a message and checks the version.
    pub fn version(&mut self, known: u8) -> Result<(), WireError> {
        match self.u8()? {
            version if version == known => Ok(()),
            version => Err(WireError::UnknownVersion(version)),
        }
    }

    pub fn u8(&mut self) -> Result<u8, WireError> {
        let (&first, rest) = self.0.split_first().ok_or(WireError::Cut)?;
        self.0 = rest;
        Ok(first)
    }

    pub fn uint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Malformed("a number is larger than 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Malformed("a number is longer than ten bytes"))
    }

    pub fn slot(&mut self) -> Result<u16, WireError> {
        u16::try_from(self.uint()?).map_err(|_| WireError::Malformed("a slot is too large"))
    }

    pub fn epoch(&mut self) -> Result<RegionEpoch, WireError> {
        Ok(RegionEpoch { conf_version: self.uint()?, version: self.uint()? })
    }

    pub fn descriptor(&mut self) -> Result<RegionDescriptor, WireError> {
        let length = self.count(1)?;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        RegionDescriptor::decode(bytes).map_err(|_| WireError::Malformed("a region's descriptor"))
    }

    /// Reads a text of at most `bytes_max` bytes.
    pub fn text(&mut self, bytes_max: usize) -> Result<String, WireError> {
        let length = self.count(1)?;
        if length > bytes_max {
            return Err(WireError::Malformed("a text is too long"));
        }
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        let text = std::str::from_utf8(bytes).map_err(|_| WireError::Malformed("a text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    /// Reads a rate or speed, which must be finite and not negative.
    pub fn float(&mut self) -> Result<f64, WireError> {
        let (bits, rest) = self.0.split_first_chunk().ok_or(WireError::Cut)?;
        self.0 = rest;
        let value = f64::from_bits(u64::from_be_bytes(*bits));
        if value.is_finite() && value.is_sign_positive() {
            Ok(value)
        } else {
            Err(WireError::Malformed("a rate is negative or not finite"))
        }
    }

    /// Reads the length of a list. Fails if the input is too short for that many items of at least
    /// `item_bytes_min` bytes.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, WireError> {
        let count = usize::try_from(self.uint()?).map_err(|_| WireError::Cut)?;
        if count > self.0.len() / item_bytes_min {
            return Err(WireError::Cut);
        }
        Ok(count)
    }

    pub fn end(&self) -> Result<(), WireError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(WireError::Malformed("bytes follow the end")),
        }
    }
}
