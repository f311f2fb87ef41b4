//! Packed collections: a small collection's rows in its key's meta row.
//!
//! A collection begins packed, unless it is created in a format before
//! ([`Txn::set_packing`](crate::Txn::set_packing)). Its element and node rows follow the header of
//! its meta row, so a command reads and writes one row, and knows from it alone which elements
//! there are. A collection whose meta row would exceed [`BYTES_MAX`] gets rows of its own, and
//! keeps them. So does a collection that exceeds a bound of the entry's thresholds
//! ([`Txn::set_thresholds`](crate::Txn::set_thresholds)) at the end of a command that changes it.
//!
//! Commands do not see the difference. They address rows by the collection's generation, which has
//! the bit [`PACKED`] from the collection's creation. [`Txn`](crate::Txn) finds such a row in the
//! meta row, or, once the collection has rows of its own, under the generation without the bit.
//! So a collection may get rows of its own in the middle of a command.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use types::{LayoutBounds, Thresholds};

use crate::meta::{self, Value, COLLECTION_END};
pub use crate::meta::{is_packed, PACKED};
use crate::rows::{self, Part};
use crate::{Result, StorageError};

/// Maximum bytes of the meta row of a packed collection: those of a tree's node. A change writes
/// all of them.
pub const BYTES_MAX: usize = 2048;

/// Bytes of kind and lengths.
const ROW_HEADER_LEN: usize = 1 + 2 + 2;
/// Bytes of kind and generation in a row's key.
const PART_HEADER_LEN: usize = 1 + 8;
/// Bytes of the hash that precedes the name in an element's sub-key.
pub const NAME_HASH_LEN: usize = 8;

/// A row's key whose generation has the bit, divided behind the user's key.
#[derive(Clone, Copy)]
pub(crate) struct PackedKey<'a> {
    row: &'a [u8],
    /// The place of the kind.
    at: usize,
}

impl<'a> PackedKey<'a> {
    /// Returns `None` for all other rows.
    pub fn of(row: &'a [u8]) -> Option<PackedKey<'a>> {
        let at = rows::part_at(row)?;
        match row.get(at..)? {
            [rows::KIND_ELEMENT | rows::KIND_NODE, first, ..]
                if first & 0x80 != 0 && row.len() >= at + PART_HEADER_LEN =>
            {
                Some(PackedKey { row, at })
            }
            _ => None,
        }
    }

    pub fn meta_row(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(self.at + 1);
        row.put_slice(&self.row[..self.at]);
        row.put_u8(rows::KIND_META);
        row.freeze()
    }

    /// Returns true if the row belongs to the key with this meta row.
    pub fn is_of(&self, meta_row: &[u8]) -> bool {
        meta_row.split_last() == Some((&rows::KIND_META, &self.row[..self.at]))
    }

    pub fn generation(&self) -> u64 {
        let bytes = &self.row[self.at + 1..self.at + PART_HEADER_LEN];
        u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
    }

    fn kind(&self) -> u8 {
        self.row[self.at]
    }

    fn subkey(&self) -> &'a [u8] {
        &self.row[self.at + PART_HEADER_LEN..]
    }

    /// Returns the row's key under the generation without the bit.
    pub fn own_row(&self) -> Bytes {
        self.without_bit(self.row)
    }

    /// Returns the end of a range that begins with this row, without the bit.
    pub fn own_end(&self, to: &[u8]) -> Bytes {
        match to.get(..self.at) == Some(&self.row[..self.at]) && to.len() > self.at + 1 {
            true => self.without_bit(to),
            false => Bytes::copy_from_slice(to),
        }
    }

    fn without_bit(&self, row: &[u8]) -> Bytes {
        let mut row = BytesMut::from(row);
        row[self.at + 1] &= 0x7f;
        row.freeze()
    }

    /// Returns the key of another row of the collection.
    fn sibling(&self, packed: &Row<'_>, generation: u64) -> Bytes {
        key_of(&self.row[..self.at], packed, generation)
    }
}

/// Returns the key of a row in a meta row. `prefix` precedes the kind in the keys of all rows of
/// the collection.
fn key_of(prefix: &[u8], packed: &Row<'_>, generation: u64) -> Bytes {
    let mut row = BytesMut::with_capacity(prefix.len() + PART_HEADER_LEN + packed.subkey.len());
    row.put_slice(prefix);
    row.put_u8(packed.kind);
    row.put_u64(generation);
    row.put_slice(packed.subkey);
    row.freeze()
}

/// A row in a meta row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    kind: u8,
    pub subkey: &'a [u8],
    pub value: &'a [u8],
    /// The row's place in the meta row.
    range: Range<usize>,
}

impl<'a> Row<'a> {
    /// Returns what follows the key in a row of its own.
    pub fn part(&self, generation: u64) -> Result<Part<'a>> {
        match (self.kind, <[u8; 8]>::try_from(self.subkey)) {
            (rows::KIND_ELEMENT, _) => Ok(Part::Element { generation, subkey: self.subkey }),
            (rows::KIND_NODE, Ok(number)) => {
                Ok(Part::Node { generation, number: u64::from_be_bytes(number) })
            }
            _ => Err(damaged()),
        }
    }

    /// Returns the bytes that the row adds to a region's bytes.
    fn bytes(&self) -> usize {
        self.subkey.len() + self.value.len()
    }

    fn value_range(&self) -> Range<usize> {
        self.range.end - self.value.len()..self.range.end
    }
}

/// Visits the rows in the meta row of a packed collection, in ascending order; none in other meta
/// rows. An error ends them.
pub fn rows_in(meta: &[u8]) -> impl Iterator<Item = Result<Row<'_>>> {
    let is_packed = meta::generation_of(meta).is_some_and(is_packed);
    let mut at = if is_packed { COLLECTION_END } else { meta.len() };
    std::iter::from_fn(move || {
        if at >= meta.len() {
            return None;
        }
        let row = row_at(meta, at);
        at = row.as_ref().map_or(meta.len(), |row| row.range.end);
        Some(row.ok_or_else(damaged))
    })
}

fn row_at(meta: &[u8], at: usize) -> Option<Row<'_>> {
    let (header, rest) = meta.get(at..)?.split_first_chunk::<ROW_HEADER_LEN>()?;
    let [kind, ..] = *header;
    let length = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let (subkey, rest) = rest.split_at_checked(length(1))?;
    let value = rest.get(..length(3))?;
    let end = at + ROW_HEADER_LEN + subkey.len() + value.len();
    Some(Row { kind, subkey, value, range: at..end })
}

/// Returns the bytes that the rows in a meta row add to a region's bytes.
pub fn bytes_in(meta: &[u8]) -> Result<usize> {
    rows_in(meta).map(|row| row.map(|row| row.bytes())).sum()
}

/// Returns the bytes of the value in a meta row as they count for a region: those of a string, and
/// of the rows in a packed collection.
pub fn value_bytes(meta: &[u8]) -> Result<usize> {
    meta::string_bytes(meta)?.map_or_else(|| bytes_in(meta), Ok)
}

/// The place of a row in a meta row, or the place where it would be.
enum Found<'a> {
    Row(Row<'a>),
    Before(usize),
}

fn search<'a>(meta: &'a [u8], key: &PackedKey<'_>) -> Result<Found<'a>> {
    let wanted = (key.kind(), key.subkey());
    for row in rows_in(meta) {
        let row = row?;
        match (row.kind, row.subkey).cmp(&wanted) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Ok(Found::Row(row)),
            std::cmp::Ordering::Greater => return Ok(Found::Before(row.range.start)),
        }
    }
    Ok(Found::Before(meta.len()))
}

/// Returns the value of a row, which shares the meta row's memory.
pub(crate) fn get(meta: &Bytes, key: &PackedKey<'_>) -> Result<Option<Bytes>> {
    Ok(match search(meta, key)? {
        Found::Row(row) => Some(meta.slice(row.value_range())),
        Found::Before(_) => None,
    })
}

/// The meta row after a change of one of its rows.
pub(crate) enum Changed {
    Meta(Bytes),
    /// The collection gets rows of its own, because they are too large together: the meta row, and
    /// the others with their values.
    Unpacked(Bytes, Vec<(Bytes, Bytes)>),
}

/// Sets the value of a row, or deletes the row. Without a meta row one is made, whose type and
/// length the command writes at its end.
pub(crate) fn change(meta: Option<Bytes>, key: &PackedKey<'_>, value: Option<&Bytes>) -> Result<Changed> {
    let generation = key.generation();
    let meta = meta.unwrap_or_else(|| meta::encode_new_collection(generation));
    let range = match search(&meta, key)? {
        Found::Row(row) => row.range,
        Found::Before(at) => at..at,
    };
    let added = value.map_or(0, |value| ROW_HEADER_LEN + key.subkey().len() + value.len());
    let length = meta.len() - range.len() + added;
    if length <= BYTES_MAX {
        let mut out = BytesMut::with_capacity(length);
        out.put_slice(&meta[..range.start]);
        if let Some(value) = value {
            out.put_u8(key.kind());
            out.put_u16(key.subkey().len() as u16);
            out.put_u16(value.len() as u16);
            out.put_slice(key.subkey());
            out.put_slice(value);
        }
        out.put_slice(&meta[range.end..]);
        return Ok(Changed::Meta(out.freeze()));
    }
    let (own_meta, mut rows) = own_rows(&key.row[..key.at], &meta, generation, Some(range))?;
    rows.extend(value.map(|value| (key.own_row(), value.clone())));
    Ok(Changed::Unpacked(own_meta, rows))
}

/// The meta row of a collection, and its other rows with their values.
type OwnRows = (Bytes, Vec<(Bytes, Bytes)>);

/// Returns the rows that a packed collection has without the bit, except for the one at `left_out`.
/// `prefix` precedes the kind in their keys.
fn own_rows(prefix: &[u8], meta: &Bytes, generation: u64, left_out: Option<Range<usize>>) -> Result<OwnRows> {
    let own = generation & !PACKED;
    let mut rows = Vec::new();
    for row in rows_in(meta) {
        let row = row?;
        if left_out.as_ref() != Some(&row.range) {
            rows.push((key_of(prefix, &row, own), meta.slice(row.value_range())));
        }
    }
    Ok((meta::with_generation(&meta[..COLLECTION_END], own), rows))
}

/// Returns the rows that the packed collection at a meta row has without the bit.
pub(crate) fn unpacked(meta_row: &[u8], meta: &Bytes, generation: u64) -> Result<OwnRows> {
    let (_, prefix) = meta_row.split_last().ok_or_else(damaged)?;
    own_rows(prefix, meta, generation, None)
}

/// Returns true if a packed collection is within the bounds of these thresholds. `value` has its
/// type and length.
pub(crate) fn is_within(thresholds: &Thresholds, value: &Value, meta: &[u8]) -> Result<bool> {
    let (LayoutBounds { elements, bytes }, len) = match *value {
        Value::Hash { len, .. } => (thresholds.hash_bounds(), len),
        Value::Set { len, .. } => (thresholds.set_bounds(), len),
        Value::SortedSet { len, .. } => (thresholds.sorted_set_bounds(), len),
        Value::List { len, .. } => (thresholds.list_bounds(), len),
        Value::String(_) | Value::Stream(_) => return Ok(true),
    };
    if elements.is_some_and(|max| len > max) {
        return Ok(false);
    }
    let Some(bytes_max) = bytes else { return Ok(true) };
    for row in rows_in(meta) {
        let row = row?;
        let name = row.subkey.len().saturating_sub(NAME_HASH_LEN);
        // The value of a sorted set's element is its score.
        let value = if matches!(value, Value::Hash { .. }) { row.value.len() } else { 0 };
        if row.kind == rows::KIND_ELEMENT && name.max(value) as u64 > bytes_max {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Visits the rows of a meta row in `from..to` as rows of their own with the bit.
pub(crate) fn scan(meta: &[u8], from: &PackedKey<'_>, to: &[u8], visit: &mut crate::Visit<'_>) -> Result<()> {
    for row in rows_in(meta) {
        let row = row?;
        if (row.kind, row.subkey) < (from.kind(), from.subkey()) {
            continue;
        }
        let key = from.sibling(&row, from.generation());
        if key[..] >= *to || visit(&key, row.value).is_break() {
            break;
        }
    }
    Ok(())
}

fn damaged() -> StorageError {
    StorageError::Corrupt("the rows in a collection's meta row".into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::*;
    use crate::{KeyRef, MemoryKeyspace, Meta, Reader, Txn, Value};

    const KEY: &[u8] = b"key";

    fn key() -> KeyRef<'static> {
        KeyRef::new(0, KEY)
    }

    fn row_of(generation: u64, number: u8) -> Bytes {
        match number % 4 {
            0 => key().node_row(generation, u64::from(number)),
            _ => key().element_row(generation, &[b'n', number]),
        }
    }

    fn meta_of(generation: u64, len: u64) -> Meta {
        Meta { expire_at_ms: Some(77), value: Value::Set { generation, len } }
    }

    /// Returns the rows of a generation as a command sees them, by their numbers.
    fn seen(txn: &Txn<'_>, generation: u64) -> BTreeMap<u8, Bytes> {
        let mut seen = BTreeMap::new();
        for (from, to) in key().generation_ranges(generation) {
            let mut before = Bytes::new();
            txn.scan(&from, &to, &mut |row, value| {
                assert!(before[..] < *row, "ascending");
                before = Bytes::copy_from_slice(row);
                seen.insert(row[row.len() - 1], Bytes::copy_from_slice(value));
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        seen
    }

    proptest! {
        #[test]
        fn a_packed_collection_is_read_like_rows_of_its_own(
            batches in proptest::collection::vec(
                proptest::collection::vec((0..40u8, proptest::option::of(0..400usize)), 1..12), 1..8),
        ) {
            let mut engine = MemoryKeyspace::default();
            let mut model: BTreeMap<u8, Bytes> = BTreeMap::new();
            let mut generation = 0;
            for changes in batches {
                let mut txn = Txn::begin(&engine, 1).unwrap();
                txn.set_packing(true);
                if generation == 0 {
                    generation = txn.new_collection();
                }
                for (number, length) in changes {
                    let row = row_of(generation, number);
                    match length {
                        Some(length) => {
                            let value = Bytes::from(vec![number; length]);
                            model.insert(number, value.clone());
                            txn.put(row, value);
                        }
                        None => {
                            model.remove(&number);
                            txn.delete(row);
                        }
                    }
                    for number in 0..40 {
                        let found = txn.get(&row_of(generation, number)).unwrap();
                        prop_assert_eq!(found.as_ref(), model.get(&number));
                    }
                    prop_assert_eq!(&seen(&txn, generation), &model);
                }
                txn.put_collection(key().meta_row(), &meta_of(generation, 7));
                prop_assert_eq!(txn.take_failure(), None);
                engine.write(txn.finish().0);
                let meta = engine.get(&key().meta_row()).unwrap().unwrap();
                let decoded = Meta::decode(&meta).unwrap();
                let Value::Set { generation: written, len: 7 } = decoded.value else { panic!("{decoded:?}") };
                prop_assert_eq!(decoded.expire_at_ms, Some(77));
                let expected: usize = model.iter().map(|(n, value)| value.len() + if n % 4 == 0 { 8 } else { 2 }).sum();
                let txn = Txn::read_only(&engine, 1);
                let counted = txn.packed_bytes(&key().meta_row(), generation).unwrap();
                let rows_of_its_own = engine.iter().filter(|(row, _)| row.len() > key().meta_row().len()).count();
                if is_packed(written) {
                    prop_assert!(meta.len() <= BYTES_MAX);
                    prop_assert_eq!((counted, rows_of_its_own), (Some(expected), 0));
                    prop_assert_eq!(value_bytes(&meta).unwrap(), expected);
                } else {
                    prop_assert_eq!(written, generation & !PACKED);
                    prop_assert_eq!((counted, rows_of_its_own), (None, model.len()));
                }
                // A command that begins later finds the generation in the meta row.
                prop_assert_eq!(seen(&txn, written), model.clone());
                generation = written;
            }
        }

        #[test]
        fn no_meta_row_makes_the_reader_panic(rest in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut meta = encode_empty(PACKED | 1).to_vec();
            meta.extend(rest);
            let _ = rows_in(&meta).map(|row| row.map(|row| row.part(1).is_ok())).collect::<Vec<_>>();
            let _ = value_bytes(&meta);
            let _ = Meta::decode(&meta.into());
        }
    }

    fn encode_empty(generation: u64) -> Bytes {
        meta::encode_new_collection(generation)
    }

    #[test]
    fn a_collection_beyond_a_threshold_gets_rows_of_its_own() {
        let element = |generation, name: &[u8]| key().element_row(generation, &[&[0; 8], name].concat());
        let bounds = |name: &str, text: &str| {
            let mut thresholds = Thresholds::default();
            thresholds.set(name, text).unwrap();
            thresholds
        };
        type Kind = fn(u64, u64) -> Value;
        let hash: Kind = |generation, len| Value::Hash { generation, len };
        let set: Kind = |generation, len| Value::Set { generation, len };
        let sorted: Kind = |generation, len| Value::SortedSet { generation, len };
        let list: Kind = |generation, len| Value::List { generation, len };
        // Two elements: a name of 3 bytes with a value of 5, and a name of 1 byte with a score.
        for (kind, name, text, stays) in [
            (hash, "hash-max-listpack-entries", "2", true),
            (hash, "hash-max-listpack-entries", "1", false),
            (hash, "hash-max-listpack-value", "8", true),
            (hash, "hash-max-listpack-value", "7", false),
            (hash, "zset-max-listpack-value", "0", true),
            (sorted, "zset-max-listpack-entries", "2", true),
            (sorted, "zset-max-listpack-entries", "1", false),
            (sorted, "zset-max-listpack-value", "3", true),
            (sorted, "zset-max-listpack-value", "2", false),
            (set, "set-max-intset-entries", "2", true),
            (set, "set-max-intset-entries", "1", false),
            (list, "list-max-listpack-size", "2", true),
            (list, "list-max-listpack-size", "1", false),
            (list, "list-max-listpack-size", "-1", true),
        ] {
            let mut engine = MemoryKeyspace::default();
            let mut txn = Txn::begin(&engine, 1).unwrap();
            txn.set_packing(true);
            let generation = txn.new_collection();
            let rows = [(element(generation, b"abc"), vec![1; 5]), (element(generation, b"z"), vec![2; 8])];
            rows.iter().for_each(|(row, value)| txn.put(row.clone(), value.clone().into()));
            let meta = Meta { expire_at_ms: Some(9), value: kind(generation, 2) };
            txn.put_collection(key().meta_row(), &meta);
            engine.write(txn.finish().0);
            // The threshold changes nothing by itself. The next write does.
            let mut txn = Txn::begin(&engine, 1).unwrap();
            txn.set_thresholds(bounds(name, text));
            assert_eq!(txn.get(&key().meta_row()).unwrap(), engine.get(&key().meta_row()).unwrap());
            txn.put_collection(key().meta_row(), &meta);
            for (row, value) in &rows {
                assert_eq!(txn.get(row).unwrap().unwrap(), value, "the command still sees {name} {text}");
            }
            assert_eq!(txn.take_failure(), None);
            engine.write(txn.finish().0);
            let written = Meta::decode(&engine.get(&key().meta_row()).unwrap().unwrap()).unwrap();
            let own = generation & !PACKED;
            let expected = if stays { meta } else { Meta { value: kind(own, 2), ..meta } };
            assert_eq!(written, expected, "{name} {text}");
            for (row, value) in [(b"abc".as_slice(), vec![1; 5]), (b"z", vec![2; 8])] {
                let found = engine.get(&element(own, row)).unwrap();
                assert_eq!(found.map(|found| found.to_vec()), (!stays).then_some(value), "{name} {text}");
            }
        }
    }

    #[test]
    fn a_collection_gets_rows_of_its_own_at_the_limit_and_keeps_them() {
        let engine = MemoryKeyspace::default();
        let mut txn = Txn::begin(&engine, 1).unwrap();
        txn.set_packing(true);
        let generation = txn.new_collection();
        let room = BYTES_MAX - COLLECTION_END - 2 * (ROW_HEADER_LEN + 2);
        txn.put(row_of(generation, 1), Bytes::from(vec![1; room]));
        txn.put(row_of(generation, 2), Bytes::new());
        txn.put_collection(key().meta_row(), &meta_of(generation, 2));
        let meta = txn.get(&key().meta_row()).unwrap().unwrap();
        assert_eq!((meta.len(), meta::generation_of(&meta)), (BYTES_MAX, Some(generation)));
        txn.put(row_of(generation, 2), Bytes::from_static(b"x"));
        txn.put_collection(key().meta_row(), &meta_of(generation, 2));
        let meta = txn.get(&key().meta_row()).unwrap().unwrap();
        let own = generation & !PACKED;
        assert_eq!((meta.len(), meta::generation_of(&meta)), (COLLECTION_END, Some(own)));
        txn.put(row_of(generation, 1), Bytes::new());
        assert_eq!(txn.get(&row_of(own, 1)).unwrap(), Some(Bytes::new()));
        assert_eq!(txn.get_new(&row_of(generation, 2)).unwrap(), Some(Bytes::from_static(b"x")));
        assert!(seen(&txn, own).len() == 2 && txn.finish().0.rows.len() == 4);
    }

    #[test]
    fn a_row_that_cannot_be_read_fails_the_command_and_not_the_thread() {
        struct Cold;
        impl Reader for Cold {
            fn get(&self, _: &[u8]) -> Result<Option<Bytes>> {
                Err(StorageError::NotInRam)
            }
            fn scan(&self, _: &[u8], _: &[u8], _: &mut crate::Visit<'_>) -> Result<()> {
                Err(StorageError::NotInRam)
            }
        }
        let mut txn = Txn::new(&Cold, 1, crate::RegionState::default());
        txn.put(row_of(PACKED | 1, 1), Bytes::new());
        assert_eq!(txn.take_failure(), Some(StorageError::NotInRam));
        txn.put_collection(key().meta_row(), &meta_of(PACKED | 1, 1));
        assert_eq!(txn.take_failure(), Some(StorageError::NotInRam));
        assert_eq!(txn.take_failure(), None);
    }
}
