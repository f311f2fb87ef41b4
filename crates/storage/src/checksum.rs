//! The checksum of a region's rows. Replicas that applied the same entries have equal checksums.
//!
//! It covers the rows of a snapshot of the region: the data rows of its slots (for the meta region
//! the cluster's rows), its state and its descriptor, each with key and value. All of them depend
//! only on the log. Data that is local to a store is not in these rows: the row cache, the log,
//! capability and placement.

use std::ops::ControlFlow;

use bytes::Bytes;
use types::{RegionDescriptor, RegionId};
use xxhash_rust::xxh3::Xxh3;

use crate::rows::region_descriptor_row;
use crate::{extent, load_state, Reader, RegionState, Result, StorageError};

/// Bytes of rows between two calls of `pace`.
const PACE_BYTES: u64 = 64 << 10;

/// An incremental checksum. Rows must be added in ascending order.
#[derive(Default)]
pub struct Checksum {
    hash: Xxh3,
    rows: u64,
    bytes: u64,
}

/// The checksum of a region's rows and their size. It is equal on all peers at the same applied
/// index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowsChecksum {
    /// XXH3-64, seed 0, of `key length u64 | key | value length u64 | value` for each row;
    /// big-endian.
    pub checksum: u64,
    pub rows: u64,
    /// Bytes of the keys and values of all rows.
    pub bytes: u64,
}

impl Checksum {
    pub fn add(&mut self, row: &[u8], value: &[u8]) {
        for part in [row, value] {
            self.hash.update(&(part.len() as u64).to_be_bytes());
            self.hash.update(part);
        }
        self.rows += 1;
        self.bytes += (row.len() + value.len()) as u64;
    }

    pub fn finish(&self) -> RowsChecksum {
        RowsChecksum { checksum: self.hash.digest(), rows: self.rows, bytes: self.bytes }
    }
}

/// The checksum of a region's rows, with the state and the descriptor that they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub state: RegionState,
    pub descriptor: RegionDescriptor,
    pub rows: RowsChecksum,
}

/// Computes the checksum of a region's rows in a view. The scan calls `pace` with the bytes read
/// since the last call, about every 64 KiB; `pace` may wait. If it returns `Break` the scan ends
/// with `None`.
///
/// # Errors
///
/// The view's error, or [`StorageError::Corrupt`] if the region's own rows are missing or cannot be
/// decoded.
pub fn of_region(
    view: &impl Reader,
    region: RegionId,
    pace: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<Checked>> {
    let state = load_state(view, region)?;
    let descriptor = view.get(&region_descriptor_row(region))?.map(|row| RegionDescriptor::decode(&row));
    let descriptor = match descriptor {
        Some(Ok(descriptor)) => descriptor,
        Some(Err(error)) => return Err(StorageError::Corrupt(format!("a region's descriptor: {error}"))),
        None => return Err(StorageError::Corrupt(format!("region {region} has no descriptor"))),
    };
    let mut sum = Checksum::default();
    let ranges = extent::data_range(region, descriptor.slots).into_iter().chain([extent::own_range(region)]);
    for (from, to) in ranges {
        if add_range(view, (&from, &to), &mut sum, pace)?.is_break() {
            return Ok(None);
        }
    }
    Ok(Some(Checked { state, descriptor, rows: sum.finish() }))
}

fn add_range(
    view: &impl Reader,
    (from, to): (&Bytes, &Bytes),
    sum: &mut Checksum,
    pace: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let (mut unpaced, mut flow) = (0, ControlFlow::Continue(()));
    view.scan(from, to, &mut |row, value| {
        sum.add(row, value);
        unpaced += (row.len() + value.len()) as u64;
        if unpaced >= PACE_BYTES {
            flow = pace(std::mem::take(&mut unpaced));
        }
        flow
    })?;
    Ok(match flow {
        ControlFlow::Continue(()) => pace(unpaced),
        ended => ended,
    })
}

#[cfg(test)]
mod tests {
    use types::SlotRange;

    use super::*;
    use crate::rows::region_state_row;
    use crate::{KeyRef, MemoryKeyspace, WriteSet};

    fn keyspace(values: &[(&str, &str)]) -> MemoryKeyspace {
        let mut rows = MemoryKeyspace::default();
        let of = |id, slots| {
            let descriptor = RegionDescriptor::founded(id, slots, &[0, 1, 2]);
            [
                (region_state_row(id), Some(RegionState::default().encode())),
                (region_descriptor_row(id), Some(descriptor.encode())),
            ]
        };
        let mut written = of(1, Some(SlotRange { first: 0, last: 8191 })).to_vec();
        written.extend(of(2, Some(SlotRange { first: 8192, last: 16383 })));
        written.extend(values.iter().map(|(key, value)| {
            let row = KeyRef::new(0, key.as_bytes()).meta_row();
            (row, Some(Bytes::copy_from_slice(value.as_bytes())))
        }));
        rows.write(WriteSet { ranges_deleted: Vec::new(), rows: written });
        rows
    }

    fn sum(rows: &MemoryKeyspace, region: RegionId) -> RowsChecksum {
        let checked = of_region(rows, region, &mut |_| ControlFlow::Continue(())).unwrap().unwrap();
        checked.rows
    }

    // Slot 5061 is that of "bar", 12182 that of "foo".
    #[test]
    fn a_region_s_checksum_follows_from_its_own_rows_alone() {
        let rows = keyspace(&[("bar", "1"), ("foo", "1")]);
        let other = keyspace(&[("bar", "1"), ("foo", "2")]);
        assert_eq!(sum(&rows, 1), sum(&other, 1));
        assert_ne!(sum(&rows, 2).checksum, sum(&other, 2).checksum);
        assert_eq!((sum(&rows, 2).rows, sum(&rows, 2).bytes), (3, sum(&other, 2).bytes));
    }

    #[test]
    fn a_lost_row_a_changed_state_and_a_moved_boundary_change_the_checksum() {
        let whole = keyspace(&[("bar", "1")]);
        let lost = keyspace(&[]);
        assert_ne!(sum(&whole, 1), sum(&lost, 1));
        let mut later = keyspace(&[("bar", "1")]);
        let mut state = RegionState::default();
        state.applied_index = 99;
        let rows = vec![(region_state_row(1), Some(state.encode()))];
        later.write(WriteSet { ranges_deleted: Vec::new(), rows });
        assert_ne!(sum(&whole, 1).checksum, sum(&later, 1).checksum);
        let of = |parts: [(&[u8], &[u8]); 2]| {
            let mut sum = Checksum::default();
            parts.iter().for_each(|(row, value)| sum.add(row, value));
            sum.finish()
        };
        let (left, right) = (of([(b"a", b"bc"), (b"d", b"")]), of([(b"ab", b"c"), (b"d", b"")]));
        assert_ne!(left.checksum, right.checksum);
        assert_eq!((left.rows, left.bytes), (right.rows, right.bytes));
    }

    #[test]
    fn a_check_can_be_ended_and_a_region_without_a_descriptor_has_none() {
        let rows = keyspace(&[("bar", "1")]);
        assert_eq!(of_region(&rows, 1, &mut |_| ControlFlow::Break(())).unwrap(), None);
        let error = of_region(&rows, 3, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().contains("region 3 has no descriptor"), "{error}");
    }
}
