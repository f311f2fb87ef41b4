//! The devices on which the runs are made, and the work that a run gives them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use device::{Control, Profile};
use serde::{Deserialize, Serialize};

/// A device, or an array of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    Sata,
    Nvme,
    Disk,
}

impl Place {
    pub const ALL: [Place; 3] = [Place::Sata, Place::Nvme, Place::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Place::Sata => "sata",
            Place::Nvme => "nvme",
            Place::Disk => "disk",
        }
    }

    pub fn named(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|place| place.name() == name)
    }

    /// Returns the description of the emulated device, with the chunk of its array. `None` for the
    /// real disk.
    ///
    /// The arrays stand for the paper's (§3): eight SATA SSDs with 32 vCPUs, and eight NVMe SSDs
    /// with as many. Bandwidths are a sixteenth of those of `plain-ssd` and `high-end-ssd`, as two
    /// CPUs are of 32. Latencies are not scaled. The latency of a read from NVMe flash is ten times
    /// that of `high-end-ssd`, which is no flash.
    pub fn description(self, chunk: &str) -> Option<String> {
        let one = match self {
            Place::Sata => "write=31.25MB/s,read=34.375MB/s,sync=1ms,read-latency=80us",
            Place::Nvme => "write=125MB/s,read=156.25MB/s,sync=20us,read-latency=100us",
            Place::Disk => return None,
        };
        Some(format!("{one},array=8:{chunk}"))
    }

    /// Returns the bytes per second that all devices of the place write and read, each alone.
    pub fn limits(self) -> Option<[f64; 2]> {
        let profile: Profile = self.description("16KiB")?.parse().expect("the description is constant");
        let all = profile.as_tested(u64::MAX);
        Some([all.write_bytes_per_s as f64, all.read_bytes_per_s as f64])
    }
}

/// The work of a device since it was made, or of a process on a real disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub written: u64,
    pub read: u64,
    pub syncs: u64,
    pub range_syncs: u64,
    pub range_sync_bytes: u64,
}

impl Work {
    pub fn since(&self, before: &Work) -> Work {
        Work {
            written: self.written.saturating_sub(before.written),
            read: self.read.saturating_sub(before.read),
            syncs: self.syncs.saturating_sub(before.syncs),
            range_syncs: self.range_syncs.saturating_sub(before.range_syncs),
            range_sync_bytes: self.range_sync_bytes.saturating_sub(before.range_sync_bytes),
        }
    }
}

/// The meter of the device that a process is on.
pub enum Meter {
    Emulated(Box<Control>),
    /// The kernel's counters of this process. They have no syncs.
    Process,
}

impl Meter {
    /// Returns the meter of this process: of the emulated device that its environment names, or of
    /// the process itself.
    pub fn here() -> anyhow::Result<Meter> {
        match std::env::var_os(device::DEVICE_ENV).filter(|named| !named.is_empty()) {
            Some(path) => Ok(Meter::Emulated(Box::new(Control::open(&PathBuf::from(path))?))),
            None => Ok(Meter::Process),
        }
    }

    pub fn work(&self) -> anyhow::Result<Work> {
        match self {
            Meter::Emulated(control) => {
                let stats = control.stats();
                Ok(Work {
                    written: stats.bytes_written,
                    read: stats.bytes_read,
                    syncs: stats.syncs,
                    range_syncs: stats.range_syncs,
                    range_sync_bytes: stats.range_sync_bytes,
                })
            }
            Meter::Process => {
                let text = fs::read_to_string("/proc/self/io").context("the process's bytes")?;
                let count = |name: &str| {
                    let line = text.lines().find_map(|line| line.strip_prefix(name));
                    anyhow::Ok(line.context("bytes are counted")?.trim().parse::<u64>()?)
                };
                let (written, read) = (count("write_bytes: ")?, count("read_bytes: ")?);
                Ok(Work { written, read, ..Work::default() })
            }
        }
    }
}

/// Returns the device's seconds that some work needs, if reads and writes take turns.
pub fn busy_seconds(place: Place, work: &Work) -> Option<f64> {
    let [write, read] = place.limits()?;
    Some(work.written as f64 / write + work.read as f64 / read)
}

/// Returns a new emulated device in `dir`, and the directory whose files are on it.
pub fn emulate(dir: &Path, name: &str, description: &str) -> anyhow::Result<(Control, PathBuf)> {
    let root = dir.join(name);
    fs::create_dir_all(&root)?;
    let profile: Profile = description.parse()?;
    Ok((Control::create(&dir.join(format!("{name}.device")), &profile, 1.0)?, root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulated_places_are_arrays_of_eight() {
        for place in [Place::Sata, Place::Nvme] {
            let profile: Profile = place.description("512KiB").unwrap().parse().unwrap();
            assert_eq!(profile.array.unwrap().devices, 8);
            assert_eq!(Place::named(place.name()), Some(place));
        }
        assert_eq!(Place::Sata.limits().unwrap(), [250e6, 275e6]);
        assert!(Place::Disk.limits().is_none());
        let work = Work { written: 250_000_000, read: 275_000_000, ..Work::default() };
        assert_eq!(busy_seconds(Place::Sata, &work), Some(2.0));
    }
}
