//! The ways in which this store ends: on request, by its own decision, immediately after a failure,
//! or in order to restart without damaged files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use storage::StorageError;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::StoreId;

use crate::row_damage;

pub struct Ends {
    store: StoreId,
    /// The data directory.
    dir: PathBuf,
    /// True while the store transfers its leaders. Other stores are told, so that no leader moves
    /// back.
    leaving: AtomicBool,
    /// Cancelled when the store accepts no more clients and serves no more commands of other
    /// stores.
    closing: CancellationToken,
    stopping: AtomicBool,
    /// The notification that the store must end itself.
    ending: Notify,
    /// Cancelled when a planned stop must not wait any longer.
    hurried: CancellationToken,
    /// True if rows are damaged and the store ends in order to restart.
    mending: AtomicBool,
    pub answering: Arc<Answering>,
}

/// The requests of other stores in progress.
#[derive(Default)]
pub struct Answering {
    now: AtomicUsize,
    /// Number of requests so far that brought commands.
    passed: AtomicU64,
}

/// A request in progress, until this is dropped.
pub struct BeingAnswered(Arc<Answering>);

impl Answering {
    pub fn begin(self: &Arc<Answering>, brings_commands: bool) -> BeingAnswered {
        self.now.fetch_add(1, Ordering::SeqCst);
        self.passed.fetch_add(u64::from(brings_commands), Ordering::SeqCst);
        BeingAnswered(self.clone())
    }

    /// Returns the number of requests in progress.
    pub fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    /// Returns the number of requests so far that brought commands.
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
    pub fn new(store: StoreId, dir: PathBuf) -> Ends {
        Ends {
            store,
            dir,
            leaving: AtomicBool::new(false),
            closing: CancellationToken::new(),
            stopping: AtomicBool::new(false),
            ending: Notify::new(),
            hurried: CancellationToken::new(),
            mending: AtomicBool::new(false),
            answering: Arc::default(),
        }
    }

    /// Tells other stores, from the next heartbeat on, that this store is stopping.
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

    /// Stops all waits for room and all searches for work.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Ends the process as after SIGTERM, because the store has finished its task.
    pub fn end(&self, why: &str) {
        tracing::info!("{why}: the store stops");
        self.ending.notify_one();
    }

    /// Waits until the store must end itself.
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

    /// Handles an error of the rows. Restarts the store if a file of rows is damaged, and ends the
    /// process otherwise. The caller must not answer from the rows.
    pub fn rows_failed(&self, what: &str, error: &StorageError) {
        let StorageError::Damaged(text) = error else { self.fatal(&format!("{what}: {error}")) };
        if self.mending.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::error!(
            what,
            error = text,
            "rows are damaged: the store transfers its leaders and restarts without them"
        );
        if let Err(error) = row_damage::note(&self.dir, text) {
            self.fatal(&format!("{what}: {text}; this cannot be noted: {error}"));
        }
        self.ending.notify_one();
    }

    /// Does the same as [`rows_failed`](Self::rows_failed) for a thread that cannot continue.
    pub fn rows_failed_for_good(&self, what: &str, error: &StorageError) -> ! {
        self.rows_failed(what, error);
        loop {
            std::thread::park();
        }
    }

    /// Returns true if the store ends in order to restart without its damaged rows.
    pub fn is_mending(&self) -> bool {
        self.mending.load(Ordering::SeqCst)
    }

    /// Ends the process after a local failure that must not become a reply. After the restart the
    /// log restores the state.
    pub fn fatal(&self, what: &str) -> ! {
        tracing::error!(what, "the store stops");
        eprintln!("steelyard: store {} stops: {what}", self.store);
        // Neither destructors nor exit handlers run, because the state of the engines is not
        // trusted.
        // SAFETY: _exit ends the process and touches no memory of ours.
        unsafe { libc::_exit(70) }
    }
}
