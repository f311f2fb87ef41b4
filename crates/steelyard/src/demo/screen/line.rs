//! Lines of text with tones, which a terminal may show as colours.

use super::WIDTH;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Title,
    Faint,
    Leaders,
    Copies,
    Calm,
    Busy,
    Good,
    Bad,
}

/// A line of text in parts of different tones. Every character takes one column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line(Vec<(Tone, String)>);

impl Line {
    /// Creates a line. Control characters become blanks, because they would break the screen.
    pub fn new(tone: Tone, text: impl Into<String>) -> Line {
        Line::default().with(tone, text)
    }

    pub fn with(mut self, tone: Tone, text: impl Into<String>) -> Line {
        let text: String = text.into();
        let text = match text.contains(char::is_control) {
            true => text.replace(char::is_control, " "),
            false => text,
        };
        if !text.is_empty() {
            self.0.push((tone, text));
        }
        self
    }

    pub fn parts(&self) -> &[(Tone, String)] {
        &self.0
    }

    /// Returns the text without tones and without blanks at its end.
    pub fn text(&self) -> String {
        let text: String = self.0.iter().map(|(_, part)| part.as_str()).collect();
        text.trim_end().to_owned()
    }

    fn width(&self) -> usize {
        self.0.iter().map(|(_, part)| part.chars().count()).sum()
    }

    /// Cuts the line to `width` columns. The last column of a line that was cut is `…`.
    pub fn cut(&self, width: usize) -> Line {
        if self.width() <= width {
            return self.clone();
        }
        let mut room = width.saturating_sub(1);
        let mut cut = Line::default();
        for (tone, part) in &self.0 {
            let taken: String = part.chars().take(room).collect();
            room -= taken.chars().count();
            cut = cut.with(*tone, taken);
        }
        cut.with(Tone::Faint, if width > 0 { "…" } else { "" })
    }
}

/// Wraps a text at blanks to lines of at most [`WIDTH`] columns that begin with `indent`. A word
/// that is longer than a line is cut.
pub fn wrapped(text: &str, indent: &str) -> Vec<Line> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.into_iter().map(|line| Line::new(Tone::Plain, line).cut(WIDTH)).collect()
}
