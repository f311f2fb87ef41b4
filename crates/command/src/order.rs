//! Entries that order an action on a region as of their index, and that are not commands of
//! clients.
//!
//! ```text
//! version u8 = 2 | kind u8 = 1 (checksum) | number u64
//! version u8 = 2 | kind u8 = 2 (skip)     | index u64
//! version u8 = 2 | kind u8 = 3 (fail)     | way u8 (0 error, 1 panic) | store u64 *
//! ```
//!
//! An order is the only item of its entry. A checksum changes only the region's applied index, so
//! all peers have the same rows at that index. A skip declares that an earlier entry of this log,
//! at which peers are quarantined, has no effect. A peer that executed that entry has different
//! rows and is quarantined at the skip. A fail makes execution fail, for tests. It applies to the
//! named stores, or to all stores if none is named, as long as they have `enable-debug-command`.
//!
//! Entries of commands and of the meta region have version 1. A program that does not know an order
//! reports it as unreadable and executes nothing of it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use storage::StorageError;
use types::{LogIndex, StoreId};

const VERSION: u8 = 2;
const KIND_CHECKSUM: u8 = 1;
const KIND_SKIP: u8 = 2;
const KIND_FAIL: u8 = 3;
/// Maximum number of stores that a fail names.
pub const FAIL_STORES_MAX: usize = 64;

/// An order in a region's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Every peer computes a checksum of its rows. The number distinguishes the checks of a region.
    Checksum(u64),
    /// No peer executes the entry at this index, which precedes the order.
    Skip(LogIndex),
    /// Execution of this entry fails on these stores, or on all stores if the list is empty.
    Fail { by_panic: bool, stores: Vec<StoreId> },
}

impl Order {
    /// # Panics
    /// If a fail names more than [`FAIL_STORES_MAX`] stores.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(16);
        out.put_u8(VERSION);
        match self {
            Order::Checksum(number) => {
                out.put_u8(KIND_CHECKSUM);
                out.put_u64(*number);
            }
            Order::Skip(index) => {
                out.put_u8(KIND_SKIP);
                out.put_u64(*index);
            }
            Order::Fail { by_panic, stores } => {
                assert!(stores.len() <= FAIL_STORES_MAX, "the caller names few stores");
                out.put_u8(KIND_FAIL);
                out.put_u8((*by_panic).into());
                stores.iter().for_each(|store| out.put_u64(*store));
            }
        }
        out.freeze()
    }

    /// Decodes an order; `None` for any other payload.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] for an order that this program does not know.
    pub fn decode(payload: &Bytes) -> storage::Result<Option<Order>> {
        if !is_order(payload) {
            return Ok(None);
        }
        let corrupt =
            |what: String| StorageError::Corrupt(format!("a log entry of version {VERSION}: {what}"));
        let wrong_length = || corrupt(format!("it has {} bytes", payload.len()));
        let mut rest = payload.slice(1..);
        let Some(kind) = rest.first().copied() else { return Err(wrong_length()) };
        rest.advance(1);
        let order = match kind {
            KIND_CHECKSUM if rest.len() == 8 => Order::Checksum(rest.get_u64()),
            KIND_SKIP if rest.len() == 8 => Order::Skip(rest.get_u64()),
            KIND_FAIL if rest.len() % 8 == 1 && rest.len() <= 1 + 8 * FAIL_STORES_MAX => {
                let by_panic = match rest.get_u8() {
                    0 => false,
                    1 => true,
                    way => return Err(corrupt(format!("the unknown way {way} to fail"))),
                };
                let mut stores = Vec::new();
                while rest.has_remaining() {
                    stores.push(rest.get_u64());
                }
                Order::Fail { by_panic, stores }
            }
            KIND_CHECKSUM | KIND_SKIP | KIND_FAIL => return Err(wrong_length()),
            kind => return Err(corrupt(format!("the unknown kind {kind}"))),
        };
        Ok(Some(order))
    }

    /// Returns the name that operators see.
    pub fn name(&self) -> &'static str {
        match self {
            Order::Checksum(_) => "order checksum",
            Order::Skip(_) => "order skip",
            Order::Fail { .. } => "order fail",
        }
    }
}

/// Returns true if the payload is an order and not commands. [`Order::decode`] may still fail on
/// it.
pub fn is_order(payload: &Bytes) -> bool {
    payload.first() == Some(&VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Builder, Items};

    #[test]
    fn orders_round_trip_and_other_lengths_and_kinds_are_corrupt() {
        let orders = [
            Order::Checksum(77),
            Order::Skip(9),
            Order::Fail { by_panic: true, stores: vec![] },
            Order::Fail { by_panic: false, stores: vec![1, 2] },
        ];
        for order in orders {
            let encoded = order.encode();
            assert_eq!(Order::decode(&encoded).unwrap().as_ref(), Some(&order));
            for cut in 1..encoded.len() {
                let decoded = Order::decode(&encoded.slice(..cut));
                // A fail may name fewer stores.
                let is_shorter = matches!(order, Order::Fail { .. }) && cut >= 3 && cut % 8 == 3;
                assert_eq!(decoded.is_ok(), is_shorter, "{order:?} cut at {cut}");
            }
            let longer = Order::decode(&[&encoded[..], b"x"].concat().into());
            assert!(matches!(longer, Err(StorageError::Corrupt(_))), "{order:?}");
            let unknown = Order::decode(&[&[VERSION, 9][..], &encoded[2..]].concat().into());
            assert!(matches!(unknown, Err(StorageError::Corrupt(_))), "{order:?}");
        }
        let many = [&[VERSION, KIND_FAIL, 0][..], &[0; 8 * (FAIL_STORES_MAX + 1)]].concat();
        assert!(Order::decode(&many.into()).is_err());
    }

    #[test]
    fn commands_are_no_order_and_an_order_is_refused_by_whoever_expects_commands() {
        let mut commands = Builder::new();
        commands.push(0, false, &[Bytes::from_static(b"DBSIZE")]);
        assert_eq!(Order::decode(&commands.finish(1, 1)).unwrap(), None);
        assert_eq!(Order::decode(&Bytes::new()).unwrap(), None);
        let mut long = BytesMut::from(&Order::Checksum(1).encode()[..]);
        long.put_bytes(0, 32);
        let refused = Items::decode(long.freeze()).unwrap_err().to_string();
        assert!(refused.contains("unknown version 2"), "{refused}");
    }
}
