//! The engine's files, seen from outside.
//!
//! The engine numbers the files of each of its two queues without a hole, deletes the oldest ones when no
//! live entry is left in them, and keeps some of those under their old names to write over them later. A
//! killed process therefore leaves files that are needed by no one, with holes between them, below the
//! files that are needed. When the engine opens a directory, it drops every file below the last hole
//! without a word.
//!
//! What tells a legal hole from a lost file is a mark: the oldest file that is needed, kept beside the
//! watermark. [`GuardedFiles`] makes it durable before any file below it goes, and, before that, the
//! writes that made those files unneeded.

use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use raft_engine::env::{DefaultFileSystem, FileSystem, Handle, Permission, WriteExt};

use crate::error::{LogError, Result};
use crate::watermark::Watermark;

/// The engine's queues: what is appended, and what a purge moved out of old files.
const QUEUES: [&str; 2] = ["raftlog", "rewrite"];
pub(crate) const APPENDED: usize = 0;
const REWRITTEN: usize = 1;

/// A directory's log files by number, ascending, for each queue.
pub(crate) struct Files([Vec<(u64, PathBuf)>; 2]);

/// The file that is being appended to, as it was before recovery cut it. At most a little over the target
/// file size.
pub(crate) struct Tail {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Files {
    pub(crate) fn in_directory(dir: &Path) -> Result<Files> {
        let failed = |error: io::Error| LogError::Device(format!("{}: {error}", dir.display()));
        let mut files = [Vec::new(), Vec::new()];
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if let Some((queue, number)) = place_of(&path) {
                files[queue].push((number, path));
            }
        }
        files.iter_mut().for_each(|files| files.sort());
        Ok(Files(files))
    }

    /// Returns true if nothing was ever appended here.
    pub(crate) fn is_empty(&self) -> bool {
        self.0[APPENDED].is_empty()
    }

    /// Refuses a directory in which a file is missing that is needed: one at or above the queue's mark and
    /// below its newest file. A mark of 0 asks for nothing.
    ///
    /// Returns the files that the engine is going to ignore, below the last hole of their queue.
    pub(crate) fn check(&self, needed: [u64; 2]) -> Result<Vec<PathBuf>> {
        let mut ignored = Vec::new();
        for (queue, (files, needed)) in self.0.iter().zip(needed).enumerate() {
            let last_hole = files.windows(2).rposition(|pair| pair[1].0 != pair[0].0 + 1);
            let used = last_hole.map_or(0, |at| at + 1);
            if needed > 0 && files.get(used).is_none_or(|(oldest, _)| *oldest > needed) {
                let is_here = |number: &u64| files.iter().any(|(of, _)| of == number);
                let missing = (needed..).find(|number| !is_here(number)).expect("files are finite");
                return Err(LogError::Corrupt(format!("file {} is missing", name_of(queue, missing))));
            }
            ignored.extend(files[..used].iter().map(|(_, path)| path.clone()));
        }
        Ok(ignored)
    }

    pub(crate) fn tail(&self) -> Result<Option<Tail>> {
        let Some((_, path)) = self.0[APPENDED].last() else { return Ok(None) };
        let bytes =
            fs::read(path).map_err(|error| LogError::Device(format!("{}: {error}", path.display())))?;
        Ok(Some(Tail { path: path.clone(), bytes }))
    }
}

impl Tail {
    /// Syncs what a killed process had written and not synced. Recovery has read it, so it will be vouched for, and
    /// nothing that is written from now on would sync it.
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

/// A queue's position in [`QUEUES`] and the number of one of its files.
type Place = (usize, u64);

/// Returns the place that a file's name gives it. Files that are reserved for later use have none.
fn place_of(path: &Path) -> Option<Place> {
    let extension = path.extension()?;
    let queue = QUEUES.iter().position(|of| extension == *of)?;
    Some((queue, path.file_stem()?.to_str()?.parse().ok()?))
}

fn name_of(queue: usize, number: u64) -> String {
    format!("{number:016}.{}", QUEUES[queue])
}

/// The plain file system, which makes durable what the engine's next step rests on before it takes it.
///
/// A purge acts on writes that may not be synced, truncations above all: it moves what is left of a region into
/// the other queue, and it deletes files or writes over them. If power fails then, those writes must not be
/// lost while what they made unneeded is gone. So the newest appended file is synced, if it holds anything
/// that is not, before anything is written to the other queue and before a file is deleted or renamed; in the
/// latter case the mark above the file's number is synced, too. Older files need no sync here: the engine
/// syncs a file when it closes it. Truncations need not be held back meanwhile, for whatever a decision of the
/// purge rests on was written before the decision.
pub(crate) struct GuardedFiles {
    marks: Arc<Mutex<Watermark>>,
    newest: Arc<Newest>,
}

type PlainHandle = <DefaultFileSystem as FileSystem>::Handle;
type PlainWriter = <DefaultFileSystem as FileSystem>::Writer;

/// A file's number, and what it is written by.
type Numbered = (u64, Arc<PlainHandle>);

/// The newest file of each queue, and how much of what was appended is synced.
#[derive(Default)]
struct Newest {
    files: Mutex<[Option<Numbered>; 2]>,
    /// The number of writes to appended files.
    written: AtomicU64,
    /// Of them, those that are known to be synced.
    synced: AtomicU64,
}

impl Newest {
    fn handle_of(&self, queue: usize) -> Option<Arc<PlainHandle>> {
        self.files.lock()[queue].as_ref().map(|(_, handle)| handle.clone())
    }

    /// Syncs an appended file. `written` was loaded before the file was found to be the newest one: then those writes
    /// are in this file, or in older ones, which were synced as they were closed.
    fn sync(&self, handle: &PlainHandle, written: u64) -> io::Result<()> {
        handle.sync()?;
        self.synced.fetch_max(written, Ordering::SeqCst);
        Ok(())
    }

    fn sync_what_was_appended(&self) {
        let written = self.written.load(Ordering::SeqCst);
        if self.synced.load(Ordering::SeqCst) >= written {
            return;
        }
        let Some(handle) = self.handle_of(APPENDED) else { return };
        self.sync(&handle, written).unwrap_or_else(|error| end(&error));
    }

    /// Notes that a file is written to. A file that was made and could not be written is never the newest.
    fn note(&self, (queue, number): Place, handle: &Arc<PlainHandle>) {
        let newest = &mut self.files.lock()[queue];
        if newest.as_ref().is_none_or(|(of, _)| *of <= number) {
            *newest = Some((number, handle.clone()));
        }
    }
}

/// The kernel tells of an error once: a sync that acknowledges a write must not miss it.
fn end(error: &io::Error) -> ! {
    tracing::error!(%error, "a sync of the log failed; the process ends");
    std::process::abort();
}

impl GuardedFiles {
    pub(crate) fn new(marks: Arc<Mutex<Watermark>>) -> GuardedFiles {
        GuardedFiles { marks, newest: Arc::default() }
    }

    fn handle(&self, path: &Path, handle: PlainHandle) -> FileHandle {
        FileHandle { plain: Arc::new(handle), path: path.to_owned(), newest: self.newest.clone() }
    }

    fn before_it_goes(&self, path: &Path) -> io::Result<()> {
        let Some((queue, number)) = place_of(path) else { return Ok(()) };
        self.newest.sync_what_was_appended();
        if self.marks.lock().needed()[queue] > number {
            return Ok(());
        }
        // The engine has synced what it moved there. This does not rely on it.
        if let Some(rewritten) = self.newest.handle_of(REWRITTEN) {
            rewritten.sync().unwrap_or_else(|error| end(&error));
        }
        let mut marks = self.marks.lock();
        marks.need_from(queue, number + 1)?;
        marks.sync().unwrap_or_else(|error| end(&error));
        Ok(())
    }
}

impl FileSystem for GuardedFiles {
    type Handle = FileHandle;
    type Reader = <DefaultFileSystem as FileSystem>::Reader;
    type Writer = FileWriter;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<FileHandle> {
        let handle = DefaultFileSystem.create(&path)?;
        Ok(self.handle(path.as_ref(), handle))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<FileHandle> {
        let handle = DefaultFileSystem.open(&path, permission)?;
        Ok(self.handle(path.as_ref(), handle))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.before_it_goes(path.as_ref())?;
        DefaultFileSystem.delete(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.before_it_goes(from.as_ref())?;
        DefaultFileSystem.rename(from, to)
    }

    fn new_reader(&self, handle: Arc<FileHandle>) -> io::Result<Self::Reader> {
        DefaultFileSystem.new_reader(handle.plain.clone())
    }

    fn new_writer(&self, handle: Arc<FileHandle>) -> io::Result<FileWriter> {
        let plain = DefaultFileSystem.new_writer(handle.plain.clone())?;
        let place = place_of(&handle.path);
        Ok(FileWriter { plain, handle, place, offset: 0, is_noted: false })
    }
}

pub(crate) struct FileHandle {
    plain: Arc<PlainHandle>,
    path: PathBuf,
    newest: Arc<Newest>,
}

impl Handle for FileHandle {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.plain.truncate(offset)
    }

    fn file_size(&self) -> io::Result<usize> {
        self.plain.file_size()
    }

    fn sync(&self) -> io::Result<()> {
        match place_of(&self.path) {
            // The engine writes to no other file while it syncs this one.
            Some((APPENDED, _)) => self.newest.sync(&self.plain, self.newest.written.load(Ordering::SeqCst)),
            _ => self.plain.sync(),
        }
    }
}

pub(crate) struct FileWriter {
    plain: PlainWriter,
    handle: Arc<FileHandle>,
    place: Option<Place>,
    offset: u64,
    is_noted: bool,
}

impl FileWriter {
    /// A file whose beginning could not be written must not stay: the engine goes on with the file before it, which
    /// is then not the last one, and may have space beyond its end that only the last one may have.
    fn take_back(&self) {
        let path = &self.handle.path;
        let directory = path.parent().unwrap_or(Path::new("."));
        let removed = fs::remove_file(path).and_then(|()| fs::File::open(directory)?.sync_all());
        if let Err(error) = removed {
            tracing::error!(path = %path.display(), %error, "a log file that could not be begun stays");
        }
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let newest = &self.handle.newest;
        if let Some((REWRITTEN, _)) = self.place {
            newest.sync_what_was_appended();
        }
        let written = self.plain.write(bytes);
        match (&written, self.place) {
            (Ok(count), _) => self.offset += *count as u64,
            (Err(_), Some(_)) if self.offset == 0 => self.take_back(),
            (Err(_), _) => {}
        }
        if let (Some(place), Ok(_)) = (self.place.filter(|_| !self.is_noted), &written) {
            newest.note(place, &self.handle.plain);
            self.is_noted = true;
        }
        if let Some((APPENDED, _)) = self.place {
            newest.written.fetch_add(1, Ordering::SeqCst);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.plain.flush()
    }
}

impl Seek for FileWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.offset = self.plain.seek(to)?;
        Ok(self.offset)
    }
}

impl WriteExt for FileWriter {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.plain.truncate(offset)?;
        self.offset = offset as u64;
        Ok(())
    }

    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        self.plain.allocate(offset, size)
    }
}
