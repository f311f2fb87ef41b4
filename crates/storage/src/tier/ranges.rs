//! Ranges of rows that are looked up by a row.

use bytes::Bytes;

/// Ranges that do not touch each other, ascending.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<(Bytes, Bytes)>);

impl Ranges {
    /// Joins ranges `from..to` in any order.
    pub fn of(ranges: &[(Bytes, Bytes)]) -> Ranges {
        let mut ascending: Vec<&(Bytes, Bytes)> = ranges.iter().filter(|(from, to)| from < to).collect();
        ascending.sort_unstable();
        let mut joined: Vec<(Bytes, Bytes)> = Vec::new();
        for (from, to) in ascending {
            match joined.last_mut() {
                Some((_, end)) if from <= end => *end = end.clone().max(to.clone()),
                _ => joined.push((from.clone(), to.clone())),
            }
        }
        Ranges(joined)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> &[(Bytes, Bytes)] {
        &self.0
    }

    /// Returns true if a row is in one of the ranges.
    pub fn contain(&self, row: &[u8]) -> bool {
        let behind = self.0.partition_point(|(from, _)| from[..] <= *row);
        behind.checked_sub(1).is_some_and(|at| *row < self.0[at].1[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(&'static str, &'static str)]) -> Ranges {
        let all: Vec<_> = all.iter().map(|(from, to)| (Bytes::from(*from), Bytes::from(*to))).collect();
        Ranges::of(&all)
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        let joined =
            ranges(&[("k", "m"), ("a", "c"), ("c", "d"), ("l", "p"), ("b", "b"), ("l", "m"), ("z", "y")]);
        let expected: Vec<_> = [("a", "d"), ("k", "p")].map(|(a, b)| (Bytes::from(a), Bytes::from(b))).into();
        assert_eq!(joined.0, expected);
        assert!(ranges(&[("b", "a")]).is_empty());
    }

    #[test]
    fn a_row_is_in_a_range_from_its_beginning_until_before_its_end() {
        let ranges = ranges(&[("b", "d"), ("f", "g")]);
        for (row, expected) in
            [("a", false), ("b", true), ("cz", true), ("d", false), ("e", false), ("f", true), ("g", false)]
        {
            assert_eq!(ranges.contain(row.as_bytes()), expected, "{row}");
        }
        assert!(!Ranges::default().contain(b"a"));
    }
}
