//! This store's use of RAM and flash, for `INFO flash` and `ctl stores --flash`.

use std::fmt::Display;

use cluster::admin::FlashRow;

use crate::store::Store;

/// Returns the row of this store. The numbers of RocksDB are those of about a second ago.
pub fn row(store: &Store) -> FlashRow {
    let (ram, stats) = (store.engine.rows().ram_use(), store.engine.stats());
    let cold = store.metrics.cold_reads.row();
    let fetcher = store.engine.fetcher();
    let (rows_waiting, rows_reading) = fetcher.under_way();
    FlashRow {
        store: store.id,
        ram_hits: ram.hits,
        ram_misses: ram.misses,
        dirty_bytes: ram.dirty_bytes,
        clean_bytes: ram.clean_bytes,
        cold_in_flight: u64::try_from(store.metrics.cold_reads.in_flight()).unwrap_or(0),
        rows_waiting: rows_waiting as u64,
        rows_reading: rows_reading as u64,
        reader_threads: fetcher.threads_max() as u64,
        cold_reads: cold.count,
        cold_mean_us: cold.mean_us,
        cold_p50_us: cold.p50_us,
        cold_p99_us: cold.p99_us,
        level0_files: stats.files_per_level.first().copied().unwrap_or(0),
        compaction_pending_bytes: stats.compaction_pending_bytes,
        running_compactions: stats.running_compactions,
        debt_percent: stats.debt_share.max(0.0) * 100.0,
        stall_us: stats.stall_micros,
        write_delay_us: stats.write_delay_micros,
        rows_bytes: store.metrics.rows_bytes_written.get(),
        log_bytes: store.metrics.log_device_bytes.get(),
        flush_bytes: stats.flush_bytes,
        compaction_bytes: stats.compaction_write_bytes,
        ingested_bytes: stats.ingested_bytes,
        compaction_read_bytes: stats.compaction_read_bytes,
        table_bytes: stats.live_sst_bytes,
        user_bytes: store.engine.user_bytes(),
        tuning: store.engine.tuning().to_string(),
    }
}

/// Writes the fields of `INFO flash`.
pub fn write_info(row: &FlashRow, field: &mut dyn FnMut(&str, &dyn Display)) {
    let ratio = |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!("{ratio:.4}"));
    field("ram_hits", &row.ram_hits);
    field("ram_misses", &row.ram_misses);
    field("ram_hit_ratio", &ratio(row.hit_ratio()));
    field("rows_dirty_bytes", &row.dirty_bytes);
    field("rows_clean_bytes", &row.clean_bytes);
    field("cold_reads_in_flight", &row.cold_in_flight);
    field("cold_rows_waiting", &row.rows_waiting);
    field("cold_rows_reading", &row.rows_reading);
    field("reader_threads", &row.reader_threads);
    field("cold_reads", &row.cold_reads);
    field("cold_read_usec_mean", &(row.cold_mean_us.round() as u64));
    field("cold_read_usec_p50", &row.cold_p50_us);
    field("cold_read_usec_p99", &row.cold_p99_us);
    field("level0_files", &row.level0_files);
    field("compactions_running", &row.running_compactions);
    field("compaction_pending_bytes", &row.compaction_pending_bytes);
    field("compaction_debt_percent", &format!("{:.1}", row.debt_percent));
    field("flush_stall_usec", &row.stall_us);
    field("write_delay_usec", &row.write_delay_us);
    field("rows_bytes_written", &row.rows_bytes);
    field("device_bytes_written", &row.device_bytes());
    field("device_bytes_log", &row.log_bytes);
    field("device_bytes_flush", &row.flush_bytes);
    field("device_bytes_compaction", &row.compaction_bytes);
    field("device_bytes_snapshots", &row.ingested_bytes);
    field("device_bytes_read_by_compaction", &row.compaction_read_bytes);
    field("write_amplification", &ratio(row.write_amplification()));
    field("table_bytes", &row.table_bytes);
    field("user_bytes", &row.user_bytes);
    field("space_amplification", &ratio(row.space_amplification()));
}
