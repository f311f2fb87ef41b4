//! Intersections, unions and differences of sets.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::{parse_integer, Reply};

use super::{all_members, bulks, has_member};
use crate::elements::{replace, visit_in_batches};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandResult, Exec, Key};
use crate::sorted_sets::algebra::{Operation, Request, Source};

/// A set and its key.
type Set<'k> = (Key<'k>, Collection);

/// Returns the sets of the keys, after checking all types. A key that does not exist is `None`.
fn find_sets<'k>(exec: &mut Exec<'_, '_>, keys: &'k [Bytes]) -> CommandResult<Vec<Option<Set<'k>>>> {
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        let key = exec.key(key);
        sets.push(exec.reading(|exec| exec.find_set(&key))?.map(|set| (key, set)));
    }
    Ok(sets)
}

/// Visits the members of a set with a callback that may look up other rows.
fn visit_members(
    exec: &Exec<'_, '_>,
    (key, set): &Set<'_>,
    mut visit: impl FnMut(Bytes) -> CommandResult<ControlFlow<()>>,
) -> CommandResult<()> {
    visit_in_batches(exec, key, set.generation, |member, _| visit(member))
}

/// Visits the members that all sets have. Reads the smallest set, and looks its members up in the
/// others.
fn intersect(
    exec: &Exec<'_, '_>,
    sets: Vec<Option<Set<'_>>>,
    mut visit: impl FnMut(Bytes) -> ControlFlow<()>,
) -> CommandResult<()> {
    let Some(mut sets) = sets.into_iter().collect::<Option<Vec<_>>>() else { return Ok(()) };
    sets.sort_by_key(|(_, set)| set.len);
    // A set that is named twice has the same generation.
    sets.dedup_by_key(|(_, set)| set.generation);
    let Some((smallest, others)) = sets.split_first() else { return Ok(()) };
    visit_members(exec, smallest, |member| {
        for (key, set) in others {
            if !has_member(exec, key, *set, &member)? {
                return Ok(ControlFlow::Continue(()));
            }
        }
        Ok(visit(member))
    })
}

fn intersection(keys: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Vec<Bytes>> {
    let sets = find_sets(exec, keys)?;
    let mut members = Vec::new();
    intersect(exec, sets, |member| {
        let bytes = member.len();
        members.push(member);
        exec.holding(1, bytes)
    })?;
    exec.check_held()?;
    Ok(members)
}

fn union(keys: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Vec<Bytes>> {
    let sets = find_sets(exec, keys)?;
    let mut members = BTreeSet::new();
    for set in sets.iter().flatten() {
        visit_members(exec, set, |member| {
            let bytes = member.len();
            if members.insert(member) {
                exec.hold(1, bytes)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(members.into_iter().collect())
}

/// Returns the members of the first set that no other set has. The others are read if they have
/// together at most as many members as the first one. Otherwise its members are looked up in them.
fn difference(keys: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Vec<Bytes>> {
    let sets = find_sets(exec, keys)?;
    let Some((Some(first), others)) = sets.split_first() else { return Ok(Vec::new()) };
    let others: Vec<&Set<'_>> = others.iter().flatten().collect();
    let total = others.iter().fold(0u64, |total, (_, set)| total.saturating_add(set.len));
    let mut excluded = BTreeSet::new();
    let is_read = total <= first.1.len;
    if is_read {
        for (key, set) in &others {
            excluded.extend(all_members(exec, key, *set)?);
        }
    }
    let mut members = Vec::new();
    visit_members(exec, first, |member| {
        let mut is_elsewhere = is_read && excluded.contains(&member);
        for (key, set) in others.iter().filter(|_| !is_read) {
            is_elsewhere = is_elsewhere || has_member(exec, key, *set, &member)?;
        }
        if !is_elsewhere {
            exec.hold(1, member.len())?;
            members.push(member);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(members)
}

/// Returns the sets of a command that stores its result. Look-ups of the keys are not counted.
pub(crate) fn stored<'k>(
    operation: Operation,
    args: &'k [Bytes],
    exec: &mut Exec<'_, '_>,
) -> CommandResult<Request<'k>> {
    let mut sources = Vec::with_capacity(args.len() - 2);
    for key in &args[2..] {
        let key = exec.key(key);
        let set = match exec.look_up(&key)?.as_ref().map(Collection::of) {
            None => None,
            Some(Some(set)) if set.kind == CollectionKind::Set => Some(set),
            Some(_) => return fail(error_messages::WRONG_TYPE),
        };
        sources.push(Source::unweighted(key, set));
    }
    if operation == Operation::Intersection {
        // The smallest set is read.
        sources.sort_by_key(Source::len);
    }
    Ok(Request::unweighted(sources))
}

/// Writes the members to the key in place of its value, and replies with their number.
fn store(destination: &[u8], exec: &mut Exec<'_, '_>, members: Vec<Bytes>) -> CommandResult {
    let key = exec.key(destination);
    let count = members.len() as i64;
    let elements = members.into_iter().map(|member| (member, Bytes::new())).collect();
    replace(exec, &key, (CollectionKind::Set, None), elements)?;
    Ok(Reply::Int(count))
}

pub(crate) fn sinter(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    Ok(Reply::Set(bulks(intersection(&args[1..], exec)?)))
}

pub(crate) fn sinterstore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let members = intersection(&args[2..], exec)?;
    store(&args[1], exec, members)
}

pub(crate) fn sunion(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    Ok(Reply::Set(bulks(union(&args[1..], exec)?)))
}

pub(crate) fn sunionstore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let members = union(&args[2..], exec)?;
    store(&args[1], exec, members)
}

pub(crate) fn sdiff(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    Ok(Reply::Set(bulks(difference(&args[1..], exec)?)))
}

pub(crate) fn sdiffstore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let members = difference(&args[2..], exec)?;
    store(&args[1], exec, members)
}

pub(crate) fn sintercard(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let count = parse_integer(&args[1]).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    if count == 0 {
        return fail("ERR numkeys should be greater than 0");
    }
    let Some((keys, options)) =
        usize::try_from(count).ok().and_then(|count| args[2..].split_at_checked(count))
    else {
        return fail("ERR Number of keys can't be greater than number of args");
    };
    let mut limit = 0;
    for option in options.chunks(2) {
        let [name, value] = option else { return fail(error_messages::SYNTAX) };
        if !name.eq_ignore_ascii_case(b"LIMIT") {
            return fail(error_messages::SYNTAX);
        }
        let Some(value) = parse_integer(value).and_then(|limit| u64::try_from(limit).ok()) else {
            return fail("ERR LIMIT can't be negative");
        };
        limit = value;
    }
    let sets = find_sets(exec, keys)?;
    let mut found = 0u64;
    intersect(exec, sets, |_| {
        found += 1;
        if found == limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(Reply::Int(found as i64))
}
