//! RocksDB's way to this crate: the functions that its file system (`files.cc`) calls.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Once};

// Links RocksDB itself.
use librocksdb_sys as _;
use vault::{Kind, Prefix, Stream, PREFIX_BYTES};

use crate::file::is_begun;
use crate::vaults::{draw_salt, vault_of, Vault};

const PLAIN: i32 = 0;
const ENCRYPTED: i32 = 1;
const REFUSED: i32 = 2;

/// Must have the same layout as `steelyard_atrest_calls` in `files.cc`.
#[repr(C)]
struct Calls {
    is_covered: unsafe extern "C" fn(path: *const u8, length: usize) -> u8,
    begin: unsafe extern "C" fn(*const u8, usize, prefix: *mut u8, stream: *mut *const Stream) -> i32,
    open: unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut *const Stream) -> i32,
    apply: unsafe extern "C" fn(stream: *const Stream, offset: u64, bytes: *mut u8, length: usize),
    release: unsafe extern "C" fn(stream: *const Stream),
}

extern "C" {
    fn steelyard_atrest_install(calls: *const Calls);
}

static CALLS: Calls = Calls { is_covered, begin, open, apply, release };

/// Puts the file system below RocksDB's default environment, once. Databases that are opened
/// afterwards use it, for files outside of registered directories as a mere pass.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    // SAFETY: The table is static, so it outlives all files.
    INSTALLED.call_once(|| unsafe { steelyard_atrest_install(&CALLS) });
}

/// # Safety
/// `path` must point to `length` bytes that live as long as the result is used.
unsafe fn path_of<'a>(path: *const u8, length: usize) -> &'a Path {
    // SAFETY: The caller vouches for the bytes.
    Path::new(OsStr::from_bytes(unsafe { std::slice::from_raw_parts(path, length) }))
}

/// Returns 1 if files at the path belong to an encrypted directory.
///
/// # Safety
/// The path must be valid for the call.
unsafe extern "C" fn is_covered(path: *const u8, length: usize) -> u8 {
    // SAFETY: As for this function.
    u8::from(vault_of(unsafe { path_of(path, length) }).is_some())
}

/// Makes the prefix of a new file, and its cipher.
///
/// # Safety
/// The path must be valid for the call, `prefix` must have room for [`PREFIX_BYTES`], and `stream`
/// for a pointer.
unsafe extern "C" fn begin(
    path: *const u8,
    length: usize,
    prefix: *mut u8,
    stream: *mut *const Stream,
) -> i32 {
    // SAFETY: As for this function.
    let Some(vault) = vault_of(unsafe { path_of(path, length) }) else { return PLAIN };
    let Ok((bytes, cipher)) = begun(&vault) else { return REFUSED };
    // SAFETY: Both places are valid for writes, and the prefix has this length.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), prefix, PREFIX_BYTES);
        stream.write(Arc::into_raw(Arc::new(cipher)));
    }
    ENCRYPTED
}

fn begun(vault: &Vault) -> io::Result<(Vec<u8>, Stream)> {
    let keyring = vault.keyring();
    let prefix = Prefix::new(Kind::Rows, &keyring, draw_salt()?);
    let failed = |error: vault::PrefixError| io::Error::other(error.to_string());
    Ok((prefix.encode(&keyring).map_err(failed)?, prefix.stream(&keyring).map_err(failed)?))
}

/// Reads the beginning of a file. A file without content counts as plain.
///
/// # Safety
/// The path and the beginning must be valid for the call, and `stream` for the write of a pointer.
unsafe extern "C" fn open(
    path: *const u8,
    length: usize,
    head: *const u8,
    head_length: usize,
    stream: *mut *const Stream,
) -> i32 {
    // SAFETY: As for this function.
    let (path, head) = unsafe { (path_of(path, length), std::slice::from_raw_parts(head, head_length)) };
    let Some(vault) = vault_of(path) else {
        return if Prefix::is_there(head) { REFUSED } else { PLAIN };
    };
    if is_begun(head) {
        return PLAIN;
    }
    let keyring = vault.keyring();
    let decoded = Prefix::decode(head, Kind::Rows, &keyring);
    match decoded.and_then(|prefix| prefix.map(|prefix| prefix.stream(&keyring)).transpose()) {
        Ok(None) => PLAIN,
        Ok(Some(cipher)) => {
            // SAFETY: The place is valid for the write.
            unsafe { stream.write(Arc::into_raw(Arc::new(cipher))) };
            ENCRYPTED
        }
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "a file of RocksDB cannot be read");
            REFUSED
        }
    }
}

/// Encrypts or decrypts bytes in place.
///
/// # Safety
/// The stream must come from this module and not be released, and the bytes must be valid and used
/// by no other thread during the call.
unsafe extern "C" fn apply(stream: *const Stream, offset: u64, bytes: *mut u8, length: usize) {
    if length > 0 {
        // SAFETY: As for this function.
        unsafe { (*stream).apply(offset, std::slice::from_raw_parts_mut(bytes, length)) }
    }
}

/// # Safety
/// The stream must come from this module, and must not be used afterwards.
unsafe extern "C" fn release(stream: *const Stream) {
    // SAFETY: The pointer came from `Arc::into_raw`, and is given back once.
    drop(unsafe { Arc::from_raw(stream) });
}
