//! Counted trees: the items of a list, and the scores and members of a sorted set, as rows with
//! order statistics.
//!
//! A tree is a B+ tree whose nodes are rows of the collection's generation, keyed by the node's
//! number. The root has number 0. A leaf holds consecutive items, and an inner node holds for each
//! child its number, the number of items below it, and a lower bound of its items. So the item with
//! a rank, and the rank of an item, are found by reading one node of each level.
//!
//! A node has at most [`ENTRIES_MAX`] entries. It is also divided when it is larger than
//! [`NODE_BYTES_MAX`], so an item that is larger is the only item of its leaf. An inner node keeps
//! at least [`CHILDREN_KEPT`] children, however long the lower bounds are. Neighbours are joined
//! when they are nearly empty.
//!
//! Cost of a change to a collection of n items: one leaf of about 2 KiB (or one larger item), and
//! one inner node of about 2 KiB for each level above it, are read and written. Within a batch each
//! node is decoded and encoded once. A leaf holds 128 short items, or about 64 members of 20 bytes;
//! an inner node has about as many children. So there are one level of inner nodes up to about 5000
//! items, two up to about 500 000, and three up to about 50 million. Items that are added at either
//! end leave full nodes behind.

mod change;
mod node;
mod remove_ranges;
mod walk;

use std::any::Any;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use storage::packed::is_packed;
use storage::{KeyRef, StorageError, Stored, Unencoded};

use self::node::{Node, NodeRow};
pub(crate) use self::remove_ranges::count_of;
use self::remove_ranges::VisitRemoved;
use crate::exec::{Collection, CollectionKind, CommandError, CommandResult, Exec, Key};

/// Maximum number of a node's items or children.
pub(crate) const ENTRIES_MAX: usize = 128;
/// Size in bytes from which a node is divided.
pub(crate) const NODE_BYTES_MAX: usize = 2048;
/// Minimum number of children to which a large inner node is divided.
const CHILDREN_KEPT: usize = 4;
/// Maximum bytes of a node that a batch leaves unencoded. A change within a script may copy such a
/// node first.
const UNENCODED_BYTES_MAX: usize = 2 * NODE_BYTES_MAX;
/// Maximum number of levels. Every node but the edges has at least a few entries, so a tree with
/// more is damaged.
const LEVELS_MAX: u32 = 48;
/// The number of every tree's root.
pub(crate) const ROOT: u64 = 0;

/// Returns a lower bound of the right item that is above the left item, the shorter the better. A
/// tree whose items are found only by rank needs none.
pub(crate) type SeparatorFn = fn(&[u8], &[u8]) -> Bytes;

/// The place of an item in a tree.
#[derive(Clone, Copy)]
pub(crate) enum Place<'p> {
    /// The item gets this rank.
    Rank(u64),
    /// The item follows all others.
    Last,
    /// The item follows all items for which the function is true. It is true for a first part of
    /// the order of all possible items.
    Behind(&'p dyn Fn(&[u8]) -> bool),
}

/// An item of a tree.
#[derive(Clone, Copy)]
pub(crate) enum Sought<'p> {
    Rank(u64),
    Last,
    /// The item for which the function is `Equal`. It is `Less` for those before it, and also takes
    /// lower bounds.
    Order(&'p dyn Fn(&[u8]) -> Ordering),
}

/// The order of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// A tree with the changes of one command.
pub(crate) struct Tree<'k> {
    key: KeyRef<'k>,
    generation: u64,
    separator: SeparatorFn,
    /// Nodes that the command has changed, or read for a change.
    nodes: BTreeMap<u64, Loaded>,
    /// The number of the next new node. Valid once the root is loaded.
    next_number: u64,
}

struct Loaded {
    /// `None` if the node is deleted, and while it is being changed.
    node: Option<Held>,
    /// The row that the node had before and the bytes of its value, or `None` for a new node.
    stored: Option<(Bytes, usize)>,
    is_changed: bool,
}

/// A node in memory.
enum Held {
    Own(Node),
    /// The node that an earlier command of the batch has written.
    Shared(Rc<NodeRow>),
}

impl Held {
    fn node(&self) -> &Node {
        match self {
            Held::Own(node) => node,
            Held::Shared(row) => &row.node,
        }
    }

    fn into_node(self) -> Node {
        match self {
            Held::Own(node) => node,
            Held::Shared(row) => Rc::try_unwrap(row).map_or_else(|row| row.node.clone(), |row| row.node),
        }
    }
}

/// A node as its row has it.
struct Read {
    node: Held,
    /// The number of the next new node, in the root.
    next_number: u64,
    /// The bytes of the row.
    stored: usize,
}

fn read_node(stored: Option<Stored>) -> CommandResult<Read> {
    match stored.ok_or_else(|| damaged("a child without a row"))? {
        Stored::Encoded(value) => {
            let (node, next_number) = Node::decode(&value)?;
            Ok(Read { node: Held::Own(node), next_number, stored: value.len() })
        }
        Stored::Unencoded(value) => {
            let row: Rc<dyn Any> = value;
            let row = row.downcast::<NodeRow>().map_err(|_| damaged("a row that is no node"))?;
            let (next_number, stored) = (row.next_number, row.encoded_len());
            Ok(Read { node: Held::Shared(row), next_number, stored })
        }
    }
}

impl<'k> Tree<'k> {
    /// Returns the tree of an existing collection.
    pub fn open(key: &KeyRef<'k>, generation: u64, separator: SeparatorFn) -> Tree<'k> {
        Tree { key: *key, generation, separator, nodes: BTreeMap::new(), next_number: ROOT + 1 }
    }

    /// Returns the empty tree of a new generation.
    pub fn create(key: &KeyRef<'k>, generation: u64, separator: SeparatorFn) -> Tree<'k> {
        let mut tree = Tree::open(key, generation, separator);
        let root = Loaded { node: Some(Held::Own(Node::leaf())), stored: None, is_changed: true };
        tree.nodes.insert(ROOT, root);
        tree
    }

    /// Writes the changed nodes, and returns true if there are any. The root of an empty tree is
    /// deleted.
    fn flush(self, exec: &mut Exec<'_, '_>) -> bool {
        let key = self.key;
        let mut is_changed = false;
        for Changed { row, stored, node } in self.into_changed() {
            is_changed = true;
            match node.map(|node| (node.encoded_len(), node)) {
                Some((len, node)) if len <= UNENCODED_BYTES_MAX => {
                    exec.put_unencoded_element(&key, row, stored, (Rc::new(node), len));
                }
                Some((_, node)) => exec.put_element(&key, row, stored, node.encode()),
                None => {
                    if let Some(stored) = stored {
                        exec.delete_element(&key, row, stored);
                    }
                }
            }
        }
        is_changed
    }

    /// Same as `flush`, for a generation that no meta row names, which changes no key.
    pub fn flush_unseen(self, exec: &mut Exec<'_, '_>) {
        let key = self.key;
        for Changed { row, stored, node } in self.into_changed() {
            match (node, stored) {
                (Some(node), stored) => exec.put_unseen(&key, row, stored, node.encode()),
                (None, Some(stored)) => exec.delete_garbage(&key, row, stored),
                (None, None) => {}
            }
        }
    }

    fn into_changed(self) -> impl Iterator<Item = Changed> + use<'k> {
        let Tree { key, generation, nodes, next_number, .. } = self;
        let changed = nodes.into_iter().filter(|(_, loaded)| loaded.is_changed);
        changed.map(move |(number, loaded)| {
            let next_number = if number == ROOT { next_number } else { 0 };
            let node = loaded.node.map(Held::into_node).filter(|node| !node.is_empty());
            let (row, stored) = match loaded.stored {
                Some((row, stored)) => (row, Some(stored)),
                None => (key.node_row(generation, number), None),
            };
            Changed { row, stored, node: node.map(|node| NodeRow { node, next_number }) }
        })
    }
}

/// A node that a command has changed.
struct Changed {
    row: Bytes,
    /// The bytes of the value that the row had before; `None` for a new node.
    stored: Option<usize>,
    /// `None` if the node is deleted.
    node: Option<NodeRow>,
}

/// A collection with a tree during a write.
pub(crate) struct Writing<'k> {
    key: &'k Key<'k>,
    old: Option<Collection>,
    pub new: Collection,
    pub tree: Tree<'k>,
}

impl<'k> Writing<'k> {
    /// Begins a write. A collection that does not exist starts empty, with a new generation.
    pub fn begin(
        exec: &mut Exec<'_, '_>,
        key: &'k Key<'k>,
        (kind, separator): (CollectionKind, SeparatorFn),
        old: Option<Collection>,
    ) -> Writing<'k> {
        match old {
            Some(new) => Writing { key, old, new, tree: Tree::open(key, new.generation, separator) },
            None => {
                let generation = exec.txn.new_collection();
                let new = Collection { kind, generation, len: 0, expire_at_ms: None };
                Writing { key, old, new, tree: Tree::create(key, generation, separator) }
            }
        }
    }

    /// Returns true if the collection did not exist before the write.
    pub fn is_new(&self) -> bool {
        self.old.is_none()
    }

    pub fn insert(&mut self, exec: &mut Exec<'_, '_>, place: Place<'_>, item: Bytes) -> CommandResult<()> {
        self.tree.insert(exec, place, item)?;
        self.new.len += 1;
        Ok(())
    }

    /// Removes an item and returns it.
    pub fn remove(&mut self, exec: &mut Exec<'_, '_>, sought: Sought<'_>) -> CommandResult<Bytes> {
        let item = self.tree.remove(exec, sought)?;
        self.new.len = self.new.len.checked_sub(1).ok_or_else(|| damaged("more items than its length"))?;
        Ok(item)
    }

    /// Removes the items with these ranks, and visits them in order. The ranges ascend and do not
    /// overlap, and at least one item stays.
    pub fn remove_ranges(
        &mut self,
        exec: &mut Exec<'_, '_>,
        ranges: &[Range<u64>],
        visit: &mut VisitRemoved<'_>,
    ) -> CommandResult<()> {
        self.tree.remove_ranges(exec, ranges, visit)?;
        let left = self.new.len.checked_sub(count_of(ranges));
        self.new.len = left.ok_or_else(|| damaged("more items than its length"))?;
        Ok(())
    }

    /// Writes the changes. A collection without items is deleted with its key.
    pub fn finish(self, exec: &mut Exec<'_, '_>) {
        // The thresholds may have changed since the collection was last written.
        let may_exceed = is_packed(self.new.generation) && exec.txn.bounds_layouts();
        let is_changed = self.tree.flush(exec);
        match self.old {
            Some(old) if self.new.len == 0 => exec.remove_emptied(self.key, &old.meta()),
            Some(old) if self.new.len == old.len && !(is_changed && may_exceed) => {}
            None if self.new.len == 0 => {}
            old => exec.put_collection(self.key, old, self.new),
        }
    }
}

fn damaged(what: &str) -> CommandError {
    StorageError::Corrupt(format!("a collection's tree has {what}")).into()
}

#[cfg(test)]
mod tests;
