//! Unions, intersections and differences of sorted sets and sets. A set's members have the score 1.

use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::Meta;

use super::score::score;
use super::{decode_score, replace, reply, Member};
use crate::elements::{element_row, visit_in_batches};
use crate::error_messages;
use crate::exec::{fail, held_bytes, Collection, CollectionKind, CommandResult, Exec, Key};
use crate::number::{integer, integer_or};

const NOT_A_LIMIT: &str = "ERR LIMIT can't be negative";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Union,
    Intersection,
    Difference,
}

/// The function that combines the scores of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            // Opposite infinities make 0, as in Redis.
            Aggregate::Sum => not_nan(score + other),
            Aggregate::Min if other < score => other,
            Aggregate::Max if other > score => other,
            Aggregate::Min | Aggregate::Max => score,
        }
    }
}

fn not_nan(score: f64) -> f64 {
    if score.is_nan() {
        0.0
    } else {
        score
    }
}

/// The use of a command's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reply,
    Store,
    Count,
}

/// One of the sets that a command combines.
pub(crate) struct Source<'k> {
    pub key: Key<'k>,
    /// `None` if the key does not exist.
    pub set: Option<Collection>,
    pub weight: f64,
}

impl<'k> Source<'k> {
    /// Returns a set that has no weight.
    pub fn unweighted(key: Key<'k>, set: Option<Collection>) -> Source<'k> {
        Source { key, set, weight: 1.0 }
    }

    pub fn len(&self) -> u64 {
        self.set.map_or(0, |set| set.len)
    }

    /// Returns the score of a member before weighting.
    fn score(&self, exec: &Exec<'_, '_>, name: &[u8]) -> CommandResult<Option<f64>> {
        let Some(set) = self.set else { return Ok(None) };
        let value = exec.txn.get(&element_row(&self.key, set.generation, name))?;
        value.map(|value| score_in(set.kind, &value)).transpose()
    }

    fn visit(
        &self,
        exec: &Exec<'_, '_>,
        mut visit: impl FnMut(Bytes, f64) -> CommandResult<ControlFlow<()>>,
    ) -> CommandResult<()> {
        let Some(set) = self.set else { return Ok(()) };
        let key = &self.key;
        visit_in_batches(exec, key, set.generation, |name, value| visit(name, score_in(set.kind, &value)?))
    }

    /// Reads members from the sub-key `first` on, until they have so many rows or bytes or the
    /// entry has no room for more. Returns their sub-keys, and their scores before weighting.
    /// `next` becomes the next sub-key, if there is one and it is less.
    pub fn read(
        &self,
        exec: &Exec<'_, '_>,
        first: &[u8],
        (rows_max, bytes_max): (usize, usize),
        next: &mut Option<Bytes>,
    ) -> CommandResult<Vec<(Bytes, f64)>> {
        let mut read = Vec::new();
        let Some(set) = self.set else { return Ok(read) };
        let (mut bytes, mut damage) = (0, None);
        let start = self.key.element_row(set.generation, first);
        let (begin, end) = self.key.element_range(set.generation);
        exec.txn.scan(&start, &end, &mut |row, value| {
            let subkey = &row[begin.len()..];
            let is_full = read.len() == rows_max || bytes >= bytes_max;
            if is_full || !exec.find_room(held_bytes(1, subkey.len())) {
                if next.as_ref().is_none_or(|next| subkey < &next[..]) {
                    *next = Some(Bytes::copy_from_slice(subkey));
                }
                return ControlFlow::Break(());
            }
            bytes += subkey.len();
            match score_in(set.kind, value) {
                Ok(score) => read.push((Bytes::copy_from_slice(subkey), score)),
                Err(error) => damage = Some(error),
            }
            if damage.is_some() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        damage.map_or(Ok(read), Err)
    }
}

fn score_in(kind: CollectionKind, value: &[u8]) -> CommandResult<f64> {
    match kind {
        CollectionKind::SortedSet => decode_score(value),
        _ => Ok(1.0),
    }
}

/// A parsed command.
pub(crate) struct Request<'k> {
    pub sources: Vec<Source<'k>>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Maximum number of members to count, or 0.
    limit: u64,
}

impl<'k> Request<'k> {
    /// Returns a request of sets without scores.
    pub fn unweighted(sources: Vec<Source<'k>>) -> Request<'k> {
        Request { sources, aggregate: Aggregate::Sum, with_scores: false, limit: 0 }
    }

    /// Returns the score that a member of the first set has in the intersection or difference with
    /// the others; `None` if it is not in it.
    pub fn score(
        &self,
        exec: &Exec<'_, '_>,
        operation: Operation,
        others: &[Source<'_>],
        (name, score): (&[u8], f64),
    ) -> CommandResult<Option<f64>> {
        if operation == Operation::Difference {
            for other in others {
                if other.score(exec, name)?.is_some() {
                    return Ok(None);
                }
            }
            return Ok(Some(score));
        }
        let mut total = not_nan(self.sources.first().map_or(1.0, |first| first.weight) * score);
        for other in others {
            let Some(score) = other.score(exec, name)? else { return Ok(None) };
            total = self.aggregate.of(total, other.weight * score);
        }
        Ok(Some(total))
    }

    /// Adds the score of a source's member to its score in a union. Returns true if it is new.
    pub fn add<N: Ord>(&self, source: &Source<'_>, place: Entry<'_, N, f64>, score: f64) -> bool {
        let score = not_nan(source.weight * score);
        match place {
            Entry::Occupied(mut total) => {
                let combined = self.aggregate.of(*total.get(), score);
                total.insert(combined);
                false
            }
            Entry::Vacant(place) => {
                place.insert(score);
                true
            }
        }
    }
}

/// Finds a key of a command.
type Find<'f> = &'f dyn Fn(&mut Exec<'_, '_>, &Key<'_>) -> CommandResult<Option<Meta>>;

fn find(exec: &mut Exec<'_, '_>, key: &Key<'_>) -> CommandResult<Option<Meta>> {
    exec.reading(|exec| exec.find(key))
}

/// Parses the arguments from the number of keys on, and finds the sets.
fn parse<'k>(
    args: &'k [Bytes],
    exec: &mut Exec<'_, '_>,
    name: &str,
    (operation, result): (Operation, Use),
    find: Find<'_>,
) -> CommandResult<Request<'k>> {
    let count = integer(&args[0])?;
    if count < 1 {
        return fail(format!("ERR at least 1 input key is needed for '{name}' command"));
    }
    let parts = usize::try_from(count).ok().and_then(|count| args[1..].split_at_checked(count));
    let Some((keys, mut options)) = parts else { return fail(error_messages::SYNTAX) };
    let mut sources = Vec::with_capacity(keys.len());
    for key in keys {
        let key = exec.key(key);
        let set = match find(exec, &key)? {
            None => None,
            Some(meta) => match Collection::of(&meta) {
                Some(set) if matches!(set.kind, CollectionKind::SortedSet | CollectionKind::Set) => Some(set),
                _ => return fail(error_messages::WRONG_TYPE),
            },
        };
        sources.push(Source::unweighted(key, set));
    }
    let mut request = Request::unweighted(sources);
    let has_weights = operation != Operation::Difference && result != Use::Count;
    while let [word, rest @ ..] = options {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        options = match rest {
            _ if has_weights && is(b"WEIGHTS") && rest.len() >= keys.len() => {
                let (weights, rest) = rest.split_at(keys.len());
                for (source, weight) in request.sources.iter_mut().zip(weights) {
                    source.weight = score(weight, "ERR weight value is not a float")?;
                }
                rest
            }
            [aggregate, rest @ ..] if has_weights && is(b"AGGREGATE") => {
                request.aggregate = match aggregate {
                    word if word.eq_ignore_ascii_case(b"SUM") => Aggregate::Sum,
                    word if word.eq_ignore_ascii_case(b"MIN") => Aggregate::Min,
                    word if word.eq_ignore_ascii_case(b"MAX") => Aggregate::Max,
                    _ => return fail(error_messages::SYNTAX),
                };
                rest
            }
            _ if result == Use::Reply && is(b"WITHSCORES") => {
                request.with_scores = true;
                rest
            }
            [limit, rest @ ..] if result == Use::Count && is(b"LIMIT") => {
                let Ok(limit) = u64::try_from(integer_or(limit, NOT_A_LIMIT)?) else {
                    return fail(NOT_A_LIMIT);
                };
                request.limit = limit;
                rest
            }
            _ => return fail(error_messages::SYNTAX),
        };
    }
    if operation != Operation::Difference {
        // The smallest set is read, and scores are added in this order.
        request.sources.sort_by_key(Source::len);
    }
    Ok(request)
}

/// Visits the members that all sets have. Reads the first set, and looks its members up in the
/// others.
fn intersect(
    exec: &Exec<'_, '_>,
    request: &Request<'_>,
    mut visit: impl FnMut(Member) -> ControlFlow<()>,
) -> CommandResult<()> {
    let Some((first, others)) = request.sources.split_first() else { return Ok(()) };
    first.visit(exec, |name, score| {
        match request.score(exec, Operation::Intersection, others, (&name, score))? {
            Some(score) => Ok(visit(Member { score, name })),
            None => Ok(ControlFlow::Continue(())),
        }
    })
}

fn unite(exec: &Exec<'_, '_>, request: &Request<'_>) -> CommandResult<BTreeMap<Bytes, f64>> {
    let mut scores: BTreeMap<Bytes, f64> = BTreeMap::new();
    for source in &request.sources {
        source.visit(exec, |name, score| {
            let bytes = name.len();
            if request.add(source, scores.entry(name), score) {
                exec.hold(2, bytes)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(scores)
}

/// Returns the members of the first set that no other set has. Its members are looked up in the
/// others.
fn subtract(exec: &Exec<'_, '_>, request: &Request<'_>) -> CommandResult<Vec<Member>> {
    let mut members = Vec::new();
    let Some((first, others)) = request.sources.split_first() else { return Ok(members) };
    first.visit(exec, |name, score| {
        if let Some(score) = request.score(exec, Operation::Difference, others, (&name, score))? {
            exec.hold(2, name.len())?;
            members.push(Member { score, name });
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(members)
}

/// Returns the members of the result in order.
fn combine(exec: &Exec<'_, '_>, request: &Request<'_>, operation: Operation) -> CommandResult<Vec<Member>> {
    let mut members = Vec::new();
    match operation {
        Operation::Union => {
            let scores = unite(exec, request)?;
            members.extend(scores.into_iter().map(|(name, score)| Member { score, name }));
        }
        Operation::Intersection => {
            intersect(exec, request, |member| {
                let bytes = member.name.len();
                members.push(member);
                exec.holding(2, bytes)
            })?;
            exec.check_held()?;
        }
        Operation::Difference => members = subtract(exec, request)?,
    }
    members.sort_by(Member::order);
    Ok(members)
}

fn answer(args: &[Bytes], exec: &mut Exec<'_, '_>, name: &str, operation: Operation) -> CommandResult {
    let request = parse(&args[1..], exec, name, (operation, Use::Reply), &find)?;
    let members = combine(exec, &request, operation)?;
    Ok(reply(exec, members, request.with_scores))
}

fn store(args: &[Bytes], exec: &mut Exec<'_, '_>, name: &str, operation: Operation) -> CommandResult {
    let request = parse(&args[2..], exec, name, (operation, Use::Store), &find)?;
    let members = combine(exec, &request, operation)?;
    let key = exec.key(&args[1]);
    replace(exec, &key, None, &members)?;
    Ok(Reply::Int(members.len() as i64))
}

/// Returns the sets of a command that stores its result. Look-ups of the keys are not counted.
pub(crate) fn stored<'k>(
    name: &str,
    operation: Operation,
    args: &'k [Bytes],
    exec: &mut Exec<'_, '_>,
) -> CommandResult<Request<'k>> {
    parse(&args[2..], exec, name, (operation, Use::Store), &|exec, key| exec.look_up(key))
}

pub(crate) fn zunion(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    answer(args, exec, "zunion", Operation::Union)
}

pub(crate) fn zunionstore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    store(args, exec, "zunionstore", Operation::Union)
}

pub(crate) fn zinter(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    answer(args, exec, "zinter", Operation::Intersection)
}

pub(crate) fn zinterstore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    store(args, exec, "zinterstore", Operation::Intersection)
}

pub(crate) fn zdiff(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    answer(args, exec, "zdiff", Operation::Difference)
}

pub(crate) fn zdiffstore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    store(args, exec, "zdiffstore", Operation::Difference)
}

pub(crate) fn zintercard(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let request = parse(&args[1..], exec, "zintercard", (Operation::Intersection, Use::Count), &find)?;
    let mut found = 0u64;
    intersect(exec, &request, |_| {
        found += 1;
        match found == request.limit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    Ok(Reply::Int(found as i64))
}
