//! The configuration file, in which `CONFIG REWRITE` writes the settings that `CONFIG SET` has
//! changed.
//!
//! Everything else in the file stays as it is, comments included. The command line wins over the
//! file at the next start, as always.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{flock, FlockOperation};
use toml_edit::{value, DocumentMut, Item, Value};

/// Settings that are numbers in the file. All others are text.
const NUMBERS: [&str; 14] = [
    "acllog-max-len",
    "auth-timeout",
    "io-threads",
    "latency-monitor-threshold",
    "maxclients",
    "maxclients-unauthenticated",
    "proto-max-bulk-len",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "snapshot-rate",
    "tcp-keepalive",
    "timeout",
    "tracking-table-max-keys",
    "weak-read-max-lag",
];
/// The table, or the list of `NAME=VALUE`, of RocksDB's options, and the prefix of their names.
const ROCKSDB: &str = "rocksdb";
const PREFIX: &str = "rocksdb.";

/// Returns the first error of a start with a file of this content.
type Check = dyn Fn(&str) -> Result<(), String> + Send + Sync;

#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
    check: Arc<Check>,
}

/// Settings and options of RocksDB by their names, and their values.
type Values = Vec<(&'static str, String)>;

#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// The file is as it was.
    #[error("{0}")]
    Refused(String),
    /// The file has the old content or the new one.
    #[error("{0}")]
    Write(io::Error),
}

impl From<io::Error> for RewriteError {
    fn from(error: io::Error) -> RewriteError {
        RewriteError::Refused(error.to_string())
    }
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConfigFile").field(&self.path).finish()
    }
}

impl ConfigFile {
    /// The file at `path`. A content that `check` refuses is never written.
    pub fn new(
        path: &Path,
        check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
    ) -> io::Result<ConfigFile> {
        Ok(ConfigFile { path: std::path::absolute(path)?, check: Arc::new(check) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the settings and the options of RocksDB that `changes` returns. It is called while
    /// the file is locked.
    pub fn rewrite(&self, changes: impl FnOnce() -> (Values, Values)) -> Result<(), RewriteError> {
        // The file itself is replaced, not a link to it.
        let path = self.path.canonicalize()?;
        // Stores may share a file. The lock ends with the handle.
        let dir = File::open(durable::dir_of(&path))?;
        flock(&dir, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        let before = fs::read_to_string(&path)?;
        let (settings, options) = changes();
        let after = rewritten(&before, &settings, &options).map_err(RewriteError::Refused)?;
        (self.check)(&after).map_err(RewriteError::Refused)?;
        match after == before {
            true => Ok(()),
            false => durable::replace(&path, after).map_err(RewriteError::Write),
        }
    }
}

fn rewritten(
    before: &str,
    settings: &[(&str, String)],
    options: &[(&str, String)],
) -> Result<String, String> {
    let mut document: DocumentMut =
        before.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    for (name, text) in settings {
        let number = text.parse::<i64>().ok().filter(|_| NUMBERS.contains(name));
        put(document.entry(name).or_insert(Item::None), number.map_or_else(|| text.into(), Value::from));
    }
    if options.is_empty() {
        return Ok(document.to_string());
    }
    let known = document.entry(ROCKSDB).or_insert_with(toml_edit::table);
    for (name, text) in options {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        if let Some(list) = known.as_array_mut() {
            let pair = format!("{name}={text}");
            let is_same = |one: &Value| {
                let named = one.as_str().and_then(|one| one.split_once('='));
                named.is_some_and(|(of, _)| of.trim() == name)
            };
            // Of an option that is listed twice, the last value counts.
            list.retain(|one| !is_same(one));
            list.push(pair);
        } else if let Some(table) = known.as_table_like_mut() {
            put(table.entry(name).or_insert(Item::None), text.into());
        } else {
            return Err(format!("{ROCKSDB} is neither a table nor a list"));
        }
    }
    Ok(document.to_string())
}

/// Replaces a value, and keeps the comments beside it.
fn put(item: &mut Item, new: Value) {
    match item.as_value_mut() {
        Some(old) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        None => *item = value(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&'static str, &str)]) -> Values {
        pairs.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
    }

    #[test]
    fn comments_and_all_other_lines_stay() {
        let before = "# The stores of the shop.\nport = 7000 # for clients\nmaxclients = 50   # few\n\n\
                      [rocksdb]\n# The device is slow.\nmax_background_jobs = 2 # threads\n";
        let changed = values(&[("maxclients", "70"), ("loglevel", "warning"), ("requirepass", "1234")]);
        let after = rewritten(before, &changed, &values(&[("rocksdb.max_background_jobs", "3")])).unwrap();
        let expected = "# The stores of the shop.\nport = 7000 # for clients\nmaxclients = 70   # few\n\
                        loglevel = \"warning\"\nrequirepass = \"1234\"\n\n\
                        [rocksdb]\n# The device is slow.\nmax_background_jobs = \"3\" # threads\n";
        assert_eq!(after, expected);
        assert_eq!(rewritten(&after, &changed, &[]).unwrap(), after);
    }

    #[test]
    fn options_of_rocksdb_go_where_the_others_are() {
        let changed = values(&[("rocksdb.max_open_files", "9")]);
        let of = |before: &str| rewritten(before, &[], &changed);
        assert_eq!(of("port = 1\n").unwrap(), "port = 1\n\n[rocksdb]\nmax_open_files = \"9\"\n");
        let list = "rocksdb = [\"max_open_files=1\", \"compression=zstd\", \"max_open_files = 2\"]\n";
        let expected = "rocksdb = [ \"compression=zstd\", \"max_open_files=9\"]\n";
        assert_eq!(of(list).unwrap(), expected);
        assert_eq!(of("rocksdb = {}\n").unwrap(), "rocksdb = { max_open_files = \"9\" }\n");
        assert_eq!(of("rocksdb = 1\n"), Err("rocksdb is neither a table nor a list".to_owned()));
    }

    #[test]
    fn a_file_is_replaced_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("s.toml"), dir.path().join("link"));
        fs::write(&path, "port = 7000\n").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = ConfigFile::new(&link, |_| Ok(())).unwrap();
        file.rewrite(|| (values(&[("timeout", "7")]), Vec::new())).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "port = 7000\ntimeout = 7\n");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_file_that_the_store_could_not_read_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        let changed = || (values(&[("timeout", "7")]), Vec::new());
        fs::write(&path, "port = 7000\n").unwrap();
        let file = ConfigFile::new(&path, |_| Err("line 2: no".to_owned())).unwrap();
        assert_eq!(file.rewrite(changed).unwrap_err().to_string(), "line 2: no");
        assert_eq!(fs::read_to_string(&path).unwrap(), "port = 7000\n");
        fs::write(&path, "port = ").unwrap();
        let file = ConfigFile::new(&path, |_| Ok(())).unwrap();
        assert!(file.rewrite(changed).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "port = ");
        fs::remove_file(&path).unwrap();
        assert!(file.rewrite(changed).is_err());
        assert!(!path.exists());
    }
}
