//! Orders checks of the regions that this store leads: each about once an interval, one after the other, and at once
//! when somebody asks.
//!
//! When a region was checked last is known from heartbeats, so a new leader goes on where the one before it was. After
//! a start regions are due at moments spread over the interval, so that a cluster that was restarted does not check
//! everything at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Comparison, Verdict};
use node::{Answer, Work};
use resp::Reply;
use types::{RegionId, StoreId};

use crate::checks::{self, Checks, Order};
use crate::clock;
use crate::cluster_state::ClusterState;
use crate::config::Config;
use crate::engine::Engine;
use crate::proposals::{NotDone, Proposals};
use crate::regions::{RegionShared, Regions};

/// How often regions are looked through for one that is due.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// A region whose check could not be ordered is left alone for this long.
const RETRY: Duration = Duration::from_secs(60);
/// How long a check waits for reports beyond the time that the rows take to read.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often a check that waits looks whether silent stores are all that it waits for.
const SILENCE_LOOK: Duration = Duration::from_millis(500);

/// What ordering checks takes.
#[derive(Clone)]
pub struct Checking {
    pub this: StoreId,
    pub config: Arc<Config>,
    pub regions: Arc<Regions>,
    pub engine: Arc<Engine>,
    pub cluster: Arc<ClusterState>,
    pub proposals: Proposals,
    pub checks: Arc<Checks>,
}

/// Why a check gave no comparison.
pub enum NotChecked {
    NotLeader,
    /// In words for the operator.
    Error(String),
}

/// Runs until the task is dropped.
pub async fn run(checking: Checking) {
    let interval = checking.config.check_interval;
    if interval.is_zero() {
        return;
    }
    let mut failed: BTreeMap<RegionId, Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_PERIOD.min(interval)).await;
        failed.retain(|_, at| at.elapsed() < RETRY.min(interval));
        let Some(region) = checking.due(interval, &failed) else { continue };
        match checking.check(&region).await {
            Ok(comparison) => {
                if let Verdict::Incomplete { .. } | Verdict::NoMajority = comparison.verdict {
                    tracing::warn!(region = region.id(), "{}", checks::in_words(&comparison));
                }
            }
            Err(NotChecked::NotLeader) => {}
            Err(NotChecked::Error(error)) => {
                tracing::warn!(region = region.id(), error, "a check of the region's replicas is put off");
                failed.insert(region.id(), Instant::now());
            }
        }
    }
}

impl Checking {
    /// The region led here whose check is longest overdue.
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
        let answers = match self.proposals.submit(region, Work::Check(number), deadline).await {
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
        let reading = Duration::from_secs(3 * bytes / checks::BYTES_PER_SECOND);
        let until = Instant::now() + PATIENCE + reading;
        loop {
            let news = self.checks.news.notified();
            let descriptor = self.checks.descriptor_of(order).unwrap_or_else(|| (*region.newest()).clone());
            let comparison = self.checks.compare(order, &descriptor);
            let is_awaited =
                |store: StoreId| !comparison.reports.contains_key(&store) && self.cluster.is_heard(store);
            let waits =
                comparison.is_open(&descriptor) && descriptor.peers.iter().any(|peer| is_awaited(peer.store));
            if !waits || Instant::now() >= until {
                return Ok(comparison);
            }
            let _ = tokio::time::timeout(SILENCE_LOOK, news).await;
        }
    }
}

/// The age that a region's last check is taken to have had when this store started, of which it knows nothing.
fn first_age(region: RegionId, this: StoreId, interval: Duration) -> Duration {
    interval.mul_f64((types::mix(region ^ this.rotate_left(32)) % 1024) as f64 / 1024.0)
}
