//! The row ranges that belong to a region, and their deletion without touching rows of other
//! regions.

use std::ops::ControlFlow;

use bytes::Bytes;
use types::{RegionDescriptor, RegionId, SlotRange, META_REGION};

use crate::rows::{prefix_end, region_state_row, slots_range, SPACE_META_REGION, SPACE_REGION_STATE};
use crate::{Reader, Result, StorageError, WriteSet};

/// Returns the range of a region's data rows: those of its slots, or all cluster state for the meta
/// region. Returns `None` if `slots` is `None` for another region.
pub fn data_range(region: RegionId, slots: Option<SlotRange>) -> Option<(Bytes, Bytes)> {
    if region == META_REGION {
        let from = Bytes::from_static(&[SPACE_META_REGION]);
        let to = prefix_end(&from);
        return Some((from, to));
    }
    slots.map(slots_range)
}

/// Returns the range of the region's own rows: its applied state and its descriptor.
pub fn own_range(region: RegionId) -> (Bytes, Bytes) {
    let from = region_state_row(region);
    let to = prefix_end(&from);
    (from, to)
}

/// Returns the part of `slots` that no other region with a descriptor on this store covers.
///
/// A peer that missed a split or a merge still claims slots that now belong to another region. That
/// region may have reached this store independently, so its rows must not be deleted.
pub fn without_others(rows: &impl Reader, region: RegionId, slots: &[SlotRange]) -> Result<Vec<SlotRange>> {
    let mut left = slots.to_vec();
    let mut unreadable = None;
    let from = [SPACE_REGION_STATE];
    rows.scan(&from, &prefix_end(&from), &mut |row, value| {
        let is_descriptor = row.len() > region_state_row(0).len();
        match RegionDescriptor::decode(value) {
            _ if !is_descriptor => {}
            Ok(other) if other.id != region => {
                left = left.iter().flat_map(|slots| slots.without(other.slots)).collect();
            }
            Ok(_) => {}
            Err(error) => {
                unreadable = Some(StorageError::Corrupt(format!("a region's descriptor: {error}")));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    unreadable.map_or(Ok(left), Err)
}

/// Returns a write set that deletes the region's own rows and all rows of `slots`. For the meta
/// region it deletes all cluster state.
pub fn deletion(region: RegionId, slots: &[SlotRange]) -> WriteSet {
    let data: Vec<(Bytes, Bytes)> = match region {
        META_REGION => data_range(region, None).into_iter().collect(),
        _ => slots.iter().filter_map(|slots| data_range(region, Some(*slots))).collect(),
    };
    WriteSet { ranges_deleted: data.into_iter().chain([own_range(region)]).collect(), rows: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::region_descriptor_row;
    use crate::MemoryKeyspace;

    #[test]
    fn slots_that_another_region_has_are_left_alone() {
        let range = |first, last| SlotRange { first, last };
        let mut rows = MemoryKeyspace::default();
        for (id, slots) in [(1, range(0, 99)), (2, range(40, 59)), (3, range(90, 120))] {
            let descriptor = RegionDescriptor::founded(id, Some(slots), &[0]);
            let own = [
                (region_state_row(id), Some(crate::RegionState::default().encode())),
                (region_descriptor_row(id), Some(descriptor.encode())),
            ];
            rows.write(WriteSet { ranges_deleted: Vec::new(), rows: own.to_vec() });
        }
        let left = without_others(&rows, 1, &[range(0, 99)]).unwrap();
        assert_eq!(left, [range(0, 39), range(60, 89)]);
        rows.write(deletion(1, &left));
        assert_eq!(rows.get(&region_descriptor_row(1)).unwrap(), None);
        assert!(rows.get(&region_descriptor_row(2)).unwrap().is_some());
    }

    #[test]
    fn a_descriptor_that_cannot_be_read_is_an_error() {
        let mut rows = MemoryKeyspace::default();
        let own = vec![(region_descriptor_row(2), Some(Bytes::from_static(b"?")))];
        rows.write(WriteSet { ranges_deleted: Vec::new(), rows: own });
        let left = without_others(&rows, 1, &[SlotRange::ALL]);
        assert!(matches!(left, Err(StorageError::Corrupt(_))), "{left:?}");
    }
}
