//! Scenarios beyond the paper's figures: a device that slows down and recovers, stores that fill,
//! equal stores that measure themselves, and the emulation compared with real devices.
//!
//! This module has the data of such runs, their verdicts and their reports. The caller starts,
//! changes and observes the clusters.

pub mod emulation;
pub mod equal;
mod filling;
pub mod full_store;
pub(crate) mod moves;
mod plot;
mod series;
mod shedding;
pub mod slowdown;
mod verdict;

pub use filling::{Filling, Written};
pub use moves::{reversals, Move, Span};
pub use plot::{Level, Line, Mark, Plot};
pub use series::{mean_between, recovery, Recovery, WINDOW_S};
pub use shedding::{sheds, Bounds, Look, RegionLook, Shed, StoreLook};
pub use verdict::{verdicts, Verdict};

use std::path::Path;

use anyhow::{anyhow, Context};
use serde::Serialize;

/// Writes the results of a scenario: `NAME.json`, `NAME.md` and its plots.
pub fn keep<T: Serialize>(
    dir: &Path,
    name: &str,
    result: &T,
    report: &str,
    plots: &[(String, Plot)],
) -> anyhow::Result<()> {
    let write = |file: String, text: String| {
        let path = dir.join(file);
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
    };
    write(format!("{name}.json"), serde_json::to_string_pretty(result)? + "\n")?;
    for (file, plot) in plots {
        write(file.clone(), plot.svg().map_err(|error| anyhow!("{file}: {error}"))?)?;
    }
    write(format!("{name}.md"), report.to_owned())
}

/// The machine on which a scenario ran.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct Machine {
    pub cpus: usize,
    /// The type of the file system that held the stores' data.
    pub file_system: String,
    pub program: String,
}

impl Machine {
    fn text(&self) -> String {
        format!("{} CPUs for stores and client, data on {}, {}", self.cpus, self.file_system, self.program)
    }
}
