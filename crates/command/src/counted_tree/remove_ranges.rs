//! Removal of many items of a counted tree.
//!
//! A node that loses all its items is deleted, and a leaf that keeps some is written once. So a
//! removal costs the nodes that it changes, and not a path through the tree for each item.

use std::ops::Range;

use bytes::Bytes;

use super::node::Node;
use super::{damaged, Tree, LEVELS_MAX, ROOT};
use crate::exec::{CommandResult, Exec};

/// A callback that receives an item that is removed.
pub(crate) type VisitRemoved<'v> = dyn FnMut(&mut Exec<'_, '_>, Bytes) -> CommandResult<()> + 'v;

/// A node that loses items: its number, the levels that may be left, and the rank of its first item
/// before the removal.
#[derive(Clone, Copy)]
struct Below {
    number: u64,
    levels: u32,
    first: u64,
}

impl Tree<'_> {
    /// Removes the items with these ranks, and visits them in order. The ranges ascend and do not
    /// overlap.
    pub fn remove_ranges(
        &mut self,
        exec: &mut Exec<'_, '_>,
        ranges: &[Range<u64>],
        visit: &mut VisitRemoved<'_>,
    ) -> CommandResult<()> {
        let root = Below { number: ROOT, levels: LEVELS_MAX, first: 0 };
        let removed = self.remove_below(exec, root, ranges, visit)?;
        if removed != count_of(ranges) {
            return Err(damaged("fewer items than its counts"));
        }
        self.lower_root(exec)
    }

    fn remove_below(
        &mut self,
        exec: &mut Exec<'_, '_>,
        below: Below,
        ranges: &[Range<u64>],
        visit: &mut VisitRemoved<'_>,
    ) -> CommandResult<u64> {
        let mut node = self.take(exec, below.number)?;
        let removed = match node.is_leaf() {
            true => remove_items(exec, &mut node, below.first, ranges, visit)?,
            false => self.remove_children(exec, &mut node, below, ranges, visit)?,
        };
        self.put(below.number, node);
        Ok(removed)
    }

    fn remove_children(
        &mut self,
        exec: &mut Exec<'_, '_>,
        node: &mut Node,
        below: Below,
        ranges: &[Range<u64>],
        visit: &mut VisitRemoved<'_>,
    ) -> CommandResult<u64> {
        let (mut changed, mut removed) = (Vec::new(), 0);
        for Met { at, child, count, ranges } in children_met(node, below, ranges)? {
            let gone = match ranges {
                [range] if range.start <= child.first && child.first + count <= range.end => {
                    self.remove_whole(exec, child, visit)?
                }
                ranges => self.remove_below(exec, child, ranges, visit)?,
            };
            let left = count.checked_sub(gone).ok_or_else(|| damaged("more items than its counts"))?;
            changed.push((at, left));
            removed += gone;
        }
        let (mut gone, mut shrunk) = (Vec::new(), Vec::new());
        for (at, left) in changed {
            if left == 0 {
                self.delete(node.child_number(at));
                gone.push(at..at + 1);
            } else {
                node.set_child_count(at, left);
                shrunk.push(at - gone.len());
            }
        }
        if !gone.is_empty() {
            node.remove_ranges(&gone);
        }
        // From the last child on, so that the positions of the others stay.
        for at in shrunk.into_iter().rev() {
            self.join_if_small(exec, node, at)?;
        }
        Ok(removed)
    }

    /// Deletes a node with all below it, and returns the number of its items. The caller deletes
    /// the node's place in its parent.
    fn remove_whole(
        &mut self,
        exec: &mut Exec<'_, '_>,
        below: Below,
        visit: &mut VisitRemoved<'_>,
    ) -> CommandResult<u64> {
        let levels = below.levels.checked_sub(1).ok_or_else(|| damaged("too many levels"))?;
        let node = self.take(exec, below.number)?;
        self.delete(below.number);
        let mut removed = 0;
        for at in 0..node.len() {
            removed += match node.is_leaf() {
                true => {
                    visit(exec, node.shared_item(at))?;
                    1
                }
                false => {
                    let child = Below { number: node.child_number(at), levels, ..below };
                    self.remove_whole(exec, child, visit)?
                }
            };
        }
        Ok(removed)
    }
}

/// A child that loses items.
struct Met<'r> {
    /// Its position in the parent.
    at: usize,
    child: Below,
    /// The number of its items before the removal.
    count: u64,
    /// The ranges with some of its items.
    ranges: &'r [Range<u64>],
}

/// Returns the children of a node that lose items, in order.
fn children_met<'r>(node: &Node, below: Below, mut ranges: &'r [Range<u64>]) -> CommandResult<Vec<Met<'r>>> {
    let levels = below.levels.checked_sub(1).ok_or_else(|| damaged("too many levels"))?;
    let mut met = Vec::new();
    let mut first = below.first;
    for at in 0..node.len() {
        let count = node.child_count(at);
        let behind = first.checked_add(count).ok_or_else(|| damaged("too many items"))?;
        // The ranges that end here or before it are done.
        ranges = &ranges[ranges.partition_point(|range| range.end <= first)..];
        let of_child = &ranges[..ranges.partition_point(|range| range.start < behind)];
        if !of_child.is_empty() {
            let child = Below { number: node.child_number(at), levels, first };
            met.push(Met { at, child, count, ranges: of_child });
        }
        first = behind;
    }
    Ok(met)
}

/// Returns the number of ranks in ranges.
pub(crate) fn count_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Removes the items of a leaf that are in the ranges. `first` is the rank of its first item.
fn remove_items(
    exec: &mut Exec<'_, '_>,
    leaf: &mut Node,
    first: u64,
    ranges: &[Range<u64>],
    visit: &mut VisitRemoved<'_>,
) -> CommandResult<u64> {
    let position = |rank: u64| rank.saturating_sub(first).min(leaf.len() as u64) as usize;
    let gone: Vec<Range<usize>> =
        ranges.iter().map(|range| position(range.start)..position(range.end)).collect();
    for at in gone.iter().cloned().flatten() {
        visit(exec, leaf.shared_item(at))?;
    }
    leaf.remove_ranges(&gone);
    Ok(gone.iter().map(|range| range.len() as u64).sum())
}
