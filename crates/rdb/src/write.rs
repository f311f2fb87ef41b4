//! Writes values in the encodings that every Redis from 4.0 on reads, and streams in that of Redis
//! 7.0, because older ones lack some of a stream's numbers.

use crate::source::{ENCODED_INT16, ENCODED_INT32, ENCODED_INT8, LEN_32, LEN_64};
use crate::stream::STREAM_2;
use crate::value::{HASH, LIST, SET, SORTED_SET, STRING};
use crate::{Element, Kind};

/// Bytes of the longest text of a 32-bit integer.
const INTEGER_TEXT_MAX: usize = 11;

/// Returns the number of the type in which values of a kind are written.
pub fn type_number(kind: Kind) -> u8 {
    match kind {
        Kind::String => STRING,
        Kind::List => LIST,
        Kind::Set => SET,
        Kind::Hash => HASH,
        Kind::SortedSet => SORTED_SET,
        Kind::Stream => STREAM_2,
    }
}

/// Appends what precedes the elements of a value: the number of them, unless it is a string. A
/// stream has the number of its nodes.
pub fn header(output: &mut Vec<u8>, kind: Kind, elements: u64) {
    if kind != Kind::String {
        length(output, elements);
    }
}

/// Appends an element. The parts of a stream have no encodings of their own:
/// [`StreamWriter`](crate::StreamWriter) writes them.
pub fn element(output: &mut Vec<u8>, element: &Element) {
    match element {
        Element::String(bytes) | Element::Item(bytes) | Element::Member(bytes) => string(output, bytes),
        Element::Field(name, value) => {
            string(output, name);
            string(output, value);
        }
        Element::Scored(name, score) => {
            string(output, name);
            output.extend(score.to_le_bytes());
        }
        Element::Stream(_) => debug_assert!(false, "a stream is written by a StreamWriter"),
    }
}

pub fn length(output: &mut Vec<u8>, length: u64) {
    match length {
        0..=0x3f => output.push(length as u8),
        0x40..=0x3fff => output.extend((0x4000 | length as u16).to_be_bytes()),
        _ => match u32::try_from(length) {
            Ok(length) => {
                output.push(LEN_32);
                output.extend(length.to_be_bytes());
            }
            Err(_) => {
                output.push(LEN_64);
                output.extend(length.to_be_bytes());
            }
        },
    }
}

/// Appends a string. The texts of small integers are written as integers, as Redis does.
pub fn string(output: &mut Vec<u8>, bytes: &[u8]) {
    match small_integer(bytes) {
        None => {
            length(output, bytes.len() as u64);
            output.extend_from_slice(bytes);
        }
        Some(number) => match (i8::try_from(number), i16::try_from(number)) {
            (Ok(number), _) => output.extend([ENCODED_INT8, number as u8]),
            (_, Ok(number)) => {
                output.push(ENCODED_INT16);
                output.extend(number.to_le_bytes());
            }
            _ => {
                output.push(ENCODED_INT32);
                output.extend(number.to_le_bytes());
            }
        },
    }
}

/// Returns the integer of 32 bits whose text this is, exactly.
fn small_integer(bytes: &[u8]) -> Option<i32> {
    if bytes.len() > INTEGER_TEXT_MAX {
        return None;
    }
    let number: i32 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (itoa::Buffer::new().format(number).as_bytes() == bytes).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn strings_and_lengths_are_read_as_they_were_written() {
        let long = [b'x'; 20_000];
        let texts: [&[u8]; 16] = [
            b"",
            b"a",
            b"0",
            b"-0",
            b"00",
            b"+1",
            b"-128",
            b"128",
            b"-32768",
            b"32768",
            b"2147483647",
            b"-2147483648",
            b"2147483648",
            &long[..63],
            &long[..64],
            &long,
        ];
        for text in texts {
            let mut bytes = Vec::new();
            string(&mut bytes, text);
            assert_eq!(Source::new(&bytes[..]).string().unwrap(), text);
        }
        for number in [0, 63, 64, 0x3fff, 0x4000, 0xffff_ffff, 1 << 32, u64::MAX] {
            let mut bytes = Vec::new();
            length(&mut bytes, number);
            assert_eq!(Source::new(&bytes[..]).length().unwrap(), number);
        }
    }
}
