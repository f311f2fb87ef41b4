//! Files that RocksDB reads, or that it has written.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use vault::{Kind, Prefix, Stream, PREFIX_BYTES};

use crate::error::{refused, NOT_OPEN};
use crate::vaults::{draw_salt, vault_of};

/// Bytes that are encrypted at once.
const WRITE_BYTES: usize = 64 << 10;

/// An open file. Offsets and lengths are those of its content, without the prefix.
pub struct File {
    file: fs::File,
    stream: Option<Stream>,
    /// The place of the next sequential read or write.
    position: u64,
}

impl File {
    /// Opens a file for reading.
    pub fn open(path: &Path) -> io::Result<File> {
        File::of(path, fs::File::open(path)?, false)
    }

    /// Opens a file that is there for writing and reading.
    pub fn open_to_write(path: &Path) -> io::Result<File> {
        File::of(path, OpenOptions::new().read(true).write(true).open(path)?, true)
    }

    /// Opens a file for writing and reading. Makes it if it is missing, encrypted if its directory
    /// is.
    pub fn open_or_create(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        File::of(path, options.read(true).write(true).create(true).truncate(false).open(path)?, true)
    }

    /// Makes an empty file for writing, encrypted if its directory is. A file that is there loses
    /// its content.
    pub fn create(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        File::of(path, options.read(true).write(true).create(true).truncate(true).open(path)?, true)
    }

    fn of(path: &Path, file: fs::File, may_begin: bool) -> io::Result<File> {
        let mut head = Vec::new();
        (&file).take(PREFIX_BYTES as u64).read_to_end(&mut head)?;
        let Some(vault) = vault_of(path) else {
            return match Prefix::is_there(&head) {
                true => Err(refused(NOT_OPEN)),
                false => Ok(File { file, stream: None, position: 0 }),
            };
        };
        let keyring = vault.keyring();
        if may_begin && is_begun(&head) {
            let prefix = Prefix::new(Kind::Rows, &keyring, draw_salt()?);
            file.set_len(0)?;
            file.write_all_at(&prefix.encode(&keyring).map_err(refused)?, 0)?;
            let stream = Some(prefix.stream(&keyring).map_err(refused)?);
            return Ok(File { file, stream, position: 0 });
        }
        let prefix = Prefix::decode(&head, Kind::Rows, &keyring).map_err(refused)?;
        let stream = prefix.map(|prefix| prefix.stream(&keyring)).transpose().map_err(refused)?;
        Ok(File { file, stream, position: 0 })
    }

    fn shift(&self) -> u64 {
        self.stream.as_ref().map_or(0, |_| PREFIX_BYTES as u64)
    }

    /// Returns the length of the content.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.shift()))
    }

    /// Returns true if the file has no content.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len.saturating_add(self.shift()))
    }

    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(into, offset.saturating_add(self.shift()))?;
        if let Some(stream) = &self.stream {
            stream.apply(offset, &mut into[..read]);
        }
        Ok(read)
    }

    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(into, offset.saturating_add(self.shift()))?;
        if let Some(stream) = &self.stream {
            stream.apply(offset, into);
        }
        Ok(())
    }

    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(stream) = &self.stream else { return self.file.write_all_at(bytes, offset) };
        let mut offset = offset;
        let mut buffer = Vec::with_capacity(WRITE_BYTES.min(bytes.len()));
        for part in bytes.chunks(WRITE_BYTES) {
            buffer.clear();
            buffer.extend_from_slice(part);
            stream.apply(offset, &mut buffer);
            self.file.write_all_at(&buffer, offset.saturating_add(self.shift()))?;
            offset = offset.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    pub fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Returns the file of the operating system, for advice about its pages.
    pub fn raw(&self) -> &fs::File {
        &self.file
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(into, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all_at(bytes, self.position)?;
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns true if a file with this beginning has no content yet: it is empty, or a crash cut off
/// its prefix.
pub(crate) fn is_begun(head: &[u8]) -> bool {
    head.is_empty() || Prefix::is_there(head) && head.len() < PREFIX_BYTES
}

/// Returns the length of a file's content.
pub fn len(path: &Path) -> io::Result<u64> {
    let bytes = fs::metadata(path)?.len();
    match bytes > 0 && vault_of(path).is_some() {
        true => File::open(path)?.len(),
        false => Ok(bytes),
    }
}

/// Reads a file of RocksDB whole.
pub fn read_rows(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.read_to_end(&mut content)?;
    Ok(content)
}
