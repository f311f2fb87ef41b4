//! `BITOP`.

use bytes::Bytes;
use resp::Reply;

use super::find_bytes;
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};

pub(crate) fn bitop(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let combine: Option<fn(u8, u8) -> u8> = match &args[1] {
        word if word.eq_ignore_ascii_case(b"AND") => Some(|a, b| a & b),
        word if word.eq_ignore_ascii_case(b"OR") => Some(|a, b| a | b),
        word if word.eq_ignore_ascii_case(b"XOR") => Some(|a, b| a ^ b),
        word if word.eq_ignore_ascii_case(b"NOT") => None,
        _ => return fail(error_messages::SYNTAX),
    };
    if combine.is_none() && args.len() != 4 {
        return fail("ERR BITOP NOT must be called with a single source key.");
    }
    let mut sources = Vec::with_capacity(args.len() - 3);
    for name in &args[3..] {
        let key = exec.key(name);
        sources.push(exec.reading(|exec| find_bytes(exec, &key))?.unwrap_or_default());
    }
    let len = sources.iter().map(Bytes::len).max().unwrap_or(0);
    let mut result = sources[0].to_vec();
    result.resize(len, 0);
    match combine {
        None => result.iter_mut().for_each(|byte| *byte = !*byte),
        Some(combine) => {
            for source in &sources[1..] {
                // Zeros follow a shorter string.
                let padded = source.iter().copied().chain(std::iter::repeat(0));
                result.iter_mut().zip(padded).for_each(|(byte, other)| *byte = combine(*byte, other));
            }
        }
    }
    let key = exec.key(&args[2]);
    let old = exec.find(&key)?;
    match (len, old) {
        (0, Some(old)) => exec.remove(&key, &old)?,
        (0, None) => {}
        (_, old) => exec.put_string(&key, old.as_ref(), &result, None)?,
    }
    Ok(Reply::Int(len as i64))
}
