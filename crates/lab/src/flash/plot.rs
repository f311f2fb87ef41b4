//! The figures as SVG: throughput over time (Figs 2 to 5), and lines over chunks and over the share
//! of values on flash (Figs 6 and 7).

use std::path::Path;

use anyhow::{anyhow, Context};

use super::cases::{with_chunk, Case, Kind, CHUNKS};
use super::child::ON_FLASH;
use super::knobs::{knob, Base, Config, WritePath};
use super::loads::{REPLICATION, WRITE_ONLY};
use super::places::Place;
use super::rounds::Round;
use super::summary::Summary;
use crate::scenario::{Line, Plot};

/// The files, each with its title, its unit and its lines.
pub struct Drawing {
    pub file: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    pub axis: &'static str,
    pub lines: Vec<Line>,
}

/// Returns the drawings that the good runs allow.
pub fn drawings(all: &[Round]) -> Vec<Drawing> {
    let summary = Summary::of(all);
    let paper = Config::new(Base::Paper, WritePath::Puts);
    let changed = |name: &str| paper.with(knob(name).expect("the knob exists").changed);
    let series = |file, title, configs: &[(&str, Config)]| Drawing {
        file,
        title,
        unit: "writes/s",
        axis: "seconds",
        lines: configs
            .iter()
            .filter_map(|(name, config)| throughput(&summary, Place::Sata, name, config))
            .collect(),
    };
    let mut drawings = vec![
        series(
            "figure-2.svg",
            "Figure 2: compaction threads",
            &[("8 threads", paper.clone()), ("64 threads", changed("compaction threads"))],
        ),
        series("figure-3.svg", "Figure 3: triggers 12 and 20", &[("12/20", paper.clone())]),
        series("figure-4.svg", "Figure 4: triggers 24 and 40", &[("24/40", changed("triggers 24/40"))]),
        series("figure-5.svg", "Figure 5: triggers 40 and 60", &[("40/60", changed("triggers 40/60"))]),
        series(
            "tuned.svg",
            "Write-only: untuned, tuned, and sorted runs",
            &[
                ("baseline", paper.clone()),
                ("tuned", paper.tuned()),
                ("our profile, sorted runs", Config::new(Base::Ours, WritePath::Ingest)),
            ],
        ),
    ];
    let chunk_line = |name: &str, config: &Config| {
        let point = |size: &&str| {
            let case = Summary::loads(Place::Sata, &with_chunk(config, size));
            let seconds = summary.phase(&case, REPLICATION, |phase| phase.seconds)?.median;
            Some((size.trim_end_matches("KiB").parse().ok()?, seconds))
        };
        Line { name: name.to_owned(), points: CHUNKS.iter().filter_map(point).collect() }
    };
    drawings.push(Drawing {
        file: "figure-6.svg",
        title: "Figure 6: time of replication by the array's chunk",
        unit: "seconds",
        axis: "KiB of a chunk",
        lines: vec![chunk_line("baseline", &paper), chunk_line("tuned", &paper.tuned())],
    });
    let set_lines = |name: &str, config: &Config| {
        let case = Case { place: Place::Sata, kind: Kind::Set, config: config.clone() };
        let of = |by: &str, value: fn(&super::replica::SetRead) -> f64| {
            let point = |at: u64| {
                let read = |round: &Round| round.set.iter().find(|read| read.on_flash == at).map(value);
                Some((at as f64, summary.spread(&case, read)?.median))
            };
            Line { name: format!("{by}, {name}"), points: ON_FLASH.into_iter().filter_map(point).collect() }
        };
        [of("iterator", |read| read.iterator_s), of("random reads", |read| read.random_s)]
    };
    drawings.push(Drawing {
        file: "figure-7.svg",
        title: "Figure 7: time to read the set",
        unit: "seconds",
        axis: "% of the values on flash",
        lines: [set_lines("baseline", &paper), set_lines("tuned", &paper.tuned())].concat(),
    });
    drawings.retain(|drawing| drawing.lines.iter().any(|line| !line.points.is_empty()));
    drawings
}

/// Returns the throughput of the first good run over time.
fn throughput(summary: &Summary<'_>, place: Place, name: &str, config: &Config) -> Option<Line> {
    let case = Summary::loads(place, config);
    let round = summary.runs(&case).min_by_key(|round| round.round)?;
    let series = &round.measured.phases.get(WRITE_ONLY)?.series;
    let tick_s = round.setup.scale.tick_ms as f64 / 1e3;
    let points = series.iter().enumerate().map(|(at, value)| ((at + 1) as f64 * tick_s, *value)).collect();
    Some(Line { name: name.to_owned(), points })
}

/// Writes the drawings.
pub fn write_plots(all: &[Round], dir: &Path) -> anyhow::Result<()> {
    for Drawing { file, title, unit, axis, lines } in drawings(all) {
        let plot = Plot {
            title: title.to_owned(),
            unit: unit.to_owned(),
            axis: Some(axis.to_owned()),
            lines,
            ..Plot::default()
        };
        let path = dir.join(file);
        let text = plot.svg().map_err(|error| anyhow!("{}: {error}", path.display()))?;
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rounds::tests::{case, run};
    use super::*;

    #[test]
    fn only_figures_with_runs_are_drawn() {
        let dir = tempfile::tempdir().unwrap();
        let paper = Config::new(Base::Paper, WritePath::Puts);
        let small = with_chunk(&paper, "16KiB");
        let all = [run(case(paper), 1, 10.0, 1.0), run(case(small), 1, 8.0, 1.0)];
        write_plots(&all, dir.path()).unwrap();
        let read = |file: &str| std::fs::read_to_string(dir.path().join(file));
        assert!(read("figure-3.svg").unwrap().contains("12/20"));
        assert!(read("figure-6.svg").unwrap().contains("KiB of a chunk"));
        assert!(read("figure-7.svg").is_err() && read("figure-4.svg").is_err());
    }
}
