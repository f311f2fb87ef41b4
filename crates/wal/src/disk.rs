//! What the log asks of a device. The only door to the outside: a store gives it files, a simulation what it likes.

/// A segment's number: that of its file. Never used twice in one log, but for a file that is overwritten.
pub type SegmentId = u32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// Nothing was done, or what was done may be done again.
    #[error("no space left: {0}")]
    NoSpace(String),
    #[error("{0}")]
    Failed(String),
}

/// A small record that is rewritten in place, in two slots. See [`crate::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkFile {
    /// Through where the log is synced. Written after each sync, synced now and then.
    Synced,
    /// The first block that is needed. Synced before what lies below is overwritten.
    First,
}

/// Segments and marks. A write is durable once a later sync of the same segment has returned; until then a loss of
/// power may keep any part of it, in any order. A sync that fails must end the process or, in a simulation, the store:
/// the kernel may have dropped what was to be written.
pub trait Disk {
    /// Makes a segment of `len` zeros that is durable with its name.
    fn create(&self, segment: SegmentId, len: u64) -> Result<(), DiskError>;

    fn delete(&self, segment: SegmentId) -> Result<(), DiskError>;

    fn write(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    fn sync(&self, segment: SegmentId) -> Result<(), DiskError>;

    /// Fills `into` from the segment.
    fn read(&self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// The segments and their lengths in bytes, in any order.
    fn segments(&self) -> Result<Vec<(SegmentId, u64)>, DiskError>;

    fn write_mark(&self, file: MarkFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    fn sync_mark(&self, file: MarkFile) -> Result<(), DiskError>;

    /// The whole of a mark, which is short.
    fn read_mark(&self, file: MarkFile) -> Result<Vec<u8>, DiskError>;
}
