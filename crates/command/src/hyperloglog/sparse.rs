//! Sparse registers: runs of equal values.
//!
//! ```text
//! 00xxxxxx           x + 1 registers are 0
//! 01xxxxxx xxxxxxxx  x + 1 registers are 0
//! 1vvvvvxx           x + 1 registers are v + 1
//! ```

use super::{HEADER_LEN, REGISTERS};

/// Redis's `hll-sparse-max-bytes`: the length, with the header, up to which the runs may grow.
const BYTES_MAX: usize = 3000;
const VALUE_MAX: u8 = 32;
const VALUE_RUN_MAX: usize = 4;
const SHORT_ZEROS_MAX: usize = 64;
/// Number of runs that are examined for equal neighbours after a change.
const JOINED_RUNS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub value: u8,
    pub len: usize,
    /// Bytes of its code.
    code: usize,
}

impl Run {
    fn decode(bytes: &[u8]) -> Option<Run> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        Some(match first >> 6 {
            0 => Run { value: 0, len: low + 1, code: 1 },
            1 => Run { value: 0, len: (low << 8 | usize::from(*bytes.get(1)?)) + 1, code: 2 },
            _ => Run { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, code: 1 },
        })
    }
}

/// Returns the runs. The last one is `None` if its code is cut.
pub(super) fn runs(mut registers: &[u8]) -> impl Iterator<Item = Option<Run>> + '_ {
    std::iter::from_fn(move || {
        if registers.is_empty() {
            return None;
        }
        let run = Run::decode(registers);
        registers = run.and_then(|run| registers.get(run.code..)).unwrap_or_default();
        Some(run)
    })
}

fn put(value: u8, len: usize, out: &mut Vec<u8>) {
    match (value, len) {
        (_, 0) => {}
        (0, len) if len > SHORT_ZEROS_MAX => {
            out.extend([0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]);
        }
        (0, len) => out.push((len - 1) as u8),
        (value, len) => out.push(0x80 | (value - 1) << 2 | (len - 1) as u8),
    }
}

/// Appends the code of registers that are all 0.
pub(super) fn put_zeros(out: &mut Vec<u8>) {
    put(0, REGISTERS, out);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raised {
    Unchanged,
    Changed,
    /// The value or the new length is too large.
    NeedsDense,
    Corrupt,
}

/// Raises a register of a HyperLogLog, which begins with its header.
pub(super) fn raise(bytes: &mut Vec<u8>, index: usize, value: u8) -> Raised {
    if value > VALUE_MAX {
        return Raised::NeedsDense;
    }
    let (mut at, mut first) = (HEADER_LEN, 0);
    let mut before = HEADER_LEN;
    let run = loop {
        let Some(run) = Run::decode(&bytes[at..]) else { return Raised::Corrupt };
        if index < first + run.len {
            break run;
        }
        before = at;
        at += run.code;
        first += run.len;
    };
    if run.value >= value {
        return Raised::Unchanged;
    }
    let mut codes = Vec::with_capacity(5);
    put(run.value, index - first, &mut codes);
    put(value, 1, &mut codes);
    put(run.value, first + run.len - index - 1, &mut codes);
    if codes.len() > run.code && bytes.len() + codes.len() - run.code > BYTES_MAX {
        return Raised::NeedsDense;
    }
    bytes.splice(at..at + run.code, codes);
    join_equal(bytes, before);
    Raised::Changed
}

/// Joins neighbours with equal values near a change.
fn join_equal(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_RUNS {
        let Some(run) = bytes.get(at..).and_then(Run::decode) else { return };
        let next = bytes.get(at + run.code..).and_then(Run::decode);
        match next {
            Some(next) if run.value > 0 && next.value == run.value && run.len + next.len <= VALUE_RUN_MAX => {
                let mut joined = Vec::with_capacity(1);
                put(run.value, run.len + next.len, &mut joined);
                bytes.splice(at..at + 2, joined);
            }
            _ => at += run.code,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn registers(bytes: &[u8]) -> Vec<u8> {
        let runs = runs(&bytes[HEADER_LEN..]);
        runs.map(|run| run.expect("whole codes")).flat_map(|run| vec![run.value; run.len]).collect()
    }

    proptest! {
        #[test]
        fn sparse_registers_are_an_array(
            raised in proptest::collection::vec((0..REGISTERS, 0..200usize, 1..33u8), 0..400)
        ) {
            let mut bytes = vec![0; HEADER_LEN];
            put_zeros(&mut bytes);
            let mut model = vec![0; REGISTERS];
            for (index, near, value) in raised {
                let index = if value % 2 == 0 { near } else { index };
                let expected = if model[index] < value { Raised::Changed } else { Raised::Unchanged };
                prop_assert_eq!(raise(&mut bytes, index, value), expected);
                model[index] = model[index].max(value);
                prop_assert!(bytes.len() <= BYTES_MAX);
            }
            prop_assert_eq!(registers(&bytes), model);
        }

        #[test]
        fn damaged_runs_do_not_panic(codes in proptest::collection::vec(any::<u8>(), 0..40), index in 0..REGISTERS) {
            let mut bytes = vec![0; HEADER_LEN];
            bytes.extend(codes);
            let _ = raise(&mut bytes, index, 7);
            let _ = runs(&bytes[HEADER_LEN..]).count();
        }
    }
}
