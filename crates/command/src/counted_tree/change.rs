//! Changes of a counted tree: insertion, removal and replacement of single items.

use bytes::Bytes;

use super::node::{Child, Node};
use super::walk::child_behind;
use super::{damaged, Loaded, Place, Tree, ENTRIES_MAX, LEVELS_MAX, NODE_BYTES_MAX, ROOT};
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
    pub fn insert(&mut self, exec: &Exec<'_, '_>, place: Place<'_>, item: Bytes) -> CommandResult<()> {
        match self.insert_into(exec, (ROOT, LEVELS_MAX), place, item, Edges::BOTH)? {
            Some(right) => self.raise_root(exec, right),
            None => Ok(()),
        }
    }

    /// Removes the item with this rank and returns it.
    pub fn remove(&mut self, exec: &Exec<'_, '_>, rank: u64) -> CommandResult<Bytes> {
        let item = self.remove_from(exec, (ROOT, LEVELS_MAX), rank)?;
        self.lower_root(exec)?;
        Ok(item)
    }

    /// Replaces the item with this rank.
    pub fn replace(&mut self, exec: &Exec<'_, '_>, rank: u64, item: Bytes) -> CommandResult<()> {
        match self.replace_in(exec, (ROOT, LEVELS_MAX), rank, item)? {
            Some(right) => self.raise_root(exec, right),
            None => Ok(()),
        }
    }

    /// Inserts the item and returns the new right neighbour if the node was divided.
    fn insert_into(
        &mut self,
        exec: &Exec<'_, '_>,
        (number, levels): (u64, u32),
        place: Place<'_>,
        item: Bytes,
        edges: Edges,
    ) -> CommandResult<Option<Child>> {
        let mut node = self.take(exec, number)?;
        let grown = match &mut node {
            Node::Leaf(items) => {
                let at = match place {
                    Place::Rank(rank) => usize::try_from(rank).map_or(items.len(), |at| at.min(items.len())),
                    Place::Behind(is_before) => items.partition_point(|item| is_before(item)),
                };
                items.insert(at, item);
                edges.of_entry(at, items.len())
            }
            Node::Inner(children) => {
                let (at, place) = match place {
                    Place::Rank(rank) => {
                        let (at, rank) = child_with(children, |count, rank| rank <= count, rank);
                        (at.unwrap_or(children.len() - 1), Place::Rank(rank))
                    }
                    Place::Behind(is_before) => (child_behind(children, is_before), place),
                };
                let edges = edges.of_entry(at, children.len());
                let below = (children[at].number, levels_below(levels)?);
                let right = self.insert_into(exec, below, place, item, edges)?;
                children[at].count += 1;
                note_division(children, at, right);
                edges
            }
        };
        let right = self.divide(&mut node, grown);
        self.put(number, node);
        Ok(right)
    }

    fn remove_from(
        &mut self,
        exec: &Exec<'_, '_>,
        (number, levels): (u64, u32),
        rank: u64,
    ) -> CommandResult<Bytes> {
        let mut node = self.take(exec, number)?;
        let item = match &mut node {
            Node::Leaf(items) => match usize::try_from(rank) {
                Ok(at) if at < items.len() => items.remove(at),
                _ => return Err(damaged("fewer items than its counts")),
            },
            Node::Inner(children) => {
                let (Some(at), rank) = child_with(children, |count, rank| rank < count, rank) else {
                    return Err(damaged("fewer items than its counts"));
                };
                let below = (children[at].number, levels_below(levels)?);
                let item = self.remove_from(exec, below, rank)?;
                children[at].count -= 1;
                if children[at].count == 0 {
                    self.delete(children[at].number);
                    children.remove(at);
                } else {
                    self.join_if_small(exec, children, at)?;
                }
                item
            }
        };
        self.put(number, node);
        Ok(item)
    }

    /// Replaces the item and returns the new right neighbour if the node was divided.
    fn replace_in(
        &mut self,
        exec: &Exec<'_, '_>,
        (number, levels): (u64, u32),
        rank: u64,
        item: Bytes,
    ) -> CommandResult<Option<Child>> {
        let mut node = self.take(exec, number)?;
        match &mut node {
            Node::Leaf(items) => match usize::try_from(rank).ok().and_then(|at| items.get_mut(at)) {
                Some(old) => *old = item,
                None => return Err(damaged("fewer items than its counts")),
            },
            Node::Inner(children) => {
                let (Some(at), rank) = child_with(children, |count, rank| rank < count, rank) else {
                    return Err(damaged("fewer items than its counts"));
                };
                let below = (children[at].number, levels_below(levels)?);
                let right = self.replace_in(exec, below, rank, item)?;
                note_division(children, at, right);
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
        let (right, least) = match node {
            Node::Leaf(items) => {
                let right = items.split_off(at);
                let least = (self.separator)(&items[at - 1], &right[0]);
                (Node::Leaf(right), least)
            }
            Node::Inner(children) => {
                let right = children.split_off(at);
                let least = right[0].least.clone();
                (Node::Inner(right), least)
            }
        };
        let count = right.count();
        Some(Child { number: self.add(right), count, least })
    }

    /// Makes the two parts of the divided root the children of a new root.
    fn raise_root(&mut self, exec: &Exec<'_, '_>, right: Child) -> CommandResult<()> {
        let left = self.take(exec, ROOT)?;
        let count = left.count();
        let left = Child { number: self.add(left), count, least: Bytes::new() };
        self.put(ROOT, Node::Inner(vec![left, right]));
        Ok(())
    }

    /// Replaces a root that has only one child by this child.
    fn lower_root(&mut self, exec: &Exec<'_, '_>) -> CommandResult<()> {
        for _ in 0..LEVELS_MAX {
            let number = match self.load(exec, ROOT)? {
                Node::Inner(children) if children.is_empty() => {
                    self.put(ROOT, Node::Leaf(Vec::new()));
                    return Ok(());
                }
                Node::Inner(children) if children.len() == 1 => children[0].number,
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
    fn join_if_small(
        &mut self,
        exec: &Exec<'_, '_>,
        children: &mut Vec<Child>,
        at: usize,
    ) -> CommandResult<()> {
        let child = self.load(exec, children[at].number)?;
        if !child.is_small() {
            return Ok(());
        }
        let (is_leaf, len, bytes) = (matches!(child, Node::Leaf(_)), child.len(), child.bytes());
        for (left, other) in [(at.wrapping_sub(1), at.wrapping_sub(1)), (at, at + 1)] {
            let Some(neighbour) = children.get(other) else { continue };
            if is_leaf && neighbour.count + len as u64 > ENTRIES_MAX as u64 / 2 {
                continue;
            }
            let node = self.load(exec, neighbour.number)?;
            if node.len() + len > ENTRIES_MAX / 2 || node.bytes() + bytes > NODE_BYTES_MAX / 2 {
                continue;
            }
            let right = children.remove(left + 1);
            let joined = match (self.take(exec, children[left].number)?, self.take(exec, right.number)?) {
                (Node::Leaf(mut items), Node::Leaf(more)) => {
                    items.extend(more);
                    Node::Leaf(items)
                }
                (Node::Inner(mut grandchildren), Node::Inner(mut more)) => {
                    // The bound of a first child may be missing.
                    if let Some(first) = more.first_mut() {
                        first.least = right.least;
                    }
                    grandchildren.extend(more);
                    Node::Inner(grandchildren)
                }
                _ => return Err(damaged("leaves at several levels")),
            };
            self.delete(right.number);
            children[left].count += right.count;
            self.put(children[left].number, joined);
            return Ok(());
        }
        Ok(())
    }

    /// Returns a node, which stays as it is.
    fn load(&mut self, exec: &Exec<'_, '_>, number: u64) -> CommandResult<&Node> {
        if !self.nodes.contains_key(&number) {
            let row = exec.txn.get(&self.key.node_row(self.generation, number))?;
            let row = row.ok_or_else(|| damaged("a child without a row"))?;
            let (node, next_number) = Node::decode(&row)?;
            if number == ROOT {
                self.next_number = next_number;
            }
            self.nodes
                .insert(number, Loaded { node: Some(node), stored: Some(row.len()), is_changed: false });
        }
        self.nodes[&number].node.as_ref().ok_or_else(|| damaged("a child that is deleted"))
    }

    /// Returns a node in order to change it. It is then put back or deleted.
    fn take(&mut self, exec: &Exec<'_, '_>, number: u64) -> CommandResult<Node> {
        self.load(exec, number)?;
        let taken = self.nodes.get_mut(&number).and_then(|loaded| loaded.node.take());
        taken.ok_or_else(|| damaged("a child that is deleted"))
    }

    fn put(&mut self, number: u64, node: Node) {
        self.change(number, Some(node));
    }

    fn delete(&mut self, number: u64) {
        self.change(number, None);
    }

    fn change(&mut self, number: u64, node: Option<Node>) {
        let loaded =
            self.nodes.entry(number).or_insert(Loaded { node: None, stored: None, is_changed: true });
        loaded.node = node;
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

fn levels_below(levels: u32) -> CommandResult<u32> {
    levels.checked_sub(1).ok_or_else(|| damaged("too many levels"))
}

/// Returns the position of the first child for which `holds` is true of its count and the rank
/// within it, and that rank.
fn child_with(children: &[Child], holds: impl Fn(u64, u64) -> bool, mut rank: u64) -> (Option<usize>, u64) {
    for (at, child) in children.iter().enumerate() {
        if holds(child.count, rank) {
            return (Some(at), rank);
        }
        rank -= child.count;
    }
    (None, rank)
}

/// Inserts the new right neighbour of a divided child.
fn note_division(children: &mut Vec<Child>, at: usize, right: Option<Child>) {
    if let Some(right) = right {
        children[at].count -= right.count;
        children.insert(at + 1, right);
    }
}
