//! Random numbers from a seed. A run has only one generator, so that it is a function of its seed.

use types::Draw;

#[derive(Clone, Debug)]
pub struct Rng(Draw);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(Draw::new(seed))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.number()
    }

    /// Returns a number in `0..bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let drawn = self.draw();
        if bound == 0 {
            0
        } else {
            drawn % bound
        }
    }

    /// Returns a number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len() as u64);
        from.get(at as usize).copied()
    }
}

/// Adds bytes to a chain of hashes, which digests a run or rows.
pub fn fold(hash: u64, bytes: &[u8]) -> u64 {
    let start = hash ^ (bytes.len() as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mut chunks = bytes.chunks_exact(8);
    let mut hash = start;
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    let rest = chunks.remainder().iter().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    (hash ^ rest).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(31)
}
