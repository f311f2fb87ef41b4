//! Pseudorandom numbers from a seed: SplitMix64 (Steele, Lea, Flood, *Fast Splittable Pseudorandom
//! Number Generators*, 2014).
//!
//! Invariant: the numbers that follow from a seed never change. Replicas execute with them, and
//! runs are repeated by their seed.

#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 up to but not including 1, in steps of 2^-53.
    pub fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number in `0..bound`, uniform up to a bias below bound / 2^64. Returns 0 if the
    /// bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }
}

/// SplitMix64's finalizer, a bijection that maps close numbers to distant ones.
pub fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_numbers_of_splitmix64() {
        // The first numbers of the authors' generator for this seed.
        let mut draw = Draw::new(1_234_567);
        for number in [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423] {
            assert_eq!(draw.number(), number);
        }
    }

    #[test]
    fn draws_are_even_and_differ_with_their_seed() {
        let mut counts = [0u32; 10];
        let mut draw = Draw::new(7);
        for _ in 0..100_000 {
            counts[draw.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
        let mean = (0..100_000).map(|_| draw.fraction()).sum::<f64>() / 100_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
        assert_ne!(Draw::new(7).number(), Draw::new(8).number());
        assert_eq!((draw.below(0), draw.below(1)), (0, 0));
    }
}
