//! RocksDB's statistics, for metrics.

use rocksdb::properties::num_files_at_level;
use rocksdb::{properties, DB};
use storage::Result;

use crate::error::classify;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Bytes of all memtables, including those being flushed.
    pub memtable_bytes: u64,
    /// Bytes of the files in the current version of the tree.
    pub live_sst_bytes: u64,
    /// Bytes of all files on the device, including those that only a reader still holds.
    pub total_sst_bytes: u64,
    pub estimated_keys: u64,
    pub compaction_pending_bytes: u64,
    pub running_compactions: u64,
    pub running_flushes: u64,
    /// Rate to which writes are currently limited, in bytes per second; 0 if they are not limited.
    pub delayed_write_rate: u64,
    pub write_stopped: bool,
    pub background_errors: u64,
    pub block_cache_bytes: u64,
    pub block_cache_capacity_bytes: u64,
    /// Hits in the block cache since the keyspace was opened; the misses count from then, too.
    pub block_cache_hits: u64,
    pub block_cache_misses: u64,
    /// Time for which writes and flushes waited for compaction since the keyspace was opened, in
    /// microseconds.
    pub stall_micros: u64,
    /// Time for which writes waited for the flush under way, in microseconds.
    pub write_delay_micros: u64,
    /// The way from RocksDB's slowdown triggers (0) to its stop triggers (1); below 0 nothing is
    /// delayed.
    pub debt_share: f64,
    /// Bytes that flushes wrote to the device since the keyspace was opened. The counters after it
    /// count from then, too.
    pub flush_bytes: u64,
    pub compaction_write_bytes: u64,
    pub compaction_read_bytes: u64,
    /// Bytes of the files of snapshots.
    pub ingested_bytes: u64,
    pub files_per_level: Vec<u64>,
    pub row_cache_bytes: u64,
    pub row_cache_hits: u64,
    pub row_cache_misses: u64,
    pub row_filter_bytes: u64,
    /// Number of rows that the filter of rows has learnt, deleted ones included.
    pub row_filter_rows: u64,
    /// Number of slots for which the filter of rows gives answers.
    pub row_filter_slots: u64,
}

pub(crate) fn read(db: &DB, options: &rocksdb::Options, levels: usize) -> Result<Stats> {
    let int = |name| db.property_int_value(name).map(Option::unwrap_or_default).map_err(classify);
    let tickers = options.get_statistics().unwrap_or_default();
    let files_per_level = (0..levels)
        .map(|level| {
            let files = db.property_value(num_files_at_level(level)).map_err(classify)?;
            Ok(files.and_then(|text| text.parse().ok()).unwrap_or(0))
        })
        .collect::<Result<_>>()?;
    Ok(Stats {
        memtable_bytes: int(properties::CUR_SIZE_ALL_MEM_TABLES)?,
        live_sst_bytes: int(properties::LIVE_SST_FILES_SIZE)?,
        total_sst_bytes: int(properties::TOTAL_SST_FILES_SIZE)?,
        estimated_keys: int(properties::ESTIMATE_NUM_KEYS)?,
        compaction_pending_bytes: int(properties::ESTIMATE_PENDING_COMPACTION_BYTES)?,
        running_compactions: int(properties::NUM_RUNNING_COMPACTIONS)?,
        running_flushes: int(properties::NUM_RUNNING_FLUSHES)?,
        delayed_write_rate: int(properties::ACTUAL_DELAYED_WRITE_RATE)?,
        write_stopped: int(properties::IS_WRITE_STOPPED)? != 0,
        background_errors: int(properties::BACKGROUND_ERRORS)?,
        block_cache_bytes: int(properties::BLOCK_CACHE_USAGE)?,
        block_cache_capacity_bytes: int(properties::BLOCK_CACHE_CAPACITY)?,
        block_cache_hits: ticker(&tickers, "rocksdb.block.cache.hit"),
        block_cache_misses: ticker(&tickers, "rocksdb.block.cache.miss"),
        stall_micros: ticker(&tickers, "rocksdb.stall.micros"),
        flush_bytes: ticker(&tickers, "rocksdb.flush.write.bytes"),
        compaction_write_bytes: ticker(&tickers, "rocksdb.compact.write.bytes"),
        compaction_read_bytes: ticker(&tickers, "rocksdb.compact.read.bytes"),
        files_per_level,
        ..Stats::default()
    })
}

/// Reads one counter of RocksDB's statistics, which are lines of `name COUNT : value`.
fn ticker(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(" COUNT : "))
        .find_map(|value| value.trim().parse().ok())
        .unwrap_or(0)
}
