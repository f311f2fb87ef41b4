//! The place of a transfer: units of work end in any order, and a file records the place before the
//! first unit that has not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context};
use serde::{Deserialize, Serialize};

use super::report::Progress;

/// Minimum time between two records of the place.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// The place in a transfer, as the file records it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The source, without its password.
    pub source: String,
    /// The identity of the source's process or file. Cursors of another one mean nothing.
    pub identity: String,
    pub target: String,
    /// The database that is being walked. Those before it are done.
    pub database: u64,
    /// The cursor of `SCAN`, or the number of keys of a file that are done.
    pub cursor: u64,
    /// Number of keys that were not copied, and the lines that name the first ones.
    #[serde(default)]
    pub refused: u64,
    #[serde(default)]
    pub named: Vec<String>,
    #[serde(default)]
    pub by_reason: BTreeMap<String, u64>,
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// True if the target had no keys when the transfer began.
    #[serde(default)]
    pub target_was_empty: bool,
}

/// A stream that was written without some of its pending entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    pub database: u64,
    pub key: Vec<u8>,
    pub pending: u64,
}

impl Place {
    /// Reads the record of a transfer, unless there is none or it is of another one.
    pub fn read(path: &Path, same: &Place) -> anyhow::Result<Option<Place>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("{}", path.display()))?,
        };
        let place: Place = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a record of an import", path.display()))?;
        let is_same = |a: &Place, b: &Place| a.source == b.source && a.target == b.target;
        ensure!(
            is_same(&place, same),
            "{} is the record of an import from {} to {}: name another file, or delete it",
            path.display(),
            place.source,
            place.target
        );
        Ok((place.identity == same.identity).then_some(place))
    }

    fn write(&self, path: &Path) -> anyhow::Result<()> {
        let written = || -> anyhow::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(durable::dir_of(path))?;
            serde_json::to_writer(&mut file, self)?;
            file.flush()?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        };
        written().with_context(|| format!("{}", path.display()))
    }
}

/// Returns an error if no record can be written to `path`, before anything is copied.
pub fn check_record(path: &Path) -> anyhow::Result<()> {
    ensure!(!path.is_dir(), "{} is a directory: --progress names a file", path.display());
    let written = tempfile::NamedTempFile::new_in(durable::dir_of(path));
    let why = || format!("the import cannot record its progress in {}", path.display());
    written.map(drop).with_context(why)
}

/// Units of work in order, and those that have ended.
pub struct Tracker {
    path: Option<PathBuf>,
    /// The place before the first unit that has not ended.
    place: Place,
    /// The number of the first unit that has not ended.
    first_open: u64,
    /// Places after units, by number.
    after: BTreeMap<u64, (u64, u64)>,
    ended: BTreeSet<u64>,
    recorded: Instant,
    progress: Arc<Progress>,
}

impl Tracker {
    pub fn new(path: Option<&Path>, place: Place, progress: Arc<Progress>) -> Tracker {
        Tracker {
            path: path.map(Path::to_owned),
            place,
            first_open: 0,
            after: BTreeMap::new(),
            ended: BTreeSet::new(),
            recorded: Instant::now(),
            progress,
        }
    }

    /// Tells the database and cursor that follow a unit.
    pub fn begin(&mut self, unit: u64, after: (u64, u64)) {
        self.after.insert(unit, after);
    }

    pub fn end(&mut self, unit: u64) -> anyhow::Result<()> {
        self.ended.insert(unit);
        while self.ended.remove(&self.first_open) {
            if let Some((database, cursor)) = self.after.remove(&self.first_open) {
                (self.place.database, self.place.cursor) = (database, cursor);
            }
            self.first_open += 1;
        }
        match self.recorded.elapsed() >= RECORD_EVERY {
            true => self.record(),
            false => Ok(()),
        }
    }

    pub fn record(&mut self) -> anyhow::Result<()> {
        self.recorded = Instant::now();
        self.progress.record(&mut self.place);
        self.path.as_ref().map_or(Ok(()), |path| self.place.write(path))
    }

    /// Deletes the record of a transfer that is complete.
    pub fn complete(&self) -> anyhow::Result<()> {
        match self.path.as_ref().map(std::fs::remove_file) {
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_place_is_before_the_first_unit_that_has_not_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        let start =
            Place { source: "a".into(), target: "b".into(), identity: "1".into(), ..Place::default() };
        let progress = Progress::new();
        let mut tracker = Tracker::new(Some(&path), start.clone(), progress.clone());
        for unit in 0..4 {
            tracker.begin(unit, (0, 10 * (unit + 1)));
        }
        let recorded = |tracker: &mut Tracker| {
            tracker.record().unwrap();
            Place::read(&path, &start).unwrap().unwrap().cursor
        };
        tracker.end(1).unwrap();
        tracker.end(2).unwrap();
        assert_eq!(recorded(&mut tracker), 0);
        tracker.end(0).unwrap();
        assert_eq!(recorded(&mut tracker), 30);
        progress.refuse(3, b"key", "why");
        progress.leave_out(2, &"\u{e9}".into(), 7);
        tracker.record().unwrap();
        let after = Progress::new();
        after.begin_with(&Place::read(&path, &start).unwrap().unwrap());
        assert_eq!(after.refused(), 1, "an import that continues names what was not copied before");
        after.refuse(3, b"key", "why");
        assert_eq!(after.refused(), 1, "it meets the same key again");
        let long = [b'x'; 100];
        [&long[..], &long[1..]].into_iter().for_each(|key| after.refuse(3, key, "why"));
        assert_eq!(after.refused(), 3, "the lines of two long keys are the same");
        assert!(!after.has_all_pending(2, &"\u{e9}".into()) && after.has_all_pending(3, &"\u{e9}".into()));
        let mut again = start.clone();
        after.record(&mut again);
        assert_eq!((again.refused, again.by_reason["why"], again.left_out.len()), (3, 3, 1));
        let restarted = Place { identity: "2".into(), ..start.clone() };
        assert_eq!(Place::read(&path, &restarted).unwrap(), None, "a cursor of another process");
        let other = Place { target: "c".into(), ..start.clone() };
        assert!(Place::read(&path, &other).is_err());
        tracker.complete().unwrap();
        assert_eq!(Place::read(&path, &start).unwrap(), None);
    }
}
