//! What was measured, as text.

use std::path::PathBuf;

use super::{Measured, QUANTILES};
use crate::table::{count, micros, Align, Table};

pub struct Report {
    pub measured: Vec<Measured>,
    pub dir: PathBuf,
    pub file_system: String,
    /// `fdatasync` of 4 KiB there: median and 99th percentile, microseconds.
    pub sync_us: [f64; 2],
}

/// One table, a line for each way and load.
pub fn report(report: &Report) -> String {
    use Align::{Left, Right};
    let Some(first) = report.measured.first() else { return String::new() };
    let load = first.load;
    let text = format!(
        "# How frozen rows reach flash\n\nRuns of {} rows of {} bytes over {} keys, {} s each; {} reads a second beside \
         them. On {} ({}): fdatasync of 4 KiB {} (p50), {} (p99).\n\n",
        count(load.rows as f64),
        load.value_bytes,
        count(load.keys as f64),
        load.seconds,
        count(load.reads_per_second as f64),
        report.dir.display(),
        report.file_system,
        micros(report.sync_us[0]),
        micros(report.sync_us[1]),
    );
    let mut columns = vec![
        ("way", Left),
        ("asked", Right),
        ("rows/s", Right),
        ("CPU a row, us", Right),
        ("written / bytes of rows", Right),
        ("files in level 0", Right),
        ("waited, s", Right),
        ("wrote, s", Right),
        ("published, s", Right),
        ("reads", Right),
    ];
    columns.extend(QUANTILES.iter().map(|(name, _)| (*name, Right)));
    let mut table = Table::new(columns);
    for one in &report.measured {
        let asked = one.load.rows_per_second.map_or("all".to_owned(), |rate| count(rate as f64));
        let mut cells = vec![
            one.way.clone(),
            asked,
            count(one.rows_per_second),
            format!("{:.1}", one.cpu_us_per_row),
            format!("{:.2}", one.write_amplification),
            one.level0_files_max.to_string(),
            format!("{:.1}", one.waited_s),
            format!("{:.1}", one.wrote_s),
            format!("{:.1}", one.published_s),
            count(one.reads as f64),
        ];
        cells.extend(one.read_us.iter().map(|us| micros(*us)));
        table.row(cells);
    }
    text + &table.markdown()
}
