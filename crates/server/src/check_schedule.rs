//! Orders checks of the regions that this store leads. Each region is checked about once an
//! interval, and one check runs at a time. `ctl check` orders a check at once.
//!
//! Heartbeats tell every store when a region was last checked, so a new leader continues the
//! schedule. After a start the regions become due at times spread over the interval, so that a
//! restarted cluster does not check all regions at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Comparison, Verdict};
use node::{Answer, Work};
use resp::Reply;
use types::{RegionId, StoreId};

use crate::clock;
use crate::cluster_state::ClusterState;
use crate::config::Config;
use crate::consistency_checks::{self, Checks, Order};
use crate::engine::Engine;
use crate::proposals::{NotDone, Proposals};
use crate::regions::{RegionShared, Regions};

/// Interval between two searches for a region that is due.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Time after a failed check during which no scheduled check of the region is ordered.
const RETRY: Duration = Duration::from_secs(60);
/// Time that a check waits for reports in addition to reading the rows.
const PATIENCE: Duration = Duration::from_secs(15);
/// Interval at which a waiting check tests whether all missing stores are silent.
const SILENCE_LOOK: Duration = Duration::from_millis(500);

/// The parts of a store that are needed to order checks.
#[derive(Clone)]
pub struct CheckSchedule {
    pub this: StoreId,
    pub config: Arc<Config>,
    pub regions: Arc<Regions>,
    pub engine: Arc<Engine>,
    pub cluster: Arc<ClusterState>,
    pub proposals: Proposals,
    pub checks: Arc<Checks>,
}

/// The reason why a check has no comparison.
pub enum NotChecked {
    NotLeader,
    /// The error as shown to the operator.
    Error(String),
}

/// Runs until the task is dropped.
pub async fn run(schedule: CheckSchedule) {
    let interval = schedule.config.check_interval;
    if interval.is_zero() {
        return;
    }
    let mut failed: BTreeMap<RegionId, Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_PERIOD.min(interval)).await;
        failed.retain(|_, at| at.elapsed() < RETRY.min(interval));
        let Some(region) = schedule.due(interval, &failed) else { continue };
        match schedule.check(&region).await {
            Ok(comparison) => {
                if let Verdict::Incomplete { .. } | Verdict::NoMajority = comparison.verdict {
                    tracing::warn!(region = region.id(), "{}", consistency_checks::in_words(&comparison));
                }
            }
            Err(NotChecked::NotLeader) => {}
            Err(NotChecked::Error(error)) => {
                tracing::warn!(
                    region = region.id(),
                    error,
                    "a check of the region's replicas failed and will be repeated"
                );
                failed.insert(region.id(), Instant::now());
            }
        }
    }
}

impl CheckSchedule {
    /// Returns the region led by this store whose check is longest overdue.
    fn due(&self, interval: Duration, failed: &BTreeMap<RegionId, Instant>) -> Option<Arc<RegionShared>> {
        let mut regions = self.regions.all();
        regions.retain(|region| self.regions.leads(region) && !failed.contains_key(&region.id()));
        let since = |region: &Arc<RegionShared>| {
            self.checks
                .since_last(region.id())
                .unwrap_or_else(|| self.checks.since_start() + first_age(region.id(), self.this, interval))
        };
        let oldest = regions.into_iter().max_by_key(|region| since(region))?;
        (since(&oldest) >= interval).then_some(oldest)
    }

    /// Orders a check of a region that this store leads and waits for its peers' reports.
    pub async fn check(&self, region: &Arc<RegionShared>) -> Result<Comparison, NotChecked> {
        let number = types::mix(clock::boot_nanos() ^ self.this.rotate_left(48) ^ region.id());
        let deadline = Instant::now() + self.config.request_timeout;
        let answers = match self
            .proposals
            .submit(region, Work::Order(command::order::Order::Checksum(number)), deadline)
            .await
        {
            Ok(answers) => answers,
            Err(NotDone::NotLeader) => return Err(NotChecked::NotLeader),
            Err(NotDone::Error(Reply::Error(error))) => return Err(NotChecked::Error(error.into_owned())),
            Err(NotDone::Error(_)) => return Err(NotChecked::Error("the order was not proposed".into())),
        };
        let index = match answers.into_iter().flatten().next().map(Answer::into_reply) {
            Some(Reply::Int(index)) => index as u64,
            _ => return Err(NotChecked::Error("the order was not executed".into())),
        };
        let order = Order { region: region.id(), index, number };
        // Every peer reads about as many bytes as this one.
        let bytes = self.engine.bytes_in_region(region.id());
        let reading = Duration::from_secs(3 * bytes / consistency_checks::BYTES_PER_SECOND);
        let until = Instant::now() + PATIENCE + reading;
        loop {
            let changed = self.checks.changed.notified();
            let descriptor = self.checks.descriptor_of(order).unwrap_or_else(|| (*region.newest()).clone());
            let comparison = self.checks.compare(order, &descriptor);
            let is_awaited =
                |store: StoreId| !comparison.reports.contains_key(&store) && self.cluster.is_heard(store);
            let waits =
                comparison.is_open(&descriptor) && descriptor.peers.iter().any(|peer| is_awaited(peer.store));
            if !waits || Instant::now() >= until {
                return Ok(comparison);
            }
            let _ = tokio::time::timeout(SILENCE_LOOK, changed).await;
        }
    }
}

/// Returns the assumed age, at the start of this store, of a region's last check that is unknown to
/// the store.
fn first_age(region: RegionId, this: StoreId, interval: Duration) -> Duration {
    interval.mul_f64((types::mix(region ^ this.rotate_left(32)) % 1024) as f64 / 1024.0)
}
