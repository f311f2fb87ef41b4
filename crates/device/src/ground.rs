//! The block devices behind a directory and the boot of the host, as the kernel reports them.
//!
//! ```text
//! st_dev of the directory ─▶ /sys/dev/block/MAJ:MIN ─▶ the disk of a partition
//!                                                   ─▶ the disks below a volume (dm, md)
//! ```
//!
//! So two volumes on one disk are the same device, and a volume over two disks is another device
//! than a volume over one of them. A file system without a block device (tmpfs, overlay, network,
//! btrfs, ZFS) is identified by `st_dev` alone. So two directories on two overlays of one disk are
//! not recognised as sharing it. An emulated device is identified by its control block.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Maximum number of volume layers that are followed.
const LAYERS_MAX: usize = 8;
/// Bytes per unit of a block device's `size`, whatever its sector size.
const SECTOR: u64 = 512;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// The boot identifier: the same for all containers of the host, and different after every
    /// boot. Empty if unknown.
    pub boot_id: String,
    pub device: Underlying,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Underlying {
    /// The disks, ordered by name. At least one.
    Disks {
        disks: Vec<Disk>,
    },
    /// `number` is `MAJ:MIN`, which the kernel assigns at every mount.
    FileSystem {
        number: String,
    },
    Emulated {
        control: PathBuf,
    },
}

/// A block device. A field that the kernel does not report is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Disk {
    pub name: String,
    /// `MAJ:MIN`, which may belong to another disk after the next boot.
    pub number: String,
    pub model: String,
    /// The serial number, which is unique to this disk.
    pub serial: String,
    pub wwid: String,
    pub bytes: u64,
}

impl Ground {
    /// Reads the ground of `dir`. `control` is the control block if `dir` is on an emulated device.
    pub fn read(dir: &Path, control: Option<&Path>) -> io::Result<Ground> {
        Ground::read_under(Path::new("/"), fs::metadata(dir)?.dev(), control)
    }

    /// Same with `root` as the directory that contains `proc` and `sys`.
    fn read_under(root: &Path, dev: u64, control: Option<&Path>) -> io::Result<Ground> {
        let boot_id = text(&root.join("proc/sys/kernel/random/boot_id"));
        let device = match control {
            Some(control) => {
                Underlying::Emulated { control: fs::canonicalize(control).unwrap_or(control.to_owned()) }
            }
            None => {
                let number = format!("{}:{}", libc::major(dev), libc::minor(dev));
                let mut disks = BTreeSet::new();
                if let Ok(block) = fs::canonicalize(root.join("sys/dev/block").join(&number)) {
                    find_disks(&block, LAYERS_MAX, &mut disks)?;
                }
                match disks.is_empty() {
                    true => Underlying::FileSystem { number },
                    false => Underlying::Disks { disks: disks.into_iter().collect() },
                }
            }
        };
        Ok(Ground { boot_id, device })
    }

    /// Returns true if the directory is on another device than `self`, as far as the kernel reports
    /// it. Then measurements taken on `self` do not apply to `now`. A reboot alone makes no
    /// difference.
    pub fn is_another_device(&self, now: &Ground) -> bool {
        let same_boot = !self.boot_id.is_empty() && self.boot_id == now.boot_id;
        match (&self.device, &now.device) {
            (Underlying::Disks { disks }, Underlying::Disks { disks: others }) => {
                let mut left: Vec<&Disk> = others.iter().collect();
                disks.len() != others.len()
                    || !disks.iter().all(|disk| {
                        let at = left.iter().position(|other| disk.is_same(other, same_boot));
                        at.map(|at| left.swap_remove(at)).is_some()
                    })
            }
            (Underlying::Emulated { control }, Underlying::Emulated { control: other }) => control != other,
            // The number changes with every mount, and so with every start of a container.
            (Underlying::FileSystem { .. }, Underlying::FileSystem { .. }) => false,
            _ => true,
        }
    }

    /// Returns a key that differs between any two devices of one host at one time. `None` if the
    /// host is unknown.
    pub fn device_key(&self) -> Option<String> {
        let device = match &self.device {
            Underlying::Disks { disks } => {
                let numbers: Vec<&str> = disks.iter().map(|disk| disk.number.as_str()).collect();
                format!("disks {}", numbers.join(" "))
            }
            Underlying::FileSystem { number } => format!("file system {number}"),
            Underlying::Emulated { control } => format!("emulated {}", control.display()),
        };
        Some(format!("{} {device}", self.host_key()?))
    }

    /// Returns the key of the host, or `None` if it is unknown.
    pub fn host_key(&self) -> Option<&str> {
        Some(self.boot_id.as_str()).filter(|id| !id.is_empty())
    }
}

/// Returns the bytes that an unprivileged process may still write to the file system of `dir`.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    let answer = rustix::fs::statvfs(dir)?;
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

impl std::fmt::Display for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.device {
            Underlying::Disks { disks } => {
                for (at, disk) in disks.iter().enumerate() {
                    let Disk { name, model, serial, .. } = disk;
                    let words = [name.as_str(), model, serial].into_iter().filter(|word| !word.is_empty());
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{}", words.collect::<Vec<_>>().join(" "))?;
                }
                Ok(())
            }
            Underlying::FileSystem { number } => write!(f, "a file system without a disk ({number})"),
            Underlying::Emulated { control } => write!(f, "the emulated device {}", control.display()),
        }
    }
}

impl Disk {
    fn is_same(&self, other: &Disk, same_boot: bool) -> bool {
        let named = [(&self.serial, &other.serial), (&self.wwid, &other.wwid)];
        match named.into_iter().find(|(one, other)| !one.is_empty() && !other.is_empty()) {
            Some((one, other)) => one == other,
            // Within one boot a number identifies a disk. Across boots only the model and the size
            // are comparable.
            None if same_boot => self.number == other.number,
            None => (&self.model, self.bytes) == (&other.model, other.bytes),
        }
    }
}

/// Adds the disks below `block`, the directory of a block device in `sys/devices`.
fn find_disks(block: &Path, layers: usize, found: &mut BTreeSet<Disk>) -> io::Result<()> {
    let whole = match (block.join("partition").exists(), block.parent()) {
        (true, Some(disk)) => disk,
        _ => block,
    };
    let mut below = Vec::new();
    match fs::read_dir(whole.join("slaves")) {
        Ok(slaves) => {
            for slave in slaves {
                below.push(fs::canonicalize(slave?.path())?);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if below.is_empty() || layers == 0 {
        found.insert(disk(whole));
        return Ok(());
    }
    below.iter().try_for_each(|slave| find_disks(slave, layers - 1, found))
}

fn disk(block: &Path) -> Disk {
    let first = |files: &[&str]| {
        files.iter().map(|file| text(&block.join(file))).find(|text| !text.is_empty()).unwrap_or_default()
    };
    Disk {
        name: block.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        number: first(&["dev"]),
        model: first(&["device/model"]),
        serial: first(&["device/serial", "serial"]),
        wwid: first(&["wwid", "device/wwid"]),
        bytes: first(&["size"]).parse::<u64>().unwrap_or(0).saturating_mul(SECTOR),
    }
}

/// Returns the content of a file, or an empty text if it cannot be read. Kernels and containers
/// differ in what they report.
fn text(file: &Path) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
