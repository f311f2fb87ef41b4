//! Performs file operations read from standard input, one per line, and answers each with a line.
//! The tests run it under the preload library and change its device between two lines.
//!
//! `open PATH` · `write BYTES` (at the end) · `overwrite BYTES` (at 0) · `read OFFSET BYTES` ·
//! `sync` · `allocate BYTES` · `unlink PATH` · `free PATH` · `reuse PATH` · `fill OFFSET BYTE
//! BYTES` · `truncate BYTES` · `rename PATH PATH` · `make-dir PATH` · `sync-dir PATH` ·
//! `wall-clock` (seconds) · `boot-clock` (milliseconds) · `write-rate BYTES` · `read-rate` (both in
//! bytes/s) · `sync-mean COUNT` · `read-mean COUNT` (both in nanoseconds)

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

const CHUNK: usize = 64 << 10;

fn main() -> io::Result<()> {
    let mut file: Option<File> = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let command = words.next().unwrap_or_default();
        let word = words.next().unwrap_or_default();
        let answer = match (command, &mut file) {
            ("open", slot) => {
                let opened =
                    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(word);
                opened.map(|opened| {
                    *slot = Some(opened);
                    0
                })
            }
            ("open-direct", slot) => {
                let mut open = OpenOptions::new();
                let opened = open.read(true).write(true).custom_flags(libc::O_DIRECT).open(word);
                opened.map(|opened| {
                    *slot = Some(opened);
                    0
                })
            }
            ("unlink", _) => fs::remove_file(word).map(|()| 0),
            ("rename", _) => fs::rename(word, words.next().unwrap_or_default()).map(|()| 0),
            ("make-dir", _) => fs::create_dir(word).map(|()| 0),
            ("sync-dir", _) => File::open(word).and_then(|dir| dir.sync_all()).map(|()| 0),
            ("fill", Some(file)) => {
                let (byte, count) =
                    (number(words.next().unwrap_or("0")), number(words.next().unwrap_or("0")));
                file.write_all_at(&vec![byte as u8; count as usize], number(word)).map(|()| count)
            }
            ("wall-clock", _) => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                since.map(|since| since.as_secs()).map_err(io::Error::other)
            }
            ("boot-clock", _) => boot_clock(),
            ("free", _) => free(word),
            ("reuse", _) => reuse(word),
            (_, Some(file)) => on_file(file, command, number(word), number(words.next().unwrap_or("0"))),
            (_, None) => Err(io::Error::other("no file is open")),
        };
        match answer {
            Ok(value) => println!("ok {value}"),
            Err(error) => println!("error {}", error.raw_os_error().unwrap_or(-1)),
        }
    }
    Ok(())
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or(0)
}

fn on_file(file: &mut File, command: &str, first: u64, second: u64) -> io::Result<u64> {
    match command {
        "write" => {
            let end = file.metadata()?.len();
            file.write_all_at(&vec![1; first as usize], end)?;
            Ok(first)
        }
        "overwrite" => file.write_all_at(&vec![2; first as usize], 0).map(|()| first),
        "read" => file.read_at(&mut vec![0; second as usize], first).map(|count| count as u64),
        "truncate" => file.set_len(first).map(|()| 0),
        "sync" => file.sync_data().map(|()| 0),
        "allocate" => {
            // SAFETY: plain call on an open descriptor.
            let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, first as libc::off_t) };
            if result == 0 {
                Ok(0)
            } else {
                Err(io::Error::last_os_error())
            }
        }
        "write-rate" => {
            let chunk = vec![3; CHUNK];
            let started = Instant::now();
            let mut at = 0;
            while at < first {
                file.write_all_at(&chunk, at)?;
                at += CHUNK as u64;
            }
            file.sync_data()?;
            Ok((at as f64 / started.elapsed().as_secs_f64()) as u64)
        }
        "read-rate" => {
            let mut chunk = vec![0; CHUNK];
            let started = Instant::now();
            let mut at = 0;
            loop {
                match file.read_at(&mut chunk, at)? {
                    0 => break,
                    count => at += count as u64,
                }
            }
            Ok((at as f64 / started.elapsed().as_secs_f64()) as u64)
        }
        "range-sync" => {
            let flags = libc::SYNC_FILE_RANGE_WRITE;
            // SAFETY: plain call on an open descriptor.
            match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, first as i64, flags) } {
                0 => Ok(0),
                _ => Err(io::Error::last_os_error()),
            }
        }
        // Reads `second` bytes in pages, one after the other, into memory that O_DIRECT accepts.
        "read-pages" => {
            let mut pages = vec![0; 8192];
            let skip = pages.as_ptr().align_offset(4096);
            (first..first + second)
                .step_by(4096)
                .try_for_each(|at| file.read_exact_at(&mut pages[skip..skip + 4096], at))?;
            Ok(second)
        }
        "sync-mean" => mean(first, |_| file.sync_data()),
        // Backwards, so that no read continues the preceding one.
        "read-mean" => mean(first, |index| file.read_exact_at(&mut [0; 16], (first - index) * 4096)),
        _ => Err(io::Error::other("unknown command")),
    }
}

fn mean(count: u64, mut operation: impl FnMut(u64) -> io::Result<()>) -> io::Result<u64> {
    let started = Instant::now();
    for index in 0..count {
        operation(index)?;
    }
    Ok((started.elapsed().as_nanos() / u128::from(count.max(1))) as u64)
}

fn boot_clock() -> io::Result<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the answer.
    match unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) } {
        0 => Ok(now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000),
        _ => Err(io::Error::last_os_error()),
    }
}

fn free(path: &str) -> io::Result<u64> {
    let path = std::ffi::CString::new(path)?;
    let mut described = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a C string and room for the answer, which is filled if 0 is returned.
    unsafe {
        if libc::statvfs(path.as_ptr(), described.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let described = described.assume_init();
        Ok(described.f_bavail * described.f_frsize)
    }
}

/// Closes a descriptor through stdio and reuses its number for a socket, whose bytes must not count
/// as the device's.
fn reuse(path: &str) -> io::Result<u64> {
    let fd = File::open(path)?.into_raw_fd();
    // SAFETY: the descriptor is handed to the stream, which is closed once.
    unsafe {
        let stream = libc::fdopen(fd, c"r".as_ptr());
        if stream.is_null() || libc::fclose(stream) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let (mut reader, mut writer) = UnixStream::pair()?;
    if reader.as_raw_fd() != fd && writer.as_raw_fd() != fd {
        return Err(io::Error::other("the number was not taken again"));
    }
    writer.write_all(&[4; 1000])?;
    reader.read_exact(&mut [0; 1000])?;
    Ok(0)
}
