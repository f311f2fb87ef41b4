//! Decompression of LZF, with which Redis compresses strings.
//!
//! ```text
//! 000LLLLL  L + 1 literal bytes follow
//! LLLOOOOO oooooooo           copy L + 2 bytes from O * 256 + o + 1 bytes back, for L below 7
//! 111OOOOO llllllll oooooooo  the same with L = 7 + l
//! ```

use crate::{Error, Result};

const DAMAGED: Error = Error::Damaged("a compressed string");
/// Control bytes below it begin literal bytes.
const LITERAL_END: u8 = 1 << 5;
const LONG: usize = 7;

/// Returns the decompressed bytes, which must be `len` bytes. The output grows as it is produced.
pub fn decompress(mut input: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    while let Some((&control, rest)) = input.split_first() {
        if control < LITERAL_END {
            let (literal, rest) = rest.split_at_checked(usize::from(control) + 1).ok_or(DAMAGED)?;
            output.extend_from_slice(literal);
            input = rest;
        } else {
            let mut count = usize::from(control >> 5);
            let mut rest = rest;
            if count == LONG {
                let (&more, behind) = rest.split_first().ok_or(DAMAGED)?;
                count += usize::from(more);
                rest = behind;
            }
            let (&low, rest) = rest.split_first().ok_or(DAMAGED)?;
            let back = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
            let from = output.len().checked_sub(back).ok_or(DAMAGED)?;
            // The copied bytes may include bytes that this copy writes: then they repeat.
            for at in from..from + count + 2 {
                output.push(output[at]);
            }
            input = rest;
        }
        if output.len() > len {
            return Err(DAMAGED);
        }
    }
    match output.len() == len {
        true => Ok(output),
        false => Err(DAMAGED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_copies_are_read() {
        assert_eq!(decompress(&[2, b'a', b'b', b'c'], 3).unwrap(), b"abc");
        // "ab", then 5 bytes from 2 back, which overlap.
        assert_eq!(decompress(&[1, b'a', b'b', 3 << 5, 1], 7).unwrap(), b"abababa");
        // A long copy: 7 + 3 + 2 bytes.
        assert_eq!(decompress(&[0, b'x', 7 << 5, 3, 0], 13).unwrap(), [b'x'; 13]);
    }

    #[test]
    fn copies_from_before_the_beginning_and_wrong_lengths_are_damage() {
        assert!(decompress(&[0, b'x', 1 << 5, 1], 4).is_err());
        assert!(decompress(&[0, b'x'], 2).is_err());
        assert!(decompress(&[0, b'x', 7 << 5, 255, 0], 10).is_err());
        assert!(decompress(&[5, b'x'], 6).is_err());
        assert!(decompress(&[7 << 5], 6).is_err());
    }
}
