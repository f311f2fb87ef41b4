//! The demo's output: a table that is redrawn on a terminal, and plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use client::table::{count, micros, Align, Table};
use indicatif::{ProgressBar, ProgressStyle};
use server::admin::StoreRow;

pub struct Screen {
    terminal: bool,
    /// Number of lines of the table on the terminal.
    drawn: usize,
    last: Option<Instant>,
}

/// Interval at which a table is printed if there is no terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

impl Screen {
    pub fn new() -> Screen {
        Screen { terminal: std::io::stdout().is_terminal(), drawn: 0, last: None }
    }

    pub fn headline(&mut self, text: &str) {
        self.settle();
        println!("\n== {text}");
    }

    pub fn say(&mut self, text: &str) {
        self.settle();
        println!("   {text}");
    }

    /// Keeps the table on the screen. Further output goes below it.
    pub fn settle(&mut self) {
        self.drawn = 0;
        self.last = None;
    }

    pub fn table(&mut self, title: &str, table: &Table) {
        if !self.terminal && self.last.is_some_and(|last| last.elapsed() < PLAIN_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let mut out = std::io::stdout().lock();
        let mut lines = vec![title.to_owned()];
        lines.extend(table.lines());
        if self.terminal && self.drawn > 0 {
            // Move up, then clear to the end of the screen.
            let _ = write!(out, "\x1b[{}A\x1b[J", self.drawn);
        }
        for line in &lines {
            let _ = writeln!(out, "   {line}");
        }
        let _ = out.flush();
        self.drawn = lines.len();
    }

    /// Shows progress as a bar on a terminal, and as a line for each tenth elsewhere.
    pub fn progress(&mut self, what: &'static str, total: u64) -> Progress {
        self.settle();
        let bar = self.terminal.then(|| {
            let style = "   {msg} [{bar:40}] {pos}/{len}  {per_sec}  {eta} left";
            let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_message(what)
        });
        Progress { bar, what, total: total.max(1), done: 0, tenths: 0 }
    }
}

pub struct Progress {
    bar: Option<ProgressBar>,
    what: &'static str,
    total: u64,
    done: u64,
    tenths: u64,
}

impl Progress {
    pub fn add(&mut self, count: u64) {
        self.done += count;
        match &self.bar {
            Some(bar) => bar.set_position(self.done),
            None => {
                let tenths = self.done * 10 / self.total;
                if tenths > self.tenths {
                    self.tenths = tenths;
                    println!("   {} {}% ({}/{})", self.what, tenths * 10, self.done, self.total);
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns a table of the stores with their devices, leaders and load.
pub fn stores(rows: &[StoreRow]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("store", Right),
        ("device", Left),
        ("state", Left),
        ("leaders", Right),
        ("regions", Right),
        ("ops/s", Right),
        ("p99", Right),
    ]);
    for row in rows {
        table.row([
            row.id.to_string(),
            row.device.clone(),
            row.state.clone(),
            row.leaders.to_string(),
            row.regions.to_string(),
            count(row.ops_per_s),
            micros(row.p99_us as f64),
        ]);
    }
    table
}
