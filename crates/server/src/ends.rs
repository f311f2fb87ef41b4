//! How this store ends: as it is told to, by itself, or at once.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use types::StoreId;

pub struct Ends {
    store: StoreId,
    /// It hands over what it leads; other stores are told, so that nothing comes back.
    leaving: AtomicBool,
    stopping: AtomicBool,
    /// Rung when the store is to end by itself.
    ending: Notify,
}

impl Ends {
    pub fn new(store: StoreId) -> Ends {
        Ends {
            store,
            leaving: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            ending: Notify::new(),
        }
    }

    /// From now on other stores hear that this one leaves.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// From now on nothing waits for room, or goes on looking for work.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The store has nothing left to do, as it was asked: the process shuts down as after SIGTERM.
    pub fn end(&self, why: &str) {
        tracing::info!("{why}: the store stops");
        self.ending.notify_one();
    }

    /// Waits until the store is to end by itself.
    pub async fn ending(&self) {
        self.ending.notified().await;
    }

    /// A local failure that must not become a reply: the process ends, and the log tells the rest after
    /// the restart.
    pub fn fatal(&self, what: &str) -> ! {
        tracing::error!(what, "the store stops");
        eprintln!("steelyard: store {} stops: {what}", self.store);
        // Neither destructors nor exit handlers run: the engines' state is what we do not trust.
        // SAFETY: _exit ends the process and touches no memory of ours.
        unsafe { libc::_exit(70) }
    }
}
