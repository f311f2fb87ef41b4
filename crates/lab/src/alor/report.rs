//! The report: the settings, each figure beside the paper's, void measurements with their reasons,
//! and what bounded the good runs.

use std::collections::BTreeSet;

use super::evidence::Evidence;
use super::figures::{Comparison, Figure, Metric, BASELINE};
use super::paper::paper_mean;
use super::plot::file_name;
use super::predictions::{self, Prediction};
use super::runs::{Account, Phase, Rest, Run, Setup};
use super::statistics::{chart, Chart};
use crate::measure::median;
use crate::page::Page;
use crate::ycsb::Workload;
use client::table::{bytes, count, micros, Align, Table};
use predict::alor::REQUEST_TIMEOUT_MS;

/// Returns the charts in the order of the figures.
pub fn charts(figures: &[Figure], runs: &[Run]) -> Vec<Chart> {
    let of = |figure: &Figure| -> Vec<Chart> {
        figure.metrics.iter().map(|metric| chart(*figure, *metric, runs)).collect()
    };
    figures.iter().flat_map(of).collect()
}

/// Returns the report as Markdown. `predictions` has predicted ratios of any of the bars. It may be
/// empty.
pub fn report(
    setup: &Setup,
    charts: &[Chart],
    runs: &[Run],
    account: &Account,
    predictions: &[Prediction],
) -> String {
    let mut page = Page::new("ALOR's evaluation, made again");
    settings(&mut page, setup);
    summary(&mut page, charts, runs);
    charts.iter().for_each(|chart| section(&mut page, chart));
    predictions::section(&mut page, charts, predictions);
    moves(&mut page, runs);
    void(&mut page, runs);
    absent(&mut page, account);
    evidence(&mut page, runs);
    page.into_text()
}

fn settings(page: &mut Page, setup: &Setup) {
    let scale = &setup.scale;
    if !scale.makes_claims() {
        page.paragraph(format!(
            "**Scale `{}`: {} run per point. It shows that everything runs. It makes no claim.**",
            scale.name, scale.runs
        ));
    }
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name}: {value}"));
    line(
        "scale",
        format!(
            "`{}`, {} runs per point, policies in turn; medians, with the least and the most run",
            scale.name, scale.runs
        ),
    );
    line(
        "data factor",
        format!(
            "1/{:.0} of the paper's 10 GB: {} records of 1 KiB under keys of 16 bytes on six stores, three copies",
            1.0 / scale.data_factor,
            count(scale.records(6) as f64)
        ),
    );
    let options: Vec<String> = scale
        .store_options()
        .iter()
        .map(|(name, size)| format!("`{name}` {}", bytes(*size as f64)))
        .collect();
    line(
        "stores",
        format!(
            "{}: by the same factor, but for the size of table files, which costs syncs and not bytes",
            options.join(", ")
        ),
    );
    line(
        "speed factor",
        format!("{} of every device's bandwidth, latencies in inverse proportion", scale.device_speed),
    );
    line("load", format!("{} closed-loop threads, {} regions", scale.threads, scale.regions));
    line(
        "workloads",
        format!(
            "at most {} s to come to rest before each workload, and then as many operations as records, for at most {} s",
            scale.settle_at_most_s, scale.phase_at_most_s
        ),
    );
    let (tick, patience) = (scale.raft_tick_ms(), REQUEST_TIMEOUT_MS / 1000);
    line("Raft", format!("a tick of {tick} ms; a command may take {patience} s"));
    line(
        "capacity",
        match scale.capacity_bytes() {
            Some(capacity) => format!(
                "{} of live user bytes per store: the paper's 5 GB by the data factor, times {} as headroom, for its \
                 six stores were exactly full",
                bytes(capacity as f64),
                scale.capacity_headroom
            ),
            None => "not limited: no store fills, where the paper's six stores of 5 GB were exactly full".to_owned(),
        },
    );
    let capability = match setup.probed {
        true => "as each store measured its device",
        false => "as the stores were told of their devices",
    };
    line("capability", capability.to_owned());
    line(
        "machine",
        format!(
            "{} CPUs for stores and client, data on {}, {}",
            setup.cpus, setup.file_system, setup.program
        ),
    );
    page.list(lines);
}

/// Adds the paper's means over the workloads of its main cluster, if a figure compares
/// workloads.
fn summary(page: &mut Page, charts: &[Chart], runs: &[Run]) {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("mean over workloads", Left),
        ("policy", Left),
        ("over even", Right),
        ("change", Right),
        ("of", Left),
        ("paper", Right),
    ]);
    let comparison = |chart: &&Chart| chart.figure.comparison == Comparison::Workloads;
    let Some(Chart { figure, .. }) = charts.iter().find(comparison) else { return };
    for metric in [Metric::Throughput, Metric::MeanLatency, Metric::TailLatency] {
        let chart = chart(*figure, metric, runs);
        let mut policies: Vec<&str> = Vec::new();
        for bar in &chart.bars {
            if bar.policy != BASELINE && bar.value.is_some() && !policies.contains(&bar.policy.as_str()) {
                policies.push(&bar.policy);
            }
        }
        for policy in policies {
            let Some((ratio, workloads)) = chart.mean_ratio("1N2H3P", policy) else { continue };
            let names: Vec<&str> = workloads.iter().map(|workload| workload.name()).collect();
            let paper = paper_mean(metric).filter(|_| policy == "alor");
            table.row([
                metric.name().to_owned(),
                policy.to_owned(),
                format!("{ratio:.2}"),
                change(ratio),
                names.join(", "),
                paper.map_or("-".to_owned(), change),
            ]);
        }
    }
    if !table.is_empty() {
        page.section("Over all workloads");
        page.paragraph(
            "Latencies here are of all operations. The paper's mean of throughput is over Load, A, B \
             and C; it does not say which operations and workloads its means of latency are over.",
        );
        page.table(&table);
    }
}

/// Formats a ratio as a change, such as `+36.89%`.
fn change(ratio: f64) -> String {
    format!("{:+.2}%", 100.0 * (ratio - 1.0))
}

fn section(page: &mut Page, chart: &Chart) {
    let number = match chart.figure.is_the_papers() {
        true => format!("{}: ", chart.figure.heading()),
        false => String::new(),
    };
    let metric = match chart.figure.metrics.len() {
        0 | 1 => String::new(),
        _ => format!(", {}", chart.metric.name()),
    };
    page.section(&format!("{number}{}{metric}", chart.figure.title));
    if chart.is_empty() {
        return page.paragraph("Nothing was measured.");
    }
    let note = chart.figure.comparison.note();
    if !note.is_empty() {
        page.paragraph(note);
    }
    page.figure(chart.figure.title, &file_name(chart));
    use Align::{Left, Right};
    let unit = if chart.metric == Metric::Throughput { "ops/s" } else { chart.metric.name() };
    let mut table = Table::new([
        ("stores", Left),
        ("workload", Left),
        ("policy", Left),
        (unit, Right),
        ("least to most", Right),
        ("runs", Right),
        ("over even", Right),
        ("paper", Right),
    ]);
    let shown = |value: f64| if chart.metric == Metric::Throughput { count(value) } else { micros(value) };
    for bar in chart.bars.iter().filter(|bar| bar.value.is_some() || bar.void > 0) {
        let good = |text: String| if bar.value.is_some() { text } else { "void".to_owned() };
        let void = if bar.void > 0 { format!(" + {} void", bar.void) } else { String::new() };
        table.row([
            bar.mix.clone(),
            bar.workload.name().to_owned(),
            bar.policy.clone(),
            good(shown(bar.value.unwrap_or(0.0))),
            good(format!("{} to {}", shown(bar.least), shown(bar.most))),
            format!("{}{void}", bar.runs),
            bar.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            match chart.figure.comparison.is_baseline(&bar.mix, &bar.policy) {
                true => "-".to_owned(),
                false => bar.paper.text(),
            },
        ]);
    }
    page.table(&table);
}

/// Adds a table of the operators that each policy began, before the load began and after it. The
/// operators before the load move the leaders that elections happened to choose. On equal stores a
/// policy should move no more than the baseline.
fn moves(page: &mut Page, runs: &[Run]) {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("stores", Left),
        ("policy", Left),
        ("operators before the load, median", Right),
        ("from then on", Right),
        ("least to most", Right),
        ("at rest before A, B, C, medians", Right),
        ("begun without rest", Right),
    ]);
    let cases: BTreeSet<(&str, &str)> =
        runs.iter().map(|run| (run.case.mix.as_str(), run.case.policy.as_str())).collect();
    for (mix, policy) in cases {
        let of_case = || runs.iter().filter(|run| run.case.mix == mix && run.case.policy == policy);
        let number = |before: bool| -> Vec<f64> {
            of_case()
                .map(|run| run.moves.iter().filter(|one| (one.at_s < 0.0) == before).count() as f64)
                .collect()
        };
        let (placed, moves) = (number(true), number(false));
        let rests = || of_case().flat_map(|run| &run.rests);
        let least = moves.iter().copied().fold(f64::INFINITY, f64::min);
        let most = moves.iter().copied().fold(0.0, f64::max);
        table.row([
            mix.to_owned(),
            policy.to_owned(),
            count(median(&placed)),
            count(median(&moves)),
            format!("{} to {}", count(least), count(most)),
            [Workload::A, Workload::B, Workload::C].map(|before| rested(rests(), before)).join(", "),
            rests().filter(|rest| rest.seconds.is_none()).count().to_string(),
        ]);
    }
    if !table.is_empty() {
        page.section("Moves");
        page.table(&table);
    }
}

fn rested<'a>(rests: impl Iterator<Item = &'a Rest>, before: Workload) -> String {
    let seconds: Vec<f64> =
        rests.filter(|rest| rest.before == before).filter_map(|rest| rest.seconds).collect();
    if seconds.is_empty() {
        "-".to_owned()
    } else {
        format!("{:.1} s", median(&seconds))
    }
}

fn phases(runs: &[Run]) -> impl Iterator<Item = (&Run, &Phase)> {
    runs.iter().flat_map(|run| run.phases.iter().map(move |phase| (run, phase)))
}

fn void(page: &mut Page, runs: &[Run]) {
    let total = phases(runs).count();
    let void: Vec<_> = phases(runs).filter(|(_, phase)| !phase.void.is_empty()).collect();
    page.section("Void measurements");
    page.paragraph(format!("{} of {total}.", void.len()));
    page.list(void.iter().map(|(run, phase)| {
        let (run, workload) = (run.case.name(), phase.workload().name());
        format!("{run} {workload} ({} ops/s): {}", count(phase.summary.per_second()), phase.void.join("; "))
    }));
}

fn absent(page: &mut Page, account: &Account) {
    if account.refused.is_empty() && account.failed.is_empty() {
        return;
    }
    page.section("Not measured");
    let failed = account.failed.iter().map(|(case, why)| format!("{} failed: {why}", case.name()));
    page.list(account.refused.iter().cloned().chain(failed));
}

fn evidence(page: &mut Page, runs: &[Run]) {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("run", Left),
        ("workload", Left),
        ("ops/s", Right),
        ("CPU", Right),
        ("client", Right),
        ("others", Right),
        ("busiest device", Left),
        ("compacted / rows", Right),
        ("moves", Right),
        ("worst lag", Right),
    ]);
    for (run, phase) in phases(runs) {
        let evidence: &Evidence = &phase.evidence;
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        let device = evidence.busiest_device().map_or("-".to_owned(), |store| {
            format!(
                "{} {}: write {}, sync {}, read {}",
                store.store,
                store.device,
                percent(store.write_share),
                percent(store.sync_share),
                percent(store.read_share)
            )
        });
        table.row([
            run.case.name(),
            phase.workload().name().to_owned(),
            count(phase.summary.per_second()),
            percent(evidence.cpu_share()),
            percent(evidence.client_share()),
            percent(evidence.others_share()),
            device,
            evidence.compaction_ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.1}")),
            evidence.moves.to_string(),
            count(evidence.worst_lag as f64),
        ]);
    }
    page.section("What the measurements leaned on");
    page.paragraph(
        "CPU is of all CPUs, the client's share of its threads. Moves are operators \
         begun in the phase; the lag is in log entries at its end, of the peer that lags most.",
    );
    page.table(&table);
}

#[cfg(test)]
mod tests {
    use super::super::figures::select;
    use super::super::runs::tests::{run, setup};
    use super::super::runs::Case;
    use super::*;

    /// Compares the whole report of a small reproduction with the golden file. Set REGENERATE=1
    /// after an intended change, and review the diff.
    #[test]
    fn the_report_reads_as_it_should() {
        let mut void = run("1N2H3P", "alor", 2, 150.0, 155.0);
        void.phases[1].void.push("bound by CPU: stores and client used 95% of 2 CPUs (limit 85%)".into());
        let runs = [
            run("1N2H3P", "even", 1, 1000.0, 2000.0),
            run("1N2H3P", "alor", 1, 1600.0, 3100.0),
            run("1N2H3P", "even", 2, 1100.0, 1900.0),
            void,
        ];
        let figures = select(&["5-6".to_owned(), "17".to_owned()]).unwrap();
        let account = Account {
            refused: ["policy 'adaptive' is unknown to this program".to_owned()].into(),
            failed: vec![(Case { mix: "4Y".into(), policy: "even".into(), run: 1 }, "no such device".into())],
            made: 4,
            found: 0,
        };
        let charts = charts(&figures, &runs);
        let text = report(&setup(), &charts, &runs, &account, &[]);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/alor/testdata/report.md");
        if std::env::var_os("REGENERATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let expected = std::fs::read_to_string(path).unwrap();
        assert!(text == expected, "the report is now:\n{text}");
    }

    #[test]
    fn a_smoke_run_makes_no_claim() {
        let mut smoke = setup();
        smoke.scale = predict::alor::Scale::named("smoke").unwrap();
        let text = report(&smoke, &[], &[], &Account::default(), &[]);
        assert!(text.contains("makes no claim"), "{text}");
        assert!(!report(&setup(), &[], &[], &Account::default(), &[]).contains("makes no claim"));
    }
}
