//! A node of a counted tree, and its row's value.
//!
//! ```text
//! version u8 = 1 | kind u8 | number of the next new node varint, 0 except in the root | entries
//! kind 0, leaf:  (length varint | item)*
//! kind 1, inner: (child's number varint | items below it varint | length varint | lower bound)*
//! ```
//!
//! `varint` has the encoding of numbers.

use std::ops::{Deref, Range};

use bytes::Bytes;
use storage::{StorageError, Unencoded};

use super::{CHILDREN_KEPT, ENTRIES_MAX, NODE_BYTES_MAX};
use crate::varint::{put_bytes, put_varint, varint_len, Rest, VARINT_BYTES_MAX};

const VERSION: u8 = 1;
const KIND_LEAF: u8 = 0;
const KIND_INNER: u8 = 1;
/// Bytes that the first change of a node allocates for further ones.
const GROWTH: usize = 64;

/// A child of an inner node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub number: u64,
    /// Number of items below the child.
    pub count: u64,
    /// A lower bound of the child's items that is above all items of the children before it. The
    /// first child's is never used.
    pub least: Bytes,
}

impl Child {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3 * VARINT_BYTES_MAX + self.least.len());
        put_varint(self.number, &mut out);
        put_varint(self.count, &mut out);
        put_bytes(&self.least, &mut out);
        out
    }
}

/// The encoded entries of a node.
#[derive(Clone, Debug)]
enum Entries {
    /// Part of the node's row.
    OfRow(Bytes),
    /// The bytes of a node that has changed.
    Own(Vec<u8>),
}

impl Deref for Entries {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Entries::OfRow(bytes) => bytes,
            Entries::Own(bytes) => bytes,
        }
    }
}

impl Entries {
    fn slice(&self, range: Range<usize>) -> Bytes {
        match self {
            Entries::OfRow(bytes) => bytes.slice(range),
            Entries::Own(bytes) => Bytes::copy_from_slice(&bytes[range]),
        }
    }

    /// Returns the bytes for a change. Those of a row are copied first.
    fn own(&mut self) -> &mut Vec<u8> {
        if let Entries::OfRow(bytes) = self {
            *self = Entries::Own(bytes.to_vec());
        }
        match self {
            Entries::Own(bytes) => bytes,
            Entries::OfRow(_) => unreachable!("they were copied"),
        }
    }

    /// Replaces some of the bytes.
    fn replace(&mut self, range: Range<usize>, new: &[u8]) {
        match self {
            Entries::Own(bytes) if range.len() == new.len() => bytes[range].copy_from_slice(new),
            Entries::Own(bytes) => drop(bytes.splice(range, new.iter().copied())),
            // The bytes that go may be very many, so they are not copied first.
            Entries::OfRow(bytes) => {
                let mut own = Vec::with_capacity(bytes.len() - range.len() + new.len() + GROWTH);
                own.extend_from_slice(&bytes[..range.start]);
                own.extend_from_slice(new);
                own.extend_from_slice(&bytes[range.end..]);
                *self = Entries::Own(own);
            }
        }
    }
}

/// A node. Its entries stay in the encoding of the row, so a change of one of them moves bytes and
/// decodes no other.
#[derive(Clone, Debug)]
pub(super) struct Node {
    is_leaf: bool,
    entries: Entries,
    /// The offset at which each entry begins.
    starts: Vec<u32>,
}

/// A node and what else its row has.
#[derive(Debug)]
pub(super) struct NodeRow {
    pub node: Node,
    /// The number of the next new node, 0 except in the root.
    pub next_number: u64,
}

impl NodeRow {
    /// Returns the bytes of the row.
    pub fn encoded_len(&self) -> usize {
        2 + varint_len(self.next_number) + self.node.bytes()
    }
}

impl Unencoded for NodeRow {
    fn encode(&self) -> Bytes {
        self.node.encode(self.next_number)
    }
}

impl Node {
    /// Returns a leaf without items.
    pub fn leaf() -> Node {
        Node { is_leaf: true, entries: Entries::Own(Vec::new()), starts: Vec::new() }
    }

    pub fn inner(children: &[Child]) -> Node {
        let mut node = Node { is_leaf: false, ..Node::leaf() };
        children.iter().enumerate().for_each(|(at, child)| node.insert_child(at, child));
        node
    }

    pub fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns the number of items in the node or below it.
    pub fn count(&self) -> u64 {
        match self.is_leaf {
            true => self.len() as u64,
            false => self.count_before(self.len()),
        }
    }

    /// Returns the number of items below an inner node's first children.
    pub fn count_before(&self, child: usize) -> u64 {
        (0..child).map(|at| self.child_count(at)).sum()
    }

    /// Returns the bytes of the entries.
    pub fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the node must be divided.
    pub fn is_large(&self) -> bool {
        let divisible_from = if self.is_leaf { 2 } else { 2 * CHILDREN_KEPT };
        self.len() > ENTRIES_MAX || self.len() >= divisible_from && self.bytes() > NODE_BYTES_MAX
    }

    /// Returns true if the node should be joined with a small neighbour.
    pub fn is_small(&self) -> bool {
        self.len() <= ENTRIES_MAX / 4 && self.bytes() <= NODE_BYTES_MAX / 4
    }

    /// Returns the number of entries that stay if the node is divided evenly: a leaf by bytes, an
    /// inner node by children.
    pub fn middle(&self) -> usize {
        if !self.is_leaf {
            return self.len() / 2;
        }
        let half = self.bytes() / 2;
        self.starts.partition_point(|start| *start as usize <= half).clamp(1, self.len() - 1)
    }

    fn start(&self, at: usize) -> usize {
        self.starts.get(at).map_or(self.entries.len(), |start| *start as usize)
    }

    fn reader(&self, at: usize) -> Rest<'_> {
        Rest { row: &self.entries, at: self.start(at) }
    }

    fn item_range(&self, at: usize) -> Range<usize> {
        self.reader(at).bytes().expect("entries are checked when they are decoded")
    }

    pub fn item(&self, at: usize) -> &[u8] {
        &self.entries[self.item_range(at)]
    }

    /// Returns an item. It shares the memory of the node's row, if the node has not changed.
    pub fn shared_item(&self, at: usize) -> Bytes {
        self.entries.slice(self.item_range(at))
    }

    /// Returns a child's number and count, and the range of its lower bound.
    fn child_parts(&self, at: usize) -> (u64, u64, Range<usize>) {
        self.reader(at).child().expect("entries are checked when they are decoded")
    }

    pub fn child(&self, at: usize) -> Child {
        let (number, count, least) = self.child_parts(at);
        Child { number, count, least: self.entries.slice(least) }
    }

    pub fn child_number(&self, at: usize) -> u64 {
        self.child_parts(at).0
    }

    pub fn child_count(&self, at: usize) -> u64 {
        self.child_parts(at).1
    }

    pub fn least(&self, at: usize) -> &[u8] {
        &self.entries[self.child_parts(at).2]
    }

    pub fn insert_item(&mut self, at: usize, item: &[u8]) {
        self.splice(at..at, Some(&encoded_item(item)));
    }

    pub fn replace_item(&mut self, at: usize, item: &[u8]) {
        self.splice(at..at + 1, Some(&encoded_item(item)));
    }

    pub fn insert_child(&mut self, at: usize, child: &Child) {
        self.splice(at..at, Some(&child.encode()));
    }

    pub fn replace_child(&mut self, at: usize, child: &Child) {
        self.splice(at..at + 1, Some(&child.encode()));
    }

    /// Changes the number of items below a child.
    pub fn set_child_count(&mut self, at: usize, count: u64) {
        let mut reader = self.reader(at);
        let number = reader.varint();
        let from = reader.at;
        let range = number.and_then(|_| reader.varint()).map(|_| from..reader.at);
        let mut new = Vec::with_capacity(VARINT_BYTES_MAX);
        put_varint(count, &mut new);
        self.replace_bytes(range.expect("entries are checked when they are decoded"), &new, at + 1);
    }

    pub fn remove(&mut self, at: usize) {
        self.splice(at..at + 1, None);
    }

    /// Removes entries. The ranges ascend and do not overlap.
    pub fn remove_ranges(&mut self, ranges: &[Range<usize>]) {
        let (mut entries, mut starts) = (Vec::new(), Vec::new());
        let mut kept_from = 0;
        let end = self.len()..self.len();
        for range in ranges.iter().chain([&end]) {
            let bytes = self.start(kept_from)..self.start(range.start);
            let moved = (bytes.start - entries.len()) as u32;
            starts.extend(self.starts[kept_from..range.start].iter().map(|start| start - moved));
            entries.extend_from_slice(&self.entries[bytes]);
            kept_from = range.end;
        }
        (self.entries, self.starts) = (Entries::Own(entries), starts);
    }

    /// Removes the entries from a position on and returns them.
    pub fn split_off(&mut self, at: usize) -> Node {
        let start = self.start(at);
        let kept = self.entries.own();
        let entries = Entries::Own(kept.split_off(start));
        // A large item may have gone.
        kept.shrink_to_fit();
        let starts = self.starts.split_off(at).into_iter().map(|moved| moved - start as u32).collect();
        Node { is_leaf: self.is_leaf, entries, starts }
    }

    /// Appends the entries of another node of the same kind.
    pub fn append(&mut self, other: &Node) {
        let offset = self.entries.len() as u32;
        self.entries.own().extend_from_slice(&other.entries);
        self.starts.extend(other.starts.iter().map(|start| start + offset));
    }

    /// Replaces up to one entry by up to one entry.
    fn splice(&mut self, range: Range<usize>, entry: Option<&[u8]>) {
        let bytes = self.start(range.start)..self.start(range.end);
        let start = bytes.start as u32;
        self.replace_bytes(bytes, entry.unwrap_or_default(), range.end);
        self.starts.splice(range, entry.map(|_| start));
    }

    /// Replaces bytes, and moves the entries from `behind` on.
    fn replace_bytes(&mut self, range: Range<usize>, new: &[u8], behind: usize) {
        let (old_len, new_len) = (range.len(), new.len());
        self.entries.replace(range, new);
        if old_len == new_len {
            return;
        }
        // The values are below 4 GiB: an item is an argument, and a node of more than 2 KiB is
        // divided.
        for start in &mut self.starts[behind..] {
            *start = (*start as usize + new_len - old_len) as u32;
        }
    }

    pub fn encode(&self, next_number: u64) -> Bytes {
        let mut out = Vec::with_capacity(2 + VARINT_BYTES_MAX + self.bytes());
        out.extend([VERSION, if self.is_leaf { KIND_LEAF } else { KIND_INNER }]);
        put_varint(next_number, &mut out);
        out.extend_from_slice(&self.entries);
        out.into()
    }

    /// Decodes a row into the node, which shares the row's memory, and the number of the next new
    /// node.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if the row cannot be decoded.
    pub fn decode(row: &Bytes) -> storage::Result<(Node, u64)> {
        let corrupt = || StorageError::Corrupt("a node of a collection's tree".into());
        let ([VERSION, kind @ (KIND_LEAF | KIND_INNER), ..], Ok(_)) = (&row[..], u32::try_from(row.len()))
        else {
            return Err(corrupt());
        };
        let is_leaf = *kind == KIND_LEAF;
        let mut rest = Rest { row, at: 2 };
        let next_number = rest.varint().ok_or_else(corrupt)?;
        let first = rest.at;
        let mut starts = Vec::with_capacity(ENTRIES_MAX);
        if is_leaf {
            while rest.at < row.len() {
                starts.push((rest.at - first) as u32);
                rest.bytes().ok_or_else(corrupt)?;
            }
        } else {
            let mut count = 0u64;
            while rest.at < row.len() {
                starts.push((rest.at - first) as u32);
                let (_, added, _) = rest.child().ok_or_else(corrupt)?;
                count = count.checked_add(added).ok_or_else(corrupt)?;
            }
            if starts.is_empty() {
                return Err(corrupt());
            }
        }
        Ok((Node { is_leaf, entries: Entries::OfRow(row.slice(first..)), starts }, next_number))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.is_leaf == other.is_leaf && *self.entries == *other.entries && self.starts == other.starts
    }
}

fn encoded_item(item: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(VARINT_BYTES_MAX + item.len());
    put_bytes(item, &mut out);
    out
}

impl Rest<'_> {
    #[inline(always)]
    fn child(&mut self) -> Option<(u64, u64, Range<usize>)> {
        Some((self.varint()?, self.varint()?, self.bytes()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
    }

    fn leaf(items: &[Bytes]) -> Node {
        let mut node = Node::leaf();
        items.iter().enumerate().for_each(|(at, item)| node.insert_item(at, item));
        node
    }

    fn node() -> impl Strategy<Value = Node> {
        let child = (any::<u64>(), 0..u64::MAX / 64, bytes()).prop_map(|(number, count, least)| Child {
            number,
            count,
            least,
        });
        prop_oneof![
            proptest::collection::vec(bytes(), 0..40).prop_map(|items| leaf(&items)),
            proptest::collection::vec(child, 1..40).prop_map(|children| Node::inner(&children)),
        ]
    }

    proptest! {
        #[test]
        fn nodes_round_trip_and_damaged_rows_do_not_panic(
            node in node(), next in any::<u64>(), cut in any::<usize>(), byte in any::<u8>()
        ) {
            let row = node.encode(next);
            let unencoded = NodeRow { node: node.clone(), next_number: next };
            prop_assert_eq!(unencoded.encoded_len(), row.len());
            prop_assert_eq!(Node::decode(&row).unwrap(), (node, next));
            let _ = Node::decode(&row.slice(..cut % row.len()));
            let mut changed = row.to_vec();
            changed[cut % row.len()] = byte;
            let _ = Node::decode(&changed.into());
        }
    }

    #[test]
    fn the_count_of_a_child_is_set_in_its_place() {
        let counts = [0, 1, 127, 128, 16_383, 16_384, u64::MAX / 8];
        let child =
            |number, count| Child { number, count, least: Bytes::from(vec![b'x'; number as usize % 200]) };
        for before in counts {
            let children: Vec<Child> = [130, 2, 300].map(|number| child(number, before)).to_vec();
            for (at, after) in (0..3).flat_map(|at| counts.map(|after| (at, after))) {
                let of_row = Node::decode(&Node::inner(&children).encode(7)).unwrap().0;
                for node in [Node::inner(&children), of_row] {
                    let (mut set, mut replaced) = (node.clone(), node);
                    set.set_child_count(at, after);
                    replaced.replace_child(at, &Child { count: after, ..children[at].clone() });
                    assert_eq!(set, replaced);
                    assert_eq!(set.encode(7), replaced.encode(7));
                    assert_eq!(Node::decode(&set.encode(7)).unwrap().0, set);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn entries_are_a_vector(
            items in proptest::collection::vec(bytes(), 1..20),
            changes in proptest::collection::vec((any::<usize>(), 0..3u8, bytes()), 0..20),
            cut in any::<usize>(),
        ) {
            let (mut model, mut node) = (items.clone(), leaf(&items));
            for (at, change, item) in changes {
                match change {
                    0 => {
                        node.insert_item(at % (model.len() + 1), &item);
                        model.insert(at % (model.len() + 1), item);
                    }
                    1 if !model.is_empty() => {
                        node.remove(at % model.len());
                        model.remove(at % model.len());
                    }
                    2 if !model.is_empty() => {
                        node.replace_item(at % model.len(), &item);
                        let at = at % model.len();
                        model[at] = item;
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(&node, &leaf(&model));
            let cut = cut % (model.len() + 1);
            let right = node.split_off(cut);
            prop_assert_eq!((&node, &right), (&leaf(&model[..cut]), &leaf(&model[cut..])));
            node.append(&right);
            prop_assert!((0..node.len()).all(|at| node.item(at) == model[at]));
        }
    }

    #[test]
    fn rows_that_no_node_has_are_corrupt() {
        for row in [
            &[][..],
            &[1],
            &[1, 0],
            &[2, 0, 0],
            &[1, 2, 0],
            // An inner node without children.
            &[1, 1, 0],
            // An item that is cut, and a length of more than 64 bits.
            &[1, 0, 0, 2, b'x'],
            &[1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        ] {
            assert!(Node::decode(&Bytes::copy_from_slice(row)).is_err(), "{row:?}");
        }
    }
}
