//! The report of the measurements in Markdown.

use std::path::PathBuf;

use super::{Measured, QUANTILES, STEPS};
use crate::page::Page;
use client::table::{count, micros, Align, Table};

pub struct Report {
    pub measured: Vec<Measured>,
    pub dir: PathBuf,
    pub file_system: String,
    /// Microseconds of an `fdatasync` of 4 KiB in `dir` before and after: median and 99th
    /// percentile.
    pub sync_us: [[f64; 2]; 2],
    /// The machine's load average over a minute, before and after.
    pub load_average: [String; 2],
}

/// Formats two tables: one with a line for each variant and load, and one with a line for each step
/// of these.
pub fn report(report: &Report) -> String {
    let Some(first) = report.measured.first() else { return String::new() };
    let load = first.load;
    let sync = report.sync_us.map(|[median, p99]| format!("{} (p50), {} (p99)", micros(median), micros(p99)));
    let [load_before, load_after] = &report.load_average;
    let mut page = Page::new("How frozen rows reach flash");
    page.paragraph(format!(
        "Values of {} bytes over {} keys, {} s each, {} reads/s meanwhile.\n\
         {} ({}); fdatasync of 4 KiB {} before, {} after. Load average {load_before} before, {load_after} after.",
        load.value_bytes,
        count(load.keys as f64),
        load.seconds,
        count(load.reads_per_second as f64),
        report.dir.display(),
        report.file_system,
        sync[0],
        sync[1],
    ));
    page.paragraph("Reads count from when they were due.");
    page.table(&variants(&report.measured));
    page.paragraph("Reads by the step of the writer; the time of the call alone.");
    page.table(&steps(&report.measured));
    page.into_text()
}

fn asked(one: &Measured) -> String {
    one.load.rows_per_second.map_or("full speed".to_owned(), |rate| count(rate as f64))
}

fn variants(measured: &[Measured]) -> Table {
    use Align::{Left, Right};
    let mut columns = vec![
        ("variant", Left),
        ("asked", Right),
        ("rows of a run", Right),
        ("rows/s", Right),
        ("CPU us/row", Right),
        ("written / stored", Right),
        ("read from device / stored", Right),
        ("level-0 files, max", Right),
        ("stalled, s", Right),
        ("compaction left, s", Right),
        ("other CPUs", Right),
    ];
    columns.extend(QUANTILES.iter().map(|(name, _)| (*name, Right)));
    let mut table = Table::new(columns);
    for one in measured {
        let cells = [
            one.variant.clone(),
            asked(one),
            count(one.load.rows as f64),
            count(one.rows_per_second),
            format!("{:.1}", one.cpu_us_per_row),
            format!("{:.2}", one.write_amplification),
            format!("{:.2}", one.read_amplification),
            one.level0_files_max.to_string(),
            format!("{:.1}", one.stalled_s),
            format!("{:.1}", one.settled_s),
            format!("{:.2}", one.other_cpus),
        ];
        table.row(cells.into_iter().chain(one.read_us.iter().map(|us| micros(*us))));
    }
    table
}

fn steps(measured: &[Measured]) -> Table {
    use Align::{Left, Right};
    let mut columns =
        vec![("variant", Left), ("asked", Right), ("writer", Left), ("ms a freeze", Right), ("reads", Right)];
    columns.extend(QUANTILES.iter().map(|(name, _)| (*name, Right)));
    columns.extend([("mutex, ms a freeze", Right), ("mutex, longest ms", Right)]);
    let mut table = Table::new(columns);
    for one in measured {
        let of_a_freeze = |ms: f64| format!("{:.2}", ms / one.freezes as f64);
        for (step, name) in one.steps.iter().zip(STEPS) {
            if step.reads == 0 {
                continue;
            }
            let cells = [
                one.variant.clone(),
                asked(one),
                name.to_owned(),
                of_a_freeze(step.seconds * 1e3),
                count(step.reads as f64),
            ];
            let times = step.call_us.iter().map(|us| micros(*us));
            let mutex = [of_a_freeze(step.mutex_ms[0]), format!("{:.1}", step.mutex_ms[1])];
            table.row(cells.into_iter().chain(times).chain(mutex));
        }
    }
    table
}
