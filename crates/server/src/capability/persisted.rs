//! `DIR/CAPABILITY`: the measurements of the device, as JSON.
//!
//! ```text
//! { "version": 2, "unix_ms": …, "brief": false,
//!   "measured": { "write_bytes_per_s": …, "sync_latency": { "secs": …, "nanos": … },
//!                 "read_latency": …, "method": "direct", "emulated": false },
//!   "spread": { "write": 1.3, "sync": …, "read": … }, "sittings": 1,
//!   "ground": { "boot_id": "…",
//!     "device": { "kind": "disks", "disks": [ { "name": "nvme0n1", "serial": …, … } ] } },
//!   "history": [ { "began_unix_ms": …, "ended_unix_ms": … }, … ],
//!   "rounds": [ { "write_bytes_per_s": …, "sync_s": …, "read_s": … }, … ],
//!   "told_bytes_per_s": …, "kv_bytes_per_s": …, "ops_per_s": …, "fit": "…" }
//! ```
//!
//! `measured` and `spread` combine all rounds, `ground` identifies the device, and `history` lists
//! the times of the last measurements. The last three fields show the result at the time of
//! writing, for human readers; a start computes them again with its own fit. The store does not
//! depend on this file: without it, the device is measured again.

use std::io;
use std::path::{Path, PathBuf};

use device::{Ground, Measured};
use placement::Capability;
use serde::{Deserialize, Serialize};

use super::rounds::{self, DeviceSpread, Result, Round};
use super::schedule::Sitting;
use crate::clock;
use crate::datadir;

const NAME: &str = datadir::CAPABILITY;
const VERSION: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum PersistedError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} has version {found}, and this program knows {VERSION}", path.display())]
    Version { path: PathBuf, found: u64 },
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Persisted {
    version: u32,
    unix_ms: u64,
    /// True if the measurement serves only for comparison.
    pub brief: bool,
    pub measured: Measured,
    pub spread: DeviceSpread,
    /// Number of sittings at which the rounds were made.
    pub sittings: u32,
    pub rounds: Vec<Round>,
    /// The configured capability when this was measured.
    #[serde(default)]
    pub told_bytes_per_s: Option<f64>,
    /// The device under the directory; `None` if the kernel did not report it.
    #[serde(default)]
    pub ground: Option<Ground>,
    /// The times of the last measurements.
    #[serde(default)]
    pub history: Vec<Sitting>,
    kv_bytes_per_s: f64,
    ops_per_s: f64,
    fit: String,
}

impl Persisted {
    pub fn new(result: Result, counts: Capability, brief: bool, fit: &str) -> Persisted {
        let rounds::Result { measured, spread, rounds, sittings } = result;
        Persisted {
            version: VERSION,
            unix_ms: clock::unix_millis(),
            brief,
            measured,
            spread,
            sittings,
            rounds,
            told_bytes_per_s: None,
            ground: None,
            history: Vec::new(),
            kv_bytes_per_s: counts.kv_bytes_per_s,
            ops_per_s: counts.ops_per_s,
            fit: fit.to_owned(),
        }
    }

    /// Reads the file. Returns `None` if there is none.
    pub fn read(dir: &Path) -> std::result::Result<Option<Persisted>, PersistedError> {
        let path = dir.join(NAME);
        let text = match atrest::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(PersistedError::Io { path, source }),
        };
        let unreadable = |reason: String| PersistedError::Unreadable { path: path.clone(), reason };
        // The version is read first, because the rest of a newer format may differ.
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| unreadable(e.to_string()))?;
        let found = value["version"].as_u64().ok_or_else(|| unreadable("it has no version".into()))?;
        if found != u64::from(VERSION) {
            return Err(PersistedError::Version { path, found });
        }
        let kept: Persisted = serde_json::from_value(value).map_err(|e| unreadable(e.to_string()))?;
        let rate = kept.measured.write_bytes_per_s;
        if !(rate.is_finite() && rate > 0.0) {
            return Err(unreadable(format!("it says that the device writes {rate} bytes/s")));
        }
        let DeviceSpread { write, sync, read } = kept.spread;
        if ![write, sync, read].into_iter().all(|spread| spread.is_finite() && spread >= 1.0) {
            return Err(unreadable("its spread is below 1 or not finite".into()));
        }
        Ok(Some(kept))
    }

    /// Writes the file atomically and durably.
    pub fn write(&self, dir: &Path) -> std::result::Result<(), PersistedError> {
        let text = serde_json::to_string_pretty(self).expect("plain data") + "\n";
        let path = dir.join(NAME);
        atrest::write(&path, text).map_err(|source| PersistedError::Io { path, source })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    pub fn kept(brief: bool) -> Persisted {
        let measured = Measured {
            write_bytes_per_s: 5e8,
            sync_latency: Duration::from_micros(1234),
            read_latency: Duration::from_micros(80),
            method: device::probe::Method::Direct,
            emulated: true,
        };
        let result = Result {
            rounds: vec![Round::from(&measured)],
            measured,
            spread: DeviceSpread::OF_A_LOOK,
            sittings: 1,
        };
        Persisted::new(
            result,
            Capability { kv_bytes_per_s: 2e7, ops_per_s: 3e4 },
            brief,
            "measured somewhere",
        )
    }

    #[test]
    fn what_was_kept_is_read_back_and_anything_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Persisted::read(dir.path()).unwrap(), None);
        let kept = kept(false);
        kept.write(dir.path()).unwrap();
        assert_eq!(Persisted::read(dir.path()).unwrap(), Some(kept));
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "no other file is left");
        let path = dir.path().join(NAME);
        let text = fs::read_to_string(&path).unwrap();
        for (from, to, said) in [
            ("\"version\": 2", "\"version\": 9", "has version 9"),
            ("500000000.0", "-1.0", "writes -1 bytes/s"),
            ("{", "[", "cannot be read"),
            ("\"write\": 1.3", "\"write\": 0.3", "its spread"),
            ("measured", "unheard", "cannot be read"),
        ] {
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let error = Persisted::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("CAPABILITY"), "{to}: {error}");
        }
    }
}
