//! AES-256 in counter mode, from any offset. The counter is that of the block of 16 bytes,
//! big-endian, from zero: each file has a key of its own.

use aes::cipher::{BlockEncrypt, KeyInit};
use aes::{Aes256, Block};

use crate::key::Key;

const BLOCK_BYTES: usize = 16;
/// Blocks of the key stream that are made together: AES instructions work on several at a time.
const BATCH: usize = 64;

/// The cipher of one file. Encryption and decryption are the same.
pub struct Stream {
    cipher: Aes256,
    initial: u128,
}

impl Stream {
    pub(crate) fn new(key: &Key) -> Stream {
        Stream { cipher: Aes256::new(key.bytes().into()), initial: 0 }
    }

    /// Encrypts or decrypts the bytes of the file's content that begin at `offset`.
    pub fn apply(&self, offset: u64, bytes: &mut [u8]) {
        let mut counter = self.initial.wrapping_add(u128::from(offset / BLOCK_BYTES as u64));
        let mut skipped = (offset % BLOCK_BYTES as u64) as usize;
        let mut keystream = [Block::default(); BATCH];
        let mut rest = bytes;
        while !rest.is_empty() {
            let blocks = (skipped + rest.len().min(BATCH * BLOCK_BYTES)).div_ceil(BLOCK_BYTES).min(BATCH);
            for block in &mut keystream[..blocks] {
                *block = counter.to_be_bytes().into();
                counter = counter.wrapping_add(1);
            }
            self.cipher.encrypt_blocks(&mut keystream[..blocks]);
            let taken = rest.len().min(blocks * BLOCK_BYTES - skipped);
            let (now, later) = rest.split_at_mut(taken);
            let (first, aligned) = match skipped {
                0 => (&mut [][..], now),
                _ => now.split_at_mut(taken.min(BLOCK_BYTES - skipped)),
            };
            xor(first, &keystream[0][skipped..]);
            let keys = &keystream[usize::from(skipped > 0)..blocks];
            let mut whole = aligned.chunks_exact_mut(BLOCK_BYTES);
            let mut keys = keys.iter();
            for (chunk, key) in whole.by_ref().zip(keys.by_ref()) {
                let chunk: &mut [u8; BLOCK_BYTES] = chunk.try_into().expect("16 bytes");
                let mixed = u128::from_ne_bytes(*chunk) ^ u128::from_ne_bytes((*key).into());
                *chunk = mixed.to_ne_bytes();
            }
            if let Some(key) = keys.next() {
                xor(whole.into_remainder(), key);
            }
            skipped = 0;
            rest = later;
        }
    }
}

fn xor(bytes: &mut [u8], key: &[u8]) {
    bytes.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_standard() {
        // NIST SP 800-38A, F.5.5.
        let key = Key::from_hex(b"603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4").unwrap();
        let mut stream = Stream::new(&key);
        stream.initial = 0xf0f1_f2f3_f4f5_f6f7_f8f9_fafb_fcfd_feff;
        let mut bytes = 0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a_u128.to_be_bytes();
        stream.apply(0, &mut bytes);
        assert_eq!(bytes, 0x601e_c313_7757_89a5_b7a7_f504_bbf3_d228_u128.to_be_bytes());
    }

    #[test]
    fn any_part_is_that_of_the_whole() {
        let stream = Stream::new(&Key::new([3; 32]));
        let plain: Vec<u8> = (0..5000u32).map(|number| (number * 7) as u8).collect();
        let mut whole = plain.clone();
        stream.apply(0, &mut whole);
        assert_ne!(whole, plain);
        for from in (0..60).chain([1000, 1023, 1024, 1025, 4999, 5000]) {
            for length in (0..40).chain([1008, 1023, 1024, 1025, 1040, 3000]) {
                let range = from..(from + length).min(plain.len());
                let mut part = plain[range.clone()].to_vec();
                stream.apply(from as u64, &mut part);
                assert_eq!(part, whole[range], "{from} {length}");
            }
        }
    }
}
