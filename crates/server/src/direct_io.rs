//! A test for direct I/O: reads and writes of files past the page cache.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Returns true if the file system of the directory accepts `O_DIRECT`. Some file systems in RAM
/// refuse it.
pub fn is_possible(dir: &Path) -> bool {
    let path = dir.join(format!(".steelyard-direct-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_DIRECT);
    let opened = options.open(&path).is_ok();
    let _ = fs::remove_file(&path);
    opened
}
