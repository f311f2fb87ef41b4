//! HyperLogLogs in Redis's representation: a string with a header and 16384 registers of 6 bits.
//!
//! ```text
//! "HYLL" | encoding u8 (0: dense, 1: sparse) | 3 zeros | estimate u64, little-endian | registers
//! ```
//!
//! Bit 63 of the estimate means that it must be computed again. `PFCOUNT` of one key stores the
//! estimate, so such a read goes through the log.

mod dense;
mod estimate;
mod hash;
mod sparse;

use bytes::Bytes;
use resp::Reply;

use crate::exec::{fail, CommandError, CommandResult, Exec, Key, Mode, StringValue};

const MAGIC: &[u8; 4] = b"HYLL";
const HEADER_LEN: usize = 16;
const ESTIMATE_AT: usize = 8;
const ENCODING_AT: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The bit of the estimate's last byte that marks it as outdated.
const OUTDATED: u8 = 1 << 7;
const REGISTER_BITS: usize = 6;
const REGISTERS: usize = 1 << hash::INDEX_BITS;
const DENSE_LEN: usize = HEADER_LEN + REGISTERS * REGISTER_BITS / 8;

const NOT_A_HYPERLOGLOG: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
const CORRUPT: &str = "INVALIDOBJ Corrupted HLL object detected";

/// The registers of a union, one byte each.
type Registers = [u8; REGISTERS];

/// A HyperLogLog as the bytes of its string.
struct HyperLogLog {
    bytes: Vec<u8>,
}

impl HyperLogLog {
    fn new() -> HyperLogLog {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        sparse::put_zeros(&mut bytes);
        HyperLogLog { bytes }
    }

    /// Checks the header of a string.
    fn open(bytes: &[u8]) -> CommandResult<HyperLogLog> {
        let has_header = bytes.len() >= HEADER_LEN && bytes.starts_with(MAGIC);
        let is_valid = has_header
            && match bytes[ENCODING_AT] {
                DENSE => bytes.len() == DENSE_LEN,
                SPARSE => true,
                _ => false,
            };
        if is_valid {
            Ok(HyperLogLog { bytes: bytes.to_vec() })
        } else {
            fail(NOT_A_HYPERLOGLOG)
        }
    }

    fn is_dense(&self) -> bool {
        self.bytes[ENCODING_AT] == DENSE
    }

    fn estimate(&self) -> Option<u64> {
        let stored: [u8; 8] = self.bytes[ESTIMATE_AT..HEADER_LEN].try_into().expect("eight bytes");
        (stored[7] & OUTDATED == 0).then(|| u64::from_le_bytes(stored))
    }

    fn set_estimate(&mut self, estimate: u64) {
        self.bytes[ESTIMATE_AT..HEADER_LEN].copy_from_slice(&estimate.to_le_bytes());
    }

    fn forget_estimate(&mut self) {
        self.bytes[HEADER_LEN - 1] |= OUTDATED;
    }

    /// Raises a register to a value. Returns true if it was lower.
    fn raise(&mut self, index: usize, value: u8) -> CommandResult<bool> {
        if self.is_dense() {
            return Ok(dense::raise(&mut self.bytes[HEADER_LEN..], index, value));
        }
        match sparse::raise(&mut self.bytes, index, value) {
            sparse::Raised::Unchanged => Ok(false),
            sparse::Raised::Changed => {
                self.forget_estimate();
                Ok(true)
            }
            sparse::Raised::NeedsDense => {
                self.make_dense()?;
                Ok(dense::raise(&mut self.bytes[HEADER_LEN..], index, value))
            }
            sparse::Raised::Corrupt => fail(CORRUPT),
        }
    }

    fn make_dense(&mut self) -> CommandResult<()> {
        if self.is_dense() {
            return Ok(());
        }
        let mut registers = [0; REGISTERS];
        self.merge_into(&mut registers)?;
        self.bytes.truncate(HEADER_LEN);
        self.bytes.resize(DENSE_LEN, 0);
        self.bytes[ENCODING_AT] = DENSE;
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            dense::raise(&mut self.bytes[HEADER_LEN..], index, *value);
        }
        Ok(())
    }

    /// Raises the registers of a union to those of this one.
    fn merge_into(&self, union: &mut Registers) -> CommandResult<()> {
        let registers = &self.bytes[HEADER_LEN..];
        if self.is_dense() {
            for (index, value) in union.iter_mut().enumerate() {
                *value = dense::register(registers, index).max(*value);
            }
            return Ok(());
        }
        let mut index = 0;
        for run in sparse::runs(registers) {
            let Some(part) = run.and_then(|run| Some((run, union.get_mut(index..index + run.len)?))) else {
                return fail(CORRUPT);
            };
            let (run, part) = part;
            part.iter_mut().for_each(|value| *value = run.value.max(*value));
            index += run.len;
        }
        if index == REGISTERS {
            Ok(())
        } else {
            fail(CORRUPT)
        }
    }
}

/// Returns the HyperLogLog of a key and its string.
fn find(exec: &mut Exec<'_, '_>, key: &Key<'_>) -> CommandResult<Option<(StringValue, HyperLogLog)>> {
    let Some(string) = exec.find_string(key)? else { return Ok(None) };
    let hyperloglog = HyperLogLog::open(&string.bytes)?;
    Ok(Some((string, hyperloglog)))
}

pub(crate) fn pfadd(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let (old, mut hyperloglog) = match find(exec, &key)? {
        Some((old, hyperloglog)) => (Some(old), hyperloglog),
        None => (None, HyperLogLog::new()),
    };
    let mut is_changed = old.is_none();
    for element in &args[2..] {
        let (index, value) = hash::register_of(element);
        is_changed |= hyperloglog.raise(index, value)?;
    }
    if is_changed {
        hyperloglog.forget_estimate();
        exec.update_string(&key, old.as_ref(), &hyperloglog.bytes);
    }
    Ok(Reply::Int(is_changed.into()))
}

pub(crate) fn pfcount(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    if let [_, name] = args {
        return count_one(name, exec);
    }
    let (union, _) = unite(&args[1..], exec)?;
    Ok(Reply::Int(estimate::of(&union) as i64))
}

fn count_one(name: &[u8], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(name);
    let Some((old, mut hyperloglog)) = find(exec, &key)? else { return Ok(Reply::Int(0)) };
    if let Some(estimate) = hyperloglog.estimate() {
        return Ok(Reply::Int(estimate as i64));
    }
    let mut registers = [0; REGISTERS];
    hyperloglog.merge_into(&mut registers)?;
    if exec.mode == Mode::Read {
        return Err(CommandError::NeedsApply);
    }
    let estimate = estimate::of(&registers);
    hyperloglog.set_estimate(estimate);
    exec.update_string(&key, Some(&old), &hyperloglog.bytes);
    Ok(Reply::Int(estimate as i64))
}

/// Returns the registers of the keys' union, and true if one of them is dense.
fn unite(names: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<(Registers, bool)> {
    let mut union = [0; REGISTERS];
    let mut has_dense = false;
    for name in names {
        let key = exec.key(name);
        let Some((_, hyperloglog)) = find(exec, &key)? else { continue };
        has_dense |= hyperloglog.is_dense();
        hyperloglog.merge_into(&mut union)?;
    }
    Ok((union, has_dense))
}

pub(crate) fn pfmerge(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (union, has_dense) = exec.reading(|exec| unite(&args[1..], exec))?;
    let key = exec.key(&args[1]);
    let (old, mut merged) = match find(exec, &key)? {
        Some((old, merged)) => (Some(old), merged),
        None => (None, HyperLogLog::new()),
    };
    if has_dense {
        merged.make_dense()?;
    }
    for (index, value) in union.iter().enumerate().filter(|(_, value)| **value > 0) {
        merged.raise(index, *value)?;
    }
    merged.forget_estimate();
    exec.update_string(&key, old.as_ref(), &merged.bytes);
    Ok(Reply::OK)
}
