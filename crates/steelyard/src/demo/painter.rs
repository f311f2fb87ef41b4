//! The demonstration's output: one screen that is redrawn in place on a terminal, and plain text
//! elsewhere.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use console::Term;

use super::screen::{self, Line, Scene, Tone};

/// Minimum time between two frames.
const FRAME: Duration = Duration::from_millis(100);

pub struct Painter {
    /// `None`: plain text.
    terminal: Option<Term>,
    painted: Option<Instant>,
    coloured: bool,
}

impl Painter {
    pub fn new(plain: bool) -> Painter {
        let terminal = Term::stdout();
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let terminal = (terminal.is_term() && !plain).then_some(terminal);
        Painter { terminal, painted: None, coloured }
    }

    /// Redraws the screen on a terminal.
    pub fn paint(&mut self, scene: &Scene) {
        if self.painted.is_some_and(|painted| painted.elapsed() < FRAME) {
            return;
        }
        self.paint_now(scene);
    }

    /// Redraws the screen on a terminal, even if it was drawn recently.
    pub fn paint_now(&mut self, scene: &Scene) {
        let Some(terminal) = &self.terminal else { return };
        let (rows, columns) = terminal.size();
        let first = self.painted.is_none();
        self.painted = Some(Instant::now());
        // The cursor rests on the row below the last line.
        let rows = usize::from(rows).saturating_sub(1);
        let lines = screen::lines(scene, rows);
        let text = frame(&lines, usize::from(columns), first, self.coloured);
        print(&text);
    }

    /// Prints lines if there is no terminal.
    pub fn tell(&self, lines: &[Line]) {
        if self.terminal.is_none() {
            print(&lines.iter().map(|line| line.text() + "\n").collect::<String>());
        }
    }

    /// Prints a sentence if there is no terminal.
    pub fn say(&self, text: &str) {
        self.tell(&screen::wrapped(text, "  "));
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        if self.terminal.is_some() && self.painted.is_some() {
            print("\x1b[?25h");
        }
    }
}

/// Prints text. If the reader has closed the pipe, the demonstration continues without output, so
/// that it still ends the stores.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns the bytes that draw the lines over the previous frame.
fn frame(lines: &[Line], columns: usize, first: bool, coloured: bool) -> String {
    // Hide the cursor and clear the screen once. Later frames overwrite line by line, which does
    // not flicker.
    let mut text = String::from(if first { "\x1b[?25l\x1b[2J\x1b[H" } else { "\x1b[H" });
    for line in lines {
        // A line that wraps would push the others off the screen.
        for (tone, part) in line.cut(columns).parts() {
            match colour(*tone).filter(|_| coloured) {
                Some(code) => write!(text, "\x1b[{code}m{part}\x1b[0m").expect("a string grows"),
                None => text.push_str(part),
            }
        }
        text.push_str("\x1b[K\r\n");
    }
    text.push_str("\x1b[J");
    text
}

fn colour(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Title => Some("1"),
        Tone::Faint => Some("2"),
        Tone::Leaders => Some("36"),
        Tone::Copies => Some("34"),
        Tone::Calm => Some("32"),
        Tone::Busy => Some("33"),
        Tone::Good => Some("1;32"),
        Tone::Bad => Some("1;31"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_overwrites_the_one_before_and_no_line_wraps() {
        let lines = [Line::new(Tone::Good, "all there"), Line::new(Tone::Plain, "x".repeat(300))];
        let first = frame(&lines, 80, true, true);
        assert!(first.starts_with("\x1b[?25l\x1b[2J\x1b[H\x1b[1;32mall there\x1b[0m\x1b[K\r\n"), "{first:?}");
        assert!(!first.contains(&"x".repeat(81)));
        let next = frame(&lines, 80, false, false);
        assert!(next.starts_with("\x1b[Hall there\x1b[K\r\n") && next.ends_with("\x1b[J"), "{next:?}");
    }
}
