//! The estimate of the number of elements: Otmar Ertl, *New cardinality estimation algorithms for
//! HyperLogLog sketches* (arXiv:1702.01284), as in Redis.
//!
//! It uses only operations that IEEE 754 defines exactly, so all replicas compute the same number.

use super::hash::COUNTED_BITS;
use super::{Registers, REGISTERS};

/// 0.5 / ln 2.
const ALPHA: f64 = 0.721_347_520_444_481_7;

pub(super) fn of(registers: &Registers) -> u64 {
    let mut histogram = [0u32; 64];
    registers.iter().for_each(|value| histogram[usize::from(*value).min(63)] += 1);
    let count = REGISTERS as f64;
    let full = f64::from(histogram[COUNTED_BITS as usize + 1]);
    let mut z = count * tau((count - full) / count);
    for value in (1..=COUNTED_BITS as usize).rev() {
        z = (z + f64::from(histogram[value])) * 0.5;
    }
    z += count * sigma(f64::from(histogram[0]) / count);
    (ALPHA * count * count / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}
