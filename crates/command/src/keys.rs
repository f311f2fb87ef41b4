//! Commands on keys of every type.

pub(crate) mod expiry;
pub(crate) mod object;
pub(crate) mod rename;
pub(crate) mod scan;

use bytes::Bytes;
use resp::Reply;
use storage::{Meta, Value};

use crate::exec::{CommandResult, Exec, Key, KEYS_AT_ONCE};

pub(crate) fn del(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let mut deleted = 0;
    for keys in args[1..].chunks(KEYS_AT_ONCE) {
        for key in exec.keys(keys.iter()) {
            if let Some(meta) = exec.find(&key)? {
                exec.remove(&key, &meta)?;
                deleted += 1;
            }
        }
    }
    Ok(Reply::Int(deleted))
}

pub(crate) fn exists(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    count(args, exec, |key, exec| exec.peek(key))
}

pub(crate) fn touch(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    count(args, exec, |key, exec| exec.find(key))
}

fn count(
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
    find: impl Fn(&Key<'_>, &mut Exec<'_, '_>) -> CommandResult<Option<Meta>>,
) -> CommandResult {
    let mut found = 0;
    for keys in args[1..].chunks(KEYS_AT_ONCE) {
        for key in exec.keys(keys.iter()) {
            found += i64::from(find(&key, exec)?.is_some());
        }
    }
    Ok(Reply::Int(found))
}

pub(crate) fn type_of(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Simple(exec.peek(&key)?.map_or("none", |meta| type_name(&meta.value)).into()))
}

pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Hash { .. } => "hash",
        Value::Set { .. } => "set",
        Value::SortedSet { .. } => "zset",
        Value::List { .. } => "list",
        Value::Stream(_) => "stream",
    }
}
