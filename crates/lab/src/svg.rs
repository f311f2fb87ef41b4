//! The parts that all drawings share: fonts, colours and the legend.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub const FONT: &str = "sans-serif";
pub const PALETTE: [RGBColor; 6] = [
    RGBColor(120, 124, 130),
    RGBColor(86, 152, 200),
    RGBColor(222, 120, 52),
    RGBColor(70, 150, 90),
    RGBColor(150, 100, 180),
    RGBColor(190, 150, 40),
];

pub type Failure = Box<dyn std::error::Error>;
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Returns a drawing as text.
pub fn drawn(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    Ok(text)
}

pub enum Swatch {
    Filled(RGBColor),
    Outline(RGBColor),
}

/// Draws the names in one row at the foot of the drawing.
pub fn legend<'a>(
    root: &Area<'_>,
    entries: impl IntoIterator<Item = (&'a str, Swatch)>,
) -> Result<(), Failure> {
    let top = root.dim_in_pixel().1 as i32 - 30;
    let style = (FONT, 13).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut left = 60;
    for (name, swatch) in entries {
        let square = [(left, top), (left + 14, top + 14)];
        match swatch {
            Swatch::Filled(colour) => root.draw(&Rectangle::new(square, colour.filled()))?,
            Swatch::Outline(colour) => root.draw(&Rectangle::new(square, colour.stroke_width(2)))?,
        }
        root.draw(&Text::new(name.to_owned(), (left + 20, top + 7), style.clone()))?;
        // The widths of the font are unknown. Nine pixels are enough for a letter of this size.
        left += 36 + 9 * name.len() as i32;
    }
    Ok(())
}
