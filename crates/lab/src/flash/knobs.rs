//! The knobs of the paper's table, and the configurations that they are turned in.

use std::collections::BTreeMap;

use anyhow::Context;
use rocks::bare::Setup;
use rocks::{Compression, Options};
use serde::{Deserialize, Serialize};

use super::scale::{Scale, PAPER_BUDGET_BYTES};

/// The configuration around which knobs are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// The paper's baseline (§4.1, Table 2), with the initial values of its Table 1.
    Paper,
    /// The profile `redis-on-flash` of this store.
    Ours,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePath {
    /// Rows go through RocksDB's memtable, as in the paper.
    Puts,
    /// Sorted runs of a memtable's size are ingested as files, as our store does.
    Ingest,
}

impl Base {
    pub const ALL: [Base; 2] = [Base::Paper, Base::Ours];

    pub fn name(self) -> &'static str {
        match self {
            Base::Paper => "the paper's baseline",
            Base::Ours => "our profile",
        }
    }
}

impl WritePath {
    pub const ALL: [WritePath; 2] = [WritePath::Puts, WritePath::Ingest];

    pub fn name(self) -> &'static str {
        match self {
            WritePath::Puts => "puts",
            WritePath::Ingest => "sorted runs",
        }
    }
}

/// Settings by name: options of RocksDB, and the names below.
pub type Settings = &'static [(&'static str, &'static str)];

/// Names of settings that are no options of a store.
pub const COMPACTIONS: &str = "max_background_compactions";
pub const BULK_LOAD: &str = "prepare_for_bulk_load";
pub const IO_THREADS: &str = "io_threads";
pub const ONE_WRITER: &str = "one_writer";
pub const CHUNK: &str = "raid_chunk";
pub const DIRECT: &str = "direct_io";

/// A knob of the paper's table, or one of ours.
pub struct Knob {
    pub name: &'static str,
    pub initial: Settings,
    pub changed: Settings,
    /// The paper's effect on the time of replication, as a factor; `None` if it gives none.
    pub paper: Option<f64>,
    pub paper_text: &'static str,
    /// False if the paper left the knob as it was.
    pub adopted: bool,
}

const READAHEAD_OFF: (&str, &str) = ("compaction_readahead_size", "4096");

pub const KNOBS: [Knob; 11] = [
    Knob {
        name: "compaction threads",
        initial: &[(COMPACTIONS, "8")],
        changed: &[(COMPACTIONS, "64")],
        paper: Some(1.24),
        paper_text: "24%",
        adopted: true,
    },
    Knob {
        name: "triggers 24/40",
        initial: &[("level0_slowdown_writes_trigger", "12"), ("level0_stop_writes_trigger", "20")],
        changed: &[("level0_slowdown_writes_trigger", "24"), ("level0_stop_writes_trigger", "40")],
        paper: Some(1.10),
        paper_text: "10%",
        adopted: true,
    },
    Knob {
        name: "triggers 40/60",
        initial: &[("level0_slowdown_writes_trigger", "12"), ("level0_stop_writes_trigger", "20")],
        changed: &[("level0_slowdown_writes_trigger", "40"), ("level0_stop_writes_trigger", "60")],
        paper: None,
        paper_text: "faster, but reads are slower",
        adopted: false,
    },
    Knob {
        name: "compaction read-ahead",
        initial: &[READAHEAD_OFF],
        changed: &[("compaction_readahead_size", "2mb")],
        paper: Some(3.0),
        paper_text: "300%",
        adopted: true,
    },
    Knob {
        name: "64 I/O threads, one writes",
        initial: &[(IO_THREADS, "8"), (ONE_WRITER, "no")],
        changed: &[(IO_THREADS, "64"), (ONE_WRITER, "yes")],
        paper: Some(5.0),
        paper_text: "500%",
        adopted: true,
    },
    Knob {
        name: "RAID chunk 16k",
        initial: &[(CHUNK, "512KiB")],
        changed: &[(CHUNK, "16KiB")],
        paper: Some(1.68),
        paper_text: "68% (NVMe 41%)",
        adopted: true,
    },
    Knob {
        name: "filters for hits",
        initial: &[("optimize_filters_for_hits", "no")],
        changed: &[("optimize_filters_for_hits", "yes")],
        paper: Some(1.07),
        paper_text: "7%",
        adopted: true,
    },
    Knob {
        name: "bulk load",
        initial: &[(BULK_LOAD, "no")],
        changed: &[(BULK_LOAD, "yes")],
        paper: Some(5.0),
        paper_text: "500%, but reads become prohibitively slow",
        adopted: false,
    },
    Knob {
        name: "blocks of 16k",
        initial: &[("block_size", "4096")],
        changed: &[("block_size", "16384")],
        paper: Some(1.60),
        paper_text: "60%, but reads are slower",
        adopted: false,
    },
    Knob {
        name: "bytes_per_sync 2 MB",
        initial: &[("bytes_per_sync", "0")],
        changed: &[("bytes_per_sync", "2mb")],
        paper: Some(1.0),
        paper_text: "0%",
        adopted: false,
    },
    Knob {
        name: "direct I/O",
        initial: &[(DIRECT, "no")],
        changed: &[(DIRECT, "yes")],
        paper: None,
        paper_text: "not varied: the OS buffer is off",
        adopted: true,
    },
];

pub fn knob(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

/// A configuration: a base, a write path, and what differs from the base.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Config {
    pub base: Base,
    pub path: WritePath,
    pub settings: BTreeMap<String, String>,
}

/// The settings of a run that are not RocksDB's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub io_threads: usize,
    pub one_writer: bool,
    pub chunk: String,
}

impl Config {
    pub fn new(base: Base, path: WritePath) -> Config {
        Config { base, path, settings: BTreeMap::new() }
    }

    /// Returns the configuration with more settings. Those that the base has anyway are left out,
    /// so that equal configurations are equal.
    pub fn with(&self, settings: Settings) -> Config {
        let mut config = self.clone();
        for (name, value) in settings {
            let bare = Config { settings: BTreeMap::new(), ..self.clone() };
            let alone = Config {
                settings: BTreeMap::from([((*name).to_owned(), (*value).to_owned())]),
                ..bare.clone()
            };
            let scale = Scale::named("full").expect("the scale is known");
            config.settings.remove(*name);
            if alone.resolve(&scale).ok() != bare.resolve(&scale).ok() {
                config.settings.insert((*name).to_owned(), (*value).to_owned());
            }
        }
        config
    }

    /// Returns the configuration with all knobs that the paper adopted.
    pub fn tuned(&self) -> Config {
        KNOBS.iter().filter(|knob| knob.adopted).fold(self.clone(), |config, knob| config.with(knob.changed))
    }

    /// Returns what differs from the base, as text.
    pub fn label(&self) -> String {
        if self.settings.is_empty() {
            return "base".to_owned();
        }
        self.settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// Returns the options of the database and of the run, with sizes of the scale.
    ///
    /// # Errors
    /// A setting has an unknown name or a bad value.
    pub fn resolve(&self, scale: &Scale) -> anyhow::Result<(Setup, Running)> {
        let (mut setup, mut running) = match self.base {
            Base::Paper => paper(scale),
            Base::Ours => ours(scale)?,
        };
        let yes = |value: &str| value == "yes";
        for (name, value) in &self.settings {
            match name.as_str() {
                COMPACTIONS => setup.max_background_compactions = Some(number(value)?),
                BULK_LOAD => setup.bulk_load = yes(value),
                IO_THREADS => running.io_threads = number(value)? as usize,
                ONE_WRITER => running.one_writer = yes(value),
                CHUNK => running.chunk.clone_from(value),
                DIRECT => {
                    setup.options.use_direct_reads = yes(value);
                    setup.options.use_direct_io_for_flush_and_compaction = yes(value);
                }
                name => setup.options.set(name, value)?,
            }
        }
        Ok((setup, running))
    }

    /// Returns the bytes of a sorted run: those of the memtables that a flush writes together.
    pub fn run_bytes(&self, scale: &Scale) -> anyhow::Result<u64> {
        let (setup, _) = self.resolve(scale)?;
        let together = setup.memtables.map_or(1, |[_, together]| together);
        Ok(setup.options.write_buffer_size * together)
    }
}

fn number(value: &str) -> anyhow::Result<u64> {
    types::parse_size(value).ok().with_context(|| format!("{value} is not a number"))
}

/// Returns the paper's baseline. Its "memtable budget" is the parameter of RocksDB's
/// `OptimizeLevelStyleCompaction`, which sets the sizes and level 0's trigger. RocksDB 7 has
/// dynamic level sizes only if they are asked for, as RocksDB 4.9.
fn paper(scale: &Scale) -> (Setup, Running) {
    let budget = scale.budget_bytes;
    let options = Options {
        write_buffer_size: budget / 4,
        level0_file_num_compaction_trigger: 2,
        level0_slowdown_writes_trigger: 12,
        level0_stop_writes_trigger: 20,
        max_background_jobs: 2,
        max_subcompactions: 1,
        target_file_size_base: budget / 8,
        target_file_size_multiplier: 1,
        max_bytes_for_level_base: budget,
        max_bytes_for_level_multiplier: 10,
        max_compaction_bytes: 0,
        soft_pending_compaction_bytes_limit: (64e9 * scale.factor()) as u64,
        hard_pending_compaction_bytes_limit: (256e9 * scale.factor()) as u64,
        // RocksDB 7 replaces 0 by 2 MiB if reads are direct. One page is what 4.9 read at a time.
        compaction_readahead_size: 4096,
        rate_limiter_bytes_per_sec: 0,
        bloom_bits: 10,
        block_size: 4096,
        block_cache_size: 0,
        bytes_per_sync: 0,
        max_open_files: i32::MAX as u64,
        max_file_opening_threads: 16,
        writable_file_max_buffer_size: 1 << 20,
        optimize_filters_for_hits: false,
        level_compaction_dynamic_level_bytes: false,
        cache_index_and_filter_blocks: false,
        pin_l0_filter_and_index_blocks_in_cache: false,
        disable_auto_compactions: false,
        skip_stats_update_on_db_open: false,
        use_direct_reads: true,
        use_direct_io_for_flush_and_compaction: true,
        compression_per_level: vec![Compression::None],
        row_cache_bytes: 0,
        row_filter_bytes: 0,
        ram_bytes: u64::MAX,
    };
    let setup =
        Setup { options, max_background_compactions: Some(8), memtables: Some([6, 2]), bulk_load: false };
    (setup, Running { io_threads: 8, one_writer: false, chunk: "512KiB".to_owned() })
}

/// Returns our profile with its sizes scaled like the paper's. Values do not compress, so there is
/// no compression to pay for.
fn ours(scale: &Scale) -> anyhow::Result<(Setup, Running)> {
    let factor = (scale.budget_bytes as f64 / PAPER_BUDGET_BYTES as f64).min(1.0);
    let mut options = Options::profile("redis-on-flash")?.scaled(factor);
    options.compression_per_level = vec![Compression::None];
    let setup = Setup { options, max_background_compactions: None, memtables: None, bulk_load: false };
    Ok((setup, Running { io_threads: 8, one_writer: true, chunk: "512KiB".to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale() -> Scale {
        Scale::named("quick").unwrap()
    }

    #[test]
    fn every_side_of_every_knob_is_a_configuration() {
        for base in Base::ALL {
            for knob in &KNOBS {
                let config = Config::new(base, WritePath::Puts);
                let (initial, changed) = (config.with(knob.initial), config.with(knob.changed));
                assert_ne!(initial, changed, "{}", knob.name);
                let [a, b] = [&initial, &changed].map(|side| side.resolve(&scale()).unwrap());
                assert_ne!(a, b, "{}", knob.name);
            }
        }
    }

    #[test]
    fn the_paper_s_baseline_has_the_initial_values_and_ours_the_adopted_triggers() {
        let paper = Config::new(Base::Paper, WritePath::Puts);
        for knob in KNOBS.iter().filter(|knob| knob.name != "direct I/O") {
            assert_eq!(paper.with(knob.initial), paper, "{}", knob.name);
        }
        let ours = Config::new(Base::Ours, WritePath::Ingest);
        assert_eq!(ours.with(knob("triggers 24/40").unwrap().changed), ours);
        let tuned = paper.tuned();
        assert_eq!(tuned.settings["level0_stop_writes_trigger"], "40");
        assert_eq!(tuned.settings["raid_chunk"], "16KiB");
        assert!(!tuned.settings.contains_key("prepare_for_bulk_load"), "{tuned:?}");
    }

    #[test]
    fn sizes_follow_the_scale_and_counts_do_not() {
        let paper = Config::new(Base::Paper, WritePath::Puts);
        let (quick, _) = paper.resolve(&scale()).unwrap();
        let (full, _) = paper.resolve(&Scale { budget_bytes: PAPER_BUDGET_BYTES, ..scale() }).unwrap();
        assert_eq!(full.options.max_bytes_for_level_base, 128 << 20);
        assert_eq!(quick.options.max_bytes_for_level_base, 1 << 20);
        assert_eq!(quick.options.level0_stop_writes_trigger, full.options.level0_stop_writes_trigger);
        assert_eq!(paper.run_bytes(&scale()).unwrap(), 512 << 10, "two memtables are flushed together");
    }
}
