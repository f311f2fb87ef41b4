//! Reads of a counted tree: by rank, by order, and in sequence.

use std::borrow::Cow;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::node::{Child, Node};
use super::{damaged, Direction, Tree, LEVELS_MAX, ROOT};
use crate::exec::{CommandResult, Exec};

/// A callback that receives an item. `Break` ends the walk.
type VisitItem<'a> = dyn FnMut(Bytes) -> ControlFlow<()> + 'a;

impl Tree<'_> {
    fn read(&self, exec: &Exec<'_, '_>, number: u64) -> CommandResult<Cow<'_, Node>> {
        if let Some(loaded) = self.nodes.get(&number) {
            return match &loaded.node {
                Some(node) => Ok(Cow::Borrowed(node)),
                None => Err(damaged("a child that is deleted")),
            };
        }
        let row = exec.txn.get(&self.key.node_row(self.generation, number))?;
        let row = row.ok_or_else(|| damaged("a child without a row"))?;
        Ok(Cow::Owned(Node::decode(&row)?.0))
    }

    /// Returns the number of items for which `is_before` is true. These must be the first ones.
    pub fn rank(&self, exec: &Exec<'_, '_>, is_before: &dyn Fn(&[u8]) -> bool) -> CommandResult<u64> {
        let (mut number, mut rank) = (ROOT, 0);
        for _ in 0..LEVELS_MAX {
            match &*self.read(exec, number)? {
                Node::Leaf(items) => {
                    return Ok(rank + items.partition_point(|item| is_before(item)) as u64);
                }
                Node::Inner(children) => {
                    let at = child_behind(children, is_before);
                    rank += children[..at].iter().map(|child| child.count).sum::<u64>();
                    number = children[at].number;
                }
            }
        }
        Err(damaged("too many levels"))
    }

    /// Returns the item with a rank.
    pub fn get(&self, exec: &Exec<'_, '_>, rank: u64) -> CommandResult<Option<Bytes>> {
        let mut found = None;
        self.walk(exec, rank, Direction::Forward, &mut |item| {
            found = Some(item);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Visits the items in order, from either end, without the first `skipped` ones.
    pub fn walk(
        &self,
        exec: &Exec<'_, '_>,
        skipped: u64,
        direction: Direction,
        visit: &mut VisitItem<'_>,
    ) -> CommandResult<()> {
        self.walk_node(exec, (ROOT, LEVELS_MAX), skipped, direction, visit).map(|_| ())
    }

    fn walk_node(
        &self,
        exec: &Exec<'_, '_>,
        (number, levels): (u64, u32),
        mut skipped: u64,
        direction: Direction,
        visit: &mut VisitItem<'_>,
    ) -> CommandResult<ControlFlow<()>> {
        let Some(levels_below) = levels.checked_sub(1) else { return Err(damaged("too many levels")) };
        match &*self.read(exec, number)? {
            Node::Leaf(items) => {
                let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
                for item in in_order(items, direction).skip(skipped) {
                    if visit(item.clone()).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Node::Inner(children) => {
                for child in in_order(children, direction) {
                    if skipped >= child.count {
                        skipped -= child.count;
                        continue;
                    }
                    let below = (child.number, levels_below);
                    if self.walk_node(exec, below, skipped, direction, visit)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    skipped = 0;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns up to `count` items in order, from either end, without the first `skipped` ones.
    pub fn items(
        &self,
        exec: &Exec<'_, '_>,
        skipped: u64,
        count: u64,
        direction: Direction,
    ) -> CommandResult<Vec<Bytes>> {
        let mut items = Vec::new();
        if count == 0 {
            return Ok(items);
        }
        self.walk(exec, skipped, direction, &mut |item| {
            items.push(item);
            match items.len() as u64 == count {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(items)
    }
}

/// Returns the position of the last child whose lower bound is before a place, or of the first.
pub(super) fn child_behind(children: &[Child], is_before: &dyn Fn(&[u8]) -> bool) -> usize {
    children[1..].partition_point(|child| is_before(&child.least))
}

fn in_order<T>(entries: &[T], direction: Direction) -> impl Iterator<Item = &T> {
    let (forward, backward) = match direction {
        Direction::Forward => (Some(entries.iter()), None),
        Direction::Backward => (None, Some(entries.iter().rev())),
    };
    forward.into_iter().flatten().chain(backward.into_iter().flatten())
}
