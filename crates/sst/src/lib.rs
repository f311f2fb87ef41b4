//! Writes SST files that RocksDB can ingest. The C interface of RocksDB 7 has a writer, too, but
//! that one drops the pages of the file from the page cache, so reads and compaction fetch new rows
//! from the device again. It also lacks deletions in the interface for Rust.

use std::ffi::{c_char, c_void, CStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

// Links RocksDB itself.
use librocksdb_sys as _;

/// The compression of data blocks, with RocksDB's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    None = 0,
    Lz4 = 4,
    Zstd = 7,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Format {
    /// Size of a data block, in bytes.
    pub block_bytes: u64,
    /// Bits per key of the Bloom filter over whole keys; 0 for no filter.
    pub bloom_bits: f64,
    /// Bytes after which the kernel is asked to begin writing them to the device; 0 for never.
    pub bytes_per_sync: u64,
    /// The version of RocksDB's table format.
    pub format_version: u32,
    pub compression: Compression,
    /// True if the pages of the file stay in the page cache.
    pub stays_in_page_cache: bool,
    /// True if the file is written past the page cache.
    pub direct_writes: bool,
}

/// An error of RocksDB, in its own words, which begin with the kind of the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A file that is being written. If it is dropped before it is finished, an incomplete file stays.
#[derive(Debug)]
pub struct Writer {
    raw: NonNull<c_void>,
}

// SAFETY: The C++ object is not bound to a thread, and every method takes it by unique reference.
unsafe impl Send for Writer {}

extern "C" {
    fn steelyard_sst_create(format: *const Format, in_memory: u8) -> *mut c_void;
    fn steelyard_sst_destroy(writer: *mut c_void);
    fn steelyard_sst_open(writer: *mut c_void, path: *const u8, length: usize) -> *mut c_char;
    fn steelyard_sst_put(
        writer: *mut c_void,
        row: *const u8,
        row_length: usize,
        value: *const u8,
        value_length: usize,
    ) -> *mut c_char;
    fn steelyard_sst_delete(writer: *mut c_void, row: *const u8, length: usize) -> *mut c_char;
    fn steelyard_sst_delete_range(
        writer: *mut c_void,
        from: *const u8,
        from_length: usize,
        to: *const u8,
        to_length: usize,
    ) -> *mut c_char;
    fn steelyard_sst_finish(writer: *mut c_void) -> *mut c_char;
    fn steelyard_sst_file_size(writer: *mut c_void) -> u64;
    fn steelyard_sst_built(writer: *mut c_void, length: *mut usize) -> *const u8;
    fn steelyard_sst_drop_built(writer: *mut c_void);
    fn steelyard_sst_free_text(text: *mut c_char);
}

impl Writer {
    /// Creates the file at `path`. A file that is there is overwritten.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path, format: &Format) -> Result<Writer, Error> {
        Writer::open(path.as_os_str().as_bytes(), format, false)
    }

    fn open(path: &[u8], format: &Format, in_memory: bool) -> Result<Writer, Error> {
        // SAFETY: The format is valid for the call, and has the layout that the callee expects.
        let raw = unsafe { steelyard_sst_create(format, u8::from(in_memory)) };
        let writer = Writer { raw: NonNull::new(raw).expect("C++'s new returns no null") };
        // SAFETY: The writer is alive, and the path's bytes are valid for the call.
        check(unsafe { steelyard_sst_open(writer.raw.as_ptr(), path.as_ptr(), path.len()) })?;
        Ok(writer)
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A row that is not after all earlier ones. RocksDB reports an error of the file system only
    /// when the file is [finished](Self::finish).
    pub fn put(&mut self, row: &[u8], value: &[u8]) -> Result<(), Error> {
        // SAFETY: The writer is alive, and both slices are valid for the call.
        check(unsafe {
            steelyard_sst_put(self.raw.as_ptr(), row.as_ptr(), row.len(), value.as_ptr(), value.len())
        })
    }

    /// Appends the deletion of a row.
    ///
    /// # Errors
    /// Same as [`put`](Self::put).
    pub fn delete(&mut self, row: &[u8]) -> Result<(), Error> {
        // SAFETY: The writer is alive, and the slice is valid for the call.
        check(unsafe { steelyard_sst_delete(self.raw.as_ptr(), row.as_ptr(), row.len()) })
    }

    /// Adds the deletion of all rows in `from..to` that are not in this file. It needs no order.
    ///
    /// # Errors
    /// Those of RocksDB.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        // RocksDB would write an inverted range into the file.
        if from >= to {
            return Ok(());
        }
        // SAFETY: The writer is alive, and both slices are valid for the call.
        check(unsafe {
            steelyard_sst_delete_range(self.raw.as_ptr(), from.as_ptr(), from.len(), to.as_ptr(), to.len())
        })
    }

    /// Returns the size of the file so far, in bytes.
    pub fn file_size(&mut self) -> u64 {
        // SAFETY: The writer is alive.
        unsafe { steelyard_sst_file_size(self.raw.as_ptr()) }
    }

    /// Writes the rest of the file and syncs it.
    ///
    /// # Errors
    /// Those of the file system, and a file without rows and deletions.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        // SAFETY: The writer is alive.
        check(unsafe { steelyard_sst_finish(self.raw.as_ptr()) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: The object was created by `steelyard_sst_create`, and nothing uses it afterwards.
        unsafe { steelyard_sst_destroy(self.raw.as_ptr()) }
    }
}

/// A file that is built in memory, piece by piece, and written nowhere. The caller takes each piece
/// before it adds more rows, so that a file of any size needs little memory: about a MiB, its index
/// and its filter.
#[derive(Debug)]
pub struct Builder {
    writer: Writer,
}

impl Builder {
    /// Begins a file. The parts of the format about a device have no effect.
    ///
    /// # Errors
    /// Those of RocksDB.
    pub fn new(format: &Format) -> Result<Builder, Error> {
        Ok(Builder { writer: Writer::open(b"in memory", format, true)? })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Same as [`Writer::put`].
    pub fn put(&mut self, row: &[u8], value: &[u8]) -> Result<(), Error> {
        self.writer.put(row, value)
    }

    /// Returns the size of the file so far, in bytes.
    pub fn file_size(&mut self) -> u64 {
        self.writer.file_size()
    }

    /// Returns the bytes of the file since the last [drop](Self::drop_built).
    pub fn built(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: The writer is alive, and `length` is valid for the call. The bytes stay valid
        // until a method that takes this object by unique reference is called, which the lifetime
        // of the result excludes. The pointer of an empty string is not null.
        unsafe {
            let bytes = steelyard_sst_built(self.writer.raw.as_ptr(), &mut length);
            std::slice::from_raw_parts(bytes, length)
        }
    }

    /// Drops the bytes that [`built`](Self::built) returns.
    pub fn drop_built(&mut self) {
        // SAFETY: The writer is alive.
        unsafe { steelyard_sst_drop_built(self.writer.raw.as_ptr()) }
    }

    /// Builds the rest of the file. No row can be added afterwards.
    ///
    /// # Errors
    /// A file without rows.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.writer.end()
    }
}

/// Converts the result of a C function: null, or a text that this function frees.
fn check(text: *mut c_char) -> Result<(), Error> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: A text that is not null ends with a zero byte and lives until it is freed below.
    let error = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: The text came from this library and is not used afterwards.
    unsafe { steelyard_sst_free_text(text) };
    Err(Error(error))
}
