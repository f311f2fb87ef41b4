//! Latencies of operations.

use hdrhistogram::Histogram;

/// Returns a histogram of microseconds from 1 to 100 s, with three significant digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000, 3).expect("constant bounds are valid")
}
