//! `math.random` as Redis defines it: the generator of `drand48`, whose numbers are the same on
//! every machine.

const A: u64 = 0x5_DEEC_E66D;
const C: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
const MAX: i32 = i32::MAX;

#[derive(Default)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: i32) -> Random {
        Random((u64::from(seed as u32) << 16) | 0x330E)
    }

    /// Returns the generator of a script with this seed.
    pub fn of_seed(seed: u64) -> Random {
        Random::new((seed ^ (seed >> 32)) as i32)
    }

    /// Returns a number from 0 to 1, exclusively.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(A).wrapping_add(C) & MASK;
        let high = (self.0 >> 17) as i32;
        f64::from(high % MAX) / f64::from(MAX)
    }
}
