//! Formats predictions for human readers and for programs.

use std::fmt::Write;

use client::table::{bytes, count, micros, Align, Table};
use predict::{beside, Phase, Prediction};
use serde_json::json;

use super::Case;

pub fn json(cases: &[Case]) -> anyhow::Result<String> {
    let of = |case: &Case| {
        let base = &case.predictions[0];
        let ratios: Vec<_> = case.predictions.iter().flat_map(|other| beside(base, other)).collect();
        json!({
            "cluster": case.what,
            "data_factor": case.question.data_factor,
            "records": case.question.question.load.records,
            "seed": case.question.question.seed,
            "runs": case.question.question.runs,
            "notes": case.question.notes,
            "baseline": base.policy,
            "predictions": case.predictions,
            "ratios": ratios,
        })
    };
    Ok(serde_json::to_string_pretty(&cases.iter().map(of).collect::<Vec<_>>())? + "\n")
}

pub fn text(cases: &[Case]) -> String {
    let mut out = String::new();
    for (at, case) in cases.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        head(case, &mut out);
        let compared: Vec<&Prediction> = case.predictions.iter().collect();
        speeds(&compared, &mut out);
        layouts(case, &mut out);
    }
    if let [before, after] = cases {
        changes(before, after, &mut out);
    }
    out
}

fn head(case: &Case, out: &mut String) {
    let question = &case.question.question;
    let data = (question.load.records * question.load.value_bytes) as f64 / case.question.data_factor;
    let _ = writeln!(
        out,
        "{}: {} of data in {} regions, {} copies, {} clients",
        case.what,
        bytes(data),
        question.regions.len(),
        question.replicas,
        question.load.threads
    );
    for note in &case.question.notes {
        let _ = writeln!(out, "{note}");
    }
    if case.question.data_factor < 1.0 {
        let _ = writeln!(
            out,
            "simulated with {} records, {:.2}% of the data; memtables, levels, caches and capacity are scaled alike",
            question.load.records,
            100.0 * case.question.data_factor
        );
    }
    if question.runs > 1 {
        let _ = writeln!(
            out,
            "medians of {} runs; for operations per second also the least and the most",
            question.runs
        );
    }
    out.push('\n');
}

/// Formats the range of operations per second. Empty for a single run.
fn spread(phase: &Phase) -> String {
    if phase.least_ops_per_s == phase.most_ops_per_s {
        return String::new();
    }
    format!("{} to {}", count(phase.least_ops_per_s), count(phase.most_ops_per_s))
}

fn speeds(predictions: &[&Prediction], out: &mut String) {
    let base = predictions[0];
    let over = format!("over {}", base.policy);
    let mut table = Table::new([
        ("workload", Align::Left),
        ("policy", Align::Left),
        ("ops/s", Align::Right),
        ("least to most", Align::Right),
        (over.as_str(), Align::Right),
        ("mean", Align::Right),
        ("p99", Align::Right),
        ("CPU", Align::Right),
        ("moves", Align::Right),
        ("no time left", Align::Left),
    ]);
    for workload in base.phases.iter().map(|phase| phase.workload) {
        for prediction in predictions {
            let Some(phase) = prediction.phase(workload) else { continue };
            let ratio = beside(base, prediction).into_iter().find(|ratio| ratio.workload == workload);
            table.row([
                workload.to_string(),
                prediction.policy.to_string(),
                count(phase.ops_per_s),
                spread(phase),
                ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.throughput)),
                micros(phase.mean_us),
                micros(phase.p99_us),
                format!("{:.0}%", 100.0 * phase.cpu_share),
                phase.moves.to_string(),
                phase.bound_by.join(", "),
            ]);
        }
    }
    let _ = writeln!(out, "{table}");
}

fn layouts(case: &Case, out: &mut String) {
    for prediction in &case.predictions {
        let _ = writeln!(out, "layout under {}, {} moves in all:\n", prediction.policy, prediction.moves);
        let whole: u64 = prediction.stores.iter().map(|store| store.bytes).sum();
        let mut table = Table::new([
            ("store", Align::Right),
            ("device", Align::Left),
            ("leads", Align::Right),
            ("copies", Align::Right),
            ("data", Align::Right),
            ("share", Align::Right),
        ]);
        for store in &prediction.stores {
            table.row([
                store.store.to_string(),
                store.device.clone(),
                store.leaders.to_string(),
                store.peers.to_string(),
                bytes(store.bytes as f64 / case.question.data_factor),
                format!("{:.1}%", 100.0 * store.bytes as f64 / whole.max(1) as f64),
            ]);
        }
        let _ = writeln!(out, "{table}");
    }
}

/// Formats the effect of a change of the cluster.
fn changes(before: &Case, after: &Case, out: &mut String) {
    for (old, new) in before.predictions.iter().zip(&after.predictions) {
        for phase in &new.phases {
            let Some(was) = old.phase(phase.workload) else { continue };
            let _ = writeln!(
                out,
                "{} under {}: {} -> {} ops/s ({:+.0}%), mean {} -> {}, p99 {} -> {}",
                phase.workload,
                new.policy,
                count(was.ops_per_s),
                count(phase.ops_per_s),
                100.0 * (phase.ops_per_s / was.ops_per_s.max(1e-9) - 1.0),
                micros(was.mean_us),
                micros(phase.mean_us),
                micros(was.p99_us),
                micros(phase.p99_us),
            );
        }
    }
}
