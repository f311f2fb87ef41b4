//! Sorted sets: one row per member with its score, and a counted tree of scores and members.
//!
//! The member's row answers `ZSCORE` with one read, and gives `ZSCAN` and random picks what sets
//! have. The tree gives order and ranks. An item of the tree is the score's 8 bytes and the member.

pub(crate) mod add;
pub(crate) mod algebra;
pub(crate) mod pop;
pub(crate) mod random;
pub(crate) mod range;
pub(crate) mod remove;
pub(crate) mod score;

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range, RangeInclusive};

use bytes::{BufMut, Bytes, BytesMut};
use resp::{double_text, Reply};
use storage::{KeyRef, StorageError};

use crate::counted_tree::{Direction, Place, SeparatorFn, Sought, Tree, Writing, ROOT};
use crate::elements::{element_row, scan, visit_elements, LOOKED_AT_MAX};
use crate::exec::{Collection, CollectionKind, CommandError, CommandResult, Exec, Key, HELD_ROW};
use crate::keys::scan::{parse_cursor, scan_reply, ScanOptions};
use crate::ranked::{is_rewritten, leave_if_long};

/// Bytes of a score in a row.
pub(crate) const SCORE_LEN: usize = 8;
const TREE: (CollectionKind, SeparatorFn) = (CollectionKind::SortedSet, separator);

/// A member and its score, which is not NaN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub score: f64,
    pub name: Bytes,
}

impl Member {
    fn of_item(item: Bytes) -> CommandResult<Member> {
        let score = decode_score(item.get(..SCORE_LEN).unwrap_or_default())?;
        Ok(Member { score, name: item.slice(SCORE_LEN..) })
    }

    fn item(score: f64, name: &[u8]) -> Bytes {
        let mut item = BytesMut::with_capacity(SCORE_LEN + name.len());
        item.put_f64(score);
        item.put_slice(name);
        item.freeze()
    }

    /// Compares members as sorted sets order them: by score, then by name.
    pub fn order(&self, other: &Member) -> Ordering {
        compare((self.score, &self.name), (other.score, &other.name))
    }
}

pub(crate) fn decode_score(value: &[u8]) -> CommandResult<f64> {
    match <[u8; SCORE_LEN]>::try_from(value) {
        Ok(score) => Ok(f64::from_be_bytes(score)),
        Err(_) => Err(damaged_score()),
    }
}

fn damaged_score() -> CommandError {
    StorageError::Corrupt("the score of a sorted set's member".into()).into()
}

/// Splits an item of a tree, or a lower bound, into score and name.
fn split_item(item: &[u8]) -> (f64, &[u8]) {
    match item.split_first_chunk::<SCORE_LEN>() {
        Some((score, name)) => (f64::from_be_bytes(*score), name),
        // Only a damaged row holds such an item. It is reported when the item is read.
        None => (0.0, item),
    }
}

fn compare((score, name): (f64, &[u8]), (other_score, other_name): (f64, &[u8])) -> Ordering {
    score.partial_cmp(&other_score).unwrap_or(Ordering::Equal).then_with(|| name.cmp(other_name))
}

/// Returns the shortest beginning of the right item that is above the left one.
fn separator(left: &[u8], right: &[u8]) -> Bytes {
    let ((left_score, left), (right_score, name)) = (split_item(left), split_item(right));
    let shown = match left_score == right_score {
        true => left.iter().zip(name).take_while(|(left, right)| left == right).count() + 1,
        false => 0,
    };
    Bytes::copy_from_slice(&right[..right.len().min(SCORE_LEN + shown)])
}

fn tree<'k>(key: &KeyRef<'k>, set: Collection) -> Tree<'k> {
    Tree::open(key, set.generation, separator)
}

/// Returns the number of members before this member with this score.
fn rank(exec: &Exec<'_, '_>, tree: &Tree<'_>, score: f64, name: &[u8]) -> CommandResult<u64> {
    tree.rank(exec, &|item| compare(split_item(item), (score, name)).is_lt())
}

pub(crate) fn score_of(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    set: Collection,
    name: &[u8],
) -> CommandResult<Option<f64>> {
    let value = exec.txn.get(&element_row(key, set.generation, name))?;
    value.map(|score| decode_score(&score)).transpose()
}

/// Returns members in order, from either end, without the first `skipped` ones.
fn members(
    exec: &Exec<'_, '_>,
    tree: &Tree<'_>,
    (skipped, count): (u64, u64),
    direction: Direction,
) -> CommandResult<Vec<Member>> {
    let items = tree.items(exec, skipped, count, direction)?;
    items.into_iter().map(Member::of_item).collect()
}

/// Returns all members in order.
pub(crate) fn all_members(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    set: Collection,
) -> CommandResult<Vec<Member>> {
    members(exec, &tree(key, set), (0, u64::MAX), Direction::Forward)
}

/// Visits members in order, from either end, without the first `skipped` ones. `Break` ends the
/// walk.
pub(crate) fn visit_members(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    set: Collection,
    from: (u64, Direction),
    visit: &mut dyn FnMut(Member) -> ControlFlow<()>,
) -> CommandResult<()> {
    visit_tree(exec, &tree(key, set), from, visit)
}

fn visit_tree(
    exec: &Exec<'_, '_>,
    tree: &Tree<'_>,
    (skipped, direction): (u64, Direction),
    visit: &mut dyn FnMut(Member) -> ControlFlow<()>,
) -> CommandResult<()> {
    let mut damage = None;
    tree.walk(exec, skipped, direction, &mut |item| match Member::of_item(item) {
        Ok(member) => visit(member),
        Err(error) => {
            damage = Some(error);
            ControlFlow::Break(())
        }
    })?;
    damage.map_or(Ok(()), Err)
}

/// Returns the names of members in order, from either end.
pub(crate) fn names(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    set: Collection,
    part: (u64, u64),
    direction: Direction,
) -> CommandResult<Vec<Bytes>> {
    Ok(members(exec, &tree(key, set), part, direction)?.into_iter().map(|member| member.name).collect())
}

/// Visits scores and members in order, from a score on. `Break` ends the walk.
pub(crate) fn visit_scores(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    set: Collection,
    from: f64,
    visit: &mut dyn FnMut(f64, Bytes) -> ControlFlow<()>,
) -> CommandResult<()> {
    let tree = tree(key, set);
    let first = tree.rank(exec, &|item| split_item(item).0 < from)?;
    visit_tree(exec, &tree, (first, Direction::Forward), &mut |member| visit(member.score, member.name))
}

/// A sorted set during a write.
struct Changing<'k> {
    key: &'k Key<'k>,
    writing: Writing<'k>,
}

impl<'k> Changing<'k> {
    fn begin(exec: &mut Exec<'_, '_>, key: &'k Key<'k>, old: Option<Collection>) -> Changing<'k> {
        Changing { key, writing: Writing::begin(exec, key, TREE, old) }
    }

    fn row(&self, name: &[u8]) -> Bytes {
        element_row(self.key, self.writing.new.generation, name)
    }

    fn score(&self, exec: &Exec<'_, '_>, name: &[u8]) -> CommandResult<Option<f64>> {
        let row = self.row(name);
        let value = match self.writing.is_new() {
            true => exec.txn.get_new(&row)?,
            false => exec.txn.get(&row)?,
        };
        value.map(|score| decode_score(&score)).transpose()
    }

    /// Sets the score of a member, whose current score is `old`.
    fn set(
        &mut self,
        exec: &mut Exec<'_, '_>,
        old: Option<f64>,
        (score, name): (f64, &[u8]),
    ) -> CommandResult<()> {
        let score = stored(score);
        if let Some(old) = old {
            self.remove_from_tree(exec, (old, name))?;
        }
        let is_before = |item: &[u8]| compare(split_item(item), (score, name)).is_le();
        self.writing.insert(exec, Place::Behind(&is_before), Member::item(score, name))?;
        let row = self.row(name);
        exec.put_element(self.key, row, old.map(|_| SCORE_LEN), score_value(score));
        Ok(())
    }

    /// Adds a member behind all others. It must be new.
    fn append(&mut self, exec: &mut Exec<'_, '_>, member: &Member) -> CommandResult<()> {
        let score = stored(member.score);
        let item = Member::item(score, &member.name);
        self.writing.insert(exec, Place::Last, item)?;
        let row = self.row(&member.name);
        exec.put_element(self.key, row, None, score_value(score));
        Ok(())
    }

    fn remove_from_tree(&mut self, exec: &mut Exec<'_, '_>, member: (f64, &[u8])) -> CommandResult<Bytes> {
        self.writing.remove(exec, Sought::Order(&|item| compare(split_item(item), member)))
    }

    /// Removes a member, which has this score.
    fn remove(&mut self, exec: &mut Exec<'_, '_>, (score, name): (f64, &[u8])) -> CommandResult<()> {
        self.remove_from_tree(exec, (score, name))?;
        let row = self.row(name);
        exec.delete_element(self.key, row, SCORE_LEN);
        Ok(())
    }

    /// Removes a member and returns it.
    fn take(&mut self, exec: &mut Exec<'_, '_>, sought: Sought<'_>) -> CommandResult<Member> {
        let member = Member::of_item(self.writing.remove(exec, sought)?)?;
        let row = self.row(&member.name);
        exec.delete_element(self.key, row, SCORE_LEN);
        Ok(member)
    }

    /// Removes the members with these ranks.
    fn remove_ranks(&mut self, exec: &mut Exec<'_, '_>, ranks: Range<u64>) -> CommandResult<()> {
        let (key, generation) = (self.key, self.writing.new.generation);
        self.writing.remove_ranges(exec, &[ranks], &mut |exec, item| {
            let name = item.get(SCORE_LEN..).ok_or_else(damaged_score)?;
            exec.delete_element(key, element_row(key, generation, name), SCORE_LEN);
            Ok(())
        })
    }

    fn finish(self, exec: &mut Exec<'_, '_>) {
        self.writing.finish(exec);
    }
}

/// Returns the score that is stored: a negative zero becomes zero, as in Redis's small sorted sets.
pub(crate) fn stored(score: f64) -> f64 {
    score + 0.0
}

pub(crate) fn score_value(score: f64) -> Bytes {
    Bytes::copy_from_slice(&score.to_be_bytes())
}

/// Writes a sorted set in place of the key's current value. The members are in order.
pub(crate) fn replace(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    expire_at_ms: Option<u64>,
    members: &[Member],
) -> CommandResult<()> {
    for member in members {
        exec.hold(HELD_ROW, 2 * member.name.len())?;
    }
    if let Some(old) = exec.find(key)? {
        exec.remove(key, &old)?;
    }
    if members.is_empty() {
        return Ok(());
    }
    let mut changing = Changing::begin(exec, key, None);
    changing.writing.new.expire_at_ms = expire_at_ms;
    for member in members {
        changing.append(exec, member)?;
    }
    changing.finish(exec);
    Ok(())
}

/// Appends members, which are in order, to the tree of a sorted set that no meta row names.
pub(crate) fn append_unseen(
    exec: &mut Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
    members: &[Member],
) -> CommandResult<()> {
    if members.is_empty() {
        return Ok(());
    }
    let mut tree = match exec.txn.get(&key.node_row(generation, ROOT))? {
        None => Tree::create(key, generation, separator),
        Some(_) => Tree::open(key, generation, separator),
    };
    for member in members {
        tree.insert(exec, Place::Last, Member::item(stored(member.score), &member.name))?;
    }
    tree.flush_unseen(exec);
    Ok(())
}

/// Writes the rows of members of a sorted set that no meta row names.
pub(crate) fn put_unseen(exec: &mut Exec<'_, '_>, key: &KeyRef<'_>, generation: u64, members: &[Member]) {
    for member in members {
        let row = element_row(key, generation, &member.name);
        exec.put_unseen(key, row, None, score_value(stored(member.score)));
    }
}

/// Removes the members with these ranks, at least one. If few members of many remain, they are
/// written again, and the sweep deletes the others. While the sweep is not done with the last ones,
/// the members are rather deleted here, because it may be slower than a client that removes members
/// again and again.
fn remove_ranks(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    set: Collection,
    (first, count): (u64, u64),
) -> CommandResult<()> {
    if count >= set.len {
        return exec.remove(key, &set.meta());
    }
    leave_if_long(exec, count)?;
    let may_rewrite = is_rewritten(count, set.len, 1);
    if may_rewrite
        && exec.has_garbage(key)?
        && exec.unless_too_much(|exec| delete_ranks(exec, key, set, (first, count)))?.is_some()
    {
        return Ok(());
    }
    let rewrite = |exec: &mut Exec<'_, '_>| {
        let tree = tree(key, set);
        let mut kept = members(exec, &tree, (0, first), Direction::Forward)?;
        let behind = first.saturating_add(count);
        kept.extend(members(exec, &tree, (behind, u64::MAX), Direction::Forward)?);
        replace(exec, key, set.expire_at_ms, &kept)
    };
    if may_rewrite && exec.unless_too_much(rewrite)?.is_some() {
        return Ok(());
    }
    delete_ranks(exec, key, set, (first, count))
}

/// Deletes the rows of the members with these ranks, and removes them from the tree.
fn delete_ranks(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    set: Collection,
    (first, count): (u64, u64),
) -> CommandResult<()> {
    hold_rows(exec, key, set, (first, count))?;
    let mut changing = Changing::begin(exec, key, Some(set));
    changing.remove_ranks(exec, first..first + count)?;
    changing.finish(exec);
    Ok(())
}

/// Counts the rows of members as held: the command deletes the members with these ranks next.
fn hold_rows(
    exec: &Exec<'_, '_>,
    key: &Key<'_>,
    set: Collection,
    (first, count): (u64, u64),
) -> CommandResult<()> {
    let mut left = count;
    tree(key, set).walk(exec, first, Direction::Forward, &mut |item| {
        left = left.saturating_sub(1);
        match exec.holding(HELD_ROW, item.len()) {
            ControlFlow::Continue(()) if left > 0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })?;
    exec.check_held()
}

/// Appends a member to a reply. In RESP3 it is a pair if it has its score.
fn push(reply: &mut Vec<Reply>, member: Member, with_score: bool, as_pairs: bool) {
    let (name, score) = (Reply::Bulk(member.name), Reply::Double(member.score));
    match (with_score, as_pairs) {
        (false, _) => reply.push(name),
        (true, true) => reply.push(Reply::Array(vec![name, score])),
        (true, false) => reply.extend([name, score]),
    }
}

fn reply(exec: &Exec<'_, '_>, members: Vec<Member>, with_scores: bool) -> Reply {
    let mut reply = Vec::new();
    members.into_iter().for_each(|member| push(&mut reply, member, with_scores, exec.resp3));
    Reply::Array(reply)
}

pub(crate) fn zcard(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Int(exec.find_sorted_set(&key)?.map_or(0, |set| set.len as i64)))
}

pub(crate) fn zscore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Nil) };
    Ok(score_of(exec, &key, set, &args[2])?.map_or(Reply::Nil, Reply::Double))
}

pub(crate) fn zmscore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let set = exec.find_sorted_set(&key)?;
    let score = |name: &Bytes| match set {
        Some(set) => Ok(score_of(exec, &key, set, name)?.map_or(Reply::Nil, Reply::Double)),
        None => Ok(Reply::Nil),
    };
    Ok(Reply::Array(args[2..].iter().map(score).collect::<CommandResult<Vec<_>>>()?))
}

pub(crate) fn zrank(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    rank_from(args, exec, Direction::Forward)
}

pub(crate) fn zrevrank(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    rank_from(args, exec, Direction::Backward)
}

fn rank_from(args: &[Bytes], exec: &mut Exec<'_, '_>, direction: Direction) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Nil) };
    let Some(score) = score_of(exec, &key, set, &args[2])? else { return Ok(Reply::Nil) };
    let rank = rank(exec, &tree(&key, set), score, &args[2])?;
    Ok(Reply::Int(match direction {
        Direction::Forward => rank as i64,
        Direction::Backward => set.len.saturating_sub(rank + 1) as i64,
    }))
}

/// Returns true if Redis keeps a sorted set with this generation and length in a listpack.
pub(crate) fn is_listpack(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    (generation, len): (u64, u64),
) -> CommandResult<bool> {
    let thresholds = *exec.txn.thresholds();
    if len > thresholds.sorted_set_entries().min(LOOKED_AT_MAX) {
        return Ok(false);
    }
    let mut is_listpack = true;
    visit_elements(exec, key, generation, 0, &mut |_, member, _| {
        is_listpack = member.len() as u64 <= thresholds.sorted_set_value();
        if is_listpack {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(is_listpack)
}

/// Scores that Redis keeps as integers in listpacks, and prints with an exponent elsewhere.
const LONG_INTEGERS: RangeInclusive<f64> = 1e17..=(1u64 << 62) as f64;

pub(crate) fn zscan(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let cursor = parse_cursor(&args[2])?;
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(scan_reply(0, Vec::new())) };
    let options = ScanOptions::parse(&args[3..], false)?;
    let has_long_scores = Cell::new(false);
    let run = |text: &dyn Fn(f64) -> Bytes| {
        scan(exec, &key, set.generation, (cursor, &options), |name, score, found| {
            found.push(Reply::bulk(Bytes::copy_from_slice(name)));
            found.push(Reply::Bulk(decode_score(score).map_or(Bytes::new(), text)));
        })
    };
    let reply = run(&|score| {
        has_long_scores.set(has_long_scores.get() || LONG_INTEGERS.contains(&score.abs()));
        double_text(score)
    })?;
    // A listpack of Redis has integers as such.
    match has_long_scores.get() && is_listpack(exec, &key, (set.generation, set.len))? {
        true => run(&|score| match LONG_INTEGERS.contains(&score.abs()) {
            true => (score as i64).to_string().into(),
            false => double_text(score),
        }),
        false => Ok(reply),
    }
}
