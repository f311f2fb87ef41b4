//! The entry that orders a checksum of a region's rows.
//!
//! ```text
//! version u8 = 2 | kind u8 = 1 (checksum) | number u64
//! ```
//!
//! The order is the only item of its entry and changes only the region's applied index, so all
//! peers have the same rows at that index. Version 1 is that of commands and of the meta region. A
//! program that does not know version 2 reports an unknown version and stops before it executes
//! anything.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use storage::StorageError;

const VERSION: u8 = 2;
const KIND_CHECKSUM: u8 = 1;
const LEN: usize = 1 + 1 + 8;

/// Encodes the order. `number` distinguishes the checks of a region.
pub fn encode(number: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(LEN);
    out.put_u8(VERSION);
    out.put_u8(KIND_CHECKSUM);
    out.put_u64(number);
    out.freeze()
}

/// Returns true if the payload is an order and not commands. [`decode`] may still fail on it.
pub fn is_order(payload: &Bytes) -> bool {
    payload.first() == Some(&VERSION)
}

/// Returns the number of the check that the payload orders; `None` for any other payload.
///
/// # Errors
/// [`StorageError::Corrupt`] for an order that this program does not know.
pub fn decode(payload: &Bytes) -> storage::Result<Option<u64>> {
    if !is_order(payload) {
        return Ok(None);
    }
    let corrupt = |what: String| StorageError::Corrupt(format!("a log entry of version {VERSION}: {what}"));
    let mut rest = &payload[1..];
    match rest.first() {
        Some(&KIND_CHECKSUM) if payload.len() == LEN => {
            rest.advance(1);
            Ok(Some(rest.get_u64()))
        }
        Some(&KIND_CHECKSUM) | None => Err(corrupt(format!("it has {} bytes", payload.len()))),
        Some(kind) => Err(corrupt(format!("the unknown kind {kind}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Builder, Items};

    #[test]
    fn orders_round_trip_and_other_lengths_and_kinds_are_corrupt() {
        let order = encode(77);
        assert_eq!(decode(&order).unwrap(), Some(77));
        for cut in 1..LEN {
            assert!(matches!(decode(&order.slice(..cut)), Err(StorageError::Corrupt(_))), "{cut}");
        }
        for wrong in [[&order[..], b"x"].concat(), [&[VERSION, 9][..], &order[2..]].concat()] {
            assert!(matches!(decode(&wrong.into()), Err(StorageError::Corrupt(_))));
        }
    }

    #[test]
    fn commands_are_no_order_and_an_order_is_refused_by_whoever_expects_commands() {
        let mut commands = Builder::new();
        commands.push(0, false, &[Bytes::from_static(b"DBSIZE")]);
        assert_eq!(decode(&commands.finish(1, 1)).unwrap(), None);
        assert_eq!(decode(&Bytes::new()).unwrap(), None);
        let mut long = BytesMut::from(&encode(1)[..]);
        long.put_bytes(0, 32);
        let refused = Items::decode(long.freeze()).unwrap_err().to_string();
        assert!(refused.contains("unknown version 2"), "{refused}");
    }
}
