//! The report: the settings, the verdicts on the paper's statements, each figure beside the
//! paper's, the disk in each round, and what is void or missing.

use super::figures::{Figure, Metric};
use super::plot::file_name;
use super::rounds::{void, Round, Setup};
use super::statements::statements;
use super::summary::{Panel, Summary};
use crate::measure::median;
use crate::page::Page;
use crate::scenario::verdicts;
use client::table::{micros, Align, Table};

/// Returns the report as Markdown, of the rounds that are there. Figures without a good round are
/// listed as not measured. `failed` are the rounds that could not be made, with the reasons.
pub fn report(setup: &Setup, rounds: &[Round], failed: &[String]) -> String {
    let mut page = Page::new("PaxStore's evaluation, made again");
    settings(&mut page, setup, rounds);
    let mut figures = Figure::ALL;
    figures.sort();
    page.section("The paper's statements");
    for figure in figures {
        let judged = statements(figure, rounds, setup);
        if !judged.is_empty() {
            page.subsection(figure.heading());
            page.table(&verdicts(&judged));
        }
    }
    for figure in figures {
        section(&mut page, figure, rounds);
    }
    missing(&mut page, &figures, rounds, failed);
    disk(&mut page, rounds);
    page.into_text()
}

fn settings(page: &mut Page, setup: &Setup, rounds: &[Round]) {
    let scale = &setup.scale;
    if scale.name == "smoke" {
        page.paragraph("**Scale `smoke`: it shows that everything runs. It makes no claim.**");
    }
    let syncs: Vec<f64> = rounds.iter().flat_map(|round| round.sync_us).collect();
    let least = syncs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = syncs.iter().copied().fold(0.0, f64::max);
    let disk = match syncs.is_empty() {
        true => "not measured".to_owned(),
        false => format!(
            "{} in the median over all rounds, {} to {}",
            micros(median(&syncs)),
            micros(least),
            micros(most)
        ),
    };
    page.list([
        format!("scale: `{}`; the sides of a comparison take turns in each round", scale.name),
        format!("machine: {} CPUs for all servers and clients; the disk has {}", setup.cpus, setup.file_system),
        format!("`fdatasync` of 4 KiB on the disk: {disk}"),
        format!(
            "measurements under load: windows of {} ms after {} ms; log: {} writes; recovery: {} records; reads: {} \
             records",
            scale.window_ms, scale.warmup_ms, scale.log_writes, scale.recovered, scale.read
        ),
        format!("program: {}", setup.program),
        "values are medians of the good rounds, with the least and the greatest in parentheses".to_owned(),
    ]);
}

fn section(page: &mut Page, figure: Figure, rounds: &[Round]) {
    let summary = Summary::of(figure, rounds);
    if summary.is_empty() {
        return;
    }
    page.section(figure.heading());
    page.paragraph(format!("The paper: {}.", figure.paper()));
    page.paragraph(figure.method());
    for metric in figure.metrics() {
        tables(page, figure, &summary, *metric);
    }
    for panel in summary.panels() {
        page.figure(figure.heading(), &file_name(figure, &panel));
    }
}

/// Adds one table for each set of panels with the same values on the axis.
fn tables(page: &mut Page, figure: Figure, summary: &Summary<'_>, metric: Metric) {
    let mut left: Vec<Panel> = summary.panels();
    while let Some(first) = left.first().cloned() {
        let axis = summary.axis(&first);
        let (same, others) = left.into_iter().partition(|panel| summary.axis(panel) == axis);
        left = others;
        let labels: Vec<String> = axis.iter().map(|at| figure.label(*at)).collect();
        let names = [("device", Align::Left), ("load", Align::Left), (metric.name(), Align::Left)];
        let columns = names.into_iter().chain(labels.iter().map(|label| (label.as_str(), Align::Right)));
        let mut table = Table::new(columns);
        for panel in &same {
            for series in summary.series(panel) {
                let cell = |at: &u64| match summary.spread(panel, &series, *at, metric) {
                    Some(value) => format!(
                        "{} ({} - {})",
                        metric.text(value.median),
                        metric.text(value.least),
                        metric.text(value.most)
                    ),
                    None => "-".to_owned(),
                };
                let cells: Vec<String> = axis.iter().map(cell).collect();
                if cells.iter().any(|cell| cell != "-") {
                    let head = [panel.0.clone(), panel.1.clone(), series.clone()];
                    table.row(head.into_iter().chain(cells));
                }
            }
        }
        if !table.is_empty() {
            page.table(&table);
        }
    }
}

fn missing(page: &mut Page, figures: &[Figure], rounds: &[Round], failed: &[String]) {
    let mut lines: Vec<String> = failed.to_vec();
    for round in rounds {
        let named = round.skipped.iter().map(|why| format!("{}, {why}", round.figure.heading()));
        lines.extend(named.filter(|line| !lines.contains(line)).collect::<Vec<_>>());
    }
    for figure in figures {
        if Summary::of(*figure, rounds).is_empty() {
            lines.push(format!("{}: there is no good round", figure.heading()));
        }
    }
    if !lines.is_empty() {
        page.section("Not measured");
        page.list(lines);
    }
}

fn disk(page: &mut Page, rounds: &[Round]) {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("figure", Left),
        ("round", Right),
        ("sync before", Right),
        ("sync after", Right),
        ("repeated", Right),
        ("void", Left),
    ]);
    for round in rounds {
        table.row([
            round.figure.name().to_owned(),
            round.round.to_string(),
            micros(round.sync_us[0]),
            micros(round.sync_us[1]),
            round.repeated.to_string(),
            void(round, rounds).unwrap_or_default(),
        ]);
    }
    if !table.is_empty() {
        page.section("The disk in each round");
        page.table(&table);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rounds::tests::{round, sample, setup};
    use super::super::rounds::Sample;
    use super::*;

    /// Compares the whole report of a small reproduction with the golden file. Set REGENERATE=1
    /// after an intended change, and review the diff.
    #[test]
    fn the_report_reads_as_it_should() {
        let log = |number, sync_us, factor: f64| {
            let of = |series, at, us: f64| Sample {
                sync_us: Some(factor * us * 0.9),
                ..sample("disk", "1 writer", series, at, factor * us)
            };
            let samples = vec![
                of("overwrite", 512, 1000.0),
                of("append", 512, 1700.0),
                of("overwrite", 8192, 1200.0),
                of("append", 8192, 1500.0),
            ];
            round(Figure::Log, number, sync_us, samples)
        };
        let kills = sample("plain-ssd", "election raft", "3 stores", 3, 1.2e6);
        let mut failover = round(Figure::Failover, 1, 1000.0, vec![kills]);
        failover.skipped.push("election zookeeper: the package zookeeper is not installed".into());
        let rounds = [log(1, 1000.0, 1.0), log(2, 9000.0, 9.0), log(3, 1000.0, 1.1), failover];
        let text = report(&setup(), &rounds, &["Figure 5.6, round 1: no room".to_owned()]);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/paxstore/testdata/report.md");
        if std::env::var_os("REGENERATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let expected = std::fs::read_to_string(path).unwrap();
        assert!(text == expected, "the report is now:\n{text}");
    }

    #[test]
    fn a_smoke_run_makes_no_claim() {
        let mut smoke = setup();
        smoke.scale.name = "smoke".to_owned();
        assert!(report(&smoke, &[], &[]).contains("makes no claim"));
        assert!(!report(&setup(), &[], &[]).contains("makes no claim"));
    }
}
