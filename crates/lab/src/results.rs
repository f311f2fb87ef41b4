//! The results of a reproduction, one JSON file for each run.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;

/// Reads the results in `dir` in the order of their file names, with their paths. `dir` is created
/// if it is missing. `what` names a result in errors.
pub fn read<T: DeserializeOwned>(dir: &Path, what: &str) -> anyhow::Result<Vec<(PathBuf, T)>> {
    std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let parsed = |path: PathBuf| {
        let text = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let result = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not {what} of this version", path.display()))?;
        Ok((path, result))
    };
    paths.into_iter().map(parsed).collect()
}
