//! Errors of the log, classified by what the store must do about them.

use types::{LogIndex, RegionId};

use crate::disk::{DiskError, SegmentId};

pub type Result<T> = std::result::Result<T, LogError>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// No part of the batch was acknowledged. The caller may append the same batch again once there
    /// is room.
    #[error("no space left for the log: {0}")]
    NoSpace(String),
    /// The device failed. The log accepts no further writes and the store stops.
    #[error("the log's device failed: {0}")]
    Device(String),
    /// An earlier write failed with [`LogError::Device`], so the log accepts no writes.
    #[error("the log has stopped after a failed write")]
    Stopped,
    #[error("the log is corrupt: {0}")]
    Corrupt(String),
    /// Entries of one region fail their checksum. The rest of the log can be used.
    #[error(
        "entries {first}..={last} of region {region}, at {offset} in segment {segment}, fail their checksum"
    )]
    Damaged { region: RegionId, first: LogIndex, last: LogIndex, segment: SegmentId, offset: u64 },
    /// The log ends before the last block known to be synced, so acknowledged writes are lost.
    /// Recovery left the files unchanged.
    #[error(
        "the log ends at block {found}, but block {synced} had been synced: an acknowledged tail is lost, and of \
         which regions is unknown. This store must not vote or serve from these files; rebuild it from its \
         peers (OPERATING.md, A log that is refused)"
    )]
    LostTail { synced: u64, found: u64 },
    #[error("region {region}'s log holds {first}..={last}: {asked}")]
    Range { region: RegionId, first: LogIndex, last: LogIndex, asked: String },
    #[error("the log's configuration: {0}")]
    Options(String),
}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> LogError {
        match error {
            DiskError::NoSpace(reason) => LogError::NoSpace(reason),
            DiskError::Failed(reason) => LogError::Device(reason),
        }
    }
}
