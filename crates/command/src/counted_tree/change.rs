//! Changes of a counted tree: insertion, removal and replacement of single items.

use bytes::Bytes;

use super::node::{Child, Node};
use super::walk::{child_behind, items_before};
use super::{
    damaged, read_node, Held, Loaded, Place, Read, Sought, Tree, ENTRIES_MAX, LEVELS_MAX, NODE_BYTES_MAX,
    ROOT,
};
use crate::exec::{CommandResult, Exec};

/// The edges of the tree that a node is part of.
#[derive(Clone, Copy)]
struct Edges {
    first: bool,
    last: bool,
}

impl Edges {
    const BOTH: Edges = Edges { first: true, last: true };

    fn of_entry(self, at: usize, len: usize) -> Edges {
        Edges { first: self.first && at == 0, last: self.last && at + 1 == len }
    }
}

impl Tree<'_> {
    pub fn insert(&mut self, exec: &mut Exec<'_, '_>, place: Place<'_>, item: Bytes) -> CommandResult<()> {
        match self.insert_into(exec, (ROOT, LEVELS_MAX), place, item, Edges::BOTH)? {
            Some(right) => self.raise_root(exec, right),
            None => Ok(()),
        }
    }

    /// Removes an item and returns it.
    pub fn remove(&mut self, exec: &mut Exec<'_, '_>, sought: Sought<'_>) -> CommandResult<Bytes> {
        let item = self.remove_from(exec, (ROOT, LEVELS_MAX), sought)?;
        self.lower_root(exec)?;
        Ok(item)
    }

    /// Replaces the item with this rank.
    pub fn replace(&mut self, exec: &mut Exec<'_, '_>, rank: u64, item: Bytes) -> CommandResult<()> {
        match self.replace_in(exec, (ROOT, LEVELS_MAX), rank, item)? {
            Some(right) => self.raise_root(exec, right),
            None => Ok(()),
        }
    }

    /// Inserts the item and returns the new right neighbour if the node was divided.
    fn insert_into(
        &mut self,
        exec: &mut Exec<'_, '_>,
        (number, levels): (u64, u32),
        place: Place<'_>,
        item: Bytes,
        edges: Edges,
    ) -> CommandResult<Option<Child>> {
        let mut node = self.take(exec, number)?;
        let grown = if node.is_leaf() {
            let at = match place {
                Place::Rank(rank) => usize::try_from(rank).map_or(node.len(), |at| at.min(node.len())),
                Place::Last => node.len(),
                Place::Behind(is_before) => items_before(&node, is_before),
            };
            node.insert_item(at, &item);
            edges.of_entry(at, node.len())
        } else {
            let (at, place) = match place {
                Place::Rank(rank) => {
                    let (at, rank) = child_with(&node, |count, rank| rank <= count, rank);
                    (at.unwrap_or(node.len() - 1), Place::Rank(rank))
                }
                Place::Last => (last_child(&node)?, place),
                Place::Behind(is_before) => (child_behind(&node, is_before), place),
            };
            let edges = edges.of_entry(at, node.len());
            let (number, count) = (node.child_number(at), node.child_count(at));
            let right = self.insert_into(exec, (number, levels_below(levels)?), place, item, edges)?;
            update_child(&mut node, at, count + 1, right);
            edges
        };
        let right = self.divide(&mut node, grown);
        self.put(number, node);
        Ok(right)
    }

    fn remove_from(
        &mut self,
        exec: &mut Exec<'_, '_>,
        (number, levels): (u64, u32),
        sought: Sought<'_>,
    ) -> CommandResult<Bytes> {
        let mut node = self.take(exec, number)?;
        let item = if node.is_leaf() {
            let at = match sought {
                Sought::Rank(rank) => usize::try_from(rank).ok().filter(|at| *at < node.len()),
                Sought::Last => node.len().checked_sub(1),
                Sought::Order(order) => {
                    let at = items_before(&node, &|item| order(item).is_lt());
                    (at < node.len() && order(node.item(at)).is_eq()).then_some(at)
                }
            };
            let at = at.ok_or_else(|| damaged("an item in another place"))?;
            let item = node.shared_item(at);
            node.remove(at);
            item
        } else {
            let (at, sought) = match sought {
                Sought::Rank(rank) => {
                    let (Some(at), rank) = child_with(&node, |count, rank| rank < count, rank) else {
                        return Err(damaged("fewer items than its counts"));
                    };
                    (at, Sought::Rank(rank))
                }
                Sought::Last => (last_child(&node)?, sought),
                Sought::Order(order) => (child_behind(&node, &|least| order(least).is_le()), sought),
            };
            let (number, count) = (node.child_number(at), node.child_count(at));
            let item = self.remove_from(exec, (number, levels_below(levels)?), sought)?;
            match count.checked_sub(1) {
                Some(0) => {
                    self.delete(number);
                    node.remove(at);
                }
                Some(count) => {
                    node.set_child_count(at, count);
                    self.join_if_small(exec, &mut node, at)?;
                }
                None => return Err(damaged("more items than its counts")),
            }
            item
        };
        self.put(number, node);
        Ok(item)
    }

    /// Replaces the item and returns the new right neighbour if the node was divided.
    fn replace_in(
        &mut self,
        exec: &mut Exec<'_, '_>,
        (number, levels): (u64, u32),
        rank: u64,
        item: Bytes,
    ) -> CommandResult<Option<Child>> {
        let mut node = self.take(exec, number)?;
        if node.is_leaf() {
            let at = usize::try_from(rank).ok().filter(|at| *at < node.len());
            node.replace_item(at.ok_or_else(|| damaged("fewer items than its counts"))?, &item);
        } else {
            let (Some(at), rank) = child_with(&node, |count, rank| rank < count, rank) else {
                return Err(damaged("fewer items than its counts"));
            };
            let (number, count) = (node.child_number(at), node.child_count(at));
            let right = self.replace_in(exec, (number, levels_below(levels)?), rank, item)?;
            if right.is_some() {
                update_child(&mut node, at, count, right);
            }
        }
        let right = self.divide(&mut node, Edges { first: false, last: false });
        self.put(number, node);
        Ok(right)
    }

    /// Divides a large node. At an edge of the tree only one entry is parted from the others, so
    /// that a sequence of insertions there leaves full nodes behind.
    fn divide(&mut self, node: &mut Node, grown: Edges) -> Option<Child> {
        if !node.is_large() {
            return None;
        }
        let at = match grown {
            Edges { last: true, .. } => node.len() - 1,
            Edges { first: true, .. } => 1,
            _ => node.middle(),
        };
        let right = node.split_off(at);
        let least = match right.is_leaf() {
            true => (self.separator)(node.item(at - 1), right.item(0)),
            false => right.child(0).least,
        };
        let count = right.count();
        Some(Child { number: self.add(right), count, least })
    }

    /// Makes the two parts of the divided root the children of a new root.
    fn raise_root(&mut self, exec: &mut Exec<'_, '_>, right: Child) -> CommandResult<()> {
        let left = self.take(exec, ROOT)?;
        let count = left.count();
        let left = Child { number: self.add(left), count, least: Bytes::new() };
        self.put(ROOT, Node::inner(&[left, right]));
        Ok(())
    }

    /// Replaces a root that has only one child by this child.
    pub(super) fn lower_root(&mut self, exec: &mut Exec<'_, '_>) -> CommandResult<()> {
        for _ in 0..LEVELS_MAX {
            let root = self.load(exec, ROOT)?;
            let number = match root.len() {
                _ if root.is_leaf() => return Ok(()),
                0 => {
                    self.put(ROOT, Node::leaf());
                    return Ok(());
                }
                1 => root.child_number(0),
                _ => return Ok(()),
            };
            let child = self.take(exec, number)?;
            self.delete(number);
            self.put(ROOT, child);
        }
        Err(damaged("too many levels"))
    }

    /// Joins a small child that the command has changed with a neighbour, if both together are at
    /// most half full. A neighbour leaf that has too many items is not read.
    pub(super) fn join_if_small(
        &mut self,
        exec: &mut Exec<'_, '_>,
        parent: &mut Node,
        at: usize,
    ) -> CommandResult<()> {
        let child = self.load(exec, parent.child_number(at))?;
        if !child.is_small() {
            return Ok(());
        }
        let (is_leaf, len, bytes) = (child.is_leaf(), child.len(), child.bytes());
        for (left, other) in [(at.wrapping_sub(1), at.wrapping_sub(1)), (at, at + 1)] {
            if other >= parent.len() || is_leaf && parent.child_count(other) > (ENTRIES_MAX / 2 - len) as u64
            {
                continue;
            }
            let neighbour = self.load(exec, parent.child_number(other))?;
            if neighbour.len() + len > ENTRIES_MAX / 2 || neighbour.bytes() + bytes > NODE_BYTES_MAX / 2 {
                continue;
            }
            let (mut kept, removed) = (parent.child(left), parent.child(left + 1));
            let (mut joined, mut right) = (self.take(exec, kept.number)?, self.take(exec, removed.number)?);
            if joined.is_leaf() != right.is_leaf() {
                return Err(damaged("leaves at several levels"));
            }
            if !right.is_leaf() && !right.is_empty() {
                // The bound of a first child may be missing.
                right.replace_child(0, &Child { least: removed.least, ..right.child(0) });
            }
            joined.append(&right);
            self.delete(removed.number);
            self.put(kept.number, joined);
            kept.count += removed.count;
            parent.remove(left + 1);
            parent.replace_child(left, &kept);
            return Ok(());
        }
        Ok(())
    }

    /// Returns a node, which stays as it is.
    fn load(&mut self, exec: &mut Exec<'_, '_>, number: u64) -> CommandResult<&Node> {
        if !self.nodes.contains_key(&number) {
            let row = self.key.node_row(self.generation, number);
            let read = read_node(exec.txn.get_stored(&row)?)?;
            self.note(number, row, &read);
            self.nodes.get_mut(&number).expect("it was added").node = Some(read.node);
        }
        self.nodes[&number].node.as_ref().map(Held::node).ok_or_else(|| damaged("a child that is deleted"))
    }

    /// Returns a node in order to change it. It is then put back or deleted.
    pub(super) fn take(&mut self, exec: &mut Exec<'_, '_>, number: u64) -> CommandResult<Node> {
        let Some(loaded) = self.nodes.get_mut(&number) else {
            let row = self.key.node_row(self.generation, number);
            let read = read_node(exec.txn.take_stored(&row)?)?;
            self.note(number, row, &read);
            return Ok(read.node.into_node());
        };
        if let (Some(Held::Shared(_)), Some((row, _))) = (&loaded.node, &loaded.stored) {
            // Of the two references one is left.
            exec.txn.take_unencoded(row);
        }
        loaded.node.take().map(Held::into_node).ok_or_else(|| damaged("a child that is deleted"))
    }

    /// Notes that a node was read. The caller adds the node, or changes it.
    fn note(&mut self, number: u64, row: Bytes, read: &Read) {
        if number == ROOT {
            self.next_number = read.next_number;
        }
        self.nodes.insert(number, Loaded { node: None, stored: Some((row, read.stored)), is_changed: false });
    }

    pub(super) fn put(&mut self, number: u64, node: Node) {
        self.change(number, Some(node));
    }

    pub(super) fn delete(&mut self, number: u64) {
        self.change(number, None);
    }

    fn change(&mut self, number: u64, node: Option<Node>) {
        let loaded =
            self.nodes.entry(number).or_insert(Loaded { node: None, stored: None, is_changed: true });
        loaded.node = node.map(Held::Own);
        loaded.is_changed = true;
    }

    /// Adds a new node and returns its number.
    fn add(&mut self, node: Node) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.put(number, node);
        number
    }
}

fn last_child(node: &Node) -> CommandResult<usize> {
    node.len().checked_sub(1).ok_or_else(|| damaged("a node without children"))
}

fn levels_below(levels: u32) -> CommandResult<u32> {
    levels.checked_sub(1).ok_or_else(|| damaged("too many levels"))
}

/// Returns the position of the first child for which `holds` is true of its count and the rank
/// within it, and that rank.
fn child_with(node: &Node, holds: impl Fn(u64, u64) -> bool, mut rank: u64) -> (Option<usize>, u64) {
    for at in 0..node.len() {
        let count = node.child_count(at);
        if holds(count, rank) {
            return (Some(at), rank);
        }
        rank -= count;
    }
    (None, rank)
}

/// Sets the count of a child that has changed, and inserts its new right neighbour if it was
/// divided. The count includes the neighbour's items.
fn update_child(node: &mut Node, at: usize, mut count: u64, right: Option<Child>) {
    if let Some(right) = &right {
        count -= right.count;
        node.insert_child(at + 1, right);
    }
    node.set_child_count(at, count);
}
