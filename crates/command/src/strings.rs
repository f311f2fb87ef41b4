//! Commands on strings.

pub(crate) mod counter;
pub(crate) mod lcs;
pub(crate) mod set;

use bytes::{Bytes, BytesMut};
use resp::Reply;
use storage::{Meta, Value};

use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec, KEYS_AT_ONCE};
use crate::number::integer;

pub(crate) fn get(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(exec.find_string(&key)?.map_or(Reply::Nil, |string| Reply::Bulk(string.bytes)))
}

pub(crate) fn getdel(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(string) = exec.reading(|exec| exec.find_string(&key))? else { return Ok(Reply::Nil) };
    let meta = Meta { expire_at_ms: string.expire_at_ms, value: Value::String(string.bytes.clone()) };
    exec.remove(&key, &meta)?;
    Ok(Reply::Bulk(string.bytes))
}

pub(crate) fn mget(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let mut values = Vec::with_capacity(args.len() - 1);
    for keys in args[1..].chunks(KEYS_AT_ONCE) {
        for key in exec.keys(keys.iter()) {
            values.push(match exec.find(&key)? {
                Some(Meta { value: Value::String(bytes), .. }) => {
                    exec.hold(1, bytes.len())?;
                    Reply::Bulk(bytes)
                }
                _ => Reply::Nil,
            });
        }
    }
    Ok(Reply::Array(values))
}

pub(crate) fn mset(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    put_pairs(args, exec, "mset")?;
    Ok(Reply::OK)
}

pub(crate) fn msetnx(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    if args.len() % 2 == 0 {
        return fail(error_messages::wrong_arity_text("msetnx"));
    }
    for pair in args[1..].chunks_exact(2) {
        let key = exec.key(&pair[0]);
        if exec.find(&key)?.is_some() {
            return Ok(Reply::Int(0));
        }
    }
    put_pairs(args, exec, "msetnx")?;
    Ok(Reply::Int(1))
}

fn put_pairs(args: &[Bytes], exec: &mut Exec<'_, '_>, command: &str) -> CommandResult<()> {
    if args.len() % 2 == 0 {
        return fail(error_messages::wrong_arity_text(command));
    }
    for pairs in args[1..].chunks(2 * KEYS_AT_ONCE) {
        for (key, pair) in exec.keys(pairs.iter().step_by(2)).iter().zip(pairs.chunks_exact(2)) {
            let old = exec.find(key)?;
            exec.put_string(key, old.as_ref(), &pair[1], None)?;
        }
    }
    Ok(())
}

pub(crate) fn append(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let old = exec.find_string(&key)?;
    let before = old.as_ref().map_or(&b""[..], |old| &old.bytes);
    let len = checked_len(exec, before.len() as u64, args[2].len() as u64)?;
    let mut value = BytesMut::with_capacity(len);
    value.extend_from_slice(before);
    value.extend_from_slice(&args[2]);
    exec.update_string(&key, old.as_ref(), &value);
    Ok(Reply::Int(len as i64))
}

pub(crate) fn strlen(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Int(exec.find_string(&key)?.map_or(0, |string| string.bytes.len() as i64)))
}

pub(crate) fn getrange(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    let key = exec.key(&args[1]);
    let Some(string) = exec.find_string(&key)? else { return Ok(Reply::bulk("")) };
    let len = string.bytes.len() as i64;
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::bulk(""));
    }
    let position = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (position(start), position(end).min(len - 1));
    match start <= end {
        true => Ok(Reply::Bulk(string.bytes.slice(start as usize..=end as usize))),
        false => Ok(Reply::bulk("")),
    }
}

pub(crate) fn setrange(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let offset = integer(&args[2])?;
    let Ok(offset) = u64::try_from(offset) else { return fail(error_messages::OFFSET_OUT_OF_RANGE) };
    let key = exec.key(&args[1]);
    let old = exec.find_string(&key)?;
    let before = old.as_ref().map_or(&b""[..], |old| &old.bytes);
    if args[3].is_empty() {
        return Ok(Reply::Int(before.len() as i64));
    }
    let end = checked_len(exec, offset, args[3].len() as u64)?;
    let mut value = BytesMut::with_capacity(end.max(before.len()));
    value.extend_from_slice(before);
    value.resize(end.max(before.len()), 0);
    // The end was checked, so the smaller offset fits, too.
    value[offset as usize..end].copy_from_slice(&args[3]);
    exec.update_string(&key, old.as_ref(), &value);
    Ok(Reply::Int(value.len() as i64))
}

/// Returns the sum of two lengths, checked before anything of that length is allocated.
fn checked_len(exec: &Exec<'_, '_>, a: u64, b: u64) -> CommandResult<usize> {
    match a.checked_add(b) {
        Some(len) if len <= exec.limits.max_value_bytes => Ok(len as usize),
        _ => fail(error_messages::STRING_TOO_LONG),
    }
}
