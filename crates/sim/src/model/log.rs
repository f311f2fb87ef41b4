//! The stream of the first group: its entries, and one consumer group.

use std::collections::BTreeMap;

use bytes::Bytes;
use command::scripting::Code;
use resp::Reply;
use types::{StoreId, UnixMillis};

use super::{text, Key};

/// The only group whose clients use its stream. Replies name the key.
pub const LOG_GROUP: super::Group = 0;

const CONSUMERS: [&str; 3] = ["c0", "c1", "c2"];

/// Acknowledges pending entries, and deletes every second one of them. Keys: the stream. Arguments:
/// the number of entries, and the place in the client's pipeline.
const SETTLE: &str = "settle";
/// Gives pending entries to a consumer, who is the second argument.
const TAKE: &str = "take";
const LIBRARY: &str = "#!lua name=log
redis.register_function('settle', function(keys, args)
  local pending = redis.pcall('XPENDING', keys[1], 'g', '-', '+', args[1])
  if pending.err then return -1 end
  local acked = 0
  for _, of in ipairs(pending) do
    acked = acked + redis.call('XACK', keys[1], 'g', of[1])
    if acked % 2 == 1 then redis.call('XDEL', keys[1], of[1]) end
  end
  return acked
end)
redis.register_function('take', function(keys, args)
  local pending = redis.pcall('XPENDING', keys[1], 'g', '-', '+', args[1])
  if pending.err or #pending == 0 then return {} end
  local words = {}
  for at, of in ipairs(pending) do words[at] = of[1] end
  return redis.call('XCLAIM', keys[1], 'g', args[2], 0, unpack(words))
end)";

/// Returns the library of a function, as a store knows it. The libraries of two stores differ in
/// their text, as between two versions.
pub fn function(store: StoreId, name: &[u8]) -> Option<Code> {
    let name = match name {
        b"settle" => SETTLE,
        b"take" => TAKE,
        _ => return None,
    };
    let body = format!("{LIBRARY}\n-- as store {store} knows it").into();
    Some(Code { body, function: Some((Bytes::from_static(name.as_bytes()), Default::default())) })
}

/// A command of the stream. Numbers of consumers are below 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCommand {
    /// Adds an entry, and removes the oldest ones if a number of entries is given.
    Add {
        value: u64,
        kept: Option<u64>,
    },
    Trim {
        kept: u64,
    },
    CreateGroup,
    /// Delivers new entries to a consumer.
    Deliver {
        consumer: usize,
        count: u64,
    },
    /// Delivers a consumer's pending entries again.
    DeliverAgain {
        consumer: usize,
        count: u64,
    },
    /// Gives the first pending entries to a consumer.
    Claim {
        consumer: usize,
        count: u64,
    },
    /// The function `take`, with the same effect.
    Take {
        consumer: usize,
        count: u64,
    },
    Settle {
        count: u64,
    },
    /// Reads the newest entries.
    Newest {
        count: u64,
    },
    Length,
    /// Reads a summary of the pending entries.
    Pending,
}

impl LogCommand {
    pub fn is_read(self) -> bool {
        matches!(self, LogCommand::Newest { .. } | LogCommand::Length | LogCommand::Pending)
    }

    /// Returns true if the command calls a function of a library.
    pub fn is_function(self) -> bool {
        matches!(self, LogCommand::Take { .. } | LogCommand::Settle { .. })
    }

    pub fn args(self) -> Vec<Bytes> {
        let key = Key::Log.name(LOG_GROUP);
        let words = |words: &[&'static str]| -> Vec<Bytes> {
            words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect()
        };
        let group = |rest: Vec<Bytes>| [vec![key.clone(), "g".into()], rest].concat();
        match self {
            LogCommand::Add { value, kept } => {
                let mut args = [words(&["XADD"]), vec![key]].concat();
                if let Some(kept) = kept {
                    args.extend([Bytes::from("MAXLEN"), text(kept)]);
                }
                args.extend([Bytes::from("*"), field(value), payload(value).into()]);
                args
            }
            LogCommand::Trim { kept } => vec!["XTRIM".into(), key, "MAXLEN".into(), text(kept)],
            LogCommand::CreateGroup => {
                [words(&["XGROUP", "CREATE"]), group(words(&["0", "MKSTREAM"]))].concat()
            }
            LogCommand::Deliver { consumer, count } | LogCommand::DeliverAgain { consumer, count } => {
                let from = if matches!(self, LogCommand::Deliver { .. }) { ">" } else { "0" };
                let mut args = words(&["XREADGROUP", "GROUP", "g", CONSUMERS[consumer], "COUNT"]);
                args.extend([text(count), "STREAMS".into(), key, from.into()]);
                args
            }
            LogCommand::Claim { consumer, count } => {
                let rest = [words(&[CONSUMERS[consumer], "0", "0", "COUNT"]), vec![text(count)]].concat();
                [words(&["XAUTOCLAIM"]), group(rest)].concat()
            }
            LogCommand::Take { consumer, count } => {
                let consumer = Bytes::from(CONSUMERS[consumer]);
                [words(&["FCALL", TAKE, "1"]), vec![key, text(count), consumer]].concat()
            }
            LogCommand::Settle { count } => [words(&["FCALL", SETTLE, "1"]), vec![key, text(count)]].concat(),
            LogCommand::Newest { count } => {
                [words(&["XREVRANGE"]), vec![key], words(&["+", "-", "COUNT"]), vec![text(count)]].concat()
            }
            LogCommand::Length => vec!["XLEN".into(), key],
            LogCommand::Pending => [words(&["XPENDING"]), group(Vec::new())].concat(),
        }
    }
}

/// Returns the field of an entry. Entries have one of two.
fn field(value: u64) -> Bytes {
    Bytes::from(if value % 8 < 6 { "value" } else { "other" })
}

/// Returns the value of an entry. Some thirty of them fill a node.
fn payload(value: u64) -> String {
    format!("{value:0120}")
}

type Id = (UnixMillis, u64);

fn id_text(id: Id) -> Reply {
    Reply::bulk(format!("{}-{}", id.0, id.1).into_bytes())
}

fn no_group(end: &str) -> Reply {
    let key = String::from_utf8_lossy(&Key::Log.name(LOG_GROUP)).into_owned();
    Reply::error(format!("NOGROUP No such key '{key}' or consumer group 'g'{end}"))
}

/// A pending entry: its consumer. The number of deliveries shows in no reply.
type PendingEntries = BTreeMap<Id, usize>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Delivered {
    last: Id,
    pending: PendingEntries,
}

/// The contents of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: BTreeMap<Id, u64>,
    last: Id,
    group: Option<Delivered>,
}

impl Log {
    fn trim(&mut self, kept: u64) -> i64 {
        let mut removed = 0;
        while self.entries.len() as u64 > kept && self.entries.pop_first().is_some() {
            removed += 1;
        }
        removed
    }

    fn entry(&self, id: Id) -> Option<Reply> {
        let value = *self.entries.get(&id)?;
        let pair = vec![Reply::bulk(field(value)), Reply::bulk(payload(value).into_bytes())];
        Some(Reply::Array(vec![id_text(id), Reply::Array(pair)]))
    }
}

/// Returns the reply of a read.
pub fn read(log: Option<&Log>, command: LogCommand) -> Reply {
    match command {
        LogCommand::Length => Reply::Int(log.map_or(0, |log| log.entries.len() as i64)),
        LogCommand::Newest { count } => {
            let newest = |log: &Log| -> Vec<Reply> {
                let ids = log.entries.keys().rev().take(count as usize);
                ids.filter_map(|id| log.entry(*id)).collect()
            };
            Reply::Array(log.map(newest).unwrap_or_default())
        }
        LogCommand::Pending => {
            let Some(group) = log.and_then(|log| log.group.as_ref()) else { return no_group("") };
            let pending = &group.pending;
            let (Some((first, _)), Some((last, _))) = (pending.first_key_value(), pending.last_key_value())
            else {
                return Reply::Array(vec![Reply::Int(0), Reply::Nil, Reply::Nil, Reply::NilArray]);
            };
            let consumers = CONSUMERS.iter().enumerate().filter_map(|(at, name)| {
                let count = pending.values().filter(|consumer| **consumer == at).count();
                let shown = vec![Reply::bulk(*name), Reply::bulk(count.to_string().into_bytes())];
                (count > 0).then_some(Reply::Array(shown))
            });
            let consumers = Reply::Array(consumers.collect());
            Reply::Array(vec![Reply::Int(pending.len() as i64), id_text(*first), id_text(*last), consumers])
        }
        _ => unreachable!("only reads are read"),
    }
}

/// Executes a write. Returns the reply, and whether the stream has changed.
pub fn apply(log: &mut Option<Log>, command: LogCommand, now: UnixMillis) -> (Reply, bool) {
    match command {
        LogCommand::Add { value, kept } => {
            let log = log.get_or_insert_default();
            log.last = if now > log.last.0 { (now, 0) } else { (log.last.0, log.last.1 + 1) };
            log.entries.insert(log.last, value);
            kept.map(|kept| log.trim(kept));
            return (id_text(log.last), true);
        }
        LogCommand::CreateGroup => {
            let log = log.get_or_insert_default();
            if log.group.is_some() {
                return (Reply::error("BUSYGROUP Consumer Group name already exists"), false);
            }
            log.group = Some(Delivered::default());
            return (Reply::OK, true);
        }
        LogCommand::Trim { kept } => {
            let removed = log.as_mut().map_or(0, |log| log.trim(kept));
            return (Reply::Int(removed), removed > 0);
        }
        _ => {}
    }
    let grouped = log.as_mut().and_then(|log| Some((log.group.take()?, log)));
    let Some((mut group, log)) = grouped else {
        let reply = match command {
            LogCommand::Settle { .. } => Reply::Int(-1),
            LogCommand::Take { .. } => Reply::Array(Vec::new()),
            LogCommand::Claim { .. } => no_group(""),
            _ => no_group(" in XREADGROUP with GROUP option"),
        };
        return (reply, false);
    };
    let reply = of_group(log, &mut group, command);
    log.group = Some(group);
    (reply, true)
}

fn of_group(log: &mut Log, group: &mut Delivered, command: LogCommand) -> Reply {
    let of_stream = |entries: Vec<Reply>| {
        let name = Reply::bulk(Key::Log.name(LOG_GROUP));
        Reply::Array(vec![Reply::Array(vec![name, Reply::Array(entries)])])
    };
    let first = |group: &Delivered, count: u64| -> Vec<Id> {
        group.pending.keys().take(count as usize).copied().collect()
    };
    match command {
        LogCommand::Deliver { consumer, count } => {
            let new = log.entries.keys().filter(|id| **id > group.last).take(count as usize);
            let ids: Vec<Id> = new.copied().collect();
            let Some(last) = ids.last() else { return Reply::NilArray };
            group.last = *last;
            group.pending.extend(ids.iter().map(|id| (*id, consumer)));
            of_stream(ids.iter().filter_map(|id| log.entry(*id)).collect())
        }
        LogCommand::DeliverAgain { consumer, count } => {
            let owned = group.pending.iter().filter(|(_, of)| **of == consumer).take(count as usize);
            let deleted = |id: Id| Reply::Array(vec![id_text(id), Reply::NilArray]);
            of_stream(owned.map(|(id, _)| log.entry(*id).unwrap_or_else(|| deleted(*id))).collect())
        }
        LogCommand::Claim { consumer, count } => {
            let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
            let ids = first(group, count);
            let next = group.pending.keys().nth(ids.len()).copied().unwrap_or_default();
            for id in ids {
                match claim(log, group, id, consumer) {
                    Some(entry) => claimed.push(entry),
                    None => deleted.push(id_text(id)),
                }
            }
            Reply::Array(vec![id_text(next), Reply::Array(claimed), Reply::Array(deleted)])
        }
        LogCommand::Take { consumer, count } => {
            let ids = first(group, count).into_iter();
            Reply::Array(ids.filter_map(|id| claim(log, group, id, consumer)).collect())
        }
        LogCommand::Settle { count } => {
            let ids = first(group, count);
            for (at, id) in ids.iter().enumerate() {
                group.pending.remove(id);
                if at % 2 == 0 {
                    log.entries.remove(id);
                }
            }
            Reply::Int(ids.len() as i64)
        }
        _ => unreachable!("the others need no group"),
    }
}

/// Gives a pending entry to a consumer, or forgets it if the entry was deleted.
fn claim(log: &Log, group: &mut Delivered, id: Id, consumer: usize) -> Option<Reply> {
    let entry = log.entry(id);
    match entry {
        Some(_) => group.pending.insert(id, consumer),
        None => group.pending.remove(&id),
    };
    entry
}
