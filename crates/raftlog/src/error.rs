//! What can go wrong with the log, sorted by what the store must do.

use std::io::ErrorKind;

use types::RegionId;

pub type Result<T> = std::result::Result<T, LogError>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Nothing of the batch was kept or acknowledged: the same batch may be appended again when there is room.
    #[error("no space left for the log: {0}")]
    NoSpace(String),
    /// The device failed a write. The log takes no more; the store stops.
    #[error("writing the log failed: {0}")]
    Device(String),
    /// An earlier write failed with [`LogError::Device`].
    #[error("the log has stopped after a failed write")]
    Stopped,
    #[error("the log is corrupt: {0}")]
    Corrupt(String),
    /// The engine ends before what had been synced, so acknowledged writes are gone. The files were left
    /// as they were found.
    #[error(
        "the log ends at batch {found}, but batch {synced} had been synced: an acknowledged tail is lost. \
         This store must not vote or serve from these files; rebuild it from its peers"
    )]
    LostTail { synced: u64, found: u64 },
    #[error("region {region}'s log holds {first}..={last}: {asked}")]
    Range { region: RegionId, first: u64, last: u64, asked: String },
    #[error("one batch of entries is larger than the log's format allows")]
    TooLarge,
    #[error("the log's configuration: {0}")]
    Options(String),
}

/// For reads and recovery, where an I/O error says nothing about what is on the device.
pub(crate) fn reading(error: raft_engine::Error) -> LogError {
    use raft_engine::Error;
    match error {
        Error::Io(error) if error.kind() == ErrorKind::StorageFull => LogError::NoSpace(error.to_string()),
        Error::Io(error) => LogError::Device(error.to_string()),
        Error::InvalidArgument(reason) => LogError::Options(reason),
        other => LogError::Corrupt(other.to_string()),
    }
}

/// For writes. At a full disk the engine first cuts off what it has written of the batch, rotates to
/// another file and tries again; `TryAgain` is what it says when that too was in vain. Any other failure
/// leaves the end of the file unknown.
pub(crate) fn writing(error: raft_engine::Error) -> LogError {
    use raft_engine::Error;
    match error {
        Error::Io(error) if error.kind() == ErrorKind::StorageFull => LogError::NoSpace(error.to_string()),
        Error::TryAgain(reason) => LogError::NoSpace(reason),
        Error::Full => LogError::TooLarge,
        other => LogError::Device(other.to_string()),
    }
}
