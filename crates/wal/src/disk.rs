//! The device interface of the log, for all of its I/O. The store implements it with files, and the
//! tests with a simulated disk.

/// The number of a segment, which also names its file. A log never assigns a number twice; a
/// segment that is overwritten keeps its number.
pub type SegmentId = u32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The disk is full. The operation had no effect, or may safely be repeated.
    #[error("no space left: {0}")]
    NoSpace(String),
    #[error("{0}")]
    Failed(String),
}

/// A small record that is rewritten in place, in two alternating slots. See [`crate::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkFile {
    /// The sequence of the last synced block. It is written after each sync of the log, but synced
    /// itself only when the log is idle.
    Synced,
    /// The sequence of the first block that is needed. It is synced before a segment with older
    /// blocks is overwritten.
    First,
}

/// Storage for segments and marks.
///
/// A write is durable once a later sync of the same segment has returned. Until then a loss of
/// power may keep any subset of the unsynced sectors, in any order. If a sync fails, the
/// implementation must end the process (in a simulation: the store), because the kernel may have
/// dropped the dirty pages.
pub trait Disk {
    /// Creates a segment of `len` zero bytes. The zeros and the segment's name are durable when
    /// this returns.
    fn create(&self, segment: SegmentId, len: u64) -> Result<(), DiskError>;

    fn delete(&self, segment: SegmentId) -> Result<(), DiskError>;

    fn write(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    fn sync(&self, segment: SegmentId) -> Result<(), DiskError>;

    /// Returns true if the segment is encrypted otherwise than a new one would be. Such a segment
    /// gets no more blocks, and is deleted instead of overwritten.
    fn is_outdated(&self, _segment: SegmentId) -> bool {
        false
    }

    /// Fills `into` with the bytes of the segment at `offset`.
    fn read(&self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// Returns all segments with their lengths in bytes, in any order.
    fn segments(&self) -> Result<Vec<(SegmentId, u64)>, DiskError>;

    fn write_mark(&self, file: MarkFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    fn sync_mark(&self, file: MarkFile) -> Result<(), DiskError>;

    /// Returns the whole content of a mark file, which is short.
    fn read_mark(&self, file: MarkFile) -> Result<Vec<u8>, DiskError>;
}
