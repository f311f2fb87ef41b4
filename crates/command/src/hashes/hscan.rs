//! `HSCAN` and `HRANDFIELD`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::KeyRef;
use types::Draw;

use super::{all_fields, syntax, visit_fields};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec, HashValue};
use crate::glob;
use crate::keys::scan::ScanOptions;
use crate::number::{integer, integer_or};

/// Maximum number of fields of a hash that is read completely for a random pick. A complete read
/// makes the pick exactly uniform.
const READ_WHOLE: u64 = 1024;

pub(crate) fn hscan(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let cursor = crate::keys::scan::parse_cursor(&args[2])?;
    let key = exec.key(&args[1]);
    let Some(hash) = exec.find_hash(&key)? else { return Ok(scan_reply(0, Vec::new())) };
    let options = ScanOptions::parse(&args[3..], false)?;
    let mut found = Vec::new();
    let mut visited = 0;
    let mut last_hash = cursor;
    let mut next = 0;
    // A cursor cannot distinguish fields whose names have the same hash, so they are returned
    // together.
    visit_fields(exec, &key, hash.generation, cursor, &mut |field_hash, field, value| {
        if visited >= options.count && field_hash != last_hash {
            next = field_hash;
            return ControlFlow::Break(());
        }
        visited += 1;
        last_hash = field_hash;
        if options.pattern.is_none_or(|pattern| glob::matches(pattern, field)) {
            found.push(Reply::bulk(Bytes::copy_from_slice(field)));
            found.push(Reply::bulk(Bytes::copy_from_slice(value)));
        }
        ControlFlow::Continue(())
    })?;
    Ok(scan_reply(next, found))
}

pub(crate) fn scan_reply(cursor: u64, found: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(found)])
}

pub(crate) fn hrandfield(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(count) = args.get(2) else {
        let Some(hash) = exec.find_hash(&key)? else { return Ok(Reply::Nil) };
        let picked = Picker::new(exec, &key, hash)?.pick()?;
        return Ok(picked.map_or(Reply::Nil, |(field, _)| Reply::Bulk(field)));
    };
    let count =
        match integer_or(count, error_messages::NOT_AN_INTEGER)? {
            i64::MIN => return fail(
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ),
            count => count,
        };
    let with_values = match args.get(3) {
        None => false,
        Some(word) if args.len() == 4 && word.eq_ignore_ascii_case(b"WITHVALUES") => true,
        Some(_) => return syntax(),
    };
    if with_values && !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&count) {
        return fail(error_messages::OUT_OF_RANGE);
    }
    let Some(hash) = exec.find_hash(&key)? else { return Ok(Reply::Array(Vec::new())) };
    let picked = match u64::try_from(count) {
        Ok(distinct) if distinct >= hash.len => all_fields(exec, &key, hash)?,
        Ok(distinct) => pick_distinct(exec, &key, hash, distinct)?,
        Err(_) if count.unsigned_abs() > exec.limits.max_reply_elements => {
            return fail(error_messages::OUT_OF_RANGE);
        }
        Err(_) => {
            let mut picker = Picker::new(exec, &key, hash)?;
            let mut picked = Vec::new();
            for _ in 0..count.unsigned_abs() {
                picked.extend(picker.pick()?);
            }
            picked
        }
    };
    let mut reply = Vec::new();
    for (field, value) in picked {
        match (with_values, exec.resp3) {
            (false, _) => reply.push(Reply::Bulk(field)),
            (true, true) => reply.push(Reply::Array(vec![Reply::Bulk(field), Reply::Bulk(value)])),
            (true, false) => reply.extend([Reply::Bulk(field), Reply::Bulk(value)]),
        }
    }
    Ok(Reply::Array(reply))
}

/// Picks random fields with repetition.
struct Picker<'a, 't, 'r> {
    exec: &'a Exec<'t, 'r>,
    key: &'a KeyRef<'a>,
    hash: HashValue,
    random: Draw,
    /// All fields, if the hash is small enough.
    whole: Option<Vec<(Bytes, Bytes)>>,
}

impl<'a, 't, 'r> Picker<'a, 't, 'r> {
    fn new(
        exec: &'a Exec<'t, 'r>,
        key: &'a KeyRef<'a>,
        hash: HashValue,
    ) -> CommandResult<Picker<'a, 't, 'r>> {
        let whole = match hash.len <= READ_WHOLE {
            true => Some(all_fields(exec, key, hash)?),
            false => None,
        };
        Ok(Picker { exec, key, hash, random: Draw::new(exec.seed), whole })
    }

    /// Picks a field. In a large hash it is the first one at or after a random position among the
    /// names' hashes, wrapping around at the end. That is nearly uniform, because the hashes are
    /// evenly spread.
    fn pick(&mut self) -> CommandResult<Option<(Bytes, Bytes)>> {
        if let Some(whole) = &self.whole {
            let at = self.random.below(whole.len() as u64) as usize;
            return Ok(whole.get(at).cloned());
        }
        let from = self.random.number();
        let mut found = None;
        for from in [from, 0] {
            visit_fields(self.exec, self.key, self.hash.generation, from, &mut |_, field, value| {
                found = Some((Bytes::copy_from_slice(field), Bytes::copy_from_slice(value)));
                ControlFlow::Break(())
            })?;
            if found.is_some() {
                break;
            }
        }
        Ok(found)
    }
}

/// Picks `count` different fields, fewer than the hash has.
fn pick_distinct(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    hash: HashValue,
    count: u64,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    // Repeated picks are efficient only for a small part of a large hash.
    if hash.len > READ_WHOLE && count <= hash.len / 8 {
        let mut picker = Picker::new(exec, key, hash)?;
        let mut picked = BTreeMap::new();
        for _ in 0..count * 4 {
            picked.extend(picker.pick()?);
            if picked.len() as u64 == count {
                return Ok(picked.into_iter().collect());
            }
        }
    }
    let mut fields = all_fields(exec, key, hash)?;
    let mut random = Draw::new(exec.seed);
    let count = (count as usize).min(fields.len());
    for at in 0..count {
        let other = at + random.below((fields.len() - at) as u64) as usize;
        fields.swap(at, other);
    }
    fields.truncate(count);
    Ok(fields)
}

/// Parses the value of `COUNT`, which is at least 1.
pub(crate) fn scan_count(text: &[u8]) -> CommandResult<u64> {
    match u64::try_from(integer(text)?) {
        Ok(count) if count > 0 => Ok(count),
        _ => syntax(),
    }
}
