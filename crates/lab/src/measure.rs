//! Measurements of the machine: CPU time of processes, and the disk's sync time.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use client::latency::histogram;
use hdrhistogram::Histogram;

/// Returns the user and system time of all threads of a process. `None` if the process has ended.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_cpu_ticks(&stat).map(|ticks| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Returns the user and system time of this process and of all running processes that descend from
/// it.
pub fn family_cpu_time() -> Option<Duration> {
    let mut parents: BTreeMap<u32, u32> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may have ended after the directory was read.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        parents.extend(parse_parent(&stat).map(|parent| (pid, parent)));
    }
    let own = std::process::id();
    let descends = |pid: &u32| {
        let line = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied());
        // No line of parents is longer than the number of processes.
        line.take(parents.len() + 1).any(|pid| pid == own)
    };
    Some(parents.keys().filter(|pid| descends(pid)).filter_map(|pid| cpu_time(*pid)).sum())
}

/// Returns the user and system time of the children of this process that have ended.
pub fn ended_children_cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    // Fields 16 and 17 of proc(5).
    let ticks: u64 =
        after_name.split_ascii_whitespace().skip(13).take(2).map(|field| field.parse().unwrap_or(0)).sum();
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

fn parse_parent(stat: &str) -> Option<u32> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// USER_HZ, which is always 100 in Linux's interface to user space.
const TICKS_PER_SECOND: u64 = 100;

fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may contain spaces and parentheses.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    // Fields 14 and 15 of proc(5). The first field after the name is number 3.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Returns CPU times of a process by thread name. Of threads that share a name, the busiest one
/// counts. `None` if the process has ended.
pub fn threads_cpu_time(pid: u32) -> Option<BTreeMap<String, Duration>> {
    let mut times: BTreeMap<String, Duration> = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // A thread may have ended after the directory was read.
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((name, ticks)) = thread_name(&stat).zip(parse_cpu_ticks(&stat)) else { continue };
        let time = times.entry(name.to_owned()).or_default();
        *time = (*time).max(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND));
    }
    Some(times)
}

fn thread_name(stat: &str) -> Option<&str> {
    stat.get(stat.find('(')? + 1..stat.rfind(')')?)
}

/// Returns the time that all CPUs were busy since the machine started, including time that a
/// hypervisor took.
pub fn machine_busy_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    parse_busy_ticks(&stat).map(|ticks| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Parses `cpu user nice system idle iowait irq softirq steal guest ...`. The time of guests is
/// part of user already.
fn parse_busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let idle = fields.get(3)? + fields.get(4)?;
    Some(fields.iter().take(8).sum::<u64>() - idle)
}

/// Measures the disk's sync time in microseconds: overwrites 4 KiB of a written file, then calls
/// `fdatasync`.
pub fn fdatasync_micros(dir: &Path, rounds: usize) -> io::Result<Histogram<u64>> {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 256;
    let path = dir.join("fdatasync-probe");
    let file: File = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    let result = (|| {
        file.write_all_at(&[0u8; BLOCK * BLOCKS], 0)?;
        file.sync_all()?;
        let mut times = histogram();
        for round in 0..rounds {
            let block = [round as u8 | 1; BLOCK];
            file.write_all_at(&block, ((round % BLOCKS) * BLOCK) as u64)?;
            let started = Instant::now();
            file.sync_data()?;
            times.saturating_record(started.elapsed().as_micros() as u64);
        }
        Ok(times)
    })();
    let _ = std::fs::remove_file(&path);
    result
}

/// Returns the middle value, or the mean of the two middle values of an even number. 0 for no
/// values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// A value over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Returns the spread of the values, or `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some(Spread { median: median(values), least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_found_after_any_process_name() {
        let stat = "12 (a) b (c)) S 1 12 12 0 -1 4194560 1 2 3 4 70 30 5 6 20 0 1 0 99 1 1";
        assert_eq!(parse_cpu_ticks(stat), Some(100));
        assert!(cpu_time(std::process::id()).is_some());
        assert_eq!(parse_cpu_ticks("garbage"), None);
        assert_eq!(thread_name(stat), Some("a) b (c)"));
        assert!(!threads_cpu_time(std::process::id()).unwrap().is_empty());
    }

    #[test]
    fn the_time_of_a_child_counts_for_the_family() {
        assert_eq!(parse_parent("12 (a) b (c)) S 7 12 12 0"), Some(7));
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = family_cpu_time().unwrap();
        while cpu_time(child.id()).unwrap() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let spent = family_cpu_time().unwrap() - before;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(spent >= Duration::from_millis(30), "{spent:?}");
        assert!(
            ended_children_cpu_time().unwrap() >= Duration::from_millis(30),
            "it counts after its end, too"
        );
    }

    #[test]
    fn idle_cpus_are_not_busy() {
        let stat = "cpu  10 2 8 1000 50 1 4 5 3 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_busy_ticks(stat), Some(10 + 2 + 8 + 1 + 4 + 5));
        assert!(machine_busy_time().is_some());
    }

    #[test]
    fn the_sync_probe_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(fdatasync_micros(dir.path(), 3).unwrap().len(), 3);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn medians() {
        assert_eq!(
            [median(&[]), median(&[3.0]), median(&[3.0, 1.0]), median(&[9.0, 1.0, 2.0])],
            [0.0, 3.0, 2.0, 2.0]
        );
    }
}
