//! Reads of a counted tree: by rank, by order, and in sequence.

use std::ops::{ControlFlow, Deref};

use bytes::Bytes;

use super::node::Node;
use super::{damaged, read_node, Direction, Held, Tree, LEVELS_MAX, ROOT};
use crate::exec::{CommandResult, Exec};

/// A callback that receives an item. `Break` ends the walk.
type VisitItem<'a> = dyn FnMut(Bytes) -> ControlFlow<()> + 'a;

/// A node for a read.
enum Known<'t> {
    Loaded(&'t Node),
    Read(Held),
}

impl Deref for Known<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        match self {
            Known::Loaded(node) => node,
            Known::Read(node) => node.node(),
        }
    }
}

impl Tree<'_> {
    fn read(&self, exec: &Exec<'_, '_>, number: u64) -> CommandResult<Known<'_>> {
        if let Some(loaded) = self.nodes.get(&number) {
            let node = loaded.node.as_ref().map(Held::node);
            return node.map(Known::Loaded).ok_or_else(|| damaged("a child that is deleted"));
        }
        let stored = exec.txn.get_stored(&self.key.node_row(self.generation, number))?;
        Ok(Known::Read(read_node(stored)?.node))
    }

    /// Returns the number of items for which `is_before` is true. These must be the first ones.
    pub fn rank(&self, exec: &Exec<'_, '_>, is_before: &dyn Fn(&[u8]) -> bool) -> CommandResult<u64> {
        let (mut number, mut rank) = (ROOT, 0);
        for _ in 0..LEVELS_MAX {
            let node = self.read(exec, number)?;
            if node.is_leaf() {
                return Ok(rank + items_before(&node, is_before) as u64);
            }
            let at = child_behind(&node, is_before);
            rank += node.count_before(at);
            number = node.child_number(at);
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
        let node = self.read(exec, number)?;
        let len = node.len();
        let in_order = |step: usize| match direction {
            Direction::Forward => step,
            Direction::Backward => len - 1 - step,
        };
        if node.is_leaf() {
            let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
            for step in skipped..len {
                if visit(node.shared_item(in_order(step))).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        for step in 0..len {
            let at = in_order(step);
            let count = node.child_count(at);
            if skipped >= count {
                skipped -= count;
                continue;
            }
            let below = (node.child_number(at), levels_below);
            if self.walk_node(exec, below, skipped, direction, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            skipped = 0;
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
            let bytes = item.len();
            items.push(item);
            match items.len() as u64 == count {
                true => ControlFlow::Break(()),
                false => exec.holding(1, bytes),
            }
        })?;
        exec.check_held()?;
        Ok(items)
    }
}

/// Returns the position of the last child whose lower bound is before a place, or of the first.
pub(super) fn child_behind(node: &Node, is_before: &dyn Fn(&[u8]) -> bool) -> usize {
    partition_point(1, node.len(), |at| is_before(node.least(at))) - 1
}

/// Returns the number of a leaf's items before a place.
pub(super) fn items_before(node: &Node, is_before: &dyn Fn(&[u8]) -> bool) -> usize {
    partition_point(0, node.len(), |at| is_before(node.item(at)))
}

/// Returns the first position for which `is_before` is false.
fn partition_point(mut low: usize, mut high: usize, is_before: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
