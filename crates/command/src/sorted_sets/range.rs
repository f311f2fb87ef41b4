//! Ranges of sorted sets by rank, score and name: `ZRANGE`, its older forms, `ZRANGESTORE`,
//! `ZCOUNT` and `ZLEXCOUNT`.
//!
//! Every range is first turned into ranks, which takes one or two searches in the tree. Members
//! with different scores have no common order by name; a range by name of such a set is some range
//! of ranks.

use bytes::Bytes;
use resp::Reply;

use super::score::bound;
use super::{members, replace, reply, split_item, tree};
use crate::counted_tree::{Direction, Tree};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandResult, Exec, Key};
use crate::number::integer;
use crate::ranked::rank_interval;

const NOT_A_SCORE: &str = "ERR min or max is not a float";
const NOT_A_NAME: &str = "ERR min or max not valid string range item";

/// The unit of a range's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Name,
}

/// One end of a range.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bound<T> {
    at: T,
    is_excluded: bool,
}

impl<T: PartialOrd> Bound<T> {
    /// Returns true if a range that begins here begins behind the value.
    fn begins_behind(&self, value: &T) -> bool {
        if self.is_excluded {
            *value <= self.at
        } else {
            *value < self.at
        }
    }

    /// Returns true if a range that ends here has the value or ends behind it.
    fn reaches(&self, value: &T) -> bool {
        if self.is_excluded {
            *value < self.at
        } else {
            *value <= self.at
        }
    }
}

/// A name as a bound. Derived `Ord` puts every name between the ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameBound<'a> {
    First,
    Name(&'a [u8]),
    Last,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Range<'a> {
    /// First and last rank; negative ones count from the end.
    Ranks(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    Names(Bound<NameBound<'a>>, Bound<NameBound<'a>>),
}

impl<'a> Range<'a> {
    pub fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> CommandResult<Range<'a>> {
        let both = |min, max| Some((min?, max?));
        match by {
            By::Rank => Ok(Range::Ranks(integer(min)?, integer(max)?)),
            By::Score => match both(score_bound(min), score_bound(max)) {
                Some((min, max)) => Ok(Range::Scores(min, max)),
                None => fail(NOT_A_SCORE),
            },
            By::Name => {
                let (Some(min), Some(max)) = (name_bound(min), name_bound(max)) else {
                    return fail(NOT_A_NAME);
                };
                Ok(Range::Names(min, max))
            }
        }
    }

    /// Returns the ranks of the members in the range: the first, and the first behind the range.
    /// Ranks in the range's bounds count in this direction.
    pub fn ranks(
        &self,
        exec: &Exec<'_, '_>,
        tree: &Tree<'_>,
        len: u64,
        direction: Direction,
    ) -> CommandResult<(u64, u64)> {
        let (first, behind) = match self {
            Range::Ranks(first, last) => {
                let (first, behind) = rank_interval(*first, *last, len);
                match direction {
                    Direction::Forward => (first, behind),
                    Direction::Backward => (len - behind, len - first),
                }
            }
            Range::Scores(min, max) => (
                tree.rank(exec, &|item| min.begins_behind(&split_item(item).0))?,
                tree.rank(exec, &|item| max.reaches(&split_item(item).0))?,
            ),
            Range::Names(min, max) => (
                tree.rank(exec, &|item| min.begins_behind(&NameBound::Name(split_item(item).1)))?,
                tree.rank(exec, &|item| max.reaches(&NameBound::Name(split_item(item).1)))?,
            ),
        };
        Ok((first, behind.max(first)))
    }
}

fn score_bound(text: &[u8]) -> Option<Bound<f64>> {
    match text {
        [b'(', text @ ..] => Some(Bound { at: bound(text)?, is_excluded: true }),
        text => Some(Bound { at: bound(text)?, is_excluded: false }),
    }
}

fn name_bound(text: &[u8]) -> Option<Bound<NameBound<'_>>> {
    let (at, is_excluded) = match text {
        [b'-'] | [b'-', 0, ..] => (NameBound::First, false),
        [b'+'] | [b'+', 0, ..] => (NameBound::Last, false),
        [b'[', name @ ..] => (NameBound::Name(name), false),
        [b'(', name @ ..] => (NameBound::Name(name), true),
        _ => return None,
    };
    Some(Bound { at, is_excluded })
}

/// A parsed request for a range.
struct Query<'a> {
    range: Range<'a>,
    direction: Direction,
    offset: i64,
    limit: i64,
    with_scores: bool,
}

/// The parts of a request that the command's name determines.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    direction: Option<Direction>,
    is_stored: bool,
}

impl<'a> Query<'a> {
    /// Parses the bounds and the options.
    fn parse(args: &'a [Bytes], form: Form) -> CommandResult<Query<'a>> {
        let Form { mut by, mut direction, is_stored } = form;
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        let mut options = &args[2..];
        while let [word, rest @ ..] = options {
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            options = rest;
            match rest {
                _ if !is_stored && is(b"WITHSCORES") => with_scores = true,
                [first, second, rest @ ..] if is(b"LIMIT") => {
                    (offset, limit) = (integer(first)?, integer(second)?);
                    options = rest;
                }
                _ if direction.is_none() && is(b"REV") => direction = Some(Direction::Backward),
                _ if by.is_none() && is(b"BYLEX") => by = Some(By::Name),
                _ if by.is_none() && is(b"BYSCORE") => by = Some(By::Score),
                _ => return fail(error_messages::SYNTAX),
            }
        }
        let (by, direction) = (by.unwrap_or(By::Rank), direction.unwrap_or(Direction::Forward));
        if limit != -1 && by == By::Rank {
            return fail(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            );
        }
        if by == By::Rank {
            // A limit of -1 is accepted, and then the offset has no effect.
            offset = 0;
        }
        if with_scores && by == By::Name {
            return fail("ERR syntax error, WITHSCORES not supported in combination with BYLEX");
        }
        let (min, max) = match direction {
            Direction::Backward if by != By::Rank => (&args[1], &args[0]),
            _ => (&args[0], &args[1]),
        };
        Ok(Query { range: Range::parse(by, min, max)?, direction, offset, limit, with_scores })
    }

    /// Returns the number of members to skip in the query's direction, and the number to return.
    fn part(&self, exec: &Exec<'_, '_>, tree: &Tree<'_>, len: u64) -> CommandResult<(u64, u64)> {
        let (first, behind) = self.range.ranks(exec, tree, len, self.direction)?;
        // A negative offset skips everything, and a negative limit is none.
        let offset = u64::try_from(self.offset).unwrap_or(u64::MAX);
        let limit = u64::try_from(self.limit).unwrap_or(u64::MAX);
        let count = (behind - first).saturating_sub(offset).min(limit);
        let skipped = match self.direction {
            Direction::Forward => first,
            Direction::Backward => len.saturating_sub(behind),
        };
        Ok((skipped.saturating_add(offset), count))
    }
}

fn range(
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
    by: Option<By>,
    direction: Option<Direction>,
) -> CommandResult {
    let query = Query::parse(&args[2..], Form { by, direction, is_stored: false })?;
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Array(Vec::new())) };
    let tree = tree(&key, set);
    let part = query.part(exec, &tree, set.len)?;
    let members = members(exec, &tree, part, query.direction)?;
    Ok(reply(exec, members, query.with_scores))
}

pub(crate) fn zrange(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, None, None)
}

pub(crate) fn zrevrange(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, Some(By::Rank), Some(Direction::Backward))
}

pub(crate) fn zrangebyscore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, Some(By::Score), Some(Direction::Forward))
}

pub(crate) fn zrevrangebyscore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, Some(By::Score), Some(Direction::Backward))
}

pub(crate) fn zrangebylex(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, Some(By::Name), Some(Direction::Forward))
}

pub(crate) fn zrevrangebylex(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    range(args, exec, Some(By::Name), Some(Direction::Backward))
}

pub(crate) fn zrangestore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let query = Query::parse(&args[3..], Form { by: None, direction: None, is_stored: true })?;
    let (to, from) = (exec.key(&args[1]), exec.key(&args[2]));
    let mut found = Vec::new();
    if let Some(set) = exec.reading(|exec| exec.find_sorted_set(&from))? {
        let tree = tree(&from, set);
        let part = query.part(exec, &tree, set.len)?;
        found = members(exec, &tree, part, query.direction)?;
    }
    if query.direction == Direction::Backward {
        found.reverse();
    }
    replace(exec, &to, None, &found)?;
    Ok(Reply::Int(found.len() as i64))
}

/// Members of a sorted set with consecutive ranks.
pub(crate) struct Ranks<'k> {
    pub from: Key<'k>,
    pub set: Collection,
    pub first: u64,
    pub count: u64,
}

impl Ranks<'_> {
    /// Returns the number of the set's other members.
    pub fn rest(&self) -> u64 {
        self.set.len.saturating_sub(self.count)
    }
}

/// Returns the members that a `ZRANGESTORE` stores; `None` if there is no set. The look-up is not
/// counted.
pub(crate) fn stored<'k>(args: &'k [Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Option<Ranks<'k>>> {
    let query = Query::parse(&args[3..], Form { by: None, direction: None, is_stored: true })?;
    let from = exec.key(&args[2]);
    let Some(set) = exec.look_up_collection(&from, CollectionKind::SortedSet)? else { return Ok(None) };
    let (skipped, count) = query.part(exec, &tree(&from, set), set.len)?;
    let count = count.min(set.len.saturating_sub(skipped));
    let first = match query.direction {
        Direction::Forward => skipped,
        Direction::Backward => set.len.saturating_sub(skipped).saturating_sub(count),
    };
    Ok(Some(Ranks { from, set, first, count }))
}

pub(crate) fn zcount(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    count(args, exec, By::Score)
}

pub(crate) fn zlexcount(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    count(args, exec, By::Name)
}

fn count(args: &[Bytes], exec: &mut Exec<'_, '_>, by: By) -> CommandResult {
    let range = Range::parse(by, &args[2], &args[3])?;
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Int(0)) };
    let (first, behind) = interval(exec, &tree(&key, set), set, &range)?;
    Ok(Reply::Int((behind - first) as i64))
}

/// Returns the ranks of a range: the first, and the first behind it.
pub(super) fn interval(
    exec: &Exec<'_, '_>,
    tree: &Tree<'_>,
    set: Collection,
    range: &Range<'_>,
) -> CommandResult<(u64, u64)> {
    range.ranks(exec, tree, set.len, Direction::Forward)
}
