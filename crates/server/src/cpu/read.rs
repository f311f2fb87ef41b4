//! The kernel's counters of CPU time.
//!
//! The process may use the CPUs of its affinity, or the part of them that a quota of its control
//! group, or of one above it, allows. Without a quota, the time of these CPUs counts for all
//! processes (`/proc/stat`; stolen time counts as used, waiting for a device does not). With a
//! quota, the group's time (`cpu.stat`) counts against its quota (`cpu.max`). Quotas of version 1
//! groups are not read: if there may be one, the load is unknown.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use super::Counters;

/// Length of a tick in `/proc/stat`, in nanoseconds: a hundredth of a second, whatever the kernel's
/// own tick.
const TICK_NANOS: u64 = 10_000_000;

/// The directories of the kernel's files.
pub struct Source {
    proc: PathBuf,
    cgroups: PathBuf,
    began: Instant,
}

impl Source {
    pub fn of_this_process() -> Source {
        Source { proc: "/proc".into(), cgroups: "/sys/fs/cgroup".into(), began: Instant::now() }
    }

    #[cfg(test)]
    pub fn at(root: &std::path::Path) -> Source {
        Source { proc: root.join("proc"), cgroups: root.join("cgroup"), began: Instant::now() }
    }

    /// Returns the counters; `None` if the kernel does not report them.
    pub fn read(&self) -> Option<Counters> {
        let text = |path: &str| fs::read_to_string(self.proc.join(path)).ok();
        let status = text("self/status")?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let (allowed, used, available) = ticks(&text("stat")?, &cpus(allowed.trim())?)?;
        let own_nanos = own_nanos();
        // Without a boot id two machines could not be distinguished, so the machine stays unnamed.
        let boot = text("sys/kernel/random/boot_id").unwrap_or_default();
        let named = |place: String| {
            if boot.is_empty() {
                0
            } else {
                xxh3_64((boot.clone() + &place).as_bytes()).max(1)
            }
        };
        let groups = text("self/cgroup").unwrap_or_default();
        let group = groups.lines().find_map(|line| line.strip_prefix("0::")).map(|path| self.tightest(path));
        if let Some(Quota { dir, cores }) = group.flatten().filter(|quota| quota.cores < allowed.len() as f64)
        {
            let used = fs::read_to_string(dir.join("cpu.stat")).ok()?;
            // A group has one inode on a machine, whatever path leads to it.
            let place = format!("group {}", fs::metadata(&dir).ok()?.ino());
            return Some(Counters {
                cores,
                machine: named(place),
                used_nanos: usage_nanos(&used)?,
                available_nanos: (self.began.elapsed().as_secs_f64() * cores * 1e9) as u64,
                own_nanos,
            });
        }
        if has_quota_unread(&groups, allowed.len()) {
            return None;
        }
        Some(Counters {
            cores: allowed.len() as f64,
            machine: named(format!("cpus {allowed:?}")),
            used_nanos: used * TICK_NANOS,
            available_nanos: available * TICK_NANOS,
            own_nanos,
        })
    }

    /// Returns the smallest quota of the group and the groups above it, if any has one.
    fn tightest(&self, group: &str) -> Option<Quota> {
        let dir = self.cgroups.join(group.trim_start_matches('/'));
        let dirs = dir.ancestors().take_while(|dir| dir.starts_with(&self.cgroups));
        let quotas = dirs.filter_map(|dir| {
            let cores = quota(&fs::read_to_string(dir.join("cpu.max")).ok()?)?;
            Some(Quota { dir: dir.to_path_buf(), cores })
        });
        quotas.min_by(|one, other| one.cores.total_cmp(&other.cores))
    }
}

struct Quota {
    dir: PathBuf,
    cores: f64,
}

/// Returns true if a quota that is not read here leaves the process fewer cores than its affinity.
/// The standard library also reads quotas of version 1 groups.
fn has_quota_unread(groups: &str, allowed: usize) -> bool {
    let is_v1 = groups.lines().any(|line| {
        let controllers = line.split(':').nth(1).unwrap_or_default();
        controllers.split(',').any(|controller| controller == "cpu")
    });
    is_v1 && std::thread::available_parallelism().is_ok_and(|cores| cores.get() < allowed)
}

/// Returns the CPU time that this process has used in all threads.
fn own_nanos() -> u64 {
    crate::clock::process_cpu_time().as_nanos() as u64
}

/// Returns the CPU time that this process has used outside and inside the kernel.
pub fn own_times() -> (Duration, Duration) {
    fs::read_to_string("/proc/self/stat").ok().and_then(|text| times(&text)).unwrap_or_default()
}

/// Parses the times of `/proc/PID/stat`. The name before them may contain anything.
fn times(text: &str) -> Option<(Duration, Duration)> {
    const USER_AT: usize = 11;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(USER_AT);
    let mut time =
        || Some(Duration::from_nanos(fields.next()?.parse::<u64>().ok()?.checked_mul(TICK_NANOS)?));
    Some((time()?, time()?))
}

/// Parses a list like `0-3,8`.
fn cpus(list: &str) -> Option<BTreeSet<u32>> {
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = BTreeSet::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Returns the CPUs found, their used ticks and all their ticks. A line is `cpu0 user nice system
/// idle iowait irq softirq steal guest guest_nice`, where the last two are included in the first
/// two. An affinity may name CPUs that do not exist.
fn ticks(stat: &str, allowed: &BTreeSet<u32>) -> Option<(BTreeSet<u32>, u64, u64)> {
    let (mut used, mut available, mut seen) = (0u64, 0u64, BTreeSet::new());
    for line in stat.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let (name, counters) = rest.split_once(' ')?;
        let Ok(cpu) = name.parse::<u32>() else { continue };
        if !allowed.contains(&cpu) {
            continue;
        }
        let counters: Option<Vec<u64>> =
            counters.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        let counters = counters.filter(|counters| counters.len() >= 4)?;
        let all: u64 = counters.iter().take(8).sum();
        let idle: u64 = counters.iter().skip(3).take(2).sum();
        (used, available) = (used + (all - idle), available + all);
        seen.insert(cpu);
    }
    (!seen.is_empty()).then_some((seen, used, available))
}

/// Parses `QUOTA PERIOD` in microseconds into cores. Returns `None` for `max`, which is no quota.
fn quota(text: &str) -> Option<f64> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<f64>().ok());
    let (quota, period) = (numbers.next()??, numbers.next()??);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn usage_nanos(stat: &str) -> Option<u64> {
    let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    micros.trim().parse::<u64>().ok().map(|micros| micros * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  900 9 90 9000 0 0 0 0 0 0\n\
        cpu0 100 10 20 800 50 3 4 5 60 6\n\
        cpu1 200 0 0 700 0 0 0 0 0 0\n\
        cpu10 7 0 0 7\n\
        intr 1 2 3\n";

    /// A `/proc` and a tree of control groups.
    struct Kernel(tempfile::TempDir);

    impl Kernel {
        fn new(files: &[(&str, &str)]) -> Kernel {
            let kernel = Kernel(tempfile::tempdir().unwrap());
            kernel.put("proc/stat", STAT);
            kernel.put("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n");
            kernel.put("proc/sys/kernel/random/boot_id", "a-boot\n");
            files.iter().for_each(|(path, text)| kernel.put(path, text));
            kernel
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn read(&self) -> Option<Counters> {
            Source::at(self.0.path()).read()
        }
    }

    #[test]
    fn a_list_of_cpus_is_read() {
        assert_eq!(cpus("0-2,8"), Some(BTreeSet::from([0, 1, 2, 8])));
        assert_eq!(cpus("5"), Some(BTreeSet::from([5])));
        for wrong in ["", "a", "1-", "0-4294967295"] {
            assert_eq!(cpus(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn time_of_the_cpus_that_may_be_used_counts_and_waiting_for_a_device_is_no_use() {
        let of = |cpus: &[u32]| {
            let told = ticks(STAT, &cpus.iter().copied().collect());
            told.map(|(cpus, used, available)| (cpus.len(), used, available))
        };
        // Guest time is included in user and nice.
        assert_eq!(of(&[0]), Some((1, 142, 992)));
        assert_eq!(of(&[0, 1]), Some((2, 342, 1892)));
        assert_eq!(of(&[10]), Some((1, 7, 14)), "an old kernel");
        assert_eq!(of(&[0, 3]), Some((1, 142, 992)), "a CPU that is not there");
        assert_eq!(of(&[3]), None);
        assert_eq!(ticks("cpu0 1 x 3 4", &BTreeSet::from([0])), None);
    }

    #[test]
    fn without_a_quota_the_machine_is_told() {
        let kernel = Kernel::new(&[("proc/self/cgroup", "0::/a\n"), ("cgroup/a/cpu.max", "max 100000\n")]);
        let told = kernel.read().unwrap();
        assert_eq!((told.cores, told.used_nanos, told.available_nanos), (2.0, 3_420_000_000, 18_920_000_000));
        let none = Kernel::new(&[]).read().unwrap();
        assert_eq!(
            (none.cores, none.machine),
            (2.0, told.machine),
            "the same boot and CPUs are the same machine"
        );
        assert_ne!(told.machine, 0);
        kernel.put("proc/sys/kernel/random/boot_id", "another\n");
        assert_ne!(kernel.read().unwrap().machine, told.machine);
        kernel.put("proc/sys/kernel/random/boot_id", "");
        assert_eq!(kernel.read().unwrap().machine, 0, "not known");
    }

    #[test]
    fn the_tightest_quota_of_the_groups_counts() {
        let kernel = Kernel::new(&[
            ("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n"),
            ("cgroup/a/b/cpu.max", "150000 100000\n"),
            ("cgroup/a/b/cpu.stat", "usage_usec 7\nuser_usec 5\n"),
            ("cgroup/a/cpu.max", "50000 100000\n"),
            ("cgroup/a/cpu.stat", "usage_usec 11\nuser_usec 5\n"),
        ]);
        let told = kernel.read().unwrap();
        assert_eq!((told.cores, told.used_nanos), (0.5, 11_000));
        kernel.put("cgroup/a/cpu.max", "max 100000\n");
        let inner = kernel.read().unwrap();
        assert_eq!((inner.cores, inner.used_nanos), (1.5, 7_000));
        assert_ne!(inner.machine, told.machine, "another group has other cores");
        kernel.put("cgroup/a/b/cpu.max", "800000 100000\n");
        assert_eq!(kernel.read().unwrap().cores, 2.0, "a quota above the affinity is none");
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_not_known() {
        for (path, text) in [("proc/stat", ""), ("proc/self/status", ""), ("proc/stat", "cpu7 1 2 3 4\n")] {
            assert_eq!(Kernel::new(&[(path, text)]).read(), None, "{path}: {text}");
        }
        let quota = [("proc/self/cgroup", "0::/\n"), ("cgroup/cpu.max", "50000 100000\n")];
        assert_eq!(Kernel::new(&quota).read(), None, "a group that does not report its time");
    }

    #[test]
    fn this_machine_tells() {
        let source = Source::of_this_process();
        let (one, mut sum) = (source.read().expect("Linux tells"), 0u64);
        while own_nanos() < one.own_nanos + 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        let other = source.read().unwrap();
        assert_eq!((one.cores, one.machine), (other.cores, other.machine));
        assert!(other.own_nanos >= one.own_nanos + 20_000_000);
        assert!(other.used_nanos >= one.used_nanos && other.available_nanos >= one.available_nanos);
    }
}
