//! Recounts of a region's keys and bytes. A split needs them, because the region's state only has
//! totals over all of its slots.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use types::SlotRange;

use crate::rows::{decode_key_row, table_range, Part, TABLE_KEYS};
use crate::{meta, packed, Counted, DbCounts, KeyRef, Result, Txn};

/// Counts the keys and bytes in these slots as the batch sees them. Visits all rows of the slots'
/// keys table.
pub fn count_keys(txn: &Txn<'_>, slots: SlotRange) -> Result<Counted> {
    let mut counts: BTreeMap<u16, DbCounts> = BTreeMap::new();
    let mut bytes = 0;
    let mut result = Ok(());
    for slot in slots.first..=slots.last {
        let (from, to) = table_range(slot, TABLE_KEYS);
        txn.scan(&from, &to, &mut |row, value| {
            result = decode_key_row(row).and_then(|(key, part)| {
                bytes += row_bytes(&key, &part, value)?;
                if let Part::Meta = part {
                    let count = counts.entry(key.db).or_default();
                    count.keys += 1;
                    count.with_expiry += u64::from(meta::expire_at(value)?.is_some());
                }
                Ok(())
            });
            match result {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        result.clone()?;
    }
    Ok(Counted { keys: counts.into_iter().collect(), bytes })
}

/// Returns the bytes that a row of the keys table adds to
/// [`RegionState::bytes`](crate::RegionState::bytes).
fn row_bytes(key: &KeyRef<'_>, part: &Part<'_>, value: &[u8]) -> Result<u64> {
    let length = match part {
        Part::Meta => key.key.len() + packed::value_bytes(value)?,
        Part::Element { subkey, .. } => subkey.len() + value.len(),
        Part::Group { name, .. } => name.len() + value.len(),
        Part::Node { number, .. } => std::mem::size_of_val(number) + value.len(),
    };
    Ok(length as u64)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::Slot;

    use super::*;
    use crate::{KeyRef, MemoryKeyspace, RegionState};

    #[test]
    fn a_part_of_the_slots_has_a_part_of_the_counts() {
        let mut keyspace = MemoryKeyspace::default();
        let mut txn = Txn::begin(&keyspace, 1).unwrap();
        let mut middle: Vec<Slot> = Vec::new();
        for number in 0..200u16 {
            let name = format!("key{number}");
            let key = KeyRef::new(number % 3, name.as_bytes());
            middle.push(key.slot);
            let expire_at = (number % 5 == 0).then_some(77);
            txn.put(key.meta_row(), meta::encode_string(expire_at, b"value"));
            txn.put(key.element_row(1, b"element"), Bytes::new());
            txn.put(key.node_row(1, 0), Bytes::from_static(b"node"));
            txn.state_mut().adjust(number % 3, 1, i64::from(expire_at.is_some()));
            let bytes = name.len() + 5 + 7 + 12;
            txn.state_mut().adjust_bytes(bytes, 0);
        }
        middle.sort_unstable();
        let at = middle[100];
        // Half of the range is in the keyspace and half in the batch.
        let (writes, state) = txn.finish();
        keyspace.write(writes);
        let mut txn = Txn::new(&keyspace, 1, state);
        let late = KeyRef::new(0, b"late");
        txn.put(late.meta_row(), meta::encode_string(None, b""));
        txn.state_mut().adjust(0, 1, 0);
        txn.state_mut().adjust_bytes(4, 0);
        let whole = txn.state_mut().clone();
        let right = count_keys(&txn, SlotRange { first: at, last: types::SLOT_COUNT - 1 }).unwrap();
        let left = count_keys(&txn, SlotRange { first: 0, last: at - 1 }).unwrap();
        let child = txn.state_mut().split_off(SlotRange { first: at, last: types::SLOT_COUNT - 1 }, &right);
        assert_eq!(child.databases().collect::<Vec<_>>(), right.keys);
        assert_eq!(txn.state_mut().databases().collect::<Vec<_>>(), left.keys);
        assert_eq!((child.bytes(), txn.state().bytes()), (right.bytes, left.bytes));
        assert_eq!(left.bytes + right.bytes, whole.bytes());
        let sum: u64 = left.keys.iter().chain(&right.keys).map(|(_, counts)| counts.keys).sum();
        assert_eq!(sum, whole.databases().map(|(_, counts)| counts.keys).sum::<u64>());
        assert_eq!(child.next_generation, whole.next_generation);
        assert_eq!(child.applied_index, RegionState::default().applied_index);
    }
}
