//! Sizes of the log engine. Its own defaults suit a machine with terabytes.

use std::path::Path;

use raft_engine::{Config, ReadableSize, RecoveryMode};

use crate::error::{LogError, Result};

const MIB: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A file that has grown past this is followed by a new one.
    pub target_file_bytes: u64,
    /// Above this [`RaftLog::purge`](crate::RaftLog::purge) starts to rewrite and delete old files.
    pub purge_threshold_bytes: u64,
    /// Zeroed files made at the first open, so that early appends overwrite instead of allocating. 0 for none.
    pub prefill_bytes: u64,
    /// The bytes of entries above which a batch is written in several pieces. The engine takes less than 2 GiB at
    /// once, and copies that.
    pub piece_bytes: usize,
    /// Batches above this are compressed with LZ4; 0 for never.
    pub compression_threshold_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options::of_size(256 * MIB)
    }
}

impl Options {
    /// A log that is purged when its files exceed so many bytes.
    pub fn of_size(bytes: u64) -> Options {
        Options {
            target_file_bytes: bytes / 16,
            purge_threshold_bytes: bytes,
            prefill_bytes: bytes / 8,
            piece_bytes: 32 << 20,
            compression_threshold_bytes: 0,
        }
    }

    pub(crate) fn to_engine(&self, dir: &Path) -> Result<Config> {
        let dir = dir.to_str().ok_or_else(|| LogError::Options(format!("{dir:?} is not UTF-8")))?;
        let prefill = self.prefill_bytes >= self.target_file_bytes;
        Ok(Config {
            dir: dir.to_owned(),
            // A torn tail is what any crash leaves; the watermark tells it from a lost one. "Any" would
            // skip damage in the middle.
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            recovery_threads: 2,
            target_file_size: ReadableSize(self.target_file_bytes),
            purge_threshold: ReadableSize(self.purge_threshold_bytes),
            batch_compression_threshold: ReadableSize(self.compression_threshold_bytes),
            enable_log_recycle: true,
            prefill_for_recycle: prefill,
            // The engine makes half as much again as it is told.
            prefill_limit: prefill
                .then(|| ReadableSize((self.prefill_bytes / 3 * 2).max(self.target_file_bytes))),
            ..Config::default()
        })
    }
}
