//! The libraries of functions, as this store knows them.
//!
//! The meta region's state holds the libraries. They may be large, so the list of stores carries
//! only the version of their last change. A store that learns of a newer version asks the meta
//! region's leader for the libraries that it does not have, or takes them from its own rows of that
//! region. It stores them in `DIR/FUNCTIONS`, so a store that is cut off from the meta region
//! continues with the libraries that it last knew.
//!
//! The log does not depend on this: the entry of a call holds the library's code.

pub mod serialized;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use cluster::{FunctionRecord, LibraryRecord};
use command::scripting::Code;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::accounts::{bytes_of, text_of};
use crate::datadir;

const FILE: &str = datadir::FUNCTIONS;

/// The libraries as of a version: the answer to a store that asks for those that it lacks.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgreedLibraries {
    pub version: u64,
    /// All libraries, with the version in which each was created or replaced.
    pub names: BTreeMap<String, u64>,
    /// The libraries that the asking store lacks.
    pub libraries: BTreeMap<String, LibraryRecord>,
}

/// A function of a library.
#[derive(Debug)]
pub struct Function {
    pub name: Bytes,
    pub description: Option<Bytes>,
    pub flags: script::Flags,
}

#[derive(Debug)]
pub struct Library {
    pub code: Bytes,
    pub functions: Vec<Function>,
    /// See [`LibraryRecord::since`].
    pub since: u64,
}

impl Library {
    /// Reads a library that the cluster agreed on.
    fn of(record: &LibraryRecord) -> Option<Library> {
        let function = |function: &FunctionRecord| {
            let description = match &function.description {
                Some(text) => Some(bytes_of(text)?),
                None => None,
            };
            let flags = script::Flags::of_names(function.flags.iter().map(String::as_str))?;
            Some(Function { name: Bytes::from(function.name.clone()), description, flags })
        };
        Some(Library {
            code: bytes_of(&record.code)?,
            functions: record.functions.iter().map(function).collect::<Option<_>>()?,
            since: record.since,
        })
    }

    fn record(&self) -> LibraryRecord {
        let function = |function: &Function| FunctionRecord {
            name: text_of(&function.name),
            description: function.description.as_deref().map(text_of),
            flags: function.flags.names().into_iter().map(str::to_owned).collect(),
        };
        LibraryRecord {
            code: text_of(&self.code),
            functions: self.functions.iter().map(function).collect(),
            since: self.since,
        }
    }
}

/// All libraries, at one time.
#[derive(Debug, Default)]
pub struct Libraries {
    pub version: u64,
    pub by_name: BTreeMap<String, Arc<Library>>,
    /// The library of each function and its position there, by the name in lower case.
    functions: HashMap<Vec<u8>, (Arc<Library>, usize)>,
}

impl Libraries {
    fn new(version: u64, by_name: BTreeMap<String, Arc<Library>>) -> Libraries {
        let mut functions = HashMap::new();
        for library in by_name.values() {
            for (at, function) in library.functions.iter().enumerate() {
                // Of names that differ in case only, the first counts.
                let name = function.name.to_ascii_lowercase();
                functions.entry(name).or_insert_with(|| (library.clone(), at));
            }
        }
        Libraries { version, by_name, functions }
    }

    fn find(&self, name: &[u8]) -> Option<(&Library, &Function)> {
        let (library, at) = match self.functions.get(name) {
            Some(found) => found,
            None => self.functions.get(&name.to_ascii_lowercase())?,
        };
        let first = &library.functions[*at];
        if first.name == name {
            return Some((library, first));
        }
        // A name in the same case counts more.
        let same = library.functions.iter().find(|function| function.name == name);
        Some((library, same.unwrap_or(first)))
    }

    /// Returns the name of the library that has a function.
    pub fn library_of(&self, function: &[u8]) -> Option<&str> {
        let (library, _) = self.functions.get(&function.to_ascii_lowercase())?;
        let mut all = self.by_name.iter();
        all.find(|(_, known)| Arc::ptr_eq(known, library)).map(|(name, _)| name.as_str())
    }

    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    pub fn functions_count(&self) -> usize {
        self.by_name.values().map(|library| library.functions.len()).sum()
    }
}

pub struct Functions {
    path: PathBuf,
    known: ArcSwap<Libraries>,
    /// Locked while a thread creates the next libraries.
    changing: Mutex<()>,
    /// Locked while a client's libraries are loaded.
    pub loading: Arc<tokio::sync::Mutex<()>>,
    /// The newest version that this store has heard of.
    wanted: AtomicU64,
    news: Notify,
    taken: Notify,
}

impl Functions {
    /// Reads the libraries in the store's directory. `wanted` is the version that the list of
    /// stores names.
    pub fn new(dir: &Path, wanted: u64) -> Functions {
        let path = dir.join(FILE);
        let known = read(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "the libraries of functions cannot be read: they are \
                            asked for again");
            Libraries::default()
        });
        Functions {
            path,
            known: ArcSwap::from_pointee(known),
            changing: Mutex::new(()),
            loading: Arc::default(),
            wanted: AtomicU64::new(wanted),
            news: Notify::new(),
            taken: Notify::new(),
        }
    }

    pub fn known(&self) -> Arc<Libraries> {
        self.known.load_full()
    }

    /// Returns the code that a call of a function executes.
    pub fn code_of(&self, name: &[u8]) -> Option<Code> {
        let known = self.known.load();
        let (library, function) = known.find(name)?;
        Some(Code { body: library.code.clone(), function: Some((function.name.clone(), function.flags)) })
    }

    /// Notes that the libraries have a version, which this store then gets.
    pub fn want(&self, version: u64) {
        if self.wanted.fetch_max(version, Ordering::AcqRel) < version {
            self.news.notify_one();
        }
    }

    /// Waits until the store has heard of a newer version.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Returns the version that this store lacks.
    pub fn lacks(&self) -> Option<u64> {
        let wanted = self.wanted.load(Ordering::Acquire);
        (wanted > self.known.load().version).then_some(wanted)
    }

    /// Waits until the store has a version of the libraries, for `patience` at most. Returns
    /// whether it has it.
    pub async fn has(&self, version: u64, patience: Duration) -> bool {
        self.want(version);
        let waiting = async {
            loop {
                let taken = self.taken.notified();
                if self.known.load().version >= version {
                    return;
                }
                taken.await;
            }
        };
        tokio::time::timeout(patience, waiting).await.is_ok()
    }

    /// Takes newer libraries. Returns false if they cannot be read.
    pub fn take(&self, agreed: &AgreedLibraries) -> bool {
        let _changing = self.changing.lock();
        let known = self.known.load();
        if agreed.version <= known.version {
            return true;
        }
        let mut by_name = BTreeMap::new();
        for (name, since) in &agreed.names {
            let library = match agreed.libraries.get(name) {
                Some(record) => Library::of(record).map(Arc::new),
                None => known.by_name.get(name).filter(|library| library.since == *since).cloned(),
            };
            let Some(library) = library else {
                tracing::error!(%name, "a library of functions cannot be read");
                return false;
            };
            by_name.insert(name.clone(), library);
        }
        self.known.store(Arc::new(Libraries::new(agreed.version, by_name)));
        self.taken.notify_waiters();
        true
    }

    /// Writes the libraries to the store's directory.
    pub fn keep(&self) {
        let known = self.known();
        let records = known.by_name.iter().map(|(name, library)| (name.clone(), library.record()));
        let agreed = AgreedLibraries {
            version: known.version,
            names: known.by_name.iter().map(|(name, library)| (name.clone(), library.since)).collect(),
            libraries: records.collect(),
        };
        let text = serde_json::to_vec(&agreed).expect("plain data");
        if let Err(error) = atrest::write_with_mode(&self.path, text, 0o600) {
            tracing::warn!(%error, "the libraries of functions cannot be written to the data directory");
        }
    }
}

fn read(path: &Path) -> std::io::Result<Libraries> {
    let text = match atrest::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Libraries::default()),
        Err(error) => return Err(error),
    };
    let agreed: AgreedLibraries = serde_json::from_slice(&text)?;
    let library = |(name, record): (&String, &LibraryRecord)| {
        let library = Library::of(record).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok::<_, std::io::Error>((name.clone(), Arc::new(library)))
    };
    let by_name = agreed.libraries.iter().map(library).collect::<std::io::Result<_>>()?;
    Ok(Libraries::new(agreed.version, by_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(code: &str, functions: &[&str], since: u64) -> LibraryRecord {
        let function = |name: &&str| FunctionRecord {
            name: (*name).to_owned(),
            description: Some("\u{ff}".into()),
            flags: vec!["no-writes".into()],
        };
        LibraryRecord { code: code.into(), functions: functions.iter().map(function).collect(), since }
    }

    fn agreed(version: u64, all: &[(&str, u64)], told: &[(&str, LibraryRecord)]) -> AgreedLibraries {
        AgreedLibraries {
            version,
            names: all.iter().map(|(name, since)| ((*name).to_owned(), *since)).collect(),
            libraries: told.iter().map(|(name, record)| ((*name).to_owned(), record.clone())).collect(),
        }
    }

    #[test]
    fn a_store_takes_what_it_lacks_keeps_it_and_finds_functions_in_any_case() {
        let dir = tempfile::tempdir().unwrap();
        let functions = Functions::new(dir.path(), 0);
        functions.want(5);
        assert_eq!(functions.lacks(), Some(5));
        let (a, b) = (record("one\u{e9}", &["f", "F"], 3), record("two", &["g"], 5));
        assert!(functions.take(&agreed(5, &[("a", 3), ("b", 5)], &[("a", a), ("b", b)])));
        assert_eq!(functions.lacks(), None);
        let code = |functions: &Functions, name: &[u8]| {
            let code = functions.code_of(name)?;
            let (name, flags) = code.function?;
            assert!(flags.no_writes);
            Some((code.body, name))
        };
        let found = |body: &'static [u8], name: &'static [u8]| {
            Some((Bytes::from_static(body), Bytes::from_static(name)))
        };
        assert_eq!(code(&functions, b"F"), found(b"one\xe9", b"F"));
        assert_eq!(code(&functions, b"f"), found(b"one\xe9", b"f"));
        assert_eq!(code(&functions, b"G"), found(b"two", b"g"));
        assert_eq!(code(&functions, b"h"), None);
        // A library that is known is not sent again; one that was replaced must be.
        assert!(!functions.take(&agreed(6, &[("a", 6)], &[])));
        assert!(functions.take(&agreed(6, &[("a", 3)], &[])));
        assert_eq!((functions.known().version, code(&functions, b"g")), (6, None));
        functions.keep();
        let again = Functions::new(dir.path(), 6);
        assert_eq!((again.lacks(), code(&again, b"f")), (None, found(b"one\xe9", b"f")));
        std::fs::write(dir.path().join(FILE), b"{").unwrap();
        assert_eq!(Functions::new(dir.path(), 6).lacks(), Some(6));
    }
}
