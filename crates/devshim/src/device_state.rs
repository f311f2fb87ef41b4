//! The device that this process is on, and the descriptors that are on that device.

use std::cell::Cell;
use std::ffi::{c_char, c_int, CStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use device::{Cache, Control, ControlBlock, DEVICE_ENV, IMAGE_ENV, ROOT_ENV};

use crate::image;
use crate::pace::Pace;

/// Number of descriptors that are tracked. Higher ones pass through.
pub const DESCRIPTORS: usize = 65_536;

pub const ON_DEVICE: u32 = 1;
/// Opened with O_DIRECT: writes wait for the device, without the write-behind allowance.
pub const DIRECT: u32 = 2;
/// Opened with O_SYNC or O_DSYNC: every write ends with a sync.
pub const SYNCHRONOUS: u32 = 4;
/// `posix_fadvise(RANDOM)` was called: there is no read-ahead.
pub const RANDOM: u32 = 8;

static FLAGS: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
/// The end of each descriptor's last read.
static READ_END: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
/// The inode number of each descriptor's file, once it was looked up; else 0.
static FILES: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

pub struct State {
    control: Control,
    /// The root directory, without symbolic links and ending in `/`.
    root: Vec<u8>,
}

/// Attaches to the device. Runs when the library is loaded, before `main` and before there is a
/// second thread. If the process names a device that is not available, it exits, because results at
/// full speed would be wrong.
pub fn attach() {
    let Some(device) = std::env::var_os(DEVICE_ENV).filter(|named| !named.is_empty()) else { return };
    let root = std::env::var_os(ROOT_ENV).filter(|named| !named.is_empty()).map(PathBuf::from);
    let Some(root) = root else { refuse(&format!("{DEVICE_ENV} is set, {ROOT_ENV} is not")) };
    let control = match Control::open(Path::new(&device)) {
        Ok(control) => control,
        Err(error) => refuse(&error.to_string()),
    };
    let mut root = match root.canonicalize() {
        Ok(root) => root.as_os_str().as_bytes().to_vec(),
        Err(error) => refuse(&format!("{ROOT_ENV} {}: {error}", root.display())),
    };
    if root.last() != Some(&b'/') {
        root.push(b'/');
    }
    if let Some(path) = std::env::var_os(IMAGE_ENV).filter(|named| !named.is_empty()) {
        image::attach(Path::new(&path)).unwrap_or_else(|why| refuse(&why));
    }
    STATE.store(Box::into_raw(Box::new(State { control, root })), Ordering::Release);
}

fn refuse(why: &str) -> ! {
    eprintln!("device emulation: {why}");
    std::process::exit(125)
}

pub fn state() -> Option<&'static State> {
    // SAFETY: null, or a box that `attach` leaked.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

impl State {
    pub fn block(&self) -> &ControlBlock {
        self.control.block()
    }

    /// Returns the cache of a hybrid device.
    pub fn cache(&self) -> Option<Cache<'_>> {
        self.control.cache()
    }

    /// Copies the root directory to `out` as a C string for system calls. Returns false if it is
    /// too long.
    pub fn root(&self, out: &mut [u8; libc::PATH_MAX as usize]) -> bool {
        if self.root.len() >= out.len() {
            return false;
        }
        out[..self.root.len()].copy_from_slice(&self.root);
        out[self.root.len()] = 0;
        true
    }

    /// Returns true if an open file is under the root. Asks the kernel for its path, so relative
    /// paths, links and `openat` need no special handling.
    pub fn holds(&self, fd: c_int) -> bool {
        let mut link = [0u8; 32];
        let mut path = [0u8; libc::PATH_MAX as usize];
        if !proc_link(fd, &mut link) {
            return false;
        }
        // SAFETY: `link` ends in NUL and `path` has the length given.
        let length = unsafe {
            libc::syscall(
                libc::SYS_readlinkat,
                libc::AT_FDCWD,
                link.as_ptr().cast::<c_char>(),
                path.as_mut_ptr(),
                path.len() - 1,
            )
        };
        let Ok(length) = usize::try_from(length) else { return false };
        let Some(path) = path.get(..length) else { return false };
        path.starts_with(&self.root) || path == &self.root[..self.root.len() - 1]
    }

    /// Same as [`holds`](Self::holds), for a path that is not open.
    ///
    /// # Safety
    /// `path` is null or a C string.
    pub unsafe fn holds_path(&self, path: *const c_char) -> bool {
        if path.is_null() {
            return false;
        }
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        // SAFETY: a C string by contract. The descriptor is ours until closed.
        unsafe {
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) as c_int;
            if fd < 0 {
                return false;
            }
            let held = self.holds(fd);
            libc::syscall(libc::SYS_close, fd);
            held
        }
    }
}

/// Writes `/proc/self/fd/N` to `out` without an allocation.
fn proc_link(fd: c_int, out: &mut [u8; 32]) -> bool {
    const PREFIX: &CStr = c"/proc/self/fd/";
    let Ok(mut number) = u32::try_from(fd) else { return false };
    let prefix = PREFIX.to_bytes();
    out[..prefix.len()].copy_from_slice(prefix);
    let mut digits = [0u8; 10];
    let mut count = 0;
    loop {
        digits[count] = b'0' + (number % 10) as u8;
        count += 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    for (index, digit) in digits[..count].iter().rev().enumerate() {
        out[prefix.len() + index] = *digit;
    }
    true
}

pub fn flags(fd: c_int) -> u32 {
    usize::try_from(fd).ok().and_then(|fd| FLAGS.get(fd)).map_or(0, |flags| flags.load(Ordering::Relaxed))
}

pub fn set_flags(fd: c_int, flags: u32) {
    if let Some((slot, end)) =
        usize::try_from(fd).ok().and_then(|fd| Some((FLAGS.get(fd)?, READ_END.get(fd)?)))
    {
        slot.store(flags, Ordering::Relaxed);
        end.store(u64::MAX, Ordering::Relaxed);
        FILES[fd as usize].store(0, Ordering::Relaxed);
    }
    if flags & ON_DEVICE == 0 {
        image::forget(fd);
    }
}

/// Records that `copy` is another number of the same open file.
pub fn copy_flags(fd: c_int, copy: c_int) {
    set_flags(copy, flags(fd));
    image::duplicated(fd, copy);
}

pub fn forget_range(first: u32, last: u32) {
    let last = (last as usize).min(DESCRIPTORS - 1);
    (first as usize..=last).for_each(|fd| {
        FLAGS[fd].store(0, Ordering::Relaxed);
        FILES[fd].store(0, Ordering::Relaxed);
        image::forget(fd as c_int);
    });
}

/// Returns the device and the descriptor's flags, if the descriptor is on a device.
pub fn on_device(fd: c_int) -> Option<(&'static ControlBlock, u32)> {
    let flags = flags(fd);
    if flags & ON_DEVICE == 0 {
        return None;
    }
    state().map(|state| (state.block(), flags))
}

/// Returns the inode number of a descriptor's file.
pub fn file_of(fd: c_int) -> u64 {
    let Some(slot) = usize::try_from(fd).ok().and_then(|fd| FILES.get(fd)) else { return 0 };
    match slot.load(Ordering::Relaxed) {
        0 => {
            let inode = status(fd).map_or(0, |status| status.st_ino);
            slot.store(inode, Ordering::Relaxed);
            inode
        }
        inode => inode,
    }
}

pub fn status(fd: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills the structure when it returns 0.
    unsafe { (libc::fstat(fd, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }
}

/// Records a read of `[begin, end)`. Returns true if it continued the preceding read.
pub fn continues(fd: c_int, begin: u64, end: u64) -> bool {
    let slot = usize::try_from(fd).ok().and_then(|fd| READ_END.get(fd));
    slot.is_some_and(|slot| slot.swap(end, Ordering::Relaxed) == begin)
}

/// Nanoseconds between two looks whether a device that hangs answers again.
const HANG_LOOK_NS: u64 = 2_000_000;

thread_local! {
    static PACE: Cell<Pace> = const { Cell::new(Pace::new()) };
    static FINE_TIMER: Cell<bool> = const { Cell::new(false) };
}

pub fn now() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec; this clock cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut at) };
    (at.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(at.tv_nsec as u64)
}

/// Makes the thread wait until the device has finished an operation that entered at `entered`.
/// `work` receives the operation's start in the thread's account and returns its end.
pub fn wait(block: &ControlBlock, entered: u64, work: impl FnOnce(u64) -> u64) {
    // A thread that is ending has lost its account and waits with an empty one.
    let mut pace = PACE.try_with(Cell::get).unwrap_or(Pace::new());
    let end = work(pace.start(entered));
    let before = now();
    if let Some(until) = pace.finish(entered, before, end) {
        sleep_until(until);
        let after = now();
        block.stalled(after.saturating_sub(before));
        pace.woke(after);
    }
    let _ = PACE.try_with(|cell| cell.set(pace));
}

/// Holds the thread while the device hangs.
pub fn hang(block: &ControlBlock, hangs: impl Fn(&ControlBlock) -> bool) {
    while hangs(block) {
        sleep_until(now().saturating_add(HANG_LOOK_NS));
    }
}

fn sleep_until(nanos: u64) {
    let fine = FINE_TIMER.try_with(|set| set.replace(true)).unwrap_or(true);
    let at = libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: plain calls. The default timer slack of 50 us would double many waits.
    unsafe {
        if !fine {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong, 0, 0, 0);
        }
        while libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut())
            == libc::EINTR
        {}
    }
}
