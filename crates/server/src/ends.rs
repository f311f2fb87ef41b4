//! How this store ends: as it is told to, by itself, or at once.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::StoreId;

pub struct Ends {
    store: StoreId,
    /// It hands over what it leads; other stores are told, so that nothing comes back.
    leaving: AtomicBool,
    /// Cancelled when the store accepts no more clients and serves no more commands of other stores.
    closing: CancellationToken,
    stopping: AtomicBool,
    /// Rung when the store is to end by itself.
    ending: Notify,
    /// Cancelled when a planned stop must wait no longer.
    hurried: CancellationToken,
    pub answering: Arc<Answering>,
}

/// Counts other stores' requests.
#[derive(Default)]
pub struct Answering {
    now: AtomicUsize,
    /// Number of requests so far that brought commands.
    passed: AtomicU64,
}

/// A request that is being answered until this is dropped.
pub struct BeingAnswered(Arc<Answering>);

impl Answering {
    pub fn begin(self: &Arc<Answering>, brings_commands: bool) -> BeingAnswered {
        self.now.fetch_add(1, Ordering::SeqCst);
        self.passed.fetch_add(u64::from(brings_commands), Ordering::SeqCst);
        BeingAnswered(self.clone())
    }

    /// The number of requests that are being answered.
    pub fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    /// The number of requests so far that brought commands.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Drop for BeingAnswered {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ends {
    pub fn new(store: StoreId) -> Ends {
        Ends {
            store,
            leaving: AtomicBool::new(false),
            closing: CancellationToken::new(),
            stopping: AtomicBool::new(false),
            ending: Notify::new(),
            hurried: CancellationToken::new(),
            answering: Arc::default(),
        }
    }

    /// From now on other stores hear that this one is stopping.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Stops accepting clients and serving commands of other stores.
    pub fn close(&self) {
        self.closing.cancel();
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Waits until the store accepts no more clients.
    pub async fn closing(&self) {
        self.closing.cancelled().await;
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

    /// Ends the waiting of a planned stop.
    pub fn hurry(&self) {
        self.hurried.cancel();
    }

    /// Waits until [`hurry`](Self::hurry) is called.
    pub async fn hurried(&self) {
        self.hurried.cancelled().await;
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
