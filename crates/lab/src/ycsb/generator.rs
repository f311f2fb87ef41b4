//! Request distributions: which record an operation goes to. They are YCSB's, with YCSB's
//! constants, so that figures are comparable with those that others measured.
//!
//! The zipfian generator is that of Gray et al., "Quickly Generating Billion-Record Synthetic
//! Databases" (SIGMOD 1994), as implemented in YCSB. All of them draw from a [`Draw`], so a seed
//! repeats a run.

use types::Draw;

/// The exponent of YCSB's zipfian distribution.
pub const ZIPFIAN_CONSTANT: f64 = 0.99;

/// Number of items that the scrambled generator draws from before it hashes. It is so large that
/// the number of records does not change the shape of the distribution.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// zeta(`SCRAMBLED_ITEMS`, 0.99) as a constant, because the sum takes long.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// A generator of ranks 0, 1, 2, ... with probability proportional to 1 / (rank + 1)^0.99.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    /// The sum of 1 / i^theta over all items.
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    pub fn new(items: u64) -> Zipfian {
        Zipfian::with_zeta(items, zeta(0, items, 0.0))
    }

    fn with_zeta(items: u64, zeta_of_items: f64) -> Zipfian {
        assert!(items > 0, "a distribution needs items");
        let mut zipfian =
            Zipfian { items, zeta: zeta_of_items, alpha: 1.0 / (1.0 - ZIPFIAN_CONSTANT), eta: 0.0 };
        zipfian.set_eta();
        zipfian
    }

    fn set_eta(&mut self) {
        let zeta_of_two = zeta(0, 2, 0.0);
        self.eta =
            (1.0 - (2.0 / self.items as f64).powf(1.0 - ZIPFIAN_CONSTANT)) / (1.0 - zeta_of_two / self.zeta);
    }

    /// Raises the number of items. Takes time in proportion to the new items.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta = zeta(self.items, items, self.zeta);
            self.items = items;
            self.set_eta();
        }
    }

    pub fn rank(&self, draw: &mut Draw) -> u64 {
        let u = draw.fraction();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(ZIPFIAN_CONSTANT) {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// Returns `known` plus the terms of items `from` to `to`.
fn zeta(from: u64, to: u64, known: f64) -> f64 {
    (from..to).fold(known, |sum, item| sum + 1.0 / ((item + 1) as f64).powf(ZIPFIAN_CONSTANT))
}

/// Returns the absolute value of FNV-1a over the number's eight bytes, as YCSB does.
pub fn fnv_hash(number: u64) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash =
        number.to_be_bytes().iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    (hash as i64).unsigned_abs()
}

/// A generator of record numbers. The number of records may grow while the load runs.
#[derive(Clone, Debug)]
pub enum Chooser {
    Uniform,
    /// A few records are popular. They are spread over a key space of this many records, some of
    /// which may not be inserted yet.
    Scrambled(Zipfian, u64),
    /// The newest records are popular.
    Latest(Zipfian),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    Uniform,
    Zipfian,
    Latest,
}

impl Distribution {
    pub const NAMES: [&'static str; 3] = ["uniform", "zipfian", "latest"];

    pub fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        match text {
            "uniform" => Ok(Distribution::Uniform),
            "zipfian" => Ok(Distribution::Zipfian),
            "latest" => Ok(Distribution::Latest),
            other => Err(format!(
                "'{other}' is no distribution; the distributions are {}",
                Distribution::NAMES.join(", ")
            )),
        }
    }
}

impl Chooser {
    /// Creates a generator. `coming` is the maximum number of inserts. Without it each insert would
    /// change which records are popular.
    pub fn new(distribution: Distribution, records: u64, coming: u64) -> Chooser {
        match distribution {
            Distribution::Uniform => Chooser::Uniform,
            Distribution::Zipfian => {
                let zipfian = Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA);
                Chooser::Scrambled(zipfian, records.saturating_add(coming))
            }
            Distribution::Latest => Chooser::Latest(Zipfian::new(records.max(1))),
        }
    }

    /// Returns a number below `records`, which must never shrink.
    pub fn next(&mut self, records: u64, draw: &mut Draw) -> u64 {
        assert!(records > 0, "there must be a record to choose");
        match self {
            Chooser::Uniform => draw.below(records),
            Chooser::Scrambled(zipfian, items) => loop {
                let record = fnv_hash(zipfian.rank(draw)) % *items;
                if record < records {
                    return record;
                }
            },
            Chooser::Latest(zipfian) => {
                zipfian.grow(records);
                records - 1 - zipfian.rank(draw).min(records - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    fn counts(chooser: &mut Chooser, records: u64, seed: u64) -> Vec<u32> {
        let mut draw = Draw::new(seed);
        let mut counts = vec![0u32; records as usize];
        for _ in 0..DRAWS {
            counts[chooser.next(records, &mut draw) as usize] += 1;
        }
        counts
    }

    /// Returns the sum of (observed - expected)^2 / expected.
    fn chi_square(observed: &[u32], expected: impl Fn(usize) -> f64) -> f64 {
        observed.iter().enumerate().map(|(i, n)| (f64::from(*n) - expected(i)).powi(2) / expected(i)).sum()
    }

    #[test]
    fn uniform_requests_are_even() {
        let counts = counts(&mut Chooser::Uniform, 1000, 1);
        // 999 degrees of freedom: mean 999, standard deviation 44.7. The bound is five of them.
        let chi = chi_square(&counts, |_| f64::from(DRAWS) / 1000.0);
        assert!((999.0 - 224.0..999.0 + 224.0).contains(&chi), "{chi}");
    }

    /// The generator is exact for the first two ranks and interpolates the others.
    #[test]
    fn zipfian_ranks_follow_the_law() {
        let items = 1000;
        let zipfian = Zipfian::new(items);
        let mut draw = Draw::new(2);
        let mut counts = vec![0u32; items as usize];
        for _ in 0..DRAWS {
            counts[zipfian.rank(&mut draw) as usize] += 1;
        }
        let of = |rank: usize| 1.0 / ((rank + 1) as f64).powf(ZIPFIAN_CONSTANT) / zeta(0, items, 0.0);
        let expected = |rank: usize| of(rank) * f64::from(DRAWS);
        let head = chi_square(&counts[..2], expected);
        assert!(head < 20.0, "{head}");
        for (from, to) in [(2, 10), (10, 100), (100, 1000)] {
            let seen: u32 = counts[from..to].iter().sum();
            let wanted: f64 = (from..to).map(expected).sum();
            assert!((f64::from(seen) / wanted - 1.0).abs() < 0.15, "{from}..{to}: {seen} of {wanted}");
        }
        assert!(counts.windows(2).take(3).all(|pair| pair[0] > pair[1]));
    }

    /// The popularity of the popular records does not depend on the number of records, and they lie
    /// anywhere.
    #[test]
    fn scrambled_requests_are_skewed_and_spread() {
        let records = 10_000;
        let mut counts = counts(&mut Chooser::new(Distribution::Zipfian, records, 0), records, 3);
        let hottest = counts.iter().enumerate().max_by_key(|(_, n)| **n).unwrap().0 as u64;
        assert_eq!(hottest, fnv_hash(0) % records);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |n: usize| f64::from(counts[..n].iter().sum::<u32>()) / f64::from(DRAWS);
        // 1 / zeta(10^10) is 3.8% for the first item alone, zeta(100) / zeta(10^10) is 20% for a
        // hundred.
        assert!((0.034..0.042).contains(&share(1)), "{}", share(1));
        assert!((0.19..0.24).contains(&share(100)), "{}", share(100));
        assert!(counts.iter().filter(|n| **n > 0).count() > 9_000, "every record is asked for now and then");
    }

    #[test]
    fn popular_records_stay_popular_while_others_are_inserted() {
        let hottest = |records| {
            let mut chooser = Chooser::new(Distribution::Zipfian, 1000, 500);
            let counts = counts(&mut chooser, records, 5);
            counts.iter().enumerate().max_by_key(|(_, n)| **n).unwrap().0
        };
        assert_eq!(hottest(1000), hottest(1400));
    }

    #[test]
    fn latest_requests_prefer_the_newest_and_follow_growth() {
        let mut chooser = Chooser::new(Distribution::Latest, 100, 0);
        let counts = counts(&mut chooser, 1000, 4);
        assert!(counts[999] > counts[998] && counts[998] > counts[500] * 10, "{:?}", &counts[990..]);
        let newest = f64::from(counts[999]) / f64::from(DRAWS);
        let law = 1.0 / zeta(0, 1000, 0.0);
        assert!((newest / law - 1.0).abs() < 0.05, "{newest} of {law}");
    }

    #[test]
    fn growing_step_by_step_equals_growing_at_once() {
        let mut grown = Zipfian::new(10);
        (11..=500).for_each(|items| grown.grow(items));
        let whole = Zipfian::new(500);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9 && (grown.eta - whole.eta).abs() < 1e-9);
        assert_eq!(Zipfian::new(1).rank(&mut Draw::new(9)), 0);
    }

    /// The hash has YCSB's values, so that the popular keys are the same.
    #[test]
    fn the_hash_is_ycsbs() {
        // FNV-1a of eight zero bytes is 0xa8c7f832281a39c5, negative as an i64.
        assert_eq!(fnv_hash(0), (0xa8c7_f832_281a_39c5u64 as i64).unsigned_abs());
        assert_ne!(fnv_hash(1), fnv_hash(2));
    }
}
