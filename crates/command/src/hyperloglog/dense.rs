//! Dense registers: 6 bits each, least significant bits first.

use super::REGISTER_BITS;

const VALUE_MASK: u8 = (1 << REGISTER_BITS) - 1;

/// Returns the byte in which a register begins, and its first bit there.
fn place(index: usize) -> (usize, usize) {
    (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8)
}

pub(super) fn register(registers: &[u8], index: usize) -> u8 {
    let (byte, bit) = place(index);
    // The last register ends with the last byte.
    let next = registers.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([registers[byte], next]) >> bit) as u8 & VALUE_MASK
}

/// Raises a register. Returns true if it was lower.
pub(super) fn raise(registers: &mut [u8], index: usize, value: u8) -> bool {
    if register(registers, index) >= value {
        return false;
    }
    let (byte, bit) = place(index);
    let next = registers.get(byte + 1).copied().unwrap_or(0);
    let both = u16::from_le_bytes([registers[byte], next]);
    let changed = both & !(u16::from(VALUE_MASK) << bit) | u16::from(value) << bit;
    let [first, second] = changed.to_le_bytes();
    registers[byte] = first;
    if let Some(next) = registers.get_mut(byte + 1) {
        *next = second;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::{DENSE_LEN, HEADER_LEN, REGISTERS};
    use super::*;

    #[test]
    fn registers_do_not_disturb_each_other() {
        let mut registers = vec![0; DENSE_LEN - HEADER_LEN];
        let value = |index: usize| (index * 7 % 50) as u8 + 1;
        for index in (0..REGISTERS).rev() {
            assert!(raise(&mut registers, index, value(index)));
            assert!(!raise(&mut registers, index, value(index)));
        }
        for index in 0..REGISTERS {
            assert_eq!(register(&registers, index), value(index));
        }
    }
}
