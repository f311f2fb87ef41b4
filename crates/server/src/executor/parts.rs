//! The parts of the store that the threads of the groups need.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use replica::EntryMemory;

use crate::blocked::Blocked;
use crate::budget::LiveBudget;
use crate::capability::LogClock;
use crate::checkpoints::Checkpoints;
use crate::cluster_state::ClusterState;
use crate::config::Config;
use crate::consistency_checks::Checks;
use crate::disk::Disk;
use crate::ends::Ends;
use crate::engine::Engine;
use crate::loops::WorkerSender;
use crate::metrics::Metrics;
use crate::pubsub::notices::Notices;
use crate::pubsub::spread::Spread;
use crate::quarantines::Quarantines;
use crate::regions::Regions;
use crate::seekers::Seekers;
use crate::transport::Transport;
use crate::unsynced::Unsynced;
use crate::wall_clock::WallClock;
use crate::written_version::WrittenVersion;

/// The shared parts. Each thread has a clone.
#[derive(Clone)]
pub struct Parts {
    pub config: Arc<Config>,
    pub budget: Arc<LiveBudget>,
    pub regions: Arc<Regions>,
    pub engine: Arc<Engine>,
    /// The state that the meta region's entries change.
    pub cluster: Arc<ClusterState>,
    pub disk: Arc<Disk>,
    pub log_clock: Arc<LogClock>,
    pub metrics: Arc<Metrics>,
    pub wall: Arc<WallClock>,
    /// The version in which entries are written.
    pub version: Arc<WrittenVersion>,
    pub transport: Arc<Transport>,
    pub worker: WorkerSender,
    pub levels: Arc<Levels>,
    pub checkpoints: Arc<Checkpoints>,
    pub checks: Arc<Checks>,
    /// The clients that wait for elements.
    pub blocked: Arc<Blocked>,
    /// The clients that want to know of changes of keys.
    pub notices: Arc<Notices>,
    /// The publications for the clients of other stores.
    pub spread: Arc<Spread>,
    pub unsynced: Arc<Unsynced>,
    pub quarantines: Arc<Quarantines>,
    /// The peers that seek a leader.
    pub seekers: Arc<Seekers>,
    pub ends: Arc<Ends>,
}

/// The fill levels of these threads' queues, for metrics and admission.
#[derive(Default)]
pub struct Levels {
    /// Bytes of entries that are handed out for execution.
    handed_out_bytes: AtomicU64,
    /// Bytes of committed entries that wait in the log for room in that queue.
    withheld_bytes: AtomicU64,
    entries: OnceLock<Arc<EntryMemory>>,
    /// True if a flush should run earlier than scheduled.
    flush_soon: AtomicBool,
}

impl Levels {
    /// Sets the counter of entries. The start calls this once.
    pub fn count_entries(&self, entries: Arc<EntryMemory>) {
        assert!(self.entries.set(entries).is_ok(), "there is one set of groups");
    }

    /// Changes the limit of the memory of entries.
    pub fn set_entry_budget(&self, bytes: u64) {
        if let Some(entries) = self.entries.get() {
            entries.set_budget(bytes);
        }
    }

    pub fn publish(&self, handed_out_bytes: u64, withheld_bytes: u64) {
        self.handed_out_bytes.store(handed_out_bytes, Ordering::Relaxed);
        self.withheld_bytes.store(withheld_bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of entries that are handed out and wait for execution, as last published
    /// by the worker.
    pub fn handed_out_bytes(&self) -> u64 {
        self.handed_out_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of entries that are committed and not applied, in that queue or in the
    /// log.
    pub fn unapplied_bytes(&self) -> u64 {
        self.handed_out_bytes() + self.withheld_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the Raft logs' entries in memory.
    pub fn entry_bytes(&self) -> u64 {
        self.entries.get().map_or(0, |entries| entries.held())
    }

    pub fn want_flush(&self) {
        self.flush_soon.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_flush_wanted(&self) -> bool {
        self.flush_soon.swap(false, Ordering::Relaxed)
    }
}
