//! Sizes of the log.

use wal::layout::ALIGNMENT;
use wal::Sizes;

const MIB: u64 = 1 << 20;
/// A log of this size has so many segments before it is too large, unless it is so small that they are.
const SEGMENTS: u64 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of a segment; one that is made for a larger entry is larger.
    pub segment_bytes: u64,
    /// Above this what is needed of old segments is written again, so that they can be overwritten.
    pub log_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options::of_size(256 * MIB)
    }
}

impl Options {
    /// A log that is to stay at about so many bytes.
    pub fn of_size(bytes: u64) -> Options {
        Options { segment_bytes: (bytes / SEGMENTS).max(MIB), log_bytes: bytes }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let segment_bytes = self.segment_bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        Sizes { segment_bytes, log_bytes: self.log_bytes }
    }
}
