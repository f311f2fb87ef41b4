//! Hashes: a meta row with the number of fields, and one row per field.
//!
//! Field rows are ordered by the hash of the field's name, as keys are. This gives `HSCAN` a
//! stateless 64-bit cursor, and lets `HRANDFIELD` jump into a large hash.

pub(crate) mod hscan;
pub(crate) mod numbers;

use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};
use resp::Reply;
use storage::{KeyRef, StorageError};

use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec, HashValue, Key};

/// Bytes of the hash that precedes the name in a field's sub-key.
pub(crate) const FIELD_HASH_LEN: usize = 8;

pub(crate) fn field_row(key: &KeyRef<'_>, generation: u64, field: &[u8]) -> Bytes {
    let mut subkey = BytesMut::with_capacity(FIELD_HASH_LEN + field.len());
    subkey.put_u64(types::key_hash(field));
    subkey.put_slice(field);
    key.element_row(generation, &subkey)
}

/// A callback that receives a field's hash, the field and its value. `Break` ends the walk.
pub(crate) type VisitField<'a> = dyn FnMut(u64, &[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Visits fields and values in row order, starting at the field hash `from`.
pub(crate) fn visit_fields(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
    from: u64,
    visit: &mut VisitField<'_>,
) -> CommandResult<()> {
    let start = key.element_row(generation, &from.to_be_bytes());
    let (first, end) = key.element_range(generation);
    // A row consists of the prefix of its range, the field's hash, and the field.
    let prefix = first.len();
    let mut corrupt = false;
    exec.txn.scan(&start, &end, &mut |row, value| {
        let Some((hash, field)) = row[prefix..].split_at_checked(FIELD_HASH_LEN) else {
            corrupt = true;
            return ControlFlow::Break(());
        };
        visit(u64::from_be_bytes(hash.try_into().expect("eight bytes")), field, value)
    })?;
    match corrupt {
        true => Err(StorageError::Corrupt("a field's row has no hash".into()).into()),
        false => Ok(()),
    }
}

/// Returns all fields and values of a hash.
pub(crate) fn all_fields(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    hash: HashValue,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    let mut fields = Vec::new();
    visit_fields(exec, key, hash.generation, 0, &mut |_, field, value| {
        fields.push((Bytes::copy_from_slice(field), Bytes::copy_from_slice(value)));
        ControlFlow::Continue(())
    })?;
    Ok(fields)
}

/// A hash during a write: its state before, and its state now.
pub(crate) struct Writing {
    old: Option<HashValue>,
    pub new: HashValue,
}

impl Writing {
    /// Begins a write. A hash that does not exist starts empty, with a new generation.
    pub fn begin(exec: &mut Exec<'_, '_>, old: Option<HashValue>) -> Writing {
        let new = old.unwrap_or_else(|| HashValue {
            generation: exec.txn.state_mut().take_generation(),
            len: 0,
            expire_at_ms: None,
        });
        Writing { old, new }
    }

    /// Sets a field. Returns true if it is new.
    pub fn set(
        &mut self,
        exec: &mut Exec<'_, '_>,
        key: &Key<'_>,
        field: &[u8],
        value: Bytes,
    ) -> CommandResult<bool> {
        let row = field_row(key, self.new.generation, field);
        let old = match self.old.is_none() && self.new.len == 0 {
            true => None,
            false => exec.txn.get(&row)?.map(|old| old.len()),
        };
        exec.put_element(key, row, old, value);
        self.new.len += u64::from(old.is_none());
        Ok(old.is_none())
    }

    pub fn finish(self, exec: &mut Exec<'_, '_>, key: &Key<'_>) {
        if self.old.is_none_or(|old| old.len != self.new.len) {
            exec.put_hash(key, self.old, self.new);
        }
    }
}

fn get_field(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    hash: HashValue,
    field: &[u8],
) -> CommandResult<Option<Bytes>> {
    Ok(exec.txn.get(&field_row(key, hash.generation, field))?)
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
    let mut writing = Writing::begin(exec, old);
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
    let mut writing = Writing::begin(exec, old);
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
        Some(hash) => Ok(get_field(exec, &key, hash, field)?.map_or(Reply::Nil, Reply::Bulk)),
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
        Some(hash) => all_fields(exec, &key, hash),
        None => Ok(Vec::new()),
    }
}

pub(crate) fn hdel(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(old) = exec.find_hash(&key)? else { return Ok(Reply::Int(0)) };
    let mut new = old;
    for field in &args[2..] {
        let row = field_row(&key, old.generation, field);
        if let Some(value) = exec.txn.get(&row)? {
            exec.delete_element(&key, row, value.len());
            new.len -= 1;
        }
    }
    match (old.len - new.len, new.len) {
        (0, _) => {}
        // Its elements are already deleted.
        (_, 0) => exec.remove(&key, &new.meta())?,
        _ => exec.put_hash(&key, Some(old), new),
    }
    Ok(Reply::Int((old.len - new.len) as i64))
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
) -> CommandResult<(Option<HashValue>, Option<Bytes>)> {
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
    old: Option<HashValue>,
    field: &[u8],
    value: Bytes,
) -> CommandResult<()> {
    let mut writing = Writing::begin(exec, old);
    writing.set(exec, key, field, value)?;
    writing.finish(exec, key);
    Ok(())
}

fn syntax<T>() -> CommandResult<T> {
    fail(error_messages::SYNTAX)
}
