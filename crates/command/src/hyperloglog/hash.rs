//! The hash of an element: MurmurHash64A, as in Redis.

/// Number of the hash's bits that select a register.
pub(super) const INDEX_BITS: u32 = 14;
/// Number of the hash's other bits, whose trailing zeros are counted.
pub(super) const COUNTED_BITS: u32 = 64 - INDEX_BITS;
const SEED: u64 = 0xadc8_3b19;

/// Returns an element's register, and the value to which it raises it.
pub(super) fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, SEED);
    let index = hash & ((1 << INDEX_BITS) - 1);
    let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
    (index as usize, counted.trailing_zeros() as u8 + 1)
}

fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let chunks = bytes.chunks_exact(8);
    let tail = chunks.remainder();
    for chunk in chunks {
        let mut part = u64::from_le_bytes(chunk.try_into().expect("eight bytes")).wrapping_mul(M);
        part ^= part >> R;
        hash = (hash ^ part.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut part = [0; 8];
        part[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(part)).wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> R
}
