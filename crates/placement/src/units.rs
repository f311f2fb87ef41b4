//! Numbers as people read them.

use std::fmt;

pub(crate) struct BytesPerSecond(pub u64);

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 3] = [(1_000_000_000, "GB/s"), (1_000_000, "MB/s"), (1_000, "KB/s")];
        match STEPS.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{} B/s", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_short() {
        let shown = |speed| BytesPerSecond(speed).to_string();
        assert_eq!(shown(1), "1 B/s");
        assert_eq!(shown(62_500_000), "62.5 MB/s");
        assert_eq!(shown(5_000_000_000), "5.0 GB/s");
    }
}
