//! The demonstration's screen: a scene as lines of at most [`WIDTH`] columns. Nothing here reads a
//! clock or writes to a terminal.

mod line;
#[cfg(test)]
mod tests;

use std::time::Duration;

use client::table::{count, micros};

use super::chapter::Chapter;
use super::moves::Told;
pub use line::{wrapped, Line, Tone};

/// Maximum width of a line.
pub const WIDTH: usize = 100;
/// Width of a bar.
const BAR: usize = 12;
/// Width of a device's name.
const DEVICE: usize = 13;

/// The content of the screen.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The cluster and its load, in a few words.
    pub title: String,
    pub chapter: Chapter,
    /// The present step and its remaining time.
    pub status: String,
    pub elapsed: Duration,
    /// Empty before the stores serve.
    pub stores: Vec<StoreLine>,
    /// Numbers of regions whose writes wait for a sync of a kind of device.
    pub waits: Vec<(String, usize)>,
    /// Number of regions: the most that a store can lead or hold.
    pub regions: usize,
    /// Commands answered to clients per second. `None` without a load.
    pub ops_per_s: Option<f64>,
    pub even: Option<Score>,
    pub adaptive: Option<Score>,
    /// Moves of leaders and of copies by `adaptive`.
    pub moves: Moves,
    pub kill: Vec<String>,
    pub proof: Option<Proof>,
    /// Commands to try next.
    pub hints: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoreLine {
    pub id: u64,
    pub device: String,
    /// The device's time for a sync in microseconds.
    pub sync_us: Option<f64>,
    pub is_up: bool,
    pub leaders: usize,
    pub copies: usize,
    /// The share of time in which the device works, from 0 to 1.
    pub busy: Option<f64>,
    /// Commands that the store answers per second.
    pub ops_per_s: f64,
}

/// A measurement under one policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    pub ops_per_s: f64,
    pub mean_us: f64,
    pub p99_us: f64,
    /// Cores that all stores use together.
    pub store_cores: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moves {
    pub leaders: usize,
    pub copies: usize,
    pub told: Vec<Told>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    pub holds: bool,
    pub lines: Vec<String>,
}

/// Time for which a move is shown if there is no room for all.
const MOVE_SHOWN: Duration = Duration::from_secs(4);

/// Returns the whole screen, with at most `rows` lines. If there are too few lines, empty lines are
/// left out first. Then moves are shown in turn, and finally they are left out.
pub fn lines(scene: &Scene, rows: usize) -> Vec<Line> {
    let turn = scene.elapsed.as_secs() / MOVE_SHOWN.as_secs();
    let in_turn = match scene.moves.told.len() as u64 {
        0 => Vec::new(),
        known => vec![scene.moves.told[(turn % known) as usize].clone()],
    };
    let all = moves(&scene.moves);
    let one = moves(&Moves { told: in_turn, ..scene.moves.clone() });
    let screens = [panels(scene, all.clone(), true), panels(scene, all, false), panels(scene, one, false)];
    let fits = screens.into_iter().find(|lines| lines.len() <= rows);
    let mut lines = fits.unwrap_or_else(|| panels(scene, Vec::new(), false));
    lines.truncate(rows);
    lines
}

fn panels(scene: &Scene, moves: Vec<Line>, apart: bool) -> Vec<Line> {
    let panels = [
        header(scene),
        stores(scene),
        gain(scene),
        moves,
        kill(scene),
        scene.proof.as_ref().map(proof).unwrap_or_default(),
        scene.hints.iter().flat_map(|hint| wrapped(hint, "  ")).collect(),
    ];
    let mut lines: Vec<Line> = Vec::new();
    for panel in panels.into_iter().filter(|panel| !panel.is_empty()) {
        if apart && !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(panel);
    }
    lines
}

fn header(scene: &Scene) -> Vec<Line> {
    let seconds = scene.elapsed.as_secs();
    let clock = format!("{}:{:02}", seconds / 60, seconds % 60);
    let room = WIDTH.saturating_sub(clock.len() + 1);
    let title = Line::new(Tone::Title, scene.title.clone()).cut(room).text();
    let mut chapters = Line::default();
    for chapter in Chapter::ALL {
        let here = chapter == scene.chapter;
        let name = if here { format!("[{}]", chapter.name()) } else { format!(" {} ", chapter.name()) };
        chapters = chapters.with(if here { Tone::Title } else { Tone::Faint }, name);
    }
    let now = scene.ops_per_s.map(|rate| format!("   clients: {} answers/s", count(rate)));
    let status = Line::new(Tone::Plain, format!("  {}", scene.status));
    vec![
        Line::new(Tone::Title, format!("{title:room$} ")).with(Tone::Faint, clock),
        chapters,
        Line::new(Tone::Plain, format!("  {}", scene.chapter.explanation())).cut(WIDTH),
        status.with(Tone::Faint, now.unwrap_or_default()).cut(WIDTH),
    ]
}

/// Returns the table of the stores with their bars.
pub fn stores(scene: &Scene) -> Vec<Line> {
    if scene.stores.is_empty() {
        return Vec::new();
    }
    let heading = format!(
        "store  {:DEVICE$}  {:>7}  {:16}  {:16}  {:17}  {:>9}",
        "device", "sync", "leaders", "copies", "device busy", "ops/s"
    );
    let mut lines = vec![Line::new(Tone::Faint, heading)];
    lines.extend(scene.stores.iter().map(|store| store_line(store, scene.regions).cut(WIDTH)));
    if !scene.waits.is_empty() {
        let part = |(device, number): &(String, usize)| {
            format!("{device} ({})", plural(*number, "region", "regions"))
        };
        let parts: Vec<String> = scene.waits.iter().map(part).collect();
        let text = format!("  The slowest sync that a write waits for: {}.", parts.join(", "));
        lines.push(Line::new(Tone::Title, text).cut(WIDTH));
    }
    lines
}

fn store_line(store: &StoreLine, regions: usize) -> Line {
    let device = Line::new(Tone::Plain, store.device.clone()).cut(DEVICE).text();
    let sync = store.sync_us.map_or("-".into(), micros);
    let line = Line::new(Tone::Plain, format!("{:>5}  {device:DEVICE$}  {sync:>7}  ", store.id));
    let share = |number: usize| number as f64 / regions.max(1) as f64;
    let copies = |line: Line| {
        let line = line.with(Tone::Copies, bar(share(store.copies)));
        line.with(Tone::Plain, format!("{:>4}", store.copies))
    };
    if !store.is_up {
        let line = line.with(Tone::Bad, format!("{:16}  ", "DOWN"));
        return copies(line);
    }
    let line = line
        .with(Tone::Leaders, bar(share(store.leaders)))
        .with(Tone::Plain, format!("{:>4}  ", store.leaders));
    let busy = store.busy.filter(|busy| busy.is_finite());
    let percent = busy.map_or("-".into(), |busy| format!("{:.0}%", busy.clamp(0.0, 1.0) * 100.0));
    let tone = if busy.is_some_and(|busy| busy > 0.6) { Tone::Busy } else { Tone::Calm };
    copies(line)
        .with(tone, format!("  {}", bar(busy.unwrap_or(0.0))))
        .with(Tone::Plain, format!("{percent:>5}  {:>9}", count(store.ops_per_s)))
}

/// Returns a bar for a share from 0 to 1. A share above 0 is always visible.
fn bar(share: f64) -> String {
    // A cast of NaN is 0.
    let mut filled = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    if share > 0.0 {
        filled = filled.max(1);
    }
    format!("{}{}", "█".repeat(filled), "·".repeat(BAR - filled))
}

/// Returns the comparison of the policies. Empty before the first measurement.
pub fn gain(scene: &Scene) -> Vec<Line> {
    let Some(even) = &scene.even else { return Vec::new() };
    let row = |name: &str, cells: [String; 4]| {
        let [rate, mean, p99, cores] = cells;
        format!("{name:24}{rate:>12}{mean:>12}{p99:>12}{cores:>20}")
    };
    let heading =
        row("same load and devices", ["ops/s", "mean", "p99", "cores of all stores"].map(String::from));
    let measured = |name: &str, score: &Score| {
        let cores = score.store_cores.map_or("-".into(), |cores| format!("{cores:.1}"));
        row(name, [count(score.ops_per_s), micros(score.mean_us), micros(score.p99_us), cores])
    };
    let mut lines = vec![
        Line::new(Tone::Faint, heading).cut(WIDTH),
        Line::new(Tone::Plain, measured("policy even", even)).cut(WIDTH),
    ];
    if let Some(adaptive) = &scene.adaptive {
        let ratio = |new: f64, old: f64| match old > 0.0 && new.is_finite() {
            true => format!("{:.2} x", new / old),
            false => "-".into(),
        };
        let cells = [
            ratio(adaptive.ops_per_s, even.ops_per_s),
            ratio(adaptive.mean_us, even.mean_us),
            ratio(adaptive.p99_us, even.p99_us),
            String::new(),
        ];
        let better = adaptive.ops_per_s > even.ops_per_s;
        lines.push(Line::new(Tone::Plain, measured("policy adaptive", adaptive)).cut(WIDTH));
        let text = row("adaptive / even", cells).trim_end().to_owned();
        lines.push(Line::new(if better { Tone::Good } else { Tone::Bad }, text).cut(WIDTH));
    }
    lines
}

/// Returns the number of moves, and some of them with their reasons.
pub fn moves(moves: &Moves) -> Vec<Line> {
    if moves.told.is_empty() {
        return Vec::new();
    }
    let heading = format!(
        "adaptive moved {} and {}, among them, with the reasons:",
        plural(moves.leaders, "leader", "leaders"),
        plural(moves.copies, "copy", "copies")
    );
    let mut lines = vec![Line::new(Tone::Faint, heading).cut(WIDTH)];
    lines.extend(moves.told.iter().flat_map(told));
    lines
}

fn told(told: &Told) -> Vec<Line> {
    let mut lines = wrapped(&told.what, "  ");
    lines.extend(wrapped(&told.reason, "      "));
    lines
}

pub fn plural(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number as f64), if number == 1 { one } else { many })
}

fn kill(scene: &Scene) -> Vec<Line> {
    scene.kill.iter().flat_map(|text| wrapped(text, "")).collect()
}

pub fn proof(proof: &Proof) -> Vec<Line> {
    let tone = if proof.holds { Tone::Good } else { Tone::Bad };
    let lines = proof.lines.iter().flat_map(|text| wrapped(text, ""));
    lines.map(|line| Line::new(tone, line.text())).collect()
}
