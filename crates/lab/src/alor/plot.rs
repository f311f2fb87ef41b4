//! The figures as SVG. Bars are ratios to even distribution, whiskers span the runs from least to
//! most, and hollow bars are the paper's numbers.

use std::path::Path;

use anyhow::{anyhow, Context};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::Metric;
use super::paper::Paper;
use super::statistics::{Bar, Chart};
use crate::svg::{drawn, legend, Area, Failure, Swatch, FONT, PALETTE};

const SIZE: (u32, u32) = (960, 440);
/// The part of a group's width that its bars take. The rest is the gap to the next group.
const GROUP_WIDTH: f64 = 0.8;
const PAPER_COLOUR: RGBColor = RGBColor(40, 40, 40);

pub fn file_name(chart: &Chart) -> String {
    let figure = if chart.figure.is_the_papers() { "figure-" } else { "" };
    format!("{figure}{}-{}.svg", chart.figure.name, chart.metric.name().replace(' ', "-"))
}

/// Writes one file for each chart that has a value.
pub fn write_plots(charts: &[Chart], dir: &Path) -> anyhow::Result<()> {
    for chart in charts.iter().filter(|chart| !chart.is_empty()) {
        let path = dir.join(file_name(chart));
        let text = svg(chart).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Returns the bars in groups, each with its label. A group is one workload on one cluster.
fn groups(chart: &Chart) -> Vec<(String, Vec<&Bar>)> {
    let mixes = chart.figure.comparison.groups().len() > 1;
    let mut groups: Vec<(String, Vec<&Bar>)> = Vec::new();
    for bar in &chart.bars {
        let label = match mixes {
            true => format!("{} {}", bar.mix, bar.workload.name()),
            false => bar.workload.name().to_owned(),
        };
        match groups.last_mut() {
            Some((known, bars)) if *known == label => bars.push(bar),
            _ => groups.push((label, vec![bar])),
        }
    }
    groups
}

fn policies(chart: &Chart) -> Vec<&str> {
    let mut policies: Vec<&str> = Vec::new();
    for bar in &chart.bars {
        if !policies.contains(&bar.policy.as_str()) {
            policies.push(&bar.policy);
        }
    }
    policies
}

fn highest(chart: &Chart) -> f64 {
    let of = |bar: &Bar| {
        let paper = if let Paper::Ratio(ratio) = bar.paper { ratio } else { 0.0 };
        bar.ratio.map_or(0.0, |_| bar.ratio_range.1).max(paper)
    };
    chart.bars.iter().map(of).fold(1.0, f64::max)
}

pub fn svg(chart: &Chart) -> Result<String, Failure> {
    drawn(SIZE, |root| draw(chart, root))
}

fn draw(chart: &Chart, root: &Area<'_>) -> Result<(), Failure> {
    let groups = groups(chart);
    let policies = policies(chart);
    let better = if chart.metric == Metric::Throughput { "higher is better" } else { "lower is better" };
    let caption = format!("{}: {} over even, {better}", chart.figure.heading(), chart.metric.name());
    let mut plot = ChartBuilder::on(root)
        .caption(caption, (FONT, 18))
        .margin(12)
        .margin_top(4)
        .x_label_area_size(64)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..highest(chart) * 1.15)?;
    plot.configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(8)
        .light_line_style(TRANSPARENT)
        .y_label_formatter(&|ratio| format!("{ratio:.1}"))
        .label_style((FONT, 13))
        .draw()?;
    plot.draw_series([PathElement::new(
        vec![(0.0, 1.0), (groups.len() as f64, 1.0)],
        BLACK.mix(0.5).stroke_width(1),
    )])?;
    let small = |size: u32| (FONT, size).into_font().color(&BLACK);
    for (at, (label, bars)) in groups.iter().enumerate() {
        let width = GROUP_WIDTH / bars.len() as f64;
        for (number, bar) in bars.iter().enumerate() {
            let left = at as f64 + (1.0 - GROUP_WIDTH) / 2.0 + number as f64 * width;
            let (inner, right) = (left + 0.06 * width, left + 0.94 * width);
            let colour = colour(&policies, &bar.policy);
            let middle = (inner + right) / 2.0;
            match bar.ratio {
                Some(ratio) => {
                    plot.draw_series([Rectangle::new([(inner, 0.0), (right, ratio)], colour.filled())])?;
                    let (least, most) = bar.ratio_range;
                    plot.draw_series([PathElement::new(vec![(middle, least), (middle, most)], BLACK)])?;
                    let centred = small(11).pos(Pos::new(HPos::Center, VPos::Bottom));
                    let above = most.max(ratio) + 0.01 * highest(chart);
                    plot.draw_series([Text::new(format!("{ratio:.2}"), (middle, above), centred)])?;
                }
                None => {
                    let centred = small(11).pos(Pos::new(HPos::Center, VPos::Bottom));
                    let why = if bar.void > 0 { "void" } else { "-" };
                    plot.draw_series([Text::new(why, (middle, 0.0), centred)])?;
                }
            }
            if let Paper::Ratio(ratio) = bar.paper {
                let outline = PAPER_COLOUR.stroke_width(2);
                plot.draw_series([Rectangle::new([(left, 0.0), (left + width, ratio)], outline)])?;
            }
        }
        let (x, y) = plot.backend_coord(&(at as f64 + 0.5, 0.0));
        let centred = small(13).pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(label.clone(), (x, y + 8), centred))?;
    }
    let entries = policies.iter().map(|policy| (*policy, Swatch::Filled(colour(&policies, policy))));
    legend(root, entries.chain([("the paper", Swatch::Outline(PAPER_COLOUR))]))
}

fn colour(policies: &[&str], policy: &str) -> RGBColor {
    let at = policies.iter().position(|known| *known == policy).unwrap_or(0);
    PALETTE[at % PALETTE.len()]
}

#[cfg(test)]
mod tests {
    use super::super::figures::select;
    use super::super::runs::tests::run;
    use super::super::statistics::chart;
    use super::*;

    #[test]
    fn a_plot_shows_our_ratio_the_papers_and_what_is_void() {
        let figure = select(&["5".to_owned()]).unwrap()[0];
        let mut void = run("1N2H3P", "leader-only", 1, 50.0, 50.0);
        void.phases.iter_mut().for_each(|phase| phase.void.push("bound by CPU".into()));
        let runs = [run("1N2H3P", "even", 1, 100.0, 100.0), run("1N2H3P", "alor", 1, 163.0, 150.0), void];
        let chart = chart(figure, Metric::Throughput, &runs);
        let text = svg(&chart).unwrap();
        for wanted in ["<svg", "</svg>", "1.63", "1.50", "void", "the paper", "alor", "Load", "Figure 5"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let dir = tempfile::tempdir().unwrap();
        write_plots(&[chart], dir.path()).unwrap();
        assert!(dir.path().join("figure-5-throughput.svg").is_file());
    }

    #[test]
    fn what_is_not_in_the_paper_has_no_number() {
        let figure = select(&["six-hybrids".to_owned()]).unwrap()[0];
        let runs = [run("6Y", "even", 1, 100.0, 100.0), run("1N5P", "alor", 1, 130.0, 120.0)];
        let chart = chart(figure, Metric::TailLatency, &runs);
        assert_eq!(file_name(&chart), "six-hybrids-p99-latency.svg");
        let text = svg(&chart).unwrap();
        assert!(text.contains("Beside six hybrid stores") && !text.contains("Figure"), "{text}");
    }

    #[test]
    fn groups_name_their_cluster_where_there_are_several() {
        let figure = select(&["11".to_owned()]).unwrap()[0];
        let runs = [run("2H4P", "even", 1, 100.0, 100.0)];
        let chart = chart(figure, Metric::Throughput, &runs);
        let labels: Vec<String> = super::groups(&chart).into_iter().map(|(label, _)| label).collect();
        assert_eq!(labels.len(), 16);
        assert_eq!(labels[0], "2H4P Load");
    }
}
