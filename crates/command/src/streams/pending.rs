//! `XACK` and `XPENDING`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::StreamId;

use super::group::{self, pending_bounds, Changing, Group, Pending, Rows};
use super::{count_reply, id, id_reply};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec, Key};
use crate::number::integer;

pub(crate) fn xack(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(found) = exec.reading(|exec| exec.find_stream(&key))? else { return Ok(Reply::Int(0)) };
    let Some(group) = group::find(exec, &key, &found.stream, &args[2])? else { return Ok(Reply::Int(0)) };
    let ids = args[3..].iter().map(|arg| id::strict(arg, 0)).collect::<CommandResult<Vec<_>>>()?;
    let mut changing = Changing::begin(&key, &found.stream, group);
    let mut count = 0;
    for id in ids {
        if let Some(pending) = changing.pending(exec, id)? {
            changing.delete_pending(exec, id, &pending)?;
            count += 1;
        }
    }
    changing.finish(exec);
    Ok(count_reply(count))
}

/// The arguments of the long form.
struct Wanted<'a> {
    ids: (StreamId, StreamId),
    count: u64,
    idle_ms: i64,
    consumer: Option<&'a Bytes>,
}

impl Wanted<'_> {
    fn parse(args: &[Bytes]) -> CommandResult<Option<Wanted<'_>>> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return fail(error_messages::SYNTAX);
        }
        let (mut at, mut idle_ms) = (3, 0);
        if args[3].eq_ignore_ascii_case(b"IDLE") {
            idle_ms = integer(&args[4])?;
            if args.len() < 8 {
                return fail(error_messages::SYNTAX);
            }
            at = 5;
        }
        let count = u64::try_from(integer(&args[at + 2])?).unwrap_or(0);
        let ids = (id::start(&args[at])?, id::end(&args[at + 1])?);
        Ok(Some(Wanted { ids, count, idle_ms, consumer: args.get(at + 3) }))
    }
}

/// The names of consumers by their numbers.
#[derive(Default)]
pub(super) struct Names(BTreeMap<u64, Bytes>);

impl Names {
    pub fn get(&mut self, exec: &Exec<'_, '_>, rows: &Rows<'_>, number: u64) -> CommandResult<Bytes> {
        if let Some(name) = self.0.get(&number) {
            return Ok(name.clone());
        }
        let name = rows.consumer(exec, number)?.name;
        self.0.insert(number, name.clone());
        Ok(name)
    }
}

pub(crate) fn xpending(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let wanted = Wanted::parse(args)?;
    let key = exec.key(&args[1]);
    let group = match exec.find_stream(&key)? {
        Some(found) => group::find(exec, &key, &found.stream, &args[2])?,
        None => None,
    };
    let Some(group) = group else { return fail(error_messages::no_group(&args[1], &args[2])) };
    match wanted {
        None => summary(exec, &key, &group),
        Some(wanted) => listed(exec, &key, &group, &wanted),
    }
}

fn summary(exec: &Exec<'_, '_>, key: &Key<'_>, group: &Group) -> CommandResult {
    let (first, last, consumers) = match pending_bounds(exec, key, group)? {
        None => (Reply::Nil, Reply::Nil, Reply::NilArray),
        Some((first, last)) => {
            let consumers = Rows::new(key, group).all_consumers(exec)?.into_iter();
            let shown = consumers.filter(|consumer| consumer.pending > 0).map(|consumer| {
                let count = Reply::bulk(consumer.pending.to_string());
                Reply::Array(vec![Reply::Bulk(consumer.name), count])
            });
            (id_reply(first), id_reply(last), Reply::Array(shown.collect()))
        }
    };
    Ok(Reply::Array(vec![count_reply(group.row.pending), first, last, consumers]))
}

/// Number of a consumer's pending entries that are looked up at a time.
const BATCH: usize = 256;

/// Number of items for which a pending entry in a reply counts.
pub(super) const HELD_PENDING: usize = 6;

/// Visits the pending entries of a consumer in a range in the order of their IDs. The callback may
/// look up other rows.
pub(super) fn visit_of_consumer(
    exec: &Exec<'_, '_>,
    rows: &Rows<'_>,
    consumer: u64,
    (from, to): (StreamId, StreamId),
    mut visit: impl FnMut(StreamId) -> CommandResult<ControlFlow<()>>,
) -> CommandResult<()> {
    let mut start = Some(from);
    while let Some(from) = start.filter(|from| *from <= to) {
        let mut batch = Vec::new();
        rows.visit_owned(exec, consumer, (from, to), &mut |id| {
            batch.push(id);
            match batch.len() < BATCH {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        start = match batch.last() {
            Some(last) if batch.len() == BATCH => last.next(),
            _ => None,
        };
        for id in batch {
            if visit(id)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn listed(exec: &Exec<'_, '_>, key: &Key<'_>, group: &Group, wanted: &Wanted<'_>) -> CommandResult {
    let rows = Rows::new(key, group);
    let mut found: Vec<(StreamId, Pending)> = Vec::new();
    let now_ms = exec.now_ms;
    let is_wanted = |pending: &Pending| wanted.idle_ms == 0 || pending.idle_ms(now_ms) >= wanted.idle_ms;
    let end = |found: &[(StreamId, Pending)]| match (found.len() as u64) < wanted.count {
        true => exec.holding(HELD_PENDING, 0),
        false => ControlFlow::Break(()),
    };
    let consumer = match wanted.consumer {
        None => None,
        Some(name) => match rows.find_consumer(exec, name)? {
            Some(consumer) => Some(consumer.number),
            None => return Ok(Reply::Array(Vec::new())),
        },
    };
    match consumer {
        _ if wanted.count == 0 || wanted.ids.0 > wanted.ids.1 => {}
        None => rows.visit_pending(exec, wanted.ids, &mut |id, pending| {
            if is_wanted(&pending) {
                found.push((id, pending));
            }
            end(&found)
        })?,
        Some(number) => visit_of_consumer(exec, &rows, number, wanted.ids, |id| {
            if let Some(pending) = rows.pending(exec, id)?.filter(is_wanted) {
                found.push((id, pending));
            }
            Ok(end(&found))
        })?,
    }
    exec.check_held()?;
    let mut names = Names::default();
    let shown = found.into_iter().map(|(id, pending)| {
        Ok(Reply::Array(vec![
            id_reply(id),
            Reply::Bulk(names.get(exec, &rows, pending.consumer)?),
            Reply::Int(pending.idle_ms(now_ms).max(0)),
            Reply::Int(pending.deliveries as i64),
        ]))
    });
    Ok(Reply::Array(shown.collect::<CommandResult<Vec<_>>>()?))
}
