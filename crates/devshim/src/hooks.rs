//! The libc functions that this library intercepts, by family.

mod clock;
mod descriptors;
mod names;
mod space;
mod sync;
mod transfer;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Attaches to the device. `.init_array` runs this when the library is loaded. Earlier calls, made
/// by other libraries, pass through.
#[used]
#[link_section = ".init_array"]
static ATTACH: extern "C" fn() = {
    extern "C" fn attach() {
        crate::device_state::attach();
    }
    attach
};

/// The next definition of a function, looked up on first use. That may happen before `main`, before
/// this library's start-up, or inside an allocator, so the look-up takes no lock and allocates
/// nothing.
pub(crate) struct Next {
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name_with_nul: &'static str) -> Next {
        Next { name: name_with_nul, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub(crate) fn get(&self) -> *mut c_void {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the name ends in NUL (see `interpose`).
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast::<c_char>()) };
            if found.is_null() {
                // SAFETY: plain call. A program that calls a function missing from its libc could
                // not have been linked.
                unsafe { libc::abort() }
            }
            self.found.store(found, Ordering::Relaxed);
        }
        found
    }
}

/// Defines libc functions (one or more names with the same arguments) that call `$hook` with the
/// real function as its first argument.
///
/// Variadic functions are declared in their longest form. In the x86-64 and AArch64 Linux ABIs an
/// absent argument is an unset register, which the real function ignores as it does for C callers.
macro_rules! interpose {
    (@one $name:ident ($($arg:ident: $type:ty),*) -> $ret:ty => $hook:path) => {
        /// # Safety
        /// As the libc function of this name.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            static NEXT: $crate::hooks::Next = $crate::hooks::Next::new(concat!(stringify!($name), "\0"));
            type Real = unsafe extern "C" fn($($type),*) -> $ret;
            // SAFETY: the symbol of this name has this C signature.
            let real = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(NEXT.get()) };
            // SAFETY: the caller's promises are passed on unchanged.
            $hook(|| unsafe { real($($arg),*) }, $($arg),*)
        }
    };
    ($($name:ident)|+: $args:tt -> $ret:ty => $hook:path) => {
        $($crate::hooks::interpose!(@one $name $args -> $ret => $hook);)+
    };
}
pub(crate) use interpose;

/// Runs `work` between a real call and the return to the caller, without changing `errno`.
pub(crate) fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: libc's own thread-local.
    let errno = unsafe { *libc::__errno_location() };
    work();
    set_errno(errno);
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: libc's own thread-local.
    unsafe { *libc::__errno_location() = errno }
}

pub(crate) fn fail<T: From<i8>>(errno: c_int) -> T {
    set_errno(errno);
    T::from(-1)
}
