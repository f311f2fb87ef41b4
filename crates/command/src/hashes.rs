//! Hashes: a meta row with the number of fields, and one row per field.

pub(crate) mod hscan;
pub(crate) mod numbers;

use bytes::Bytes;
use resp::Reply;
use storage::KeyRef;

use crate::elements::{all_elements, delete_elements, element_row, Writing};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandResult, Exec, Key};

fn get_field(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    hash: Collection,
    field: &[u8],
) -> CommandResult<Option<Bytes>> {
    Ok(exec.txn.get(&element_row(key, hash.generation, field))?)
}

pub(crate) fn hset(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    Ok(Reply::Int(set_pairs(args, exec, "hset")?))
}

pub(crate) fn hmset(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    set_pairs(args, exec, "hmset")?;
    Ok(Reply::OK)
}

fn set_pairs(args: &[Bytes], exec: &mut Exec<'_, '_>, command: &str) -> CommandResult<i64> {
    if args.len() % 2 != 0 {
        return fail(error_messages::wrong_arity_text(command));
    }
    let key = exec.key(&args[1]);
    let old = exec.find_hash(&key)?;
    let mut writing = Writing::begin(exec, CollectionKind::Hash, old);
    let mut created = 0;
    for pair in args[2..].chunks_exact(2) {
        created += i64::from(writing.set(exec, &key, &pair[0], pair[1].clone())?);
    }
    writing.finish(exec, &key);
    Ok(created)
}

pub(crate) fn hsetnx(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let old = exec.find_hash(&key)?;
    if let Some(old) = old {
        if get_field(exec, &key, old, &args[2])?.is_some() {
            return Ok(Reply::Int(0));
        }
    }
    let mut writing = Writing::begin(exec, CollectionKind::Hash, old);
    writing.set(exec, &key, &args[2], args[3].clone())?;
    writing.finish(exec, &key);
    Ok(Reply::Int(1))
}

pub(crate) fn hget(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(hash) = exec.find_hash(&key)? else { return Ok(Reply::Nil) };
    Ok(get_field(exec, &key, hash, &args[2])?.map_or(Reply::Nil, Reply::Bulk))
}

pub(crate) fn hmget(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let hash = exec.find_hash(&key)?;
    let value = |field: &Bytes| match hash {
        Some(hash) => {
            let value = get_field(exec, &key, hash, field)?;
            exec.hold(1, value.as_ref().map_or(0, Bytes::len))?;
            Ok(value.map_or(Reply::Nil, Reply::Bulk))
        }
        None => Ok(Reply::Nil),
    };
    Ok(Reply::Array(args[2..].iter().map(value).collect::<CommandResult<Vec<_>>>()?))
}

pub(crate) fn hgetall(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let fields = fields_of(args, exec)?;
    Ok(Reply::Map(fields.into_iter().map(|(f, v)| (Reply::Bulk(f), Reply::Bulk(v))).collect()))
}

pub(crate) fn hkeys(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    Ok(Reply::Array(fields_of(args, exec)?.into_iter().map(|(field, _)| Reply::Bulk(field)).collect()))
}

pub(crate) fn hvals(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    Ok(Reply::Array(fields_of(args, exec)?.into_iter().map(|(_, value)| Reply::Bulk(value)).collect()))
}

fn fields_of(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Vec<(Bytes, Bytes)>> {
    let key = exec.key(&args[1]);
    match exec.find_hash(&key)? {
        Some(hash) => all_elements(exec, &key, hash.generation),
        None => Ok(Vec::new()),
    }
}

pub(crate) fn hdel(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(old) = exec.find_hash(&key)? else { return Ok(Reply::Int(0)) };
    Ok(Reply::Int(delete_elements(exec, &key, old, &args[2..])? as i64))
}

pub(crate) fn hlen(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Int(exec.find_hash(&key)?.map_or(0, |hash| hash.len as i64)))
}

pub(crate) fn hexists(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(hash) = exec.find_hash(&key)? else { return Ok(Reply::Int(0)) };
    Ok(Reply::Int(i64::from(get_field(exec, &key, hash, &args[2])?.is_some())))
}

pub(crate) fn hstrlen(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(hash) = exec.find_hash(&key)? else { return Ok(Reply::Int(0)) };
    Ok(Reply::Int(get_field(exec, &key, hash, &args[2])?.map_or(0, |value| value.len() as i64)))
}

/// Reads the field that a number command changes, after checking that the key is a hash or does not
/// exist.
fn find_field(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    field: &[u8],
) -> CommandResult<(Option<Collection>, Option<Bytes>)> {
    let hash = exec.find_hash(key)?;
    let value = match hash {
        Some(hash) => get_field(exec, key, hash, field)?,
        None => None,
    };
    Ok((hash, value))
}

fn set_field(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    old: Option<Collection>,
    field: &[u8],
    value: Bytes,
) -> CommandResult<()> {
    let mut writing = Writing::begin(exec, CollectionKind::Hash, old);
    writing.set(exec, key, field, value)?;
    writing.finish(exec, key);
    Ok(())
}

fn syntax<T>() -> CommandResult<T> {
    fail(error_messages::SYNTAX)
}
