//! Syncs: they wait for earlier writes, then for a flush of the device's cache.

use std::ffi::{c_int, c_uint};

use device::{ControlBlock, Fault};

use super::{fail, interpose, keeping_errno};
use crate::device_state::{hang, now, on_device, wait};
use crate::image;

interpose!(fsync | fdatasync | syncfs: (fd: c_int) -> c_int => synced);
interpose!(sync_file_range: (fd: c_int, offset: i64, length: i64, flags: c_uint) -> c_int => range_synced);

fn synced(real: impl FnOnce() -> c_int, fd: c_int) -> c_int {
    let Some((block, _)) = on_device(fd) else { return real() };
    if block.take_fault(Fault::SyncEio) {
        return fail(libc::EIO);
    }
    let entered = now();
    let result = image::synced(fd, real);
    if result == 0 {
        keeping_errno(|| {
            hang(block, ControlBlock::hangs_writes);
            wait(block, entered, |start| block.sync(start));
        });
    }
    result
}

/// Performs `sync_file_range`, which promises write-back but not durability, so there is no flush.
/// The model has only one queue, so a wait for a range waits for all of it.
fn range_synced(real: impl FnOnce() -> c_int, fd: c_int, _offset: i64, length: i64, flags: c_uint) -> c_int {
    let Some((block, _)) = on_device(fd) else { return real() };
    block.range_synced(u64::try_from(length).unwrap_or(0));
    let entered = now();
    let result = real();
    let waits = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    if result == 0 && flags & waits != 0 {
        keeping_errno(|| {
            hang(block, ControlBlock::hangs_writes);
            wait(block, entered, |start| block.drained(start));
        });
    }
    result
}
