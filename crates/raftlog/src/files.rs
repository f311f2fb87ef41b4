//! The engine's files seen from outside: what it would pass over in silence.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{LogError, Result};

const APPENDED: &str = "raftlog";
const REWRITTEN: &str = "rewrite";

/// The file that is being appended to, as it was before recovery cut it. At most a little over the target
/// file size.
pub(crate) struct Newest {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Refuses a directory in which a file is missing between others, of which the engine would drop all
/// before the gap. Gives the newest file, whose tail recovery may cut.
pub(crate) fn check(dir: &Path) -> Result<Option<Newest>> {
    let failed = |error: io::Error| LogError::Device(format!("{}: {error}", dir.display()));
    let mut appended = Vec::new();
    let mut rewritten = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        match (number, path.extension().and_then(|extension| extension.to_str())) {
            (Some(number), Some(APPENDED)) => appended.push((number, path)),
            (Some(number), Some(REWRITTEN)) => rewritten.push((number, path)),
            _ => {}
        }
    }
    for files in [&mut appended, &mut rewritten] {
        files.sort();
        if let Some(gap) = files.windows(2).find(|pair| pair[1].0 != pair[0].0 + 1) {
            let (before, after) = (gap[0].1.display(), gap[1].1.display());
            return Err(LogError::Corrupt(format!("a file is missing between {before} and {after}")));
        }
    }
    match appended.pop() {
        Some((_, path)) => {
            let bytes = fs::read(&path).map_err(failed)?;
            Ok(Some(Newest { path, bytes }))
        }
        None => Ok(None),
    }
}

impl Newest {
    /// Makes durable what a process wrote that was killed before it could sync. Recovery has read it, so it will be
    /// vouched for, and nothing written from now on would have to be synced for that.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = fs::File::open(&self.path).and_then(|file| file.sync_data());
        synced.map_err(|error| LogError::Device(format!("{}: {error}", self.path.display())))
    }

    /// Puts the file back, so that a refused open leaves what is there for whoever examines it.
    pub(crate) fn restore(&self) -> Result<()> {
        fs::write(&self.path, &self.bytes)
            .map_err(|error| LogError::Device(format!("{}: {error}", self.path.display())))
    }
}
