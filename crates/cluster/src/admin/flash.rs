//! The rows of the stores in RAM and on flash: `ctl stores --flash`, `INFO flash`, and the options
//! that a store chose for its device.

use serde::{Deserialize, Serialize};

use super::{Method, Operation};

/// Asks for the use of RAM and flash of every store that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlashQuery {}

impl Operation for FlashQuery {
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/api/v1/flash";
    type Of = ();
    type Reply = Vec<FlashRow>;
}

/// One store's use of RAM and flash. Counters count from the start of its process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlashRow {
    pub store: u64,
    /// Reads of rows that RAM answered, and those that went to flash.
    pub ram_hits: u64,
    pub ram_misses: u64,
    /// Bytes of rows that are only in RAM, and of rows that flash has, too.
    pub dirty_bytes: u64,
    pub clean_bytes: u64,
    /// Clients whose reads wait for flash now.
    pub cold_in_flight: u64,
    /// Rows that wait for a reader thread, rows that are being read, and the maximum number of
    /// threads.
    pub rows_waiting: u64,
    pub rows_reading: u64,
    pub reader_threads: u64,
    /// Reads of clients that waited for flash, and the time that they took.
    pub cold_reads: u64,
    pub cold_mean_us: f64,
    pub cold_p50_us: u64,
    pub cold_p99_us: u64,
    pub level0_files: u64,
    pub compaction_pending_bytes: u64,
    pub running_compactions: u64,
    /// The way from RocksDB's slowdown triggers (0) to its stop triggers (100); 0 if nothing is
    /// delayed.
    pub debt_percent: f64,
    /// Time for which flushes waited for compaction, and writes for a flush, in microseconds.
    pub stall_us: u64,
    pub write_delay_us: u64,
    /// Bytes of rows that commands have written.
    pub rows_bytes: u64,
    /// Bytes written to the device: by the log, flushes, compactions, and received snapshots.
    pub log_bytes: u64,
    pub flush_bytes: u64,
    pub compaction_bytes: u64,
    pub ingested_bytes: u64,
    pub compaction_read_bytes: u64,
    /// Bytes of the files of rows, and of the live keys and values in them.
    pub table_bytes: u64,
    pub user_bytes: u64,
    /// The options that the store chose for its device, as text for display.
    pub tuning: String,
}

impl FlashRow {
    /// Returns the share of reads that RAM answered; `None` without reads.
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.ram_hits, self.ram_hits + self.ram_misses)
    }

    /// Returns the bytes written to the device.
    pub fn device_bytes(&self) -> u64 {
        self.log_bytes + self.flush_bytes + self.compaction_bytes + self.ingested_bytes
    }

    /// Returns the bytes written to the device for each byte of rows that commands have written;
    /// `None` before the first.
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.device_bytes(), self.rows_bytes)
    }

    /// Returns the bytes of files for each byte of live keys and values; `None` without files.
    pub fn space_amplification(&self) -> Option<f64> {
        ratio(self.table_bytes, self.user_bytes)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_told_only_if_there_is_something_to_divide_by() {
        let row = FlashRow {
            ram_hits: 30,
            ram_misses: 10,
            rows_bytes: 100,
            log_bytes: 110,
            flush_bytes: 120,
            compaction_bytes: 200,
            ingested_bytes: 70,
            table_bytes: 90,
            ..FlashRow::default()
        };
        assert_eq!((row.hit_ratio(), row.write_amplification()), (Some(0.75), Some(5.0)));
        assert_eq!(row.space_amplification(), None);
        let nothing = FlashRow::default();
        assert_eq!((nothing.hit_ratio(), nothing.write_amplification()), (None, None));
    }
}
