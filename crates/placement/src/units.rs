//! Numbers with units, and how sentences show them.

use std::fmt;

/// Returns a number in thousandths.
pub(crate) fn permille(value: f64) -> u64 {
    (value * 1000.0).round() as u64
}

pub(crate) struct Bytes(pub u64);

pub(crate) struct BytesPerSecond(pub u64);

pub(crate) struct Nanos(pub u64);

/// A share in thousandths.
pub(crate) struct Percent(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 4] =
            [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
        match STEPS.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as f64 / 1e6 {
            ms if ms < 0.1 => write!(f, "{:.0} us", ms * 1e3),
            ms => write!(f, "{ms:.1} ms"),
        }
    }
}

/// An amount of CPU in thousandths of a core.
pub(crate) struct Cores(pub u64);

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1000 => f.write_str("1 core"),
            whole if whole % 1000 == 0 => write!(f, "{} cores", whole / 1000),
            part => write!(f, "{:.1} cores", part as f64 / 1e3),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}%", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_sizes_and_parts_are_short() {
        let speed = |speed| BytesPerSecond(speed).to_string();
        assert_eq!(speed(1), "1 B/s");
        assert_eq!(speed(62_500_000), "62.5 MB/s");
        assert_eq!(speed(5_000_000_000), "5.0 GB/s");
        assert_eq!(Bytes(2_500_000_000_000).to_string(), "2.5 TB");
        assert_eq!(Nanos(20_400).to_string(), "20 us");
        assert_eq!(Nanos(160_000_000).to_string(), "160.0 ms");
        let cores = [500, 1000, 4000, 2500].map(|cores| Cores(cores).to_string());
        assert_eq!(cores, ["0.5 cores", "1 core", "4 cores", "2.5 cores"]);
        assert_eq!(Percent(1234).to_string(), "123.4%");
    }
}
