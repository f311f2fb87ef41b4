//! The failures of execution: by an entry, which stops one region's peer, or by the store's device,
//! which stops the store.

use std::any::Any;
use std::cell::Cell;

use cluster::Cause;
use replica::Committed;
use storage::StorageError;
use types::{RegionId, META_REGION};

/// The failed entry, as its position among the entries to execute, and its failure.
pub(super) struct Failed {
    pub at: usize,
    pub failure: Failure,
}

pub(super) enum Failure {
    /// Rows cannot be read.
    Store(StorageError),
    /// The entry cannot be decoded, it found rows that no correct store writes, or its execution
    /// panicked. `nth` is the item of the entry.
    Entry { nth: usize, error: String },
}

/// The progress of execution. It survives a panic.
#[derive(Default)]
pub(super) struct Progress {
    pub entry: Cell<usize>,
    pub item: Cell<usize>,
    is_in_item: Cell<bool>,
}

impl Progress {
    pub fn begin(&self, entry: usize) {
        self.entry.set(entry);
        self.item.set(0);
        self.is_in_item.set(false);
    }

    pub fn next_item(&self) {
        if self.is_in_item.replace(true) {
            self.item.set(self.item.get() + 1);
        }
    }
}

/// Returns the cause of a quarantine, the failed operation, and the error.
pub(super) fn failure_of(
    region: RegionId,
    entry: &Committed,
    nth: usize,
    error: &str,
) -> (Cause, String, String) {
    let (cause, what) = match region {
        _ if entry.change.is_some() => (Cause::Change, "a change of the region".to_owned()),
        META_REGION if !command::order::is_order(&entry.payload) => {
            (Cause::Entry, "a change of the cluster's state".to_owned())
        }
        _ => (Cause::Entry, command::describe::entry_item(&entry.payload, nth)),
    };
    (cause, what, error.to_owned())
}

/// Returns the message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
