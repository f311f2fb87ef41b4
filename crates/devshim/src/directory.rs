//! Names in a directory, read by plain system calls into a buffer on the stack.

use std::ffi::{c_int, CStr};

/// Offsets in `struct linux_dirent64`.
const RECORD_LENGTH: usize = 16;
const RECORD_TYPE: usize = 18;
const RECORD_NAME: usize = 19;

#[repr(align(8))]
struct Entries<const BYTES: usize>([u8; BYTES]);

/// Calls `each` with the name and the type (`DT_DIR` and so on) of every entry of the open
/// directory `dir` except `.` and `..`, from the descriptor's position on. `BYTES` is the size of
/// the buffer on the stack; a caller that calls itself for subdirectories has one for each level.
pub fn for_each_entry<const BYTES: usize>(dir: c_int, mut each: impl FnMut(&CStr, u8)) {
    let mut entries = Entries([0; BYTES]);
    loop {
        // SAFETY: the buffer has the length given.
        let filled =
            unsafe { libc::syscall(libc::SYS_getdents64, dir, entries.0.as_mut_ptr(), entries.0.len()) };
        let filled = usize::try_from(filled).unwrap_or(0).min(entries.0.len());
        if filled == 0 {
            return;
        }
        let mut at = 0;
        while at + RECORD_NAME < filled {
            let record = &entries.0[at..filled];
            let length = usize::from(u16::from_ne_bytes([record[RECORD_LENGTH], record[RECORD_LENGTH + 1]]));
            if let Ok(name) = CStr::from_bytes_until_nul(&record[RECORD_NAME..]) {
                if name != c"." && name != c".." {
                    each(name, record[RECORD_TYPE]);
                }
            }
            at += length.max(RECORD_NAME);
        }
    }
}
