//! Reads of entries by the locations that the index gives.

use raft::eraftpb::Entry;
use types::{LogIndex, RegionId};

use crate::block::Place;
use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::index::{Run, SharedIndex};
use crate::layout::{Head, Secret, HEAD_LEN};
use crate::records::{decode_entries, entry_len};

/// Reads entries of `low..high`, starting at `low`: as many as fit in `max_bytes`, and at least
/// one.
///
/// The index is not locked during device reads. If a section has moved in the meantime, it is
/// looked up again.
pub fn read_entries(
    disk: &impl Disk,
    index: &impl SharedIndex,
    secret: Secret,
    region: RegionId,
    (low, high): (LogIndex, LogIndex),
    max_bytes: u64,
) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    let mut next = low;
    while next < high {
        let look_up = || {
            index.with(|index| {
                index.check_read(region, next, high)?;
                let run = index.run_at(region, next);
                run.ok_or_else(|| LogError::Corrupt(format!("region {region} has no entry {next}")))
            })
        };
        let mut run = look_up()?;
        let content = loop {
            // A segment that was released in the meantime may be deleted or overwritten.
            let read = read_section(disk, secret, region, &run.place);
            if let Ok(Some(content)) = read {
                break content;
            }
            let again = look_up()?;
            if again.place == run.place {
                return Err(read.err().unwrap_or_else(|| unreadable(region, &run)));
            }
            run = again;
        };
        let end = high.min(run.first + u64::from(run.count));
        let Some(read) = decode_entries(&content, next, end).filter(|read| read.len() as u64 == end - next)
        else {
            return Err(unreadable(region, &run));
        };
        for entry in read {
            bytes += entry_len(&entry) as u64;
            if bytes > max_bytes && !entries.is_empty() {
                return Ok(entries);
            }
            next = entry.index + 1;
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Reads the content of a section. Returns `None` if the section is no longer at this place.
pub(crate) fn read_section(
    disk: &impl Disk,
    secret: Secret,
    region: RegionId,
    place: &Place,
) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; HEAD_LEN + place.length as usize];
    disk.read(place.segment, place.offset, &mut bytes)?;
    let content = bytes.split_off(HEAD_LEN);
    let is_it = Head::decode(&bytes)
        .is_some_and(|head| head.region == region && head.matches(&content, place.sequence, secret));
    Ok(is_it.then_some(content))
}

pub(crate) fn unreadable(region: RegionId, run: &Run) -> LogError {
    let Place { segment, offset, .. } = run.place;
    LogError::Damaged { region, first: run.first, last: run.end() - 1, segment, offset }
}
