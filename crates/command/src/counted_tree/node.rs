//! A node of a counted tree, and its row's value.
//!
//! ```text
//! version u8 = 1 | kind u8 | number of the next new node varint, 0 except in the root | entries
//! kind 0, leaf:  (length varint | item)*
//! kind 1, inner: (child's number varint | items below it varint | length varint | lower bound)*
//! ```
//!
//! A varint has 7 bits per byte, least significant first; all bytes but the last have bit 7.

use bytes::{BufMut, Bytes, BytesMut};
use storage::StorageError;

use super::{CHILDREN_KEPT, ENTRIES_MAX, NODE_BYTES_MAX};

const VERSION: u8 = 1;
const KIND_LEAF: u8 = 0;
const KIND_INNER: u8 = 1;
/// Maximum bytes of a 64-bit varint.
const VARINT_BYTES_MAX: usize = 10;

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Leaf(Vec<Bytes>),
    /// Never empty in a row.
    Inner(Vec<Child>),
}

impl Node {
    pub fn len(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Inner(children) => children.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of items in the node or below it.
    pub fn count(&self) -> u64 {
        match self {
            Node::Leaf(items) => items.len() as u64,
            Node::Inner(children) => children.iter().map(|child| child.count).sum(),
        }
    }

    /// Returns the bytes of the entries as a row.
    pub fn bytes(&self) -> usize {
        match self {
            Node::Leaf(items) => items.iter().map(item_bytes).sum(),
            Node::Inner(children) => children.iter().map(child_bytes).sum(),
        }
    }

    /// Returns true if the node must be divided.
    pub fn is_large(&self) -> bool {
        let divisible_from = match self {
            Node::Leaf(_) => 2,
            Node::Inner(_) => 2 * CHILDREN_KEPT,
        };
        self.len() > ENTRIES_MAX || self.len() >= divisible_from && self.bytes() > NODE_BYTES_MAX
    }

    /// Returns true if the node should be joined with a small neighbour.
    pub fn is_small(&self) -> bool {
        self.len() <= ENTRIES_MAX / 4 && self.bytes() <= NODE_BYTES_MAX / 4
    }

    /// Returns the number of entries that stay if the node is divided evenly by bytes.
    pub fn middle(&self) -> usize {
        let Node::Leaf(items) = self else { return self.len() / 2 };
        let half = self.bytes() / 2;
        let mut bytes = 0;
        let before_half = items.iter().take_while(|item| {
            bytes += item_bytes(item);
            bytes <= half
        });
        before_half.count().clamp(1, items.len() - 1)
    }

    pub fn encode(&self, next_number: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(2 + VARINT_BYTES_MAX + self.bytes());
        out.put_u8(VERSION);
        match self {
            Node::Leaf(items) => {
                out.put_u8(KIND_LEAF);
                put_varint(next_number, &mut out);
                for item in items {
                    put_bytes(item, &mut out);
                }
            }
            Node::Inner(children) => {
                out.put_u8(KIND_INNER);
                put_varint(next_number, &mut out);
                for child in children {
                    put_varint(child.number, &mut out);
                    put_varint(child.count, &mut out);
                    put_bytes(&child.least, &mut out);
                }
            }
        }
        out.freeze()
    }

    /// Decodes a row into the node and the number of the next new node. Items are slices of the row.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if the row cannot be decoded.
    pub fn decode(row: &Bytes) -> storage::Result<(Node, u64)> {
        let corrupt = || StorageError::Corrupt("a node of a collection's tree".into());
        let [VERSION, kind, ..] = row[..] else { return Err(corrupt()) };
        let mut rest = Rest { row, at: 2 };
        let next_number = rest.varint().ok_or_else(corrupt)?;
        let node = match kind {
            KIND_LEAF => {
                let mut items = Vec::new();
                while !rest.is_empty() {
                    items.push(rest.bytes().ok_or_else(corrupt)?);
                }
                Node::Leaf(items)
            }
            KIND_INNER => {
                let mut children = Vec::new();
                while !rest.is_empty() {
                    children.push(rest.child().ok_or_else(corrupt)?);
                }
                Node::Inner(children)
            }
            _ => return Err(corrupt()),
        };
        let is_countable = match &node {
            Node::Leaf(_) => true,
            Node::Inner(children) => {
                let add = |sum: u64, child: &Child| sum.checked_add(child.count);
                !children.is_empty() && children.iter().try_fold(0, add).is_some()
            }
        };
        if is_countable {
            Ok((node, next_number))
        } else {
            Err(corrupt())
        }
    }
}

fn item_bytes(item: &Bytes) -> usize {
    varint_bytes(item.len() as u64) + item.len()
}

fn child_bytes(child: &Child) -> usize {
    varint_bytes(child.number) + varint_bytes(child.count) + item_bytes(&child.least)
}

fn varint_bytes(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn put_varint(mut number: u64, out: &mut BytesMut) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

fn put_bytes(bytes: &Bytes, out: &mut BytesMut) {
    put_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

/// The part of a row that is not decoded yet.
struct Rest<'r> {
    row: &'r Bytes,
    at: usize,
}

impl Rest<'_> {
    fn is_empty(&self) -> bool {
        self.at == self.row.len()
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for (at, byte) in self.row[self.at..].iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * at);
            if shifted >> (7 * at) != bits {
                return None;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                self.at += at + 1;
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.varint()?).ok()?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.row.len())?;
        let bytes = self.row.slice(self.at..end);
        self.at = end;
        Some(bytes)
    }

    fn child(&mut self) -> Option<Child> {
        Some(Child { number: self.varint()?, count: self.varint()?, least: self.bytes()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
    }

    fn node() -> impl Strategy<Value = Node> {
        let child = (any::<u64>(), 0..u64::MAX / 64, bytes()).prop_map(|(number, count, least)| Child {
            number,
            count,
            least,
        });
        prop_oneof![
            proptest::collection::vec(bytes(), 0..40).prop_map(Node::Leaf),
            proptest::collection::vec(child, 1..40).prop_map(Node::Inner),
        ]
    }

    proptest! {
        #[test]
        fn nodes_round_trip_and_damaged_rows_do_not_panic(
            node in node(), next in any::<u64>(), cut in any::<usize>(), byte in any::<u8>()
        ) {
            let row = node.encode(next);
            prop_assert_eq!(row.len(), 2 + varint_bytes(next) + node.bytes());
            prop_assert_eq!(Node::decode(&row).unwrap(), (node, next));
            let _ = Node::decode(&row.slice(..cut % row.len()));
            let mut changed = row.to_vec();
            changed[cut % row.len()] = byte;
            let _ = Node::decode(&changed.into());
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
