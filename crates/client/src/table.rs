//! Tables for people, as aligned columns or Markdown, and the units in them.

use std::fmt::Write as _;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of text under named columns.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Table {
        Table { columns: columns.into_iter().map(|(n, a)| (n.to_owned(), a)).collect(), rows: Vec::new() }
    }

    /// Adds a row, with one cell per column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "one cell per column");
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the heading and the rows as lines without newlines.
    pub fn lines(&self) -> Vec<String> {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        table.set_header(self.columns.iter().map(|(name, _)| name));
        table.add_rows(&self.rows);
        for (column, (_, align)) in table.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match align {
                Align::Left => comfy_table::CellAlignment::Left,
                Align::Right => comfy_table::CellAlignment::Right,
            });
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let mut push = |cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        };
        push(self.columns.iter().map(|(name, _)| name.clone()).collect());
        let rule = |align: &Align| if *align == Align::Left { "---" } else { "---:" }.to_owned();
        push(self.columns.iter().map(|(_, align)| rule(align)).collect());
        self.rows.iter().for_each(|row| push(row.clone()));
        text
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Formats bytes in powers of 1000, such as `1.5 GB`.
pub fn bytes(count: f64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match value {
        _ if unit == 0 => format!("{value:.0} B"),
        v if v < 9.95 => format!("{v:.1} {}", UNITS[unit]),
        v => format!("{v:.0} {}", UNITS[unit]),
    }
}

/// Formats a number such as `12,345`.
pub fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats microseconds as `850 us`, `1.25 ms` or `3.1 s`.
pub fn micros(value: f64) -> String {
    match value {
        v if v < 999.5 => format!("{v:.0} us"),
        v if v < 9_995.0 => format!("{:.2} ms", v / 1e3),
        v if v < 999_500.0 => format!("{:.1} ms", v / 1e3),
        v => format!("{:.1} s", v / 1e6),
    }
}

/// Formats a duration as `2d 3h`, `4m 05s` or `12s`.
pub fn duration(value: Duration) -> String {
    let s = value.as_secs();
    match s {
        0..=59 => format!("{s}s"),
        60..=3599 => format!("{}m {:02}s", s / 60, s % 60),
        3600..=86_399 => format!("{}h {:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d {:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_blanks() {
        let mut table = Table::new([("name", Align::Left), ("ops/s", Align::Right), ("", Align::Left)]);
        table.row(["a".into(), "1,000".into(), String::new()]);
        table.row(["long-name".into(), "5".into(), "x".into()]);
        assert_eq!(table.lines(), ["name       ops/s", "a          1,000", "long-name      5  x"]);
    }

    #[test]
    fn markdown_escapes_bars() {
        let mut table = Table::new([("a", Align::Left), ("b", Align::Right)]);
        table.row(["x|y".into(), "1".into()]);
        assert_eq!(table.markdown(), "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n");
    }

    #[test]
    fn units_keep_two_or_three_digits() {
        assert_eq!(
            [0.0, 999.0, 1000.0, 9_960.0, 1.5e9].map(bytes),
            ["0 B", "999 B", "1.0 kB", "10 kB", "1.5 GB"]
        );
        assert_eq!([7.0, 1234.0, 1_234_567.0].map(count), ["7", "1,234", "1,234,567"]);
        assert_eq!([12.0, 1250.0, 45_600.0, 3.1e6].map(micros), ["12 us", "1.25 ms", "45.6 ms", "3.1 s"]);
        assert_eq!(
            [5, 65, 3700, 90_000].map(|s| duration(Duration::from_secs(s))),
            ["5s", "1m 05s", "1h 01m", "1d 01h"]
        );
    }
}
