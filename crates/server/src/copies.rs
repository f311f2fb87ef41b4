//! The copies of large collections that a store's clients have begun.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of copies that go on at once. An entry of the log may have a part of each.
const AT_ONCE: usize = 4;

pub struct Copies(Arc<Semaphore>);

impl Default for Copies {
    fn default() -> Copies {
        Copies(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Copies {
    /// Waits until a copy may go on. Its place is free again when the permit is dropped.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }
}
