//! A plot of values over time as SVG, with marked moments.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::svg::{drawn, legend, Area, Failure, Swatch, FONT, PALETTE};

const SIZE: (u32, u32) = (1080, 440);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    pub title: String,
    /// The unit of the vertical axis.
    pub unit: String,
    /// The name of the horizontal axis; seconds if it has none.
    pub axis: Option<String>,
    pub lines: Vec<Line>,
    pub levels: Vec<Level>,
    pub marks: Vec<Mark>,
    /// The moments at which operators began, drawn as short strokes at the bottom.
    pub moves: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A horizontal line at a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    pub name: String,
    pub value: f64,
}

/// A vertical line at a moment, with a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub at_s: f64,
    pub text: String,
}

impl Plot {
    pub fn svg(&self) -> Result<String, Failure> {
        drawn(SIZE, |root| self.draw(root))
    }

    fn ends(&self) -> (f64, f64, f64) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let first = points().map(|(at, _)| *at).fold(0.0, f64::min);
        let marks = self.marks.iter().map(|mark| mark.at_s);
        let last = points().map(|(at, _)| *at).chain(marks).fold(first + 1.0, f64::max);
        let levels = self.levels.iter().map(|level| level.value);
        let highest = points().map(|(_, value)| *value).chain(levels).fold(0.0, f64::max);
        (first, last, if highest > 0.0 { highest } else { 1.0 })
    }

    fn draw(&self, root: &Area<'_>) -> Result<(), Failure> {
        let (first, last, highest) = self.ends();
        let top = highest * 1.15;
        let mut plot = ChartBuilder::on(root)
            .caption(&self.title, (FONT, 18))
            .margin(12)
            .margin_top(4)
            .margin_bottom(40)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(first..last, 0.0..top)?;
        plot.configure_mesh()
            .disable_x_mesh()
            .x_desc(self.axis.as_deref().unwrap_or("seconds"))
            .y_desc(&self.unit)
            .light_line_style(TRANSPARENT)
            .y_label_formatter(&|value| label(*value, top))
            .label_style((FONT, 13))
            .draw()?;
        let small = |size: u32| (FONT, size).into_font().color(&BLACK);
        for level in &self.levels {
            let ends = vec![(first, level.value), (last, level.value)];
            plot.draw_series([PathElement::new(ends, BLACK.mix(0.45).stroke_width(1))])?;
            let right = small(11).pos(Pos::new(HPos::Right, VPos::Bottom));
            plot.draw_series([Text::new(level.name.clone(), (last, level.value), right)])?;
        }
        for mark in &self.marks {
            let ends = vec![(mark.at_s, 0.0), (mark.at_s, top)];
            plot.draw_series([PathElement::new(ends, BLACK.mix(0.6).stroke_width(1))])?;
            let left = small(12).pos(Pos::new(HPos::Left, VPos::Top));
            plot.draw_series([Text::new(format!(" {}", mark.text), (mark.at_s, top), left)])?;
        }
        for at in self.moves.iter().filter(|at| (first..=last).contains(*at)) {
            let ends = vec![(*at, 0.0), (*at, 0.025 * top)];
            plot.draw_series([PathElement::new(ends, BLACK.stroke_width(1))])?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            let colour = PALETTE[index % PALETTE.len()];
            plot.draw_series([PathElement::new(line.points.clone(), colour.stroke_width(2))])?;
        }
        let entries = self.lines.iter().enumerate();
        legend(
            root,
            entries.map(|(index, line)| (line.name.as_str(), Swatch::Filled(PALETTE[index % PALETTE.len()]))),
        )
    }
}

/// Formats a value. It has decimals if the whole axis is below 10, as for shares.
fn label(value: f64, top: f64) -> String {
    if top < 10.0 {
        format!("{value:.2}")
    } else {
        client::table::count(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_shows_its_lines_levels_and_moments() {
        let plot = Plot {
            title: "Throughput".into(),
            unit: "ops/s".into(),
            axis: None,
            lines: vec![
                Line { name: "adaptive".into(), points: vec![(0.0, 1000.0), (60.0, 20_000.0)] },
                Line { name: "even".into(), points: vec![] },
            ],
            levels: vec![Level { name: "80% of the best".into(), value: 800.0 }],
            marks: vec![Mark { at_s: 30.0, text: "slowed".into() }],
            moves: vec![31.0, 99.0],
        };
        let text = plot.svg().unwrap();
        for wanted in
            ["<svg", "Throughput", "ops/s", "adaptive", "even", "80% of the best", "slowed", "20,000"]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(Plot::default().svg().is_ok(), "an empty plot is no failure");
    }
}
