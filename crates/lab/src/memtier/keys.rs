//! Patterns of keys.

use std::f64::consts::TAU;
use std::str::FromStr;

use types::Draw;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each client goes through all keys in their order.
    Sequential,
    /// Each client goes through a part of the keys of its own.
    Parallel,
    /// Every key is drawn equally often.
    Random,
    /// A normal distribution.
    Gaussian,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        match text {
            "S" => Ok(Pattern::Sequential),
            "P" => Ok(Pattern::Parallel),
            "R" => Ok(Pattern::Random),
            "G" => Ok(Pattern::Gaussian),
            _ => Err(format!("there is no key pattern '{text}': use S, P, R or G")),
        }
    }
}

/// The keys of a load. Those of a Gaussian pattern lie around the median; by default that is the
/// middle, with a sixth of the range as the standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub least: u64,
    /// Not below `least`.
    pub most: u64,
    pub median: Option<f64>,
    pub deviation: Option<f64>,
}

/// The keys of one client, for one kind of command.
pub struct Keys {
    pattern: Pattern,
    range: Range,
    /// The keys that a sequence goes through, and the next of them.
    part: [u64; 2],
    next: u64,
    draw: Draw,
}

impl Keys {
    pub fn new(pattern: Pattern, range: Range, client: u64, clients: u64, seed: u64) -> Keys {
        let count = (range.most - range.least).saturating_add(1);
        let share = |number: u64| {
            let at = u128::from(count) * u128::from(number) / u128::from(clients.max(1));
            range.least + u64::try_from(at).unwrap_or(u64::MAX)
        };
        let part = match pattern {
            // If there are more clients than keys, a client without keys of its own has all.
            Pattern::Parallel if share(client) < share(client + 1) => [share(client), share(client + 1) - 1],
            _ => [range.least, range.most],
        };
        let draw = Draw::new(seed.wrapping_mul(1_000_003).wrapping_add(client));
        Keys { pattern, range, part, next: part[0], draw }
    }

    pub fn next(&mut self) -> u64 {
        let Range { least, most, median, deviation } = self.range;
        match self.pattern {
            Pattern::Sequential | Pattern::Parallel => {
                let key = self.next;
                self.next = if key >= self.part[1] { self.part[0] } else { key + 1 };
                key
            }
            Pattern::Random => least + self.draw.below((most - least).saturating_add(1)),
            Pattern::Gaussian => {
                let median = median.unwrap_or((least as f64 + most as f64) / 2.0);
                let deviation = deviation.unwrap_or((most - least) as f64 / 6.0);
                // Values outside of the range are drawn again, as the tool does, but not forever.
                for _ in 0..100 {
                    let value = median + deviation * self.normal();
                    if (least as f64..=most as f64).contains(&value) {
                        return (value.round() as u64).clamp(least, most);
                    }
                }
                (median.max(0.0) as u64).clamp(least, most)
            }
        }
    }

    /// Draws from the standard normal distribution, by the Box-Muller method.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.draw.fraction()).ln()).sqrt();
        radius * (TAU * self.draw.fraction()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { least: 100, most: 199, median: None, deviation: None };

    fn keys(pattern: &str, range: Range, client: u64, count: usize) -> Vec<u64> {
        let mut keys = Keys::new(pattern.parse().unwrap(), range, client, 4, 1);
        (0..count).map(|_| keys.next()).collect()
    }

    #[test]
    fn sequences_go_round_and_parallel_ones_share_the_keys() {
        assert_eq!(keys("S", RANGE, 3, 101)[99..], [199, 100]);
        assert_eq!(keys("P", RANGE, 1, 26), (125..150).chain([125]).collect::<Vec<u64>>());
        let few = Range { most: 101, ..RANGE };
        assert!((0..4).all(|client| keys("P", few, client, 5).iter().all(|key| (100..=101).contains(key))));
    }

    #[test]
    fn random_keys_are_even_and_gaussian_ones_lie_around_the_median() {
        let spread = |of: &[u64]| {
            let mean = of.iter().sum::<u64>() as f64 / of.len() as f64;
            let variance = of.iter().map(|key| (*key as f64 - mean).powi(2)).sum::<f64>() / of.len() as f64;
            (mean, variance.sqrt())
        };
        let (mean, deviation) = spread(&keys("R", RANGE, 0, 20_000));
        assert!((148.0..151.0).contains(&mean) && (28.0..30.0).contains(&deviation), "{mean} {deviation}");
        let (mean, deviation) = spread(&keys("G", RANGE, 0, 20_000));
        assert!((148.0..151.0).contains(&mean) && (15.5..17.5).contains(&deviation), "{mean} {deviation}");
        let narrow = Range { median: Some(120.0), deviation: Some(2.0), ..RANGE };
        let (mean, deviation) = spread(&keys("G", narrow, 0, 20_000));
        assert!((119.5..120.5).contains(&mean) && (1.8..2.2).contains(&deviation), "{mean} {deviation}");
        let outside = Range { median: Some(9e9), ..RANGE };
        assert_eq!(keys("G", outside, 0, 1), [199]);
        assert_ne!(keys("R", RANGE, 0, 9), keys("R", RANGE, 1, 9), "clients differ");
        assert!("X".parse::<Pattern>().is_err());
    }
}
