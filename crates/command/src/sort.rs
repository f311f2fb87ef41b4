//! `SORT` and `SORT_RO`: the elements of a list, set or sorted set, ordered by themselves or by
//! other keys.
//!
//! The elements and the values by which they are ordered are in memory, so there may be at most
//! [`ELEMENTS_MAX`]. Patterns name keys that are not among the arguments. So they are refused where
//! the region may not hold these keys: in cluster mode.

use std::cmp::Ordering;

use bytes::{Bytes, BytesMut};
use resp::Reply;
use storage::{Meta, Value};
use types::SlotRange;

use crate::counted_tree::Direction;
use crate::elements::{all_elements, element_row};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandResult, Exec, Key};
use crate::lists;
use crate::number::integer;
use crate::sorted_sets::{self, score::weight};

/// Maximum number of elements, and of values in a reply.
const ELEMENTS_MAX: u64 = 1 << 20;
const TOO_MANY_BYTES: &str = "ERR SORT stores at most 64 MiB of values";
const TOO_MANY: &str = "ERR SORT is limited to 1048576 elements and values";

/// The options of a command.
#[derive(Default)]
struct Options<'a> {
    by: Option<&'a Bytes>,
    get: Vec<&'a Bytes>,
    is_descending: bool,
    is_alphabetic: bool,
    start: i64,
    /// Maximum number of elements, or negative.
    count: i64,
    destination: Option<usize>,
}

/// A pattern that names other keys, in the order of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    By,
    Get,
}

impl Pattern {
    /// Returns the error in cluster mode.
    pub fn denial_in_cluster(self) -> &'static str {
        match self {
            Pattern::By => "ERR BY option of SORT denied in Cluster mode.",
            Pattern::Get => "ERR GET option of SORT denied in Cluster mode.",
        }
    }

    /// Returns the error for a user without permission to read every key.
    pub fn denial_to_user(self) -> &'static str {
        match self {
            Pattern::By => "ERR BY option of SORT denied due to insufficient ACL permissions.",
            Pattern::Get => "ERR GET option of SORT denied due to insufficient ACL permissions.",
        }
    }
}

impl<'a> Options<'a> {
    /// Calls `on_pattern` with each pattern that names other keys, as soon as it is met: its error
    /// precedes those of later arguments.
    fn parse(
        args: &'a [Bytes],
        stores: bool,
        on_pattern: &mut dyn FnMut(Pattern) -> CommandResult<()>,
    ) -> CommandResult<Options<'a>> {
        let mut options = Options { count: -1, ..Options::default() };
        let mut at = 2;
        while at < args.len() {
            let is = |name: &[u8]| args[at].eq_ignore_ascii_case(name);
            let rest = &args[at + 1..];
            at += match rest {
                _ if is(b"ASC") => {
                    options.is_descending = false;
                    1
                }
                _ if is(b"DESC") => {
                    options.is_descending = true;
                    1
                }
                _ if is(b"ALPHA") => {
                    options.is_alphabetic = true;
                    1
                }
                [start, count, ..] if is(b"LIMIT") => {
                    (options.start, options.count) = (integer(start)?, integer(count)?);
                    3
                }
                [_, ..] if stores && is(b"STORE") => {
                    options.destination = Some(at + 1);
                    2
                }
                [pattern, ..] if is(b"BY") => {
                    // Once one pattern asks for no order, others do not ask for one again.
                    if options.by.is_none_or(|by| by.contains(&b'*')) {
                        options.by = Some(pattern);
                    }
                    if pattern.contains(&b'*') {
                        on_pattern(Pattern::By)?;
                    }
                    2
                }
                [pattern, ..] if is(b"GET") => {
                    on_pattern(Pattern::Get)?;
                    options.get.push(pattern);
                    2
                }
                _ => return fail(error_messages::SYNTAX),
            };
        }
        Ok(options)
    }
}

/// Returns the position of the destination among the arguments of `SORT`. Of arguments that `SORT`
/// refuses, it is the one that Redis takes for it: words that are no options are skipped.
pub(crate) fn destination_at(args: &[Bytes]) -> Option<usize> {
    if let Ok(options) = Options::parse(args, true, &mut |_| Ok(())) {
        return options.destination;
    }
    let (mut at, mut found) = (2, None);
    while let Some(word) = args.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        at += match () {
            () if is("limit") => 3,
            () if is("get") || is("by") => 2,
            () => {
                found = if is("store") && at + 1 < args.len() { Some(at + 1) } else { found };
                1
            }
        };
    }
    found
}

/// Returns the first pattern of a command that names keys which are not among its arguments.
/// `None` also for other commands, and if an argument before it is wrong.
pub fn pattern_of(name: &str, args: &[Bytes]) -> Option<Pattern> {
    if name != "sort" && name != "sort_ro" || args.len() < 2 {
        return None;
    }
    let mut found = None;
    let _ = Options::parse(args, name == "sort", &mut |pattern| {
        found = Some(pattern);
        // The first one ends the search.
        fail("")
    });
    found
}

pub(crate) fn sort(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    run(args, exec, true)
}

pub(crate) fn sort_ro(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    run(args, exec, false)
}

fn run(args: &[Bytes], exec: &mut Exec<'_, '_>, stores: bool) -> CommandResult {
    let has_all_keys = exec.slots == SlotRange::ALL;
    let options = Options::parse(args, stores, &mut |pattern| match has_all_keys {
        true => Ok(()),
        false => fail(pattern.denial_in_cluster()),
    })?;
    let key = exec.key(&args[1]);
    let collection = match exec.reading(|exec| exec.find(&key))?.map(|meta| Collection::of(&meta)) {
        None => None,
        Some(Some(collection)) if collection.kind != CollectionKind::Hash => Some(collection),
        Some(_) => return fail(error_messages::WRONG_TYPE),
    };
    let elements = match collection {
        None => Vec::new(),
        Some(collection) => sorted(exec, &key, collection, &options)?,
    };
    let replies = (options.get.len().max(1) as u64).saturating_mul(elements.len() as u64);
    if replies > ELEMENTS_MAX {
        return fail(TOO_MANY);
    }
    let mut values = Vec::with_capacity(replies as usize);
    let mut bytes = 0;
    for element in elements {
        if options.get.is_empty() {
            values.push(Some(element));
            continue;
        }
        for pattern in &options.get {
            let value = value_of(exec, pattern, &element)?;
            let value_bytes = value.as_ref().map_or(0, Bytes::len);
            exec.hold(1, value_bytes)?;
            bytes += value_bytes as u64;
            // One large value may be stored for each element.
            if options.destination.is_some() && bytes > exec.limits.max_value_bytes {
                return fail(TOO_MANY_BYTES);
            }
            values.push(value);
        }
    }
    match options.destination {
        None => {
            Ok(Reply::Array(values.into_iter().map(|value| value.map_or(Reply::Nil, Reply::Bulk)).collect()))
        }
        Some(at) => {
            let count = values.len() as i64;
            let key = exec.key(&args[at]);
            match values.is_empty() {
                true => {
                    if let Some(old) = exec.find(&key)? {
                        exec.remove(&key, &old)?;
                    }
                }
                false => {
                    let items = values.into_iter().map(Option::unwrap_or_default).collect();
                    lists::replace(exec, &key, None, items)?;
                }
            }
            Ok(Reply::Int(count))
        }
    }
}

/// Returns the first index and the number of the elements that `LIMIT` asks for.
fn limited(options: &Options<'_>, len: usize) -> (usize, usize) {
    let start = usize::try_from(options.start.max(0)).unwrap_or(usize::MAX).min(len);
    let count = usize::try_from(options.count).unwrap_or(usize::MAX);
    (start, count.min(len - start))
}

/// Returns the elements of a collection that are asked for, in order.
fn sorted(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    collection: Collection,
    options: &Options<'_>,
) -> CommandResult<Vec<Bytes>> {
    let mut by = options.by;
    let mut is_alphabetic = options.is_alphabetic;
    if by.is_some_and(|pattern| !pattern.contains(&b'*')) {
        // A pattern without a star asks for no order. A set, which has none, is sorted by name.
        if collection.kind != CollectionKind::Set {
            return in_own_order(exec, key, collection, options);
        }
        (by, is_alphabetic) = (None, true);
    }
    if collection.len > ELEMENTS_MAX {
        return fail(TOO_MANY);
    }
    let names = match collection.kind {
        CollectionKind::List => lists::all_elements(exec, key, collection)?,
        _ => {
            let elements = all_elements(exec, key, collection.generation)?;
            elements.into_iter().map(|(name, _)| name).collect()
        }
    };
    let (start, count) = limited(options, names.len());
    let mut names = match is_alphabetic {
        true => by_text(exec, names, by)?,
        false => by_number(exec, names, by)?,
    };
    // Elements that compare as equal keep their order in both directions, as all others do not.
    if options.is_descending {
        names.sort_by(|a, b| b.0.compare(&a.0));
    } else {
        names.sort_by(|a, b| a.0.compare(&b.0));
    }
    Ok(names.into_iter().skip(start).take(count).map(|(_, name)| name).collect())
}

/// The value by which an element is ordered.
enum Weight {
    /// A number, and the element itself to tell equal numbers apart.
    Number(f64, Bytes),
    /// A text, or none.
    Text(Option<Bytes>),
}

impl Weight {
    fn compare(&self, other: &Weight) -> Ordering {
        match (self, other) {
            (Weight::Number(a, name), Weight::Number(b, other)) => {
                a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| name.cmp(other))
            }
            (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

fn by_text(
    exec: &mut Exec<'_, '_>,
    names: Vec<Bytes>,
    by: Option<&Bytes>,
) -> CommandResult<Vec<(Weight, Bytes)>> {
    let mut weighted = Vec::with_capacity(names.len());
    for name in names {
        let text = match by {
            None => Some(name.clone()),
            Some(pattern) => value_of(exec, pattern, &name)?,
        };
        exec.hold(1, text.as_ref().map_or(0, Bytes::len))?;
        weighted.push((Weight::Text(text), name));
    }
    Ok(weighted)
}

fn by_number(
    exec: &mut Exec<'_, '_>,
    names: Vec<Bytes>,
    by: Option<&Bytes>,
) -> CommandResult<Vec<(Weight, Bytes)>> {
    let mut weighted = Vec::with_capacity(names.len());
    let mut is_wrong = false;
    for name in names {
        let text = match by {
            None => Some(name.clone()),
            Some(pattern) => value_of(exec, pattern, &name)?,
        };
        let number = text.map_or(Some(0.0), |text| weight(&text));
        is_wrong |= number.is_none();
        weighted.push((Weight::Number(number.unwrap_or_default(), name.clone()), name));
    }
    match is_wrong {
        true => fail("ERR One or more scores can't be converted into double"),
        false => Ok(weighted),
    }
}

/// Returns the elements of a list or sorted set in its own order, or from its end.
fn in_own_order(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    collection: Collection,
    options: &Options<'_>,
) -> CommandResult<Vec<Bytes>> {
    let len = usize::try_from(collection.len).unwrap_or(usize::MAX);
    let (start, count) = limited(options, len);
    if count as u64 > ELEMENTS_MAX {
        return fail(TOO_MANY);
    }
    let direction = if options.is_descending { Direction::Backward } else { Direction::Forward };
    let part = (start as u64, count as u64);
    match collection.kind {
        CollectionKind::List => lists::tree(key, collection).items(exec, part.0, part.1, direction),
        _ => sorted_sets::names(exec, key, collection, part, direction),
    }
}

/// Returns the value that a pattern names for an element: of the key in whose name the element
/// takes the place of the star, or of a field of that hash. `#` names the element itself.
fn value_of(exec: &mut Exec<'_, '_>, pattern: &[u8], element: &Bytes) -> CommandResult<Option<Bytes>> {
    if pattern == b"#" {
        return Ok(Some(element.clone()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let behind = &pattern[star + 1..];
    let arrow = behind.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < behind.len());
    let (suffix, field) = match arrow {
        Some(at) => (&behind[..at], Some(&behind[at + 2..])),
        None => (behind, None),
    };
    let mut name = BytesMut::with_capacity(star + element.len() + suffix.len());
    name.extend_from_slice(&pattern[..star]);
    name.extend_from_slice(element);
    name.extend_from_slice(suffix);
    let key = exec.key(&name);
    let found = exec.reading(|exec| exec.find(&key))?;
    Ok(match (found, field) {
        (Some(Meta { value: Value::String(bytes), .. }), None) => Some(bytes),
        (Some(Meta { value: Value::Hash { generation, .. }, .. }), Some(field)) => {
            exec.txn.get(&element_row(&key, generation, field))?
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    #[test]
    fn the_destination_is_behind_the_last_store_that_is_no_value_of_another_option() {
        let at = |line: &str| destination_at(&args(line));
        assert_eq!(at("SORT k STORE d"), Some(3));
        assert_eq!(at("SORT k BY store GET store LIMIT 0 5 store d ALPHA"), Some(10));
        assert_eq!(at("SORT k STORE a STORE b"), Some(5));
        assert_eq!(at("SORT k STORE"), None);
        assert_eq!(at("SORT store d"), None);
    }

    #[test]
    fn patterns_that_name_other_keys_are_found() {
        let of = |line: &str| pattern_of("sort", &args(line));
        assert_eq!(of("SORT k BY w_*"), Some(Pattern::By));
        assert_eq!(of("SORT k BY nosort"), None);
        assert_eq!(of("SORT k BY nosort GET #"), Some(Pattern::Get));
        assert_eq!(of("SORT k nonsense BY w_*"), None);
        assert_eq!(pattern_of("get", &args("GET k BY w_*")), None);
    }
}
