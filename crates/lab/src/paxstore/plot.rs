//! The figures as SVG: one drawing for each device and load. Bars are medians, and whiskers span
//! the rounds from least to most.

use std::path::Path;

use anyhow::{anyhow, Context};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::Figure;
use super::rounds::Round;
use super::summary::{Panel, Summary};
use crate::svg::{drawn, legend, Area, Failure, Swatch, FONT, PALETTE};

const SIZE: (u32, u32) = (960, 440);
/// The part of a group's width that its bars take. The rest is the gap to the next group.
const GROUP_WIDTH: f64 = 0.8;

pub fn file_name(figure: Figure, (place, load): &Panel) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let text: String = format!("{}-{place}-{load}.svg", figure.name()).chars().map(plain).collect();
    format!("figure-{}", text.replace("--", "-"))
}

/// Writes the drawings of all figures that have good rounds.
pub fn write_plots(rounds: &[Round], dir: &Path) -> anyhow::Result<()> {
    for figure in Figure::ALL {
        let summary = Summary::of(figure, rounds);
        for panel in summary.panels() {
            let path = dir.join(file_name(figure, &panel));
            let text =
                svg(figure, &summary, &panel).map_err(|error| anyhow!("{}: {error}", path.display()))?;
            std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        }
    }
    Ok(())
}

fn svg(figure: Figure, summary: &Summary<'_>, panel: &Panel) -> Result<String, Failure> {
    drawn(SIZE, |root| draw(figure, summary, panel, root))
}

fn draw(figure: Figure, summary: &Summary<'_>, panel: &Panel, root: &Area<'_>) -> Result<(), Failure> {
    let metric = figure.metrics()[0];
    let (axis, series) = (summary.axis(panel), summary.series(panel));
    let spread = |series: &str, at: u64| summary.spread(panel, series, at, metric);
    let all = series.iter().flat_map(|series| axis.iter().filter_map(move |at| spread(series, *at)));
    let highest = all.map(|spread| spread.most).fold(f64::MIN_POSITIVE, f64::max);
    let caption = format!("{}, {} ({}, {})", figure.heading(), metric.name(), panel.0, panel.1);
    let mut plot = ChartBuilder::on(root)
        .caption(caption, (FONT, 18))
        .margin(12)
        .margin_top(4)
        .x_label_area_size(64)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..axis.len() as f64, 0.0..highest * 1.15)?;
    plot.configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(8)
        .light_line_style(TRANSPARENT)
        .y_label_formatter(&|value| metric.text(*value))
        .label_style((FONT, 13))
        .draw()?;
    let small = |size: u32| (FONT, size).into_font().color(&BLACK);
    let width = GROUP_WIDTH / series.len().max(1) as f64;
    for (group, at) in axis.iter().enumerate() {
        for (number, series) in series.iter().enumerate() {
            let left = group as f64 + (1.0 - GROUP_WIDTH) / 2.0 + number as f64 * width;
            let (inner, right) = (left + 0.06 * width, left + 0.94 * width);
            let middle = (inner + right) / 2.0;
            let centred = small(11).pos(Pos::new(HPos::Center, VPos::Bottom));
            let Some(value) = spread(series, *at) else {
                plot.draw_series([Text::new("-", (middle, 0.0), centred)])?;
                continue;
            };
            let colour = PALETTE[number % PALETTE.len()];
            plot.draw_series([Rectangle::new([(inner, 0.0), (right, value.median)], colour.filled())])?;
            plot.draw_series([PathElement::new(vec![(middle, value.least), (middle, value.most)], BLACK)])?;
            let above = (middle, value.most + 0.01 * highest);
            plot.draw_series([Text::new(metric.text(value.median), above, centred)])?;
        }
        let (x, y) = plot.backend_coord(&(group as f64 + 0.5, 0.0));
        let centred = small(13).pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(figure.label(*at), (x, y + 8), centred))?;
    }
    let swatch = |number: usize| Swatch::Filled(PALETTE[number % PALETTE.len()]);
    legend(root, series.iter().enumerate().map(|(number, series)| (series.as_str(), swatch(number))))
}

#[cfg(test)]
mod tests {
    use super::super::rounds::tests::{round, sample};
    use super::*;

    #[test]
    fn a_plot_shows_each_series_at_each_size() {
        let samples = vec![
            sample("disk", "1 writer", "overwrite", 512, 1000.0),
            sample("disk", "1 writer", "append", 512, 1750.0),
            sample("disk", "1 writer", "append", 8192, 2000.0),
        ];
        let rounds = [round(Figure::Log, 1, 1000.0, samples)];
        let dir = tempfile::tempdir().unwrap();
        write_plots(&rounds, dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("figure-5.1-disk-1-writer.svg")).unwrap();
        for wanted in ["overwrite", "append", "512 B", "8 KiB", "1.75 ms", "mean latency"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
