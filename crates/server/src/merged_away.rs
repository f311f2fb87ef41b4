//! Asks the meta region about regions without a known leader: a region that merged away while this
//! store was absent has none. The heartbeat's task drives this, and `node` decides when to ask and
//! about which regions.

use std::sync::Arc;

use node::merged::{conclude, MergedWatch};
use replica::Input;
use tokio::task::JoinSet;
use types::{RegionId, META_REGION};

use crate::admin;
use crate::clock;
use crate::store::Store;

#[derive(Default)]
pub struct MergedKeeper {
    watch: MergedWatch,
    asking: JoinSet<()>,
}

impl MergedKeeper {
    pub fn look(&mut self, store: &Arc<Store>) {
        while self.asking.try_join_next().is_some() {}
        let now = clock::boot_nanos();
        if !self.watch.is_due(now) {
            return;
        }
        let table = store.regions.table();
        let local = table.iter().filter(|region| region.is_local() && region.id() != META_REGION);
        let silent = store.cluster.without_live_leader(local.map(|region| region.id()));
        let due = self.watch.look(silent, !self.asking.is_empty(), now);
        if !due.is_empty() {
            self.asking.spawn(ask(store.clone(), due));
        }
    }
}

async fn ask(store: Arc<Store>, regions: Vec<RegionId>) {
    match admin::merged_away(&store, regions.clone()).await {
        Ok(merged) => {
            for input in conclude(&regions, merged) {
                if let Input::MergedAway { region, heirs } = &input {
                    let ids = heirs.iter().map(|heir| heir.id).collect::<Vec<_>>();
                    tracing::info!(region, ?ids, "the region has merged away while this store was absent");
                }
                let _ = store.worker.raft(input);
            }
        }
        Err(error) => tracing::debug!(error.message, "the meta region does not say which regions exist"),
    }
}
