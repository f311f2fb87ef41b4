//! The snapshots received from other stores, complete or partial, and the users of each.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rocks::snapshot::{Files, MANIFEST};
use types::{LogIndex, RegionId, StoreId, Term};

use super::{entries, numbers, remove};

/// The file with the identity of what was offered: the manifest, or the transfer of a stream. It
/// exists while files are still missing.
pub const OFFER: &str = "OFFER";

/// The beginning of that file if a stream was offered.
pub const STREAM_MAGIC: &[u8; 4] = b"SYST";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub region: RegionId,
    pub index: LogIndex,
    pub term: Term,
}

/// The name of a snapshot's directory.
pub fn directory(key: Key) -> String {
    format!("{}-{}-{}", key.region, key.index, key.term)
}

enum State {
    /// Some files are here, and no connection is receiving the rest.
    Partial,
    /// A connection to this store is receiving the files.
    Receiving(StoreId, TcpStream),
    Whole,
    /// The log records, or will soon record, that only this snapshot can replace the region's rows.
    Accepted,
    Ingesting,
}

struct Entry {
    state: State,
    touched: Instant,
    /// True if this process verified all files and has not used them since.
    verified: bool,
    /// The last transfer whose message was delivered.
    delivered: Option<(StoreId, u64)>,
}

#[derive(Default)]
struct Table {
    entries: Mutex<BTreeMap<Key, Entry>>,
    /// Bytes of files that are being received and are still missing.
    promised: AtomicU64,
}

pub struct Received {
    dir: PathBuf,
    table: Arc<Table>,
    /// The number in the name of the next directory to be deleted. Each such name is used only
    /// once.
    next_gone: AtomicU64,
}

/// The result of an offer.
pub enum Begin {
    /// The caller must complete the files.
    Claimed(Claim),
    /// The complete snapshot is here.
    Whole,
    /// Another user has the snapshot and may finish soon.
    Busy(&'static str),
}

/// A snapshot that a connection is receiving. If the claim is dropped before the snapshot is
/// complete, the partial files stay.
pub struct Claim {
    table: Arc<Table>,
    key: Key,
    promised: u64,
}

impl Received {
    pub fn open(dir: PathBuf) -> io::Result<Received> {
        std::fs::create_dir_all(&dir)?;
        // Syncs the directory, its parent for all snapshots, and the parent's entry in the store's
        // directory.
        for dir in dir.ancestors().take(3).filter(|dir| !dir.as_os_str().is_empty()) {
            durable::sync_dir(dir)?;
        }
        let mut found = BTreeMap::new();
        for (name, path) in entries(&dir)? {
            let state = if path.join(MANIFEST).exists() {
                Some(State::Whole)
            } else {
                path.join(OFFER).exists().then_some(State::Partial)
            };
            match (numbers(&name), state) {
                (Some([region, index, term]), Some(state)) => {
                    let entry = Entry { state, touched: Instant::now(), verified: false, delivered: None };
                    found.insert(Key { region, index, term }, entry);
                }
                _ => remove(&path),
            }
        }
        let table = Table { entries: Mutex::new(found), promised: AtomicU64::new(0) };
        Ok(Received { dir, table: Arc::new(table), next_gone: AtomicU64::new(0) })
    }

    /// Makes the directory entries of snapshots durable.
    pub fn sync(&self) -> io::Result<()> {
        durable::sync_dir(&self.dir)
    }

    pub fn dir(&self, key: Key) -> PathBuf {
        self.dir.join(directory(key))
    }

    /// Claims a snapshot for a connection, and drops the partial files of the region's earlier
    /// snapshots. Returns the directories that the caller must delete.
    pub fn begin(&self, key: Key, from: StoreId, stream: &TcpStream) -> io::Result<(Begin, Vec<PathBuf>)> {
        let mut entries = self.table.entries.lock();
        let earlier = Key { index: 0, term: 0, ..key }..key;
        let mut superseded = Vec::new();
        for (of, entry) in entries.range(earlier) {
            match &entry.state {
                State::Partial => superseded.push(*of),
                // The connection's thread notices the shutdown and leaves the files as partial.
                State::Receiving(_, stream) => drop(stream.shutdown(Shutdown::Both)),
                State::Whole | State::Accepted | State::Ingesting => {}
            }
        }
        let gone = self.take_away(&mut entries, &superseded);
        let begun = match entries.get(&key).map(|entry| &entry.state) {
            None | Some(State::Partial) => {
                let state = State::Receiving(from, stream.try_clone()?);
                let entry = Entry { state, touched: Instant::now(), verified: false, delivered: None };
                entries.insert(key, entry);
                Begin::Claimed(Claim { table: self.table.clone(), key, promised: 0 })
            }
            Some(State::Receiving(sender, _)) if *sender != from => {
                Begin::Busy("another store is sending it")
            }
            Some(State::Receiving(_, previous)) => {
                // The sender has only one connection for a snapshot, so the earlier connection is
                // dead.
                let _ = previous.shutdown(Shutdown::Both);
                Begin::Busy("an earlier connection for it is being ended")
            }
            Some(State::Ingesting) => Begin::Busy("it is being applied"),
            Some(State::Whole | State::Accepted) => Begin::Whole,
        };
        Ok((begun, gone))
    }

    /// Records a delivery. Returns false if this transfer's message was delivered before.
    pub fn is_first_delivery(&self, key: Key, from: StoreId, attempt: u64) -> bool {
        let mut entries = self.table.entries.lock();
        match entries.get_mut(&key) {
            Some(entry) => {
                entry.touched = Instant::now();
                entry.delivered.replace((from, attempt)) != Some((from, attempt))
            }
            None => true,
        }
    }

    /// Keeps a snapshot, without a time limit, until it or a later one of the region was ingested
    /// or the region is forgotten. Must be called before the log records that it was accepted.
    pub fn accept(&self, key: Key) {
        if let Some(entry) = self.table.entries.lock().get_mut(&key) {
            if matches!(entry.state, State::Whole) {
                entry.state = State::Accepted;
            }
        }
    }

    /// Protects a snapshot from being deleted or received again for as long as the result lives.
    /// Also returns whether its files must be verified again.
    pub fn begin_ingest(&self, key: Key) -> (Ingesting<'_>, Files) {
        let mut files = Files::Unknown;
        if let Some(entry) = self.table.entries.lock().get_mut(&key) {
            if matches!(entry.state, State::Whole | State::Accepted) {
                entry.state = State::Ingesting;
                if std::mem::take(&mut entry.verified) {
                    files = Files::Verified;
                }
            }
        }
        (Ingesting { table: &self.table, key }, files)
    }

    /// Forgets the region's snapshots up to an index. Returns the directories to delete.
    pub fn forget_up_to(&self, region: RegionId, index: LogIndex) -> Vec<PathBuf> {
        let mut entries = self.table.entries.lock();
        let all = Key { region, index: 0, term: 0 }..=Key { region, index, term: Term::MAX };
        let mut gone = Vec::new();
        for (key, entry) in entries.range(all) {
            match &entry.state {
                State::Receiving(_, stream) => drop(stream.shutdown(Shutdown::Both)),
                State::Ingesting => {}
                State::Partial | State::Whole | State::Accepted => gone.push(*key),
            }
        }
        self.take_away(&mut entries, &gone)
    }

    /// Forgets snapshots that were not accepted and not used since `before`, and parts of streams
    /// that no connection continued since `streams_before`. Returns the directories to delete.
    pub fn sweep(&self, before: Instant, streams_before: Instant) -> Vec<PathBuf> {
        let is_part =
            |entry: &Entry, before| matches!(entry.state, State::Partial) && entry.touched <= before;
        let parts: Vec<Key> = {
            let entries = self.table.entries.lock();
            entries.iter().filter(|(_, entry)| is_part(entry, streams_before)).map(|(key, _)| *key).collect()
        };
        // Files are read without the lock, because workers take it.
        let of_streams: BTreeSet<Key> = parts.into_iter().filter(|key| self.is_of_stream(*key)).collect();
        let mut entries = self.table.entries.lock();
        let is_old = |key: &Key, entry: &Entry| match entry.state {
            State::Whole => entry.touched <= before,
            State::Partial => {
                is_part(entry, before) || is_part(entry, streams_before) && of_streams.contains(key)
            }
            State::Receiving(..) | State::Accepted | State::Ingesting => false,
        };
        let old = entries.iter().filter(|(key, entry)| is_old(key, entry)).map(|(key, _)| *key);
        let old: Vec<Key> = old.collect();
        self.take_away(&mut entries, &old)
    }

    fn is_of_stream(&self, key: Key) -> bool {
        atrest::read(&self.dir(key).join(OFFER)).is_ok_and(|offer| offer.starts_with(STREAM_MAGIC))
    }

    /// Removes snapshots from the table and renames their directories, so that the names can be
    /// used again before all files are deleted.
    fn take_away(&self, entries: &mut BTreeMap<Key, Entry>, keys: &[Key]) -> Vec<PathBuf> {
        let mut gone = Vec::new();
        for key in keys {
            entries.remove(key);
            let number = self.next_gone.fetch_add(1, Ordering::Relaxed);
            let (dir, other) = (self.dir(*key), self.dir.join(format!("gone-{number}")));
            match std::fs::rename(&dir, &other) {
                Ok(()) => gone.push(other),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => gone.push(dir),
            }
        }
        gone
    }

    /// Returns the bytes that connections have not received yet.
    pub fn promised(&self) -> u64 {
        self.table.promised.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub fn keys(&self) -> Vec<Key> {
        self.table.entries.lock().keys().copied().collect()
    }
}

impl Claim {
    /// Sets the number of bytes that are still missing.
    pub fn promise(&mut self, bytes: u64) {
        self.table.promised.fetch_add(bytes, Ordering::Relaxed);
        self.table.promised.fetch_sub(std::mem::replace(&mut self.promised, bytes), Ordering::Relaxed);
    }

    pub fn complete(self, is_verified: bool) {
        if let Some(entry) = self.table.entries.lock().get_mut(&self.key) {
            entry.state = State::Whole;
            entry.verified = is_verified;
        }
    }

    /// Empties the directory.
    pub fn clear(&self, dir: &Path) -> io::Result<()> {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => std::fs::create_dir_all(dir),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.table.promised.fetch_sub(self.promised, Ordering::Relaxed);
        if let Some(entry) = self.table.entries.lock().get_mut(&self.key) {
            entry.touched = Instant::now();
            if matches!(entry.state, State::Receiving(..)) {
                entry.state = State::Partial;
            }
        }
    }
}

pub struct Ingesting<'a> {
    table: &'a Table,
    key: Key,
}

impl Drop for Ingesting<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.table.entries.lock().get_mut(&self.key) {
            entry.touched = Instant::now();
            if matches!(entry.state, State::Ingesting) {
                // A snapshot that was not forgotten was not ingested yet, and will be.
                entry.state = State::Accepted;
            }
        }
    }
}
