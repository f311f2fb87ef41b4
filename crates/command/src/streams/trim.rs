//! Trimming of streams: the options of `XADD` and `XTRIM`, and the deletion of the oldest entries.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::{KeyRef, Stream, StreamId};

use super::entries::{delete_from, delete_nodes, find_first, from_first_node};
use super::id;
use super::node::{Entry, Node, ENTRIES_MAX};
use super::{count_reply, id::NewId};
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::integer;

/// Maximum number of entries that approximate trimming removes, unless a limit is given.
const LIMIT_DEFAULT: u64 = 100 * ENTRIES_MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The newest entries.
    Count(u64),
    /// The entries from this ID on.
    From(StreamId),
}

/// The entries that are to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    kept: Kept,
    /// True if only whole nodes are removed.
    is_approximate: bool,
    /// Maximum number of entries that are removed. 0 stands for no limit.
    limit: u64,
}

/// The options of `XADD` or `XTRIM`.
pub(super) struct Options {
    pub trim: Option<Trim>,
    pub no_stream: bool,
    pub id: NewId,
    /// The position of the arguments behind the options and the ID.
    pub rest: usize,
}

impl Options {
    /// Parses the arguments behind the key. Those of `XADD` end with an ID.
    pub fn parse(args: &[Bytes], adds: bool) -> CommandResult<Options> {
        let mut options = Options { trim: None, no_stream: false, id: NewId::Automatic, rest: args.len() };
        let mut kept = None;
        let mut is_approximate = false;
        let mut limit = None;
        let mut at = 2;
        while at < args.len() {
            let arg = &args[at];
            let left = args.len() - at - 1;
            let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
            if adds && arg == "*" {
                options.rest = at + 1;
                break;
            } else if (is("MAXLEN") || is("MINID")) && left > 0 {
                if kept.is_some() {
                    return fail(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    );
                }
                is_approximate = left >= 2 && args[at + 1] == "~";
                at += 1 + usize::from(left >= 2 && (args[at + 1] == "~" || args[at + 1] == "="));
                kept = Some(match is("MAXLEN") {
                    true => match u64::try_from(integer(&args[at])?) {
                        Ok(count) => Kept::Count(count),
                        Err(_) => return fail("ERR The MAXLEN argument must be >= 0."),
                    },
                    false => Kept::From(id::strict(&args[at], 0)?),
                });
            } else if is("LIMIT") && left > 0 {
                at += 1;
                match u64::try_from(integer(&args[at])?) {
                    Ok(count) => limit = Some(count),
                    Err(_) => return fail("ERR The LIMIT argument must be >= 0."),
                }
            } else if adds && is("NOMKSTREAM") {
                options.no_stream = true;
            } else if adds {
                options.id = NewId::parse(arg)?;
                options.rest = at + 1;
                break;
            } else {
                return fail(error_messages::SYNTAX);
            }
            at += 1;
        }
        if kept.is_none() && limit.is_some_and(|limit| limit > 0) {
            return fail("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
        }
        if kept.is_none() && !adds {
            return fail("ERR syntax error, XTRIM must be called with a trimming strategy");
        }
        if limit.is_some() && !is_approximate {
            return fail("ERR syntax error, LIMIT cannot be used without the special ~ option");
        }
        let limit = limit.unwrap_or(if is_approximate { LIMIT_DEFAULT } else { 0 });
        options.trim = kept.map(|kept| Trim { kept, is_approximate, limit });
        Ok(options)
    }
}

/// Removes the oldest entries, and returns their number. The caller writes the meta row.
pub(super) fn trim(
    exec: &mut Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &mut Stream,
    trim: &Trim,
) -> CommandResult<u64> {
    let is_nothing = match trim.kept {
        Kept::Count(count) => stream.len <= count,
        Kept::From(first) => stream.len == 0 || first <= stream.first_id,
    };
    if is_nothing {
        return Ok(0);
    }
    let mut len = stream.len;
    let mut removed = Vec::new();
    // The first node that is not removed as a whole.
    let mut last = None;
    from_first_node(exec, key, stream, &mut |id, value| {
        let (live, last_id) = Node::count_and_last(value)?;
        let deleted = stream.len - len;
        let is_done = matches!(trim.kept, Kept::Count(count) if len <= count);
        if is_done || trim.limit > 0 && deleted.saturating_add(live) > trim.limit {
            return Ok(ControlFlow::Break(()));
        }
        let is_whole = match trim.kept {
            Kept::Count(count) => len.saturating_sub(live) >= count,
            Kept::From(first) => last_id < first,
        };
        if is_whole {
            removed.push((id, value.len()));
            len = len.saturating_sub(live);
            return Ok(ControlFlow::Continue(()));
        }
        if !trim.is_approximate {
            last = Some(Node::decode(id, Bytes::copy_from_slice(value))?);
        }
        Ok(ControlFlow::Break(()))
    })?;
    let before = std::mem::replace(&mut stream.len, len);
    delete_nodes(exec, key, stream, &removed)?;
    if let Some(node) = last {
        let entries = node.entries()?;
        let doomed: Vec<Entry> = match trim.kept {
            Kept::Count(count) => {
                let excess = usize::try_from(stream.len.saturating_sub(count)).unwrap_or(usize::MAX);
                entries.into_iter().take(excess).collect()
            }
            Kept::From(first) => entries.into_iter().take_while(|entry| entry.id < first).collect(),
        };
        if !doomed.is_empty() {
            delete_from(exec, key, stream, &node, &doomed)?;
        }
    }
    let deleted = before - stream.len;
    if deleted > 0 {
        find_first(exec, key, stream)?;
    }
    Ok(deleted)
}

pub(crate) fn xtrim(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let options = Options::parse(args, false)?;
    let key = exec.key(&args[1]);
    let (Some(of), Some(found)) = (options.trim, exec.find_stream(&key)?) else { return Ok(Reply::Int(0)) };
    let mut stream = found.stream;
    let deleted = trim(exec, &key, &mut stream, &of)?;
    if deleted > 0 {
        exec.put_stream(&key, Some(&found), stream);
        exec.tell(&key, "xtrim");
    }
    Ok(count_reply(deleted))
}
