//! The file that records whether and where an import can continue.
//!
//! Commands such as `INCR` must not be executed twice, so a place is recorded only when the target
//! has executed exactly what precedes it: at an orderly end. While the import runs, the file says
//! so, and an import that finds it then begins again with all data. The file is synced before the
//! target changes.

use std::path::Path;

use anyhow::{ensure, Context};
use serde::{Deserialize, Serialize};

use super::commands::StreamState;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The source and the target, without their passwords.
    pub source: String,
    pub target: String,
    pub replication: Replication,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Replication {
    /// The import runs, or has ended without knowing its place.
    Runs,
    /// The target has executed the stream up to the place.
    At {
        /// The name of the source's history.
        id: String,
        offset: u64,
        state: StreamState,
        /// True if expiry times are held back at the target.
        holds_expiries: bool,
    },
}

impl Record {
    /// Reads the record of an import between the same servers, unless there is none.
    pub fn read(path: &Path, source: &str, target: &str) -> anyhow::Result<Option<Record>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("{}", path.display()))?,
        };
        let record: Record = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a record of an import with --replicate", path.display()))?;
        ensure!(
            record.source == source && record.target == target,
            "{} is the record of an import from {} to {}: name another file, or delete it",
            path.display(),
            record.source,
            record.target
        );
        Ok(Some(record))
    }

    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_vec(self)?;
        durable::write(path, text).with_context(|| format!("{}", path.display()))
    }

    /// Deletes the record of an import that is complete.
    pub fn delete(path: &Path) -> anyhow::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{}", path.display()))
            }
            _ => Ok(durable::sync_dir(durable::dir_of(path))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_again_and_only_between_the_same_servers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        assert_eq!(Record::read(&path, "a", "b").unwrap(), None);
        let at = Replication::At {
            id: "id".into(),
            offset: u64::MAX,
            state: StreamState { database: 3, splits: true },
            holds_expiries: true,
        };
        for replication in [Replication::Runs, at] {
            let record = Record { source: "a".into(), target: "b".into(), replication };
            record.write(&path).unwrap();
            assert_eq!(Record::read(&path, "a", "b").unwrap(), Some(record));
        }
        assert!(Record::read(&path, "a", "c").is_err());
        std::fs::write(&path, "{}").unwrap();
        let error = Record::read(&path, "a", "b").unwrap_err().to_string();
        assert!(error.contains("not a record"), "{error}");
        Record::delete(&path).unwrap();
        Record::delete(&path).unwrap();
        assert_eq!(Record::read(&path, "a", "b").unwrap(), None);
    }
}
