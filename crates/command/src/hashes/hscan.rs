//! `HSCAN` and `HRANDFIELD`.

use bytes::Bytes;
use resp::Reply;

use super::syntax;
use crate::elements::random::{pick_distinct, pick_repeatedly, Picker};
use crate::elements::{all_elements, scan};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::keys::scan::{parse_cursor, scan_reply, ScanOptions};
use crate::number::random_count;

pub(crate) fn hscan(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let cursor = parse_cursor(&args[2])?;
    let key = exec.key(&args[1]);
    let Some(hash) = exec.find_hash(&key)? else { return Ok(scan_reply(0, Vec::new())) };
    let options = ScanOptions::parse(&args[3..], false)?;
    scan(exec, &key, hash.generation, (cursor, &options), |field, value, found| {
        found.push(Reply::bulk(Bytes::copy_from_slice(field)));
        found.push(Reply::bulk(Bytes::copy_from_slice(value)));
    })
}

pub(crate) fn hrandfield(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(count) = args.get(2) else {
        let Some(hash) = exec.find_hash(&key)? else { return Ok(Reply::Nil) };
        let picked = Picker::new(exec, &key, hash, 1)?.pick()?;
        return Ok(picked.map_or(Reply::Nil, |(field, _)| Reply::Bulk(field)));
    };
    let count = random_count(count)?;
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
        Ok(distinct) if distinct >= hash.len => all_elements(exec, &key, hash.generation)?,
        Ok(distinct) => pick_distinct(exec, &key, hash, distinct)?,
        Err(_) if count.unsigned_abs() > exec.limits.max_reply_elements => {
            return fail(error_messages::OUT_OF_RANGE);
        }
        Err(_) => pick_repeatedly(exec, &key, hash, count.unsigned_abs())?,
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
