//! Sets: a meta row with the number of members, and one row without a value per member.

pub(crate) mod algebra;
pub(crate) mod random;

use bytes::Bytes;
use resp::Reply;
use storage::KeyRef;

use crate::elements::{all_elements, delete_elements, element_row, scan, Writing};
use crate::exec::{Collection, CollectionKind, CommandResult, Exec};
use crate::keys::scan::{parse_cursor, scan_reply, ScanOptions};

fn has_member(exec: &Exec<'_, '_>, key: &KeyRef<'_>, set: Collection, member: &[u8]) -> CommandResult<bool> {
    Ok(exec.txn.get(&element_row(key, set.generation, member))?.is_some())
}

fn all_members(exec: &Exec<'_, '_>, key: &KeyRef<'_>, set: Collection) -> CommandResult<Vec<Bytes>> {
    Ok(names(all_elements(exec, key, set.generation)?))
}

fn names(elements: Vec<(Bytes, Bytes)>) -> Vec<Bytes> {
    elements.into_iter().map(|(member, _)| member).collect()
}

fn bulks(members: Vec<Bytes>) -> Vec<Reply> {
    members.into_iter().map(Reply::Bulk).collect()
}

pub(crate) fn sadd(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let old = exec.find_set(&key)?;
    let mut writing = Writing::begin(exec, CollectionKind::Set, old);
    let mut added = 0;
    for member in &args[2..] {
        added += i64::from(writing.add(exec, &key, member)?);
    }
    writing.finish(exec, &key);
    Ok(Reply::Int(added))
}

pub(crate) fn srem(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_set(&key)? else { return Ok(Reply::Int(0)) };
    Ok(Reply::Int(delete_elements(exec, &key, set, &args[2..])? as i64))
}

pub(crate) fn smove(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (from, to, member) = (exec.key(&args[1]), exec.key(&args[2]), &args[3]);
    let Some(source) = exec.find_set(&from)? else { return Ok(Reply::Int(0)) };
    let destination = exec.find_set(&to)?;
    if from == to || !has_member(exec, &from, source, member)? {
        return Ok(Reply::Int(i64::from(has_member(exec, &from, source, member)?)));
    }
    delete_elements(exec, &from, source, [member])?;
    let mut writing = Writing::begin(exec, CollectionKind::Set, destination);
    writing.add(exec, &to, member)?;
    writing.finish(exec, &to);
    Ok(Reply::Int(1))
}

pub(crate) fn scard(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Int(exec.find_set(&key)?.map_or(0, |set| set.len as i64)))
}

pub(crate) fn sismember(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_set(&key)? else { return Ok(Reply::Int(0)) };
    Ok(Reply::Int(i64::from(has_member(exec, &key, set, &args[2])?)))
}

pub(crate) fn smismember(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let set = exec.find_set(&key)?;
    let is_member = |member: &Bytes| match set {
        Some(set) => Ok(Reply::Int(i64::from(has_member(exec, &key, set, member)?))),
        None => Ok(Reply::Int(0)),
    };
    Ok(Reply::Array(args[2..].iter().map(is_member).collect::<CommandResult<Vec<_>>>()?))
}

pub(crate) fn smembers(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Set(match exec.find_set(&key)? {
        Some(set) => bulks(all_members(exec, &key, set)?),
        None => Vec::new(),
    }))
}

pub(crate) fn sscan(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let cursor = parse_cursor(&args[2])?;
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_set(&key)? else { return Ok(scan_reply(0, Vec::new())) };
    let options = ScanOptions::parse(&args[3..], false)?;
    scan(exec, &key, set.generation, (cursor, &options), |member, _, found| {
        found.push(Reply::bulk(Bytes::copy_from_slice(member)));
    })
}
