//! The row format: the encoding of keys, elements, tree nodes, expiry times and region states as
//! rows.
//!
//! `docs/FORMAT.md` draws it byte by byte. Changing anything here changes the on-disk format.
//! Integers in row keys are big-endian, so that the engine's byte order is their numeric order.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::{key_hash, slot_of_key, RegionId, Slot, SlotRange};

use crate::{Result, StorageError};

/// Table spaces: the first byte of a row.
pub const SPACE_DATA: u8 = b'd';
pub const SPACE_META_REGION: u8 = b'm';
pub const SPACE_REGION_STATE: u8 = b'r';

/// Tables within a slot.
pub const TABLE_KEYS: u8 = 1;
pub const TABLE_EXPIRY: u8 = 2;
pub const TABLE_GARBAGE: u8 = 3;

pub(crate) const KIND_META: u8 = 0;
pub(crate) const KIND_ELEMENT: u8 = 1;
pub(crate) const KIND_NODE: u8 = 2;
const KIND_GROUP: u8 = 3;

/// Bytes of space, slot and table.
const TABLE_PREFIX_LEN: usize = 1 + 2 + 1;
/// Bytes of database, hash and key length.
const KEY_HEADER_LEN: usize = 2 + 8 + 4;
/// Bytes of kind and generation, which precede a sub-key.
const GENERATION_END: usize = 1 + 8;

/// A user key with all values that its rows derive from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef<'a> {
    pub slot: Slot,
    pub db: u16,
    pub hash: u64,
    pub key: &'a [u8],
}

impl<'a> KeyRef<'a> {
    pub fn new(db: u16, key: &'a [u8]) -> KeyRef<'a> {
        KeyRef { slot: slot_of_key(key), db, hash: key_hash(key), key }
    }

    fn table_prefix(&self, table: u8) -> [u8; TABLE_PREFIX_LEN] {
        let [high, low] = self.slot.to_be_bytes();
        [SPACE_DATA, high, low, table]
    }

    fn key_header(&self) -> [u8; KEY_HEADER_LEN] {
        let length = u32::try_from(self.key.len()).expect("keys are shorter than 4 GiB");
        let mut header = [0; KEY_HEADER_LEN];
        header[..2].copy_from_slice(&self.db.to_be_bytes());
        header[2..10].copy_from_slice(&self.hash.to_be_bytes());
        header[10..].copy_from_slice(&length.to_be_bytes());
        header
    }

    /// Returns the beginning of a row, with room for exactly `extra` more bytes.
    fn row(&self, table: u8, extra: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(TABLE_PREFIX_LEN + KEY_HEADER_LEN + self.key.len() + extra);
        out.extend_from_slice(&self.table_prefix(table));
        out.extend_from_slice(&self.key_header());
        out.extend_from_slice(self.key);
        out
    }

    /// Returns the key's meta row, whose value holds the key's type, expiry time and, for a string,
    /// the string.
    pub fn meta_row(&self) -> Bytes {
        let mut out = self.row(TABLE_KEYS, 1);
        out.push(KIND_META);
        out.into()
    }

    pub fn element_row(&self, generation: u64, subkey: &[u8]) -> Bytes {
        self.part_row(KIND_ELEMENT, generation, [subkey, b""])
    }

    /// Returns the row of an element whose sub-key is a number and bytes.
    pub fn numbered_element_row(&self, generation: u64, number: u64, bytes: &[u8]) -> Bytes {
        self.part_row(KIND_ELEMENT, generation, [&number.to_be_bytes(), bytes])
    }

    /// Returns the row of a node of a collection's counted tree.
    pub fn node_row(&self, generation: u64, number: u64) -> Bytes {
        self.part_row(KIND_NODE, generation, [&number.to_be_bytes(), b""])
    }

    /// Returns the row of a consumer group of a stream. Its value has the generation of the group's
    /// own rows.
    pub fn group_row(&self, generation: u64, name: &[u8]) -> Bytes {
        self.part_row(KIND_GROUP, generation, [name, b""])
    }

    fn part_row(&self, kind: u8, generation: u64, subkey: [&[u8]; 2]) -> Bytes {
        let mut out = self.row(TABLE_KEYS, GENERATION_END + subkey[0].len() + subkey[1].len());
        out.push(kind);
        out.extend_from_slice(&generation.to_be_bytes());
        out.extend_from_slice(subkey[0]);
        out.extend_from_slice(subkey[1]);
        out.into()
    }

    /// Returns the bytes that an element or a node adds to a region's bytes: its sub-key or number,
    /// and its value.
    pub fn element_bytes(&self, row: &[u8], value: usize) -> usize {
        row.len().saturating_sub(TABLE_PREFIX_LEN + KEY_HEADER_LEN + self.key.len() + GENERATION_END) + value
    }

    /// Returns the range of all element rows of one generation.
    pub fn element_range(&self, generation: u64) -> (Bytes, Bytes) {
        let from = self.element_row(generation, b"");
        let to = prefix_end(&from);
        (from, to)
    }

    /// Returns the range of the rows of a stream's groups.
    pub fn group_range(&self, generation: u64) -> (Bytes, Bytes) {
        let from = self.group_row(generation, b"");
        let to = prefix_end(&from);
        (from, to)
    }

    /// Returns the ranges of all rows that one generation has, ascending: its elements, its nodes
    /// and its groups.
    pub fn generation_ranges(&self, generation: u64) -> [(Bytes, Bytes); 3] {
        let nodes = self.part_row(KIND_NODE, generation, [b"", b""]);
        let nodes_end = prefix_end(&nodes);
        [self.element_range(generation), (nodes, nodes_end), self.group_range(generation)]
    }

    /// Returns an upper bound of all rows of this key. A walk over keys continues there.
    pub fn end_row(&self) -> Bytes {
        let mut out = self.row(TABLE_KEYS, 1);
        out.push(0xff);
        out.into()
    }

    pub fn expiry_row(&self, at_ms: u64) -> Bytes {
        let prefix = self.table_prefix(TABLE_EXPIRY);
        [&prefix[..], &at_ms.to_be_bytes(), &self.key_header(), self.key].concat().into()
    }

    pub fn garbage_row(&self, generation: u64) -> Bytes {
        let mut out = self.row(TABLE_GARBAGE, 8);
        out.extend_from_slice(&generation.to_be_bytes());
        out.into()
    }

    /// Returns the range of the garbage rows of all generations.
    pub fn garbage_range(&self) -> (Bytes, Bytes) {
        let from = Bytes::from(self.row(TABLE_GARBAGE, 0));
        let to = prefix_end(&from);
        (from, to)
    }
}

/// The part that follows the key in a row of the keys table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Meta,
    Element { generation: u64, subkey: &'a [u8] },
    Node { generation: u64, number: u64 },
    Group { generation: u64, name: &'a [u8] },
}

/// Decodes a row of the keys table into the key and the part after it.
pub fn decode_key_row(row: &[u8]) -> Result<(KeyRef<'_>, Part<'_>)> {
    let (slot, rest) = strip_table(row, TABLE_KEYS)?;
    let (key, rest) = strip_key(slot, rest, row)?;
    let part = match rest {
        [KIND_META] => Part::Meta,
        [KIND_ELEMENT, rest @ ..] if rest.len() >= 8 => {
            let (generation, subkey) = rest.split_at(8);
            Part::Element { generation: be_u64(generation), subkey }
        }
        [KIND_NODE, rest @ ..] if rest.len() == 16 => {
            let (generation, number) = rest.split_at(8);
            Part::Node { generation: be_u64(generation), number: be_u64(number) }
        }
        [KIND_GROUP, rest @ ..] if rest.len() >= 8 => {
            let (generation, name) = rest.split_at(8);
            Part::Group { generation: be_u64(generation), name }
        }
        _ => return Err(corrupt("the part behind the key", row)),
    };
    Ok((key, part))
}

/// Returns the place of the part behind the key in a row of the keys table; `None` for other rows.
pub(crate) fn part_at(row: &[u8]) -> Option<usize> {
    let [SPACE_DATA, _, _, TABLE_KEYS, rest @ ..] = row else { return None };
    let length = rest.get(KEY_HEADER_LEN - 4..KEY_HEADER_LEN)?;
    let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
    (TABLE_PREFIX_LEN + KEY_HEADER_LEN).checked_add(length).filter(|at| *at <= row.len())
}

/// Returns the place of the sub-key in a row of a collection, or in a bound of such rows: the bytes
/// before it are those of all rows of one kind and generation. `None` for other rows.
pub(crate) fn subkey_at(row: &[u8]) -> Option<usize> {
    let part = part_at(row)?;
    let is_of_collection = row.get(part).is_some_and(|kind| *kind != KIND_META);
    let subkey = part.checked_add(GENERATION_END)?;
    (is_of_collection && subkey <= row.len()).then_some(subkey)
}

/// Decodes an expiry row into the time and the key.
pub fn decode_expiry_row(row: &[u8]) -> Result<(u64, KeyRef<'_>)> {
    let (slot, rest) = strip_table(row, TABLE_EXPIRY)?;
    if rest.len() < 8 {
        return Err(corrupt("an expiry row", row));
    }
    let (at_ms, rest) = rest.split_at(8);
    match strip_key(slot, rest, row)? {
        (key, []) => Ok((be_u64(at_ms), key)),
        _ => Err(corrupt("the end of an expiry row", row)),
    }
}

/// Decodes a garbage row into the key and the dead generation.
pub fn decode_garbage_row(row: &[u8]) -> Result<(KeyRef<'_>, u64)> {
    let (slot, rest) = strip_table(row, TABLE_GARBAGE)?;
    let (key, rest) = strip_key(slot, rest, row)?;
    match rest.len() {
        8 => Ok((key, be_u64(rest))),
        _ => Err(corrupt("a garbage row", row)),
    }
}

/// Returns the slot and the table of a data row.
pub fn table_of(row: &[u8]) -> Result<(Slot, u8)> {
    match row {
        [SPACE_DATA, high, low, table, ..] => Ok((u16::from_be_bytes([*high, *low]), *table)),
        _ => Err(corrupt("a data row", row)),
    }
}

/// Returns the slot of a row of a key or of an element; `None` for other rows.
pub fn slot_of_key_row(row: &[u8]) -> Option<Slot> {
    match row {
        [SPACE_DATA, high, low, TABLE_KEYS, ..] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

/// The identity of a key in short form. Two keys with one hash have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchedKey {
    pub slot: Slot,
    pub db: u16,
    pub hash: u64,
}

impl From<&KeyRef<'_>> for WatchedKey {
    fn from(key: &KeyRef<'_>) -> WatchedKey {
        WatchedKey { slot: key.slot, db: key.db, hash: key.hash }
    }
}

/// Returns the identity of the key that a row of the keys table belongs to; `None` for other rows.
pub(crate) fn watched_key_of(row: &[u8]) -> Option<WatchedKey> {
    match row {
        [SPACE_DATA, _, _, TABLE_KEYS, rest @ ..] if rest.len() >= 10 => {
            let slot = u16::from_be_bytes([row[1], row[2]]);
            let db = u16::from_be_bytes([rest[0], rest[1]]);
            Some(WatchedKey { slot, db, hash: be_u64(&rest[2..10]) })
        }
        _ => None,
    }
}

/// Returns the range of all rows of the keys with this identity.
pub(crate) fn watched_key_range(key: WatchedKey) -> (Bytes, Bytes) {
    let mut from = BytesMut::with_capacity(TABLE_PREFIX_LEN + 10);
    from.put_u8(SPACE_DATA);
    from.put_u16(key.slot);
    from.put_u8(TABLE_KEYS);
    from.put_u16(key.db);
    from.put_u64(key.hash);
    let to = prefix_end(&from);
    (from.freeze(), to)
}

/// Background work that a row requires in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// A key expires at this time.
    Expire { at_ms: u64 },
    /// A collection is deleted, but its element rows still exist.
    Sweep,
}

/// Returns the slot and the background work that a row requires. Most rows require none; the check
/// of one byte shows that.
pub fn upkeep_of(row: &[u8]) -> Option<(Slot, Upkeep)> {
    let upkeep = match row {
        [SPACE_DATA, _, _, TABLE_GARBAGE, ..] => Upkeep::Sweep,
        [SPACE_DATA, _, _, TABLE_EXPIRY, rest @ ..] if rest.len() >= 8 => {
            Upkeep::Expire { at_ms: be_u64(rest) }
        }
        _ => return None,
    };
    Some((u16::from_be_bytes([row[1], row[2]]), upkeep))
}

/// Returns the range of all rows of a slot range: the data of a region, and of its snapshots.
pub fn slots_range(slots: SlotRange) -> (Bytes, Bytes) {
    let mut from = BytesMut::with_capacity(3);
    from.put_u8(SPACE_DATA);
    from.put_u16(slots.first);
    let mut to = BytesMut::with_capacity(3);
    to.put_u8(SPACE_DATA);
    // The largest slot is 16383, so the next number always fits.
    to.put_u16(slots.last + 1);
    (from.freeze(), to.freeze())
}

/// Returns the range of one table of one slot.
pub fn table_range(slot: Slot, table: u8) -> (Bytes, Bytes) {
    range_of(slot, table, &[])
}

/// Returns the range of one database in the keys or garbage table of one slot.
pub fn db_range(slot: Slot, table: u8, db: u16) -> (Bytes, Bytes) {
    range_of(slot, table, &db.to_be_bytes())
}

/// Returns the position of a hash in the keys table: the first row whose key hashes to `hash` or
/// more.
pub fn hash_start(slot: Slot, db: u16, hash: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(TABLE_PREFIX_LEN + 10);
    out.put_u8(SPACE_DATA);
    out.put_u16(slot);
    out.put_u8(TABLE_KEYS);
    out.put_u16(db);
    out.put_u64(hash);
    out.freeze()
}

/// Returns the range of a slot's expiry rows whose time is `now_ms` or earlier.
pub fn due_range(slot: Slot, now_ms: u64) -> (Bytes, Bytes) {
    let (from, end) = table_range(slot, TABLE_EXPIRY);
    let to = match now_ms.checked_add(1) {
        Some(next) => range_of(slot, TABLE_EXPIRY, &next.to_be_bytes()).0,
        None => end,
    };
    (from, to)
}

pub fn region_state_row(region: RegionId) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(SPACE_REGION_STATE);
    out.put_u64(region);
    out.freeze()
}

/// Returns the row of the region's descriptor as of the applied index. It is adjacent to the
/// region's state row.
pub fn region_descriptor_row(region: RegionId) -> Bytes {
    let mut out = BytesMut::with_capacity(10);
    out.put_slice(&region_state_row(region));
    out.put_u8(b'd');
    out.freeze()
}

/// Returns the row that follows a row immediately.
pub fn row_behind(row: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(row.len() + 1);
    next.put_slice(row);
    next.put_u8(0);
    next.freeze()
}

/// Returns the smallest row above every row that begins with `prefix`.
///
/// # Panics
/// If all bytes of `prefix` are `0xff`. This holds for no row prefix, because rows begin with a
/// table space.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let last = prefix.iter().rposition(|&b| b != 0xff).expect("a row prefix begins with a table space");
    let mut end = BytesMut::from(&prefix[..=last]);
    end[last] += 1;
    end.freeze()
}

fn range_of(slot: Slot, table: u8, prefix: &[u8]) -> (Bytes, Bytes) {
    let mut from = BytesMut::with_capacity(TABLE_PREFIX_LEN + prefix.len());
    from.put_u8(SPACE_DATA);
    from.put_u16(slot);
    from.put_u8(table);
    from.put_slice(prefix);
    let from = from.freeze();
    let to = prefix_end(&from);
    (from, to)
}

fn strip_table(row: &[u8], table: u8) -> Result<(Slot, &[u8])> {
    match table_of(row)? {
        (slot, found) if found == table => Ok((slot, &row[TABLE_PREFIX_LEN..])),
        _ => Err(corrupt("the table of a row", row)),
    }
}

fn strip_key<'a>(slot: Slot, mut rest: &'a [u8], row: &[u8]) -> Result<(KeyRef<'a>, &'a [u8])> {
    if rest.len() < KEY_HEADER_LEN {
        return Err(corrupt("a key's header", row));
    }
    let (db, hash, length) = (rest.get_u16(), rest.get_u64(), rest.get_u32() as usize);
    if rest.len() < length {
        return Err(corrupt("a key's length", row));
    }
    let (key, rest) = rest.split_at(length);
    Ok((KeyRef { slot, db, hash, key }, rest))
}

fn be_u64(mut bytes: &[u8]) -> u64 {
    bytes.get_u64()
}

fn corrupt(what: &str, row: &[u8]) -> StorageError {
    let shown = &row[..row.len().min(64)];
    StorageError::Corrupt(format!("{what} cannot be read in the row {:?}", Bytes::copy_from_slice(shown)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..24)
    }

    proptest! {
        #[test]
        fn rows_of_a_key_decode_to_what_they_were_made_of(
            key in bytes(), subkey in bytes(), db in any::<u16>(), n in any::<u64>()
        ) {
            let key = KeyRef::new(db, &key);
            let (meta, element) = (key.meta_row(), key.element_row(n, &subkey));
            let (expiry, garbage) = (key.expiry_row(n), key.garbage_row(n));
            prop_assert_eq!(upkeep_of(&garbage), Some((key.slot, Upkeep::Sweep)));
            prop_assert_eq!(upkeep_of(&expiry), Some((key.slot, Upkeep::Expire { at_ms: n })));
            prop_assert_eq!((upkeep_of(&meta), upkeep_of(&element)), (None, None));
            prop_assert_eq!(decode_key_row(&meta).unwrap(), (key, Part::Meta));
            let part = Part::Element { generation: n, subkey: &subkey };
            prop_assert_eq!(decode_key_row(&element).unwrap(), (key, part));
            prop_assert_eq!(key.element_bytes(&element, 7), subkey.len() + 7);
            let node = key.node_row(n, n / 2);
            prop_assert_eq!(upkeep_of(&node), None);
            prop_assert_eq!(decode_key_row(&node).unwrap(), (key, Part::Node { generation: n, number: n / 2 }));
            prop_assert_eq!(key.element_bytes(&node, 7), 8 + 7);
            let group = key.group_row(n, &subkey);
            prop_assert_eq!(upkeep_of(&group), None);
            let part = Part::Group { generation: n, name: &subkey };
            prop_assert_eq!(decode_key_row(&group).unwrap(), (key, part));
            prop_assert_eq!(key.element_bytes(&group, 7), subkey.len() + 7);
            let (from, to) = key.group_range(n);
            prop_assert!(from <= group && group < to);
            prop_assert_eq!(decode_expiry_row(&expiry).unwrap(), (n, key));
            prop_assert_eq!(decode_garbage_row(&garbage).unwrap(), (key, n));
        }

        #[test]
        fn no_input_makes_the_decoders_panic(row in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode_key_row(&row);
            let _ = decode_expiry_row(&row);
            let _ = decode_garbage_row(&row);
            let _ = upkeep_of(&row);
            let mut data = vec![SPACE_DATA, 0, 0, TABLE_KEYS];
            data.extend_from_slice(&row);
            let _ = decode_key_row(&data);
        }

        #[test]
        fn rows_sort_by_slot_then_database_then_hash(
            a in bytes(), b in bytes(), db_a in any::<u16>(), db_b in any::<u16>()
        ) {
            let (a, b) = (KeyRef::new(db_a, &a), KeyRef::new(db_b, &b));
            let order = |k: &KeyRef<'_>| (k.slot, k.db, k.hash, k.key.len(), k.key.to_vec());
            prop_assert_eq!(a.meta_row().cmp(&b.meta_row()), order(&a).cmp(&order(&b)));
        }

        #[test]
        fn a_key_s_rows_lie_together(key in bytes(), other in bytes(), subkey in bytes(), n in any::<u64>()) {
            let (key, other) = (KeyRef::new(0, &key), KeyRef::new(0, &other));
            let (from, to) = key.element_range(n);
            let element = key.element_row(n, &subkey);
            prop_assert!(key.meta_row() < from && from <= element && element < to && to <= key.end_row());
            let [elements, (from, to), groups] = key.generation_ranges(n);
            let node = key.node_row(n, n);
            prop_assert!(elements == key.element_range(n) && elements.1 <= from);
            prop_assert!(from <= node && node < to && to <= groups.0);
            let group = key.group_row(n, &subkey);
            prop_assert!(groups.0 <= group && group < groups.1 && groups.1 <= key.end_row());
            if key != other {
                let meta = other.meta_row();
                prop_assert!(meta < key.meta_row() || meta > key.end_row());
            }
        }
    }

    #[test]
    fn slot_ranges_hold_every_table_and_join_without_gaps() {
        let key = KeyRef::new(3, b"foo");
        let (from, to) = slots_range(SlotRange { first: key.slot, last: key.slot });
        for row in
            [key.meta_row(), key.element_row(u64::MAX, b"\xff"), key.expiry_row(u64::MAX), key.garbage_row(1)]
        {
            assert!(from <= row && row < to);
        }
        let next = slots_range(SlotRange { first: key.slot + 1, last: SlotRange::ALL.last });
        assert_eq!(to, next.0);
        assert_eq!(slots_range(SlotRange::ALL).1, &b"d\x40\x00"[..]);
    }

    #[test]
    fn due_rows_are_those_at_or_before_the_time() {
        let key = KeyRef::new(0, b"k");
        let (from, to) = due_range(key.slot, 1000);
        assert!(from <= key.expiry_row(1) && key.expiry_row(1000) < to);
        assert!(key.expiry_row(1001) >= to);
        assert!(key.expiry_row(u64::MAX) < due_range(key.slot, u64::MAX).1);
    }

    #[test]
    fn a_prefix_s_end_carries_over_trailing_ff() {
        assert_eq!(prefix_end(b"a"), &b"b"[..]);
        assert_eq!(prefix_end(b"a\xff\xff"), &b"b"[..]);
        assert_eq!(prefix_end(b"a\xff\x01"), &b"a\xff\x02"[..]);
    }
}
