//! An ext4 with a journal in an image file, mounted through a loop device.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context};
use lab::peers::servers::installed;

/// Bytes of the image. A measurement of the log needs less than 300 MB.
const IMAGE_BYTES: u64 = 1 << 30;
/// The usual place of the program. A PATH may lack it.
const MKFS: &str = "/usr/sbin/mkfs.ext4";
const PART: usize = 1 << 20;

/// A mounted file system. Dropping it unmounts it and removes the image.
pub struct Mount {
    dir: PathBuf,
    image: PathBuf,
    is_mounted: bool,
}

impl Mount {
    /// Makes the image in `parent` and mounts it there. Needs root, `mkfs.ext4` and loop devices.
    pub fn new(parent: &Path) -> anyhow::Result<Mount> {
        let elsewhere = || Some(PathBuf::from(MKFS)).filter(|path| path.is_file());
        let mkfs = installed("mkfs.ext4").or_else(elsewhere).context("mkfs.ext4 is not installed")?;
        let mut mount =
            Mount { dir: parent.join("loop-ext4"), image: parent.join("loop-ext4.img"), is_mounted: false };
        std::fs::create_dir_all(&mount.dir)?;
        // The image has no holes, so that a write in it needs no block of the file system below.
        let mut file = File::create(&mount.image)?;
        let zeros = vec![0; PART];
        for _ in 0..IMAGE_BYTES / PART as u64 {
            file.write_all(&zeros).context("the image cannot be written")?;
        }
        file.sync_all()?;
        run(Command::new(mkfs)
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-O", "has_journal"])
            .arg(&mount.image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&mount.image).arg(&mount.dir))?;
        mount.is_mounted = true;
        Ok(mount)
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted {
            // A measurement that was cut short may still use the file system. It then goes when the
            // last file is closed.
            let unmount = run(Command::new("umount").arg(&self.dir))
                .or_else(|_| run(Command::new("umount").arg("--lazy").arg(&self.dir)));
            if let Err(error) = unmount {
                super::say(&format!("{} is still mounted: {error:#}", self.dir.display()));
            }
        }
        let _ = std::fs::remove_file(&self.image);
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = client::process::output(command).with_context(|| format!("{name} cannot be run"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
