//! The options that a store chooses for its device. They replace those of the profile, and the
//! configuration replaces them. [docs/TUNING.md](../../../docs/TUNING.md) explains them knob by
//! knob.
//!
//! The choice is made at a start, from the measurement in `DIR/CAPABILITY`. A store that has not
//! measured its device yet uses the profile, and chooses at its next start.

use std::fmt;
use std::time::Duration;

use device::Measured;
use rocks::Options;

use crate::config::READER_THREADS_DEFAULT;

const MB: u64 = 1_000_000;

/// Latency of a read from which on a device counts as a disk that seeks.
const SEEKS_FROM: Duration = Duration::from_millis(2);
/// Latency of a read below which waking a thread takes as long as the read.
const FAST_BELOW: Duration = Duration::from_micros(30);

/// Bytes per second that one thread compacts, which is bound by its CPU.
const COMPACTED_BYTES_PER_S: u64 = 100 * MB;
/// Share of the measured write rate that compactions may take, in percent. The rest is for the log
/// and for flushes.
const COMPACTION_PERCENT: f64 = 75.0;
/// Minimum of the rate limit. A limit below it would hinder more than it protects.
const RATE_MIN: u64 = 16 * MB;

/// A value and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub name: &'static str,
    pub value: String,
    pub why: String,
}

/// The known facts of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The measurement of the device; `None` if there is none yet.
    pub measured: Option<&'a Measured>,
    pub cpus: usize,
    /// True if files in the data directory can be read and written past the page cache.
    pub has_direct_io: bool,
}

/// The options that a store uses, as far as it chose them or was told them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tuning {
    /// The profile and the device, in a few words.
    pub about: String,
    pub reader_threads: usize,
    pub choices: Vec<Choice>,
}

impl Tuning {
    /// Chooses options for the machine and sets them in `options`. `told` are those of the
    /// configuration, which stay as they are.
    pub fn choose(
        profile: &str,
        options: &mut Options,
        told: &[(String, String)],
        reader_threads: usize,
        machine: Machine<'_>,
    ) -> Tuning {
        let mut tuning = Tuning {
            about: about(profile, machine),
            reader_threads: if reader_threads > 0 { reader_threads } else { READER_THREADS_DEFAULT },
            choices: Vec::new(),
        };
        if let Some(measured) = machine.measured {
            let (threads, why) = reader_threads_for(measured, machine.cpus);
            match reader_threads {
                0 => {
                    tuning.reader_threads = threads;
                    tuning.note("reader-threads", threads.to_string(), why);
                }
                told => tuning.note("reader-threads", told.to_string(), "configured".into()),
            }
            for (name, value, why) in for_device(options, measured, machine.cpus, profile != "bulk") {
                tuning.set(options, name, value, why);
            }
        }
        let direct = ["use_direct_reads", "use_direct_io_for_flush_and_compaction"];
        for name in direct {
            if options.get(name).as_deref() != Ok("yes") {
                continue;
            }
            match machine.has_direct_io {
                true => {
                    let why = "the profile keeps rows in the store's own caches, not in the page cache";
                    tuning.note(name, "yes".into(), why.into());
                }
                false => {
                    let why = "the file system of the data directory refuses direct I/O";
                    tuning.set(options, name, "no".into(), why.into());
                }
            }
        }
        for (name, value) in told {
            tuning.choices.retain(|choice| choice.name != name);
            if let Some(name) = Options::names().find(|known| known == name) {
                tuning.note(name, value.clone(), "configured".into());
            }
        }
        tuning
    }

    fn note(&mut self, name: &'static str, value: String, why: String) {
        self.choices.push(Choice { name, value, why });
    }

    fn set(&mut self, options: &mut Options, name: &'static str, value: String, why: String) {
        if options.set(name, &value).is_ok() {
            self.note(name, value, why);
        }
    }

    /// Returns the choices in one line, for the log.
    pub fn in_short(&self) -> String {
        let choices: Vec<String> =
            self.choices.iter().map(|choice| format!("{}={}", choice.name, choice.value)).collect();
        choices.join(" ")
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.about)?;
        for Choice { name, value, why } in &self.choices {
            writeln!(f, "  {name:<40} {value:<12} {why}")?;
        }
        Ok(())
    }
}

fn about(profile: &str, machine: Machine<'_>) -> String {
    let cpus = machine.cpus;
    match machine.measured {
        Some(measured) => format!(
            "options: profile {profile}, for a device that writes {} MB/s, syncs in {:?} and reads 4 KiB in {:?}, \
             and {cpus} CPUs",
            measured.write_bytes_per_s as u64 / MB,
            micros(measured.sync_latency),
            micros(measured.read_latency),
        ),
        None => format!(
            "options: profile {profile}; the device was not measured before this start, so the next start \
             chooses for it"
        ),
    }
}

fn micros(time: Duration) -> Duration {
    Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

fn reader_threads_for(measured: &Measured, cpus: usize) -> (usize, String) {
    let read = micros(measured.read_latency);
    if measured.read_latency >= SEEKS_FROM {
        (8, format!("a read takes {read:?}: a disk that seeks serves few requests at once"))
    } else if measured.read_latency < FAST_BELOW {
        let threads = (4 * cpus).clamp(4, READER_THREADS_DEFAULT);
        (threads, format!("a read takes {read:?}, so {cpus} CPUs need few threads to be busy"))
    } else {
        let why = format!("a read takes {read:?}: flash serves about as many requests at once");
        (READER_THREADS_DEFAULT, why)
    }
}

/// Returns the options of RocksDB for the device, with reasons. A store that serves clients
/// protects their reads and the log from compaction.
fn for_device(
    options: &Options,
    measured: &Measured,
    cpus: usize,
    serves: bool,
) -> Vec<(&'static str, String, String)> {
    let write = measured.write_bytes_per_s.max(0.0) as u64;
    let write_mb = write / MB;
    let seeks = measured.read_latency >= SEEKS_FROM;
    let mut choices = Vec::new();
    let mut choose =
        |name: &'static str, value: u64, why: String| choices.push((name, value.to_string(), why));

    // One job is left for flushes of RocksDB's own.
    let busy = write.div_ceil(COMPACTED_BYTES_PER_S) + 1;
    let jobs = busy.min(2 * cpus as u64).clamp(2, options.max_background_jobs.max(2));
    let why = match busy > jobs {
        true => format!(
            "{write_mb} MB/s could use {busy}, but there are {cpus} CPUs, or the profile allows no more"
        ),
        false => format!("a job compacts about 100 MB/s, and the device writes {write_mb} MB/s"),
    };
    choose("max_background_jobs", jobs, why);
    let parts = options.max_subcompactions.min((jobs - 1).max(1));
    choose(
        "max_subcompactions",
        parts,
        "a compaction of level 0 takes at most the jobs that there are".into(),
    );

    if seeks && serves {
        let why = "each file of level 0 may cost a look-up one more seek";
        for (name, most, now) in [
            ("level0_slowdown_writes_trigger", 12, options.level0_slowdown_writes_trigger),
            ("level0_stop_writes_trigger", 20, options.level0_stop_writes_trigger),
        ] {
            choose(name, most.min(now), why.into());
        }
    }
    let readahead = match () {
        () if seeks => 2 * options.compaction_readahead_size,
        () if measured.read_latency < FAST_BELOW => options.compaction_readahead_size.min(512 << 10),
        () => options.compaction_readahead_size,
    };
    let why = match () {
        () if seeks => "a seek costs as much as reading megabytes",
        () if measured.read_latency < FAST_BELOW => {
            "reads are fast, and every file of a compaction has a buffer"
        }
        () => "a compaction reads in order, and large reads keep flash busy",
    };
    choose("compaction_readahead_size", readahead, why.into());

    let rate = (write as f64 * COMPACTION_PERCENT / 100.0) as u64;
    if rate >= RATE_MIN && serves {
        let why = format!("three quarters of {write_mb} MB/s; the log and flushes keep the rest");
        choose("rate_limiter_bytes_per_sec", rate, why);
    }
    choices
}

#[cfg(test)]
mod tests {
    use device::Profile;

    use super::*;

    fn measured(profile: &str) -> Measured {
        Measured::stated(&profile.parse::<Profile>().unwrap())
    }

    fn choose(measured: Option<&Measured>, told: &[(&str, &str)], has_direct_io: bool) -> (Options, Tuning) {
        let mut options = Options::profile("redis-on-flash").unwrap();
        let told: Vec<_> = told.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let machine = Machine { measured, cpus: 8, has_direct_io };
        let tuning = Tuning::choose("redis-on-flash", &mut options, &told, 0, machine);
        (options, tuning)
    }

    #[test]
    fn a_faster_device_gets_more_compaction_and_a_disk_that_seeks_shorter_level_0() {
        let (ssd, disk, nvm) = (
            measured("write=500MB/s,read=550MB/s,sync=1ms,read-latency=80us"),
            measured("write=150MB/s,read=150MB/s,sync=8ms,read-latency=8ms"),
            measured("nvm"),
        );
        let of = |measured| choose(Some(measured), &[], true);
        let ((on_ssd, ssd), (on_disk, disk), (on_nvm, nvm)) = (of(&ssd), of(&disk), of(&nvm));
        assert_eq!((on_ssd.max_background_jobs, on_disk.max_background_jobs), (6, 3));
        assert_eq!(on_nvm.max_background_jobs, 16, "two for each CPU");
        assert_eq!((ssd.reader_threads, disk.reader_threads, nvm.reader_threads), (32, 8, 32));
        assert_eq!((on_ssd.level0_stop_writes_trigger, on_disk.level0_stop_writes_trigger), (40, 20));
        assert_eq!(on_ssd.rate_limiter_bytes_per_sec, 375_000_000);
        let readahead = [&on_disk, &on_ssd, &on_nvm].map(|options| options.compaction_readahead_size >> 10);
        assert_eq!(readahead, [4096, 2048, 512]);
        assert!(ssd
            .to_string()
            .contains("max_background_jobs                      6            a job compacts"));
        for options in [on_ssd, on_disk, on_nvm] {
            assert_eq!(options.check(), Ok(()));
        }
    }

    #[test]
    fn what_is_configured_or_not_measured_is_not_chosen() {
        let (options, tuning) = choose(None, &[], true);
        let direct =
            |options: &Options| options.use_direct_reads && options.use_direct_io_for_flush_and_compaction;
        assert_eq!(options, Options::profile("redis-on-flash").unwrap());
        assert!(direct(&options) && tuning.about.contains("next start"), "{tuning}");
        let ssd = measured("plain-ssd");
        let (options, tuning) = choose(Some(&ssd), &[("max_background_jobs", "3")], false);
        assert!(!options.use_direct_reads && !options.use_direct_io_for_flush_and_compaction);
        let of = |name: &str| tuning.choices.iter().filter(|choice| choice.name == name).collect::<Vec<_>>();
        let jobs = of("max_background_jobs");
        assert!(jobs.len() == 1 && jobs[0].why == "configured" && jobs[0].value == "3");
        assert!(of("use_direct_reads")[0].why.contains("refuses direct I/O"));
    }
}
