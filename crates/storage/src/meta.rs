//! The value of a key's meta row: the key's type, its expiry time, and either the string itself or
//! the generation and size of a collection.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{Result, StorageError};

const META_VERSION: u8 = 1;
const TAG_STRING: u8 = 1;
const TAG_HASH: u8 = 2;
const TAG_SET: u8 = 3;
const TAG_SORTED_SET: u8 = 4;
const TAG_LIST: u8 = 5;
const TAG_STREAM: u8 = 6;
/// Bytes of version, type and expiry time.
const HEADER_LEN: usize = 1 + 1 + 8;
/// Bytes of a collection's generation and size.
const COLLECTION_LEN: usize = 8 + 8;
/// The end of these numbers. The rows of a packed collection follow.
pub(crate) const COLLECTION_END: usize = HEADER_LEN + COLLECTION_LEN;
/// The bit of the generation of a packed collection, and of the rows in it.
pub const PACKED: u64 = 1 << 63;
/// Bytes of a stream's numbers and IDs.
const STREAM_LEN: usize = 5 * 8 + 5 * StreamId::LEN;

/// The ID of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    /// Bytes of an ID in a row.
    pub const LEN: usize = 16;
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// Returns the next larger ID, or `None` after the largest one.
    pub fn next(self) -> Option<StreamId> {
        self.number().checked_add(1).map(StreamId::of)
    }

    /// Returns the next smaller ID, or `None` before the smallest one.
    pub fn previous(self) -> Option<StreamId> {
        self.number().checked_sub(1).map(StreamId::of)
    }

    /// Returns the ID as one number, whose order is that of IDs.
    pub fn number(self) -> u128 {
        u128::from(self.ms) << 64 | u128::from(self.seq)
    }

    pub fn of(number: u128) -> StreamId {
        StreamId { ms: (number >> 64) as u64, seq: number as u64 }
    }

    /// Returns the bytes in a row, whose order is that of IDs.
    pub fn to_bytes(self) -> [u8; StreamId::LEN] {
        self.number().to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; StreamId::LEN]) -> StreamId {
        StreamId::of(u128::from_be_bytes(bytes))
    }
}

/// The meta row of a stream. Unlike other collections, a stream may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Identifies the rows of its nodes and groups.
    pub generation: u64,
    /// Number of entries.
    pub len: u64,
    /// Number of entries that were ever added.
    pub entries_added: u64,
    /// Number of rows with entries.
    pub nodes: u64,
    pub groups: u64,
    /// The largest ID that was ever used.
    pub last_id: StreamId,
    /// The largest ID that was deleted by `XDEL`.
    pub max_deleted_id: StreamId,
    /// The ID of the first entry. 0-0 if there is none.
    pub first_id: StreamId,
    /// The ID of the first node, which is the ID of the first entry that was ever in it. 0-0 if
    /// there is none.
    pub first_node: StreamId,
    pub last_node: StreamId,
}

impl Stream {
    fn numbers(&self) -> [u64; 5] {
        [self.generation, self.len, self.entries_added, self.nodes, self.groups]
    }

    fn ids(&self) -> [StreamId; 5] {
        [self.last_id, self.max_deleted_id, self.first_id, self.first_node, self.last_node]
    }

    fn encode(&self, out: &mut BytesMut) {
        self.numbers().into_iter().for_each(|number| out.put_u64(number));
        self.ids().into_iter().for_each(|id| out.put_slice(&id.to_bytes()));
    }

    fn decode(mut bytes: &[u8]) -> Option<Stream> {
        if bytes.len() != STREAM_LEN {
            return None;
        }
        let numbers = [(); 5].map(|()| bytes.get_u64());
        let ids = [(); 5].map(|()| StreamId { ms: bytes.get_u64(), seq: bytes.get_u64() });
        let [generation, len, entries_added, nodes, groups] = numbers;
        let [last_id, max_deleted_id, first_id, first_node, last_node] = ids;
        Some(Stream {
            generation,
            len,
            entries_added,
            nodes,
            groups,
            last_id,
            max_deleted_id,
            first_id,
            first_node,
            last_node,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    String(Bytes),
    /// A hash. `generation` identifies its element rows, which are in the meta row if the
    /// collection is [packed](crate::packed). `len` is their number and never 0.
    Hash {
        generation: u64,
        len: u64,
    },
    /// A set, with the same numbers.
    Set {
        generation: u64,
        len: u64,
    },
    /// A sorted set. Its generation also has the nodes of a tree.
    SortedSet {
        generation: u64,
        len: u64,
    },
    /// A list. Its generation has the nodes of a tree and no other rows.
    List {
        generation: u64,
        len: u64,
    },
    Stream(Box<Stream>),
}

impl Value {
    /// Returns the length of a string, or 0 for a collection.
    pub fn string_len(&self) -> usize {
        match self {
            Value::String(bytes) => bytes.len(),
            Value::Hash { .. }
            | Value::Set { .. }
            | Value::SortedSet { .. }
            | Value::List { .. }
            | Value::Stream(_) => 0,
        }
    }
}

/// A decoded meta row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The time at which the key expires, or `None`.
    pub expire_at_ms: Option<u64>,
    pub value: Value,
}

impl Meta {
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.expire_at_ms.is_some_and(|at| at <= now_ms)
    }

    pub fn encode(&self) -> Bytes {
        match &self.value {
            Value::String(value) => encode_string(self.expire_at_ms, value),
            Value::Hash { generation, len } => self.encode_collection(TAG_HASH, *generation, *len),
            Value::Set { generation, len } => self.encode_collection(TAG_SET, *generation, *len),
            Value::SortedSet { generation, len } => self.encode_collection(TAG_SORTED_SET, *generation, *len),
            Value::List { generation, len } => self.encode_collection(TAG_LIST, *generation, *len),
            Value::Stream(stream) => encode_stream(self.expire_at_ms, stream),
        }
    }

    fn encode_collection(&self, tag: u8, generation: u64, len: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_LEN + COLLECTION_LEN);
        put_header(tag, self.expire_at_ms, &mut out);
        out.put_u64(generation);
        out.put_u64(len);
        out.freeze()
    }

    /// Decodes a meta row. A string's bytes are a slice of `row`, not a copy.
    pub fn decode(row: &Bytes) -> Result<Meta> {
        let corrupt = |what: &str| StorageError::Corrupt(format!("{what} of a key's meta row"));
        if row.len() < HEADER_LEN {
            return Err(corrupt("the header"));
        }
        if row[0] != META_VERSION {
            return Err(corrupt(&format!("the unknown version {}", row[0])));
        }
        let number = |at: usize| u64::from_be_bytes(row[at..at + 8].try_into().expect("eight bytes"));
        let expire_at_ms = Some(number(2)).filter(|&at| at != 0);
        let value = match row[1] {
            TAG_STRING => Value::String(row.slice(HEADER_LEN..)),
            tag @ TAG_HASH..=TAG_LIST => {
                if row.len() < COLLECTION_END {
                    return Err(corrupt("the length"));
                }
                let (generation, len) = (number(HEADER_LEN), number(HEADER_LEN + 8));
                if row.len() > COLLECTION_END && !is_packed(generation) {
                    return Err(corrupt("the length"));
                }
                match tag {
                    TAG_HASH => Value::Hash { generation, len },
                    TAG_SET => Value::Set { generation, len },
                    TAG_SORTED_SET => Value::SortedSet { generation, len },
                    _ => Value::List { generation, len },
                }
            }
            TAG_STREAM => {
                let stream = Stream::decode(&row[HEADER_LEN..]).ok_or_else(|| corrupt("the length"))?;
                Value::Stream(Box::new(stream))
            }
            _ => return Err(corrupt("the type")),
        };
        Ok(Meta { expire_at_ms, value })
    }
}

/// Encodes the meta row of a string from a borrowed value. The format cannot tell a time of 0 from
/// none, so callers delete a key whose expiry time is 0 or less.
pub fn encode_string(expire_at_ms: Option<u64>, value: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_LEN + value.len());
    put_header(TAG_STRING, expire_at_ms, &mut out);
    out.put_slice(value);
    out.freeze()
}

/// Encodes the meta row of a stream.
pub fn encode_stream(expire_at_ms: Option<u64>, stream: &Stream) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_LEN + STREAM_LEN);
    put_header(TAG_STREAM, expire_at_ms, &mut out);
    stream.encode(&mut out);
    out.freeze()
}

fn put_header(tag: u8, expire_at_ms: Option<u64>, out: &mut BytesMut) {
    out.put_u8(META_VERSION);
    out.put_u8(tag);
    out.put_u64(expire_at_ms.unwrap_or(0));
}

/// Returns the meta row of a new packed collection, whose type and length are still to be written.
pub(crate) fn encode_new_collection(generation: u64) -> Bytes {
    Meta { expire_at_ms: None, value: Value::Hash { generation, len: 0 } }.encode()
}

pub fn is_packed(generation: u64) -> bool {
    generation & PACKED != 0
}

/// Returns the generation in a collection's meta row; `None` for other values.
pub(crate) fn generation_of(row: &[u8]) -> Option<u64> {
    match row {
        [META_VERSION, TAG_HASH..=TAG_LIST, ..] if row.len() >= COLLECTION_END => {
            let generation = &row[HEADER_LEN..HEADER_LEN + 8];
            Some(u64::from_be_bytes(generation.try_into().expect("eight bytes")))
        }
        _ => None,
    }
}

/// Returns a collection's meta row with another generation.
pub(crate) fn with_generation(row: &[u8], generation: u64) -> Bytes {
    let mut out = BytesMut::from(row);
    out[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&generation.to_be_bytes());
    out.freeze()
}

/// Returns the bytes of the string in a meta row, and `None` for other values.
pub(crate) fn string_bytes(row: &[u8]) -> Result<Option<usize>> {
    match row {
        [META_VERSION, TAG_STRING, ..] if row.len() >= HEADER_LEN => Ok(Some(row.len() - HEADER_LEN)),
        [META_VERSION, TAG_HASH..=TAG_STREAM, ..] if row.len() >= HEADER_LEN => Ok(None),
        _ => Err(StorageError::Corrupt("the header of a key's meta row".into())),
    }
}

/// Returns the expiry time in a meta row, without decoding the rest.
pub fn expire_at(row: &[u8]) -> Result<Option<u64>> {
    match row.get(..HEADER_LEN) {
        Some([META_VERSION, _, at @ ..]) => {
            Ok(Some(u64::from_be_bytes(at.try_into().expect("eight bytes"))).filter(|&at| at != 0))
        }
        _ => Err(StorageError::Corrupt("the header of a key's meta row".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        let id = |seq| StreamId { ms: u64::MAX - seq, seq };
        Stream {
            generation: 1,
            len: 2,
            entries_added: 3,
            nodes: 4,
            groups: 5,
            last_id: id(1),
            max_deleted_id: id(2),
            first_id: id(3),
            first_node: id(4),
            last_node: id(5),
        }
    }

    #[test]
    fn ids_are_numbers_of_128_bits() {
        let id = |ms, seq| StreamId { ms, seq };
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
        assert_eq!(StreamId::from_bytes(id(7, 9).to_bytes()), id(7, 9));
        assert!(id(1, 300).to_bytes() < id(2, 1).to_bytes());
    }

    #[test]
    fn meta_rows_round_trip() {
        for expire_at_ms in [None, Some(1), Some(u64::MAX)] {
            for value in [
                Value::String(Bytes::new()),
                Value::String(Bytes::from_static(b"a\0b")),
                Value::Hash { generation: 7, len: u64::MAX },
                Value::Set { generation: u64::MAX, len: 1 },
                Value::SortedSet { generation: 3, len: 4 },
                Value::List { generation: 5, len: 6 },
                Value::Stream(Box::new(stream())),
            ] {
                let meta = Meta { expire_at_ms, value };
                assert_eq!(Meta::decode(&meta.encode()).unwrap(), meta);
                assert_eq!(string_bytes(&meta.encode()).unwrap().unwrap_or(0), meta.value.string_len());
            }
        }
    }

    #[test]
    fn a_decoded_string_shares_the_row_s_memory() {
        let row = encode_string(None, b"value");
        let Value::String(value) = Meta::decode(&row).unwrap().value else { panic!("not a string") };
        assert_eq!(value.as_ptr(), row[HEADER_LEN..].as_ptr());
    }

    #[test]
    fn damaged_meta_rows_are_corrupt_not_a_panic() {
        for value in [
            Value::Hash { generation: 1, len: 1 },
            Value::Set { generation: 1, len: 1 },
            Value::SortedSet { generation: 1, len: 1 },
            Value::List { generation: 1, len: 1 },
            Value::Stream(Box::new(stream())),
        ] {
            let good = Meta { expire_at_ms: None, value }.encode();
            for cut in 0..good.len() {
                assert!(matches!(Meta::decode(&good.slice(..cut)), Err(StorageError::Corrupt(_))), "{cut}");
                assert!(cut >= HEADER_LEN || string_bytes(&good[..cut]).is_err(), "{cut}");
            }
            for (at, byte) in [(0, 2), (1, 0), (1, 99)] {
                let mut bad = good.to_vec();
                bad[at] = byte;
                assert!(matches!(Meta::decode(&bad.into()), Err(StorageError::Corrupt(_))));
            }
        }
    }
}
