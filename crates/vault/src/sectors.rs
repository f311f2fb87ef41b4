//! AES-256-XTS (IEEE 1619) in sectors of 512 bytes, which are overwritten in place.

use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes256, Block};

use crate::key::Key;

pub const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 16;
const BLOCKS: usize = SECTOR_BYTES / BLOCK_BYTES;
/// The polynomial of the field of 2^128 elements, without its highest term.
const POLYNOMIAL: u128 = 0x87;

/// The cipher of one segment.
pub struct Sectors {
    cipher: Aes256,
    tweak: Aes256,
}

impl Sectors {
    pub(crate) fn new(key: &Key, tweak: &Key) -> Sectors {
        Sectors { cipher: Aes256::new(key.bytes().into()), tweak: Aes256::new(tweak.bytes().into()) }
    }

    /// Encrypts whole sectors. `first` is the number of the first one in its segment.
    ///
    /// # Panics
    /// If the bytes are not whole sectors.
    pub fn encrypt(&self, first: u64, bytes: &mut [u8]) {
        self.each(first, bytes, |blocks| self.cipher.encrypt_blocks(blocks));
    }

    /// Decrypts whole sectors. `first` is the number of the first one in its segment.
    ///
    /// # Panics
    /// If the bytes are not whole sectors.
    pub fn decrypt(&self, first: u64, bytes: &mut [u8]) {
        self.each(first, bytes, |blocks| self.cipher.decrypt_blocks(blocks));
    }

    fn each(&self, first: u64, bytes: &mut [u8], turn: impl Fn(&mut [Block])) {
        assert!(bytes.len() % SECTOR_BYTES == 0, "a part of a sector cannot be encrypted");
        let mut blocks = [Block::default(); BLOCKS];
        let mut masks = [0u128; BLOCKS];
        for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
            let mut start = Block::from(u128::from(sector).to_le_bytes());
            self.tweak.encrypt_block(&mut start);
            let mut mask = u128::from_le_bytes(start.into());
            for (chunk, (block, place)) in
                bytes.chunks_exact(BLOCK_BYTES).zip(blocks.iter_mut().zip(&mut masks))
            {
                let plain = u128::from_le_bytes(chunk.try_into().expect("16 bytes"));
                *block = (plain ^ mask).to_le_bytes().into();
                *place = mask;
                mask = (mask << 1) ^ (POLYNOMIAL & (mask >> 127).wrapping_neg());
            }
            turn(&mut blocks);
            for (chunk, (block, mask)) in bytes.chunks_exact_mut(BLOCK_BYTES).zip(blocks.iter().zip(&masks)) {
                let turned = u128::from_le_bytes((*block).into()) ^ mask;
                chunk.copy_from_slice(&turned.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_those_of_the_standard() {
        // IEEE 1619-2007, annex B, vector 10.
        let key = Key::from_hex(b"2718281828459045235360287471352662497757247093699959574966967627").unwrap();
        let tweak =
            Key::from_hex(b"3141592653589793238462643383279502884197169399375105820974944592").unwrap();
        let sectors = Sectors::new(&key, &tweak);
        let plain: Vec<u8> = (0..SECTOR_BYTES).map(|number| number as u8).collect();
        let mut bytes = plain.clone();
        sectors.encrypt(0xff, &mut bytes);
        let text: String = bytes[..32].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b");
        sectors.decrypt(0xff, &mut bytes);
        assert_eq!(bytes, plain);
    }

    #[test]
    fn a_sector_depends_on_its_number_and_on_no_other_sector() {
        let sectors = Sectors::new(&Key::new([1; 32]), &Key::new([2; 32]));
        let mut three = vec![0; 3 * SECTOR_BYTES];
        sectors.encrypt(7, &mut three);
        let parts: Vec<&[u8]> = three.chunks(SECTOR_BYTES).collect();
        assert!(parts[0] != parts[1] && parts[1] != parts[2]);
        let mut one = vec![0; SECTOR_BYTES];
        sectors.encrypt(8, &mut one);
        assert_eq!(one, parts[1]);
    }
}
