//! The report: the conditions, the verdicts, the tables of knobs beside the paper's numbers, and
//! the runs that are void or missing.

use super::cases::{applies, Case, Figure, Kind};
use super::knobs::{Base, Config, WritePath, KNOBS};
use super::loads::{ABSENT, MIXED, READ_ONLY, REPLICATION, WRITE_ONLY};
use super::places::Place;
use super::plot::drawings;
use super::rounds::{void, Round, Setup};
use super::statements::{statements, times, NOTICEABLE};
use super::summary::Summary;
use crate::measure::{median, Spread};
use crate::page::Page;
use crate::scenario::verdicts;
use client::table::{bytes, count, micros, Align, Table};

const LOADS: [&str; 4] = [REPLICATION, WRITE_ONLY, READ_ONLY, MIXED];

/// Returns the report as Markdown, of the runs that are there. `failed` are the runs that could not
/// be made, with the reasons.
pub fn report(setup: &Setup, rounds: &[Round], failed: &[String]) -> String {
    let mut page = Page::new("RocksDB for Redis on Flash, measured again");
    conditions(&mut page, setup, rounds);
    page.section("The paper's statements");
    for (figure, name) in Figure::ALL {
        let judged = statements(figure, rounds, &setup.scale);
        if !judged.is_empty() {
            page.subsection(&heading(figure, name));
            page.table(&verdicts(&judged));
        }
    }
    let summary = Summary::of(rounds);
    page.section("The knobs");
    page.paragraph(
        "How many times as fast a load is with the knob's changed value as with its initial one: the median over the \
         rounds, with the least and the greatest. Above 1 the changed value is better. *Helps* and *harms* count from \
         3% on, if all rounds agree.",
    );
    for base in Base::ALL {
        for path in WritePath::ALL {
            knobs(&mut page, &summary, &Config::new(base, path));
        }
    }
    runs(&mut page, &summary, rounds);
    filters(&mut page, &summary, setup, rounds);
    page.section("Figures");
    for drawing in drawings(rounds) {
        page.figure(drawing.title, drawing.file);
    }
    read_back(&mut page, rounds);
    bad(&mut page, rounds, failed);
    page.into_text()
}

fn heading(figure: Figure, name: &str) -> String {
    match figure {
        Figure::Table => "Table 1: every knob, around the paper's baseline, puts".to_owned(),
        Figure::Total => "All adopted knobs together".to_owned(),
        Figure::Nvme => "§4.3: NVMe".to_owned(),
        Figure::Disk => "The real disk".to_owned(),
        Figure::Filters => "§4.1.3: filters of the last level".to_owned(),
        Figure::Sync => "§4.2: the riddle of bytes_per_sync".to_owned(),
        _ => format!("Figure {name}"),
    }
}

fn conditions(page: &mut Page, setup: &Setup, rounds: &[Round]) {
    let scale = &setup.scale;
    if scale.name != "full" {
        page.paragraph(format!(
            "**Scale `{}`: the data is small, so these numbers show signs and no sizes.**",
            scale.name
        ));
    }
    let others = median(&rounds.iter().map(|round| round.other_cpus).collect::<Vec<_>>());
    let syncs = median(&rounds.iter().map(|round| round.sync_us).collect::<Vec<_>>());
    let devices = [Place::Sata, Place::Nvme].map(|place| {
        format!("`{}`: `{}`", place.name(), place.description("512KiB").expect("it is emulated"))
    });
    page.list([
        format!(
            "{} rows of {} and keys of {} bytes ({}); {} rounds, in each of which the runs take turns from another \
             one on",
            count(scale.rows as f64),
            bytes(scale.value_bytes as f64),
            super::scale::KEY_BYTES,
            bytes(scale.data_bytes() as f64),
            scale.rounds
        ),
        format!(
            "memtable budget {} instead of 128 MB: memtables, files and level 1 are {:.4} of the paper's, and the \
             data is {:.4} of its 50 GB, so there are fewer levels",
            bytes(scale.budget_bytes as f64),
            scale.factor(),
            scale.data_bytes() as f64 / 50e9
        ),
        format!("read-only: {} look-ups in a tenth of the rows; 50:50: {} operations", scale.reads, scale.mixed),
        format!(
            "replication: a process reads the master's rows by an iterator, another one writes them into an empty \
             database on a device of its own; they leave its RAM of {:.0}% of the rows in random order",
            scale.ram_share * 100.0
        ),
        format!("emulated devices: {}", devices.join(", ")),
        format!(
            "machine: {} CPUs; disk: {}, `fdatasync` of 4 KiB {}; other processes used {others:.2} CPUs in the median",
            setup.cpus,
            setup.file_system,
            micros(syncs)
        ),
        format!("program: {}, RocksDB 7.8; values do not compress and nothing is compressed", setup.program),
    ]);
}

fn effect(effect: Option<Spread>) -> String {
    let Some(effect) = effect else { return "-".to_owned() };
    let word = match effect {
        it if it.least >= NOTICEABLE => " helps",
        it if it.most <= 1.0 / NOTICEABLE => " harms",
        _ => "",
    };
    format!("{}{word}", times(effect))
}

fn knobs(page: &mut Page, summary: &Summary<'_>, config: &Config) {
    use Align::{Left, Right};
    let columns = [("knob", Left), ("the paper", Left)]
        .into_iter()
        .chain(LOADS.map(|load| (load, Right)))
        .chain([("written / stored", Right)]);
    let mut table = Table::new(columns);
    for knob in KNOBS.iter().filter(|knob| applies(knob.name, config.path)) {
        let (initial, changed) = (config.with(knob.initial), config.with(knob.changed));
        let effects = LOADS.map(|load| summary.effect(Place::Sata, &initial, &changed, load));
        if effects.iter().all(Option::is_none) {
            continue;
        }
        let written = |config: &Config| {
            let case = Summary::loads(Place::Sata, config);
            let spread = summary.spread(&case, |round| Some(round.measured.write_amplification));
            spread.map_or("-".to_owned(), |spread| format!("{:.2}", spread.median))
        };
        let cells = [knob.name.to_owned(), knob.paper_text.to_owned()];
        let amplification = format!("{} -> {}", written(&initial), written(&changed));
        table.row(cells.into_iter().chain(effects.map(effect)).chain([amplification]));
    }
    if !table.is_empty() {
        page.subsection(&format!("`sata`, {}, {}", config.base.name(), config.path.name()));
        page.table(&table);
    }
}

/// Adds one line for each configuration that ran, with absolute numbers.
fn runs(page: &mut Page, summary: &Summary<'_>, rounds: &[Round]) {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("run", Left),
        ("replication, s", Right),
        ("write-only/s", Right),
        ("read-only/s", Right),
        ("p99", Right),
        ("50:50/s", Right),
        ("written / stored", Right),
        ("read / stored", Right),
        ("space", Right),
        ("compaction left, s", Right),
        ("replication is bound by", Left),
    ]);
    for case in distinct(rounds).filter(|case| case.kind == Kind::Loads) {
        let rate = |load| {
            let rate = summary.phase(case, load, |phase| phase.per_second());
            rate.map_or("-".to_owned(), |rate| count(rate.median))
        };
        let value = |value: fn(&Round) -> f64| {
            let spread = summary.spread(case, |round| Some(value(round)));
            spread.map_or("-".to_owned(), |spread| format!("{:.2}", spread.median))
        };
        let seconds = summary.phase(case, REPLICATION, |phase| phase.seconds);
        let p99 = summary.phase(case, READ_ONLY, |phase| phase.read_us[1]);
        table.row([
            case.label(),
            seconds.map_or("-".to_owned(), times),
            rate(WRITE_ONLY),
            rate(READ_ONLY),
            p99.map_or("-".to_owned(), |p99| micros(p99.median)),
            rate(MIXED),
            value(|round| round.measured.write_amplification),
            value(|round| round.measured.read_amplification),
            value(|round| round.measured.space_amplification),
            value(|round| round.measured.settled_s),
            summary.bound(case, REPLICATION),
        ]);
    }
    if !table.is_empty() {
        page.section("Every configuration");
        page.table(&table);
    }
}

fn filters(page: &mut Page, summary: &Summary<'_>, setup: &Setup, rounds: &[Round]) {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("configuration", Left),
        ("RAM for a key, bytes", Right),
        ("read for a present key", Right),
        ("read for an absent key", Right),
        ("absent keys/s", Right),
    ]);
    for case in distinct(rounds).filter(|case| case.kind == Kind::Filters) {
        let read = |load| {
            let read = summary.phase(case, load, |phase| phase.work.read as f64 / phase.operations as f64);
            read.map_or("-".to_owned(), |read| bytes(read.median))
        };
        let ram = summary
            .spread(case, |round| Some(round.measured.table_reader_bytes as f64 / setup.scale.rows as f64));
        let rate = summary.phase(case, ABSENT, |phase| phase.per_second());
        table.row([
            case.config.label(),
            ram.map_or("-".to_owned(), |ram| format!("{:.2}", ram.median)),
            read(READ_ONLY),
            read(ABSENT),
            rate.map_or("-".to_owned(), |rate| count(rate.median)),
        ]);
    }
    if !table.is_empty() {
        page.section("Absent keys, and RAM for indexes and filters");
        page.table(&table);
    }
}

/// Returns the cases that ran, each once, in their order.
fn distinct(rounds: &[Round]) -> impl Iterator<Item = &Case> {
    let mut cases: Vec<&Case> = rounds.iter().map(|round| &round.case).collect();
    cases.sort();
    cases.dedup();
    cases.into_iter()
}

/// Adds what RocksDB's OPTIONS files say.
fn read_back(page: &mut Page, rounds: &[Round]) {
    const SHOWN: [&str; 14] = [
        "write_buffer_size",
        "max_write_buffer_number",
        "min_write_buffer_number_to_merge",
        "level0_file_num_compaction_trigger",
        "level0_slowdown_writes_trigger",
        "level0_stop_writes_trigger",
        "max_background_compactions",
        "max_background_jobs",
        "compaction_readahead_size",
        "target_file_size_base",
        "max_bytes_for_level_base",
        "block_size",
        "bytes_per_sync",
        "use_direct_reads",
    ];
    let of = |base: Base, path: WritePath| {
        let wanted = Config::new(base, path);
        rounds.iter().find(|round| round.case.config == wanted).map(|round| &round.measured.options)
    };
    let sides = [of(Base::Paper, WritePath::Puts), of(Base::Ours, WritePath::Ingest)];
    if sides.iter().all(Option::is_none) {
        return;
    }
    page.section("Knobs read back");
    page.paragraph(
        "From RocksDB's OPTIONS file of a run of each base. The JSON of every run has the whole file, and each run \
         compares it with what was set.",
    );
    use Align::{Left, Right};
    let mut table = Table::new([("option", Left), ("the paper's baseline", Right), ("our profile", Right)]);
    for name in SHOWN {
        let cell = |side: &Option<&std::collections::BTreeMap<String, String>>| {
            side.and_then(|options| options.get(name)).cloned().unwrap_or_else(|| "-".to_owned())
        };
        table.row([name.to_owned(), cell(&sides[0]), cell(&sides[1])]);
    }
    page.table(&table);
    let mut replaced: Vec<String> = rounds
        .iter()
        .flat_map(|round| round.measured.replaced.iter().map(move |it| (round, it)))
        .map(|(round, [name, set, used])| {
            format!("{}: `{name}` was set to {set}, RocksDB uses {used}", round.case.label())
        })
        .collect();
    replaced.sort();
    replaced.dedup();
    if replaced.is_empty() {
        page.paragraph(
            "RocksDB uses every option as it was set, except in runs with bulk load, which sets its own.",
        );
    }
    page.list(replaced);
}

fn bad(page: &mut Page, rounds: &[Round], failed: &[String]) {
    let void = rounds.iter().filter_map(|round| {
        let why = void(round, rounds)?;
        Some(format!("void: {}, round {}: {why}", round.case.label(), round.round))
    });
    let lines: Vec<String> = void.chain(failed.iter().cloned()).collect();
    if !lines.is_empty() {
        page.section("Void or failed");
        page.list(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::super::knobs::knob;
    use super::super::rounds::tests::{case, run, setup};
    use super::*;

    #[test]
    fn the_report_has_verdicts_knobs_and_what_is_void() {
        let paper = Config::new(Base::Paper, WritePath::Puts);
        let tuned = paper.with(knob("compaction read-ahead").unwrap().changed);
        let mut all = vec![
            run(case(paper.clone()), 1, 12.0, 1.0),
            run(case(tuned.clone()), 1, 4.0, 1.2),
            run(case(tuned), 2, 99.0, 1.0),
        ];
        all[2].other_cpus = 1.5;
        all[0].measured.options.insert("level0_stop_writes_trigger".into(), "20".into());
        all[0].measured.replaced.push(["compaction_readahead_size", "0", "2097152"].map(String::from));
        let text = report(&setup(), &all, &["sata: no room".to_owned()]);
        for wanted in [
            "| compaction read-ahead | 300% | 3.00 (3.00 - 3.00) helps |",
            "0.83 (0.83 - 0.83) harms",
            "| compaction read-ahead: replication is faster (the paper: 300%) | holds |",
            "| level0_stop_writes_trigger | 20 | - |",
            "`compaction_readahead_size` was set to 0, RocksDB uses 2097152",
            "other processes used 1.50 CPUs",
            "- sata: no room",
            "![Figure 3: triggers 12 and 20](figure-3.svg)",
            "show signs and no sizes",
        ] {
            let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(squeezed.contains(wanted), "{wanted}:\n{text}");
        }
    }
}
