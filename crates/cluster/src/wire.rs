//! Writing and reading compact binary reports: unsigned LEB128 integers and IEEE 754 rates.
//!
//! The reader checks everything: it never reads past the end, and nothing is allocated for a declared length
//! that the input is too short to hold.

use crate::HeartbeatError;

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

    pub fn finish(self) -> bytes::Bytes {
        self.0.into()
    }
}

pub(crate) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    pub fn u8(&mut self) -> Result<u8, HeartbeatError> {
        let (&first, rest) = self.0.split_first().ok_or(HeartbeatError::Cut)?;
        self.0 = rest;
        Ok(first)
    }

    pub fn uint(&mut self) -> Result<u64, HeartbeatError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(HeartbeatError::Malformed("a number is larger than 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HeartbeatError::Malformed("a number is longer than ten bytes"))
    }

    /// A rate or speed: finite and not negative.
    pub fn float(&mut self) -> Result<f64, HeartbeatError> {
        let (bits, rest) = self.0.split_first_chunk().ok_or(HeartbeatError::Cut)?;
        self.0 = rest;
        let value = f64::from_bits(u64::from_be_bytes(*bits));
        if value.is_finite() && value.is_sign_positive() {
            Ok(value)
        } else {
            Err(HeartbeatError::Malformed("a rate is negative or not finite"))
        }
    }

    /// A list's length, when the input can hold so many items of at least `item_bytes_min`.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, HeartbeatError> {
        let count = usize::try_from(self.uint()?).map_err(|_| HeartbeatError::Cut)?;
        if count > self.0.len() / item_bytes_min {
            return Err(HeartbeatError::Cut);
        }
        Ok(count)
    }

    pub fn end(&self) -> Result<(), HeartbeatError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(HeartbeatError::Malformed("bytes follow the end")),
        }
    }
}
