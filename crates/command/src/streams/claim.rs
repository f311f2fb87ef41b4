//! `XCLAIM` and `XAUTOCLAIM`.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::StreamId;

use super::group::{self, Changing, Pending};
use super::pending::HELD_PENDING;
use super::{entries, entry_reply, id, id_reply};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec, Key, StreamValue};
use crate::number::{integer, integer_or};

/// Maximum number of pending entries that `XAUTOCLAIM` looks at, for each one that it may return.
const ATTEMPTS: u64 = 10;
const COUNT_DEFAULT: u64 = 100;

fn find<'k>(
    args: &[Bytes],
    key: &'k Key<'k>,
    exec: &mut Exec<'_, '_>,
) -> CommandResult<(StreamValue, Changing<'k>)> {
    if let Some(found) = exec.reading(|exec| exec.find_stream(key))? {
        if let Some(group) = group::find(exec, key, &found.stream, &args[2])? {
            return Ok((found, Changing::begin(key, &found.stream, group)));
        }
    }
    fail(error_messages::no_group(&args[1], &args[2]))
}

/// The options of `XCLAIM`.
struct Options {
    ids: Vec<StreamId>,
    delivered_ms: Option<i64>,
    deliveries: Option<u64>,
    forces: bool,
    only_ids: bool,
    last_id: StreamId,
}

impl Options {
    fn parse(args: &[Bytes], now_ms: i64) -> CommandResult<Options> {
        let ids: Vec<StreamId> = args[5..].iter().map_while(|arg| id::strict(arg, 0).ok()).collect();
        let rest = &args[5 + ids.len()..];
        let mut options = Options {
            ids,
            delivered_ms: None,
            deliveries: None,
            forces: false,
            only_ids: false,
            last_id: StreamId::MIN,
        };
        let mut rest = rest.iter().peekable();
        while let Some(option) = rest.next() {
            let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
            let has_value = rest.peek().is_some();
            if is("FORCE") {
                options.forces = true;
            } else if is("JUSTID") {
                options.only_ids = true;
            } else if is("IDLE") && has_value {
                let idle = integer_or(value(&mut rest)?, "ERR Invalid IDLE option argument for XCLAIM")?;
                options.delivered_ms = Some(now_ms.wrapping_sub(idle));
            } else if is("TIME") && has_value {
                let at = integer_or(value(&mut rest)?, "ERR Invalid TIME option argument for XCLAIM")?;
                options.delivered_ms = Some(at);
            } else if is("RETRYCOUNT") && has_value {
                let error = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
                options.deliveries = u64::try_from(integer_or(value(&mut rest)?, error)?).ok();
            } else if is("LASTID") && has_value {
                options.last_id = id::strict(value(&mut rest)?, 0)?;
            } else {
                return fail(error_messages::shown(format!(
                    "ERR Unrecognized XCLAIM option '{}'",
                    error_messages::c_text(option)
                )));
            }
        }
        Ok(options)
    }

    /// Returns the time of delivery to store: a given time that makes sense, or the present time.
    fn delivered_ms(&self, now_ms: u64) -> u64 {
        let given = self.delivered_ms.and_then(|at| u64::try_from(at).ok());
        given.filter(|at| *at <= now_ms).unwrap_or(now_ms)
    }
}

fn value<'a>(rest: &mut impl Iterator<Item = &'a Bytes>) -> CommandResult<&'a Bytes> {
    rest.next().map_or_else(|| fail(error_messages::SYNTAX), Ok)
}

/// Counts an entry that is claimed.
fn holding_entry(exec: &Exec<'_, '_>, parts: &[Bytes]) -> ControlFlow<()> {
    exec.holding(HELD_PENDING + parts.len(), parts.iter().map(Bytes::len).sum())
}

pub(crate) fn xclaim(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let (found, mut changing) = find(args, &key, exec)?;
    let min_idle = integer_or(&args[4], "ERR Invalid min-idle-time argument for XCLAIM")?;
    let now_ms = exec.now_ms;
    let options = Options::parse(args, now_ms as i64)?;
    let last_id = &mut changing.group.row.last_id;
    *last_id = options.last_id.max(*last_id);
    let mut consumer = None;
    let mut claimed = Vec::new();
    let mut finder = entries::Finder::default();
    for id in &options.ids {
        let pending = changing.pending(exec, *id)?;
        let Some(entry) = finder.find(exec, &key, &found.stream, *id)? else {
            if let Some(pending) = pending {
                changing.delete_pending(exec, *id, &pending)?;
            }
            continue;
        };
        match pending {
            None if !options.forces => continue,
            Some(pending) if min_idle > 0 && pending.idle_ms(now_ms) < min_idle => continue,
            _ => {}
        }
        let consumer = match consumer {
            Some(number) => number,
            None => *consumer.insert(changing.see(exec, &args[3])?),
        };
        // An entry that is added by force counts as delivered once.
        let before = pending.map_or(1, |pending| pending.deliveries);
        let added = u64::from(!options.only_ids);
        let deliveries = options.deliveries.unwrap_or(before.wrapping_add(added));
        let new = Pending { delivered_ms: options.delivered_ms(now_ms), deliveries, consumer };
        changing.put_pending(exec, *id, pending, new)?;
        let is_full = holding_entry(exec, &entry).is_break();
        claimed.push(match options.only_ids {
            true => id_reply(*id),
            false => entry_reply(*id, entry),
        });
        // What does not fit is not claimed.
        if is_full {
            break;
        }
    }
    changing.finish(exec);
    Ok(Reply::Array(claimed))
}

pub(crate) fn xautoclaim(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let min_idle = integer_or(&args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = id::start(&args[5])?;
    let (mut count, mut only_ids) = (COUNT_DEFAULT, false);
    let mut options = args[6..].iter().peekable();
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"COUNT") && options.peek().is_some() {
            count = self::count(value(&mut options)?)?;
        } else if option.eq_ignore_ascii_case(b"JUSTID") {
            only_ids = true;
        } else {
            return fail(error_messages::SYNTAX);
        }
    }
    let key = exec.key(&args[1]);
    let (found, mut changing) = find(args, &key, exec)?;
    let now_ms = exec.now_ms;
    let mut left = count.saturating_mul(ATTEMPTS);
    let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
    let mut consumer = None;
    let mut finder = entries::Finder::default();
    // The ID from which on entries were not looked at.
    let mut next = Some(start);
    let mut is_full = false;
    let is_done = |claimed: &[Reply], deleted: &[Reply]| (claimed.len() + deleted.len()) as u64 >= count;
    while let Some(from) = next.filter(|_| left > 0 && !is_full && !is_done(&claimed, &deleted)) {
        let mut batch = Vec::new();
        let size = left.min(BATCH);
        changing.rows().visit_pending(exec, (from, StreamId::MAX), &mut |id, pending| {
            batch.push((id, pending));
            match (batch.len() as u64) < size {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let is_last = (batch.len() as u64) < size;
        for (id, pending) in batch {
            if is_full || is_done(&claimed, &deleted) {
                break;
            }
            left -= 1;
            next = id.next();
            let Some(entry) = finder.find(exec, &key, &found.stream, id)? else {
                changing.delete_pending(exec, id, &pending)?;
                deleted.push(id_reply(id));
                is_full = exec.holding(2, 0).is_break();
                continue;
            };
            if min_idle > 0 && pending.idle_ms(now_ms) < min_idle {
                continue;
            }
            let consumer = match consumer {
                Some(number) => number,
                None => *consumer.insert(changing.see(exec, &args[3])?),
            };
            let deliveries = pending.deliveries.wrapping_add(u64::from(!only_ids));
            let new = Pending { delivered_ms: now_ms, deliveries, consumer };
            changing.put_pending(exec, id, Some(pending), new)?;
            // The cursor names the next one.
            is_full = holding_entry(exec, &entry).is_break();
            claimed.push(match only_ids {
                true => id_reply(id),
                false => entry_reply(id, entry),
            });
        }
        if is_last && left > 0 && !is_full && !is_done(&claimed, &deleted) {
            next = None;
        }
    }
    let mut cursor = StreamId::MIN;
    if let Some(from) = next {
        changing.rows().visit_pending(exec, (from, StreamId::MAX), &mut |id, _| {
            cursor = id;
            ControlFlow::Break(())
        })?;
    }
    changing.finish(exec);
    Ok(Reply::Array(vec![id_reply(cursor), Reply::Array(claimed), Reply::Array(deleted)]))
}

/// Number of pending entries that are read at a time.
const BATCH: u64 = 256;

fn count(text: &[u8]) -> CommandResult<u64> {
    const TOO_SMALL: &str = "ERR COUNT must be > 0";
    // Redis reserves 16 bytes for each.
    const COUNT_MAX: u64 = i64::MAX as u64 / 16;
    match u64::try_from(integer(text).or_else(|_| fail(TOO_SMALL))?) {
        Ok(count @ 1..=COUNT_MAX) => Ok(count),
        _ => fail(TOO_SMALL),
    }
}
