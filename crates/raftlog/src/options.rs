//! The sizes of the log and its segments.

use wal::layout::ALIGNMENT;
use wal::Sizes;

const MIB: u64 = 1 << 20;
/// The number of segments in a log of its nominal size. A small log has fewer, because a segment
/// has at least 1 MiB.
const SEGMENTS: u64 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The size of a segment in bytes. A segment made for a larger entry is larger.
    pub segment_bytes: u64,
    /// The size of the log in bytes above which needed data of old segments is rewritten, so that
    /// the segments can be reused.
    pub log_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options::of_size(256 * MIB)
    }
}

impl Options {
    /// Returns the options of a log with a nominal size of `bytes`.
    pub fn of_size(bytes: u64) -> Options {
        Options { segment_bytes: (bytes / SEGMENTS).max(MIB), log_bytes: bytes }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let segment_bytes = self.segment_bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        Sizes { segment_bytes, log_bytes: self.log_bytes }
    }
}
