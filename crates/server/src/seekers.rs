//! The peers here that seek a leader, and whether this store has a session with ZooKeeper.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use replica::Seeker;
use tokio::sync::Notify;
use types::RegionId;

/// The peers of this store that seek a leader, as their worker reports them, and the state of the
/// session.
#[derive(Default)]
pub struct Seekers {
    /// The latest report of each region that the choice has not read.
    reports: Mutex<BTreeMap<RegionId, Option<Seeker>>>,
    reported: Notify,
    has_session: AtomicBool,
}

impl Seekers {
    pub fn put(&self, region: RegionId, seeker: Option<Seeker>) {
        self.reports.lock().insert(region, seeker);
        self.reported.notify_one();
    }

    /// Waits for the next report.
    pub async fn reported(&self) {
        self.reported.notified().await;
    }

    /// Takes the reports since the last call.
    pub fn take(&self) -> BTreeMap<RegionId, Option<Seeker>> {
        std::mem::take(&mut self.reports.lock())
    }

    pub fn set_session(&self, has_session: bool) {
        self.has_session.store(has_session, Ordering::Relaxed);
    }

    /// Returns true if this store has a session with ZooKeeper, as far as it knows: none of its
    /// ephemeral znodes has been deleted.
    pub fn has_session(&self) -> bool {
        self.has_session.load(Ordering::Relaxed)
    }
}
