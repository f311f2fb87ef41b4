//! Asks the meta region about regions that seem to have no leader: a region that merged away while
//! this store was absent has none. The heartbeat's task drives this.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use replica::Input;
use tokio::task::JoinSet;
use tokio::time::Instant;
use types::{RegionId, META_REGION};

use crate::admin_backend;
use crate::loops::ToWorker;
use crate::store::Store;

/// The time between two looks at all regions.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The time without a leader after which the meta region is asked, and between two questions.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of regions of one question.
const ASKED_MAX: usize = 64;

#[derive(Default)]
pub struct MergedKeeper {
    /// The regions without a leader, and since when.
    silent: BTreeMap<RegionId, Instant>,
    looked: Option<Instant>,
    asked: Option<Instant>,
    asking: JoinSet<()>,
}

impl MergedKeeper {
    pub fn look(&mut self, store: &Arc<Store>) {
        while self.asking.try_join_next().is_some() {}
        let now = Instant::now();
        if self.looked.is_some_and(|at| now.duration_since(at) < LOOK_AGAIN) {
            return;
        }
        self.looked = Some(now);
        let table = store.regions.table();
        let local = table.iter().filter(|region| region.is_local() && region.id() != META_REGION);
        let silent = store.cluster.without_live_leader(local.map(|region| region.id()));
        let since = |region| (region, self.silent.get(&region).copied().unwrap_or(now));
        self.silent = silent.into_iter().map(since).collect();
        let lately = self.asked.is_some_and(|at| now.duration_since(at) < ASK_AFTER);
        if lately || !self.asking.is_empty() {
            return;
        }
        let is_due = |since: &Instant| now.duration_since(*since) >= ASK_AFTER;
        let due = self.silent.iter().filter(|(_, since)| is_due(since)).map(|(region, _)| *region);
        let due: Vec<RegionId> = due.take(ASKED_MAX).collect();
        if !due.is_empty() {
            self.asked = Some(now);
            self.asking.spawn(ask(store.clone(), due));
        }
    }
}

async fn ask(store: Arc<Store>, regions: Vec<RegionId>) {
    match admin_backend::merged_away(&store, regions).await {
        Ok(merged) => {
            for (region, heirs) in merged {
                let ids = heirs.iter().map(|heir| heir.id).collect::<Vec<_>>();
                tracing::info!(region, ?ids, "the region has merged away while this store was absent");
                let _ = store.worker.send(ToWorker::Input(Input::MergedAway { region, heirs }));
            }
        }
        Err(error) => tracing::debug!(error.message, "the meta region does not say which regions exist"),
    }
}
