//! Directories of logs, for several test programs.

// Each test program uses only a part.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// Returns a copy of the files as a process killed at this moment leaves them.
pub fn crash_copy(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// Returns the paths of the segments in `dir`, sorted.
pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "segment")).collect();
    segments.sort();
    segments
}
