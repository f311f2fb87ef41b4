//! The runs that the paper's figures and tables need.

use serde::{Deserialize, Serialize};

use super::knobs::{knob, Base, Config, WritePath, KNOBS};
use super::places::Place;

/// A part of the paper's evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Compaction threads.
    Two,
    /// Low triggers.
    Three,
    /// Higher triggers.
    Four,
    /// Triggers that are too high.
    Five,
    /// Chunks of the array.
    Six,
    /// Iterator and random reads.
    Seven,
    /// All knobs.
    Table,
    /// Replication untuned and tuned.
    Total,
    /// §4.3.
    Nvme,
    /// The same on the real disk.
    Disk,
    /// Filters of the last level.
    Filters,
    /// `bytes_per_sync` with and without direct I/O.
    Sync,
}

impl Figure {
    pub const ALL: [(Figure, &'static str); 12] = [
        (Figure::Table, "table"),
        (Figure::Total, "total"),
        (Figure::Two, "2"),
        (Figure::Three, "3"),
        (Figure::Four, "4"),
        (Figure::Five, "5"),
        (Figure::Six, "6"),
        (Figure::Seven, "7"),
        (Figure::Nvme, "nvme"),
        (Figure::Filters, "filters"),
        (Figure::Sync, "sync"),
        (Figure::Disk, "disk"),
    ];
}

/// Returns the figures with these names; all if there is no name.
///
/// # Errors
/// There is no such figure.
pub fn select(names: &[String]) -> Result<Vec<Figure>, String> {
    if names.is_empty() {
        return Ok(Figure::ALL.map(|(figure, _)| figure).to_vec());
    }
    let find = |name: &String| {
        let found = Figure::ALL.iter().find(|(_, known)| known == name);
        found.map(|(figure, _)| *figure).ok_or_else(|| {
            let known = Figure::ALL.map(|(_, name)| name).join(", ");
            format!("there is no figure '{name}': use {known}")
        })
    };
    names.iter().map(find).collect()
}

/// The work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The four loads.
    Loads,
    /// Writes and reads of present and absent keys.
    Filters,
    /// Writes alone.
    Write,
    /// Writes, and the whole set read in two ways.
    Set,
}

/// One run of a round.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    pub place: Place,
    pub kind: Kind,
    pub config: Config,
}

impl Case {
    pub fn label(&self) -> String {
        let Case { place, kind, config } = self;
        let kind = match kind {
            Kind::Loads => "",
            Kind::Filters => " absent keys",
            Kind::Write => " writes",
            Kind::Set => " whole set",
        };
        format!("{}{kind}, {}, {}: {}", place.name(), config.base.name(), config.path.name(), config.label())
    }
}

/// The chunks of Fig 6.
pub const CHUNKS: [&str; 4] = ["16KiB", "64KiB", "128KiB", "512KiB"];

fn chunk(chunk: &str) -> (String, String) {
    (super::knobs::CHUNK.to_owned(), chunk.to_owned())
}

/// Returns a configuration on an array with another chunk.
pub fn with_chunk(config: &Config, size: &str) -> Config {
    let mut config = config.clone();
    let (name, value) = chunk(size);
    config.settings.remove(&name);
    if size != "512KiB" {
        config.settings.insert(name, value);
    }
    config
}

/// The sizes with which files are large enough for `bytes_per_sync`: RocksDB leaves out a file's
/// last MiB.
pub const LARGE_FILES: super::knobs::Settings =
    &[("write_buffer_size", "16mb"), ("target_file_size_base", "16mb"), ("max_bytes_for_level_base", "64mb")];

/// Returns the four sides of the riddle: direct I/O and `bytes_per_sync`, each on and off.
pub fn sync_sides() -> [(bool, bool, Config); 4] {
    let base = Config::new(Base::Paper, WritePath::Puts).with(LARGE_FILES);
    let sync = knob("bytes_per_sync 2 MB").expect("the knob exists");
    let direct = knob("direct I/O").expect("the knob exists");
    [(true, false), (true, true), (false, false), (false, true)].map(|(is_direct, syncs)| {
        let config = base.with(if is_direct { direct.changed } else { direct.initial });
        (is_direct, syncs, config.with(if syncs { sync.changed } else { sync.initial }))
    })
}

/// Returns true if a knob says anything about a write path.
pub fn applies(knob: &str, path: WritePath) -> bool {
    // Sorted runs have one writer and no memtable to contend for.
    !(path == WritePath::Ingest && knob == "64 I/O threads, one writes")
}

/// Returns the runs of one round, each once.
pub fn cases(figures: &[Figure], places: &[Place]) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    let mut add = |place, kind, config: Config| {
        let case = Case { place, kind, config };
        if places.contains(&place) && !all.contains(&case) {
            all.push(case);
        }
    };
    let paper = Config::new(Base::Paper, WritePath::Puts);
    let changed = |name: &str| paper.with(knob(name).expect("the knob exists").changed);
    let ours = Config::new(Base::Ours, WritePath::Ingest);
    for figure in figures {
        match figure {
            Figure::Table => {
                for base in Base::ALL {
                    for path in WritePath::ALL {
                        let config = Config::new(base, path);
                        add(Place::Sata, Kind::Loads, config.clone());
                        for knob in KNOBS.iter().filter(|knob| applies(knob.name, path)) {
                            add(Place::Sata, Kind::Loads, config.with(knob.initial));
                            add(Place::Sata, Kind::Loads, config.with(knob.changed));
                        }
                    }
                }
            }
            Figure::Total => {
                for config in [paper.clone(), paper.tuned(), ours.clone(), ours.tuned()] {
                    add(Place::Sata, Kind::Loads, config);
                }
            }
            Figure::Two => {
                add(Place::Sata, Kind::Loads, paper.clone());
                add(Place::Sata, Kind::Loads, changed("compaction threads"));
            }
            Figure::Three | Figure::Four | Figure::Five => {
                let name = match figure {
                    Figure::Three => None,
                    Figure::Four => Some("triggers 24/40"),
                    _ => Some("triggers 40/60"),
                };
                add(Place::Sata, Kind::Loads, name.map_or(paper.clone(), changed));
            }
            Figure::Six => {
                for size in CHUNKS {
                    add(Place::Sata, Kind::Loads, with_chunk(&paper, size));
                    add(Place::Sata, Kind::Loads, with_chunk(&paper.tuned(), size));
                }
            }
            Figure::Seven => {
                add(Place::Sata, Kind::Set, paper.clone());
                add(Place::Sata, Kind::Set, paper.tuned());
            }
            Figure::Nvme => {
                for config in [
                    paper.clone(),
                    changed("triggers 24/40"),
                    changed("RAID chunk 16k"),
                    paper.tuned(),
                    ours.tuned(),
                ] {
                    add(Place::Nvme, Kind::Loads, config);
                }
            }
            Figure::Disk => {
                for config in [paper.clone(), paper.tuned(), ours.tuned()] {
                    add(Place::Disk, Kind::Loads, with_chunk(&config, "512KiB"));
                }
            }
            Figure::Filters => {
                let filters = knob("filters for hits").expect("the knob exists");
                for side in [filters.initial, filters.changed] {
                    add(Place::Sata, Kind::Filters, paper.with(side));
                }
            }
            Figure::Sync => {
                for (_, _, config) in sync_sides() {
                    add(Place::Sata, Kind::Write, config);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_name_and_share_their_runs() {
        let all = select(&[]).unwrap();
        assert_eq!(all.len(), 12);
        assert_eq!(select(&["6".into(), "nvme".into()]).unwrap(), [Figure::Six, Figure::Nvme]);
        assert!(select(&["8".into()]).unwrap_err().contains("filters"));
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            cases(&select(&names).unwrap(), &Place::ALL)
        };
        assert_eq!(of(&["2", "3", "4", "5"]).len(), 4, "the baseline is in all of them");
        assert_eq!(of(&["table", "2", "3", "4", "5"]), of(&["table"]));
        assert!(cases(&all, &[Place::Nvme]).iter().all(|case| case.place == Place::Nvme));
        assert!(of(&["disk"]).iter().all(|case| !case.config.settings.contains_key("raid_chunk")));
    }
}
