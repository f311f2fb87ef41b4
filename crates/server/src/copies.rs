//! The copies of large collections that a store's clients have begun.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of copies that go on at once. An entry of the log may have a part of each.
const AT_ONCE: usize = 4;
/// Maximum number of copies that go on or wait for a place. They do not end with their clients.
const COPIES_MAX: usize = 1024;

pub struct Copies {
    all: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { all: Arc::new(Semaphore::new(COPIES_MAX)), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Copies {
    /// Admits a copy, which counts until the permit is dropped; `None` if there are too many.
    pub fn admit(&self) -> Option<OwnedSemaphorePermit> {
        self.all.clone().try_acquire_owned().ok()
    }

    /// Returns a place for a copy to go on, if one is free.
    pub fn free_place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Waits for a place.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().acquire_owned().await.ok()
    }
}
