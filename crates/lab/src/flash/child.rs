//! The processes of a run. Each opens one database, does one job, and leaves its results in a file.

use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rocks::bare::Bare;
use serde::{Deserialize, Serialize};

use super::knobs::Config;
use super::loads::{replaced, Measured, Phase, Stage, ABSENT, MIXED, READ_ONLY, REPLICATION, WRITE_ONLY};
use super::places::Meter;
use super::replica::{read_set, receive_all, send_all, SetRead};
use super::scale::Scale;

/// The read-ahead of an iterator over all rows, with and without the knob of compaction's.
const SET_READAHEAD_BYTES: usize = 2 << 20;
/// Percents of values on flash of Fig 7.
pub const ON_FLASH: [u64; 6] = [5, 15, 30, 50, 75, 100];
const PIPE_BYTES: usize = 1 << 20;

/// The work of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// All loads but replication.
    Loads,
    /// Writes all rows.
    Write,
    /// Writes all rows, waits for compaction, and reads present and absent keys.
    Filters,
    /// Sends all rows to standard output.
    Send,
    /// Receives all rows from standard input.
    Receive,
    /// Writes all rows, waits for compaction, and reads them by iterator and by random reads.
    Set,
}

/// The results of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub measured: Measured,
    pub set: Vec<SetRead>,
}

/// Does a job on the database in `dir`, and writes the results to `result`.
pub fn child(job: Job, config: &Config, scale: &Scale, dir: &Path, result: &PathBuf) -> anyhow::Result<()> {
    let (setup, running) = config.resolve(scale)?;
    let bare = Bare::open(dir, &setup)?;
    let meter = Meter::here()?;
    let stage = Stage {
        bare: &bare,
        scale,
        path: config.path,
        running: &running,
        run_bytes: config.run_bytes(scale)?,
        meter: &meter,
    };
    let readahead = (setup.options.compaction_readahead_size as usize).min(SET_READAHEAD_BYTES);
    let before = meter.work()?;
    let mut phases: BTreeMap<String, Phase> = BTreeMap::new();
    let mut keep = |name: &str, phase: Phase| phases.insert(name.to_owned(), phase);
    let (mut set, mut settled_s) = (Vec::new(), 0.0);
    match job {
        Job::Loads => {
            keep(WRITE_ONLY, stage.write_only()?);
            keep(READ_ONLY, stage.read_only()?);
            keep(MIXED, stage.mixed()?);
            settled_s = stage.settle()?;
        }
        Job::Write => {
            keep(WRITE_ONLY, stage.write_only()?);
        }
        Job::Filters => {
            keep(WRITE_ONLY, stage.write_only()?);
            settled_s = stage.settle()?;
            keep(READ_ONLY, stage.read_only()?);
            keep(ABSENT, stage.read_absent()?);
        }
        Job::Send => {
            let mut to = BufWriter::with_capacity(PIPE_BYTES, std::io::stdout().lock());
            send_all(&bare, readahead, &mut to)?;
            to.flush().context("the replica does not take rows")?;
        }
        Job::Receive => {
            let mut from = BufReader::with_capacity(PIPE_BYTES, std::io::stdin());
            keep(REPLICATION, receive_all(&stage, &mut from)?);
        }
        Job::Set => {
            keep(WRITE_ONLY, stage.write_only()?);
            settled_s = stage.settle()?;
            for on_flash in ON_FLASH {
                set.push(read_set(&bare, scale, running.io_threads, readahead, on_flash)?);
            }
        }
    }
    let work = meter.work()?.since(&before);
    let written_rows: u64 = phases
        .iter()
        .map(|(name, phase)| if name == MIXED { phase.operations / 2 } else { phase.operations })
        .sum();
    let written_bytes = (written_rows * scale.row_bytes()) as f64;
    let stats = bare.stats()?;
    let options = bare.options_in_use()?;
    let replaced = if setup.bulk_load { Vec::new() } else { replaced(&setup, &options)? };
    let measured = Measured {
        write_amplification: work.written as f64 / written_bytes.max(1.0),
        read_amplification: work.read as f64 / written_bytes.max(1.0),
        space_amplification: stats.total_sst_bytes as f64 / scale.data_bytes() as f64,
        settled_s,
        files_per_level: stats.files_per_level,
        table_reader_bytes: bare.table_reader_bytes()?,
        phases,
        replaced,
        options,
    };
    let text = serde_json::to_string(&Done { measured, set })?;
    std::fs::write(result, text).with_context(|| format!("{} cannot be written", result.display()))
}

#[cfg(test)]
mod tests {
    use super::super::knobs::{Base, WritePath};
    use super::*;

    fn done(job: Job, config: &Config, dir: &Path) -> Done {
        let result = dir.join("result");
        child(job, config, &Scale::named("smoke").unwrap(), dir, &result).unwrap();
        serde_json::from_str(&std::fs::read_to_string(result).unwrap()).unwrap()
    }

    #[test]
    fn every_load_runs_over_both_paths_and_finds_its_rows() {
        for (base, path) in [(Base::Paper, WritePath::Puts), (Base::Ours, WritePath::Ingest)] {
            let dir = tempfile::tempdir().unwrap();
            // The file system of the test may have no direct I/O.
            let config = Config::new(base, path).with(&[("direct_io", "no")]);
            let done = done(Job::Loads, &config, dir.path());
            let phases = &done.measured.phases;
            assert_eq!(phases[WRITE_ONLY].operations, 3_000);
            assert_eq!(phases[READ_ONLY].operations, 300);
            assert_eq!(phases[MIXED].operations, 300, "{path:?}");
            assert!(phases[READ_ONLY].read_us[1] > 0.0);
            assert!(done.measured.space_amplification >= 1.0, "{:?}", done.measured.space_amplification);
            let used = &done.measured.options;
            let stop = if base == Base::Paper { "20" } else { "40" };
            assert_eq!(used["level0_stop_writes_trigger"], stop);
            assert_eq!(done.measured.replaced, [] as [[String; 3]; 0]);
        }
    }

    #[test]
    fn the_set_is_read_in_both_ways() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new(Base::Paper, WritePath::Puts).with(&[("direct_io", "no")]);
        let done = done(Job::Set, &config, dir.path());
        assert_eq!(done.set.iter().map(|read| read.on_flash).collect::<Vec<_>>(), ON_FLASH);
        assert!(done.set.iter().all(|read| read.iterator_s > 0.0 && read.random_s > 0.0));
    }

    #[test]
    fn a_replica_gets_every_row_once() {
        let scale = Scale::named("smoke").unwrap();
        for path in WritePath::ALL {
            let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let config = Config::new(Base::Ours, path);
            done(Job::Write, &config, dirs[0].path());
            let (setup, running) = config.resolve(&scale).unwrap();
            let [master, replica] = [0, 1].map(|at| Bare::open(dirs[at].path(), &setup).unwrap());
            let mut pipe = Vec::new();
            assert_eq!(send_all(&master, 0, &mut pipe).unwrap(), 3_000);
            let meter = Meter::here().unwrap();
            let run_bytes = config.run_bytes(&scale).unwrap();
            let stage =
                Stage { bare: &replica, scale: &scale, path, running: &running, run_bytes, meter: &meter };
            assert!(receive_all(&stage, &mut &pipe[..1040 * 17]).is_err(), "rows are missing");
            assert_eq!(receive_all(&stage, &mut pipe.as_slice()).unwrap().operations, 3_000);
            let mut copied = Vec::new();
            send_all(&replica, 0, &mut copied).unwrap();
            assert!(copied == pipe, "{path:?}: both have the same rows");
        }
    }
}
