//! `OBJECT` and `MEMORY`, which describe how Redis would represent a value.
//!
//! Values are rows in this store. So encodings are those that Redis would choose for a value that
//! is written at once with the present thresholds, and sizes are those of the rows.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::packed::is_packed;
use storage::{Stream, StreamId, Value};

use crate::counted_tree::Direction;
use crate::elements::{visit_elements, LOOKED_AT_MAX, NAME_HASH_LEN};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandResult, Exec};
use crate::lists;
use crate::number::integer;
use crate::sorted_sets::{is_listpack, SCORE_LEN};
use crate::streams::entries::from_first_node;
use crate::streams::group;

/// Maximum bytes of a string that Redis keeps in one allocation with its header.
const EMBEDDED_MAX: usize = 44;
/// Estimated bytes that a row takes besides its key and value: the engine's key trailer and
/// lengths.
const ROW_OVERHEAD: usize = 16;
/// Bytes of an element's length in a node, if it is short.
const LENGTH_BYTES: usize = 1;
const SAMPLES_DEFAULT: u64 = 5;
/// Bytes of a row of a consumer group besides those that its key has in every row, on average.
const GROUP_ROW_BYTES: u64 = 30;

pub(crate) fn encoding(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let Some(meta) = exec.peek(&key)? else { return Ok(Reply::Nil) };
    let thresholds = *exec.txn.thresholds();
    let is_above = |len: u64, threshold: u64| len > threshold.min(LOOKED_AT_MAX);
    let is_long = |name: &[u8], threshold: u64| name.len() as u64 > threshold;
    let name = match meta.value {
        Value::String(bytes) if resp::parse_integer(&bytes).is_some() => "int",
        Value::String(bytes) if bytes.len() <= EMBEDDED_MAX => "embstr",
        Value::String(_) => "raw",
        Value::Hash { len, .. } if is_above(len, thresholds.hash_entries()) => "hashtable",
        Value::Hash { generation, .. } => {
            let mut name = "listpack";
            visit_elements(exec, &key, generation, 0, &mut |_, field, value| {
                let longest = thresholds.hash_value();
                if is_long(field, longest) || is_long(value, longest) {
                    name = "hashtable";
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            name
        }
        Value::Set { len, .. } if is_above(len, thresholds.intset_entries()) => "hashtable",
        Value::Set { generation, .. } => {
            let mut name = "intset";
            visit_elements(exec, &key, generation, 0, &mut |_, member, _| {
                if resp::parse_integer(member).is_none() {
                    name = "hashtable";
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            name
        }
        Value::SortedSet { generation, len, .. } => match is_listpack(exec, &key, (generation, len))? {
            true => "listpack",
            false => "skiplist",
        },
        Value::List { .. } => "quicklist",
        Value::Stream(_) => "stream",
    };
    Ok(Reply::bulk(name))
}

pub(crate) fn freq(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    if exec.peek(&key)?.is_none() {
        return Ok(Reply::Nil);
    }
    fail(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
         switching between policies at runtime LRU and LFU data will take some time to adjust.",
    )
}

pub(crate) fn idletime(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let idle = exec.idle_time(&key);
    Ok(exec.peek(&key)?.map_or(Reply::Nil, |_| Reply::Int(idle.into())))
}

pub(crate) fn refcount(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    Ok(exec.peek(&key)?.map_or(Reply::Nil, |_| Reply::Int(1)))
}

pub(crate) fn memory_usage(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let mut samples = SAMPLES_DEFAULT;
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        match options.next() {
            Some(value) if option.eq_ignore_ascii_case(b"SAMPLES") => {
                let Ok(value) = u64::try_from(integer(value)?) else { return fail(error_messages::SYNTAX) };
                samples = if value == 0 { u64::MAX } else { value };
            }
            _ => return fail(error_messages::SYNTAX),
        }
    }
    let key = exec.key(&args[2]);
    let Some(meta) = exec.look_up(&key)? else { return Ok(Reply::Nil) };
    let meta_row = key.meta_row();
    let row = meta_row.len() + exec.txn.get(&meta_row)?.map_or(0, |value| value.len()) + ROW_OVERHEAD;
    let elements = match (&meta.value, Collection::of(&meta)) {
        (_, Some(collection)) if is_packed(collection.generation) => 0,
        (Value::Stream(stream), _) => stream_bytes(exec, &key, stream, samples)?,
        (_, None) => 0,
        (_, Some(collection)) => sampled_bytes(exec, &key, collection, samples)?,
    };
    Ok(Reply::Int(i64::try_from(row as u64 + elements).unwrap_or(i64::MAX)))
}

/// Estimates the bytes of a stream's nodes from the first few, and adds those of its groups.
fn stream_bytes(
    exec: &Exec<'_, '_>,
    key: &storage::KeyRef<'_>,
    stream: &Stream,
    samples: u64,
) -> CommandResult<u64> {
    let row = (key.element_row(stream.generation, b"").len() + ROW_OVERHEAD) as u64;
    let (mut seen, mut bytes) = (0, 0);
    from_first_node(exec, key, stream, &mut |_, value| {
        seen += 1;
        bytes += row + (StreamId::LEN + value.len()) as u64;
        Ok(match seen >= samples {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    let mut total = u128::from(bytes) * u128::from(stream.nodes) / u128::from(seen.max(1));
    for group in group::all(exec, key, stream)? {
        let rows = 1 + 2 * u128::from(group.row.consumers) + 2 * u128::from(group.row.pending);
        total += rows * u128::from(row + GROUP_ROW_BYTES);
    }
    Ok(u64::try_from(total).unwrap_or(u64::MAX))
}

/// Estimates the bytes of all elements from the first few. Those of nodes are not divided among
/// elements exactly, and inner nodes are left out.
fn sampled_bytes(
    exec: &Exec<'_, '_>,
    key: &storage::KeyRef<'_>,
    collection: Collection,
    samples: u64,
) -> CommandResult<u64> {
    let row = key.element_row(collection.generation, b"").len() + NAME_HASH_LEN + ROW_OVERHEAD;
    let (mut seen, mut bytes) = (0, 0);
    let next = |seen: u64| match seen >= samples {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    if collection.kind == CollectionKind::List {
        lists::tree(key, collection).walk(exec, 0, Direction::Forward, &mut |element| {
            seen += 1;
            bytes += (element.len() + LENGTH_BYTES) as u64;
            next(seen)
        })?;
    } else {
        let in_tree = |name: &[u8]| match collection.kind {
            CollectionKind::SortedSet => name.len() + SCORE_LEN + LENGTH_BYTES,
            _ => 0,
        };
        visit_elements(exec, key, collection.generation, 0, &mut |_, name, value| {
            seen += 1;
            bytes += (row + name.len() + value.len() + in_tree(name)) as u64;
            next(seen)
        })?;
    }
    let total = u128::from(bytes) * u128::from(collection.len) / u128::from(seen.max(1));
    Ok(u64::try_from(total).unwrap_or(u64::MAX))
}
